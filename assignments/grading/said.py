"""What may be told of an error: its kind, and the words that are the teacher's or Python's own.

A submission can raise any text, and it can read the hidden tests. So no text is passed on as it is. It is
held against the sentences in the autograder's test files, and against Python's: where one of them fits, that
sentence is told, with a varying part only where it is a short number, a list of these, a letter, or the
name of a type; else the part becomes an ellipsis.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable
from dataclasses import dataclass

Template = tuple[
    str, ...
]  # the constant parts of a sentence; between two of them, something varies

# What Python says where names are all that varies: these texts are told with names that the notebook holds.
PLAIN = (
    r"name '(\w+)' is not defined",
    r"No module named '(\w+)'",
    r"'(\w+)' object has no attribute '(\w+)'",
    r"(\w+)\(\) missing 1 required positional argument: '(\w+)'",
    r"(\w+)\(\) got an unexpected keyword argument '(\w+)'",
)
TIMERS: Template = (
    "stopped after ",
    " s: an infinite loop, or far too slow",
)  # as notebook.py has it
IN_SHORT = (
    "the same check in the notebook says why"  # as guard.py has it: says nothing to a teacher
)
SHORT = re.compile(r"[\d\[\](), .+-]{0,16}|[A-Za-z]|torch\.(?:bfloat16|u?int\d\d?|float\d\d|bool)")
KINDS = {name for name, kind in vars(builtins).items() if isinstance(kind, type)}
KINDS |= {"Tensor", "NoneType", "function", "method"}
MAX_TEXT = 500


@dataclass(frozen=True)
class Failure:
    """A test that failed: what it is called, and the error that ended it."""

    label: str
    kind: str
    text: str


def templates(test_file: str) -> dict[str, list[Template]]:
    """By test function of a test file: the sentences of its asserts and raises."""
    found = {}
    for node in ast.parse(test_file).body:
        if isinstance(node, ast.FunctionDef):
            said = [*map(_sentence, ast.walk(node))]
            found[node.name] = [parts for parts in said if re.search("[a-z]{2}", "".join(parts))]
    return found


def _sentence(node: ast.AST) -> Template:
    """The parts of the sentence that a statement fails with; empty where there is none."""
    message: ast.expr | None = None
    if isinstance(node, ast.Assert):
        message = node.msg
    elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
        message = node.exc.args[0]
    if isinstance(message, ast.Constant) and isinstance(message.value, str):
        return (message.value,)
    if not isinstance(message, ast.JoinedStr):
        return ()
    parts = [""]
    for value in message.values:
        if isinstance(value, ast.Constant):
            parts[-1] += str(value.value)
        else:
            parts.append("")
    return tuple(parts)


def filled(template: Template, text: str) -> str | None:
    """The sentence with what varied in it, as far as that may be told; None where the text is another."""
    first, *others = template
    if not text.startswith(first):
        return None
    said, at = first, len(first)
    for number, constant in enumerate(others, start=1):
        last = number == len(others)
        end = len(text) - len(constant) if last else text.find(constant, at)
        if end < at or not text.startswith(constant, end):
            return None
        part = text[at:end]
        said += (part if SHORT.fullmatch(part) or part in KINDS else "…") + constant
        at = end + len(constant)
    return said if at == len(text) else None


def words(kind: str, text: str, known: Iterable[Template], names: set[str]) -> str:
    """What may be told of an error: a known sentence, or its kind with what Python says of these names."""
    fits = [(sum(map(len, one)), filled(one, text)) for one in known if len(text) <= MAX_TEXT]
    if best := max((fit for fit in fits if fit[1]), default=None):
        return str(best[1])
    own = getattr(builtins, kind, None)
    if not (isinstance(own, type) and issubclass(own, BaseException)):
        return "an error of a kind of its own"
    if issubclass(own, SyntaxError) and (line := re.search(r"line (\d{1,5})\)$", text)):
        return f"{kind}, line {line[1]}"
    for pattern in PLAIN:
        found = re.fullmatch(pattern, text)
        if found and all(
            name in names | KINDS | {*dir(builtins)} and len(name) < 50 for name in found.groups()
        ):
            return f"{kind}: {text}"
    return kind


def failures(summary: str) -> list[Failure]:
    """The tests that failed, in otter's summary of one question."""
    found: list[tuple[str, list[str]]] = []
    message = last = ""
    inside = False
    for line in map(str.strip, summary.splitlines()):
        if said := re.fullmatch(r".* message: (.+)", line):
            message, inside = said[1], False
        elif line.endswith(" result:"):
            last, message, inside = message or line.removesuffix(" result:"), "", False
        elif line.startswith("❌") and last:
            found.append((last.rstrip("."), []))
            last, inside = "", True
        elif inside:
            found[-1][1].append(line)
    return [Failure(label, *_error(lines)) for label, lines in found]


def _error(lines: list[str]) -> tuple[str, str]:
    """An error's kind and text, below the two lines in which otter says where it was."""
    kind, _, text = " ".join(lines[2:]).strip().partition(":")
    return kind, text.strip()
