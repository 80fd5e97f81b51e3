"""Robust weighted OFUL: the paper's algorithm for a known amount of corruption.

The file follows the pseudo-code of Algorithm 1 (label alg:2). SlowRobustWeightedOFUL in
tests/policies/transcriptions.py is the same with nothing but loops and solves, and must make the same choices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.ridge import Ridge
from robandit.policies import radius
from robandit.policies.base import Policy
from robandit.policies.parts import Radius, SigmaBar


@dataclass(kw_only=True, eq=False)
class RobustWeightedOFUL(Policy[Ridge]):
    """Weighted OFUL with an ellipsoid enlarged for a known corruption C: Algorithm 1 (label alg:2).

    Assumes that C, in the units of eq. (def:corruption), is known. Regret Õ(C d√(Σσ_t²) + C R√(dT)) with
    probability 1 − δ (theorem thm:alg:1), for the default λ and floor, ``radius_scale`` 1 and no exploration. The
    confidence set holds for any lies that add up to C, so an adversary that sees the action gains nothing.
    """

    corruption: float | Sequence[float]
    delta: float = 0.05
    radius_scale: float = 1.0
    radius: float | None = None
    sigma_floor: float | None = None

    def start(self) -> Ridge:
        if self.corruption is None:
            raise ValueError("RobustWeightedOFUL must be told corruption, got None; MultiLevelWeightedOFUL need not be")
        floor = (self.noise_range + 1.0) / self.dim**0.5
        self.sigma_bar = SigmaBar(self.sigma_floor, default=floor, fixed_radius=self.radius)
        self.sigma_floor = self.sigma_bar.floor
        theory = radius.Alpha(self.constants(self.delta, self.sigma_floor), self.corruption)
        self.alpha = Radius(theory, self.radius_scale, self.radius)
        return self.new_ridge()  # Algorithm 1 (alg:2), line 1: Σ_1 = λI, μ_1 = 0, b_1 = 0

    # Line 3: `choose` is given the decision set D_t.

    def confidence(self, level: Ints) -> Ellipsoid:
        """C_t = {μ : ‖μ − μ_t‖_{Σ_t} ≤ α_t}, eq. (eq:def:ct), in which the paper leaves out the Σ_t."""
        return Ellipsoid.around(self.stats, self.alpha(self.t))  # line 4

    # Line 5: `choose` plays argmax_{a ∈ D_t} max_{μ ∈ C_t} ⟨a, μ⟩, an objective that the paper leaves out, and `update`
    # brings r_t and σ_t.

    def weights(self, sigma: Floats) -> Floats:
        """1/σ̄_t² with σ̄_t = max{floor, σ_t}; the default floor is the paper's (R + 1)/√d."""
        return self.sigma_bar(sigma) ** -2.0  # line 6

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        """Σ_{t+1} = Σ_t + a_t a_tᵀ/σ̄_t², b_{t+1} = b_t + r_t a_t/σ̄_t², μ_{t+1} = Σ_{t+1}⁻¹ b_{t+1}."""
        self.stats.update(actions, rewards, weights)  # line 7
