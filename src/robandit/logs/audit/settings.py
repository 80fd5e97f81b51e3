"""The settings of an audit: what is assumed of honest feedback, and how often to look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from robandit.arrays import Floats
from robandit.errors import ConfigError
from robandit.inputs import integer
from robandit.monitor.monitor import CorruptionMonitor

LEARNED = 64
"""The number of rounds, the first, from which features are scaled. They prove nothing, so the scales are fixed."""
ALONE = 0.2
"""The share of δ that the proof by single rounds has."""
_FIRST, _MANY = 32, 10**6  # the round of the first look, and that of the last one asked for


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What is assumed of honest feedback, and how often an audit looks. `CorruptionMonitor` says more."""

    noise: float | None = None
    """The sub-Gaussian scale of the noise. By default it follows from the range of rewards."""
    reward_range: tuple[float, float] | None = None
    """The lowest and the highest honest reward, if known."""
    highest_mean: float | None = None
    """The most that any honest reward has on average, if known: a cap, not the average rate."""
    misspecification: float | None = None
    """The most by which honest means differ from a linear function of the features; None if nobody declares it."""
    parameter_bound: float | None = None
    """An upper bound on ‖μ*‖, if one is known for sure."""
    delta: float = 0.05
    """The probability of a false alarm, over all looks."""
    sources: int = 0
    """The number of sources to tell apart."""
    looks: int = 60
    """The number of looks at a log of a million rows; they are log-spaced."""
    intercept: bool = True
    """Whether the model has a constant beside the features."""
    single_rounds: bool = True
    """Whether to look at single rounds, too. They have a fifth of δ."""

    def __post_init__(self) -> None:
        try:
            self.monitor(1)
            integer("looks", self.looks, 2)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def monitor(self, dim: int, tolerance: float | None = None) -> CorruptionMonitor:
        """A fresh monitor with these settings, and with this tolerance for what is not linear."""
        names = ("noise", "reward_range", "highest_mean", "parameter_bound")
        zeta = (self.misspecification or 0.0) if tolerance is None else tolerance
        delta = self.delta * (1.0 - ALONE) if self.single_rounds else self.delta
        own = {name: getattr(self, name) for name in names}
        told = self.sources + 1 if self.sources else 0  # the last stands for all others
        return CorruptionMonitor(dim=dim, misspecification=zeta, delta=delta, sources=told, **own)

    def clip(self, rewards: Floats) -> Floats:
        """Rewards brought into the honest range."""
        return rewards if self.reward_range is None else np.clip(rewards, *self.reward_range)

    def schedule(self) -> Iterator[int]:
        """The rounds after which to look, log-spaced and without end: they must not depend on the log's length."""
        at = 0
        for place in count():
            at = max(at + 1, round(_FIRST * (_MANY / _FIRST) ** (place / (self.looks - 1))))
            yield at
