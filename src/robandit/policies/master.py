"""What masters share: several bases that each learn from their own rounds, one of which is drawn to play."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.regions import Region, optimise
from robandit.geometry.ridge import Ridge
from robandit.inputs import integer, not_negative
from robandit.policies import radius
from robandit.policies.base import Search
from robandit.policies.confidence import Confident, Levelled, Weighted


@dataclass(kw_only=True, eq=False)
class Master(Levelled, Confident):
    """Draws one of M bases each round, which plays optimistically over its own ellipsoid. They are numbered from 1.

    What it learns of the bases is weighted by the probabilities at the time of learning: feedback should come promptly.
    """

    horizon: int
    """T, the number of rounds that the guarantee is for."""

    cost = 2.0

    def _start(self) -> None:
        super()._start()
        self.horizon = integer("horizon", self.horizon, least=1)
        self._reach = self.mean_bound + self.noise_range

    def _hire(self, bases: int) -> None:
        """Make the bases. Row (i − 1)·B + b is base i of trial b."""
        self._bases = bases
        self._base = Ridge(rows=bases * self._batch, dim=self.dim, regularization=self._lambda)
        self._counts: Ints = np.zeros(bases * self._batch, np.int64)  # what each has learnt from

    @property
    def bases(self) -> int:
        """M, how many bases there are."""
        return self._bases

    @property
    def levels(self) -> int:
        return self._bases

    @abstractmethod
    def _odds(self) -> Floats:
        """The probability of drawing each base, (B, M)."""

    @abstractmethod
    def _base_radii(self, base: Ints) -> Floats:
        """The radius of these bases, one for each trial, (B,)."""

    def probabilities(self) -> Floats:
        """The probability with which each base is drawn, (M,); in a batch (B, M)."""
        odds = self._odds()
        return odds[0] if self._single else odds

    def estimate(self) -> Ellipsoid:
        """That of the base that has learnt most."""
        most = self._counts.reshape(self._bases, self._batch).argmax(axis=0) + 1
        held = self._ellipsoid(most)
        return held[0] if self._single else held

    def _place(self, base: Ints) -> NDArray[np.intp]:
        return (base - 1) * self._batch + self._rows

    def _ellipsoid(self, base: Ints) -> Ellipsoid:
        return Ellipsoid.around(self._base, self._base_radii(base), self._place(base))

    def _draw_level(self, uniform: Floats) -> Ints:
        return draw(self._odds(), uniform)

    def _search(self, actions: Floats | Region, level: Ints) -> Search:
        return Search(optimise(actions, self._ellipsoid(level)), self._never, self._zeros)

    def _chances(self, actions: Floats, search: Search | None = None) -> Floats:
        odds, chances = self._odds(), np.zeros(actions.shape[:2])
        for base in range(1, self._bases + 1):
            chances += odds[:, base - 1 : base] * shares(actions, self._ellipsoid(np.full(self._batch, base)))
        return chances

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return self._base.arrays() | {"counts": self._counts}


@dataclass(kw_only=True, eq=False)
class RobustMaster(Weighted, Master):
    """A master over Robust weighted OFUL at the corruptions 0, 1, 2, 4, … up to 2T (the paper's section 7)."""

    base_corruptions: Sequence[float] | None = None
    """The corruption that each base is told, instead of those."""

    def _start(self) -> None:
        super()._start()
        told = self.base_corruptions
        if told is None:
            told = [0.0, *(2.0**i for i in range((2 * self.horizon - 1).bit_length() + 1))]
        self.base_corruptions = tuple(not_negative("base_corruptions", one) for one in told)
        if len(self.base_corruptions) < 2:
            raise ValueError(f"base_corruptions must be at least two, got {list(told)}")
        self._hire(len(self.base_corruptions))
        self._clean = radius.Table(partial(radius.alpha, self._setting, corruption=0.0), self.radius_scale)
        extra = radius.alpha(self._setting, 1, self.base_corruptions) - radius.alpha(self._setting, 1, 0.0)
        self._extra = self.radius_scale * extra  # α_t grows by the same for every unit of C (eq. eq:def:alpha)

    def _base_radii(self, base: Ints) -> Floats:
        return self._clean(self._counts[self._place(base)] + 1) + self._extra[base - 1]

    def _teach(self, actions: Floats, rewards: Floats, weights: Floats, base: Ints) -> None:
        """Let these bases learn from the round that they played."""
        place = self._place(base)
        self._base.update(actions, rewards, weights, place)
        self._counts[place] += weights > 0.0


def draw(chances: Floats, uniform: Floats) -> Ints:
    """One of the numbers 1 … M for each row of probabilities (B, M), from a uniform number each."""
    passed = (np.cumsum(chances, axis=1) <= uniform[:, None]).sum(axis=1)
    return np.minimum(passed, chances.shape[1] - 1) + 1


def gain(rewards: Floats, reach: float) -> Floats:
    """Rewards within ±reach as numbers from 0 to 1."""
    return np.clip(0.5 + 0.5 * rewards / reach, 0.0, 1.0)


def softmax(logits: Floats) -> Floats:
    """exp(x)/Σ exp(x) along the rows."""
    odds = np.exp(logits - logits.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def shares(actions: Floats, confidence: Ellipsoid) -> Floats:
    """The probability (B, K) of each action: 1 for the optimistic one, divided between those that tie."""
    maximisers = optimise(actions, confidence).maximisers
    assert maximisers is not None
    return maximisers / maximisers.sum(axis=1, keepdims=True)
