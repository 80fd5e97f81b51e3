"""Dissent: single rewards that are too far from what is believed to be noise."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Bools, Floats, Ints
from robandit.policies.parts import FieldArrays

_FAR = 5.0  # a reward that is off by so many standard deviations dissents
_REPEATED = 0.1  # where so many rewards equal the one before, they are counted, not measured, and none dissents
_MEDIAN = 0.6745  # the median of |z| for a normal z
_PACE = 0.03  # how fast the usual distance follows the newest, once there are many
_HASTE, _FIRST = 0.3, 10.0  # the pace with the first reward, and after how many it is half of that


@dataclass(kw_only=True)
class Surprise(FieldArrays):
    """What a batch of policies is used to: how far rewards are from what is expected, and whether they repeat."""

    spread: Floats
    """The usual distance, in standard deviations of the declared noise, (B,): 1 where the declaration is right."""
    latest: Floats
    """The last reward, (B,); 0 before the first."""
    repeats: Ints
    """How many rewards were the same as the one before, (B,)."""

    @classmethod
    def new(cls, batch: int) -> Surprise:
        """Before the first reward."""
        return cls(spread=np.ones(batch), latest=np.zeros(batch), repeats=np.zeros(batch, np.int64))

    def judge(self, distance: Floats, rewards: Floats, least: Floats, now: Ints, seen: Bools) -> Bools:
        """Whether each reward dissents, (B,); then get used to those that don't. Only what is ``seen`` counts.

        ``distance`` (B,) is |r − ⟨a, μ̂⟩| over its standard deviation by the declared noise, ``least`` (B,) the smallest
        spread that is believed in, ``now`` (B,) the number of the reward. Clicks, ratings and amounts that are mostly
        zero repeat themselves. There a single lie looks like a single truth, so nothing dissents.
        """
        self.repeats += seen & (rewards == self.latest) & (now > 1)
        np.copyto(self.latest, rewards, where=seen)
        dissent = seen & (distance > _FAR * np.maximum(self.spread, least)) & (self.repeats <= _REPEATED * now)
        pace = np.maximum(_PACE, _HASTE / (1.0 + now / _FIRST))
        moved = self.spread * np.exp(pace * ((distance > _MEDIAN * self.spread) - 0.5))  # follows the median
        np.copyto(self.spread, moved, where=seen & ~dissent)
        return dissent

    def judge_one(self, distance: float, reward: float, least: float, now: int) -> bool:
        """Do the same, bit for bit, for a batch of one, whose reward is seen."""
        self.repeats[0] += reward == self.latest.item() and now > 1
        self.latest[0] = reward
        spread = self.spread.item()
        if distance > _FAR * max(spread, least) and self.repeats.item() <= _REPEATED * now:
            return True
        pace = max(_PACE, _HASTE / (1.0 + now / _FIRST))
        self.spread[0] = spread * np.exp(pace * ((distance > _MEDIAN * spread) - 0.5))
        return False
