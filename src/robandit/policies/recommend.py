"""Which policy to use when neither the corruption nor the attack is known, by the evidence of the arena."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

from robandit.inputs import integer, not_negative, positive
from robandit.policies import POLICIES, Policy

QUIET = 0.2
"""Noise as a share of R up to which the arena's worlds of little noise are the nearest."""


@dataclass(frozen=True)
class Recommendation:
    """A policy, its settings, and why."""

    policy: type[Policy]
    settings: dict[str, Any]
    reason: str

    def make(self, **more: Any) -> Policy:
        """The policy, made; ``more`` are settings of yours, such as a seed."""
        return self.policy(**{**self.settings, **more})


def recommend(
    *, dim: int, horizon: int, noise_range: float, sigma: float | None = None, fixed_sets: bool = False
) -> Recommendation:
    """The policy that the arena's evidence puts first for a problem like yours, with the reason in words.

    ``sigma`` is the usual standard deviation of a reward, left out if it is not known; ``fixed_sets`` says that the
    same actions come back every round. The evidence is from d = 5 and 20 and 2000 rounds: measured, not proved.

    >>> choice = recommend(dim=5, horizon=10_000, noise_range=0.5, sigma=0.05)
    >>> policy = choice.make(seed=7)
    >>> choice.reason.startswith("Of the policies that are not told the corruption, ")
    True
    """
    settings: dict[str, Any] = {"dim": integer("dim", dim, 1), "horizon": integer("horizon", horizon, 1)}
    settings["noise_range"] = positive("noise_range", noise_range)
    world = _nearest(None if sigma is None else not_negative("sigma", sigma) / noise_range, fixed_sets)
    first, second = [row for row in evidence()["worlds"][world] if not row["told"]][:2]
    kind = POLICIES[first["settings"]["name"]]
    known = {item.name for item in fields(kind)}
    chosen = {name: value for name, value in first["settings"].items() if name != "name"}
    needed = {name: value for name, value in settings.items() if name in known}
    return Recommendation(kind, needed | chosen, _why(world, first, second))


def _nearest(noise: float | None, fixed_sets: bool) -> str:
    """The world of the arena that is most like the problem."""
    if noise is None or noise > QUIET:
        return "varying noise"
    return "fixed after 100 rounds" if fixed_sets else "fresh sets"


def _why(world: str, first: dict[str, Any], second: dict[str, Any]) -> str:
    return (
        f"Of the policies that are not told the corruption, {first['label']} lost least under attack in the arena's "
        f"world “{world}”, the nearest to yours: over {evidence()['attacks']} attacks at two levels, in geometric mean "
        f"{first['attacked'][0]:.2f} times what OFUL loses when nobody lies; at worst {first['worst'][0]:.1f} times "
        f"({first['where']}), and {first['price'][0]:.2f} times when nobody attacks. Next came {second['label']} with "
        f"{second['attacked'][0]:.2f}, {second['worst'][0]:.1f} and {second['price'][0]:.2f}."
    )


@cache
def evidence() -> dict[str, Any]:
    """The scores of the arena, the best first in each world; `robandit arena race` makes them again."""
    found: dict[str, Any] = json.loads(files("robandit.policies").joinpath("evidence.json").read_text(encoding="utf-8"))
    return found
