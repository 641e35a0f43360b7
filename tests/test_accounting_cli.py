"""The command line as a person meets it: exit status, one line of complaint, never a traceback."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kvbook.accounting.tables import table

CASES = json.loads((Path(__file__).parent / "data" / "kv_sizes.json").read_text())["cases"]
LLAMA_2_7B = {
    "model_type": "llama",
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "torch_dtype": "float16",
}


def command(*arguments: object, stdin: bytes = b"", **more) -> subprocess.CompletedProcess[bytes]:
    """Run `python -m kvbook` with arguments."""
    line = [sys.executable, "-m", "kvbook", *map(str, arguments)]
    return subprocess.run(line, input=stdin, capture_output=True, timeout=60, **more)


def answer(*arguments: object, config: object = LLAMA_2_7B) -> dict:
    """The JSON that `size` gives for a config on standard input."""
    done = command("size", "-", *arguments, "--json", stdin=json.dumps(config).encode())
    assert (done.returncode, done.stderr) == (0, b"")
    return json.loads(done.stdout)


def complaint(done: subprocess.CompletedProcess[bytes]) -> str:
    """The one line on stderr of a run that failed as it should."""
    assert done.returncode == 2
    assert done.stdout == b""
    lines = done.stderr.decode("ascii").splitlines()
    assert len(lines) == 1, lines
    assert "Traceback" not in lines[0]
    return lines[0]


def refused(*arguments: object, config: object = LLAMA_2_7B) -> str:
    """What `size` complains about."""
    raw = config if isinstance(config, bytes) else json.dumps(config).encode()
    return complaint(command("size", "-", *arguments, stdin=raw))


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA_2_7B))
    return path


def test_json_holds_the_numbers_of_one_gpu():
    got = answer(
        "--context", 4096, "--batch", 2, "--cache-dtype", "float16", "--tensor-parallel", 4
    )
    assert got["bytes"] == 2 * 2**31 // 4
    assert got["sequence_bytes"] == 2**31 // 4
    assert got["bytes_per_token"] == 524_288 // 4
    assert len(got["layers"]) == 32
    assert got["layers"][0] == {
        "kind": "full",
        "n_kv_heads": 32,
        "k_dim": 128,
        "v_dim": 128,
        "window": None,
        "tokens": 4096,
        "bytes": 2**31 // 4 // 32,
    }
    assert "users" not in got


@pytest.mark.parametrize("case", CASES[::6], ids=[case["id"] for case in CASES[::6]])
def test_cases_of_real_models(tmp_path, case):
    path = tmp_path / "config.json"
    raw = case["config"]
    path.write_text(raw if isinstance(raw, str) else json.dumps(raw))
    options = [f"--{key.replace('_', '-')}={case[key]}" for key in ("context", "batch", "policy")]
    options += [
        f"--cache-dtype={case['cache_dtype']}",
        f"--tensor-parallel={case['tensor_parallel']}",
    ]
    done = command("size", path, *options, "--json")
    if case.get("expect_error"):
        complaint(done)
    else:
        assert json.loads(done.stdout)["bytes"] == case["expect_bytes"]


def test_users_with_a_gpu():
    base = ["--context", 4096, "--cache-dtype", "float16"]
    assert answer(*base, "--memory-bytes", 80 * 10**9)["users"] == 30
    assert answer(*base, "--memory-bytes", 81_920 * 2**20)["users"] == 33
    assert answer(*base, "--memory-bytes", 81_920 * 2**20, "--utilization", 0.9)["users"] == 29
    got = answer(*base, "--memory-bytes", 80 * 10**9, "--weights-bytes", 0, "--batch", 9)
    assert got["users"] == 37, "users do not depend on the batch"
    got = answer(*base, "--memory-bytes", 80 * 10**9, "--tensor-parallel", 2)
    assert got["users"] == (80 * 10**9 - 13_476_831_232 // 2) // 2**30
    assert got["weights_bytes"] == 13_476_831_232, "the total, not a GPU's share"


def test_every_gpu_of_the_table_answers_by_its_name():
    entries = table("gpus")
    entry = entries[-1]
    have = entry.get("memory_bytes_reported") or entry["memory_bytes_nominal"]
    got = answer("--context", 4096, "--gpu", entry["name"].upper(), "--weights-bytes", 0)
    assert (got["gpu"], got["memory_bytes"]) == (entry["name"], have)
    assert entry["name"] in refused("--context", 1, "--gpu", "Abacus")


def test_the_table_shows_the_formula_with_its_numbers(config):
    done = command("size", config, "--context", 4096, "--cache-dtype", "float16", "--batch", 32)
    text = done.stdout.decode()
    assert "2 × 32 KV heads × 128 values × 4,096 tokens × 2 B" in text
    assert "68,719,476,736 B = 68.719 GB = 64.000 GiB" in text
    assert "users" not in text
    done = command("size", config, "--context", 4096, "--memory-bytes", 80 * 10**9)
    assert "users of 4,096 tokens  30" in done.stdout.decode()


def test_a_window_has_two_prices_of_a_token():
    config = {**LLAMA_2_7B, "model_type": "mistral", "sliding_window": 1000}
    got = answer("--context", 4096, config=config)
    assert (got["bytes_per_token"], got["bytes_per_token_beyond_windows"]) == (524_288, 0)
    assert got["bytes"] == 1000 * 524_288
    assert got["windows"] == [1000]


def test_no_cache_means_no_limit():
    config = {"model_type": "mamba", "num_hidden_layers": 4, "hidden_size": 64}
    got = answer("--context", 99, "--memory-bytes", 10, "--weights-bytes", 1, config=config)
    assert (got["bytes"], got["users"]) == (0, None)
    assert any("no KV cache" in note for note in got["notes"])


def test_notes_reach_the_reader():
    got = answer("--context", 5000, config={**LLAMA_2_7B, "model_type": "no_such_family"})
    assert any("no_such_family is not in the table" in note for note in got["notes"])
    assert any("4096 tokens at most" in note for note in got["notes"])
    raw = json.dumps({**LLAMA_2_7B, "model_type": "no_such_family"}).encode()
    text = command("size", "-", "--context", 5000, stdin=raw).stdout.decode()
    assert text.count("not in the table") == text.count("4096 tokens at most") == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "--context"),
        (["--context", "0"], '--context is "0"'),
        (["--context", "-5"], '--context is "-5"'),
        (["--context", "4k"], '--context is "4k"'),
        (["--context", "1_000"], "--context"),
        (["--context", "٣"], "--context"),
        (["--context", "9" * 5000], "--context"),
        (["--context", "1", "--batch", "0"], "--batch"),
        (["--context", "1", "--batch", "1.5"], "--batch"),
        (["--context", "1", "--cache-dtype", "float8"], "cache_dtype"),
        (["--context", "1", "--policy", "al\nl"], "policy"),
        (["--context", "1", "--tensor-parallel", "3"], "tensor_parallel is 3"),
        (["--context", "1", "--tensor-parallel", "x"], "--tensor-parallel"),
        (["--context", "1", "--block-size", "0"], "--block-size"),
        (["--context", "1", "--gpu", "x", "--memory-bytes", "1"], "--memory-bytes"),
        (["--context", "1", "--memory-bytes", "1e9"], "--memory-bytes"),
        (["--context", "1", "--memory-bytes", "1", "--weights-bytes", "-1"], "--weights-bytes"),
        (["--context", "1", "--memory-bytes", "1", "--utilization", "1.5"], "utilization"),
        (["--context", "1", "--utilization", "0.5"], "--utilization"),
        (["--context", "1", "--weights-bytes", "5"], "--weights-bytes"),
        (["--context", "1", "--ctx", "5"], "--ctx"),
        (["--context", "1", "--cont", "5"], "--cont"),
    ],
)
def test_wrong_options_are_named(arguments, named):
    assert named in refused(*arguments)


@pytest.mark.parametrize(
    ("raw", "named"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"[1]", "not an object"),
        (b"null", "not an object"),
        (b"[" * 100_000, "nested"),
        (b'{"a":' * 100_000, "nested"),
        (b'{"model_type": "llama", "model_type": "gpt2"}', '"model_type" twice'),
        (b'{"num_hidden_layers": NaN}', "num_hidden_layers is NaN"),
        (b'{"num_hidden_layers": 1' + b"0" * 5000 + b"}", "standard input is not JSON"),
        (b'{"num_hidden_layers": "\\u001b[31m\\ud800"}', "num_hidden_layers"),
        (b" " * 10_000_001, "larger than 10 MB"),
        (b"{}", "num_hidden_layers is missing"),
    ],
    ids=lambda value: value[:20] if isinstance(value, str) else "",
)
def test_wrong_files_are_named(raw, named):
    assert named in refused("--context", 1, config=raw)


def test_values_that_files_do_hold_are_let_through():
    raw = json.dumps({**LLAMA_2_7B, "time_step_limit": [0.0, float("inf")]}).encode()
    done = command("size", "-", "--context", 1, "--json", stdin=b"\xef\xbb\xbf" + raw)
    assert json.loads(done.stdout)["bytes"] == 524_288


def test_files_that_cannot_be_read(tmp_path):
    assert "No such file" in complaint(command("size", tmp_path / "none.json", "--context", 1))
    assert "directory" in complaint(command("size", tmp_path, "--context", 1))
    odd = tmp_path / "ä\n.json"
    assert "cannot be read" in complaint(command("size", odd, "--context", 1))
    assert "larger than 10 MB" in complaint(command("size", "/dev/zero", "--context", 1))


def test_a_model_whose_parameters_are_unknown_asks_for_its_bytes():
    config = {**LLAMA_2_7B, "model_type": "xverse"}
    assert "--weights-bytes" in refused("--context", 1, "--memory-bytes", 1, config=config)


def test_a_command_is_needed():
    assert "COMMAND" in complaint(command())
    assert "sizes" in complaint(command("sizes"))
    assert command("size", "--help").returncode == 0


def test_a_reader_that_leaves_early_is_no_error_in_our_words(config):
    line = [sys.executable, "-m", "kvbook", "size", str(config), "--context", "9"]
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write) as closed:
        done = subprocess.run(line, stdout=closed, stderr=subprocess.PIPE, timeout=60)
    assert done.stderr == b""
    assert done.returncode == 1


def test_a_terminal_without_our_signs_is_no_error(config):
    env = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = command("size", config, "--context", 1, env=env)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"524,288 B" in done.stdout


def test_no_torch_is_loaded(config):
    code = "import sys, kvbook.__main__ as m; m.main(sys.argv[1:]); print('torch' in sys.modules)"
    line = [sys.executable, "-c", code, "size", str(config), "--context", "1"]
    assert subprocess.run(line, capture_output=True, text=True).stdout.endswith("False\n")


def shell(redirection: str, *arguments: object) -> subprocess.CompletedProcess[bytes]:
    """Run the command with a redirection of the shell."""
    line = f'exec "$0" -m kvbook "$@" {redirection}'
    words = ["bash", "-c", line, sys.executable, *map(str, arguments)]
    return subprocess.run(words, capture_output=True, timeout=60)


@pytest.mark.parametrize(
    ("redirection", "named"),
    [(">&-", "Standard output is closed"), (">/dev/full", "Standard output cannot be written: No")],
)
def test_an_answer_that_cannot_be_written_is_one_line(config, redirection, named):
    for arguments in (["size", config, "--context", 9], ["--help"], ["size", "--help"]):
        assert named in complaint(shell(redirection, *arguments))
    for count in (9, 100_000):  # more than a buffer holds, too
        (config.parent / "deep.json").write_text(
            json.dumps({**LLAMA_2_7B, "num_hidden_layers": min(count, 9999)})
        )
        line = ["size", config.parent / "deep.json", "--context", 9, "--json"]
        assert named in complaint(shell(redirection, *line))


def test_standard_input_that_is_closed_is_named():
    said = complaint(shell("<&-", "size", "-", "--context", 9))
    assert said == "standard input cannot be read: it is closed."


@pytest.mark.parametrize("redirection", ["2>&-", "2>/dev/full"])
def test_a_complaint_that_nobody_can_read_still_sets_the_status(redirection):
    done = shell(redirection, "size", "no such file", "--context", 9)
    assert (done.returncode, done.stdout, done.stderr) == (2, b"", b"")
