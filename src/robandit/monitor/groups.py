"""The sums that are kept of groups of rounds. Putting groups together adds their sums."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Floats


class Groups(NamedTuple):
    """All that is kept of G groups of rounds in each of B streams."""

    gram: Floats
    """V_g (B, G, d, d)."""
    moment: Floats
    """b_g (B, G, d)."""
    reach: Floats
    """max w‖a‖ over the group's rounds, (B, G)."""
    peaks: Floats
    """max w|a_i| over the group's rounds, for each column i, (B, G, d)."""
    weight: Floats
    """Σ w, (B, G)."""
    length: Floats
    """The number of rounds that each will have, known beforehand, (G,). It sets the usual size of λ, nothing else."""
    share: Floats
    """The part of δ that each may use, (G,)."""

    def of(self, row: int) -> Groups:
        """The groups of one stream."""
        return self._replace(**{name: getattr(self, name)[row : row + 1] for name in SUMS})


SUMS = ("gram", "moment", "reach", "peaks", "weight")
"""The fields of `Groups` that hold something of each stream."""


def rank_shares(index: Floats) -> Floats:
    """1/((i + 1)(i + 2)), which adds up to 1 over all i ≥ 0: how δ is shared out among groups without end."""
    return 1.0 / ((index + 1.0) * (index + 2.0))


class Sums:
    """V, b, the reach, the peaks and the weight of a growing number of groups, in B streams."""

    def __init__(self, batch: int, dim: int) -> None:
        self.number = 0
        self._gram, self._moment = np.zeros((8, batch, dim, dim)), np.zeros((8, batch, dim))
        self._reach, self._peaks = np.zeros((8, batch)), np.zeros((8, batch, dim))
        self._weight = np.zeros((8, batch))

    def append(self) -> None:
        """Add an empty group."""
        self.resize(self.number + 1)

    def resize(self, number: int) -> None:
        """Make room for so many groups; new ones are empty."""
        while len(self._reach) < number:
            self._gram, self._moment, self._reach, self._peaks, self._weight = (
                np.concatenate([array, np.zeros_like(array)]) for array in self._all()
            )
        self.number = number

    def add(
        self, place: int, rows: slice | NDArray[np.intp], actions: Floats, rewards: Floats, weights: Floats
    ) -> None:
        """Add one round of each of these streams to a group."""
        if len(self._reach[0]) == 1:
            self._add_one(place, actions[0], float(rewards[0]), float(weights[0]))
            return
        place = place % self.number
        weighted = weights[:, None] * actions
        self._gram[place, rows] += weighted[:, :, None] * actions[:, None]
        self._moment[place, rows] += rewards[:, None] * weighted
        reach = np.sqrt(np.vecdot(weighted, weighted))
        self._reach[place, rows] = np.maximum(self._reach[place, rows], reach)
        self._peaks[place, rows] = np.maximum(self._peaks[place, rows], np.abs(weighted))
        self._weight[place, rows] += weights

    def _add_one(self, place: int, action: Floats, reward: float, weight: float) -> None:
        """Do the same for a single stream, as a live service has: batched calls would take three times as long."""
        place = place % self.number
        weighted = weight * action
        self._gram[place, 0] += weighted[:, None] * action
        self._moment[place, 0] += reward * weighted
        reach = sqrt(weighted.dot(weighted))
        if reach > self._reach[place, 0]:
            self._reach[place, 0] = reach
        peaks = self._peaks[place, 0]
        np.maximum(peaks, np.abs(weighted), out=peaks)
        self._weight[place, 0] += weight

    def fold(self, place: int, actions: Floats, rewards: Floats, weights: Floats) -> None:
        """Add several rounds of a single stream to a group."""
        place = place % self.number
        weighted = weights[:, None] * actions
        self._gram[place, 0] += weighted.T @ actions
        self._moment[place, 0] += rewards @ weighted
        self._reach[place, 0] = np.sqrt(np.vecdot(weighted, weighted)).max(initial=self._reach[place, 0])
        self._peaks[place, 0] = np.maximum(self._peaks[place, 0], np.abs(weighted).max(axis=0, initial=0.0))
        self._weight[place, 0] += weights.sum()

    def merge(self, place: int) -> None:
        """Put a group and the next one together."""
        self._gram[place] += self._gram[place + 1]
        self._moment[place] += self._moment[place + 1]
        for most in (self._reach, self._peaks):
            np.maximum(most[place], most[place + 1], out=most[place])
        self._weight[place] += self._weight[place + 1]
        for array in self._all():
            array[place + 1 : self.number - 1] = array[place + 2 : self.number]
            array[self.number - 1] = 0.0
        self.number -= 1

    def groups(self, firsts: Sequence[int], length: Floats, share: Floats) -> Groups:
        """Neighbours put together: each group reaches from one of ``firsts`` to the next."""
        gram, moment, weight = (
            np.add.reduceat(array[: self.number], firsts) for array in (self._gram, self._moment, self._weight)
        )
        reach, peaks = (np.maximum.reduceat(array[: self.number], firsts) for array in (self._reach, self._peaks))
        sums = zip(SUMS, (gram, moment, reach, peaks, weight), strict=True)
        return Groups(**{name: array.swapaxes(0, 1) for name, array in sums}, length=length, share=share)

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """All sums by name."""
        held = zip(SUMS, self._all(), strict=True)
        return {prefix + name: array[: self.number] for name, array in held}

    def _all(self) -> tuple[Floats, ...]:
        return self._gram, self._moment, self._reach, self._peaks, self._weight
