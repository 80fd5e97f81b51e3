"""The paper's attack."""

from __future__ import annotations

from dataclasses import dataclass

from robandit.inputs import integer
from robandit.lab.attacks.base import Flips


@dataclass(kw_only=True)
class Flip(Flips):
    """Flips every reward's mean in the first rounds (the paper's experiments)."""

    rounds: int = 90
    """k, how many rounds."""

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("rounds", self.rounds, least=0)

    def when(self, round_: int) -> bool:
        return round_ <= self.rounds

    @property
    def label(self) -> float:
        """2k, as the paper labels it, although the corruption by its own definition is less; or the budget."""
        return 2.0 * self.rounds if self.budget is None else self.budget

    @property
    def opening(self) -> int:
        return self.rounds
