"""What knowing the variance gains where σ_t lies on both sides of the floor of the weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from robandit.experiments.intervals import interval
from robandit.experiments.tune import final_regret, grid_config, label
from robandit.figures.numbers import mean_half

if TYPE_CHECKING:
    from pyarrow import Table

POLICIES: Mapping[str, Mapping[str, Any]] = {
    "Weighted OFUL": {"name": "weighted-oful"},
    "Multi-level weighted OFUL": {"name": "multi-level-weighted-oful"},
}
TOLD, HIDDEN = "told σ", "told R"
"""The two versions of the same world: policies are told σ_t, or only R."""
GRID = tuple(2.0**-j for j in range(4, 11))
"""The radius scales to try."""

# σ_t is log-uniform from 0.05 to R = 0.5, the noise ±σ_t, d = 20. The floor is R/√d = 0.11 for Weighted OFUL and
# (R+1)/√d = 0.34 for Multi-level, so weights differ by factors of up to 20 and 2.2.
_WORLDS = [
    {"name": "heteroscedastic", "fresh_rounds": 0, "hide_sigma": hidden, "label": name}
    for name, hidden in ((TOLD, False), (HIDDEN, True))
]

Scales = Mapping[str, Mapping[str, float]]
"""The radius scale of each policy in each version of the world."""


def tuning_config(**numbers: Any) -> dict[str, Any]:
    """The settings of the tuning run: every scale in both worlds."""
    return grid_config({**numbers, "checkpoints": 2, "environments": _WORLDS}, POLICIES, dict.fromkeys(POLICIES, GRID))


def choose(table: Table) -> Scales:
    """The best scale of each policy in each world."""
    regret = final_regret(table)
    return {
        world: {policy: min(GRID, key=lambda scale: regret[label(policy, scale)][place].mean()) for policy in POLICIES}
        for place, world in enumerate((TOLD, HIDDEN))
    }


def config(scales: Scales, **numbers: Any) -> dict[str, Any]:
    """The settings of the evaluation: every policy in both worlds, at the best scale of each world."""
    entries = [
        {**settings, "label": label(policy, scale), "radius_scale": scale}
        for policy, settings in POLICIES.items()
        for scale in sorted({scales[TOLD][policy], scales[HIDDEN][policy]})
    ]
    return {**numbers, "checkpoints": 2, "environments": _WORLDS, "policies": entries}


def rows(table: Table, scales: Scales) -> tuple[list[str], list[list[str]]]:
    """The header and rows of a table of the regrets when told σ and when told R, each at its own scale."""
    regret = final_regret(table)
    found = []
    for policy in POLICIES:
        told, hidden = (regret[label(policy, scales[w][policy])][i] for i, w in enumerate((TOLD, HIDDEN)))
        cells = [mean_half(*interval(each)) for each in (told, hidden)]
        chosen = [f"{scales[world][policy]:.3g}" for world in (TOLD, HIDDEN)]
        change = f"{np.mean(told) / np.mean(hidden) - 1.0:+.0%}"
        found.append([policy, chosen[0], cells[0], chosen[1], cells[1], mean_half(*interval(told - hidden)), change])
    header = ["policy", "scale", "regret, told σ_t", "scale", "regret, told R", "difference, paired", "that is"]
    return header, found
