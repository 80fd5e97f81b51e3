"""CW-OFUL with variance weights: ours, without a published proof."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from robandit.arrays import TINY, Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.ridge import Ridge
from robandit.policies import radius
from robandit.policies.base import Policy
from robandit.policies.parts import Radius, SigmaBar, total_lies


@dataclass(kw_only=True, eq=False)
class VarianceAwareCWOFUL(Policy[Ridge]):
    """Optimism with weights 1/σ̄², σ̄² = max{σ², σ_floor², (R + C)/√d · ‖a‖_{Σ⁻¹}}.

    Our own combination of Weighted OFUL and CW-OFUL: docs/ideas/rivals.md derives its radius. No proof is published.
    Meant for known bounds σ_t and an adversary that sees the action. With C unknown, √T stands for it.
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
        self.slope = (self.noise_range + lies) / self.dim**0.5
        theory = partial(radius.variance_aware_cw_oful, self.constants(self.delta, self.sigma_floor), corruption=lies)
        self.radii = Radius(theory, self.radius_scale, self.radius)
        return self.new_ridge()

    def confidence(self, level: Ints) -> Ellipsoid:
        return Ellipsoid.around(self.stats, self.radii(self.t))

    def weights(self, sigma: Floats) -> Floats:
        return self.sigma_bar(sigma) ** -2.0

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        # weights are 1/max{σ, σ_floor}², or 0 where there is no reward
        most = 1.0 / np.maximum(self.slope * self.stats.widths(actions), TINY)
        self.stats.update(actions, rewards, np.minimum(weights, most))
