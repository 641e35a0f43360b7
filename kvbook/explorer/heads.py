"""An explorer for KV heads: what fewer of them, or one latent, save, and what a trained series shows.

The bytes and the users are computed in the page, from the tables that `kvbook.accounting` reads too,
so it needs no kernel. With one, the traits follow the reader's hand and `users` answers from Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from kvbook.accounting import CacheSpec, cache_spec, facts, fit_users, kv_head_choices, what_if
from kvbook.accounting.latent import WIDEST, with_latent
from kvbook.explorer.checks import choice, number, whole

KINDS = ("heads", "latent")
MAX_CONTEXT = 2**20
MAX_SERIES = 12
BYTES = 2  # a parameter, and a cached value


class HeadsExplorer(anywidget.AnyWidget):
    """Change a model's KV heads, or give it one latent, and see bytes, users and what was measured.

    series        the trained series: of each decoder {"n_kv_heads", "loss", "spread", "seeds"}: its
                  mean loss in nats, the standard deviation over seeds (of one seed none is
                  known: what is given is not shown), and how many seeds. Only
                  these points are drawn; they are of that decoder, not of `model`
    model         an id or a name of models.json whose layers all keep K and V alike, by heads
    gpu           a name of gpus.json
    context       tokens of each user
    kind          "heads": K and V by n_kv_heads heads; "latent": latent_width + rope_width values
    n_kv_heads    a divisor of the model's heads; None: a quarter of the published ones, about
    series_heads  query heads of the trained decoders, which each n_kv_heads of the series must
                  divide; None: the most n_kv_heads of the series
    link          whether the page's address follows the settings (the first explorer's only)

    Raises ValueError, one sentence, for a name that is not known or a number out of range.
    """

    _esm = Path(__file__).parent / "static/heads.js"
    _css = Path(__file__).parent / "static/heads.css"

    model = traitlets.Unicode().tag(sync=True)
    gpu = traitlets.Unicode().tag(sync=True)
    context = traitlets.Int().tag(sync=True)
    kind = traitlets.Unicode().tag(sync=True)
    n_kv_heads = traitlets.Int().tag(sync=True)
    latent_width = traitlets.Int().tag(sync=True)
    rope_width = traitlets.Int().tag(sync=True)
    series = traitlets.List(traitlets.Dict()).tag(sync=True)
    series_heads = traitlets.Int().tag(sync=True)  # 0 where there is no series
    link = traitlets.Bool().tag(sync=True)
    start = traitlets.Dict().tag(sync=True)  # where the reset button leads

    def __init__(
        self,
        series: Sequence[Mapping[str, Any]] = (),
        model: str = "llama-2-7b",
        gpu: str = "A100 80GB",
        context: int = 4096,
        *,
        kind: str = "heads",
        n_kv_heads: int | None = None,
        latent_width: int = 512,
        rope_width: int = 64,
        series_heads: int | None = None,
        link: bool = True,
    ) -> None:
        found = facts.model(model)
        spec = cache_spec(found.config)
        if not is_plain(spec):
            plain = ", ".join(m.id for m in facts.models() if is_plain(cache_spec(m.config)))
            raise ValueError(
                f"model is {model!r}, whose layers do not all keep K and V alike; use {plain}."
            )
        heads = n_kv_heads if n_kv_heads is not None else _few(spec)
        start = {
            "model": found.id,
            "gpu": facts.gpu(gpu).name,
            "context": whole("context", context, 1, MAX_CONTEXT),
            "kind": choice("kind", kind, KINDS),
            "n_kv_heads": choice("n_kv_heads", heads, kv_head_choices(spec)),
            "latent_width": whole("latent_width", latent_width, 1, WIDEST),
            "rope_width": whole("rope_width", rope_width, 1, WIDEST),
        }
        points = _points(series)
        most = max((point["n_kv_heads"] for point in points), default=0)
        if series_heads is not None:
            most = whole("series_heads", series_heads, max(1, most), 1024) or 0
        for n in (point["n_kv_heads"] for point in points):
            if most % n:
                raise ValueError(f"series has n_kv_heads {n}; it must divide {most} query heads.")
        super().__init__(
            **start, start=start, series=points, series_heads=most if points else 0, link=bool(link)
        )

    def __repr__(self) -> str:
        return f"HeadsExplorer({self.model} on {self.gpu}, {len(self.series)} measured)"

    @property
    def spec(self) -> CacheSpec:
        """What each layer keeps with the settings as they are now."""
        published = cache_spec(facts.model(self.model).config)
        if self.kind == "latent":
            return with_latent(published, self.latent_width, self.rope_width)
        return what_if(published, n_kv_heads=self.n_kv_heads)

    @property
    def token_nbytes(self) -> int:
        """Bytes of one token's cache over all layers, at 2 bytes a value."""
        return self.spec.bytes_per_token("float16")

    @property
    def users(self) -> int | None:
        """How many users fit on the GPU beside the model's weights, as published, at 16 bits."""
        sequence = self.spec.nbytes(self.context, cache_dtype="float16")
        weights = BYTES * facts.model(self.model).parameters
        return fit_users(sequence, facts.gpu(self.gpu).memory_bytes_nominal, weights)


def is_plain(spec: CacheSpec) -> bool:
    """Whether all layers keep K and V of the whole context, with the same heads of the same widths."""
    alike = len(set(spec.layers)) == 1 and spec.layers[0].kind == "full"
    return alike and spec.layers[0].window is None and bool(kv_head_choices(spec))


def _few(spec: CacheSpec) -> int:
    """The most KV heads that are no more than a quarter of the published ones; else one."""
    quarter = spec.layers[0].n_kv_heads / 4
    return max((n for n in kv_head_choices(spec) if n <= quarter), default=1)


def _points(series: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The trained series as plain numbers, by rising heads. Raises ValueError."""
    is_list = isinstance(series, Sequence) and all(isinstance(one, Mapping) for one in series)
    if not is_list:
        takes = "a list of mappings with n_kv_heads, loss, spread and seeds"
        raise ValueError(f"series is {series!r}; it must be {takes}.")
    if len(series) > MAX_SERIES:
        raise ValueError(f"series has {len(series)} points; {MAX_SERIES} are the most.")
    points = [
        {
            "n_kv_heads": whole("n_kv_heads", given.get("n_kv_heads"), 1, 1024),
            "loss": number("loss", given.get("loss"), 0, 1000),
            "spread": number("spread", given.get("spread"), 0, 1000),
            "seeds": whole("seeds", given.get("seeds"), 1, 10_000),
        }
        for given in series
    ]
    heads = [point["n_kv_heads"] for point in points]
    twice = next((n for n in heads if heads.count(n) > 1), None)
    if twice is not None:
        raise ValueError(f"series has n_kv_heads {twice} twice; each must be there once.")
    return sorted(points, key=lambda point: point["n_kv_heads"])
