"""An explorer for capacity: how many users fit on a GPU, and what each technique buys.

The figures are computed in the page, from the tables that `kvbook.accounting` reads too, so it needs no
kernel. With one, the traits follow the reader's hand and `users` answers from Python.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from kvbook.accounting import cache_spec, facts, fit_users, parameter_count
from kvbook.accounting.spec import LARGEST
from kvbook.accounting.tables import table
from kvbook.accounting.whatif import what_if
from kvbook.explorer.checks import choice, number, whole

OWN = "own"  # the model that a config describes, the GPU that own_gb and own_gb_per_s describe
WEIGHTS = {"released": 16, "32": 32, "16": 16, "8": 8, "4": 4}  # bits a parameter
POLICIES = ("exact", "reserve", "paged", "all_layers_full")
MAX_CONTEXT = 2**20
MAX_CONFIG = 1_000_000  # characters


def _optional() -> traitlets.Int:
    return traitlets.Int(None, allow_none=True).tag(sync=True)


class CapacityExplorer(anywidget.AnyWidget):
    """Choose a model, a GPU and a context, and see how many users fit.

    model            an id or a name of models.json ("llama-2-7b"), or "own" with a `config`
    config           a config.json as a dict or as text: a model of one's own
    parameters       its parameters; counted from the config where its family is known
    weights          "16", "32", "8" or "4" bits a parameter, or "released": the published files
    gpu              a name of gpus.json ("A100 80GB"), or "own" with own_gb and own_gb_per_s
    memory           "nominal", or "reported": what the driver says
    own_gb           GB (10^9 bytes) of one's own GPU; own_gb_per_s its bandwidth
    context, batch   tokens of each sequence; sequences
    cache_dtype      a name of dtypes.json: "float16", "fp8", "int8", "int4", ...
    n_kv_heads, window, sinks, full_every   what if: see `kvbook.accounting.whatif.what_if`
    policy           "exact", "paged" (in blocks of block_size), "all_layers_full", or "reserve": each
                     sequence takes `reserve` tokens (None: the most the model is made for)
    tensor_parallel  GPUs that share the model: 1, 2, 4, 8 or 16
    utilization      the share of a GPU's memory that may be used; overhead_gb GB of it go elsewhere
    link             whether the page's address follows the settings (the first explorer's only)

    Raises ValueError, one sentence, for a name that is not known or a number out of range.
    """

    _esm = Path(__file__).parent / "static/capacity.js"
    _css = Path(__file__).parent / "static/capacity.css"

    model = traitlets.Unicode().tag(sync=True)
    config = traitlets.Unicode().tag(sync=True)  # the JSON of one's own model, else empty
    parameters = _optional()
    weights = traitlets.Unicode().tag(sync=True)
    gpu = traitlets.Unicode().tag(sync=True)
    memory = traitlets.Unicode().tag(sync=True)
    own_gb = traitlets.Float().tag(sync=True)
    own_gb_per_s = traitlets.Float().tag(sync=True)
    context = traitlets.Int().tag(sync=True)
    batch = traitlets.Int().tag(sync=True)
    cache_dtype = traitlets.Unicode().tag(sync=True)
    n_kv_heads = _optional()
    window = _optional()
    sinks = traitlets.Int().tag(sync=True)
    full_every = _optional()
    policy = traitlets.Unicode().tag(sync=True)
    reserve = _optional()
    block_size = traitlets.Int().tag(sync=True)
    tensor_parallel = traitlets.Int().tag(sync=True)
    utilization = traitlets.Float().tag(sync=True)
    overhead_gb = traitlets.Float().tag(sync=True)
    link = traitlets.Bool().tag(sync=True)
    start = traitlets.Dict().tag(sync=True)  # where the reset button leads

    def __init__(
        self,
        model: str = "llama-2-7b",
        gpu: str = "A100 80GB",
        context: int = 4096,
        batch: int = 30,
        cache_dtype: str = "float16",
        n_kv_heads: int | None = None,
        *,
        config: Mapping[str, Any] | str | None = None,
        parameters: int | None = None,
        weights: str | int = "16",
        memory: str = "nominal",
        own_gb: float = 80,
        own_gb_per_s: float = 2000,
        window: int | None = None,
        sinks: int = 0,
        full_every: int | None = None,
        policy: str = "exact",
        reserve: int | None = None,
        block_size: int = 16,
        tensor_parallel: int = 1,
        utilization: float = 1,
        overhead_gb: float = 0,
        link: bool = True,
    ) -> None:
        text = ""
        if config is not None:
            text = config if isinstance(config, str) else _text(config)
            model = OWN
            parameters = parameters or parameter_count(_config(text))
        start = {
            "model": model if model == OWN else facts.model(model).id,
            "config": text,
            "parameters": whole("parameters", parameters, 1, 10**14, optional=True),
            "weights": choice("weights", str(weights), WEIGHTS),
            "gpu": gpu if gpu == OWN else facts.gpu(gpu).name,
            "memory": choice("memory", memory, ("nominal", "reported")),
            "own_gb": number("own_gb", own_gb, 0.1, 100_000),
            "own_gb_per_s": number("own_gb_per_s", own_gb_per_s, 1, 1_000_000),
            "context": whole("context", context, 1, MAX_CONTEXT),
            "batch": whole("batch", batch, 1, 100_000),
            "cache_dtype": choice("cache_dtype", cache_dtype, table("dtypes")["dtypes"]),
            "n_kv_heads": whole("n_kv_heads", n_kv_heads, 1, 1024, optional=True),
            "window": whole("window", window, 1, MAX_CONTEXT, optional=True),
            "sinks": whole("sinks", sinks, 0, 1024),
            "full_every": whole("full_every", full_every, 2, 128, optional=True),
            "policy": choice("policy", policy, POLICIES),
            "reserve": whole("reserve", reserve, 1, 16 * MAX_CONTEXT, optional=True),
            "block_size": whole("block_size", block_size, 1, 65_536),
            "tensor_parallel": choice("tensor_parallel", tensor_parallel, (1, 2, 4, 8, 16)),
            "utilization": number("utilization", utilization, 0.01, 1),
            "overhead_gb": number("overhead_gb", overhead_gb, 0, 10_000),
        }
        if start["model"] == OWN and config is None:
            raise ValueError('model is "own"; give its config too.')
        _answer(start)  # or a sentence: the settings must go together
        super().__init__(**start, start=start, link=bool(link))

    def __repr__(self) -> str:
        return f"CapacityExplorer({self.model} on {self.gpu})"

    @property
    def users(self) -> int | None:
        """How many users fit with the settings as they are now; None where no cache is kept."""
        return _answer({name: getattr(self, name) for name in self.start})[1]

    @property
    def sequence_bytes(self) -> int:
        """Bytes of one sequence's cache on one GPU, with the settings as they are now."""
        return _answer({name: getattr(self, name) for name in self.start})[0]


