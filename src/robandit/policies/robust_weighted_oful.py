"""Robust weighted OFUL: the paper's algorithm for a known amount of corruption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from robandit.arrays import Floats
from robandit.inputs import read_corruption
from robandit.policies import radius
from robandit.policies.confidence import OneRadius, Weighted


@dataclass(kw_only=True, eq=False)
class RobustWeightedOFUL(Weighted, OneRadius):
    """Weighted OFUL with an ellipsoid enlarged for corruption ``corruption`` = C (the paper's Algorithm alg:2).

    Assumes that C, in the units of eq. (def:corruption), is known. Regret Õ(C d√(Σσ_t²) + C R√(dT)) with
    probability 1 − δ, against an adversary that sees the action too (theorem thm:alg:1).
    """

    corruption: float | Sequence[float]
    """C = Σ_t sup_a |r_t(a) − r′_t(a)| / (R + 1), or an upper bound on it; in a batch, one number or one per trial."""

    def _start(self) -> None:
        super()._start()
        self.corruption = read_corruption(self.corruption, self._batch, self._single)
        self._clean = radius.Table(partial(radius.alpha, self._setting, corruption=0.0))
        # α_t grows by the same for every unit of corruption (eq. eq:def:alpha).
        self._extra = radius.alpha(self._setting, 1, self.corruption) - radius.alpha(self._setting, 1, 0.0)

    def _theory(self) -> Floats:
        return np.asarray(self._clean(self._updates + 1) + self._extra)
