"""The Sphinx extension of the published page: weight, policy and addresses, on a book of two pages."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import struct
import subprocess
import sys
import zlib
from pathlib import Path

import book_address
import pytest
import yaml
from book_page import (
    BUNDLE,
    SEARCH_MENDS,
    absolute,
    describe_images,
    policy_of,
    size_of,
)
from bs4 import BeautifulSoup

ROOT = Path(__file__).resolve().parent.parent
CONF = f"""
import sys
sys.path.append({str(ROOT / "tools" / "sphinx")!r})
project = "A book"
html_title = "A book"
extensions = ["myst_parser", "sphinx_copybutton", "sphinx_book_theme", "book_page"]
root_doc = "book/index"
html_theme = "sphinx_book_theme"
html_static_path = [{str(ROOT / "book" / "_static")!r}]
html_css_files = ["kvbook.css"]
templates_path = [{str(ROOT / "book" / "_templates")!r}]
html_show_sphinx = False
html_theme_options = {{"use_fullscreen_button": False}}
"""
ADDRESS = "https://example.org/some/book"


def png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + check

    rows = (b"\0" + b"\0" * width) * height
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def build(source: Path, out: Path, address: str = "") -> subprocess.CompletedProcess[str]:
    (source / "book").mkdir(parents=True)
    (source / "conf.py").write_text(CONF)
    (source / "a.png").write_bytes(png(7, 5))
    (source / "book" / "index.md").write_text(
        "# A book\n\nIt <has> a first paragraph.\n\n![A picture](../a.png)\n\n"
        "```{toctree}\nother\n```\n"
    )
    (source / "book" / "other.md").write_text(
        "# Other\n\nText: 5 % of 80 GB, not `5 %` or 5 Bits.\n\n```python\nx = 1\n```\n"
    )
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-b", "html", str(source), str(out)]
    env = os.environ | {"BOOK_URL": address}
    return subprocess.run(command, capture_output=True, text=True, env=env)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book with an address."""
    folder = tmp_path_factory.mktemp("book")
    result = build(folder / "source", folder / "out", ADDRESS)
    assert result.returncode == 0, result.stderr
    return folder / "out"


