"""Weighted OFUL: OFUL that uses the variances of the rewards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from robandit.arrays import Floats
from robandit.policies import radius
from robandit.policies.confidence import OneRadius, Weighted


@dataclass(kw_only=True, eq=False)
class WeightedOFUL(Weighted, OneRadius):
    """Optimism over one ellipsoid with weights 1/σ̄², σ̄ = max{R/√d, σ} (Zhou, Gu and Szepesvári 2021).

    Assumes clean rewards and known bounds σ_t on their standard deviations. Regret Õ(R√(dT) + d√(Σσ_t²)) with
    probability 1 − δ; no guarantee under corruption.
    """

    def _paper_floor(self) -> float:
        return self.noise_range / self.dim**0.5

    def _start(self) -> None:
        super()._start()
        self._table = radius.Table(partial(radius.weighted_oful, self._setting))

    def _theory(self) -> Floats:
        return self._table(self._updates + 1)
