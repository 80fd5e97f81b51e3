"""Garcelon et al.'s attack on rewards by an adversary that has to learn μ*, too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats, Index
from robandit.geometry.ridge import Ridge
from robandit.inputs import positive, share
from robandit.lab.attacks.base import Targeted
from robandit.lab.environments import Environment, Offer
from robandit.policies import radius
from robandit.streams import Draws


@dataclass(kw_only=True)
class GarcelonAdaptive(Targeted):
    """Takes an upper bound of the action's mean off its reward and adds a share of the target's lower bound.

    r += −clip₀₁(⟨θ̂, a⟩ + β‖a‖) + (1 − ε) clip₀₁(⟨θ̂, a†⟩ − β‖a†‖) for a ≠ a†, norms in Σ⁻¹ (Garcelon et al. 2020).
    Theirs is a model with one parameter per arm; here, as in all of this package, one θ̂ serves all actions. It is the
    ridge estimate from the clean rewards, with OFUL's radius β.
    """

    epsilon: float = 0.5
    """ε."""
    delta: float = 0.05
    """With which probability β may fail."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share("epsilon", self.epsilon)
        if positive("delta", self.delta) >= 1.0:
            raise ValueError(f"delta must be below 1, got {self.delta!r}")

    def start(self, draw: Draws, environment: Environment) -> None:
        bounds = environment.action_bound, environment.parameter_bound
        self._setting = radius.Setting(environment.dim, environment.noise_range, *bounds, self.delta, 1.0)
        self._ridge = Ridge(rows=len(draw), dim=environment.dim, regularization=1.0)

    def corrupt(self, offer: Offer) -> Floats:
        assert isinstance(offer.actions, np.ndarray)
        means = np.matvec(offer.actions, self._ridge.mean)
        widths = np.linalg.norm(offer.actions @ self._ridge.root, axis=2)
        widths *= radius.oful(self._setting, self._ridge.log_det)[:, None]
        lower = np.take_along_axis(np.clip(means - widths, 0.0, 1.0), self.aim(offer)[:, None], axis=1)
        return self.spare(offer, (1.0 - self.epsilon) * lower - np.clip(means + widths, 0.0, 1.0))

    def observe(self, offer: Offer, played: Index, reward: Floats) -> None:
        assert isinstance(offer.actions, np.ndarray)
        rows = np.arange(len(played))
        self._ridge.update(offer.actions[rows, played], reward, np.ones(len(played)))
