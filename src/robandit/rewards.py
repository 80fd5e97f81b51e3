"""What a reward can be, declared once: from it follow the noise, the bounds, and the units in which policies think."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite, log, sqrt
from typing import Any, Self, TypeAlias

import numpy as np

from robandit.arrays import Floats
from robandit.errors import Configured, nearest
from robandit.inputs import as_floats, probability

Declared: TypeAlias = "str | tuple[float, float] | Mapping[str, Any] | Rewards"
"""A declaration as callers pass it: "clicks", (lowest, highest), the JSON of `Rewards`, or `Rewards` itself."""

KINDS = {"clicks": (0.0, 1.0)}
"""Rewards that have a name, and their range."""


@dataclass(frozen=True, kw_only=True)
class Rewards(Configured):
    """The range of honest rewards and, if one is known, a cap on their means. By default rewards are clicks.

    Policies see rewards as shares of the range, from 0 to 1. Regret does not mind: it is only measured in other units.

    >>> stars = Rewards.read((1, 5))
    >>> stars.share(4), stars.noise
    (0.75, 2.0)
    >>> stars.check(6)
    Traceback (most recent call last):
    ValueError: reward must lie in the declared range from 1 to 5, got 6; send what was meant, or declare another range
    >>> round(Rewards(highest_mean=0.05).noise, 3)      # clicks of which at most 5 % are expected
    0.391
    """

    low: float = 0.0
    """The lowest reward."""
    high: float = 1.0
    """The highest reward."""
    highest_mean: float | None = None
    """The most that any honest reward has on average, given the past and the action: a cap, not the average rate."""

    def __post_init__(self) -> None:
        for name, value in zip(("low", "high"), read_range("rewards", (self.low, self.high)), strict=True):
            object.__setattr__(self, name, value)
        if self.highest_mean is not None:
            cap = as_floats("highest_mean", self.highest_mean).item()
            probability("highest_mean, as a share of the range,", (cap - self.low) / self.width)
            object.__setattr__(self, "highest_mean", cap)

    @classmethod
    def read(cls, given: Any) -> Self:
        """Rewards as callers declare them, in any of the forms of `Declared`."""
        if isinstance(given, cls):
            return given
        if isinstance(given, str):
            if given not in KINDS:
                raise ValueError(
                    f"rewards must be (lowest, highest) or a known kind, got {given!r}{nearest(given, KINDS)}"
                )
            given = KINDS[given]
        if isinstance(given, Mapping):
            return cls(**given)
        low, high = read_range("rewards", given)
        return cls(low=low, high=high)

    def to_json(self) -> dict[str, Any]:
        """The declaration as plain data, which `read` reads."""
        return asdict(self)

    @property
    def width(self) -> float:
        """The length of the range."""
        return self.high - self.low

    @property
    def cap(self) -> float:
        """The highest mean as a share of the range: 1 if nobody knows better."""
        return 1.0 if self.highest_mean is None else self.share(self.highest_mean)

    @property
    def noise(self) -> float:
        """The sub-Gaussian scale of the noise, in units of reward."""
        return sub_gaussian(self.width, self.cap)

    @property
    def sigma(self) -> float:
        """The most that the standard deviation of a reward can be, as a share of the range."""
        return sqrt(self.cap * (1.0 - self.cap)) if self.cap < 0.5 else 0.5

    def check(self, reward: Any, name: str = "reward") -> float:
        """Read a reward, which must lie in the range."""
        if type(reward) is not float:
            reward = _number(name, reward)
        if self.low <= reward <= self.high:
            return reward
        if reward != reward:
            raise ValueError(f"{name} must be a number, got {reward!r}; a decision whose reward is not known gets none")
        raise ValueError(
            f"{name} must lie in the declared range from {self.low:g} to {self.high:g}, got {reward:g}; send what was "
            "meant, or declare another range"
        )

    def share(self, reward: float) -> float:
        """A reward as a share of the range, as policies see it."""
        return (reward - self.low) / self.width

    def reward(self, share: float) -> float:
        """The reward that is this share of the range."""
        return self.low + self.width * share

    def for_policy(self) -> dict[str, Any]:
        """The bounds of a policy that sees shares of the range. No such reward is ever clipped."""
        return {"noise_range": 1.0, "mean_bound": self.cap}

    def for_monitor(self) -> dict[str, Any]:
        """What a monitor that sees the rewards themselves may assume."""
        return {"reward_range": (self.low, self.high), "highest_mean": self.highest_mean}


def _number(name: str, value: Any) -> float:
    if value is None or isinstance(value, str):
        remedy = "a decision whose reward is not known gets none" if value is None else "turn text into one by float()"
        raise ValueError(f"{name} must be a number, got {value!r:.60}; {remedy}")
    array = as_floats(name, value)
    if array.shape != () or not isfinite(array):
        raise ValueError(f"{name} must be one finite number, got {value!r}")
    return float(array)


def read_range(name: str, value: Any) -> tuple[float, float]:
    """Read the lowest and the highest reward."""
    ends: Floats = as_floats(name, value)
    if ends.shape != (2,) or not np.isfinite(ends).all() or not ends[0] < ends[1]:
        raise ValueError(f"{name} must be (lowest, highest), got {value!r}")
    return float(ends[0]), float(ends[1])


def sub_gaussian(width: float, cap: float) -> float:
    """The sub-Gaussian scale of rewards in an interval of length W whose means are at most p·W above its lower end.

    W √((1 − 2p)/(2 log((1 − p)/p))), and W/2 from p = ½ on (Kearns and Saul 1998).

    >>> [round(sub_gaussian(1.0, p), 3) for p in (0.01, 0.05, 0.2, 0.5, 1.0)]
    [0.327, 0.391, 0.465, 0.5, 0.5]
    """
    if cap >= 0.499:  # where the formula is 0/0
        return 0.5 * width
    return width * sqrt((1.0 - 2.0 * cap) / (2.0 * log((1.0 - cap) / cap)))
