"""An attack at regular intervals."""

from __future__ import annotations

from dataclasses import dataclass

from robandit.inputs import integer
from robandit.lab.attacks.base import Flips


@dataclass(kw_only=True)
class Periodic(Flips):
    """Flips every m-th round until the budget is spent."""

    budget: float | None = 100.0
    every: int = 10
    """Number m of rounds from one flip to the next."""

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("every", self.every, least=1)

    def when(self, round_: int) -> bool:
        return round_ % self.every == 0