def _answer(now: Mapping[str, Any]) -> tuple[int, int | None]:
    """One sequence's bytes on one GPU, and the users that fit. Raises ValueError (ConfigError)."""
    if now["model"] == OWN:
        spec = cache_spec(_config(now["config"]))
        parameters, released, longest = now["parameters"], None, spec.max_context
        if longest is not None and longest > LARGEST:
            longest = None  # a file that says more says nothing
    else:
        model = facts.model(now["model"])
        spec = cache_spec(model.config)
        parameters, released, longest = model.parameters, model.weights_bytes, model.max_context
    weights = math.ceil(parameters * WEIGHTS[now["weights"]] / 8)
    if now["weights"] == "released" and released is not None:
        weights = released
    if now["gpu"] == OWN:
        memory = round(now["own_gb"] * 1e9)
    else:
        gpu = facts.gpu(now["gpu"])
        memory = gpu.memory_bytes_nominal
        if now["memory"] == "reported":
            memory = gpu.memory_bytes_reported or memory
    change = {"n_kv_heads": now["n_kv_heads"]}
    if now["window"] is not None:
        change |= {name: now[name] for name in ("window", "sinks", "full_every")}
    if any(value is not None for value in change.values()):
        spec = what_if(spec, **change)
    context, policy = now["context"], now["policy"]
    if policy == "reserve":
        context, policy = max(context, now["reserve"] or longest or context), "exact"
    sequence = spec.nbytes(
        context,
        cache_dtype=now["cache_dtype"],
        policy=policy,
        tensor_parallel=now["tensor_parallel"],
        block_size=now["block_size"],
    )
    users = fit_users(
        sequence,
        memory,
        weights,
        str(now["utilization"]),
        now["tensor_parallel"],
        round(now["overhead_gb"] * 1e9),
    )
    return sequence, users


def _text(config: Mapping[str, Any]) -> str:
    """A config as JSON. Raises ValueError."""
    try:
        return json.dumps(dict(config))
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"config is not JSON: {error}.") from None


def _config(text: str) -> dict[str, Any]:
    """The JSON object in a text. Raises ValueError."""
    if len(text) > MAX_CONFIG:
        raise ValueError(f"config has {len(text)} characters; {MAX_CONFIG} are the most.")
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"config is not JSON: {error}.") from None
    if not isinstance(config, dict):
        raise ValueError("config is JSON, but not an object with keys and values.")
    return config
