"""GAdaOFUL: robust regression against heavy tails and lies."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.inputs import integer
from robandit.policies import radius
from robandit.policies.confidence import Weighted
from robandit.policies.cw_oful import Told


@dataclass(kw_only=True, eq=False)
class GAdaOFUL(Weighted, Told):
    """Optimism around a pseudo-Huber regression with weights 1/σ̄² (after Yu, Baek, Li and Sun 2024).

    σ̄ = max{σ, σ_floor, ‖a‖_{H⁻¹}, ((AB + C)/√d · ‖a‖_{H⁻¹})^{1/2}}. Assumes noise of finite variance, whose tails may
    be heavy (then set ``clip_rewards=False``), and an adversary that sees the action. The authors solve the regression
    anew each round; this takes one Newton step a round, in O(d²) and with no memory of the past, for which their proof
    does not speak. The constants are AdaOFUL's, simplified. With C unknown, √T stands for it.
    """

    def _paper_floor(self) -> float:
        return self.noise_range / integer("horizon", self.horizon, least=1) ** 0.5

    def _start(self) -> None:
        super()._start()
        self._tau, self._held = radius.gadaoful(self._setting, self.horizon, self._spent)
        self._slope = (self.action_bound * self.parameter_bound + self._spent) / self.dim**0.5

    def _theory(self) -> Floats:
        return np.broadcast_to(self._held, self._batch)

    def _learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        width = np.maximum(self._ridge.widths(actions), 1e-100)
        # weights are 1/max{σ, σ_floor}², or 0 where there is no reward
        weights = np.minimum(weights, np.minimum(width**-2.0, 1.0 / (self._slope * width)))
        deviation = 1.0 / np.sqrt(np.maximum(weights, 1e-300))
        leverage = width / deviation
        tau = self._tau * np.sqrt(1.0 + leverage**2) / np.maximum(leverage, 1e-300)
        mean = np.vecdot(actions, self._ridge.mean)
        surprise = (rewards - mean) / deviation
        tamed = surprise / np.sqrt(1.0 + (surprise / tau) ** 2)  # the slope of the pseudo-Huber loss
        self._ridge.update(actions, mean + deviation * tamed, weights)
