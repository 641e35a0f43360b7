"""Find a Chromium for the tests, or install one: Debian's where this user may, else Playwright's own.

Runs before the long installs. Prints one line; exits 1 with one clear sentence when there is none to be had.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
REQUIREMENTS = Path(__file__).parent.parent / "requirements.txt"


def found() -> str | None:
    """The path of a Chromium: KVBOOK_CHROMIUM if set, else the first on the PATH."""
    if named := os.environ.get("KVBOOK_CHROMIUM"):
        if not shutil.which(named):
            sys.exit(
                f"kvbook: KVBOOK_CHROMIUM is {named!r}, which is not a program that can be run."
            )
        return named
    return next(filter(None, map(shutil.which, NAMES)), None)


def run(*command: str) -> bool:
    return subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0


def install_debian() -> bool:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    print("Installing Debian's chromium for the tests")
    return run("apt-get", "update", "-qq") and run("apt-get", "install", "-y", "-qq", "chromium")


def install_playwright() -> bool:
    print("Installing Playwright's Chromium for the tests")
    pin = re.search(r"^playwright==\S+", REQUIREMENTS.read_text(), re.M)
    assert pin, "requirements.txt pins no playwright"
    quiet = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        pin.group(),
    )
    return run(*quiet) and run(sys.executable, "-m", "playwright", "install", "chromium")


if path := found():
    print(f"Browser for the tests: {path}")
elif not install_debian() and not install_playwright():
    sys.exit(
        "kvbook: the tests drive a real browser; none was found, and none could be installed "
        f"{'from Debian' if os.geteuid() == 0 else 'without root rights'} or by Playwright. "
        "Install one (on Debian: sudo apt-get install chromium) or set KVBOOK_CHROMIUM to its path."
    )
