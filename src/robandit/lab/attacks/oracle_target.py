"""Jun et al.'s attack by an adversary that knows μ*."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats
from robandit.inputs import positive
from robandit.lab.attacks.base import Targeted
from robandit.lab.environments import Offer


@dataclass(kw_only=True)
class OracleTarget(Targeted):
    """Makes every other action look worse than the target: −[⟨a − a†, μ*⟩ + ξ]₊ (Jun et al. 2018, for linear means)."""

    margin: float = 0.01
    """Margin ξ by which other actions look worse than the target."""

    def __post_init__(self) -> None:
        super().__post_init__()
        positive("margin", self.margin)

    def corrupt(self, offer: Offer) -> Floats:
        target = np.take_along_axis(offer.means, self.aim(offer)[:, None], axis=1)
        return self.spare(offer, -np.maximum(offer.means - target + self.margin, 0.0))