@pytest.fixture(scope="module")
def unnamed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A book without an address."""
    folder = tmp_path_factory.mktemp("unnamed")
    (folder / "out").mkdir()
    (folder / "out" / "sitemap.xml").write_text("of a build with an address")
    result = build(folder / "source", folder / "out")
    assert result.returncode == 0, result.stderr
    return folder / "out"


def soup(page: Path) -> BeautifulSoup:
    return BeautifulSoup(page.read_text(), "html.parser")


def test_a_book_with_an_address_names_it(book: Path) -> None:
    page = soup(book / "book" / "index.html")
    assert page.find("link", rel="canonical")["href"] == f"{ADDRESS}/book/index.html"
    assert page.find("meta", property="og:url")["content"] == f"{ADDRESS}/book/index.html"
    assert page.find("meta", property="og:title")["content"] == "A book"
    assert page.find("meta", property="og:description")["content"] == "It <has> a first paragraph."
    assert page.find("meta", property="og:image")["content"] == f"{ADDRESS}/_images/a.png"
    sitemap = (book / "sitemap.xml").read_text()
    assert re.findall("<loc>(.*?)</loc>", sitemap) == [
        f"{ADDRESS}/book/index.html",
        f"{ADDRESS}/book/other.html",
    ]
    assert soup(book / "search.html").find("link", rel="canonical") is None


def test_a_book_without_an_address_names_none(unnamed: Path) -> None:
    page = soup(unnamed / "book" / "index.html")
    assert page.find("link", rel="canonical") is None
    assert page.find("meta", property=True) is None
    assert page.find("meta", {"name": "description"})["content"] == "It <has> a first paragraph."
    assert not (unnamed / "sitemap.xml").exists()
    for page in unnamed.rglob("*.html"):
        assert "example.org" not in page.read_text()


def test_no_number_is_torn_from_its_unit(unnamed: Path) -> None:
    text = soup(unnamed / "book" / "other.html").find("article").get_text()
    assert "Text: 5\u00a0% of 80\u00a0GB, not 5 % or 5 Bits." in text


def test_what_is_no_address_is_refused_in_a_sentence(tmp_path: Path) -> None:
    result = build(tmp_path / "source", tmp_path / "out", "example.org/book")
    assert result.returncode != 0
    assert "the book's address is 'example.org/book'" in result.stderr


@pytest.mark.parametrize(
    "address",
    [
        "example.org/book",
        "ftp://example.org",
        "https://",
        "https:///book",
        "https://example.org:x/",
        'https://example.org/a"b',
        "https://example.org/a b",
        "https://example.org/a&b",
        "https://example.org/<b>",
        "https://example.org/?a=1",
        "https://example.org/#a",
        "javascript:alert(1)",
    ],
)
def test_an_address_that_would_break_a_page_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"^the book's address is .*; it must be like https"):
        book_address.checked(address)


def test_make_book_refuses_what_is_no_address_in_one_line() -> None:
    command = [sys.executable, ROOT / "tools" / "sphinx" / "book_address.py"]
    env = os.environ | {"BOOK_URL": "example.org/book"}
    result = subprocess.run(command, capture_output=True, text=True, env=env)
    assert result.returncode == 1
    assert result.stderr.startswith("kvbook: the book's address is 'example.org/book'; it must be")
    assert result.stderr.count("\n") == 1
    recipe = (ROOT / "Makefile").read_text().partition("\nbook:")[2].partition("\n\n")[0]
    assert recipe.index("book_address.py") < recipe.index("jupyter-book")


@pytest.mark.parametrize(
    "address",
    [
        *("https://example.org", "http://127.0.0.1:8000/a/", " https://example.org/a\n"),
        "https://a.example/~b/c%20d_e.f//",
    ],
)
def test_an_address_ends_with_one_slash(address: str) -> None:
    assert book_address.checked(address) == address.strip().rstrip("/") + "/"


def test_a_book_may_have_no_address() -> None:
    assert book_address.checked("") == book_address.checked(" ") == ""


def test_the_landing_page_says_the_book_s_title_once(unnamed: Path) -> None:
    assert soup(unnamed / "book" / "index.html").title.string == "A book"
    assert soup(unnamed / "book" / "other.html").title.string == "Other — A book"


def test_the_404_page_of_a_book_with_an_address_works_at_any_depth(
    book: Path, unnamed: Path
) -> None:
    def links(folder: Path) -> list[str]:
        page = soup(folder / "404.html")
        assert page.html["data-content_root"] == ("/some/book/" if folder == book else "./")
        found = [
            tag.get("href") or tag.get("src") for tag in page.find_all(["a", "link", "script"])
        ]
        return [link for link in found if link and not link.startswith(("#", "http"))]

    assert all(link.startswith("/some/book/") for link in links(book))
    assert len(links(book)) == len(links(unnamed)) > 10
    assert not any(link.startswith("/") for link in links(unnamed))


def test_absolute_leaves_anchors_and_other_addresses() -> None:
    page = '<a href="#x"></a><a href="b/c.html"></a><a href="https://d/e"></a><img src="data:,">'
    assert absolute(page, "https://example.org/p/") == (
        '<a href="#x"></a><a href="/p/b/c.html"></a><a href="https://d/e"></a><img src="data:,">'
    )


def test_every_page_has_a_policy_that_lets_only_its_own_scripts_run(unnamed: Path) -> None:
    pages = [*unnamed.rglob("*.html")]
    assert {"index.html", "404.html", "search.html", "other.html"} <= {path.name for path in pages}
    for path in pages:
        page = soup(path)
        policy = page.find("meta", {"http-equiv": "Content-Security-Policy"})["content"]
        assert "http" not in policy
        assert policy.startswith("default-src 'none'")
        first = page.head or page
        kinds = [
            tag.get("http-equiv") or tag.name for tag in first.find_all(["meta", "script", "link"])
        ]
        loads = {"script", "link"} & {*kinds}
        assert kinds.index("Content-Security-Policy") < min([kinds.index(k) for k in loads] or [99])
        if path == unnamed / "index.html":  # it leads to the first page and runs nothing
            assert page.find("script") is None
            continue
        named = dict(part.split(" ", 1) for part in policy.split("; "))
        assert named["style-src"] == "'self' file: 'unsafe-inline'"
        assert named["img-src"] == "'self' file: data:"
        assert named["connect-src"] == "'self'"
        assert named["font-src"] == named["form-action"] == "'self' file:"
        assert named["base-uri"] == "'none'"
        words = {word for word in named["script-src"].split() if not word.startswith("'sha256-")}
        assert words == {"'self'", "file:", "blob:"}
        scripts = policy.split("script-src")[1].split(";")[0]
        assert "unsafe" not in scripts
        inline = [tag.string for tag in page.find_all("script", src=False) if tag.string]
        assert inline
        for text in inline:
            digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in scripts
        assert not [name for tag in page.find_all() for name in tag.attrs if name.startswith("on")]


def test_a_search_for_a_name_of_javascript_s_own_does_not_stop(unnamed: Path) -> None:
    code = (unnamed / "_static" / "searchtools.js").read_text()
    for theirs, ours in SEARCH_MENDS.items():
        assert theirs not in code
        assert code.count(ours) == 1


def test_search_engines_are_kept_from_pages_without_a_text(book: Path, unnamed: Path) -> None:
    for folder in (book, unnamed):
        for name in ("search", "404", "book/index", "book/other"):
            robots = soup(folder / f"{name}.html").find("meta", {"name": "robots"})
            assert (robots is not None) is (name in ("search", "404"))
            assert robots is None or robots["content"] == "noindex"


def test_data_in_a_page_needs_no_hash() -> None:
    page = 'HASHES-OF-INLINE-SCRIPTS<script type="application/json">{}</script><script src="a"></script>'
    assert policy_of(page).startswith("<script")


def test_a_page_keeps_the_theme_s_own_files(unnamed: Path) -> None:
    page = (unnamed / "book" / "index.html").read_text()
    for name in ("basic.css", "pydata-sphinx-theme.css", "sphinx-book-theme.css", "kvbook.css"):
        assert page.count(f"{name}?v=") == 1, name
    for name in ("bootstrap.js", "pydata-sphinx-theme.js", "page.js", "book.js"):
        assert page.count(f"{name}?v=") == 1, name
    scripts = (unnamed / "_static" / "book.js").read_text()
    for name in BUNDLE:
        assert name not in page
        assert (unnamed / "_static" / name).read_text() in scripts


def test_no_sign_of_the_theme_is_left_that_would_load_its_font(unnamed: Path) -> None:
    styles = unnamed / "_static"
    theme = (styles / "styles" / "pydata-sphinx-theme.css").read_text()
    signs = set(re.findall(r"(--pst-icon-[a-z-]+):", theme))
    assert len(signs) > 20
    assert signs == set(
        re.findall(r"(--pst-icon-[a-z-]+): none;", (styles / "kvbook.css").read_text())
    )


def test_code_brings_its_button_and_prose_does_not(unnamed: Path) -> None:
    assert "copybutton.js" in (unnamed / "book" / "other.html").read_text()
    prose = (unnamed / "book" / "index.html").read_text()
    for name in ("copybutton", "clipboard", "fontawesome", "mathjax"):
        assert name not in prose
    assert '<img width="7" height="5"' in prose
    assert not list(unnamed.glob("_static/**/*fontawesome*.js"))
    assert not list(unnamed.glob("_static/**/fa-*"))


def test_figures_have_their_size_and_those_below_wait(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png(7, 5))
    (tmp_path / "b.svg").write_text("<svg/>")
    assert size_of(tmp_path / "a.png") == (7, 5)
    assert size_of(tmp_path / "b.svg") is None
    files = {path.name: path for path in tmp_path.iterdir()}
    tag = '<img alt="A" src="../_images/a.png" />'
    sized = '<img width="7" height="5" alt="A" src="../_images/a.png" />'
    assert describe_images(tag, files) == sized
    assert 'loading="lazy"' in describe_images(" " * 5000 + tag, files)
    for other in ("b.svg", "unknown.png"):
        plain = f'<img alt="B" src="../_images/{other}" />'
        assert describe_images(plain, files) == plain


def test_the_book_opens_at_its_top_and_hosts_take_it_as_it_is(unnamed: Path) -> None:
    assert 'content="0; url=book/index.html"' in (unnamed / "index.html").read_text()
    assert (unnamed / ".nojekyll").exists()


def test_the_workflow_builds_as_the_readme_says_with_actions_of_one_version() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "pages.yml").read_text())
    steps = workflow["jobs"]["publish"]["steps"]
    on_node_24 = {  # the first major version of each that does not run on Node.js 20
        "checkout": 5,
        "setup-python": 6,
        "configure-pages": 6,
        "upload-pages-artifact": 5,
        "deploy-pages": 5,
    }
    for action in (step["uses"] for step in steps if "uses" in step):
        pinned = re.fullmatch(r"actions/([a-z-]+)@v(\d+)\.\d+\.\d+", action)
        assert pinned, action
        assert int(pinned[2]) >= on_node_24[pinned[1]], action
    assert [step["run"] for step in steps if "run" in step] == ["make book"]
    assert {"path": "_build/html"} in [step.get("with") for step in steps]
