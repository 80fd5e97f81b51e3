"""What the sceptic's insurance costs without attack, and what it gains against lies that never contradict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from robandit.experiments.arena.race import cells
from robandit.experiments.arena.worlds import CLEAN
from robandit.experiments.intervals import interval
from robandit.figures.numbers import mean_half

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyarrow import Table

INSURANCE = (0.0, 0.1, 0.25, 0.5, 1.0)
ATTACKS: Mapping[str, Mapping[str, Any]] = {
    CLEAN: {"name": "none"},
    "flips in the first 8 rounds": {"name": "flip", "rounds": 8},
    "first impressions": {"name": "first-impressions", "budget": 25.0},
    "suppress the best": {"name": "suppress-best", "budget": 25.0, "margin": 0.08},
    "top three": {"name": "top-n", "budget": 25.0},
}
"""The attacks by label. Decision sets stay the same after 8 rounds, so a good action that early lies made look bad is
not tried again by chance."""


def label(insurance: float) -> str:
    return f"insurance {insurance:g}"


def config(**numbers: Any) -> dict[str, Any]:
    """The settings of the run: the sceptic with more and more insurance, under each attack."""
    return {
        **numbers,
        "checkpoints": 2,
        "environments": [{"name": "paper", "fresh_rounds": 8, "parameter": "random"}],
        "attacks": [{**settings, "label": name} for name, settings in ATTACKS.items()],
        "policies": [{"name": "sceptic", "insurance": one, "label": label(one)} for one in INSURANCE],
    }


def rows(table: Table) -> tuple[list[str], list[list[str]]]:
    """The regret at the end, a row for each insurance and a column for each attack."""
    found = cells(table)
    regret = {case.attack: policies for case, policies in found.items()}
    body = []
    for insurance in INSURANCE:
        pairs = [interval(regret[attack][label(insurance)].regret) for attack in ATTACKS]
        body.append([f"{insurance:g}", *(mean_half(*pair) for pair in pairs)])
    return ["insurance", *(attack if attack != CLEAN else "no attack" for attack in ATTACKS)], body


def picture(table: Table) -> Figure:
    """Regret under each attack against the regret without attack, from no insurance to full insurance."""
    from robandit.figures.pictures import FONT, log_panels, style

    regret = {case.attack: policies for case, policies in cells(table).items()}
    means = {
        attack: np.array([policies[label(one)].regret.mean() for one in INSURANCE])
        for attack, policies in regret.items()
    }
    figure, (axes,) = log_panels([""], [("regret without attack", "regret under attack")], height=3.8)
    for number, attack in enumerate(name for name in ATTACKS if name != CLEAN):
        axes.plot(means[CLEAN], means[attack], **style(number), label=attack)
    axes.set(xscale="linear", xlim=(0.0, None))
    for one, x in zip(INSURANCE, means[CLEAN], strict=True):
        words: dict[str, Any] = {"rotation": 90, "ha": "center", "va": "bottom", "fontsize": FONT}
        axes.annotate(f"{one:g}", (x, 1.02), xycoords=axes.get_xaxis_transform(), **words)
    axes.set_title("insurance:", loc="left", fontsize=FONT)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=FONT)
    return figure
