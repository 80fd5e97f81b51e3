"""COBE: CW-OFULs that each assume another amount of corruption, and a test of who is wrong."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, log2, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Bools, Floats, Ints
from robandit.policies import radius
from robandit.policies.cw_oful import cw_weight
from robandit.policies.master import Master


@dataclass(kw_only=True, eq=False)
class COBE(Master):
    """Balances bases for C ≤ 2^i and drops the lowest when its rewards betray it (Wei, Dann and Zimmert 2022).

    The bases are CW-OFULs that each learn from the rounds that they play. Assumes no knowledge of the corruption, which
    must be committed before the action is drawn (a *weak* adversary); regret Õ(d√T + dC). ``radius_scale`` multiplies
    the radii and, alike, everything that the test allows for.
    """

    def _start(self) -> None:
        super()._start()
        most = 2.0 * self._reach  # c_max, the largest lie about a clipped reward
        self._hire(max(1, ceil(log2(most * self.horizon))))
        self._log = log(self.horizon / self.delta)
        self._floor_theta = 21.0 * most * self._log
        self._regret = self._regret_bound()
        self._epoch: Ints = np.ones(self._batch, np.int64)  # k
        self._sums: Floats = np.zeros((self._batch, self._bases))  # of the epoch's rewards, by base

    def _regret_bound(self) -> tuple[float, float]:
        """√β₁ and β₂ of a base's regret √(β₁ t) + β₂ θ: He et al.'s theorem with its constants, as the proof gives."""
        setting = self._setting
        wide = self.radius_scale * float(radius.cw_oful(setting, self.horizon, 1.0))
        growth = setting.action_bound**2 / (self.dim * self._lambda)
        potential = 2.0 * self.dim * log(1.0 + self.horizon * growth)  # of Σ min(1, w‖a‖²)
        return 2.0 * wide * sqrt(potential), 2.0 * wide * potential / float(radius.cw_threshold(setting, 1.0))

    def _odds(self) -> Floats:
        base, k = np.arange(1, self._bases + 1), self._epoch[:, None]
        odds = np.where(base > k, np.exp2(k - base - 1.0), 0.0)
        odds[self._rows, self._epoch - 1] = 1.0 - odds.sum(axis=1)
        return odds

    def _theta(self) -> Floats:
        """θ_i, the corruption that each base is told, in units of reward, (B, M)."""
        return 1.25 * self._odds() * np.exp2(np.arange(1, self._bases + 1)) + self._floor_theta

    def _base_radii(self, base: Ints) -> Floats:
        held = self.radius_scale * radius.cw_oful(self._setting, self.horizon, self._floor_theta)  # alike for any θ > 0
        return np.full(self._batch, held)

    def _learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        seen = (weights > 0.0) & (level >= self._epoch)  # late rewards of a base that was dropped count for nothing
        place = self._place(level)
        threshold = radius.cw_threshold(self._setting, self._theta()[self._rows, level - 1])
        trust = cw_weight(threshold, self._base.widths(actions, place))
        self._base.update(actions, rewards, trust * seen, place)
        self._counts[place] += seen
        self._sums[self._rows, level - 1] += np.where(seen, rewards, 0.0)
        betrayed = np.flatnonzero(self._betrayed() & seen)
        if betrayed.size:
            self._next_epoch(betrayed)

    def _betrayed(self) -> Bools:
        """Whether some base i earned so little, by its own bound, that a larger j shows C > 2^i, (B,)."""
        odds, theta = self._odds(), self._theta()
        counts = self._counts.reshape(self._bases, self._batch).T
        total = counts.sum(axis=1, keepdims=True)
        live = np.where(odds > 0.0, odds, 1.0)
        root, slope = self._regret
        most = (self._sums + root * np.sqrt(counts) + slope * theta) / live
        spread = self._reach * np.sqrt(total * self._log / live) + (self._reach * self._log + theta) / live
        least = self._sums / live - 8.0 * self.radius_scale * spread
        most, least = np.where(odds > 0.0, most, np.inf), np.where(odds > 0.0, least, -np.inf)
        lowest = np.minimum.accumulate(most, axis=1)[:, :-1]  # over i < j
        return np.any(lowest < least[:, 1:], axis=1)

    def _next_epoch(self, trials: NDArray[np.intp]) -> None:
        self._epoch[trials] += 1
        rows = (np.arange(self._bases)[:, None] * self._batch + trials).ravel()
        self._base.reset(rows)
        self._counts[rows] = 0
        self._sums[trials] = 0.0

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return super()._arrays() | {"epoch": self._epoch, "sums": self._sums}
