"""Mutation testing of kvbook/lessons and kvbook/accounting: do their tests notice a wrong line?

    python tools/mutants.py                  300 mutants; goes on where an earlier run stopped
    python tools/mutants.py --minutes 10     the same, but stops after about 10 minutes
    python tools/mutants.py --list paged     names what could be mutated in modules named so

A mutant is one small change of one module. It survives if the tests of that module still pass. The
sample is drawn by seed. Results lie in _build/mutants.json: those of another version of the module are
done again, and survivors whenever their tests have changed. tests/data/mutants_equivalent.toml lists
changes that no test can see, each with its reason. Exit status 1 where less than 90 % are killed.

Left alone: annotations, decorators, f-strings and other text, which say things but decide nothing.
Not a library, because the sample must be drawn by a seed and each mutant needs only its module's tests.
Each runs in a fork of a process that has imported PyTorch.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import hashlib
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("kvbook/lessons", "kvbook/accounting")
COPIED = ("kvbook", "tests", "tools", "measurements")
RESULTS, EQUIVALENT = "_build/mutants.json", "tests/data/mutants_equivalent.toml"
ENOUGH = 0.9
MEMORY = 16 * 2**30  # bytes of addresses that a mutant may use
ACCOUNTING = (
    *("accounting_edges", "accounting_bytes", "whatif", "accounting_families", "facts"),
    "accounting_truth",
)
TESTS: dict[str, tuple[str, ...]] = {  # beside test_NAME; those that take long come last
    "kvbook/accounting/dense.py": ("roofline", "vectors"),
    "kvbook/accounting/facts.py": ("facts",),
    "kvbook/accounting/latent.py": ("gqa", "vectors"),
    "kvbook/accounting/ring.py": ("vectors",),
    "kvbook/accounting/roofline.py": ("roofline", "vectors"),
    "kvbook/accounting/size.py": ("accounting_cli",),
    "kvbook/accounting/files.py": ("accounting_cli",),
    "kvbook/accounting/weights.py": ("accounting_weights", "accounting_cli"),
}

FLIPS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
SWAPS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}


@dataclass(frozen=True)
class Mutant:
    """One change of a module: bytes start to end of its text become `new`."""

    module: str
    line: int
    kind: str
    start: int
    end: int
    new: str

    def text(self, source: str) -> str:
        """The module's text with the change."""
        raw = source.encode()
        return (raw[: self.start] + self.new.encode() + raw[self.end :]).decode()

    def diff(self, source: str) -> list[str]:
        """The lines that differ, with - and +."""
        raw = source.encode()
        first, last = (raw.count(b"\n", 0, place) for place in (self.start, self.end))
        old = source.split("\n")[first : last + 1]
        new = self.text(source).split("\n")[first : first + 1]  # what is written is one line
        return [f"-{line}" for line in old] + [f"+{line}" for line in new]


def mutants(module: str, source: str) -> list[Mutant]:
    """Every mutant of a module, in the order of its text; each is valid Python."""
    starts = [0]
    for line in source.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    found = {}
    for node, kind, new in changes(ast.parse(source)):
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        made = Mutant(module, node.lineno, kind, start, end, new)
        found[start, end, new] = made
    return [found[key] for key in sorted(found)]


def changes(tree: ast.AST) -> Iterator[tuple[ast.AST, str, str]]:
    """What to replace, the kind of change, and the text that takes its place."""
    if isinstance(tree, ast.stmt):
        yield from of_statement(tree)
    elif isinstance(tree, ast.expr):
        yield from of_expression(tree)
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr):
                yield from changes(child)


def of_statement(node: ast.stmt) -> Iterator[tuple[ast.AST, str, str]]:
    """A condition turned round, nothing returned, a statement left out."""
    if isinstance(node, ast.If | ast.While):
        yield from negated(node.test)
    elif isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
        yield node, "return", "return None"
    target = node.targets[0] if isinstance(node, ast.Assign) else None
    dropped = isinstance(node, ast.AugAssign | ast.Raise | ast.Continue | ast.Break | ast.Delete)
    call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    if dropped or call or isinstance(target, ast.Attribute | ast.Subscript):
        yield node, "drop", "pass"


def of_expression(node: ast.expr) -> Iterator[tuple[ast.AST, str, str]]:
    """A comparison, an operation, a constant, `and`, `or` or `not` made another one."""
    if isinstance(node, ast.Compare):
        for at, op in enumerate(node.ops):
            for other in FLIPS[type(op)]:
                ops = [*node.ops[:at], other(), *node.ops[at + 1 :]]
                yield node, "compare", written(ast.Compare(node.left, ops, node.comparators))
    elif isinstance(node, ast.BinOp) and type(node.op) in SWAPS:
        if not any(is_text(side) for side in (node.left, node.right)):
            changed = ast.BinOp(node.left, SWAPS[type(node.op)](), node.right)
            yield node, "operator", written(changed)
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node, "boolean", written(ast.BoolOp(other, node.values))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node, "not", written(node.operand)
    elif isinstance(node, ast.IfExp):
        yield from negated(node.test)
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, "constant", str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield from ((node, "constant", f"({node.value + by})") for by in (1, -1))


