"""Where an argument is just still allowed, and just no longer; what counts if none is given."""

import json
from pathlib import Path

import pytest

from kvbook.__main__ import main
from kvbook.accounting import CacheSpec, ConfigError, LayerCache, fit_users, parameter_count
from kvbook.accounting.errors import named, shown
from kvbook.accounting.files import load_config
from kvbook.accounting.fit import MOST_BYTES
from kvbook.accounting.ring import kept, ring, slot_of
from kvbook.accounting.size import count
from kvbook.accounting.spec import in_units
from kvbook.accounting.weights import weights_nbytes

FIT = {"sequence_bytes": 1, "memory_bytes": 10, "weights_bytes": 0}
LOWEST = {"sequence_bytes": 0, "memory_bytes": 1, "weights_bytes": 0, "overhead_bytes": 0}


def test_nothing_is_kept_aside_unless_one_says_so() -> None:
    assert fit_users(**FIT) == 10
    assert fit_users(**FIT, overhead_bytes=0) == fit_users(**FIT, tensor_parallel=1) == 10


@pytest.mark.parametrize("name", LOWEST)
def test_bytes_are_allowed_up_to_two_to_the_sixtieth(name: str) -> None:
    assert MOST_BYTES == 2**60
    for value in (LOWEST[name], 2**60):
        fit_users(**FIT | {name: value})
    for value in (LOWEST[name] - 1, 2**60 + 1, 1.0, "1", True):
        with pytest.raises(ConfigError, match=rf"^{name} is "):
            fit_users(**FIT | {name: value})


def test_gpus_are_counted_up_to_two_to_the_sixteenth() -> None:
    assert fit_users(1, 10, 2**16, tensor_parallel=2**16) == 9
    for value in (0, 2**16 + 1, 1.0):
        with pytest.raises(ConfigError, match=r"^tensor_parallel is "):
            fit_users(**FIT, tensor_parallel=value)


def test_a_ring_without_sinks_goes_round_from_its_first_slot() -> None:
    assert [slot_of(position, 3) for position in range(5)] == [0, 1, 2, 0, 1]
    assert ring(5, 3) == [3, 4, 2]
    assert kept(5, 3) == [2, 3, 4]
    assert kept(0, 3) == []
    assert ring(0, 1) == [None]
    assert kept(3, 1, 0) == [2]


@pytest.mark.parametrize("of", [slot_of, ring, kept])
@pytest.mark.parametrize(("at", "name"), [(1, "window"), (2, "sinks")])
def test_a_ring_refuses_what_is_no_count(of, at: int, name: str) -> None:
    for value in (0 if name == "window" else -1, 1.5, "3", None):
        arguments = [4, 3, 2]
        arguments[at] = value
        with pytest.raises(ConfigError, match=rf"^{name} is "):
            of(*arguments)
    for value in (-1, "3"):
        with pytest.raises(ConfigError, match=r"^(position|tokens) is "):
            of(value, 3, 2)


def test_a_config_may_have_ten_million_bytes(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b'{"a": 1}'.ljust(10_000_000))
    assert load_config(str(path)) == {"a": 1}
    path.write_bytes(b'{"a": 1}'.ljust(10_000_001))
    with pytest.raises(ConfigError, match="larger than 10 MB"):
        load_config(str(path))
    path.write_text('{"a": 1, "b": {"c": 2, "c": 3}}')
    with pytest.raises(ConfigError, match='gives "c" twice'):
        load_config(str(path))


def test_a_value_is_shown_whole_up_to_sixty_characters() -> None:
    assert shown("x" * 58) == '"' + "x" * 58 + '"'
    assert shown("x" * 59) == '"' + "x" * 56 + "..."
    assert len(shown("x" * 59)) == 60
    assert named("x" * 60) == "x" * 60
    assert named("x" * 61) == "x" * 57 + "..."
    assert named('a\nb"c') == 'a\\nb\\"c'
    assert shown({1, 2}) == "'set'"


def test_a_layer_has_no_row_that_nobody_gave_it() -> None:
    assert LayerCache("latent", 1, 7).values_per_token == 7
    assert LayerCache("full", 3, v_dim=5).values_per_token == 15
    assert LayerCache("none").values_per_token == 0
    spec = CacheSpec("llama", (LayerCache("full", 3, 5, 7),) * 2)
    assert spec.layer_nbytes(0) == [0, 0]
    assert spec.nbytes(11) == 11 * 2 * 3 * (5 + 7) * 2  # one sequence, two bytes a value
    assert spec.bytes_per_token() == 2 * 3 * (5 + 7) * 2
    slides = CacheSpec("llama", (LayerCache("sliding", 3, 5, 7, window=4),))
    assert slides.bytes_per_token() == 3 * (5 + 7) * 2
    assert slides.bytes_per_token(beyond=True) == 0


