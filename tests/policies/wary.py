"""A policy that tells sources apart, to test with."""

from dataclasses import dataclass

import numpy as np

import robandit
from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.ridge import Ridge
from robandit.policies.parts import FieldArrays
from robandit.policies.sources import Labels, SourceSlots


@dataclass(kw_only=True)
class Tally(FieldArrays):
    """A ridge regression, and the number of rewards from each source."""

    ridge: Ridge
    counts: Ints


@dataclass(kw_only=True, eq=False)
class Wary(robandit.Policy[Tally]):
    """Counts the rewards of every source, and believes the n-th one with weight 1/n."""

    max_sources: int = 2

    def start(self) -> Tally:
        self.slots = SourceSlots(self.max_sources, self.batch)
        counts = np.zeros((self.batch, self.max_sources + 1), dtype=np.int64)
        return Tally(ridge=self.new_ridge(), counts=counts)

    def confidence(self, level: Ints) -> Ellipsoid:
        return Ellipsoid.around(self.stats.ridge, np.ones(self.batch))

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        self.learn_from(actions, rewards, weights, level, None)

    def learn_from(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints, source: Labels | None) -> None:
        at = self.rows, self.slots.place(source, weights > 0)
        self.stats.counts[at] += weights > 0
        self.stats.ridge.update(actions, rewards, weights / np.maximum(self.stats.counts[at], 1))
