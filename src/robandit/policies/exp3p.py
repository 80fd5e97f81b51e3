"""EXP3.P over Robust weighted OFUL."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, sqrt

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.policies.base import Policy
from robandit.policies.decision import Search
from robandit.policies.master import BaseStatistics, base_corruptions, base_radii, draw, gain, mixed_chances, softmax
from robandit.policies.parts import Levels, SigmaBar


@dataclass(kw_only=True)
class Exp3PStatistics(BaseStatistics):
    """The bases, and what EXP3.P thinks of them."""

    gains: Floats
    """The estimated gain of every base so far, (B, M)."""


@dataclass(kw_only=True, eq=False)
class Exp3P(Policy[Exp3PStatistics]):
    """EXP3.P (Auer et al. 2002) picks one of the Robust weighted OFULs at C = 0, 1, 2, 4, … each round.

    The constants are those of Bubeck and Cesa-Bianchi (2012). Assumes no knowledge of the corruption. With smoothed
    bases and decision sets that are drawn independently, theorem thm:corral of the paper's section 8 gives regret
    Õ(CdR T^{2/3}). Here the bases are not smoothed, so this is a heuristic. Gains are weighted by the probabilities at
    the time of learning: feedback should come promptly.
    """

    horizon: int
    delta: float = 0.05
    radius_scale: float = 1.0
    sigma_floor: float | None = None
    base_corruptions: Sequence[float] | None = None
    """The corruption that each base is told; 0, 1, 2, 4, … up to 2T by default."""

    cost = 2.0

    def start(self) -> Exp3PStatistics:
        self.sigma_bar = SigmaBar(self.sigma_floor, default=(self.noise_range + 1.0) / self.dim**0.5)
        self.sigma_floor = self.sigma_bar.floor
        told = self.base_corruptions = base_corruptions(self.base_corruptions, self.horizon)
        self.base_radii = base_radii(self.constants(self.delta, self.sigma_floor), told, self.radius_scale)
        m, n = len(told), self.horizon
        self.layout = Levels(m, self.batch)
        self.bonus = sqrt(log(m / self.delta) / (n * m))
        self.rate = 0.95 * sqrt(log(m) / (n * m))
        self.mix = min(1.0, 1.05 * sqrt(m * log(m) / n))
        counts: Ints = np.zeros(self.layout.size, np.int64)
        return Exp3PStatistics(
            ridge=self.new_ridge(rows=self.layout.size), counts=counts, gains=np.zeros((self.batch, m))
        )

    @property
    def bases(self) -> int:
        """M, the number of bases."""
        return self.layout.count

    @property
    def levels(self) -> int:
        return self.layout.count

    def probabilities(self) -> Floats:
        """The probability with which each base is drawn, (M,); in a batch (B, M)."""
        return self.unbatched(self._base_chances())

    def _base_chances(self) -> Floats:
        return (1.0 - self.mix) * softmax(self.rate * self.stats.gains) + self.mix / self.bases

    def draw_level(self, uniform: Floats) -> Ints:
        return draw(self._base_chances(), uniform)

    def confidence(self, level: Ints) -> Ellipsoid:
        """The ellipsoid of these bases."""
        rows = self.layout.rows(level, self.rows)
        return Ellipsoid.around(self.stats.ridge, self.base_radii(self.stats.counts[rows] + 1, level - 1), rows)

    def estimate(self) -> Ellipsoid:
        """The ellipsoid of the base that has learnt most."""
        return self.copied(self.confidence(self.layout.fullest(self.stats.counts)))

    def chances(self, actions: Floats, search: Search | None = None) -> Floats:
        return mixed_chances(self._base_chances(), actions, self.confidence)

    def weights(self, sigma: Floats) -> Floats:
        return self.sigma_bar(sigma) ** -2.0

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        self.stats.teach(actions, rewards, weights, self.layout.rows(level, self.rows))
        earned = np.full((self.batch, self.bases), self.bonus)
        earned[self.rows, level - 1] += gain(rewards, self.reach)
        self.stats.gains += np.where((weights > 0.0)[:, None], earned / self._base_chances(), 0.0)
