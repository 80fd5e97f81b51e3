"""Which policy to use when neither the corruption nor the attack is known, by what was measured."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cache, partial
from importlib.resources import files
from typing import Any

from robandit.errors import Configured
from robandit.features import Features
from robandit.inputs import boolean, integer, not_negative, positive
from robandit.policies import CWOFUL, POLICIES, Policy, Quorum
from robandit.policies.history import read_history
from robandit.rewards import Rewards

QUIET = 0.2
"""Noise as a share of R up to which the arena's worlds of little noise are the nearest."""
THRESHOLD, RADIUS = 0.1, 0.5
"""α and the radius of CW-OFUL for clicks. benchmarks/clicks.py shows what becomes of others."""
VOTERS = 3
"""The least number of sources of which one can be outvoted."""
RIDGE = 2.0
"""λ for clicks, in units of the squared length of the vectors that usually come."""


@dataclass(frozen=True)
class Recommendation:
    """A policy, its settings, and why."""

    policy: type[Policy]
    settings: dict[str, Any]
    reason: str

    def make(self, **more: Any) -> Policy:
        """The policy, made; ``more`` are settings of yours, such as a seed."""
        return self.policy(**{**self.settings, **more})


@dataclass(frozen=True, kw_only=True)
class Situation(Configured):
    """What is known of a problem, as `recommend` takes it."""

    dim: int
    """The number of features."""
    horizon: int
    """Roughly how many decisions are to come."""
    rewards: Any = None
    """What a reward can be: "clicks", (lowest, highest) or `Rewards`. The policy is then for shares of the range."""
    noise_range: float | None = None
    """How far a reward may be from its mean, where no ``rewards`` are declared and the policy sees them as they are."""
    sigma: float | None = None
    """The usual standard deviation of a reward."""
    fixed_sets: bool = False
    """Whether the same actions come back every round."""
    sources: int | None = None
    """How many sources of traffic there are, if the policy will be told the source of each decision."""
    parameter_bound: float | None = None
    """The largest norm of the unknown parameter."""
    typical_norm: float | None = None
    """How long the vectors of actions usually are; 0.7 if nobody says."""

    def __post_init__(self) -> None:
        integer("dim", self.dim, 1)
        integer("horizon", self.horizon, 1)
        boolean("fixed_sets", self.fixed_sets)
        readers: dict[str, Callable[[str, Any], Any]] = {
            "noise_range": positive,
            "sigma": not_negative,
            "sources": partial(integer, least=0),
            "parameter_bound": positive,
            "typical_norm": positive,
            "rewards": lambda _, given: Rewards.read(given),
        }
        for name, read in readers.items():
            if getattr(self, name) is not None:
                object.__setattr__(self, name, read(name, getattr(self, name)))
        if self.rewards is None and self.noise_range is None:
            raise ValueError("say what rewards can be: rewards='clicks', rewards=(lowest, highest), or noise_range=…")
        if self.rewards is not None and self.noise_range is not None:
            raise ValueError(f"noise_range follows from rewards: leave out noise_range={self.noise_range!r}")

    @property
    def noise(self) -> float | None:
        """The usual standard deviation as a share of R, or of half the range; None if it is not known."""
        if self.sigma is None:
            return None
        return self.sigma / (self.rewards.width / 2.0 if self.noise_range is None else self.noise_range)

    @property
    def settings(self) -> dict[str, Any]:
        """What every policy for it is told."""
        known: dict[str, Any] = {"dim": self.dim, "horizon": self.horizon}
        known |= {"noise_range": self.noise_range} if self.rewards is None else self.rewards.for_policy()
        return known if self.parameter_bound is None else known | {"parameter_bound": self.parameter_bound}


def recommend(
    *,
    history: Any = None,
    reward: str | None = None,
    features: Features | None = None,
    source: str | None = None,
    **known: Any,
) -> Recommendation:
    """The policy that did best in problems like yours, with the reason in words: measured, not proved.

    Say what is known: ``dim`` and ``horizon``, what ``rewards`` can be or else their ``noise_range``, and whatever else
    a `Situation` has. Or pass a ``history`` with a row for each ``reward``, which says most of it. With three sources
    or more the answer goes by benchmarks/fraud.py, for clicks by benchmarks/clicks.py, and else by the arena.

    >>> recommend(dim=5, horizon=10_000, rewards="clicks").policy.__name__
    'CWOFUL'
    >>> choice = recommend(dim=5, horizon=10_000, noise_range=0.5, sigma=0.05)
    >>> policy = choice.make(seed=7)
    >>> recommend(dim=5, horizon=10_000, rewards="clicks", sources=4).policy.__name__
    'Quorum'
    """
    if history is not None:
        columns = {"reward": reward, "source": source}
        told = read_history(history, features=features, rewards=known.get("rewards"), **columns)
        known = told | {name: value for name, value in known.items() if value is not None}
    found = Situation(**known)
    if found.sources is not None and found.sources >= VOTERS:
        return _for_sources(found)
    noisy = found.noise is None or found.noise > QUIET
    return _for_clicks(found) if found.rewards is not None and noisy else _by_the_arena(found)


def _for_clicks(problem: Situation) -> Recommendation:
    """CW-OFUL with a practical radius, for rewards whose noise is as large as that of clicks may be."""
    chosen: dict[str, Any] = {"corruption": None, "threshold": THRESHOLD, "radius": RADIUS}
    if problem.typical_norm is not None:
        chosen["regularization"] = RIDGE * problem.typical_norm**2
    reason = (
        f"CW-OFUL with α = {THRESHOLD:g} and radius {RADIUS:g} is for rewards as noisy as clicks. In 18 worlds of "
        "clicks that nobody tampered with it lost about as much as the best of OFUL, CW-OFUL and Greedy at the scales "
        "that suit each world best, and it withstood lies better than with a larger α (benchmarks/clicks.py)."
    )
    return Recommendation(CWOFUL, problem.settings | chosen, reason)


def _for_sources(problem: Situation) -> Recommendation:
    """Quorum, whose sources vote."""
    reason = (
        f"Quorum believes what most of the traffic agrees on, and {problem.sources} sources can outvote one of them. "
        "In worlds of fraud by sources it lost less than policies that don't tell them apart, and about as much where "
        "nobody lied. Its constants were chosen in those worlds (docs/quorum.md)."
    )
    return Recommendation(Quorum, _known_to(Quorum, problem), reason)


def _by_the_arena(problem: Situation) -> Recommendation:
    world = _nearest(problem.noise, problem.fixed_sets)
    first, second = [row for row in evidence()["worlds"][world] if not row["told"]][:2]
    kind = POLICIES[first["settings"]["name"]]
    chosen = {name: value for name, value in first["settings"].items() if name != "name"}
    return Recommendation(kind, _known_to(kind, problem) | chosen, _why(world, first, second))


def _known_to(kind: type[Policy], problem: Situation) -> dict[str, Any]:
    """What a kind of policy can be told of the problem."""
    known = {item.name for item in fields(kind)}
    return {name: value for name, value in problem.settings.items() if name in known}


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
