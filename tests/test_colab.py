"""What a notebook needs to run elsewhere: its setup cell, the book's address, the version, the dtype."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
import torch
import yaml
from stores_only import StoresOnly

import kvbook
from kvbook import ledger
from kvbook.accounting import ConfigError
from kvbook.device import half
from kvbook.lessons import quantized
from kvbook.lessons.decoder import DecoderConfig
from kvbook.lessons.gqa import LatentCache, LatentConfig
from kvbook.measure import record
from kvbook.measure.points import fill
from kvbook.measure.registry import RECORDS, load
from kvbook.measure.run import measure

ROOT = Path(__file__).resolve().parent.parent
LESSONS = sorted((ROOT / "notebooks").glob("[0-9][0-9]_*.ipynb"))
PAGES = [*LESSONS, ROOT / "book" / "index.ipynb"]
ADDRESS = "https://github.com/someone/a-book"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import publish_config
    finally:
        sys.path.pop(0)
    return publish_config


@pytest.fixture
def copy(tmp_path: Path, tool: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of what the tool reads, with one lesson, to change at will; the tool works there."""
    for name in ("tools", "book", "kvbook", "measurements"):
        ignored = shutil.ignore_patterns("__pycache__", "vendor", "src")
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=ignored)
    (tmp_path / "notebooks").mkdir()
    for name in ("_config.yml", "notebooks/03_cost.py", "notebooks/03_cost.ipynb"):
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(tool, "CONFIG", tmp_path / "_config.yml")
    monkeypatch.setattr(tool.lessons, "ROOT", tmp_path)
    monkeypatch.setattr(tool.lessons, "LESSONS", tmp_path / "kvbook" / "lessons")
    return tmp_path


def contents(folder: Path) -> dict[str, str]:
    return {
        path.name: path.read_text() for path in [*folder.glob("*/*.ipynb"), folder / "_config.yml"]
    }


# The setup cell


def run_setup(folder: Path, *, without_kvbook: bool) -> subprocess.CompletedProcess[str]:
    source = (ROOT / "tools/setup_cell.py").read_text()
    isolated = ["-I", "-S"] if without_kvbook else []
    command = [sys.executable, *isolated, "-c", source]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder)


def test_where_kvbook_is_the_setup_cell_says_nothing(tmp_path: Path) -> None:
    result = run_setup(tmp_path, without_kvbook=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize("folder", [False, True])
def test_without_kvbook_and_address_it_says_what_to_set(tmp_path: Path, folder: bool) -> None:
    if folder:  # of that name, such as a clone of the book: Python takes it for a package
        (tmp_path / "kvbook").mkdir()
    result = run_setup(tmp_path, without_kvbook=True)
    assert result.returncode == 1
    last = result.stderr.splitlines()[-1]
    assert last.startswith("ModuleNotFoundError: kvbook is not installed")
    assert "set REPOSITORY in this cell" in last


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_every_page_s_notebook_begins_with_it_folded(path: Path, tool: ModuleType) -> None:
    title, setup, *_, last = nbformat.read(path, 4).cells
    assert title.source.startswith("# ")
    shown = path.parent.name == "notebooks"
    assert setup == tool.lessons.setup_cell(tool.lessons.repository(), shown)
    assert setup.outputs == []
    assert len(setup.source.splitlines()) <= 25
    if shown:
        assert re.fullmatch(
            rf"\*This page was executed with kvbook {kvbook.__version__} and PyTorch \S+\.\*",
            last.source,
        )


def test_its_source_and_the_exports_stay_free_of_it() -> None:
    for path in [*(ROOT / "notebooks").glob("*.py"), *(ROOT / "kvbook").rglob("*.py")]:
        assert "REPOSITORY" not in path.read_text()


# The address


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (ADDRESS, ADDRESS),
        (ADDRESS + "/", ADDRESS),
        (ADDRESS + ".git", ADDRESS),
        (f"  {ADDRESS}.git/ ", ADDRESS),
        ("https://github.com/a/b.c_d-e", "https://github.com/a/b.c_d-e"),
        ("", ""),
        (" ", ""),
    ],
)
def test_an_address_is_kept_in_one_form(tool: ModuleType, given: str, kept: str) -> None:
    assert tool.checked(given) == kept


@pytest.mark.parametrize(
    "address",
    [
        "http://github.com/a/b",
        "https://gitlab.com/a/b",
        "https://github.com/a",
        "https://github.com/a/b/c",
        "https://github.com/-a/b",
        "https://github.com/a/..",
        "https://github.com/a/b?c",
        "https://github.com/a/b#c",
        'https://github.com/a/b"',
        "https://github.com/a/b\nc",
        "git@github.com:a/b",
        "a/b",
        "none",
    ],
)
def test_a_bad_address_gets_one_sentence(tool: ModuleType, address: str) -> None:
    with pytest.raises(ValueError, match=r"^URL is .*; it must be like https://github\.com/"):
        tool.checked(address)


