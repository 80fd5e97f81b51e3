"""How far a quorum has believed each source over time, in bounded space: a part of the state, and so of the fold."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import Floats
from robandit.policies import Policy, Quorum
from robandit.policies.groups import FREE

MOST = 240
"""Largest number of points of a curve."""
_STEPS = 255  # a weight from 0 to 1 is kept in a byte


class Doubt(NamedTuple):
    """When a source came to be doubted."""

    since: int
    """The number of rewards that had been learnt by then."""
    at: float
    """The time of the last of them."""


class TrustHistory:
    """A point for every vote of a quorum; once there are too many, one for every two votes, four, and so on.

    A point has the least weight of each source in its stretch of votes, so that no doubt is smoothed away. All sources
    share the points, which costs a byte for each source.
    """

    def __init__(self) -> None:
        self.moments: list[tuple[int, float]] = []
        """The rewards learnt by the first vote of each point, and its time."""
        self.since: dict[int, Doubt] = {}
        """The sources that are doubted, by slot."""
        self._least: list[bytes] = []  # a row for each moment, with a byte for each slot
        self._votes = 0
        self._span = 1  # the number of votes that a point stands for
        self._held = 0  # the number of votes in the last point

    @classmethod
    def of(cls, policy: Policy) -> TrustHistory | None:
        """The history of a policy that believes some sources more than others; None for all others."""
        return cls() if isinstance(policy, Quorum) else None

    def note(self, policy: Policy, at: float) -> bool:
        """Take note of a vote, if there was one since the last time; return whether. Nearly always there was none."""
        stats = policy.stats
        votes = stats.votes.item()
        if votes == self._votes:
            return False
        self._votes, learnt = votes, int(policy.t.item()) - 1
        self._add((learnt, at), np.rint(_STEPS * stats.trust[0]).astype(np.uint8))
        doubted = stats.doubted[0]
        self.since = {
            slot: known if (known := self.since.get(slot)) and known.since == doubted[slot] else Doubt(learnt, at)
            for slot in np.flatnonzero(doubted != FREE).tolist()
        }
        return True

    def _add(self, moment: tuple[int, float], weights: Any) -> None:
        if self._least and self._held < self._span:
            self._least[-1] = np.minimum(_row(self._least[-1]), weights).tobytes()
            self._held += 1
            return
        if len(self.moments) == MOST:
            self._thin()
        self.moments.append(moment)
        self._least.append(weights.tobytes())
        self._held = 1

    def _thin(self) -> None:
        """Put every two neighbouring points together."""
        pairs = zip(self._least[::2], self._least[1::2], strict=True)
        self._least = [np.minimum(_row(first), _row(second)).tobytes() for first, second in pairs]
        self.moments = self.moments[::2]
        self._span *= 2

    def curve(self, slot: int) -> Floats:
        """The weight of a source at each moment, to a 255th."""
        return np.array([row[slot] for row in self._least]) / _STEPS

    # Keeping.

    def plain(self) -> dict[str, Any]:
        """All of it as plain data."""
        return {
            "moments": self.moments,
            "least": self._least,
            "since": sorted(self.since.items()),
            "counts": [self._votes, self._span, self._held],
        }

    def restore(self, plain: dict[str, Any]) -> None:
        """Go on from what `plain` gave."""
        self.moments = [(learnt, at) for learnt, at in plain["moments"]]
        self._least = list(plain["least"])
        self.since = {slot: Doubt(*doubt) for slot, doubt in plain["since"]}
        self._votes, self._span, self._held = plain["counts"]


def _row(least: bytes) -> Any:
    return np.frombuffer(least, np.uint8)
