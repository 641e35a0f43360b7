# @title Setup: installs the book's code, kvbook, where it is missing
import importlib
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec

REPOSITORY = ""  # the Git address of the book

if getattr(find_spec("kvbook"), "origin", None) is None:  # a folder of that name is not enough
    if not REPOSITORY:
        raise ModuleNotFoundError(
            "kvbook is not installed, and this notebook does not know where the book lives: set "
            "REPOSITORY in this cell to its Git address, such as https://github.com/OWNER/NAME."
        )
    print(f"Installing kvbook from {REPOSITORY} (a minute or less)")
    present = [name for name in ("torch", "numpy", "matplotlib", "ipywidgets") if find_spec(name)]
    kept = [f"{name}=={version(name)}" for name in present]  # what is here stays as it is
    command = [sys.executable, "-m", "pip", "install", "--quiet", f"git+{REPOSITORY}", *kept]
    pip = subprocess.run(command, capture_output=True, text=True)
    if pip.returncode:
        raise RuntimeError(f"pip could not install kvbook from {REPOSITORY}:\n{pip.stderr}")
    importlib.invalidate_caches()
