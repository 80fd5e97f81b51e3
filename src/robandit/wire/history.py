"""Traffic and rewards over time, in a bounded space: the last minutes by the second, and so on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

SCALES: dict[str, tuple[float, int]] = {"seconds": (1.0, 120), "minutes": (60.0, 120), "hours": (3600.0, 168)}
"""How many seconds a bucket of each curve takes, and how many buckets are kept."""


class Bucket(msgspec.Struct, array_like=True):
    """What happened in some seconds from ``start`` on, in seconds since 1970."""

    start: float
    decisions: int = 0
    rewards: int = 0
    """Rewards that became final, defaults included,"""
    total: float = 0.0
    """and their sum."""


class History:
    """Some curves, of which old buckets are dropped. Time must not go back."""

    def __init__(self, curves: dict[str, list[Bucket]] | None = None) -> None:
        self.curves: dict[str, list[Bucket]] = curves or {name: [] for name in SCALES}

    def decided(self, at: float) -> None:
        for bucket in self._now(at):
            bucket.decisions += 1

    def rewarded(self, at: float, reward: float) -> None:
        for bucket in self._now(at):
            bucket.rewards += 1
            bucket.total += reward

    def _now(self, at: float) -> Sequence[Bucket]:
        """The last bucket of every curve, a new one where its time has come."""
        found = []
        for name, (width, most) in SCALES.items():
            curve = self.curves[name]
            if not curve or at >= curve[-1].start + width:
                curve.append(Bucket(at - at % width))
                del curve[:-most]
            found.append(curve[-1])
        return found
