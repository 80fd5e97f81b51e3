"""CW-OFUL: observations that could move the estimate far count less, so that no lie moves it far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.ridge import Ridge
from robandit.policies.base import Policy
from robandit.policies.parts import CorruptionWeights, Radius


@dataclass(kw_only=True, eq=False)
class CWOFUL(Policy[Ridge]):
    """Optimism with weights w = min{1, α/‖a‖_{Σ⁻¹}} (He, Zhou, Zhang and Gu 2022).

    Against an adversary that sees the action. Told C ≥ Σ|c_t|/(R + 1), regret Õ(dR√T + dC) with probability 1 − δ;
    with C unknown, the same for C ≤ √T and no guarantee beyond. The radius is for all T rounds at once. With a
    ``threshold`` of yours in place of α, nothing is promised.
    """

    horizon: int
    corruption: float | Sequence[float] | None = None
    threshold: float | None = None
    delta: float = 0.05
    radius_scale: float = 1.0
    radius: float | None = None

    def start(self) -> Ridge:
        self.trust = CorruptionWeights(self.constants(self.delta), self.corruption, self.horizon, self.threshold)
        self.radii = Radius(self.trust.radius, self.radius_scale, self.radius)
        return self.new_ridge()

    def confidence(self, level: Ints) -> Ellipsoid:
        return Ellipsoid.around(self.stats, self.radii(self.t))

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        self.stats.update(actions, rewards, weights * self.trust(self.stats.widths(actions)))
