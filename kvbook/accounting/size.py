"""The command `size`: its arguments, and its answer as a short table or as JSON."""

import argparse
import json
from typing import Any

from kvbook.accounting.errors import ConfigError, shown
from kvbook.accounting.facts import gpu, gpus
from kvbook.accounting.files import load_config
from kvbook.accounting.fit import MOST_BYTES, as_utilization, fit_users
from kvbook.accounting.reader import cache_spec
from kvbook.accounting.spec import LARGEST, POLICIES, CacheSpec, in_units
from kvbook.accounting.tables import table
from kvbook.accounting.weights import weights_nbytes


def add_command(commands: Any) -> None:
    """Add `size` to the subcommands of a parser."""
    parser = commands.add_parser(
        "size",
        help="the KV cache of a config.json, and how many users fit",
        description="Bytes of the KV cache on one GPU, and with a GPU how many users fit on it.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("config", metavar="CONFIG.json", help="a Hugging Face config.json; - is standard input")
    add("--context", required=True, metavar="N", help="tokens of each sequence")
    add("--batch", default="1", metavar="B", help="sequences (1)")
    add("--cache-dtype", default="bfloat16", metavar="D", help=", ".join(table("dtypes")["dtypes"]))
    add("--policy", default="exact", metavar="P", help=", ".join(POLICIES))
    add("--tensor-parallel", default="1", metavar="T", help="GPUs that share the model (1)")
    add("--gpu", metavar="NAME", help=", ".join(card.name for card in gpus()))
    add("--memory-bytes", metavar="N", help="memory of each GPU, instead of --gpu")
    add("--weights-bytes", metavar="N", help="all the weights, before they are divided by T")
    add("--utilization", metavar="U", help="share of the memory that may be used (1)")
    add("--block-size", default="16", metavar="S", help="tokens a block of the policy paged (16)")
    add("--json", action="store_true", help="one JSON object instead of a table")
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> str:
    """The answer as text. Raises ConfigError, one sentence, for anything that is wrong."""
    arguments: dict[str, Any] = {
        "cache_dtype": given.cache_dtype,
        "policy": given.policy,
        "tensor_parallel": count("--tensor-parallel", given.tensor_parallel, high=2**16),
        "block_size": count("--block-size", given.block_size),
    }
    context = count("--context", given.context)
    batch = count("--batch", given.batch)
    memory = _memory(given)
    config = load_config(given.config)
    spec = cache_spec(config)
    total = spec.nbytes(context, batch, **arguments)
    answer = _answer(spec, context, batch, total, arguments)
    if memory is not None:
        answer |= _users(given, config, answer, *memory)
    if given.json:
        return json.dumps(answer)
    words = spec.explain(context, batch, **arguments)
    further = [note for note in answer["notes"] if note not in spec.notes]
    return "\n".join([_table(answer), "", words, *further])


def count(option: str, text: str, low: int = 1, high: int = LARGEST) -> int:
    """The whole number that an option gives; ConfigError that names the option if it is none."""
    plain = text.isascii() and text.isdecimal() and len(text) <= 30
    if not plain or not low <= int(text) <= high:
        raise ConfigError(
            f"{option} is {shown(text)}; it must be a whole number from {low} to {high}."
        )
    return int(text)


def _memory(given: argparse.Namespace) -> tuple[str, int] | None:
    """What the memory is called, and its bytes; None where no GPU is given."""
    if given.gpu is not None and given.memory_bytes is not None:
        raise ConfigError("--gpu and --memory-bytes are both given; give one of them.")
    if given.memory_bytes is not None:
        return "memory given", count("--memory-bytes", given.memory_bytes, high=MOST_BYTES)
    if given.gpu is not None:
        card = gpu(given.gpu)  # a program sees what the driver reports, where that is known
        return card.name, card.memory_bytes_reported or card.memory_bytes_nominal
    for option in ("weights_bytes", "utilization"):
        if getattr(given, option) is not None:
            name = "--" + option.replace("_", "-")
            raise ConfigError(f"{name} needs a GPU; give --gpu or --memory-bytes.")
    return None


def _answer(
    spec: CacheSpec, context: int, batch: int, total: int, arguments: dict[str, Any]
) -> dict[str, Any]:
    dtype, parallel = arguments["cache_dtype"], arguments["tensor_parallel"]
    sizes = spec.layer_nbytes(context, **arguments)
    notes = list(spec.notes)
    if spec.max_context is not None and context > spec.max_context:
        notes.append(f"The config speaks of {spec.max_context} tokens at most.")
    return {
        "bytes": total,
        "bytes_per_token": spec.bytes_per_token(dtype, parallel),
        "bytes_per_token_beyond_windows": spec.bytes_per_token(
            dtype, parallel, beyond=True, policy=arguments["policy"]
        ),
        "sequence_bytes": sum(sizes),
        "state_bytes": spec.state_bytes(batch),
        "family": spec.family,
        "context": context,
        "batch": batch,
        **arguments,
        "windows": list(spec.windows),
        "max_context": spec.max_context,
        "layers": [
            {
                "kind": layer.kind,
                "n_kv_heads": layer.n_kv_heads,
                "k_dim": layer.k_dim,
                "v_dim": layer.v_dim,
                "window": layer.window,
                "tokens": layer.tokens_held(context, arguments["policy"], arguments["block_size"]),
                "bytes": nbytes,
            }
            for layer, nbytes in zip(spec.layers, sizes, strict=True)
        ],
        "notes": notes,
    }


def _users(
    given: argparse.Namespace, config: dict[str, Any], answer: dict[str, Any], name: str, have: int
) -> dict[str, Any]:
    utilization = as_utilization("1" if given.utilization is None else given.utilization)
    if given.weights_bytes is not None:
        weights = count("--weights-bytes", given.weights_bytes, low=0, high=MOST_BYTES)
        how = "given"
    else:
        weights, how = weights_nbytes(config)
    parallel = answer["tensor_parallel"]
    users = fit_users(answer["sequence_bytes"], have, weights, utilization, parallel)
    return {
        "users": users,
        "gpu": name,
        "memory_bytes": have,
        "utilization": float(utilization),
        "weights_bytes": weights,
        "weights": how,
    }


def _table(answer: dict[str, Any]) -> str:
    """The numbers that matter, one a line."""
    each = " on each GPU" if answer["tensor_parallel"] > 1 else ""
    rows = [
        ("family", answer["family"]),
        ("cache" + each, _size(answer["bytes"])),
        ("one sequence", _size(answer["sequence_bytes"])),
        ("a token", f"{answer['bytes_per_token']:,} B"),
    ]
    if answer["windows"]:
        beyond = f"{answer['bytes_per_token_beyond_windows']:,} B"
        rows.append((f"a token beyond {max(answer['windows']):,}", beyond))
    if answer["state_bytes"]:
        rows.append(("constant state", _size(answer["state_bytes"]) + " at 2 bytes a value"))
    if "users" in answer:
        rows.append(("weights", f"{_size(answer['weights_bytes'])}: {answer['weights']}"))
        rows.append((answer["gpu"], _size(answer["memory_bytes"])))
        users = answer["users"]
        text = "any number: there is no cache" if users is None else f"{users:,}"
        rows.append((f"users of {answer['context']:,} tokens", text))
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {text}" for label, text in rows)


def _size(nbytes: int) -> str:
    return f"{nbytes:,} B = " + in_units(nbytes).replace(", ", " = ")
