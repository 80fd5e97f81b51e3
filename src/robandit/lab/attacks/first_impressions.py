"""Good actions are slandered the first few times that they are played."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats, Index
from robandit.inputs import integer, positive
from robandit.lab.attacks.base import Attack
from robandit.lab.environments import Environment, Offer
from robandit.streams import Draws


@dataclass(kw_only=True)
class FirstImpressions(Attack):
    """The first times that one of the better actions is played, its reward is lowered; then never again.

    Ours, against policies that drop an action after few plays, as the sceptic does: where decision sets stay the same,
    it costs little, and leaves nothing behind that could contradict it. Actions are known by their place in the set.
    """

    strength = "strong"

    budget: float | None = 100.0
    times: int = 3
    """How often each is lied about."""
    depth: float = 0.5
    """How much less it pays then."""

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("times", self.times, least=1)
        positive("depth", self.depth)

    def start(self, draw: Draws, environment: Environment) -> None:
        self._plays = np.zeros((len(draw), 0), np.int64)  # by place; sets may be of any size

    def corrupt(self, offer: Offer) -> Floats:
        self._make_room(offer.means.shape[1])
        better = offer.means >= np.median(offer.means, axis=1, keepdims=True)
        young = self._plays[:, : offer.means.shape[1]] < self.times
        return np.where(better & young, -self.depth, 0.0)

    def observe(self, offer: Offer, played: Index, reward: Floats) -> None:
        self._make_room(offer.means.shape[1])
        self._plays[np.arange(len(played)), played] += 1

    def _make_room(self, size: int) -> None:
        grown = max(0, size - self._plays.shape[1])
        if grown:
            self._plays = np.pad(self._plays, ((0, 0), (0, grown)))
