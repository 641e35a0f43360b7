"""The guard of conftest.py itself: a page that asks another host must fail its test."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.browser

ASKING = {
    "image": '<img src="http://example.invalid/a.png" alt="">',
    "style": '<link rel="stylesheet" href="http://example.invalid/a.css">',
    "fetch": '<script>fetch("http://example.invalid/a").catch(() => 0)</script>',
    "late fetch": '<script>setTimeout(() => fetch("http://example.invalid/a").catch(() => 0), 200)</script>',
    "socket": '<script>new WebSocket("ws://example.invalid/a")</script>',
    "error": "<script>console.error(1)</script>",
    "exception": "<script>throw new Error(1)</script>",
}


def test_every_way_of_asking_is_noticed(pytester: pytest.Pytester) -> None:
    here = Path(__file__).parent
    pytester.makeconftest((here / "conftest.py").read_text())
    pytester.makepyfile(static_page=(here / "static_page.py").read_text())
    pytester.makepyfile(
        f"""
        import pytest
        ASKING = {ASKING!r}

        @pytest.mark.parametrize("way", [*ASKING, "nothing"])
        def test_page(open_page, serve, tmp_path, way):
            body = ASKING.get(way, "<p>Quiet.</p>")
            icon = '<link rel="icon" href="data:,">'
            (tmp_path / "page.html").write_text(f"<!doctype html><title>t</title>{{icon}}{{body}}")
            open_page(f"{{serve(tmp_path)}}/page.html")
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=len(ASKING) + 1, errors=len(ASKING))
