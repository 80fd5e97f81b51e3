"""Decisions and rewards over time, in bounded space: two minutes by the second, two hours by the minute, a week by the
hour."""

from __future__ import annotations

from collections.abc import Sequence

from robandit.wire.types import Bucket

SCALES: dict[str, tuple[float, int]] = {"seconds": (1.0, 120), "minutes": (60.0, 120), "hours": (3600.0, 168)}
"""For each curve, the seconds that a bucket takes and the number of buckets kept."""


class History:
    """Curves of buckets, of which the oldest are dropped. Time must not go back."""

    def __init__(self, curves: dict[str, list[Bucket]] | None = None) -> None:
        self.curves: dict[str, list[Bucket]] = curves or {name: [] for name in SCALES}

    def decided(self, at: float) -> None:
        """Count a decision."""
        for bucket in self._now(at):
            bucket.decisions += 1

    def rewarded(self, at: float, reward: float) -> None:
        """Count a final reward."""
        for bucket in self._now(at):
            bucket.rewards += 1
            bucket.total += reward

    def _now(self, at: float) -> Sequence[Bucket]:
        """The last bucket of every curve, which is a new one where its time has come."""
        found = []
        for name, (width, most) in SCALES.items():
            curve = self.curves[name]
            if not curve or at >= curve[-1].start + width:
                curve.append(Bucket(at - at % width))
                del curve[:-most]
            found.append(curve[-1])
        return found
