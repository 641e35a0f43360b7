"""What the theme leaves open on a published page: its weight, its policy, its addresses.

A Sphinx extension. `html: baseurl` in `_config.yml` (or BOOK_URL in the environment) is the address of
the published book; while it is empty, pages name no address of their own and there is no sitemap.
"""

from __future__ import annotations

import base64
import hashlib
import html
import os
import re
import struct
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import book_address
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

CODE_FILES = ("copybutton.css", "copybutton.js", "clipboard.min.js")  # only where there is code
HASHES = "HASHES-OF-INLINE-SCRIPTS"
# `file:` lets a copy on disk work; a page on the web can load no file. Widgets are modules in blobs, and
# MathJax and the widgets write style sheets into the page.
POLICY = "; ".join(
    (
        "default-src 'none'",
        f"script-src 'self' file: blob: {HASHES}",
        "style-src 'self' file: 'unsafe-inline'",
        "img-src 'self' file: data:",
        "font-src 'self' file:",
        "connect-src 'self'",
        "form-action 'self' file:",
        "base-uri 'none'",
    )
)
INLINE_SCRIPT = re.compile(r"<script(?![^>]*\bsrc=)([^>]*)>(.*?)</script>", re.DOTALL)
IMAGE = re.compile(r'<img (?=[^>]*src="([^"]+)")[^>]*>')
LOCAL = re.compile(r'\b(href|src|action|data-content_root)="(?![#/"]|[a-z]+:)(?:\./)?')
BUNDLE = (  # small scripts that every page loads: one request instead of four
    "documentation_options.js",
    "doctools.js",
    "sphinx_highlight.js",
    "scripts/sphinx-book-theme.js",
)
UNUSED = ("scripts/fontawesome.js*", "vendor/fontawesome/*/*", "*macros.html", "images/logo_*.svg")
MENDS = {  # the theme's markup -> what the policy allows and axe-core finds nothing to say about
    ' onclick="window.print()"': "",  # page.js listens instead
    ' aria-label="Toggle hidden content"': "",  # the summary has a text of its own
    '<th class="head"><p></p></th>': "<td></td>",  # the empty corner of a table heads nothing
    'id="pst-primary-sidebar" class': 'id="pst-primary-sidebar" role="complementary" '
    'aria-label="The book" class',
}
UNIT = re.compile(
    r"(?<=\d) (?=%|[kMGT]?i?B\b|[mµ]?s\b)"
)  # the space before it: a line never ends there
SEARCH_MENDS = {  # Sphinx' search -> one that finds no result for "constructor", and does not stop at it
    "files: terms[word],": "files: Object.hasOwn(terms, word) ? terms[word] : undefined,",
    "files: titleTerms[word],": "files: Object.hasOwn(titleTerms, word) ? titleTerms[word] : undefined,",
}
TWICE = re.compile(r"<title>(.+) &#8212; \1</title>")  # the landing page has the book's title
FOLD = 4000  # characters of HTML: a figure before this may be seen at once


def size_of(image: Path) -> tuple[int, int] | None:
    """Width and height of a PNG in pixels; None for any other file."""
    with image.open("rb") as file:
        head = file.read(24)
    if head[:8] != b"\x89PNG\r\n\x1a\n":
        return None
    width, height = struct.unpack(">II", head[16:24])
    return width, height


def describe_images(body: str, files: dict[str, Path]) -> str:
    """Give each figure its size, so that nothing jumps, and let those further down wait until needed.

    `files` has the file of each image by its name in the page.
    """

    def describe(match: re.Match[str]) -> str:
        tag, extra = match[0], ""
        file = files.get(Path(match[1]).name)
        size = size_of(file) if file else None
        if size and " width=" not in tag:
            extra += f'width="{size[0]}" height="{size[1]}" '
        if match.start() > FOLD and " loading=" not in tag:
            extra += 'loading="lazy" '
        return f"<img {extra}{tag[5:]}"

    return IMAGE.sub(describe, body)


def policy_of(page: str) -> str:
    """`page` with the hashes of its own inline scripts in its Content-Security-Policy."""
    scripts = {text for attributes, text in INLINE_SCRIPT.findall(page) if "json" not in attributes}
    hashes = sorted(
        f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
        for text in scripts
    )
    return page.replace(HASHES, " ".join(hashes), 1)


def absolute(page: str, address: str) -> str:
    """`page`, a page at the top of the book, with links that work at any depth below `address`."""
    root = urlsplit(address).path
    return LOCAL.sub(lambda match: f'{match[1]}="{root}', page)


def bundle(page: str, version: str) -> str:
    """`page` with one script, `_static/book.js`, in the place of those in `BUNDLE`."""
    for name in BUNDLE:
        tag = rf'<script src="([^"]*_static/){re.escape(name)}(?:\?v=\w+)?"></script>\n?'
        ours = rf'<script src="\1book.js?v={version}"></script>\n' if name == BUNDLE[0] else ""
        page = re.sub(tag, ours, page)
    return page


def description(doctree: nodes.document | None) -> str:
    """The first paragraph of a page, at most 200 characters."""
    text = ""
    for paragraph in doctree.findall(nodes.paragraph) if doctree else ():
        text = " ".join(paragraph.astext().split())
        break
    return text if len(text) <= 200 else text[:200].rsplit(" ", 1)[0] + " …"


