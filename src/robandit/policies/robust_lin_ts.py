"""Robust LinTS: Thompson sampling from a posterior in which doubtful observations count less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.regions import Region
from robandit.geometry.ridge import Ridge
from robandit.policies.base import Policy
from robandit.policies.decision import Search
from robandit.policies.parts import CorruptionWeights, Radius
from robandit.policies.sampling import Posterior


@dataclass(kw_only=True, eq=False)
class RobustLinTS(Policy[Ridge]):
    """LinTS with the weights of CW-OFUL: θ ~ N(μ_t, β² Σ_t⁻¹) with CW-OFUL's radius β.

    For an adversary that sees the action. The ellipsoid that it samples around has CW-OFUL's guarantee; for its regret
    we know of no published proof. Its propensities are Monte Carlo estimates: see `Posterior`.
    """

    horizon: int
    corruption: float | Sequence[float] | None
    delta: float = 0.05
    radius_scale: float = 1.0
    radius: float | None = None

    def start(self) -> Ridge:
        self.trust = CorruptionWeights(self.constants(self.delta), self.corruption, self.horizon)
        self.radii = Radius(self.trust.radius, self.radius_scale, self.radius)
        self.posterior = Posterior(self)
        return self.new_ridge()

    def confidence(self, level: Ints) -> Ellipsoid:
        return Ellipsoid.around(self.stats, self.radii(self.t))

    def search(self, actions: Floats | Region, level: Ints) -> Search:
        return Search(self.posterior.best(actions, self.confidence(level), self.rounds + 1))

    def chances(self, actions: Floats, search: Search | None = None) -> Floats:
        return self.posterior.chances(actions, self.confidence(self.no_level), self.rounds + 1)

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        self.stats.update(actions, rewards, weights * self.trust(self.stats.widths(actions)))
