"""An attack by a bias that is too small to be seen in any single reward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import TINY, Floats
from robandit.inputs import positive
from robandit.lab.attacks.base import Attack
from robandit.lab.environments import Environment, Offer
from robandit.streams import Draws


@dataclass(kw_only=True)
class Stealth(Attack):
    """Adds a bias that is smaller than the noise and linear in the features until the budget is spent.

    The bias grows with how far an action points in a random direction at right angles to μ*, up to ``share``·σ_t. No
    reward looks odd, and all of them fit the same wrong parameter.
    """

    strength = "weak"

    budget: float | None = 100.0
    share: float = 0.5
    """Largest bias as a multiple of σ_t."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("share", self.share)

    def start(self, draw: Draws, environment: Environment) -> None:
        self._direction = draw.normal(environment.dim).at(0)

    def corrupt(self, offer: Offer) -> Floats:
        assert isinstance(offer.actions, np.ndarray)
        truth = offer.menu.parameter
        along = np.vecdot(self._direction, truth) / np.maximum(np.vecdot(truth, truth), TINY)
        # In one dimension nothing is at right angles to μ*; its opposite takes that place.
        wrong = -truth if truth.shape[1] == 1 else self._direction - along[:, None] * truth
        lean = np.matvec(offer.actions, wrong)
        lean /= np.maximum(np.abs(lean).max(axis=1, keepdims=True), TINY)
        sigma = offer.sigma if offer.sigma.ndim == 2 else offer.sigma[:, None]
        return self.share * sigma * lean
