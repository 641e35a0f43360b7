"""The palette can be read: contrast by WCAG 2, and colours drawn together stay apart for every eye.

Colour-vision deficiency is simulated at full severity with the matrices of Machado, Oliveira and
Fernandes, "A Physiologically-based Model for Simulation of Color Vision Deficiency", IEEE TVCG 15(6),
2009, on linear RGB. Distance is Euclidean in OKLab (Ottosson, 2020), where black to white is 1.
"""

from __future__ import annotations

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pytest

from kvbook.plotting import PALETTE, colour, use_style

MARKS = ("weights", "cache", "free", "key", "value", "query", "shared", "evicted")
TEXTS = ("text", "muted", "accent", "query", "key")  # the explorers also write in the last two
TOGETHER = (("weights", "cache", "free"), ("key", "value", "query"), ("shared", "evicted", "cache"))

EYES = {
    "typical": np.eye(3),
    "protanopia": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "deuteranopia": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "tritanopia": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
    "greyscale": np.array([[0.2126, 0.7152, 0.0722]] * 3),
}
FLOOR = dict.fromkeys(EYES, 0.1) | {"greyscale": 0.07}  # grey has one dimension, not three

LINEAR_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
CONES_TO_OKLAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


def linear(hex_colour: str) -> np.ndarray:
    """sRGB as #rrggbb -> linear RGB, [3] in 0..1."""
    c = np.array([int(hex_colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def contrast(a: str, b: str) -> float:
    """WCAG 2 contrast ratio of two colours, 1..21."""
    low, high = sorted(float(EYES["greyscale"][0] @ linear(c)) for c in (a, b))
    return (high + 0.05) / (low + 0.05)


def oklab(hex_colour: str, eye: str) -> np.ndarray:
    seen = np.clip(EYES[eye] @ linear(hex_colour), 0, 1)
    return CONES_TO_OKLAB @ np.cbrt(LINEAR_TO_CONES @ seen)


def test_the_formulas_against_known_values() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    assert oklab("#ffffff", "typical") == pytest.approx([1, 0, 0], abs=1e-3)
    assert oklab("#ff0000", "typical") == pytest.approx([0.628, 0.225, 0.126], abs=1e-3)
    for matrix in EYES.values():  # a deficiency leaves grey as it is
        assert matrix @ np.ones(3) == pytest.approx(np.ones(3), abs=1e-5)


def test_both_modes_name_the_same_roles() -> None:
    assert list(PALETTE["light"]) == list(PALETTE["dark"])
    assert set(MARKS) < set(PALETTE["light"])


@pytest.mark.parametrize("mode", PALETTE)
@pytest.mark.parametrize("ground", ["surface", "background"])
def test_text_is_legible(mode: str, ground: str) -> None:
    for role in TEXTS:
        ratio = contrast(PALETTE[mode][role], PALETTE[mode][ground])
        assert ratio >= 4.5, f"{role} on {ground}, {mode}: {ratio:.2f}"


@pytest.mark.parametrize("mode", PALETTE)
def test_marks_stand_out_from_the_surface(mode: str) -> None:
    for role in MARKS:
        ratio = contrast(PALETTE[mode][role], PALETTE[mode]["surface"])
        assert ratio >= 3, f"{role}, {mode}: {ratio:.2f}"


@pytest.mark.parametrize("mode", PALETTE)
@pytest.mark.parametrize("eye", EYES)
def test_marks_drawn_together_stay_apart(mode: str, eye: str) -> None:
    for a, b in (pair for roles in TOGETHER for pair in combinations(roles, 2)):
        distance = np.linalg.norm(oklab(PALETTE[mode][a], eye) - oklab(PALETTE[mode][b], eye))
        assert distance >= FLOOR[eye], f"{a} and {b}, {mode}: {distance:.3f}"


def test_the_style_draws_in_the_palette() -> None:
    with plt.rc_context():
        use_style()
        assert plt.rcParams["figure.facecolor"] == colour("surface")
        assert plt.rcParams["axes.titlelocation"] == "left"
        assert plt.rcParams["axes.prop_cycle"].by_key()["color"][0] == colour("cache")


def test_an_unknown_role_is_named() -> None:
    with pytest.raises(ValueError, match="no colour for 'wieghts'"):
        colour("wieghts")
