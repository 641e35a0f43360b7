"""Predicted against held memory: the functions of lesson 4, the run, and what a record must be like."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from kvbook.accounting import ConfigError
from kvbook.lessons.cache import GrowingCache, PreallocatedCache
from kvbook.lessons.decoder import DecoderConfig
from kvbook.lessons.measure import Watch, cuda_nbytes, held_nbytes, resident_nbytes, storages
from kvbook.measure import kinds, points, record
from kvbook.measure.plan import MOST, label, plan
from kvbook.measure.run import measure
from kvbook.measure.runner import results

ROOT = Path(__file__).resolve().parent.parent
CONFIG = DecoderConfig(
    vocab_size=97,
    dim=24,
    n_layers=5,
    n_heads=6,
    n_kv_heads=3,
    head_dim=4,
    ffn_dim=40,
    max_seq_len=64,
)
SETTINGS = {"model": "smollm2-135m", "quick": True, "budget_bytes": 2**26}
TOKEN = 2 * 30 * 3 * 64 * 2  # bytes of SmolLM2-135M in float16


# What the reader builds


def test_a_view_holds_the_whole_storage_and_an_expanded_tensor_one_copy() -> None:
    rows = torch.zeros(7, 11)
    assert held_nbytes(rows[:1]) == held_nbytes(rows) == 7 * 11 * 4
    assert held_nbytes([rows, rows[2:], rows.T, rows.expand(3, 7, 11)]) == 7 * 11 * 4
    assert held_nbytes([rows, rows.clone()]) == 2 * 7 * 11 * 4


def test_tensors_are_found_wherever_they_hide() -> None:
    class Slots:
        __slots__ = ("hidden", "unset")

    class Holder:
        shared = torch.zeros(1000)  # of the class, not of the object

    slots, holder = Slots(), Holder()
    slots.hidden = {"a": (torch.zeros(3), [torch.zeros(5, dtype=torch.int8)])}
    holder.again = [holder, slots, torch.nn.Linear(2, 7)]
    assert held_nbytes(holder) == 3 * 4 + 5 + (2 * 7 + 7) * 4
    assert held_nbytes(None) == held_nbytes("text") == held_nbytes(torch) == 0


def test_empty_and_meta_tensors_are_told_apart() -> None:
    assert held_nbytes([torch.zeros(0), torch.zeros(0)]) == 0
    assert held_nbytes([torch.zeros(3, device="meta"), torch.zeros(5, device="meta")]) == 32
    assert len(storages([torch.zeros(3, device="meta"), torch.zeros(5, device="meta")])) == 2


@pytest.mark.parametrize("kind", [GrowingCache, PreallocatedCache])
def test_a_cache_holds_its_rows_and_its_lengths(kind: type) -> None:
    cache = kind(CONFIG, 7, capacity=13, dtype=torch.float16)
    points.fill(cache, 13, 4)
    assert cache.lengths.tolist() == [13] * 7
    assert held_nbytes(cache) == 7 * 13 * (2 * 5 * 3 * 4 * 2) + 7 * 8


def test_resident_memory_grows_when_pages_are_touched() -> None:
    before = resident_nbytes(trim=True)
    block = torch.empty(200_000_000, dtype=torch.uint8)
    assert abs(resident_nbytes() - before) < 20_000_000
    block.fill_(1)
    assert abs(resident_nbytes() - before - 200_000_000) < 20_000_000
    del block
    assert abs(resident_nbytes(trim=True) - before) < 20_000_000


def test_without_a_gpu_there_is_nothing_to_say() -> None:
    assert bool(cuda_nbytes()) == torch.cuda.is_available()


def test_the_watcher_sees_peak_life_and_writing() -> None:
    held = torch.zeros(1000)
    with Watch(held) as watch:
        assert watch.live == 4000
        held += 1  # in place, and the views below: nothing new
        view = held[3:].reshape(-1)
        new = torch.cat([view, held])
        assert (watch.live, watch.written) == (4000 + 1997 * 4, 1997 * 4)
        del new
        assert watch.live == 4000
        held[10:20] = 5.0
        before = watch.written
        held[torch.tensor([1, 2, 3])] = torch.ones(3)
        assert watch.written == before + 3 * 4
        held[30:35] = torch.ones(5)
        assert watch.written == before + (3 + 5) * 4
    assert watch.peak >= 4000 + 1997 * 4
    del view, held
    assert watch.live == 0


def test_growing_takes_one_layers_k_for_a_moment_and_copies_quadratically() -> None:
    row = 2 * 3 * 4 * 2  # of a batch of two, in one layer
    cache = GrowingCache(CONFIG, 2, capacity=64, dtype=torch.float16)
    with Watch() as watch:
        points.fill(cache, 40, 1)
    assert watch.written == sum(range(1, 41)) * 5 * 2 * row
    with Watch(cache) as step:
        points.fill(cache, 41, 1)
    assert step.peak - step.live >= 40 * row
    assert step.peak - step.live < 40 * row + 500
    steady = PreallocatedCache(CONFIG, 2, capacity=64, dtype=torch.float16)
    with Watch() as watch:
        points.fill(steady, 40, 1)
    assert watch.written == 40 * 5 * 2 * row


# Points


def test_the_longest_that_fits() -> None:
    for last in (0, 1, 6, 7, 8):
        assert points.longest(lambda n, last=last: n <= last, 9) == last
    with pytest.raises(ValueError, match="beyond is 9"):
        points.longest(lambda n: True, 9)


def test_a_point_of_the_grid_is_explained() -> None:
    job = dict(plan("smollm2-135m", "cpu")[0], kind="preallocated", context=96, batch=3)
    [(_, found)] = results([job])
    exact = 3 * 96 * 2 * TOKEN
    assert (found["predicted"], found["held"], found["bookkeeping"]) == (exact, exact + 24, 24)
    assert record.unexplained(job, found) == []


def test_a_frontier_ends_where_the_budget_does() -> None:
    job = {"what": "frontier", "model": "smollm2-135m", "kind": "preallocated", "device": "cpu"}
    job |= {"dtype": "float16", "batch": 5, "budget": 2**26}
    [(_, found)] = results([job])
    assert found["predicted"] == 2**26 // (5 * TOKEN)
    assert record.unexplained(job, found) == []


def test_a_cache_that_lies_is_not_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    """It reports the right nbytes and holds as much again elsewhere."""

    class Liar(PreallocatedCache):
        def __init__(self, *arguments: object, **options: object) -> None:
            super().__init__(*arguments, **options)
            self.secret = {"copy": [self.k.clone(), self.v.clone()]}

        @property
        def nbytes(self) -> int:
            return self.k.nbytes + self.v.nbytes

    liar = kinds.Kind("liar", kinds.plain(Liar))
    monkeypatch.setitem(kinds.KINDS, "liar", liar)
    job = {"what": "grid", "model": "smollm2-135m", "kind": "liar", "dtype": "float16"}
    job |= {"context": 96, "batch": 3, "device": "cpu"}
    found = points.MEASURE["grid"](**{k: v for k, v in job.items() if k != "what"})
    assert found["held"] == 2 * found["predicted"] + 24
    odd = record.unexplained(job, found)
    assert any("held" in line and "liar float16 96 x 3" in line for line in odd)


def test_a_kind_joins_the_plan_by_its_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    joined = replace(kinds.KINDS["growing"], name="joined", dtypes=("int8", "int4"))
    monkeypatch.setitem(kinds.KINDS, "joined", joined)
    mine = [job for job in plan("smollm2-135m", "cpu") if job.get("kind") == "joined"]
    assert {job["what"] for job in mine} == {"grid", "written", "step"}  # it reserves nothing
    assert {job["dtype"] for job in mine} == {"int8", "int4"}


def test_a_run_on_a_cpu_stays_within_its_memory() -> None:
    for name in ("smollm2-135m", "llama-2-7b"):
        jobs = [job for job in plan(name, "cpu") if job["what"] in ("grid", "step")]
        assert jobs
        for job in jobs:
            assert predicted(job, job["context"]) <= MOST


@pytest.mark.parametrize("name", ["mistral-7b-v0.1", "deepseek-v3", "jamba-v0.1", "nonesuch"])
def test_models_that_plain_caches_do_not_fit_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="model is"):
        kinds.shape(name)


def test_filling_refuses_what_does_not_fit_before_it_writes() -> None:
    cache = PreallocatedCache(CONFIG, 2, capacity=13)
    for context, piece in ((14, 4), (13, 0), (13, -1)):
        with pytest.raises(ValueError, match=r"context is 14|piece is"):
            points.fill(cache, context, piece)
    assert cache.end == 0


@pytest.mark.parametrize("kind", ["growing", "preallocated"])
def test_what_is_really_written_and_held_is_what_a_record_must_say(kind: str) -> None:
    job = {"model": "smollm2-135m", "kind": kind, "dtype": "float16", "device": "cpu"}
    written = job | {"context": 7, "batch": 3}
    found = points.MEASURE["written"](**written)
    rows = 28 if kind == "growing" else 7
    assert found == {"written": rows * 3 * TOKEN}
    assert record.unexplained({"what": "written", **written}, found) == []
    step = job | {"context": 600, "batch": 1}
    found = points.MEASURE["step"](**step)
    assert found["tokens"] == 595
    assert found["held"] == (595 if kind == "growing" else 600) * TOKEN + 8
    assert len(found["seconds"]) == 5
    assert record.unexplained({"what": "step", **step}, found) == []


def test_a_gpu_may_have_less_than_the_budget() -> None:
    job = {"what": "frontier", "model": "smollm2-135m", "kind": "preallocated", "device": "cuda"}
    job |= {"dtype": "float16", "batch": 1, "budget": 2**30}
    for budget, odd in ((2**29, 0), (2**30, 0), (2**31, 1)):
        last = budget // TOKEN
        found = {"budget": budget, "per_token": TOKEN, "predicted": last, "last": last}
        assert len(record.unexplained(job, found)) == odd


# Running


def predicted(job: dict, context: int) -> int:
    spec, _ = kinds.shape(job["model"])
    return kinds.KINDS[job["kind"]].predict(spec, context, job["batch"], job["dtype"])


def pretended(jobs: list[dict]) -> Iterator[tuple[dict, dict]]:
    """Results as exact as the prediction, without measuring."""
    for job in jobs:
        if job["what"] == "grid":
            exact = predicted(job, job["context"])
            beside = 8 * job["batch"]
            found = {"predicted": exact, "held": exact + beside, "bookkeeping": beside}
            found |= {"resident_raw": exact, "resident": exact}
        elif job["what"] == "frontier":
            each = predicted(job, 1)
            last = job["budget"] // each
            found = {"budget": job["budget"], "per_token": each, "predicted": last, "last": last}
        elif job["what"] == "step":
            tokens = job["context"] - 5
            held = predicted(job, tokens if job["kind"] == "growing" else job["context"])
            found = {"tokens": tokens, "held": held, "process": 1000, "transient": 0}
            found |= {"seconds": [0.1, 0.2, 0.1, 0.1, 3]}
        elif job["what"] == "written":
            tokens = job["context"]
            rows = tokens * (tokens + 1) // 2 if job["kind"] == "growing" else tokens
            found = {"written": rows * TOKEN}
        else:
            logits = 49_152 * 4 * (1 if job["last_only"] else 512)
            found = {"weights": 1, "cache": 2 * TOKEN * 512 + 8, "logits": logits}
            found |= {"activations": 4, "cuda_peak": None}
        yield job, found


def run(path: Path, source=pretended, **options) -> str:
    return measure(path, "cpu", SETTINGS, "python -m kvbook measure", results=source, **options)


def test_an_interrupted_run_keeps_its_points_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"

    def breaks_off(jobs: list[dict]) -> Iterator[tuple[dict, dict]]:
        for number, pair in enumerate(pretended(jobs)):
            if number == 7:
                raise KeyboardInterrupt
            yield pair

    with pytest.raises(KeyboardInterrupt):
        run(path, breaks_off)
    kept = record.read(path)
    assert (len(kept["points"]), kept["finished"]) == (7, False)

    asked: list[dict] = []

    def notes(jobs: list[dict]) -> Iterator[tuple[dict, dict]]:
        asked.extend(jobs)
        return pretended(jobs)

    assert "all explained" in run(path, notes)
    whole = record.read(path)
    jobs = plan("smollm2-135m", "cpu", quick=True, budget=2**26)
    assert [point["job"] for point in whole["points"]] == jobs
    assert asked == jobs[7:]
    assert whole["points"][:7] == kept["points"]
    assert whole["finished"]
    assert [left.name for left in tmp_path.iterdir()] == ["mine.json"]


def test_a_finished_or_foreign_record_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    run(path)
    with pytest.raises(ConfigError, match=r"mine\.json holds a finished run"):
        run(path)
    other = json.loads(path.read_text()) | {"finished": False}
    other["device"]["name"] = "another processor"
    path.write_text(json.dumps(other))
    with pytest.raises(ConfigError, match="another run or machine"):
        run(path)
    path.write_text('{"my": "thesis"}')
    with pytest.raises(ConfigError, match="no record"):
        run(path, force=True)
    assert path.read_text() == '{"my": "thesis"}'


def test_a_point_that_differs_is_named_and_kept(tmp_path: Path) -> None:
    def leaks(jobs: list[dict]) -> Iterator[tuple[dict, dict]]:
        for number, (job, found) in enumerate(pretended(jobs)):
            yield job, found | {"held": found["held"] + 10**7} if number == 3 else found

    path = tmp_path / "mine.json"
    with pytest.raises(ConfigError, match=r"1 of \d+ points differ from the prediction: grid"):
        run(path, leaks)
    assert json.loads(path.read_text())["finished"]
    with pytest.raises(ConfigError, match="held"):
        record.read(path)
    asked: list[dict] = []

    def notes(jobs: list[dict]) -> Iterator[tuple[dict, dict]]:
        asked.extend(jobs)
        return pretended(jobs)

    run(path, notes)  # the remedy: that point alone is measured again, and stands in its place
    jobs = plan("smollm2-135m", "cpu", quick=True, budget=2**26)
    assert asked == [jobs[3]]
    assert [point["job"] for point in record.read(path)["points"]] == jobs


def test_a_job_that_fails_or_whose_process_dies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    job = {"what": "grid", "model": "smollm2-135m", "kind": "growing", "device": "cpu"}
    bad = job | {"dtype": "float16", "context": 96, "batch": 0}
    with pytest.raises(ConfigError, match="grid growing float16 96 x 0: ValueError: batch is 0"):
        list(results([bad]))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ConfigError, match="the process ended with 1"):
        list(results([bad]))


# Records


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> dict:
    path = tmp_path_factory.mktemp("records") / "mine.json"
    run(path)
    return json.loads(path.read_text())


def test_every_record_in_the_repository_is_sound() -> None:
    paths = sorted((ROOT / "measurements").glob("*.json"))
    paths = [path for path in paths if not record.is_readers(path)]
    assert paths
    for path in paths:
        assert record.read(path)["finished"]
    assert record.newest(ROOT / "measurements", "cpu")


def first(record: dict, what: str, kind: str | None = None) -> dict:
    jobs = ((point["job"], point["result"]) for point in record["points"])
    return next(r for job, r in jobs if job["what"] == what and kind in (None, job.get("kind")))


WRONG = {
    "a predicted byte": lambda r: first(r, "grid").update(
        predicted=1 + first(r, "grid")["predicted"]
    ),
    "a held byte": lambda r: first(r, "grid").update(held=1 + first(r, "grid")["held"]),
    "a frontier": lambda r: first(r, "frontier").update(last=first(r, "frontier")["last"] // 2),
    "a cost": lambda r: first(r, "frontier").update(per_token=23_041),
    "a transient": lambda r: first(r, "step").update(transient=10**6),
    "no number": lambda r: first(r, "written").update(written="5"),
    "a truth value": lambda r: first(r, "written").update(written=True),
    "a field too many": lambda r: first(r, "pass").update(user="me"),
    "a field missing": lambda r: first(r, "grid").pop("resident"),
    "an unknown kind": lambda r: r["points"][0]["job"].update(kind="nonesuch"),
    "another device's point": lambda r: r["points"][0]["job"].update(device="cuda"),
    "no job": lambda r: r["points"].append({"result": {}}),
    "an unknown kind of record": lambda r: r.update(record="taste"),
    "a list for a kind of record": lambda r: r.update(record=["memory"]),
    "no points": lambda r: r.update(points=[]),
    "a path": lambda r: r.update(command="python -m kvbook measure --out /root/x.json"),
    "a host": lambda r: r["device"].update(name="me@host"),
    "no date": lambda r: r.update(date="yesterday"),
    "no driver": lambda r: r["device"].update(type="cuda"),
    "another format": lambda r: r.update(format=2),
    "a missing part": lambda r: r.pop("versions"),
    "a day that is not": lambda r: r.update(date="2026-02-30T00:00:00Z"),
    "a truth value for a format": lambda r: r.update(format=True),
    "a row too many": lambda r: first(r, "written").update(
        written=first(r, "written")["written"] + TOKEN
    ),
    "a row too few, preallocated": lambda r: first(r, "written", "preallocated").update(
        written=first(r, "written", "preallocated")["written"] - TOKEN
    ),
    "less than nothing written": lambda r: first(r, "written", "latent").update(written=-5),
    "a byte of the pass's cache": lambda r: first(r, "pass").update(cache=1),
    "a byte of the logits": lambda r: first(r, "pass").update(logits=4),
    "a token": lambda r: first(r, "step").update(tokens=first(r, "step")["tokens"] + 1),
    "growing holds its capacity": lambda r: first(r, "step").update(
        held=round(1.015 * first(r, "step")["held"])
    ),
    "half a paged cache": lambda r: first(r, "step", "paged").update(
        held=first(r, "step", "paged")["held"] // 2
    ),
    "a step too few": lambda r: first(r, "step")["seconds"].pop(),
    "a time of 0": lambda r: first(r, "step")["seconds"].__setitem__(0, 0.0),
    "an endless time": lambda r: first(r, "step")["seconds"].__setitem__(0, float("inf")),
    "one number for the times": lambda r: first(r, "step").update(seconds=0.1),
    "a list of bytes": lambda r: first(r, "pass").update(activations=[1, 2]),
    "another budget": lambda r: first(r, "frontier").update(
        budget=2**25, predicted=2**25 // TOKEN, last=2**25 // TOKEN
    ),
    "a job's field too many": lambda r: r["points"][0]["job"].update(user="me"),
    "a truth value for a batch": lambda r: r["points"][0]["job"].update(batch=True),
    "a path in a point": lambda r: r["points"][0]["job"].update({"/root/x": 1}),
    "a point twice": lambda r: r["points"].append(r["points"][0]),
    "a point missing": lambda r: r["points"].pop(),
    "a job of another plan": lambda r: r["settings"].update(budget_bytes=None),
    "a setting missing": lambda r: r["settings"].pop("quick"),
    "no settings": lambda r: r.update(settings={}),
    "a setting too many": lambda r: r["settings"].update(user="me"),
    "a number for a truth value": lambda r: r["settings"].update(quick=1),
    "a truth value for a budget": lambda r: r["settings"].update(budget_bytes=True),
    "a list for a model": lambda r: r["settings"].update(model=[]),
    "a huge number": lambda r: first(r, "grid").update(held=10**400),
    "a huge context": lambda r: r["points"][0]["job"].update(context=10**400),
    "a list for a kind": lambda r: r["points"][0]["job"].update(kind=[]),
    "a result that is a list": lambda r: r["points"][0].update(result=[]),
    "depth": lambda r: r["versions"].update(torch=deep()),
}


def deep() -> list:
    found: list = []
    for _ in range(100_000):
        found = [found]
    return found


@pytest.mark.parametrize("what", WRONG)
def test_a_record_with_something_wrong_is_rejected(good: dict, what: str) -> None:
    record.check(good)
    broken = copy.deepcopy(good)
    WRONG[what](broken)
    with pytest.raises(ConfigError) as caught:
        record.check(broken)
    assert "\n" not in str(caught.value)


def test_resident_memory_counts_above_64_mb_only(good: dict) -> None:
    changed = copy.deepcopy(good)
    for point in changed["points"]:
        if point["job"]["what"] == "grid":
            found = point["result"]
            far = 1.5 if found["predicted"] <= 64e6 else 1.04
            found["resident"] = int(found["predicted"] * far)
    record.check(changed)
    large = [p["result"] for p in changed["points"] if p["result"].get("predicted", 0) > 64e6]
    for far in (1.06, 0.94):
        large[0]["resident"] = int(large[0]["predicted"] * far)
        with pytest.raises(ConfigError, match="resident"):
            record.check(changed)


def test_the_newest_record_of_a_device_is_found(good: dict, tmp_path: Path) -> None:
    for name, date, more in (
        ("old", "2026-01-01T00:00:00Z", {}),
        ("new", "2026-03-01T00:00:00Z", {}),
        ("open", "2026-04-01T00:00:00Z", {"finished": False}),
        ("mine", "2026-05-01T00:00:00Z", {}),  # the reader's own is never shown as the book's
        ("decode_mine", "2026-05-01T00:00:00Z", {}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(good | {"date": date} | more))
    (tmp_path / "decode.json").write_text('{"record": "decode"}')
    assert record.newest(tmp_path, "cpu")[0] == "new.json"
    (tmp_path / "jasmine.json").write_text(json.dumps(good | {"date": "2026-06-01T00:00:00Z"}))
    assert record.newest(tmp_path, "cpu")[0] == "jasmine.json"
    assert record.newest(tmp_path, "cuda") is None
    assert record.newest(tmp_path / "nowhere", "cpu") is None


# The command line


def command(*arguments: object) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "kvbook", "measure", *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, cwd=ROOT)


REFUSED = {
    "--out is needed": [],
    "json": ["--out", "record.txt"],
    "what": ["--out", "x.json", "--what", "taste"],
    "device": ["--out", "x.json", "--device", "tpu"],
    "budget": ["--out", "x.json", "--budget-bytes", "lots"],
    "small budget": ["--out", "x.json", "--budget-bytes", "5"],
    "model": ["--out", "x.json", "--device", "cpu", "--model", "jamba-v0.1"],
    "abbreviated": ["--out", "x.json", "--dev", "cpu"],
    "folder": ["--out", "README.md/x.json", "--device", "cpu", "--quick"],
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_options_get_one_line(what: str) -> None:
    done = command(*REFUSED[what])
    assert (done.returncode, done.stdout) == (2, "")
    complaint = [line for line in done.stderr.splitlines() if not line.startswith("[")]
    assert len(complaint) == 1
    assert not (ROOT / "x.json").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_not_pretended(tmp_path: Path) -> None:
    done = command("--out", tmp_path / "gpu.json", "--device", "cuda")
    assert done.returncode == 2
    assert done.stderr == "--device is cuda, but PyTorch sees no GPU here.\n"
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_stays_free_of_torch() -> None:
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from kvbook.__main__ import main\n"
        "main(['measure', '--out', 'x.txt'])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, '--out is "x.txt"; it must end in .json.\n')


def test_a_job_has_a_name_of_its_own() -> None:
    jobs = plan("smollm2-135m", "cpu")
    assert len({label(job) + str(job.get("last_only")) for job in jobs}) == len(jobs)


def test_what_a_gpu_allocates_is_explained_by_its_rule() -> None:
    job = {**next(job for job in plan("smollm2-135m", "cpu") if job["what"] == "grid")}
    spec, _ = kinds.shape(job["model"])
    exact = kinds.KINDS[job["kind"]].predict(spec, job["context"], job["batch"], job["dtype"])
    result = {"predicted": exact, "held": exact + 8, "bookkeeping": 8, "requested": exact}
    result |= {"allocated": exact + 512, "most": exact + 2**20}
    assert record.unexplained(job, result) == []
    for wrong in ({"requested": 2 * exact}, {"allocated": exact - 1}, {"allocated": exact + 2**21}):
        assert record.unexplained(job, result | wrong)


def test_gradients_and_deques_are_held_too() -> None:
    layer = torch.nn.Linear(10, 10)
    assert held_nbytes(layer) == 440
    layer(torch.ones(1, 10)).sum().backward()
    assert held_nbytes(layer) == 880
    assert held_nbytes(deque([torch.zeros(3), {torch.zeros(2): 1}])) == 20
