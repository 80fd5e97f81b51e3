"""Robust weighted OFUL: the paper's algorithm for a known amount of corruption."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from robandit import radius
from robandit.policies.confidence import OneRadius, Weighted
from robandit.policies.inputs import not_negative
from robandit.ridge import Floats


@dataclass(kw_only=True, eq=False)
class RobustWeightedOFUL(Weighted, OneRadius):
    """Weighted OFUL with an ellipsoid enlarged for corruption ``corruption`` = C (the paper's Algorithm alg:2).

    Assumes that C, in the units of eq. (def:corruption), is known. Regret Õ(C d√(Σσ_t²) + C R√(dT)) with
    probability 1 − δ, against an adversary that sees the action too (theorem thm:alg:1).
    """

    corruption: float
    """C = Σ_t sup_a |r_t(a) − r′_t(a)| / (R + 1), or an upper bound on it."""

    def _start(self) -> None:
        super()._start()
        self.corruption = not_negative("corruption", self.corruption)
        self._table = radius.Table(partial(radius.alpha, self._setting, corruption=self.corruption))

    def _theory(self) -> Floats:
        return self._table(self._updates + 1)
