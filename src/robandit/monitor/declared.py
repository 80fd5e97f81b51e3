"""What is declared of honest rewards: the scale of their noise, their range, and how high they are on average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from robandit.inputs import as_floats, positive, probability
from robandit.monitor.radii import RareEvents


def read_noise(value: Any, batch: int, single: bool) -> float | tuple[float, ...]:
    """The scale of the noise, or in a batch one for each stream."""
    if single or not isinstance(value, (Sequence, np.ndarray)):
        return positive("noise", value)
    if len(value) != batch:
        raise ValueError(f"noise must be one number or {batch}, got {len(value)}")
    return tuple(positive("noise", one) for one in value)


def read_range(value: Any) -> tuple[float, float]:
    """The lowest and the highest honest reward."""
    ends = as_floats("reward_range", value)
    if ends.shape != (2,) or not np.isfinite(ends).all() or not ends[0] < ends[1]:
        raise ValueError(f"reward_range must be (lowest, highest), got {value!r}")
    return float(ends[0]), float(ends[1])


def usual_noise(interval: tuple[float, float] | None, rare: RareEvents | None) -> float:
    """The scale of the noise that follows from the range of honest rewards."""
    if rare is not None:
        return rare.scale
    if interval is None:
        raise ValueError("noise must be given, or else reward_range, from which it follows")
    return 0.5 * (interval[1] - interval[0])


def read_cap(mean: Any, interval: tuple[float, float] | None, noise: Any) -> RareEvents | None:
    """What ``highest_mean`` says of the noise."""
    if mean is None:
        return None
    if interval is None or noise is not None:
        raise ValueError("highest_mean needs reward_range, and takes the place of noise")
    low, width = interval[0], interval[1] - interval[0]
    share = probability(
        "highest_mean, as a share of the range,", (as_floats("highest_mean", mean).item() - low) / width
    )
    return RareEvents(width, share)
