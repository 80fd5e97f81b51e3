"""An attack in random rounds."""

from __future__ import annotations

from dataclasses import dataclass

from robandit.arrays import Bools
from robandit.inputs import share
from robandit.lab.attacks.base import Flips
from robandit.lab.environments import Environment
from robandit.streams import Draws


@dataclass(kw_only=True)
class RandomFlips(Flips):
    """Flips each round with some probability until the budget is spent."""

    budget: float | None = 100.0
    probability: float = 0.1
    """Probability of flipping a round."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share("probability", self.probability)

    def start(self, draw: Draws, environment: Environment) -> None:
        self._coin = draw.uniform()

    def when(self, round_: int) -> Bools:
        return self._coin.at(round_) < self.probability
