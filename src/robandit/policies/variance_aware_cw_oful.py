"""CW-OFUL with variance weights: ours, without a published proof."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.inputs import integer
from robandit.policies import radius
from robandit.policies.confidence import Weighted
from robandit.policies.cw_oful import Told


@dataclass(kw_only=True, eq=False)
class VarianceAwareCWOFUL(Weighted, Told):
    """Optimism with weights 1/σ̄², σ̄² = max{σ², σ_floor², (R + C)/√d · ‖a‖_{Σ⁻¹}}.

    Our own combination of Weighted OFUL and CW-OFUL: docs/rivals.md derives its radius; there is no published proof.
    Meant for known bounds σ_t and an adversary that sees the action. With C unknown, √T stands for it.
    """

    def _paper_floor(self) -> float:
        return self.noise_range / integer("horizon", self.horizon, least=1) ** 0.5

    def _start(self) -> None:
        super()._start()
        self._slope = (self.noise_range + self._spent) / self.dim**0.5

    def _theory(self) -> Floats:
        return radius.variance_aware_cw_oful(self._setting, self._updates + 1, self._spent)

    def _learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        # weights are 1/max{σ, σ_floor}², or 0 where there is no reward
        most = 1.0 / np.maximum(self._slope * self._ridge.widths(actions), 1e-300)
        self._ridge.update(actions, rewards, np.minimum(weights, most))
