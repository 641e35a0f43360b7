#!/bin/sh
# Say in one line that Node.js is missing or too old, before anything is installed with it.
set -eu
version=$(node --version 2>/dev/null || echo none)
major=$(printf '%s' "$version" | sed 's/^v\([0-9]*\).*/\1/')
if command -v npm >/dev/null 2>&1 && [ "$major" -ge 20 ] 2>/dev/null; then exit 0; fi
echo "kvbook: the checks and the explorers' bundles need Node.js 20 or newer with npm; found Node.js: $version," \
    "npm: $(npm --version 2>/dev/null || echo none). Building and reading the book (make book, make lab) needs neither." >&2
exit 1
