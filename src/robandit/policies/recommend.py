"""The policy for when neither the corruption nor the attack is known, and how it did in problems like yours."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import Any

from robandit.errors import Configured
from robandit.features import Features
from robandit.inputs import boolean, integer, not_negative, positive
from robandit.policies import Policy, Quorum
from robandit.policies.history import read_history
from robandit.rewards import Rewards

_QUIET = 0.2  # noise as a share of R up to which the arena's worlds of little noise are the nearest


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

    def __post_init__(self) -> None:
        integer("dim", self.dim, 1)
        boolean("fixed_sets", self.fixed_sets)
        readers: dict[str, Callable[[str, Any], Any]] = {
            "noise_range": positive,
            "sigma": not_negative,
            "sources": partial(integer, least=0),
            "parameter_bound": positive,
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
    def settings(self) -> dict[str, Any]:
        """What the policy is told."""
        known: dict[str, Any] = {"dim": self.dim}
        known |= {"noise_range": self.noise_range} if self.rewards is None else self.rewards.for_policy()
        if self.parameter_bound is not None:
            known["parameter_bound"] = self.parameter_bound
        if self.sources is not None:
            known["max_sources"] = max(self.sources, Quorum.max_sources)
        return known

    @property
    def nearest_world(self) -> str:
        """The world of the arena that is most like it."""
        noisy, sources = self._is_noisy(), (self.sources or 0) > 1
        if noisy and self.rewards is not None:  # as clicks are
            return "clicks from ten sources" if sources else "clicks on one set" if self.fixed_sets else "clicks"
        if sources:
            return "noise from ten sources"
        return "varying noise" if noisy else "fixed after 100 rounds" if self.fixed_sets else "fresh sets"

    def _is_noisy(self) -> bool:
        """Whether the standard deviation is more than a little share of R, or of half the range; so if not known."""
        unit = self.rewards.width / 2.0 if self.noise_range is None else self.noise_range
        return self.sigma is None or self.sigma > _QUIET * unit


def recommend(
    *,
    history: Any = None,
    reward: str | None = None,
    features: Features | None = None,
    source: str | None = None,
    **known: Any,
) -> Recommendation:
    """Quorum with the settings that suit your problem, and how it did in the nearest of the arena's worlds.

    Say what is known: ``dim``, what ``rewards`` can be or else their ``noise_range``, and whatever else a `Situation`
    has. Or pass a ``history`` with a row for each ``reward``, which says most of it. All of it is measured, not proved.

    >>> choice = recommend(dim=5, rewards="clicks", sources=4)
    >>> choice.policy.__name__
    'Quorum'
    >>> policy = choice.make(seed=7)
    """
    if history is not None:
        columns = {"reward": reward, "source": source}
        told = read_history(history, features=features, rewards=known.get("rewards"), **columns)
        known = told | {name: value for name, value in known.items() if value is not None}
    found = Situation(**known)
    return Recommendation(Quorum, found.settings, _why(found))


def _why(problem: Situation) -> str:
    """How Quorum did in the nearest world, which policy was next or first there, and what to do better."""
    world = problem.nearest_world
    rows = [row for row in evidence()["worlds"][world] if not row["told"]]
    ours = next(row for row in rows if row["settings"]["name"] == "quorum")
    rank = rows.index(ours) + 1
    rival = rows[1 if rank == 1 else 0]
    found = (
        f"Quorum believes what most of the traffic agrees on. In the arena's world “{world}”, the nearest to yours, "
        f"its regret under attack is in geometric mean {ours['attacked'][0]:.2f} times that of OFUL when nobody lies; "
        f"at worst {ours['worst'][0]:.1f} times ({ours['where']}), and {ours['price'][0]:.2f} times when nobody lies. "
        f"It is number {rank} of {len(rows)} policies that are told nothing; "
        f"{'next comes' if rank == 1 else 'the first is'} {rival['label']} with {rival['attacked'][0]:.2f}, "
        f"{rival['worst'][0]:.1f} and {rival['price'][0]:.2f}."
    )
    advice = (
        " Say where each visitor comes from if you know it (source=): from three sources on, one that lies is outvoted."
    )
    return found + (advice if problem.sources is None else "")


@cache
def evidence() -> dict[str, Any]:
    """The scores of the arena, the best first in each world; `robandit arena race` makes them again."""
    found: dict[str, Any] = json.loads(files("robandit.policies").joinpath("evidence.json").read_text(encoding="utf-8"))
    return found
