"""Lessons in a real JupyterLab with a real kernel: their sliders drive the model."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page

ROOT = Path(__file__).resolve().parent.parent.parent
LESSONS = ("01_decoder.ipynb", "02_cache.ipynb")

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a JupyterLab over copies of the lessons, so that its autosave changes nothing."""
    folder = tmp_path_factory.mktemp("lab")
    for lesson in LESSONS:
        shutil.copy(ROOT / "notebooks" / lesson, folder)
    settings = folder / "settings" / "@jupyterlab" / "notebook-extension"
    settings.mkdir(parents=True)
    whole = {"windowingMode": "none"}  # keep cells out of sight in the page
    (settings / "tracker.jupyterlab-settings").write_text(json.dumps(whole))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1"]
    command += [f"--port={port}", "--IdentityProvider.token=", f"--ServerApp.root_dir={folder}"]
    command += ["--LabApp.news_url=None", "--LabApp.extension_manager=readonly"]
    command += ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    environment = {**os.environ, "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings")}
    with (folder / "lab.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)
    try:
        base = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(f"{base}/api/status", timeout=5).close()
                break
            except OSError:
                assert server.poll() is None, (folder / "lab.log").read_text()
                assert time.monotonic() < deadline, (folder / "lab.log").read_text()
                time.sleep(0.3)
        yield base
    finally:
        server.terminate()
        server.wait(20)


def run_all_cells(open_page: Callable[..., Page], address: str) -> Page:
    page = open_page(address, listening=False)
    page.set_default_timeout(60_000)
    page.get_by_text("Python 3 (ipykernel) | Idle").wait_for()
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    return page


def press_until_the_picture_changes(page: Page, panel: Locator, presses: int) -> None:
    """Move the panel's slider by the keyboard; its picture must be drawn anew."""
    image = panel.locator("img").first
    picture = image.get_attribute("src")
    handle = panel.locator(".noUi-handle").first
    handle.scroll_into_view_if_needed()
    handle.focus()
    for _ in range(presses):
        page.keyboard.press("ArrowRight")
    page.wait_for_function(
        "([image, old]) => image.isConnected ? image.src !== old : true",
        arg=[image.element_handle(), picture],
    )
    assert panel.locator("img").first.get_attribute("src") != picture


def test_the_decoder_s_sliders_run_the_model_again(
    lab: str, open_page: Callable[..., Page]
) -> None:
    page = run_all_cells(open_page, f"{lab}/lab/tree/{LESSONS[0]}?reset")

    explorer = page.locator(".kvbook-explorer").last
    sentence = explorer.get_by_role("textbox")
    sentence.wait_for(timeout=180_000)  # the kernel has answered: every cell before has run
    headline = explorer.locator("[aria-live]").first
    before = headline.inner_text()
    layer = explorer.get_by_role("slider", name="Layer")
    layer.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert layer.input_value() == "1"
    assert headline.inner_text() != before

    sentence.fill("One cache, one key, one value.")
    sentence.press("Enter")
    explorer.get_by_text("value").first.wait_for()

    cell = page.locator(".jp-CodeCell", has_text="temperature_slider = ipywidgets").first
    panel = cell.locator(".widget-vbox, .jupyter-widget-vbox").first
    press_until_the_picture_changes(page, panel, presses=5)


def test_the_context_slider_times_the_model_again(lab: str, open_page: Callable[..., Page]) -> None:
    page = run_all_cells(open_page, f"{lab}/lab/tree/{LESSONS[1]}?reset")
    cell = page.locator(".jp-CodeCell", has_text="context_slider = ipywidgets").first
    panel = cell.locator(".widget-vbox, .jupyter-widget-vbox").first
    panel.locator("img").first.wait_for(timeout=420_000)  # every cell before has run
    last = page.locator(".jp-CodeCell", has_text='"held": [128]').first
    last.locator(".jp-InputPrompt", has_text="]:").filter(has_not_text="*").wait_for(
        timeout=60_000
    )  # the cells behind have moved the slider and put it back
    readout = panel.locator(".widget-readout").first
    assert readout.inner_text() == "64"
    press_until_the_picture_changes(page, panel, presses=1)
    assert readout.inner_text() == "80"

    stepper = page.locator(".kvbook-stepper").first
    headline = stepper.locator("[aria-live]").first
    before = headline.inner_text()
    stepper.get_by_role("button", name="Next").click()
    assert headline.inner_text() != before
