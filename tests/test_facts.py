"""The facts about models and GPUs: complete, sourced, and right where they can be checked.

Parameters are counted again by transformers, on the meta device: shapes only, no weights.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kvbook.accounting import facts

HERE = Path(facts.__file__).parent
MODELS = facts.models()
GPUS = facts.gpus()
GB = 10**9
MIB = 2**20


def read(name: str) -> list[dict[str, Any]]:
    """The entries of a file, where a key that stands twice in one object is an error."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len({key for key, _ in pairs}) == len(pairs), f"a key stands twice: {pairs}"
        return dict(pairs)

    return json.loads((HERE / name).read_text(encoding="utf-8"), object_pairs_hook=once)


def text_config(model: facts.Model) -> dict[str, Any]:
    return model.config.get("text_config", model.config)


def is_count(value: object) -> bool:
    return type(value) is int and value > 0


# Models


def test_every_model_is_complete() -> None:
    must = {"id", "name", "config", "parameters", "parameters_note", "max_context"} | {
        "source",
        "released",
    }
    may = {"weights_note", "weights_bytes", "max_context_note"}
    for entry in read("models.json"):
        assert must <= set(entry) <= must | may, entry["id"]
        assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", entry["id"])
        assert is_count(entry["parameters"])
        assert is_count(entry["max_context"])
        assert is_count(entry.get("weights_bytes", 1))
        assert re.fullmatch(r"20\d\d-(0[1-9]|1[0-2])", entry["released"])
        assert re.match(
            r"https://huggingface\.co/[^/ ]+/[^/ ]+ \(config seen in .+\)$", entry["source"]
        )
        assert entry["parameters_note"].endswith(".")
        assert isinstance(entry["config"]["model_type"], str)
        assert len(entry["config"]["architectures"]) == 1


def test_no_model_stands_twice() -> None:
    assert len(MODELS) >= 25
    assert len({m.id for m in MODELS}) == len(MODELS)
    assert len({m.name for m in MODELS}) == len(MODELS)


def kinds(model: facts.Model) -> set[str]:
    """What its cache is like, from the config alone."""
    config = text_config(model)
    heads = config.get("num_attention_heads", config.get("n_head"))
    kv_heads = config.get("num_key_value_heads", heads)
    types = set(config.get("layer_types", ()))
    of = set()
    if config.get("multi_query"):
        of.add("multi-query")
    elif "kv_lora_rank" in config:
        of.add("latent")
    elif heads is not None:
        of.add("multi-head" if kv_heads == heads else "grouped-query")
    if config.get("sliding_window") and config.get("use_sliding_window", True):
        mixed = types == {"sliding_attention", "full_attention"}
        of.add("alternating" if mixed or config["model_type"].startswith("gemma") else "sliding")
    if "attention_chunk_size" in config:
        of.add("chunked")
    if {"attn_layer_period", "hybrid_override_pattern", "full_attention_interval"} & set(config):
        of.add("hybrid")
    if config.get("num_kv_shared_layers"):
        of.add("shared")
    if config.get("is_encoder_decoder"):
        of.add("cross")
    if {"num_local_experts", "num_experts", "n_routed_experts"} & set(config):
        of.add("experts")
    return of


def test_all_kinds_are_represented() -> None:
    assert set.union(*map(kinds, MODELS)) == {
        "multi-head",
        "grouped-query",
        "multi-query",
        "latent",
        "sliding",
        "alternating",
        "chunked",
        "hybrid",
        "shared",
        "cross",
        "experts",
    }
    assert kinds(facts.model("command-r")) == {"multi-head"}
    assert kinds(facts.model("qwen2.5-7b")) == {"grouped-query"}  # its window is switched off
    assert kinds(facts.model("mistral-7b-v0.1")) == {"grouped-query", "sliding"}


def test_names_agree_with_the_counts() -> None:
    checked = 0
    for model in MODELS:
        said = re.search(r"(?<![\dxE.])(\d+)([BM])\b", model.name.replace("17B-16E", ""))
        if said:
            size = int(said[1]) * {"B": 10**9, "M": 10**6}[said[2]]
            assert model.parameters == pytest.approx(size, rel=0.1), model.name
            checked += 1
    assert checked >= 20


