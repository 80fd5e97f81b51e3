"""LinTS: Thompson sampling from a Gaussian pseudo-posterior."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.regions import Region
from robandit.geometry.ridge import Ridge
from robandit.policies import radius
from robandit.policies.base import Policy
from robandit.policies.decision import Search
from robandit.policies.parts import Radius
from robandit.policies.sampling import Posterior


@dataclass(kw_only=True, eq=False)
class LinTS(Policy[Ridge]):
    """Thompson sampling with the ridge posterior N(μ_t, v_t² Σ_t⁻¹), v_t = R√(9d log(t/δ)) (Agrawal and Goyal 2013).

    Plays argmax ⟨a, θ⟩ for θ drawn from it. Assumes clean rewards. Regret Õ(d^{3/2}√T) with probability 1 − δ; no
    guarantee under corruption. Its propensities are Monte Carlo estimates: see `Posterior`.
    """

    delta: float = 0.05
    radius_scale: float = 1.0
    radius: float | None = None

    def start(self) -> Ridge:
        self.radii = Radius(partial(radius.lin_ts, self.constants(self.delta)), self.radius_scale, self.radius)
        self.posterior = Posterior(self)
        return self.new_ridge()

    def confidence(self, level: Ints) -> Ellipsoid:
        return Ellipsoid.around(self.stats, self.radii(self.t))

    def search(self, actions: Floats | Region, level: Ints) -> Search:
        return Search(self.posterior.best(actions, self.confidence(level), self.rounds + 1))

    def chances(self, actions: Floats, search: Search | None = None) -> Floats:
        return self.posterior.chances(actions, self.confidence(self.no_level), self.rounds + 1)

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        self.stats.update(actions, rewards, weights)
