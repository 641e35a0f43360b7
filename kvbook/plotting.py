"""The one matplotlib style of the book, in the colours that the explorers use too.

Figures are stored as images, so they always take the light palette, on its own surface.
"""

from __future__ import annotations

import json
from pathlib import Path

import matplotlib.pyplot as plt

PALETTE: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parent / "palette.json").read_text()
)


def colour(role: str) -> str:
    """The hex colour of a role: weights, cache, free, key, value, query, shared, evicted, text, ...

    Raises ValueError for a role that the palette does not have.
    """
    if role not in PALETTE["light"]:
        raise ValueError(
            f"There is no colour for {role!r}; there is {', '.join(PALETTE['light'])}."
        )
    return PALETTE["light"][role]


def use_style() -> None:
    """Make matplotlib draw in the book's style, from here on."""
    plt.rcdefaults()
    plt.rcParams.update(
        {
            "figure.figsize": (7, 3.6),
            "figure.dpi": 100,
            "figure.constrained_layout.use": True,
            "figure.facecolor": colour("surface"),
            "savefig.facecolor": colour("surface"),
            "axes.facecolor": colour("surface"),
            "axes.edgecolor": colour("muted"),
            "axes.labelcolor": colour("text"),
            "axes.titlecolor": colour("text"),
            "axes.titlelocation": "left",
            "axes.titlesize": 12,
            "axes.titleweight": "bold",
            "axes.titlepad": 12,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.grid.axis": "y",
            "axes.axisbelow": True,
            "axes.prop_cycle": plt.cycler(
                color=[colour(role) for role in ("cache", "weights", "free", "shared", "evicted")]
            ),
            "grid.color": colour("grid"),
            "grid.linewidth": 0.8,
            "xtick.color": colour("muted"),
            "ytick.color": colour("muted"),
            "xtick.labelcolor": colour("text"),
            "ytick.labelcolor": colour("text"),
            "text.color": colour("text"),
            "font.size": 10,
            "lines.linewidth": 2,
            "lines.solid_capstyle": "round",
            "legend.frameon": False,
        }
    )