def negated(test: ast.expr) -> Iterator[tuple[ast.AST, str, str]]:
    """`not` before a condition, where no other kind of change does the same."""
    if not isinstance(test, ast.UnaryOp) and not (
        isinstance(test, ast.Compare) and len(test.ops) == 1
    ):
        yield test, "not", f"(not {written(test)})"


def written(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def tests_of(module: str) -> list[str]:
    """The test modules that concern a module, as paths. Raises ValueError where there are none."""
    name = Path(module).stem
    names = dict.fromkeys([name, *TESTS.get(module, ())])
    if module.startswith("kvbook/accounting") and name not in ("facts", "roofline", "dense"):
        names |= dict.fromkeys(ACCOUNTING)
    found = [f"tests/test_{name}.py" for name in names if (ROOT / f"tests/test_{name}.py").exists()]
    if not found:
        raise ValueError(f"{module} has no tests/test_{name}.py and no line in TESTS.")
    return found


def warm(tests: list[str]) -> None:
    """Import what test modules need of other packages, once for every fork."""
    for name in tests:
        for node in ast.parse((ROOT / name).read_text()).body:
            if isinstance(node, ast.Import):
                wanted = [(alias.name, "__name__") for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                wanted = [(node.module or "", alias.name) for alias in node.names]
            else:
                continue
            for module, part in wanted:
                if find_spec(top := module.partition(".")[0]) and top not in ("kvbook", "tests"):
                    getattr(import_module(module), part, None)


def digest(*names: str) -> str:
    return hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in names)).hexdigest()[:16]


def run_tests(scratch: Path, tests: list[str], seconds: float | None = None) -> str:
    """In a fork: "passed", "failed", or "timeout"; -x, one thread. Raises ValueError for no tests."""
    import pytest

    start = time.monotonic()
    if not (pid := os.fork()):
        code = 3
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            silent = os.open(os.devnull, os.O_RDWR)
            for stream in (0, 1, 2):
                os.dup2(silent, stream)
            os.chdir(scratch)
            sys.path.insert(0, str(scratch))
            code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", *tests]))
        finally:
            os._exit(code)
    try:
        while not (done := os.waitpid(pid, os.WNOHANG))[0]:
            if seconds and time.monotonic() - start > seconds:
                return "timeout"
            time.sleep(0.02)
    finally:
        for stop in (lambda: os.killpg(pid, signal.SIGKILL), lambda: os.waitpid(pid, 0)):
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                stop()
    code = os.waitstatus_to_exitcode(done[1])
    if code in (4, 5):
        raise ValueError(f"pytest ran no test of {', '.join(tests)} (status {code}).")
    return "passed" if code == 0 else "failed"


def equivalents() -> dict[tuple[str, str, str], str]:
    """Changes that no test can see: (module, old lines, new lines) -> the reason."""
    path = ROOT / EQUIVALENT
    listed = tomllib.loads(path.read_text())["mutant"] if path.exists() else []
    return {(one["module"], one["old"], one["new"]): one["reason"] for one in listed}


def as_listed(mutant: Mutant, diff: list[str]) -> tuple[str, str, str]:
    old, new = (" ".join(line[1:].strip() for line in diff if line[0] == sign) for sign in "-+")
    return mutant.module, old, new


