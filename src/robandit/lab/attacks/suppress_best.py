"""An attack on the best action."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats
from robandit.inputs import positive
from robandit.lab.attacks.base import Attack
from robandit.lab.environments import Offer


@dataclass(kw_only=True)
class SuppressBest(Attack):
    """Lowers the reward of the best action to just below that of the second best until the budget is spent."""

    strength = "weak"

    budget: float | None = 100.0
    margin: float = 0.01
    """Distance below the second best action."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("margin", self.margin)

    def corrupt(self, offer: Offer) -> Floats:
        menu = offer.menu
        gap = np.where(np.isfinite(menu.gap), menu.gap, 0.0)[:, None]  # infinite if all actions are best
        behind = menu.best[:, None] - menu.means
        return np.where(behind < np.minimum(menu.gap, 1e300)[:, None] / 2.0, -(gap + self.margin), 0.0)
