"""What masters hold: several bases that each learn from their own rounds, one of which is drawn to play."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from robandit.arrays import Floats, Index, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.regions import optimise
from robandit.geometry.ridge import Ridge
from robandit.inputs import not_negative
from robandit.policies import radius
from robandit.policies.parts import FieldArrays, split_ties
from robandit.policies.radius import Setting


@dataclass(kw_only=True)
class BaseStatistics(FieldArrays):
    """The statistics of every base, each from its own rounds; `Levels` says which row."""

    ridge: Ridge
    counts: Ints
    """How many rewards each base has learnt from."""

    def teach(self, actions: Floats, rewards: Floats, weights: Floats, rows: Index) -> None:
        """Let the bases in these rows learn, one for each trial."""
        self.ridge.update(actions, rewards, weights, rows)
        self.counts[rows] += weights > 0.0


def base_corruptions(given: Sequence[float] | None, horizon: int) -> tuple[float, ...]:
    """The corruption that each base is told: as given, or 0, 1, 2, 4, … up to a power of two that is at least 2T.

    The paper (section 8) takes ⌈log₂ T⌉ powers of two; we add 0 and go up to 2T.
    """
    told = given
    if told is None:
        told = [0.0, *(2.0**i for i in range((2 * horizon - 1).bit_length() + 1))]
    amounts = tuple(not_negative("base_corruptions", one) for one in told)
    if len(amounts) < 2:
        raise ValueError(f"base_corruptions must be at least two, got {list(told)}")
    return amounts


def base_radii(setting: Setting, corruptions: Sequence[float], scale: float) -> radius.ByLevel:
    """α_t of Robust weighted OFULs that are told different corruptions: C adds a constant (eq. eq:def:alpha)."""
    extra = radius.alpha(setting, 1, corruptions) - radius.alpha(setting, 1, 0.0)
    return radius.ByLevel(partial(radius.alpha, setting, corruption=0.0), extra, scale)


def mixed_chances(odds: Floats, actions: Floats, ellipsoid: Callable[[Ints], Ellipsoid]) -> Floats:
    """The probability (B, K) of each action if a base is drawn by its odds (B, M) and plays optimistically."""
    chances = np.zeros(actions.shape[:2])
    for base in range(1, odds.shape[1] + 1):
        chances += odds[:, base - 1 : base] * optimistic_shares(actions, ellipsoid(np.full(len(odds), base)))
    return chances


def optimistic_shares(actions: Floats, confidence: Ellipsoid) -> Floats:
    """The probability (B, K) of each action: 1 for the optimistic one, divided between those that tie."""
    return split_ties(optimise(actions, confidence).mask(actions.shape[1]))


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
