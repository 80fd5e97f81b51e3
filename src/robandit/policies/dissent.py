"""Dissent: single rewards that are too far from what is believed to be noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from robandit.arrays import Bools, Floats, Ints
from robandit.policies.parts import FieldArrays

_FAR = 5.0  # a reward that is off by so many standard deviations dissents
_REPEATED = 0.1  # where so many rewards equal the one before, they are counted, not measured, and none dissents
_MEDIAN = 0.6745  # the median of |z| for a normal z
_PACE = 0.03  # how fast the usual distance follows the newest, once there are many
_HASTE, _FIRST = 0.3, 10.0  # the pace with the first reward, and after how many it is half of that
_PACES = np.maximum(_PACE, _HASTE / (1.0 + np.arange(int(_FIRST * _HASTE / _PACE) + 1) / _FIRST))  # the last one stays
_LAST = len(_PACES) - 1
_STEPS: Floats = np.exp(_PACES[:, None] * [-0.5, 0.5])  # what the usual distance is multiplied by, down and up


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

    def judge(
        self, distance: Floats, rewards: Floats, least: Floats, now: Ints, seen: Bools, kernel: Any = None
    ) -> Bools:
        """Whether each reward dissents, (B,); then get used to those that don't. Only what is ``seen`` counts.

        ``distance`` (B,) is |r − ⟨a, μ̂⟩| over its standard deviation by the declared noise, ``least`` (B,) the smallest
        spread that is believed in, ``now`` (B,) the number of the reward. Clicks, ratings and amounts that are mostly
        zero repeat themselves. There a single lie looks like a single truth, so nothing dissents. ``kernel``: see
        `load_kernel`.
        """
        if kernel is not None:
            dissent: Bools = np.empty(len(now), dtype=bool)
            held, given = (self.spread, self.latest, self.repeats, dissent), np.ascontiguousarray(rewards)
            kernel.judge(*held, distance, given, least, now, seen, _STEPS, _FAR, _REPEATED, _MEDIAN)
            return dissent
        self.repeats += seen & (rewards == self.latest) & (now > 1)
        np.copyto(self.latest, rewards, where=seen)
        dissent = seen & (distance > _FAR * np.maximum(self.spread, least)) & (self.repeats <= _REPEATED * now)
        up = (distance > _MEDIAN * self.spread).view(np.int8)  # so that it follows the median
        np.copyto(self.spread, self.spread * _STEPS[np.minimum(now, _LAST), up], where=seen & ~dissent)
        return dissent

    def judge_one(self, distance: float, reward: float, least: float, now: int) -> bool:
        """Do the same, bit for bit, for a batch of one, whose reward is seen."""
        self.repeats[0] += reward == self.latest.item() and now > 1
        self.latest[0] = reward
        spread = self.spread.item()
        if distance > _FAR * max(spread, least) and self.repeats.item() <= _REPEATED * now:
            return True
        self.spread[0] = spread * _STEPS.item(min(now, _LAST), int(distance > _MEDIAN * spread))
        return False
