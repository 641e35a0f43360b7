"""Find the submissions in a folder or a zip, as Canvas, Moodle, Gradescope or a teacher names them.

| From | What it looks like |
|---|---|
| Canvas | `lovelaceada_12345_67890_cache.ipynb`, late ones `lovelaceada_LATE_12345_67890_cache.ipynb` |
| Moodle | a folder `Ada Lovelace_12345_assignsubmission_file/` (or `..._file_`), or that as a prefix |
| Gradescope | folders `submission_12345/`, and `submission_metadata.yml` with the names |
| by hand | `ada.ipynb`, or a folder `ada/` |

One file is one submission. A folder without a notebook is one as well: it gets a row that says so. All of
this may lie in one folder more, as `assignment_12345_export/` from Gradescope, or one of a zip program.

What a student could have written says nothing on who it is from: only the names at the top count, and only
the metadata there.
"""

from __future__ import annotations

import lzma
import os
import re
import unicodedata
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import yaml

CANVAS = re.compile(r"^(?P<who>[^_]+)(?:_LATE)?_\d+_\d+_.+$")
MOODLE = re.compile(r"^(?P<who>.+?)_\d+_assignsubmission_(?:file|onlinetext)")
GRADESCOPE_FOLDER = re.compile(r"submission_\d+$")
EXPORT = re.compile(r"assignment_\d+_export")
GRADESCOPE = "submission_metadata.yml"
READ_LIMIT = (
    300 * 10**6
)  # of one file in a zip; a notebook above 200 MB is refused, and so is a bomb
SKIPPED = {"__macosx", ".ipynb_checkpoints", "__pycache__", "thumbs.db", "desktop.ini"}
ENDINGS = (
    ".ipynb",
    ".ipynb.txt",
    ".ipynb.json",
)  # the last two: what a browser or a mail program made of it


@dataclass(frozen=True)
class Submission:
    """One row of the table.

    Args:
        name: where it lies below the submissions' folder, `/` between parts.
        student: who it is from, as far as the name tells.
        problem: why there is nothing to grade; empty when there is.
        read: gives its bytes.
    """

    name: str
    student: str
    problem: str
    read: Callable[[], bytes]


@dataclass(frozen=True)
class _File:
    parts: tuple[str, ...]
    read: Callable[[], bytes]
    problem: str = ""


def find(place: Path) -> list[Submission]:
    """All submissions below `place`, in the order of their names.

    Raises:
        ValueError: `place` is neither a folder nor a zip, or holds nothing; one sentence.
    """
    if place.is_dir():
        files, folders = _in_folder(place)
    elif zipfile.is_zipfile(place):
        files, folders = _in_zip(place)
    else:
        what = "is neither a folder nor a zip" if place.exists() else "does not exist"
        raise ValueError(
            f"{str(place)!r} {what}: give the folder of the submissions, or an export's zip."
        )
    top = _wrapper(file.parts for file in files)
    names: dict[str, str] = {}
    for file in [file for file in files if file.parts == (*top, GRADESCOPE)]:
        names = _gradescope_names(file)
        files.remove(file)
    level = len(top) + 1  # where the students' own folders and files are
    found = [_submission(file, names, level) for file in files if _is_notebook(file.parts[-1])]
    homes = {file.parts[:level] for file in files if _is_notebook(file.parts[-1])}
    for file in files:
        if not _is_notebook(file.parts[-1]) and len(file.parts) <= level:
            found.append(_submission(file, names, level))
    for folder in sorted({parts[:level] for parts in folders} - homes - {top}):
        others = sorted(f.parts[-1] for f in files if f.parts[: len(folder)] == folder)
        has = f"only {', '.join(map(repr, others[:3]))}" if others else "nothing"
        problem = f"The folder holds no notebook, {has}."
        found.append(_submission(_File(folder, bytes, problem), names, level))
    if not found:
        raise ValueError(
            f"{str(place)!r} holds no submissions: no notebook and no student's folder."
        )
    return sorted(_numbered(found), key=lambda one: one.name)


def _is_notebook(name: str) -> bool:
    return name.lower().endswith(ENDINGS)


