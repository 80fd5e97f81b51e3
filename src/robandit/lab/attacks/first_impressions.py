"""An attack on the first plays of good actions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats, Index
from robandit.inputs import integer, positive
from robandit.lab.attacks.base import Attack, widened
from robandit.lab.environments import Environment, Offer
from robandit.streams import Draws


@dataclass(kw_only=True)
class FirstImpressions(Attack):
    """Lowers the rewards of the better half of the actions, but only the first few times that each is played.

    The attack is ours, against policies that drop an action after few plays. Where decision sets stay
    the same it costs little and leaves no contradiction behind. Actions are told apart by their place in the set.
    """

    strength = "strong"

    budget: float | None = 100.0
    times: int = 3
    """Number of plays of each action whose reward is lowered."""
    depth: float = 0.5
    """Amount by which a reward is lowered."""

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("times", self.times, least=1)
        positive("depth", self.depth)

    def start(self, draw: Draws, environment: Environment) -> None:
        self._plays = np.zeros((len(draw), 0), np.int64)  # by place; sets may be of any size

    def corrupt(self, offer: Offer) -> Floats:
        self._plays = widened(self._plays, offer.means.shape[1])
        better = offer.means >= np.median(offer.means, axis=1, keepdims=True)
        young = self._plays[:, : offer.means.shape[1]] < self.times
        return np.where(better & young, -self.depth, 0.0)

    def observe(self, offer: Offer, played: Index, reward: Floats) -> None:
        self._plays = widened(self._plays, offer.means.shape[1])
        self._plays[np.arange(len(played)), played] += 1
