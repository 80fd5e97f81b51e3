"""Garcelon et al.'s attack on rewards by an adversary that must learn μ*."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats, Index
from robandit.geometry.ridge import Ridge
from robandit.inputs import probability, share
from robandit.lab.attacks.base import Targeted
from robandit.lab.environments import Environment, Offer
from robandit.policies import radius
from robandit.streams import Draws


@dataclass(kw_only=True)
class GarcelonAdaptive(Targeted):
    """Subtracts an upper bound on the action's mean from its reward and adds a share of the target's lower bound.

    r += −clip₀₁(⟨θ̂, a⟩ + β‖a‖) + (1 − ε) clip₀₁(⟨θ̂, a†⟩ − β‖a†‖) for a ≠ a†, norms in Σ⁻¹ (Garcelon et al. 2020).
    Their model has one parameter per arm; here one θ̂ serves all actions, as everywhere in this package. It is the
    ridge estimate from the clean rewards, with OFUL's radius β.
    """

    epsilon: float = 0.5
    """Share ε of the target's lower bound that is held back."""
    delta: float = 0.05
    """Probability δ with which the radius β may fail."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share("epsilon", self.epsilon)
        probability("delta", self.delta)

    def start(self, draw: Draws, environment: Environment) -> None:
        bounds = environment.action_bound, environment.parameter_bound
        setting = radius.Setting(environment.dim, environment.noise_range, *bounds, self.delta, 1.0)
        self._radius = radius.OFULRadius(setting)
        self._ridge = Ridge(rows=len(draw), dim=environment.dim, regularization=1.0)

    def corrupt(self, offer: Offer) -> Floats:
        assert isinstance(offer.actions, np.ndarray)
        means = np.matvec(offer.actions, self._ridge.mean)
        widths = np.linalg.norm(offer.actions @ self._ridge.root, axis=2)
        widths *= self._radius(self._ridge.log_det)[:, None]
        lower = np.take_along_axis(np.clip(means - widths, 0.0, 1.0), self.aim(offer)[:, None], axis=1)
        return self.spare(offer, (1.0 - self.epsilon) * lower - np.clip(means + widths, 0.0, 1.0))

    def observe(self, offer: Offer, played: Index, reward: Floats) -> None:
        assert isinstance(offer.actions, np.ndarray)
        rows = np.arange(len(played))
        self._ridge.update(offer.actions[rows, played], reward, np.ones(len(played)))
