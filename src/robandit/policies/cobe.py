"""COBE: CW-OFULs that each assume a different corruption, and a test that drops those that assume too little."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, log2, sqrt

import numpy as np

from robandit.arrays import Bools, Floats, Index, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.policies import radius
from robandit.policies.base import Policy
from robandit.policies.decision import Search
from robandit.policies.master import BaseStatistics, draw, mixed_chances
from robandit.policies.parts import Levels, leverage_weight


@dataclass(kw_only=True)
class COBEStatistics(BaseStatistics):
    """The bases, and how the current epoch goes."""

    epoch: Ints
    """k, the lowest base that is still in play, (B,)."""
    sums: Floats
    """The epoch's rewards by base, (B, M)."""


@dataclass(kw_only=True, eq=False)
class COBE(Policy[COBEStatistics]):
    """Balances bases for C ≤ 2^i and drops the lowest when its rewards betray it (Wei, Dann and Zimmert 2022).

    The bases are CW-OFULs that each learn from the rounds that they play. Assumes no knowledge of the corruption, which
    must be committed before the action is drawn (a *weak* adversary); regret Õ(d√T + dC). ``radius_scale`` multiplies
    the radii and, alike, everything that the test allows for. Feedback should come promptly: it counts by the
    probabilities at the time of learning.
    """

    horizon: int
    delta: float = 0.05
    radius_scale: float = 1.0

    cost = 2.0

    def start(self) -> COBEStatistics:
        most = 2.0 * self.reach  # c_max, the largest lie about a clipped reward
        self.layout = Levels(max(1, ceil(log2(most * self.horizon))), self.batch)
        self.setting = self.constants(self.delta)
        self.log = log(self.horizon / self.delta)
        self.least_theta = 21.0 * most * self.log
        # The radius of a base is the same for any θ > 0.
        self.radii = self.radius_scale * radius.cw_oful(self.setting, self.horizon, self.least_theta)
        self.regret = self._regret_bound()
        return COBEStatistics(
            ridge=self.new_ridge(rows=self.layout.size),
            counts=np.zeros(self.layout.size, np.int64),
            epoch=np.ones(self.batch, np.int64),
            sums=np.zeros((self.batch, self.bases)),
        )

    def _regret_bound(self) -> tuple[float, float]:
        """√β₁ and β₂ of a base's regret √(β₁ t) + β₂ θ: He et al.'s theorem with its constants, as the proof gives."""
        wide = self.radius_scale * float(radius.cw_oful(self.setting, self.horizon, 1.0))
        growth = self.setting.action_bound**2 / (self.dim * self.lam)
        potential = 2.0 * self.dim * log(1.0 + self.horizon * growth)  # of Σ min(1, w‖a‖²)
        return 2.0 * wide * sqrt(potential), 2.0 * wide * potential / float(radius.cw_threshold(self.setting, 1.0))

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
        """α_i: 2^{k−i−1} for i > k, and the remainder for i = k."""
        base, k = np.arange(1, self.bases + 1), self.stats.epoch[:, None]
        odds = np.where(base > k, np.exp2(k - base - 1.0), 0.0)
        odds[self.rows, self.stats.epoch - 1] = 1.0 - odds.sum(axis=1)
        return odds

    def _theta(self) -> Floats:
        """θ_i, the corruption that each base is told, in units of reward, (B, M)."""
        return 1.25 * self._base_chances() * np.exp2(np.arange(1, self.bases + 1)) + self.least_theta

    def draw_level(self, uniform: Floats) -> Ints:
        return draw(self._base_chances(), uniform)

    def confidence(self, level: Ints) -> Ellipsoid:
        """The ellipsoid of these bases."""
        return Ellipsoid.around(self.stats.ridge, np.full(self.batch, self.radii), self.layout.rows(level, self.rows))

    def estimate(self) -> Ellipsoid:
        """The ellipsoid of the base that has learnt most."""
        return self.copied(self.confidence(self.layout.fullest(self.stats.counts)))

    def chances(self, actions: Floats, search: Search | None = None) -> Floats:
        return mixed_chances(self._base_chances(), actions, self.confidence)

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        stats, rows = self.stats, self.layout.rows(level, self.rows)
        seen = (weights > 0.0) & (level >= stats.epoch)  # late rewards of a base that was dropped count for nothing
        threshold = radius.cw_threshold(self.setting, self._theta()[self.rows, level - 1])
        trust = leverage_weight(threshold, stats.ridge.widths(actions, rows))
        stats.ridge.update(actions, rewards, trust * seen, rows)
        stats.counts[rows] += seen
        stats.sums[self.rows, level - 1] += np.where(seen, rewards, 0.0)
        betrayed = np.flatnonzero(self._betrayed() & seen)
        if betrayed.size:
            self._next_epoch(betrayed)

    def _betrayed(self) -> Bools:
        """Whether a base's rewards fall below what its bound allows, judged by a larger base, (B,)."""
        odds, theta, sums = self._base_chances(), self._theta(), self.stats.sums
        counts = self.layout.apart(self.stats.counts).T
        total = counts.sum(axis=1, keepdims=True)
        live = np.where(odds > 0.0, odds, 1.0)
        root, slope = self.regret
        most = (sums + root * np.sqrt(counts) + slope * theta) / live
        spread = self.reach * np.sqrt(total * self.log / live) + (self.reach * self.log + theta) / live
        least = sums / live - 8.0 * self.radius_scale * spread
        most, least = np.where(odds > 0.0, most, np.inf), np.where(odds > 0.0, least, -np.inf)
        lowest = np.minimum.accumulate(most, axis=1)[:, :-1]  # over i < j
        return np.any(lowest < least[:, 1:], axis=1)

    def _next_epoch(self, trials: Index) -> None:
        """Drop the lowest base of these trials, and let the others start from nothing."""
        self.stats.epoch[trials] += 1
        rows = self.layout.rows(np.arange(1, self.bases + 1)[:, None], trials).ravel()
        self.stats.ridge.reset(rows)
        self.stats.counts[rows] = 0
        self.stats.sums[trials] = 0.0
