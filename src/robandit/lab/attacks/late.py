"""An attack that begins once the policy feels safe."""

from __future__ import annotations

from dataclasses import dataclass

from robandit.inputs import integer
from robandit.lab.attacks.base import Flips


@dataclass(kw_only=True)
class Late(Flips):
    """Flips every round from some round on until the budget is spent."""

    budget: float | None = 100.0
    begin: int = 1000
    """First round that is flipped."""

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("begin", self.begin, least=1)

    def when(self, round_: int) -> bool:
        return round_ >= self.begin