class Run:
    """A sample of mutants and what became of each so far."""

    def __init__(self, seed: int, count: int, patience: float = 10) -> None:
        self.patience = patience
        self.sources = {
            path.relative_to(ROOT).as_posix(): path.read_text()
            for folder in FOLDERS
            for path in sorted((ROOT / folder).glob("*.py"))
            if path.stem != "__init__"
        }
        every = [m for module, source in self.sources.items() for m in mutants(module, source)]
        self.total = len(every)
        self.sample = random.Random(seed).sample(every, min(count, len(every)))
        self.path, self.known = ROOT / RESULTS, equivalents()
        stored = json.loads(self.path.read_text()) if self.path.exists() else {}
        self.done: dict[str, dict] = stored.get("mutants", {})
        self.passes: dict[str, float] = stored.get("passes", {})  # tests' digest -> seconds

    def key(self, mutant: Mutant) -> str:
        text = f"{asdict(mutant)}{digest(mutant.module)}"
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def result(self, mutant: Mutant) -> dict | None:
        """What is known of a mutant; None where its tests have to run."""
        diff = mutant.diff(self.sources[mutant.module])
        entry = {"module": mutant.module, "line": mutant.line, "kind": mutant.kind, "diff": diff}
        if (listed := as_listed(mutant, diff)) in self.known:
            return {**entry, "result": "equivalent", "reason": self.known[listed]}
        found = self.done.get(self.key(mutant))
        if found and found["result"] == "survived" and found["tests"] != self.tests(mutant):
            return None
        return found

    def tests(self, mutant: Mutant) -> str:
        return digest(*tests_of(mutant.module))

    def try_one(self, mutant: Mutant, scratch: Path) -> dict:
        """Run a mutant's tests, after having seen them pass without it."""
        tests, version = tests_of(mutant.module), self.tests(mutant)
        whole = f"{version}{digest(*self.sources)}"
        warm(tests)
        if whole not in self.passes:
            start = time.monotonic()
            if run_tests(scratch, tests) != "passed":
                raise ValueError(f"{', '.join(tests)} must pass before anything is mutated.")
            self.passes[whole] = round(time.monotonic() - start, 2)
        place, source = scratch / mutant.module, self.sources[mutant.module]
        start = time.monotonic()
        try:
            place.write_text(mutant.text(source))
            ended = run_tests(scratch, tests, self.patience + 4 * self.passes[whole])
        finally:
            place.write_text(source)
        words = {"passed": "survived", "failed": "killed", "timeout": "timeout"}
        return {
            "module": mutant.module,
            "line": mutant.line,
            "kind": mutant.kind,
            "result": words[ended],
            "seconds": round(time.monotonic() - start, 2),
            "tests": version,
            "diff": mutant.diff(source),
        }

    def save(self) -> None:
        self.path.parent.mkdir(exist_ok=True)
        partial = self.path.with_name(self.path.name + ".partial")
        content = {"passes": self.passes, "mutants": self.done}
        partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
        partial.replace(self.path)

    def go(self, minutes: float | None) -> bool:
        """Try what is left; whether the whole sample is done."""
        end = time.monotonic() + 60 * minutes if minutes else None
        with tempfile.TemporaryDirectory() as name:
            scratch = copied(Path(name))
            for mutant in self.sample:
                if self.result(mutant) is None:
                    if end and time.monotonic() > end:
                        return False
                    found = self.done[self.key(mutant)] = self.try_one(mutant, scratch)
                    self.save()
                    if found["result"] == "survived":
                        print(told(found), flush=True)
        return True

    def summary(self) -> tuple[str, float]:
        """The counts in a few lines, with every survivor; and the share that was killed."""
        found = [entry for entry in map(self.result, self.sample) if entry]
        counts = dict.fromkeys(("killed", "timeout", "survived", "equivalent"), 0)
        for entry in found:
            counts[entry["result"]] += 1
        killed = counts["killed"] + counts["timeout"]
        share = killed / max(1, killed + counts["survived"])
        lines = [told(entry) for entry in found if entry["result"] == "survived"]
        lines.append(
            f"{len(found)} of a sample of {len(self.sample)} of {self.total:,} mutants: "
            f"{counts['killed']} killed, {counts['timeout']} ran too long, "
            f"{counts['survived']} survived, {counts['equivalent']} equivalent; "
            f"{share:.1%} of {killed + counts['survived']} killed"
        )
        return "\n".join(lines), share


def told(entry: dict) -> str:
    lines = [f"{entry['module']}:{entry['line']}: {entry['result']} ({entry['kind']})"]
    return "\n    ".join(lines + entry["diff"])


def copied(place: Path) -> Path:
    """The tree without what the tests of modules do not need, and without compiled files."""
    ignored = shutil.ignore_patterns("__pycache__", "browser", "*.pyc", "*.partial")
    for name in COPIED:
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, place / name, ignore=ignored)
    for name in ("pyproject.toml", "README.md"):  # a test of `measure` writes below a file
        if (ROOT / name).exists():
            shutil.copy(ROOT / name, place)
    return place


def main() -> int:
    parser = argparse.ArgumentParser(description="Mutation testing of lessons and accounting.")
    parser.add_argument("--seed", type=int, default=1, help="of the sample (1)")
    parser.add_argument("--count", type=int, default=300, help="mutants in the sample (300)")
    parser.add_argument("--minutes", type=float, help="stop after about so many minutes")
    parser.add_argument(
        "--patience", type=float, default=10, help="seconds beyond 4 times what the tests take (10)"
    )
    parser.add_argument("--force", action="store_true", help="forget earlier results")
    parser.add_argument("--list", metavar="NAME", help="only list what could be mutated")
    given = parser.parse_args()
    if given.force:
        (ROOT / RESULTS).unlink(missing_ok=True)
    run = Run(given.seed, given.count, given.patience)
    if given.list:
        chosen = [(m, s) for m, s in run.sources.items() if given.list in m]
        for module, source in chosen:
            for mutant in mutants(module, source):
                print(f"{module}:{mutant.line}: {mutant.kind}", *mutant.diff(source), sep="\n    ")
        return 0
    # A child must not compile a module of the same second and size from its cache.
    sys.dont_write_bytecode = True
    single = {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    plain = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TOKENIZERS_PARALLELISM": "false"}
    os.environ |= {**single, **plain, "PYTHONHASHSEED": "0"}
    try:
        whole = run.go(given.minutes)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    text, share = run.summary()
    print(text if whole else f"{text}\nNot finished: the same command goes on.")
    return int(whole and share < ENOUGH)


if __name__ == "__main__":
    sys.exit(main())
