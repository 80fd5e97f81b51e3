"""Weighted OFUL: OFUL that uses the variances of the rewards."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.ridge import Ridge
from robandit.policies import radius
from robandit.policies.base import Policy
from robandit.policies.parts import Radius, SigmaBar


@dataclass(kw_only=True, eq=False)
class WeightedOFUL(Policy[Ridge]):
    """Optimism over one ellipsoid with weights 1/σ̄², σ̄ = max{R/√d, σ} (Zhou, Gu and Szepesvári 2021).

    Assumes clean rewards and known bounds σ_t on their standard deviations. Regret Õ(R√(dT) + d√(Σσ_t²)) with
    probability 1 − δ; no guarantee under corruption.
    """

    delta: float = 0.05
    radius_scale: float = 1.0
    radius: float | None = None
    sigma_floor: float | None = None

    def start(self) -> Ridge:
        floor = self.noise_range / self.dim**0.5
        self.sigma_bar = SigmaBar(self.sigma_floor, default=floor, fixed_radius=self.radius)
        self.sigma_floor = self.sigma_bar.floor
        theory = partial(radius.weighted_oful, self.constants(self.delta, self.sigma_floor))
        self.radii = Radius(radius.Table(theory), self.radius_scale, self.radius)
        return self.new_ridge()

    def confidence(self, level: Ints) -> Ellipsoid:
        return Ellipsoid.around(self.stats, self.radii(self.t))

    def weights(self, sigma: Floats) -> Floats:
        return self.sigma_bar(sigma) ** -2.0

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        self.stats.update(actions, rewards, weights)
