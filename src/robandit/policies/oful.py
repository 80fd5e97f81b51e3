"""OFUL: the baseline that trusts every reward."""

from __future__ import annotations

from dataclasses import dataclass

from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.ridge import Ridge
from robandit.policies import radius
from robandit.policies.base import Policy
from robandit.policies.parts import Radius


@dataclass(kw_only=True, eq=False)
class OFUL(Policy[Ridge]):
    """Optimism over one ellipsoid with unit weights (Abbasi-Yadkori, Pál and Szepesvári 2011).

    Assumes clean rewards. Regret Õ(dR√T) with probability 1 − δ; no guarantee under corruption.

    >>> policy = OFUL(dim=2, noise_range=0.5, seed=1)
    >>> decision = policy.choose([[1.0, 0.0], [0.0, 1.0]])
    >>> policy.update(decision, reward=0.7)
    """

    delta: float = 0.05
    radius_scale: float = 1.0
    radius: float | None = None

    def start(self) -> Ridge:
        self.radii = Radius(radius.OFULRadius(self.constants(self.delta)), self.radius_scale, self.radius)
        return self.new_ridge()

    def confidence(self, level: Ints) -> Ellipsoid:
        return Ellipsoid.around(self.stats, self.radii(self.stats.log_det))

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        self.stats.update(actions, rewards, weights)
