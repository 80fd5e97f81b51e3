"""The absence of an attack."""

from __future__ import annotations

from dataclasses import dataclass

from robandit.arrays import Floats
from robandit.lab.attacks.base import Attack
from robandit.lab.environments import Offer


@dataclass(kw_only=True)
class NoAttack(Attack):
    """All rewards are the true ones."""

    strength = "weak"
    infinite = True

    def corrupt(self, offer: Offer) -> Floats | None:
        return None

    @property
    def label(self) -> float:
        return 0.0