def keep_units(app: Sphinx, doctree: nodes.document, name: str) -> None:
    """No number is torn from its unit; code stays as it is."""
    for text in list(doctree.findall(nodes.Text)):
        is_code = isinstance(text.parent, (nodes.literal, nodes.FixedTextElement))
        if not is_code and UNIT.search(text):
            text.parent.replace(text, nodes.Text(UNIT.sub("\u00a0", text)))


def is_one_of(file: Any, names: tuple[str, ...]) -> bool:
    """Whether a page's script or style has one of these names; "" stands for MathJax's settings."""
    name = str(getattr(file, "filename", file) or "")
    if name:
        return name.removeprefix("_static/") in names
    return "" in names and file.attributes.get("body", "").startswith("window.MathJax")


def set_address(app: Sphinx, config: Config) -> None:
    config.html_baseurl = book_address.checked(
        os.environ.get("BOOK_URL") or config.html_baseurl or ""
    )


def take_fingerprint(app: Sphinx, config: Config) -> None:
    """Let a change of a style, a script, a template or this file rebuild the pages, as one of a text does."""
    folders = [Path(app.confdir, name) for name in config.html_static_path + config.templates_path]
    files = [file for folder in folders for file in sorted(folder.rglob("*")) if file.is_file()]
    digest = hashlib.sha256()
    for file in (*files, Path(__file__)):
        digest.update(f"{file.name} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    config.book_page_fingerprint = digest.hexdigest()


def shape_page(
    app: Sphinx, name: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    body = context.get("body", "")
    unused = () if "<pre" in body else CODE_FILES
    if 'class="math' not in body:  # a cell that the page leaves out may hold some
        unused += (app.config.mathjax_path, "")
    for kind in ("css_files", "script_files"):
        context[kind] = [file for file in context[kind] if not is_one_of(file, unused)]
    if body:
        files = {name: Path(app.srcdir, source) for source, name in app.builder.images.items()}
        context["body"] = describe_images(body, files)

    meta = [f'<meta http-equiv="Content-Security-Policy" content="{POLICY}" />']
    about = description(doctree)
    if about:
        meta.append(f'<meta name="description" content="{html.escape(about)}" />')
    if app.config.html_baseurl and doctree:
        title = html.escape(app.env.titles[name].astext())
        image = IMAGE.search(body)
        properties = {
            "og:type": "article",
            "og:site_name": html.escape(app.config.html_title),
            "og:title": title,
            "og:description": html.escape(about),
            "og:url": f"{app.config.html_baseurl}{quote(name)}.html",
        }
        if image:
            properties["og:image"] = f"{app.config.html_baseurl}_images/{Path(image[1]).name}"
        meta += [f'<meta property="{key}" content="{text}" />' for key, text in properties.items()]
    if not doctree:
        meta.append('<meta name="robots" content="noindex" />')
        context["pageurl"] = None
    context["metatags"] = "\n    ".join(["", *meta]) + context.get("metatags", "")


def finish(app: Sphinx, error: Exception | None) -> None:
    if error or app.builder.name != "html":
        return
    out, address, root = Path(app.outdir), app.config.html_baseurl, app.config.root_doc
    scripts = "\n".join((out / "_static" / name).read_text() for name in BUNDLE)
    (out / "_static" / "book.js").write_text(scripts)
    version = hashlib.sha256(scripts.encode()).hexdigest()[:8]
    for path in out.rglob("*.html"):
        page = path.read_text()
        if HASHES in page:
            page = bundle(policy_of(page), version)
            for theirs, ours in MENDS.items():
                page = page.replace(theirs, ours)
            page = TWICE.sub(r"<title>\1</title>", page)
            if address and path.name == "404.html":
                page = absolute(page, address)
            path.write_text(page)
    (out / "index.html").write_text(
        f'<!doctype html>\n<html lang="{app.config.language}">\n<meta charset="utf-8">\n'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'">\n'
        f"<title>{html.escape(app.config.html_title)}</title>\n"
        f'<meta http-equiv="refresh" content="0; url={root}.html">\n'
        f'<a href="{root}.html">{html.escape(app.config.html_title)}</a>\n</html>\n'
    )
    search = out / "_static" / "searchtools.js"
    code = search.read_text()
    for theirs, ours in SEARCH_MENDS.items():
        code = code.replace(theirs, ours)
    search.write_text(code)
    for pattern in UNUSED:
        for file in (out / "_static").glob(pattern):
            file.unlink()
    (out / ".nojekyll").touch()  # GitHub Pages would leave out the folders that start with _
    sitemap = out / "sitemap.xml"
    if address:
        pages = "".join(
            f"<url><loc>{address}{quote(name)}.html</loc></url>\n"
            for name in sorted(app.env.found_docs)
        )
        sitemap.write_text(
            '<?xml version="1.0" encoding="utf-8"?>\n'
            f'<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n{pages}</urlset>\n'
        )
    else:
        sitemap.unlink(missing_ok=True)


def setup(app: Sphinx) -> dict[str, Any]:
    # The theme's own scripts, which its template would ask for beside 543 kB of icons (book/_templates).
    app.add_js_file("scripts/bootstrap.js", priority=900, loading_method="defer")
    app.add_js_file("scripts/pydata-sphinx-theme.js", priority=901, loading_method="defer")
    app.add_js_file("page.js", priority=902, loading_method="defer")
    app.config.html_additional_pages["404"] = "404.html"
    app.add_config_value("book_page_fingerprint", "", "html")
    app.connect("config-inited", set_address)
    app.connect("config-inited", take_fingerprint)
    app.connect("doctree-resolved", keep_units)
    app.connect("html-page-context", shape_page, priority=900)
    app.connect("build-finished", finish)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
