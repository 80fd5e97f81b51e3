"""What knowing the variance buys, where σ_t lies on both sides of the floor that the policies weigh by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from robandit.experiments.tune import final_regret, grid_config, interval, label

if TYPE_CHECKING:
    from pyarrow import Table

POLICIES: Mapping[str, Mapping[str, Any]] = {
    "Weighted OFUL": {"name": "weighted-oful"},
    "Multi-level weighted OFUL": {"name": "multi-level-weighted-oful"},
}
TOLD, HIDDEN = "told σ", "told R"
"""The same world twice: policies are told σ_t, or that it is R."""
GRID = tuple(2.0**-j for j in range(4, 11))

# σ_t is log-uniform from 0.05 to R = 0.5, the noise ±σ_t, d = 20. The floor is R/√d = 0.11 for Weighted OFUL and
# (R+1)/√d = 0.34 for Multi-level: weights differ by up to 20 and up to 2.2.
_WORLDS = [
    {"name": "heteroscedastic", "fresh_rounds": 0, "hide_sigma": hidden, "label": name}
    for name, hidden in ((TOLD, False), (HIDDEN, True))
]

Scales = Mapping[str, Mapping[str, float]]
"""By what policies are told, and by policy."""


def tuning_config(**numbers: Any) -> dict[str, Any]:
    """Every scale in both worlds."""
    return grid_config({**numbers, "checkpoints": 2, "environments": _WORLDS}, POLICIES, dict.fromkeys(POLICIES, GRID))


def choose(table: Table) -> Scales:
    """The best scale of each policy in each world."""
    regret = final_regret(table)
    return {
        world: {policy: min(GRID, key=lambda scale: regret[label(policy, scale)][place].mean()) for policy in POLICIES}
        for place, world in enumerate((TOLD, HIDDEN))
    }


def config(scales: Scales, **numbers: Any) -> dict[str, Any]:
    """Every policy in both worlds, at the best scale of either."""
    entries = [
        {**settings, "label": label(policy, scale), "radius_scale": scale}
        for policy, settings in POLICIES.items()
        for scale in sorted({scales[TOLD][policy], scales[HIDDEN][policy]})
    ]
    return {**numbers, "checkpoints": 2, "environments": _WORLDS, "policies": entries}


def rows(table: Table, scales: Scales) -> tuple[list[str], list[list[str]]]:
    """The regret of each policy when told σ and when told R, each at its own scale, paired over trials."""
    regret = final_regret(table)
    found = []
    for policy in POLICIES:
        told, hidden = (regret[label(policy, scales[w][policy])][i] for i, w in enumerate((TOLD, HIDDEN)))
        mean, half = interval(told - hidden)
        cells = [f"{each.mean():.0f} ± {interval(each)[1]:.0f}" for each in (told, hidden)]
        chosen = [f"{scales[world][policy]:.3g}" for world in (TOLD, HIDDEN)]
        change = f"{np.mean(told) / np.mean(hidden) - 1.0:+.0%}"
        found.append([policy, chosen[0], cells[0], chosen[1], cells[1], f"{mean:.0f} ± {half:.0f}", change])
    header = ["policy", "scale", "regret, told σ_t", "scale", "regret, told R", "difference, paired", "that is"]
    return header, found
