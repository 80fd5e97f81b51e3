"""A scenario: a shop, its sources of traffic, who lies, how and when. And how random scenarios are drawn."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from itertools import count
from typing import Any

import numpy as np

NOBODY = "nobody"
"""The lie of a scenario in which all are honest."""
NOISE_RANGE = 0.5
"""The R that policies are told. Clicks are ½-sub-Gaussian, and continuous noise is cut there."""
_SETS = ("fresh", "alternating", "fixed")


@dataclass(frozen=True, kw_only=True)
class FraudScenario:
    """All that a simulation needs beside the number of trials. Plain data, so that it has a digest."""

    number: int
    """The seed of its draws."""
    dim: int
    actions: int
    rounds: int
    sets: str
    """`fresh` sets in every round, two `alternating` ones, or one `fixed` set."""
    clicks: bool
    """Whether rewards are 0 or 1. If not, they have Gaussian noise."""
    low: float
    """Lowest click rate of a shop's products; not used for continuous rewards."""
    high: float
    """Highest click rate; for continuous rewards the norm of μ*."""
    sigma: float
    """Standard deviation of the noise; for clicks that of the highest rate."""
    told: float | None
    """The σ that policies are told; None for nothing, which they read as `NOISE_RANGE`."""
    shares: tuple[float, ...]
    """Share of each source in the traffic. Without sources there is one."""
    liars: tuple[int, ...]
    """The sources that belong to the fraudster. Without sources none does, and ``bots`` lie."""
    bots: float
    """Share of the rounds with a bot, where there are no sources."""
    zeta: float
    """The most by which the mean of an honest source differs from that of all."""
    lie: str
    """What liars report, by its name."""
    habit: str
    """When they lie, by its name."""

    @property
    def has_sources(self) -> bool:
        return len(self.shares) > 1

    @property
    def kind(self) -> str:
        """The lie and its habit in words."""
        return self.lie if self.lie == NOBODY else f"{self.lie}, {self.habit}"

    @property
    def told_kind(self) -> str:
        """Whether the σ told is `right`, `wrong` or `none`."""
        return "none" if self.told is None else "right" if self.told == self.sigma else "wrong"


def draw_scenarios(
    *,
    seed: int,
    with_sources: Sequence[tuple[str, str]],
    without: Sequence[tuple[str, str]],
    worlds: int,
    clean: int,
    sizes: Mapping[str, Sequence[int]],
) -> list[FraudScenario]:
    """For every pair of a lie and a habit this many random worlds, and some in which nobody lies.

    Rewards, sets and what is told of σ take turns, so that every kind of lie meets clicks and continuous rewards.
    """
    rng, numbers = np.random.default_rng(seed), count(seed * 1000)
    found: list[FraudScenario] = []
    for sourced, kinds in ((True, with_sources), (False, without)):
        plan = [kind for kind in kinds for _ in range(worlds)] + [(NOBODY, "never")] * clean
        turns = _turns(rng)
        for lie, habit in plan:
            clicks, sets, told = next(turns)
            shop = _draw_shop(rng, clicks, told, sizes)
            traffic = _draw_traffic(rng, lie == NOBODY) if sourced else _draw_bots(rng, lie == NOBODY)
            found.append(FraudScenario(number=next(numbers), sets=sets, lie=lie, habit=habit, **shop, **traffic))
    return found


def _turns(rng: np.random.Generator) -> Iterator[tuple[bool, str, str]]:
    """Clicks and continuous rewards by turns; all pairs of sets and σ told within nine turns, in random order."""
    pairs = [(sets, told) for sets in _SETS for told in ("right", "wrong", "none")]
    for turn in count():
        if turn % len(pairs) == 0:
            order = rng.permutation(len(pairs))
        yield turn % 2 == 0, *pairs[order[turn % len(pairs)]]


def _draw_shop(rng: np.random.Generator, clicks: bool, told: str, sizes: Mapping[str, Sequence[int]]) -> dict[str, Any]:
    shop = {name: int(rng.choice(sizes[name])) for name in ("dim", "actions", "rounds")}
    if clicks:
        low = _two_digits(rng.uniform(0.02, 0.15))
        high = _two_digits(low + rng.uniform(0.10, 0.25))
        sigma, factors = float(np.sqrt(high * (1.0 - high))), (0.5, 2.0)
    else:
        low, high = 0.0, _two_digits(rng.uniform(0.2, 1.0))
        sigma, factors = float(rng.choice([0.03, 0.1, 0.2])), (1 / 3, 3.0)
    wrong = min(float(rng.choice(factors)) * sigma, NOISE_RANGE)
    said = {"right": sigma, "wrong": wrong, "none": None}[told]
    return {**shop, "clicks": clicks, "low": low, "high": high, "sigma": sigma, "told": said}


def _draw_traffic(rng: np.random.Generator, clean: bool) -> dict[str, Any]:
    """From 3 to 20 sources, as large as each other or not, of which some with 10 to 45 % of the traffic lie."""
    while True:
        number, skew = int(rng.integers(3, 21)), float(rng.choice([0.0, 0.0, 0.7, 1.2]))
        shares = np.arange(1, number + 1) ** -skew
        shares /= shares.sum()
        order = rng.permutation(number)
        chosen = order[shares[order].cumsum() <= rng.uniform(0.10, 0.45)]
        if shares[chosen].sum() >= 0.10:
            break
    zeta = float(rng.choice([0.0, 0.0, 0.02, 0.05]))
    liars = () if clean else tuple(sorted(chosen.tolist()))
    return {"shares": tuple(np.round(shares, 6).tolist()), "liars": liars, "bots": 0.0, "zeta": zeta}


def _draw_bots(rng: np.random.Generator, clean: bool) -> dict[str, Any]:
    bots = 0.0 if clean else _two_digits(rng.uniform(0.10, 0.40))
    return {"shares": (1.0,), "liars": (), "bots": bots, "zeta": 0.0}


def _two_digits(value: float) -> float:
    return round(float(value), 2)


def digest_of(scenarios: Sequence[FraudScenario]) -> str:
    """The SHA-256 of a table of scenarios."""
    return sha256(json.dumps([asdict(scenario) for scenario in scenarios]).encode()).hexdigest()