def test_units_change_at_a_tenth_of_the_next() -> None:
    assert in_units(99_999) == "99.999 kB, 97.655 KiB"
    assert in_units(10**5) == "0.100 MB, 0.095 MiB"
    assert in_units(10**8 - 1) == "100.000 MB, 95.367 MiB"
    assert in_units(10**8) == "0.100 GB, 0.093 GiB"


def test_one_token_is_no_plural() -> None:
    spec = CacheSpec("llama", (LayerCache("full", 3, 5, 5),))
    said = {tokens: spec.explain(tokens).splitlines()[0] for tokens in (1, 2)}
    assert "1 token ×" in said[1]
    assert "2 tokens ×" in said[2]


def test_the_state_is_counted_for_whole_batches_and_bytes() -> None:
    spec = CacheSpec("mamba", (LayerCache("state"),), state_values=7)
    assert spec.state_bytes() == 14
    assert spec.state_bytes(3, 1) == 21
    for arguments, name in (((0,), "batch"), ((1, 0), "bytes_per_value"), ((1, 0.5), "bytes_per")):
        with pytest.raises(ConfigError, match=rf"^{name}"):
            spec.state_bytes(*arguments)


BAD: dict[str, object] = {
    "context": -1,
    "tensor_parallel": 2**16 + 1,
    "block_size": 0,
    "cache_dtype": "float8",
    "policy": "all",
}


@pytest.mark.parametrize("name", BAD)
def test_every_method_names_what_is_not_allowed(name: str) -> None:
    spec = CacheSpec("llama", (LayerCache("full", 3, 5, 7),))
    value = BAD[name]
    with pytest.raises(ConfigError, match=rf"^{name} is "):
        spec.layer_nbytes(**{"context": 1, name: value})
    if name not in ("context", "block_size"):
        with pytest.raises(ConfigError, match=rf"^{name} is "):
            spec.bytes_per_token(**{name: value})
    spec.layer_nbytes(1, tensor_parallel=2**16)
    spec.bytes_per_token(tensor_parallel=2**16)


@pytest.mark.parametrize(("name", "least"), [("context", 0), ("batch", 1), ("block_size", 1)])
def test_counts_are_allowed_up_to_two_to_the_fortieth(name: str, least: int) -> None:
    spec = CacheSpec("llama", (LayerCache("full", 3, 5, 7),))
    for value in (least, 2**40):
        spec.nbytes(**{"context": 1, name: value})
    for value in (least - 1, 2**40 + 1):
        with pytest.raises(
            ConfigError, match=rf"^{name} is {value}; .* from {least} to {2**40}\.$"
        ):
            spec.nbytes(**{"context": 1, name: value})
    with pytest.raises(ConfigError, match=r"^context is -1"):
        spec.nbytes(-1, 0)  # the first that is wrong


def test_a_block_has_sixteen_tokens_and_a_sequence_is_alone_unless_one_says_so() -> None:
    spec = CacheSpec("llama", (LayerCache("full", 3, 5, 7),))
    assert spec.nbytes(17, policy="paged") == 32 * 3 * 12 * 2
    assert spec.layer_nbytes(17, policy="paged") == [32 * 3 * 12 * 2]
    assert spec.explain(17, policy="paged").splitlines() == [
        "1 × full layer: 3 KV heads × (5 + 7) values × 32 tokens × 2 B = 2,304 B, in all 2,304 B",
        "2,304 B a sequence × 1 = 2,304 B (2.304 kB, 2.250 KiB)",
    ]


def test_the_command_counts_as_many_gpus_as_the_function() -> None:
    assert count("--batch", "0" * 29 + "5") == 5  # thirty digits, but no large number
    with pytest.raises(ConfigError, match=r"^--batch is "):
        count("--batch", "0" * 30 + "5")
    assert count("--tensor-parallel", "65536", high=2**16) == 2**16
    for text in ("0", "65537", "1.0", "-1", "²", "1" * 31):
        with pytest.raises(ConfigError, match=r"^--tensor-parallel is "):
            count("--tensor-parallel", text, high=2**16)


