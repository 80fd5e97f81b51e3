"""What is declared of honest rewards: the scale of their noise, their range, and how high they are on average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robandit.inputs import positive
from robandit.monitor.radii import RareEvents
from robandit.rewards import Rewards, read_range


def read_noise(value: Any, batch: int, single: bool) -> float | tuple[float, ...]:
    """The scale of the noise, or in a batch one for each stream."""
    if single or not isinstance(value, (Sequence, np.ndarray)):
        return positive("noise", value)
    if len(value) != batch:
        raise ValueError(f"noise must be one number or {batch}, got {len(value)}")
    return tuple(positive("noise", one) for one in value)


def read_declared(interval: Any, mean: Any, noise: Any) -> Rewards | None:
    """The rewards that ``reward_range`` and ``highest_mean`` declare, if they do."""
    if interval is None:
        if mean is not None:
            raise ValueError("highest_mean needs reward_range, and takes the place of noise")
        if noise is None:
            raise ValueError("noise must be given, or else reward_range, from which it follows")
        return None
    low, high = read_range("reward_range", interval)
    if mean is not None and noise is not None:
        raise ValueError("highest_mean needs reward_range, and takes the place of noise")
    return Rewards(low=low, high=high, highest_mean=mean)


def rare_events(declared: Rewards | None) -> RareEvents | None:
    """What a cap on the means says of the noise beyond its scale."""
    if declared is None or declared.highest_mean is None:
        return None
    return RareEvents(declared.width, declared.cap)
