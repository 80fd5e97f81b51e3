"""EXP3.P over Robust weighted OFUL."""

from __future__ import annotations

from dataclasses import dataclass
from math import log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Floats, Ints
from robandit.policies.master import RobustMaster, gain, softmax


@dataclass(kw_only=True, eq=False)
class Exp3P(RobustMaster):
    """EXP3.P (Auer et al. 2002) picks one of the Robust weighted OFULs at C = 0, 1, 2, 4, … each round.

    Assumes no knowledge of the corruption. With smoothed bases and decision sets that are drawn independently, the
    paper's section 7 cites regret Õ(CdR T^{2/3}); here the bases are not smoothed, so that this is a heuristic.
    """

    def _start(self) -> None:
        super()._start()
        m, n = self._bases, self.horizon
        self._bonus = sqrt(log(m / self.delta) / (n * m))
        self._rate = 0.95 * sqrt(log(m) / (n * m))
        self._mix = min(1.0, 1.05 * sqrt(m * log(m) / n))
        self._gains: Floats = np.zeros((self._batch, m))

    def _odds(self) -> Floats:
        return (1.0 - self._mix) * softmax(self._rate * self._gains) + self._mix / self._bases

    def _learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        self._teach(actions, rewards, weights, level)
        earned = np.full((self._batch, self._bases), self._bonus)
        earned[self._rows, level - 1] += gain(rewards, self._reach)
        self._gains += np.where((weights > 0.0)[:, None], earned / self._odds(), 0.0)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return super()._arrays() | {"gains": self._gains}
