"""The environments that have a name: synthetic ones with some of their parts set."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from robandit.lab.environments.synthetic import Synthetic


@dataclass(kw_only=True, frozen=True)
class Paper(Synthetic):
    """The paper's experiment: fresh sets during the attack, then one fixed set; σ_t ≤ 0.05, Gaussian noise."""

    fresh_rounds: int | None = None
    """Rounds with a fresh decision set; then the set stays the same. By default as many as the attack's ``opening``."""

    def facing(self, attack: object) -> Self:
        if self.fresh_rounds is not None:
            return self
        return replace(self, fresh_rounds=getattr(attack, "opening", 0))


@dataclass(kw_only=True, frozen=True)
class Fresh(Synthetic):
    """The paper's experiment with a fresh decision set in every round."""


@dataclass(kw_only=True, frozen=True)
class Heteroscedastic(Synthetic):
    """Noise whose σ_t lies on both sides of the policies' floor (R+1)/√d, which is 0.34 at the paper's d = 20."""

    sigma_low: float = 0.05
    sigma_high: float = 0.5
    noise: str = "two-point"


@dataclass(kw_only=True, frozen=True)
class Bernoulli(Synthetic):
    """Rewards are 0 or 1, as clicks are, and ⟨a, μ*⟩ is the probability of a 1."""

    noise_range: float = 1.0
    noise: str = "bernoulli"


@dataclass(kw_only=True, frozen=True)
class Clicks(Bernoulli):
    """Clicks as a shop has them: rates between 2 and 40 %, linear in features of which the first is constant."""

    dim: int = 6
    actions: int = 10
    parameter: str = "random"
    lowest: float | None = 0.02
    highest: float | None = 0.40


@dataclass(kw_only=True, frozen=True)
class PerActionNoise(Synthetic):
    """Every action has its own noise and its own σ."""

    sigma_high: float = 0.5
    per_action: bool = True


@dataclass(kw_only=True, frozen=True)
class UnitBall(Synthetic):
    """The decision set is the unit ball."""

    dim: int = 5
    infinite: bool = True


@dataclass(kw_only=True, frozen=True)
class ChangingSets(Synthetic):
    """The size of the decision set changes in every round."""

    fewest: int | None = 2


@dataclass(kw_only=True, frozen=True)
class Delayed(Synthetic):
    """Rewards arrive late, after ten rounds on average; one in ten never arrives."""

    mean_delay: float = 10.0
    lost: float = 0.1


@dataclass(kw_only=True, frozen=True)
class Drift(Synthetic):
    """μ* turns slowly, by a right angle in 10 000 rounds."""

    drift: float = np.pi / 20_000
