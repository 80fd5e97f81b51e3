"""Greedy: no exploration beyond what the decision sets bring."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.ridge import Ridge
from robandit.policies.base import Policy


@dataclass(kw_only=True, eq=False)
class Greedy(Policy[Ridge]):
    """Plays argmax ⟨a, μ_t⟩ for the ridge estimate μ_t with unit weights.

    Bogunovic et al. (2021) bound its regret under corruption where contexts are diverse; elsewhere it has no guarantee.
    """

    def start(self) -> Ridge:
        return self.new_ridge()

    def confidence(self, level: Ints) -> Ellipsoid:
        return Ellipsoid.around(self.stats, np.zeros(self.batch))

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        self.stats.update(actions, rewards, weights)
