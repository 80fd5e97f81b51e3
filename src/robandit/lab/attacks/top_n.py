"""Bogunovic et al.'s attack on the best actions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats
from robandit.inputs import integer
from robandit.lab.attacks.base import Attack
from robandit.lab.environments import Offer


@dataclass(kw_only=True)
class TopN(Attack):
    """Turns the rewards of the N best actions into −1 until the budget is spent (Bogunovic et al. 2021)."""

    strength = "strong"

    budget: float | None = 100.0
    count: int = 3
    """Number N of actions under attack."""

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("count", self.count, least=1)

    def corrupt(self, offer: Offer) -> Floats:
        last = max(offer.means.shape[1] - self.count, 0)
        bar = np.partition(offer.means, last, axis=1)[:, last, None]  # the N-th best mean
        return np.where(offer.means >= bar, -1.0 - offer.rewards, 0.0)
