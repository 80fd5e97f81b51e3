"""A mean of rewards and how far it can be trusted."""

from __future__ import annotations

from math import inf, log, sqrt

from robandit.rewards import Rewards
from robandit.wire.activity import MeanInterval

_Z = 1.959963984540054  # the 97.5 % point of a standard normal
_BITS = log(2.0 / 0.05)
_STEPS = 24  # halvings of an interval, far below what can be seen
FEW = 20
"""Number of rewards below which nothing is said about rewards whose range nobody declared."""


def interval(count: int, total: float, squares: float, declared: Rewards | None) -> MeanInterval | None:
    """The mean of so many rewards, by their sum and the sum of their squares, with its 95 % interval.

    Where a range is declared, the interval is Chernoff's: all p with n·KL(mean, p) ≤ log(2/0.05). It holds for any
    number of rewards in the range, however they are distributed. Otherwise it is the usual one for large numbers.
    """
    if not count:
        return None
    mean = total / count
    if declared is None:
        half = _Z * sqrt(max(0.0, squares / count - mean * mean) / max(1, count - 1))
        low, high = (mean - half, mean + half) if count >= FEW else (None, None)
        return MeanInterval(mean=mean, low=low, high=high)
    share = min(1.0, max(0.0, declared.share(mean)))
    ends = (declared.low + declared.width * _end(share, end, _BITS / count) for end in (0.0, 1.0))
    return MeanInterval(mean=mean, low=next(ends), high=next(ends))


def _end(share: float, end: float, most: float) -> float:
    """The farthest p towards an end of the range whose divergence from a share is at most this."""
    inside, outside = share, end
    for _ in range(_STEPS):
        middle = 0.5 * (inside + outside)
        inside, outside = (middle, outside) if _divergence(share, middle) <= most else (inside, middle)
    return outside


def _divergence(share: float, p: float) -> float:
    """KL of two coins."""
    if not 0.0 < p < 1.0:
        return 0.0 if share == p else inf
    first = share * log(share / p) if share > 0.0 else 0.0
    return first + ((1.0 - share) * log((1.0 - share) / (1.0 - p)) if share < 1.0 else 0.0)
