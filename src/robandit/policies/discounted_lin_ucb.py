"""Discounted LinUCB: a rival that forgets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.inputs import probability
from robandit.policies import radius
from robandit.policies.base import Policy
from robandit.policies.parts import FieldArrays, Radius


@dataclass
class FadingRidge(FieldArrays):
    """Ridge regressions in which a reward that is n rewards old has the weight γⁿ; λ does not fade."""

    precision: Floats
    """V = Σ γⁿ a aᵀ + λI, (B, d, d)."""
    squared: Floats
    """Ṽ = Σ γ²ⁿ a aᵀ + λI, (B, d, d)."""
    moment: Floats
    """b = Σ γⁿ r a, (B, d)."""


@dataclass(kw_only=True, eq=False)
class DiscountedLinUCB(Policy[FadingRidge]):
    """Optimism over a ridge regression that forgets (D-LinUCB of Russac, Vernade and Cappé 2019).

    The confidence set is {μ : ‖μ − V⁻¹b‖_{VṼ⁻¹V} ≤ β}. It is made for a parameter that changes, and recovers from lies
    once they stop: after 1/(1 − γ) rewards a third of their weight is left. It pays for that on clean data for ever.

    >>> policy = DiscountedLinUCB(dim=2, noise_range=0.5, discount=0.99, seed=1)
    >>> decision = policy.choose([[1.0, 0.0], [0.0, 1.0]])
    >>> policy.update(decision, reward=0.7)
    """

    discount: float = 0.995
    """γ, by which the weight of all earlier rewards shrinks with each new one."""
    delta: float = 0.05
    radius_scale: float = 1.0
    radius: float | None = None

    cost = 4.0

    def start(self) -> FadingRidge:
        probability("discount", self.discount)
        theory = partial(radius.discounted, self.constants(self.delta), self.discount)
        self.radii = Radius(theory, self.radius_scale, self.radius)
        self.ridge_term = self.lam * np.eye(self.dim)  # λI
        prior = np.broadcast_to(self.ridge_term, (self.batch, self.dim, self.dim))
        return FadingRidge(prior.copy(), prior.copy(), np.zeros((self.batch, self.dim)))

    def confidence(self, level: Ints) -> Ellipsoid:
        held = self.stats
        sides = np.concatenate([held.moment[:, :, None], np.linalg.cholesky(held.squared)], axis=2)
        solved: Floats = np.linalg.solve(held.precision, sides)  # S Sᵀ = V⁻¹ Ṽ V⁻¹ for all columns but the first
        return Ellipsoid.from_root(solved[:, :, 0], solved[:, :, 1:], self.radii(self.t))

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        held, seen = self.stats, weights > 0.0  # a trial without a reward forgets nothing
        outer = np.einsum("bi,bj->bij", actions, actions)
        for matrix, share in ((held.precision, self.discount), (held.squared, self.discount**2)):
            fade = np.where(seen, share, 1.0)[:, None, None]
            matrix *= fade
            matrix += (1.0 - fade) * self.ridge_term + np.where(seen[:, None, None], outer, 0.0)
        held.moment *= np.where(seen, self.discount, 1.0)[:, None]
        held.moment += np.where(seen, rewards, 0.0)[:, None] * actions
