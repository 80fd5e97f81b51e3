"""Garcelon et al.'s simplified attack on rewards."""

from __future__ import annotations

from dataclasses import dataclass

from robandit.arrays import Floats
from robandit.lab.attacks.base import Targeted
from robandit.lab.environments import Offer


@dataclass(kw_only=True)
class GarcelonSimplified(Targeted):
    """Reduces the reward of every action but the target to its noise (Garcelon et al. 2020)."""

    def corrupt(self, offer: Offer) -> Floats:
        return self.spare(offer, -offer.means)