@pytest.mark.parametrize("gpus", ["65536", "65537"])
def test_the_command_takes_two_to_the_sixteenth_gpus(
    gpus: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    status = main(["size", str(path), "--context", "1", "--tensor-parallel", gpus])
    said = capsys.readouterr().err
    assert status == (0 if gpus == "65536" else 2), said
    assert status == 0 or '--tensor-parallel is "65537"; it must be' in said


def said_of(
    config: dict, folder: Path, capsys: pytest.CaptureFixture[str], *options: str
) -> list[str]:
    """The lines that `size` answers for a config."""
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    assert main(["size", str(path), *options]) == 0
    return capsys.readouterr().out.splitlines()


def test_every_number_that_there_is_has_its_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slides = {**LLAMA, "model_type": "mistral", "num_key_value_heads": 1, "sliding_window": 3}
    memory = ["--memory-bytes", "1000", "--weights-bytes", "40"]
    lines = said_of(slides, tmp_path, capsys, "--context", "4", "--batch", "2", *memory)
    assert {line[:17].rstrip(): line[17:] for line in lines[: lines.index("")]} == {
        "family": "  mistral",
        "cache": "  576 B = 0.576 kB = 0.562 KiB",
        "one sequence": "  288 B = 0.288 kB = 0.281 KiB",
        "a token": "  96 B",
        "a token beyond 3": "  0 B",
        "weights": "  40 B = 0.040 kB = 0.039 KiB: given",
        "memory given": "  1,000 B = 1.000 kB = 0.977 KiB",
        "users of 4 tokens": "  3",
    }
    state = {"model_type": "mamba", "num_hidden_layers": 3, "hidden_size": 10, "conv_kernel": 4}
    lines = said_of({**state, "expand": 2, "state_size": 6}, tmp_path, capsys, "--context", "4")
    assert "constant state  1,200 B = 1.200 kB = 1.172 KiB at 2 bytes a value" in lines
    assert not any("constant state " in line for line in said_of(LLAMA, tmp_path, capsys, *SIZE))


@pytest.mark.parametrize(("context", "told"), [("6", 0), ("7", 0), ("8", 1)])
def test_a_text_longer_than_the_config_speaks_of_has_a_note(
    context: str, told: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = {**LLAMA, "max_position_embeddings": 7}
    lines = said_of(config, tmp_path, capsys, "--context", context)
    assert lines.count("The config speaks of 7 tokens at most.") == told


SIZE = ["--context", "4"]
LOWEST_OF = {  # options of `size` with the least that each takes
    "--context": ([], 1),
    "--batch": (SIZE, 1),
    "--block-size": (SIZE, 1),
    "--tensor-parallel": (SIZE, 1),
    "--memory-bytes": (SIZE, 1),
    "--weights-bytes": ([*SIZE, "--memory-bytes", "9"], 0),
}


@pytest.mark.parametrize("option", LOWEST_OF)
def test_the_command_says_from_where_a_number_is_allowed(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, (others, least) = tmp_path / "config.json", LOWEST_OF[option]
    path.write_text(json.dumps(LLAMA))
    for value, status in ((least, 0), (least - 1, 2)):
        assert main(["size", str(path), *others, option, str(value)]) == status
    said = capsys.readouterr().err
    assert f'{option} is "{least - 1}"; it must be a whole number from {least} to ' in said


@pytest.mark.parametrize("gpus", [1, 2])
def test_the_table_speaks_of_each_gpu_where_there_are_several(
    gpus: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shared = {**LLAMA, "num_key_value_heads": 1}
    lines = said_of(shared, tmp_path, capsys, *SIZE, "--tensor-parallel", str(gpus))
    labels = [line.partition("  ")[0] for line in lines[:4]]
    assert labels == ["family", "cache" + " on each GPU" * (gpus > 1), "one sequence", "a token"]
    assert [line for line in lines if "on each GPU" in line] == [lines[1], lines[-1]] * (gpus > 1)


@pytest.mark.parametrize(
    ("name", "nbytes"),
    [("float32", 4), ("float", 4), ("float16", 2), ("half", 2), ("bfloat16", 2), (None, 2)],
)
def test_weights_take_the_bytes_of_the_precision_that_the_file_names(
    name: str | None, nbytes: int
) -> None:
    named = {} if name is None else {"torch_dtype": name}
    assert weights_nbytes(LLAMA | named)[0] == nbytes * parameter_count(LLAMA)


LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "hidden_size": 40,
    "intermediate_size": 70,
    "vocab_size": 110,
}
