"""The autograder zip of an assignment, and the points its questions are worth.

The zip is the teacher's own: its tests are read by running them, as otter does.
"""

from __future__ import annotations

import io
import json
import tempfile
import zipfile
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from grading.said import Template, templates

HANDED_OUT = "handed_out.json"  # in the zip: the code cells of the notebook that students got
Labels = dict[str, dict[str, list[Template]]]
BUILT = Path(__file__).parents[2] / "_build" / "assignments"


@dataclass(frozen=True)
class Autograder:
    """A zip that `otter assign` built.

    Args:
        name: of the file, to name it in messages.
        content: its bytes.
        points: what each question is worth, in the order of their names.
        labels: what the tests of each question are called where they fail, and the sentences of each.
        handed_out: the code cells of the notebook that students got; empty where the zip does not say.
    """

    name: str
    content: bytes
    points: dict[str, float]
    labels: Labels = field(default_factory=dict)
    handed_out: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        return sha256(self.content).hexdigest()


def locate(assignment: str, built: Path = BUILT) -> Path:
    """The zip of assignment NN (`1` and `01` are the same) below the folder that `make assignments` writes.

    Raises:
        ValueError: it is not there; one sentence.
    """
    ending = "_autograder.zip"
    zips = {path.name.removesuffix(ending): path for path in sorted(built.glob(f"*{ending}"))}
    numbers = {name.split("_")[0].lstrip("0"): path for name, path in zips.items()}
    path = zips.get(assignment) or numbers.get(assignment.lstrip("0"))
    if path is None:
        there = (
            f"there are {', '.join(zips)}"
            if zips
            else "none is built: run `make assignments` first"
        )
        raise ValueError(f"There is no autograder for assignment {assignment!r}; {there}.")
    return path


def load(path: Path) -> Autograder:
    """Read the zip and the points of its questions.

    Raises:
        ValueError: it is not an autograder's zip with tests in it; one sentence.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ValueError(
            f"The autograder {str(path)!r} cannot be read: {error.strerror}."
        ) from None
    try:
        points, labels, handed_out = _questions(content)
    except zipfile.BadZipFile:
        raise ValueError(
            f"{str(path)!r} is not a zip; give the one that `otter assign` built."
        ) from None
    if not points:
        raise ValueError(f"{str(path)!r} holds no tests/*.py: it is not an autograder's zip.")
    return Autograder(path.name, content, points, labels, handed_out)


def _questions(content: bytes) -> tuple[dict[str, float], Labels, list[str]]:
    from otter.nbmeta_config import NBMetadataConfig
    from otter.test_files import create_test_file  # a second of imports: only when a zip is read

    points: dict[str, float] = {}
    labels: Labels = {}
    handed_out: list[str] = []
    with zipfile.ZipFile(io.BytesIO(content)) as archive, tempfile.TemporaryDirectory() as folder:
        for name in sorted(archive.namelist()):
            if name.startswith("tests/") and name.endswith(".py"):
                test = create_test_file(archive.extract(name, folder), NBMetadataConfig())
                points[test.name] = round(float(test.possible), 5)
                sentences = templates(archive.read(name).decode())
                labels[test.name] = {
                    str(case.failure_message or case.name).rstrip("."): sentences.get(
                        getattr(getattr(case.body, "test_func", None), "__name__", ""), []
                    )
                    for case in test.test_cases
                }
        if HANDED_OUT in archive.namelist():
            handed_out = json.loads(archive.read(HANDED_OUT))
    return points, labels, handed_out
