#!/bin/sh
# Make the virtual environment at $1 with a Python that the pins support, or say in one line what is missing.
set -eu
supported='import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'
for python in ${PYTHON:-python3 python3.11 python3.12 python3.13}; do
    if command -v "$python" >/dev/null 2>&1 && "$python" -c "$supported" 2>/dev/null; then
        echo "Making a virtual environment in $1 with $("$python" --version)"
        exec "$python" -m venv --clear "$1"
    fi
done
echo "kvbook: the book needs Python 3.11, 3.12 or 3.13 with its venv module; ${PYTHON:-python3} is" \
    "$(${PYTHON:-python3} --version 2>/dev/null || echo missing)." \
    "Install one (on Debian: apt-get install python3 python3-venv) or name one: make PYTHON=/path/to/python3.11 book" >&2
exit 1
