"""Every case of real models with published sizes: exact bytes, or an error of one line."""

import json
from pathlib import Path

import pytest

from kvbook.accounting import ConfigError, cache_spec

CASES = json.loads((Path(__file__).parent / "data" / "kv_sizes.json").read_text())["cases"]


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_the_bytes_are_exact(case):
    config = case["config"]
    if isinstance(config, str):  # the raw text of a file
        config = json.loads(config)
    keys = ("context", "batch", "cache_dtype", "policy", "tensor_parallel")
    arguments = {key: case[key] for key in keys}
    if case.get("expect_error"):
        with pytest.raises(ConfigError) as caught:
            cache_spec(config).nbytes(**arguments)
        assert "\n" not in str(caught.value)
    else:
        assert cache_spec(config).nbytes(**arguments) == case["expect_bytes"]
