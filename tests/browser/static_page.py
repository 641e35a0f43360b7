"""A page with explorers as the book publishes it, and a measure of its colours."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
from ipywidgets.embed import embed_data


def page_of(*widgets: Any, views: int = 1, broken: bool = False) -> str:
    """A page as myst-nb writes it: the state and the host in the head, a script where each view stands."""
    data = embed_data(views=list(widgets), drop_defaults=False)
    state = json.dumps(data["manager_state"]).replace("</script>", r"<\/script>")
    if broken:
        state = state.replace("export{", "exprot{")
    mime = "application/vnd.jupyter.widget-"
    specs = "".join(
        f'<section><script type="{mime}view+json">{json.dumps(spec)}</script></section>'
        for spec in data["view_specs"]
        for _ in range(views)
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>A page</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<script type="{mime}state+json">{state}</script>'
        '<script src="widget-host.js" defer></script></head>'
        f"<body><main><h1>A page</h1>{specs}</main></body></html>"
    )


def luminance(colour: str) -> float:
    c = np.array([int(v) for v in re.findall(r"\d+", colour)[:3]]) / 255
    linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])
