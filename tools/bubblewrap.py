"""Find bubblewrap for the grading tests, or install Debian's where this user may.

Runs before the long installs. Prints one line; exits 1 with one clear sentence when there is none to be had.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys


def run(*command: str) -> bool:
    return subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0


def install_debian() -> bool:
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return False
    print("Installing Debian's bubblewrap for the tests")
    return run("apt-get", "update", "-qq") and run("apt-get", "install", "-y", "-qq", "bubblewrap")


if path := shutil.which("bwrap"):
    print(f"Sandbox for the tests: {path}")
elif not install_debian():
    sys.exit(
        "kvbook: the tests grade submissions inside bubblewrap; it was not found, and could not be "
        f"installed {'from Debian' if os.geteuid() == 0 else 'without root rights'}. "
        "Install it (on Debian and Ubuntu: sudo apt-get install bubblewrap)."
    )
