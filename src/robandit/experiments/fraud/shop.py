"""The shop of a scenario: for every round of every trial its products, its visitor, and the luck of that visit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

import numpy as np

from robandit.arrays import Bools, Floats, Index, Ints, count_to
from robandit.experiments.fraud.scenario import NOISE_RANGE, FraudScenario
from robandit.streams import ENVIRONMENT, Draws

CATALOGUE = 500
"""The number of products from which fresh sets are drawn."""


@dataclass(eq=False)
class Visit:
    """A round as a fraudster sees it, once the policy has chosen. Arrays have one row for each of B trials."""

    shop: Shop
    round: int
    """The number of the round, from 0 on."""
    places: Index
    """The products on offer, (B, K)."""
    source: Ints
    """The source of the visitor, (B,)."""
    played: Index
    """The place of the action that was played, (B,)."""
    earlier: Floats
    """A true reward of an earlier round, (B,)."""

    @property
    def progress(self) -> float:
        """How much of the time is over."""
        return self.round / self.shop.scenario.rounds

    @cached_property
    def means(self) -> Floats:
        """The mean of every product on offer, (B, K)."""
        return self.shop.means[self.shop.rows[:, None], self.places]

    @cached_property
    def mean(self) -> Floats:
        """The mean of the product played, (B,)."""
        return self.means[self.shop.rows, self.played]

    @cached_property
    def action(self) -> Floats:
        """The features of the product played, (B, d)."""
        return self.shop.actions[self.shop.rows, self.places[self.shop.rows, self.played]]

    @property
    def rank(self) -> Ints:
        """How many products on offer are better than the one played, (B,)."""
        return (self.means > self.mean[:, None]).sum(axis=1)

    @property
    def chance(self) -> Floats:
        """A uniform number of the fraudster's own, (B,)."""
        return self.shop.chances.at(self.round)

    def spell(self, length: int) -> Floats:
        """A uniform number, (B,), that stays the same for so many rounds."""
        return self.shop.spells.at(self.round // length)

    def answer(self, mean: Floats) -> Floats:
        """The reward of a visitor who has this mean, (B,): a click or none, or the mean and noise."""
        return self.shop.answer(self.round, mean)

    def honest(self) -> Floats:
        """The reward of an honest visitor, (B,), who may differ a little from those of other sources."""
        return self.answer(self.mean + np.vecdot(self.action, self.shop.leans[self.shop.rows, self.source]))

    def extreme(self, praise: Bools) -> Floats:
        """The reward of one who praises or slanders without measure, (B,): clicks or never does, ±‖μ*‖ and noise."""
        high, low = (1.0, 0.0) if self.shop.scenario.clicks else (self.shop.scenario.high, -self.shop.scenario.high)
        return self.answer(np.where(praise, high, low))


class Shop:
    """The products of each trial and all that is random about its rounds. It is the same whoever plays in it."""

    def __init__(self, scenario: FraudScenario, trials: Sequence[int]) -> None:
        self.scenario, self.rows = scenario, count_to(len(trials))
        number = {"fresh": CATALOGUE, "alternating": 2, "fixed": 1}[scenario.sets]
        number *= 1 if scenario.sets == "fresh" else scenario.actions
        draw = Draws(seed=scenario.number, trials=trials, who=ENVIRONMENT)
        plain = 2.0 * draw.uniform(number, scenario.dim).at(0) - 1.0
        taste = draw.normal(scenario.dim).at(0)
        self.direction: Floats = draw.normal(scenario.dim).at(0)
        """A random direction of each trial for the fraudster's use, (B, d)."""
        lean = draw.normal(len(scenario.shares), scenario.dim).at(0)
        self._picks, self._visitors = draw.uniform(scenario.actions), draw.uniform()
        self._luck = draw.uniform() if scenario.clicks else draw.normal()
        self.chances, self.spells = draw.uniform(), draw.uniform()
        make = _clicked if scenario.clicks else _measured
        self.actions, self.means = make(scenario, plain, taste)
        self.leans: Floats = scenario.zeta * lean / np.linalg.norm(lean, axis=2, keepdims=True)
        """What is added to μ* for the visitors of each source, (B, G, d)."""
        self._ends = np.cumsum(scenario.shares)[:-1]

    @property
    def spread(self) -> Floats:
        """Half of what lies between the best and the worst product's mean, (B,)."""
        return np.ptp(self.means, axis=1) / 2.0

    def places(self, t: int) -> Index:
        """The products on offer, (B, K)."""
        if self.scenario.sets == "fresh":
            return (self._picks.at(t) * CATALOGUE).astype(np.intp)
        first = self.scenario.actions * (t % 2 if self.scenario.sets == "alternating" else 0)
        return np.broadcast_to(np.arange(first, first + self.scenario.actions), (len(self.rows), self.scenario.actions))

    def sources(self, t: int, open_: Floats | None = None) -> Ints:
        """The source of each visitor, (B,); ``open_`` are shares that hold instead of the scenario's."""
        ends = self._ends if open_ is None else np.cumsum(open_ / open_.sum())[:-1]
        return np.searchsorted(ends, self._visitors.at(t), side="right").astype(np.int64)

    def answer(self, t: int, mean: Floats) -> Floats:
        """The reward of visitors who have this mean, (B,)."""
        if self.scenario.clicks:
            return (self._luck.at(t) < mean).astype(float)
        return mean + np.clip(self.scenario.sigma * self._luck.at(t), -NOISE_RANGE, NOISE_RANGE)

    def draws(self, t: int) -> list[Floats]:
        """The random numbers of a round."""
        return [stream.at(t) for stream in (self._picks, self._visitors, self._luck, self.chances, self.spells)]


def _clicked(scenario: FraudScenario, plain: Floats, taste: Floats) -> tuple[Floats, Floats]:
    """Products with a constant feature first, whose click rates are linear and reach from the low to the high rate."""
    features = plain.copy()
    features[..., 0] = 1.0
    worth = np.matvec(plain[..., 1:], taste[:, 1:])
    least, most = worth.min(axis=1, keepdims=True), worth.max(axis=1, keepdims=True)
    rates = scenario.low + (scenario.high - scenario.low) * (worth - least) / (most - least)
    return features / scenario.dim**0.5, rates


def _measured(scenario: FraudScenario, plain: Floats, taste: Floats) -> tuple[Floats, Floats]:
    """Products with random features and a random μ* of the scenario's norm."""
    parameter = scenario.high * taste / np.linalg.norm(taste, axis=1, keepdims=True)
    actions = plain / scenario.dim**0.5
    return actions, np.matvec(actions, parameter)


def digest_of_draws(scenarios: Sequence[FraudScenario], rounds: int = 40) -> str:
    """The SHA-256 of the products' features and of the first rounds' draws, in two trials of each scenario."""
    digest = sha256()
    for scenario in scenarios:
        shop = Shop(scenario, range(2))
        for array in [shop.actions, shop.direction, *(one for t in range(rounds) for one in shop.draws(t))]:
            digest.update(np.ascontiguousarray(array, dtype="<f8").tobytes())
    return digest.hexdigest()
