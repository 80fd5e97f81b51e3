"""A bias too small to be seen in any one reward."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats
from robandit.inputs import positive
from robandit.lab.attacks.base import Attack
from robandit.lab.environments import Environment, Offer
from robandit.streams import Draws


@dataclass(kw_only=True)
class Stealth(Attack):
    """Adds a bias below the noise, linear along a wrong direction, until the budget is spent.

    The direction is random and at right angles to μ*. The bias of an action is in proportion to how far it points
    there, and ``share``·σ_t for the one that points farthest: no reward looks odd, all fit one wrong parameter.
    """

    strength = "weak"

    budget: float | None = 100.0
    share: float = 0.5
    """The largest bias in units of σ_t."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("share", self.share)

    def start(self, draw: Draws, environment: Environment) -> None:
        self._direction = draw.normal(environment.dim).at(0)

    def corrupt(self, offer: Offer) -> Floats:
        assert isinstance(offer.actions, np.ndarray)
        truth = offer.menu.parameter
        along = np.vecdot(self._direction, truth) / np.maximum(np.vecdot(truth, truth), 1e-300)
        # In one dimension there are no right angles: what is left is then the opposite of μ*.
        wrong = -truth if truth.shape[1] == 1 else self._direction - along[:, None] * truth
        lean = np.matvec(offer.actions, wrong)
        lean /= np.maximum(np.abs(lean).max(axis=1, keepdims=True), 1e-300)
        sigma = offer.sigma if offer.sigma.ndim == 2 else offer.sigma[:, None]
        return self.share * sigma * lean
