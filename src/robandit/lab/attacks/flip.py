"""The paper's attack."""

from __future__ import annotations

from dataclasses import dataclass

from robandit.inputs import integer
from robandit.lab.attacks.base import Flips


@dataclass(kw_only=True)
class Flip(Flips):
    """Flips the mean of every reward in the first rounds, as in the paper's experiments."""

    rounds: int = 90
    """Number k of rounds that are flipped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("rounds", self.rounds, least=0)

    def when(self, round_: int) -> bool:
        return round_ <= self.rounds

    @property
    def label(self) -> float:
        """The budget, or 2k: the paper's label, although the corruption by its own definition is less."""
        return 2.0 * self.rounds if self.budget is None else self.budget

    @property
    def opening(self) -> int:
        return self.rounds
