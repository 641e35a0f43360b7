"""Say where the book lives: `repository.url` in _config.yml, and what follows from it.

    python tools/publish_config.py https://github.com/OWNER/NAME
    python tools/publish_config.py ""          it has no address

What follows: the link to the repository and the Colab buttons on the pages, and the setup cell in each
notebook. Outputs stay as they are; nothing is executed. Saying the same twice changes nothing.
"""

from __future__ import annotations

import argparse
import re
import sys

import lessons

CONFIG = lessons.ROOT / "_config.yml"
COLAB = "https://colab.research.google.com"
OWNER = r"[A-Za-z0-9](?:-?[A-Za-z0-9]){0,38}"
NAME = r"(?!\.\.?$)[A-Za-z0-9._-]{1,100}"


def checked(address: str) -> str:
    """The address as it is written down; ValueError, one sentence, for one that cannot be right."""
    bare = address.strip().removesuffix("/").removesuffix(".git")
    if bare and not re.fullmatch(rf"https://github\.com/{OWNER}/{NAME}", bare):
        raise ValueError(
            f"URL is {address!r}; it must be like https://github.com/OWNER/NAME, since Colab opens "
            "notebooks from GitHub alone, or empty."
        )
    return bare


def stamped(config: str, address: str) -> str:
    """The text of _config.yml with this address; ValueError where it lacks one of the three lines."""
    wanted = {
        r"(repository:\n(?:  .*\n)*?  url:)": f'"{address}"',
        r"(launch_buttons:\n(?:  .*\n)*?  colab_url:)": f'"{COLAB if address else ""}"',
        r"(html:\n(?:  .*\n)*?  use_repository_button:)": "true" if address else "false",
    }
    for line, value in wanted.items():
        config, found = re.subn(rf'^{line} (?:"[^"]*"|\w+)', rf"\1 {value}", config, flags=re.M)
        if found != 1:
            raise ValueError(
                f"_config.yml has no single line for {line.split(':')[-2].split()[-1]}."
            )
    return config


def check_notebooks() -> None:
    """Raise ValueError, one sentence, for a notebook that cannot be read, so takes no address."""
    for path in (source.with_suffix(".ipynb") for source in lessons.sources()):
        try:
            lessons.read_notebook(path)
        except Exception as error:  # whatever a broken file brings
            name = path.relative_to(lessons.ROOT)
            raise ValueError(f"{name} cannot be read: {lessons.reason(error)}") from None


def main() -> int:
    parser = argparse.ArgumentParser(description="Say where the book lives.")
    parser.add_argument("url", metavar="URL", nargs="?", help="as above")
    url = parser.parse_args().url
    try:
        if url is None:
            raise ValueError(
                "no address is given; say make publish-config URL=https://github.com/OWNER/NAME, "
                "or URL= for none."
            )
        address = checked(url)
        before = CONFIG.read_text(encoding="utf-8")
        after = stamped(before, address)
        check_notebooks()  # before anything is written
        if after != before:
            lessons.put(CONFIG, after)
        pages = [path for path in lessons.sources() if lessons.restamp(path)]
    except (ValueError, OSError) as error:
        print(f"kvbook: {error}", file=sys.stderr)
        return 1
    print(f"The book lives at {address}." if address else "The book has no address.")
    print(f"Changed: _config.yml: {after != before}, notebooks: {len(pages)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