@pytest.mark.parametrize("model", MODELS, ids=lambda m: m.id)
def test_parameters_and_context_as_transformers_has_them(model: facts.Model) -> None:
    import torch
    import transformers

    config = dict(text_config(model))
    kind = config.pop("model_type")
    kind = {"kimi_k2": "deepseek_v3"}.get(kind, kind)  # its architectures name DeepSeek-V3's class
    built = transformers.CONFIG_MAPPING[kind](**config)
    auto = transformers.AutoModelForCausalLM
    if built.is_encoder_decoder:
        auto = transformers.AutoModelForSpeechSeq2Seq
    with torch.device("meta"):
        counted = sum(p.numel() for p in auto.from_config(built).parameters())  # tied weights once
    assert counted == model.parameters

    positions = getattr(built, "max_target_positions", None) or built.max_position_embeddings
    assert model.max_context == positions or model.max_context_note


@pytest.mark.parametrize("name", ["gemma-3-4b", "gemma-3-27b", "llama-4-scout"])
def test_the_noted_counts_with_vision_towers(name: str) -> None:
    import torch
    import transformers

    model = facts.model(name)
    config = {k: v for k, v in model.config.items() if k != "model_type"}
    built = transformers.CONFIG_MAPPING[model.config["model_type"]](**config)
    with torch.device("meta"):
        whole = getattr(transformers, model.config["architectures"][0])(built)
    counted = sum(p.numel() for p in whole.parameters())
    assert f"{counted:,} with the vision tower" in model.parameters_note
    assert counted > model.parameters


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gpt-oss-120b"])
def test_mxfp4_checkpoints_to_the_byte(name: str) -> None:
    """Expert weights: 16 bytes and a scale of one byte per 32 values. All others: bfloat16."""
    model = facts.model(name)
    c = model.config
    per_expert = 3 * c["hidden_size"] * c["intermediate_size"]  # gate, up and down
    experts = c["num_hidden_layers"] * c["num_local_experts"] * per_expert
    assert experts // 32 * 17 + (model.parameters - experts) * 2 == model.weights_bytes


def test_the_fp8_checkpoint_is_about_a_byte_a_parameter() -> None:
    v3 = facts.model("deepseek-v3")
    assert v3.weights_bytes is not None
    assert 1 < v3.weights_bytes / v3.parameters < 1.03  # more by the prediction layer and scales


# GPUs


def test_every_gpu_is_complete() -> None:
    must = {"name", "memory_bytes_nominal", "memory_bytes_reported", "reported_source"} | {
        "bandwidth_bytes_per_s",
        "fp16_flops_dense",
        "source",
    }
    for entry in read("gpus.json"):
        assert must <= set(entry) <= must | {"aliases", "note"}, entry["name"]
        assert is_count(entry["memory_bytes_nominal"])
        assert is_count(entry["bandwidth_bytes_per_s"])
        assert entry["fp16_flops_dense"] is None or is_count(entry["fp16_flops_dense"])
        assert "https://" in entry["source"]


