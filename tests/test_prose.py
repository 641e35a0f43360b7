"""The numbers in the lessons' text, and the landing page's: none without a value or a source."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import jupytext
import nbformat
import pytest
import torch

from kvbook import prose
from kvbook.accounting.roofline import Shape, prefill
from kvbook.lessons.decoder import DecoderConfig
from kvbook.models import smollm2

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
README, LANDING = ROOT / "README.md", ROOT / "book" / "index.ipynb"
PLAIN = 2 * 32 * 32 * 128 * 2  # bytes per token of Llama 2 7B: K and V, layers, heads, width, fp16
NOWHERE = {  # a lesson's numbers without a unit that none of its cells writes or prints, and their values
    "01_decoder": {
        "192": 3 * 64,
        "65,504": torch.finfo(torch.float16).max,
        "65,536": 256**2,
    },
    "02_cache": {"69": 5 + 64},
    "05_users": {"262,144": PLAIN // 2},
    "08_quantized": {"57,344": torch.finfo(torch.float8_e5m2).max},
    "10_paged": {"2.5": prose.From("FlashAttention's changelog: a version")},
}
SMOL = Shape.of(DecoderConfig(**smollm2.CONFIG))
IN_FLOATS = {"weight_bytes_per_value": 4, "cache_bytes_per_value": 4}
SHOWN = {  # the same for what its figures show
    "03_cost": {
        "17.2 GB": 32_768 * PLAIN / 1e9,
        "33,000 tokens": prose.From("two lines cross there"),
    },
    "06_roofline": {"103 operations": prefill(SMOL, 256, **IN_FLOATS).intensity},
    "08_quantized": {"45": 45.3},  # the recorded 45.3 %, in the lesson's map
}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("takes **46,080 bytes** a token", ["46,080 bytes"]),
        ("0.96 to 1.02 times", ["0.96 times", "1.02 times"]),
        ("1, 2 and 13 users", ["1 users", "2 users", "13 users"]),
        ("+118 % and −3 %", ["+118 %", "−3 %"]),
        ("an 80 GB card, 80 GB", ["80 GB"]),
        ("int4, fp16, lesson 3, `7 bytes`, [30 users](a_5_MB.md)", ["30 users"]),
        ("| 524,288 | 30 |\n| blocks of 16 | 97 |", []),
        ("3.4 TB/s, not 3 TB", ["3.4 TB/s", "3 TB"]),
        ("2 bytesized", []),
        ("1 operation, 0.3 nats", ["1 operation", "0.3 nats"]),
        ("8 GPUs, 30 tokens/s, 2 cards", ["8 GPUs", "30 tokens/s", "2 cards"]),
        ("3.2× as many, 4x, but 576 × 192 and 0 × NaN", ["3.2×", "4x"]),
        ("135 million weights, 1.5 billion tokens", ["135 million weights", "1.5 billion tokens"]),
        ("2 real tokens, 52 windowed layers", ["2 tokens", "52 layers"]),
        ("where $a <5$ users and b> 7 users", ["7 users"]),
        ("$46{,}080$ bytes, $2^{20}$ bytes, $B - 1$ slots", ["46,080 bytes"]),
    ],
)
def test_numbers_with_a_unit_are_found(text: str, found: list[str]) -> None:
    assert [
        number.replace("3.2 ×", "3.2×").replace("4 x", "4x") for number in prose.numbers(text)
    ] == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("| fp8 | 262,144 | 61 |\n| 30 users | 7 |", ["262,144", "61"]),
        ("2,336 against 68, or 34.35 times; not 69", ["2,336", "68", "69"]),
        ("the 25,706th, 4.25, $\\theta = 100{,}000$, $2^{20}$", ["25,706", "4.25", "100,000"]),
        (
            "Kwon et al. (2023), Shazeer 2019, 25 October 2026, vLLM 0.16.0, #1983, SHA-256, e5m2",
            [],
        ),
        ("as of 2,023 to 2,025", ["2,023", "2,025"]),
    ],
)
def test_numbers_without_a_unit_are_found(text: str, found: list[str]) -> None:
    assert prose.bare(text) == found


@pytest.mark.parametrize(
    ("stated", "true"),
    [
        ("46,080 bytes", 46080),
        ("13.5 GB", 13.4768),
        ("−3 %", -2.6),
        ("30 users", 30.4),
        ("135 million weights", 134_515_008),
    ],
)
def test_a_true_number_passes(stated: str, true: float, capsys: pytest.CaptureFixture[str]) -> None:
    prose.check({stated: true, "7 %": prose.From("a paper")})
    assert capsys.readouterr().out.startswith("1 numbers of the text equal")


@pytest.mark.parametrize(
    ("stated", "true"),
    [
        ("46,080 bytes", 46081),
        ("13.5 GB", 13.4499),
        ("−3 %", 3.0),
        ("30 users", 31),
        ("30 users", float("nan")),
        ("30 users", float("inf")),
        ("30.5 users", 30),
        ("134 million weights", 134_515_008),
    ],
)
def test_a_false_number_is_named(stated: str, true: float) -> None:
    with pytest.raises(AssertionError, match="The text says"):
        prose.check({stated: true})


def test_bad_maps_get_one_sentence() -> None:
    with pytest.raises(ValueError, match="does not begin with a number"):
        prose.check({"about 5 bytes": 5})
    with pytest.raises(ValueError, match="where the number comes from"):
        prose.From(" ")


def read(path: Path) -> tuple[str, dict[str, ast.expr]]:
    """A lesson's text, and the maps in its last code cells, as one; from its source, which is edited."""
    cells = jupytext.read(path.with_suffix(".py")).cells
    text = "\n\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    code = [cell.source for cell in cells if cell.cell_type == "code"]
    calls = [
        node
        for source in code
        if "check(" in source
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("check", "prose.check")
    ]
    assert "check(" in code[-1]
    pairs = []
    for call in calls:
        (said,) = call.args
        assert isinstance(said, ast.Dict)
        pairs += [
            (ast.literal_eval(key), value)
            for key, value in zip(said.keys, said.values, strict=True)
            if key
        ]
    assert len(dict(pairs)) == len(pairs), "a number is mapped twice"
    return text, dict(pairs)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_every_number_of_a_lesson_has_a_value_or_a_source(path: Path) -> None:
    text, said = read(path)
    stated = prose.numbers(text)
    source = path.with_suffix(".py").name
    for number in stated:
        assert number in said, (
            f'The last cell of {source} needs "{number}": its value, in check({{…}})'
        )
    for number in said:
        assert number in stated, (
            f'The text of {source} has no "{number}": its last cell has one too many'
        )
    for number, value in said.items():  # a value is computed above or has a source: no bare literal
        assert not isinstance(value, ast.Constant), number


