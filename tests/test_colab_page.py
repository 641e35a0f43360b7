"""The pages' links to the repository and to Colab: the right ones, or none while there is no address."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parent.parent
SITE = ROOT / "_build" / "html"
ADDRESS = "https://github.com/someone/a-book"
COLAB = "https://colab.research.google.com/github/someone/a-book/blob/main/"


def hosts(page: Path) -> dict[str, list[str]]:
    """The addresses that a page's header links to, on Colab and on GitHub."""
    links = BeautifulSoup(page.read_text(), "html.parser").select(".bd-header-article a[href]")
    found = [link["href"] for link in links]
    starts = {"colab": "https://colab.", "github": "https://github.com/"}
    return {host: [x for x in found if x.startswith(start)] for host, start in starts.items()}


@pytest.fixture(scope="module")
def stamped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book of three pages that has an address, built."""
    folder = tmp_path_factory.mktemp("book")
    for name in ("book", "tools", "kvbook", "measurements"):
        ignored = shutil.ignore_patterns("__pycache__", "src")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=ignored)
    (folder / "notebooks").mkdir()
    for name in ("_config.yml", "CHANGELOG.md", "notebooks/03_cost.py", "notebooks/03_cost.ipynb"):
        shutil.copy(ROOT / name, folder / name)
    chapters = [{"file": "notebooks/03_cost"}, {"file": "book/changelog"}]
    parts = [{"caption": "All", "chapters": chapters}]
    contents = {"format": "jb-book", "root": "book/index", "parts": parts}
    (folder / "_toc.yml").write_text(yaml.safe_dump(contents))
    publish = [sys.executable, folder / "tools/publish_config.py", ADDRESS]
    subprocess.run(publish, check=True, capture_output=True)
    build = [Path(sys.executable).with_name("jupyter-book"), "build", folder, "--quiet"]
    subprocess.run(build, check=True, capture_output=True, cwd=folder)
    return folder / "_build/html"


@pytest.mark.colab
def test_with_an_address_each_notebook_opens_in_colab(stamped: Path) -> None:
    assert hosts(stamped / "notebooks/03_cost.html") == {
        "colab": [COLAB + "notebooks/03_cost.ipynb"],
        "github": [ADDRESS],
    }
    assert hosts(stamped / "book/index.html")["colab"] == [COLAB + "book/index.ipynb"]
    assert hosts(stamped / "book/changelog.html") == {"colab": [], "github": [ADDRESS]}


@pytest.mark.book
def test_the_book_as_it_is_links_where_its_address_says() -> None:
    address = yaml.safe_load((ROOT / "_config.yml").read_text())["repository"]["url"]
    pages = [SITE / "book/index.html", *sorted((SITE / "notebooks").glob("[0-9][0-9]_*.html"))]
    assert len(pages) > 1
    for page in pages:
        path = page.relative_to(SITE).with_suffix(".ipynb").as_posix()
        colab = address.replace("https://github.com", COLAB.split("/someone")[0])
        wanted = [f"{colab}/blob/main/{path}"] if address else []
        assert hosts(page) == {"colab": wanted, "github": [address] if address else []}


@pytest.mark.book
def test_a_lesson_s_page_shows_the_version_and_folds_the_setup_cell() -> None:
    for page in sorted((SITE / "notebooks").glob("[0-9][0-9]_*.html")):
        soup = BeautifulSoup(page.read_text(), "html.parser")
        (setup,) = (cell for cell in soup.select("div.cell") if "@title Setup" in cell.get_text())
        assert "tag_hide-input" in setup["class"]
        assert setup.find("details") is not None
        assert "This page was executed with kvbook" in soup.get_text()
    landing = BeautifulSoup((SITE / "book/index.html").read_text(), "html.parser")
    assert "@title Setup" not in landing.get_text()
