"""GAdaOFUL: robust regression against heavy tails and lies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from robandit.arrays import TINY, Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.ridge import Ridge
from robandit.policies import radius
from robandit.policies.base import Policy
from robandit.policies.parts import Constant, Radius, SigmaBar, total_lies


@dataclass(kw_only=True, eq=False)
class GAdaOFUL(Policy[Ridge]):
    """Optimism around a pseudo-Huber regression with weights 1/σ̄² (after Yu, Baek, Li and Sun 2024).

    `σ̄ = max{σ, σ_floor, ‖a‖_{H⁻¹}, ((AB + C)/√d · ‖a‖_{H⁻¹})^{1/2}}`. Assumes noise of finite variance, whose tails may
    be heavy (then set ``clip_rewards=False``), and an adversary that sees the action. The authors solve the regression
    anew each round; this takes one Newton step a round, in O(d²) and with no memory of the past, which their proof
    does not cover. The constants are AdaOFUL's, simplified. With C unknown, √T stands for it.
    """

    horizon: int
    corruption: float | Sequence[float] | None
    delta: float = 0.05
    radius_scale: float = 1.0
    radius: float | None = None
    sigma_floor: float | None = None

    def start(self) -> Ridge:
        floor = self.noise_range / self.horizon**0.5
        self.sigma_bar = SigmaBar(self.sigma_floor, default=floor, fixed_radius=self.radius)
        self.sigma_floor = self.sigma_bar.floor
        lies = total_lies(self.corruption, self.noise_range, self.horizon)
        self.tau, theory = radius.gadaoful(self.constants(self.delta, self.sigma_floor), self.horizon, lies)
        self.slope = (self.action_bound * self.parameter_bound + lies) / self.dim**0.5
        self.radii = Radius(Constant(theory), self.radius_scale, self.radius)
        return self.new_ridge()

    def confidence(self, level: Ints) -> Ellipsoid:
        return Ellipsoid.around(self.stats, self.radii(self.t))

    def weights(self, sigma: Floats) -> Floats:
        return self.sigma_bar(sigma) ** -2.0

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        width = np.maximum(self.stats.widths(actions), 1e-100)
        # weights are 1/max{σ, σ_floor}², or 0 where there is no reward
        weights = np.minimum(weights, np.minimum(width**-2.0, 1.0 / (self.slope * width)))
        deviation = 1.0 / np.sqrt(np.maximum(weights, TINY))
        leverage = width / deviation
        tau = self.tau * np.sqrt(1.0 + leverage**2) / np.maximum(leverage, TINY)
        mean = np.vecdot(actions, self.stats.mean)
        surprise = (rewards - mean) / deviation
        tamed = surprise / np.sqrt(1.0 + (surprise / tau) ** 2)  # the slope of the pseudo-Huber loss
        self.stats.update(actions, mean + deviation * tamed, weights)