def plain(number: str) -> float:
    return float(number.replace(",", "").replace("_", ""))


def written(text: str) -> set[float]:
    """The numbers in code or in what it prints: 46_080, "46,080", and each of 1,2,3."""
    found = re.findall(
        r"(?<![\w.])\d[\d_]*(?:\.\d+)?|(?<![\w.,])\d{1,3}(?:,\d{3})+(?:\.\d+)?", text
    )
    found += re.findall(r"(?<![\w.,])\d{1,3}(?:,\d{3})+(?:\.\d+)?", text)
    return {plain(number) for number in found}


@cache
def known(path: Path) -> set[float]:
    """What the cells of a page, and the code of its folded answers, write, or print each time alike."""
    found: set[float] = set()
    for cell in jupytext.read(path.with_suffix(".py")).cells:
        codes = re.findall(r"```python\n(.*?)```", cell.source, re.S)
        for code in [cell.source] if cell.cell_type == "code" else codes:
            found |= written(code)
    for cell in nbformat.read(path, 4).cells:
        changes = "nbval-ignore-output" in cell.metadata.get("tags", [])
        for output in [] if changes else cell.get("outputs", []):
            found |= written(output.get("text") or output.get("data", {}).get("text/plain", ""))
    return found


def descriptions(path: Path) -> str:
    """What a page's figures show, in words, for those who cannot see them."""
    cells = nbformat.read(path, 4).cells
    return "\n\n".join(c.metadata.get("mystnb", {}).get("image", {}).get("alt", "") for c in cells)


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_number_without_a_unit_is_one_that_a_cell_writes_or_prints(path: Path) -> None:
    text, _ = read(path)
    elsewhere = NOWHERE.get(path.stem, {})
    odd = [number for number in prose.bare(text) if plain(number) not in known(path)]
    assert sorted(odd) == sorted(elsewhere)
    prose.check(elsewhere)


@pytest.mark.parametrize("path", [*LESSONS, LANDING], ids=lambda path: path.stem)
def test_a_figure_s_description_has_only_the_page_s_numbers(path: Path) -> None:
    text, found = read(path)[0] if path != LANDING else "", known(path)
    found = found | {prose.value(number)[0] for number in prose.numbers(text)}
    words = descriptions(path)
    numbers = [*prose.numbers(words), *prose.bare(words)]
    odd = [number for number in numbers if abs(prose.value(number)[0]) not in found]
    assert sorted(odd) == sorted(SHOWN.get(path.stem, {}))
    prose.check(SHOWN.get(path.stem, {}))


def test_the_landing_page_says_of_a_lesson_what_the_lesson_says() -> None:
    cells = nbformat.read(LANDING, 4).cells
    text = "\n".join(cell.source for cell in cells if cell.cell_type == "markdown")
    rows = re.findall(
        r"^\| \[\d+\. [^]]+\]\([\w./]*?(\d\d_\w+)\.ipynb\) \| (.+) \| \d+ min \|$", text, re.M
    )
    assert [name for name, _ in rows] == [path.stem for path in LESSONS]
    for name, row in rows:
        path = ROOT / "notebooks" / f"{name}.ipynb"
        lesson, _ = read(path)
        said = {prose.value(n)[0] for n in [*prose.numbers(lesson), *prose.bare(lesson)]}
        for number in prose.numbers(row) + prose.bare(row):
            assert prose.value(number)[0] in said | known(path), (name, number)


def test_the_headline_is_plain_arithmetic() -> None:
    """What the README and the landing page open with, Llama 2 7B on 80 GB."""
    weights = 2 * 6_738_415_616
    users = (80 * 10**9 - weights) // (4096 * PLAIN)
    true = {"13.5 GB": weights / 1e9, "80 GB": 80, "30 users": users, "4,096 tokens": 4096}
    prose.check(true)
    opening = README.read_text().partition("```")[0]
    assert sorted(prose.numbers(opening)) == sorted(true)
    closing = nbformat.read(LANDING, 4).cells
    (text,) = (cell.source for cell in closing if "Where the 30 comes from" in cell.source)
    assert {*prose.numbers(text)} == {*true}
