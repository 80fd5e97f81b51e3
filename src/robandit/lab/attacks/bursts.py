"""An attack that comes in bursts."""

from __future__ import annotations

from dataclasses import dataclass

from robandit.inputs import integer
from robandit.lab.attacks.base import Flips


@dataclass(kw_only=True)
class Bursts(Flips):
    """Flips the first rounds of every period until the budget is spent."""

    budget: float | None = 100.0
    period: int = 500
    """Number of rounds from the start of one burst to the start of the next."""
    length: int = 50
    """Number of rounds that a burst lasts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("period", self.period, least=1)
        if integer("length", self.length, least=1) > self.period:
            raise ValueError(f"length must be at most period = {self.period}, got {self.length}")

    def when(self, round_: int) -> bool:
        return (round_ - 1) % self.period < self.length