def test_no_gpu_stands_twice() -> None:
    assert len(GPUS) >= 15
    names = [name.lower() for g in GPUS for name in (g.name, *g.aliases)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("gpu", GPUS, ids=lambda g: g.name)
def test_units_are_not_confused(gpu: facts.Gpu) -> None:
    assert gpu.memory_bytes_nominal % GB == 0
    assert gpu.bandwidth_bytes_per_s % GB == 0
    size = re.search(r"(\d+)GB", gpu.name)
    assert size is None or gpu.memory_bytes_nominal == int(size[1]) * GB

    reported = gpu.memory_bytes_reported
    assert (reported is None) == (gpu.reported_source is None)
    if reported is not None and gpu.reported_source is not None:
        # A maker's GB is between 10^9 and 2^30 bytes of what the driver shows: never less.
        assert 1 <= reported / gpu.memory_bytes_nominal <= 2**30 / GB
        said = re.match(r"([\d,]+) (MiB|bytes)\b", gpu.reported_source)
        assert said is not None
        assert reported == int(said[1].replace(",", "")) * {"MiB": MIB, "bytes": 1}[said[2]]


@pytest.mark.parametrize("gpu", GPUS, ids=lambda g: g.name)
def test_speeds_are_plausible(gpu: facts.Gpu) -> None:
    seconds = gpu.memory_bytes_nominal / gpu.bandwidth_bytes_per_s  # to read the memory once
    assert 0.015 < seconds < 0.1
    if gpu.fp16_flops_dense is not None:
        assert 50 < gpu.fp16_flops_dense / gpu.bandwidth_bytes_per_s < 450  # operations per byte


def test_tensor_figures_are_dense() -> None:
    """Datasheets print twice as much, with sparsity; GeForce cards twice that, summed in fp16."""
    for name, tera in (("A100 80GB", 312), ("H100 SXM", 989.5), ("RTX 4090", 165.2), ("L4", 121)):
        assert facts.gpu(name).fp16_flops_dense == tera * 10**12


def test_the_figures_that_the_lessons_use() -> None:
    assert facts.model("llama-2-7b").parameters == 6_738_415_616
    a100 = facts.gpu("A100 80GB")
    assert a100.memory_bytes_nominal == 80 * GB
    assert a100.memory_bytes_reported == 81_920 * MIB


# Looking up


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("A100 80GB", "A100 80GB"),
        ("a100-80gb", "A100 80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB"),
        ("nvidia h100 80gb hbm3", "H100 SXM"),
        ("h100_nvl", "H100 NVL"),
        ("4090", "RTX 4090"),
        ("NVIDIA GeForce RTX 4090", "RTX 4090"),
        ("a10", "A10"),
        ("Tesla T4", "T4"),
        ("AMD Instinct MI300X", "MI300X"),
    ],
)
def test_a_gpu_by_many_names(asked: str, name: str) -> None:
    assert facts.gpu(asked).name == name


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("llama-3.1-8b", "llama-3.1-8b"),
        ("Llama 3.1 8B", "llama-3.1-8b"),
        ("LLAMA3.1-8B", "llama-3.1-8b"),
        ("kimi", "kimi-k2"),
        ("GPT-2", "gpt2"),
        ("Mistral 7B v0.1", "mistral-7b-v0.1"),
    ],
)
def test_a_model_by_many_names(asked: str, found: str) -> None:
    assert facts.model(asked).id == found


@pytest.mark.parametrize("entry", [*MODELS, *GPUS], ids=lambda e: e.name)
def test_everything_is_found_by_its_own_names(entry: facts.Model | facts.Gpu) -> None:
    if isinstance(entry, facts.Model):
        assert facts.model(entry.id) == facts.model(entry.name) == entry
    else:
        assert all(facts.gpu(name) == entry for name in (entry.name, *entry.aliases))


@pytest.mark.parametrize("asked", ["B9000", "", "  ", "NVIDIA", "A100 81GB", "100"])
def test_an_unknown_gpu_names_those_there_are(asked: str) -> None:
    with pytest.raises(ValueError, match=r"gpu is .*; it must be one of") as caught:
        facts.gpu(asked)
    assert json.dumps(asked) in str(caught.value)
    assert all(g.name in str(caught.value) for g in GPUS)
    assert "\n" not in str(caught.value)


def test_an_unknown_model_names_those_there_are() -> None:
    with pytest.raises(ValueError, match='model is "llama-9"; it must be one of') as caught:
        facts.model("llama-9")
    assert all(m.id in str(caught.value) for m in MODELS)


def test_a_name_that_fits_several_is_refused() -> None:
    with pytest.raises(ValueError, match="H100 SXM or H100 PCIe or H100 NVL: say which"):
        facts.gpu("H100")
    with pytest.raises(ValueError, match=r"mistral-7b-v0\.1 or mistral-7b-v0\.3: say which"):
        facts.model("Mistral 7B")


def test_one_reader_cannot_change_what_the_next_one_reads() -> None:
    facts.models()[0].config["hidden_size"] = 1
    assert facts.models()[0].config["hidden_size"] == 4096


def test_only_the_standard_library_is_imported() -> None:
    code = (
        "import sys, kvbook.accounting.facts as f; f.models(); f.gpus();"
        "print(sorted({m.split('.')[0] for m in sys.modules} - sys.stdlib_module_names))"
    )
    run = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    loaded = json.loads(run.stdout.replace("'", '"'))
    assert "kvbook" in loaded
    assert not {"torch", "numpy", "transformers"} & set(loaded)


@pytest.mark.parametrize("name", [None, 4, 4.5, True, ["h100"], b"h100", {}])
def test_what_is_no_name_is_refused_with_all_names(name):
    with pytest.raises(facts.ConfigError, match=r"gpu is .*; it must be one of .*A100"):
        facts.gpu(name)
    with pytest.raises(facts.ConfigError, match=r"model is .*; it must be one of .*llama"):
        facts.model(name)