def test_the_address_is_stamped_twice_the_same_and_taken_back(
    copy: Path,
    tool: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def publish(address: str) -> str:
        monkeypatch.setattr(sys, "argv", ["publish_config.py", address])
        assert tool.main() == 0
        return capsys.readouterr().out

    publish("")
    before = contents(copy)
    assert len(before) == 3
    assert "_config.yml: True, notebooks: 2" in publish(ADDRESS)
    stamped = contents(copy)
    config = yaml.safe_load(stamped["_config.yml"])
    assert config["repository"]["url"] == ADDRESS
    assert config["launch_buttons"]["colab_url"] == "https://colab.research.google.com"
    assert config["html"]["use_repository_button"] is True
    for name in ("03_cost.ipynb", "index.ipynb"):
        old, new = (nbformat.reads(each[name], 4) for each in (before, stamped))
        assert new.cells[1].source == old.cells[1].source.replace(
            'REPOSITORY = ""', f'REPOSITORY = "{ADDRESS}"'
        )
        old.cells[1].source = new.cells[1].source
        assert old == new  # ids, outputs and fingerprint are as they were
    assert [tool.lessons.stale(path) for path in tool.lessons.sources()] == [[], []]
    assert "_config.yml: False, notebooks: 0" in publish(ADDRESS + "/")
    assert contents(copy) == stamped
    publish("")
    assert contents(copy) == before


@pytest.mark.parametrize("address", ["https://example.org/x", "http://github.com/a/b"])
def test_a_refused_address_changes_nothing(
    tool: ModuleType,
    address: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["publish_config.py", address])
    monkeypatch.setattr(tool, "CONFIG", None)  # not even read
    monkeypatch.setattr(tool.lessons, "restamp", None)
    assert tool.main() == 1
    said = capsys.readouterr().err
    assert said.startswith(f"kvbook: URL is '{address}'; it must be like")
    assert said.count("\n") == 1


@pytest.mark.parametrize("text", ["", "{", "{}", "[]"])
def test_a_broken_notebook_is_named_before_anything_is_written(
    copy: Path,
    tool: ModuleType,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (copy / "book/index.ipynb").write_text(text)
    before = contents(copy)
    monkeypatch.setattr(sys, "argv", ["publish_config.py", ADDRESS])
    assert tool.main() == 1
    assert contents(copy) == before
    said = capsys.readouterr().err
    assert said.startswith("kvbook: book/index.ipynb cannot be read: ")
    assert said.count("\n") == 1


def test_a_missing_configuration_is_said_in_one_line(
    copy: Path,
    tool: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (copy / "_config.yml").unlink()
    monkeypatch.setattr(sys, "argv", ["publish_config.py", ADDRESS])
    assert tool.main() == 1
    assert capsys.readouterr().err.count("\n") == 1


def test_a_kill_while_writing_leaves_the_configuration_whole(
    copy: Path, tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    before = contents(copy)
    monkeypatch.setattr(sys, "argv", ["publish_config.py", ADDRESS])
    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        tool.main()
    assert contents(copy) == before


def test_no_address_at_all_gets_one_sentence(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["publish_config.py"])
    monkeypatch.setattr(tool, "CONFIG", None)
    assert tool.main() == 1
    said = capsys.readouterr().err
    assert said.startswith("kvbook: no address is given; say make publish-config URL=https://")
    assert said.count("\n") == 1


def test_the_configuration_follows_from_its_address(tool: ModuleType) -> None:
    config = (ROOT / "_config.yml").read_text()
    assert tool.stamped(config, tool.lessons.repository()) == config
    with pytest.raises(ValueError, match="colab_url"):
        tool.stamped(config.replace("colab_url", "binder"), "")
    assert yaml.safe_load(config)["sphinx"]["recursive_update"] is True, (
        "else the theme knows no address"
    )


# What comes with the package


def test_what_the_package_imports_is_what_it_asks_for() -> None:
    """Beside Python's own; transformers is asked for by name where it is compared with."""
    text = (ROOT / "pyproject.toml").read_text().partition("dependencies = [")[2].partition("]")[0]
    asked = set(re.findall(r'^ *"([a-z0-9_]+)', text, re.M))
    found = set()
    for path in (ROOT / "kvbook").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.partition(".")[0])
    foreign = found - {*sys.stdlib_module_names, "kvbook"}
    # ipywidgets is asked for by notebooks and draws what anywidget makes
    assert foreign - {"transformers"} == asked - {"ipywidgets"}


def test_the_book_s_records_come_with_the_package() -> None:
    """Through a link in the sources; a file of an installed package."""
    inside = {path.name for path in record.book_folder().glob("*.json")}
    assert record.book_folder().parent == Path(kvbook.__file__).parent
    assert {path.name for path in (ROOT / "measurements").glob("*.json")} == inside != set()
    for path in [*(ROOT / "notebooks").glob("*.py"), *(ROOT / "kvbook").rglob("*.py")]:
        assert '"../' not in path.read_text(), "what is installed has no folder above it"
    assert record.book_folder() == ledger.FOLDER


# GPUs without bfloat16


@pytest.mark.parametrize(
    ("device", "capability", "dtype"),
    [
        ("cpu", None, torch.bfloat16),
        ("cuda", (6, 0), torch.float16),
        ("cuda", (7, 5), torch.float16),
        ("cuda:0", (8, 0), torch.bfloat16),
        ("cuda", (9, 0), torch.bfloat16),
        ("cuda", (10, 0), torch.bfloat16),
    ],
)
def test_the_float_of_two_bytes_is_one_that_the_device_calculates_with(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    capability: tuple[int, int] | None,
    dtype: torch.dtype,
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert half(device) == half(torch.device(device)) == dtype
    assert dtype.itemsize == 2


@pytest.mark.parametrize("what", ["decode", "codes"])
def test_a_measurement_in_bfloat16_is_refused_on_a_gpu_without_it(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    settings = {"model": "smollm2-135m", "quick": True, "budget_bytes": None}
    with pytest.raises(ConfigError, match=rf"^--what is {what}, which calculates in bfloat16;"):
        measure(tmp_path / "mine.json", "cuda", settings, "command", what=what)
    assert not any(tmp_path.iterdir())


def test_no_other_measurement_speaks_of_bfloat16_arithmetic() -> None:
    """Those that do ask the GPU first; `kinds` and `points` name it as a float to store rows in."""
    asks = {"codes_points", "bench", "rate", "growth", "attention"}
    stores = {"kinds", "points", "registry", "run", "decode"}
    folder = ROOT / "kvbook" / "measure"
    named = {path.stem for path in folder.rglob("*.py") if "bfloat16" in path.read_text()}
    assert named <= asks | stores
    assert {name for name in RECORDS if load(name).bfloat16} == {"decode", "codes"}


@pytest.mark.parametrize("name", quantized.FORMATS)
def test_no_format_calculates_in_a_float_that_it_only_stores(name: str) -> None:
    config = DecoderConfig(8, 8, 2, 4, 2, 64, 8, 200)
    rows = torch.randn(2, 2, 150, 64, generator=torch.Generator().manual_seed(0))
    with StoresOnly():
        cache = quantized.QuantizedCache(config, 2, 200, format=name)
        keys, values = cache.update(0, rows, -rows)
    assert keys.dtype == values.dtype == torch.float32


def test_a_latent_cache_only_stores() -> None:
    config = LatentConfig(64, 32, 2, 4, 1, 8, 32, 64, latent_dim=16, content_dim=4)
    with StoresOnly():
        cache = LatentCache(config, capacity=64, dtype=torch.bfloat16)
        fill(cache, 64, 16)
    assert cache.lengths.tolist() == [64]


def test_the_guard_itself_refuses_arithmetic() -> None:
    row = torch.ones(2, dtype=torch.bfloat16)
    with StoresOnly():
        assert row.float().sum() == 2
        with pytest.raises(ArithmeticError, match="calculates in"):
            row + 1


# The documents


def test_the_citation_has_what_such_a_file_must_have() -> None:
    said = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= set(said)
    assert said["cff-version"] == "1.2.0"
    assert said["type"] == "software"
    assert said["version"] == kvbook.__version__
    assert said["license"] == ["MIT", "CC-BY-4.0"]
    assert said["authors"] == [{"name": "the kvbook authors"}]


def test_the_newest_entry_of_the_changelog_is_this_version() -> None:
    text = (ROOT / "CHANGELOG.md").read_text()
    headings = re.findall(r"^## (.+)$", text, re.M)
    assert headings[0] == "Errata"
    assert headings[1].split(" — ")[0] == kvbook.__version__


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"])
def test_what_the_documents_name_is_there(name: str) -> None:
    text = (ROOT / name).read_text()
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.M):
        assert re.search(rf"^{target}:", makefile, re.M), target
    paths = re.findall(r"`([\w./]+)`", text)
    for path in paths:
        if "/" in path or path.endswith(".md"):
            assert (ROOT / path).exists(), path
