"""Garcelon et al.'s attack on the features instead of the rewards."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import TINY, Floats
from robandit.inputs import positive
from robandit.lab.attacks.base import Targeted
from robandit.lab.environments import Environment, Offer
from robandit.streams import Draws


@dataclass(kw_only=True)
class ContextAttack(Targeted):
    """Scales up the features of all actions but the target, so that they earn less than they seem to promise.

    Rewards are those of the true features (Garcelon et al. 2020). The features shown stay within the action bound. The
    ledger counts how far each action was moved, (scale − 1)‖a‖, which is at least the lie about its mean. All moves are
    made before the action is drawn, so each of them must fit into what is left of the budget.
    """

    scale: float = 2.0
    """Factor by which the features are scaled up."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if positive("scale", self.scale) < 1.0:
            raise ValueError(f"scale must be >= 1, got {self.scale!r}")

    def start(self, draw: Draws, environment: Environment) -> None:
        self._bound = environment.action_bound

    def corrupt(self, offer: Offer) -> None:
        return None

    def disguise(self, offer: Offer) -> Floats:
        assert isinstance(offer.actions, np.ndarray)
        lengths = np.linalg.norm(offer.actions, axis=2)
        farthest = self._bound / np.maximum(lengths, TINY)
        extra = np.minimum(self.scale, np.maximum(farthest, 1.0)) - 1.0
        return offer.actions * (1.0 + self.spare(offer, extra))[:, :, None]