def _wrapper(paths: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """The one folder that the whole export lies in; empty where there is none.

    It is known by its own name, or by two names or more in it that all are of an export's form.
    """
    paths = list(paths)
    tops = {parts[0] for parts in paths}
    below = {parts[1] for parts in paths if len(parts) > 1} - {GRADESCOPE}
    if len(tops) != 1 or not below:
        return ()
    forms = (MOODLE, CANVAS, GRADESCOPE_FOLDER)
    exported = len(below) > 1 and all(any(f.match(name) for f in forms) for name in below)
    (top,) = tops
    return (top,) if exported or EXPORT.fullmatch(top) else ()


def _submission(file: _File, names: dict[str, str], level: int) -> Submission:
    problem = file.problem
    if not problem and not _is_notebook(file.parts[-1]):
        problem = f"{file.parts[-1]!r} is not a notebook: its name does not end in .ipynb."
    return Submission(
        "/".join(file.parts), _student(file.parts[:level][-1], names), problem, file.read
    )


def _student(home: str, names: dict[str, str]) -> str:
    """Who hands in what lies at, or below, the name `home`."""
    if home in names:
        return names[home]
    if match := MOODLE.match(home) or CANVAS.match(home):
        return match["who"]
    for ending in sorted(ENDINGS, key=len, reverse=True):
        if home.lower().endswith(ending):
            return home[: -len(ending)] or home
    return home


def _numbered(found: list[Submission]) -> list[Submission]:
    """Two files may come to the same shown name (an accent written in two ways): tell them apart."""
    seen: dict[str, int] = {}
    result = []
    for one in found:
        seen[one.name] = number = seen.get(one.name, 0) + 1
        name = one.name if number == 1 else f"{one.name} ({number})"
        result.append(Submission(name, one.student, one.problem, one.read))
    return result


def _shown(name: str) -> str:
    """A file's name as text that any encoding can hold."""
    return unicodedata.normalize("NFC", os.fsencode(name).decode("utf-8", "backslashreplace"))


def _skipped(name: str) -> bool:
    hidden = name.startswith("._") or (name.startswith(".") and not _is_notebook(name))
    return hidden or name.lower() in SKIPPED


def _in_folder(top: Path) -> tuple[list[_File], list[tuple[str, ...]]]:
    files: list[_File] = []
    folders: list[tuple[str, ...]] = []
    for place, below, names in os.walk(top):
        below[:] = sorted(name for name in below if not _skipped(name))
        start = tuple(map(_shown, Path(place).relative_to(top).parts))
        links = [name for name in below if (Path(place) / name).is_symlink()]
        folders += [(*start, _shown(name)) for name in below if name not in links]
        for name in sorted([*names, *links]):
            path = Path(place) / name
            if _skipped(name):
                continue
            parts = (*start, _shown(name))
            if path.is_symlink() or not path.is_file():
                problem = f"{parts[-1]!r} is a link or a device, not a file of its own; it was not opened."
                files.append(_File(parts, bytes, problem))
            else:
                files.append(_File(parts, path.read_bytes))
    return files, folders


def _in_zip(place: Path) -> tuple[list[_File], list[tuple[str, ...]]]:
    files: list[_File] = []
    folders: set[tuple[str, ...]] = set()
    with zipfile.ZipFile(place) as archive:
        for info in archive.infolist():
            parts = tuple(map(_shown, PurePosixPath(info.filename.replace("\\", "/")).parts))
            if not parts or any(map(_skipped, parts)):
                continue
            folders.update(parts[:end] for end in range(1, len(parts)))
            if info.is_dir():
                folders.add(parts)
            else:
                files.append(_File(parts, _zip_reader(place, info)))
    return files, sorted(folders)


def _zip_reader(place: Path, info: zipfile.ZipInfo) -> Callable[[], bytes]:
    def read() -> bytes:
        try:
            with zipfile.ZipFile(place) as archive, archive.open(info) as file:
                return file.read(READ_LIMIT)
        except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError) as error:
            raise OSError(f"the zip is damaged or locked: {error}") from None

    return read


def _gradescope_names(file: _File) -> dict[str, str]:
    """Folder: names, from Gradescope's metadata; empty when it cannot be read."""
    names: dict[str, str] = {}
    try:
        data = yaml.safe_load(file.read())
    except (
        yaml.YAMLError,
        ValueError,
        TypeError,
        AttributeError,
        LookupError,
        RecursionError,
        OSError,
    ):
        return names
    for folder, entry in data.items() if isinstance(data, dict) else ():
        if who := " and ".join(_submitters(entry)):
            names[str(folder)] = unicodedata.normalize("NFC", who)
    return names


def _submitters(entry: object) -> Iterator[str]:
    people = entry.get(":submitters") if isinstance(entry, dict) else None
    for person in people if isinstance(people, list) else ():
        if isinstance(person, dict) and isinstance(person.get(":name"), str):
            yield person[":name"]
