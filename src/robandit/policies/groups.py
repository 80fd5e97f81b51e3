"""Groups of rounds: every source's rewards in a few stretches of time, each with the sums of a regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Bools, Floats, Index, Ints, T, count_to
from robandit.policies.parts import FieldArrays

FREE = -1
"""The slot of a place that is not in use, and the group of a source that has none yet."""

_SHORTEST = 16  # rewards in a stretch before the next one begins
_APART = 8.0  # how much longer two stretches must be to be merged where one is believed and the other is not


@dataclass(kw_only=True)
class RoundGroups(FieldArrays):
    """The groups of every trial: (B, G) places. Each source has one or more stretches of time among them."""

    precision: Floats
    """V = Σ w a aᵀ, (B, G, d, d)."""
    target: Floats
    """b = Σ w r a, (B, G, d)."""
    squares: Floats
    """Σ w r², (B, G)."""
    mass: Floats
    """Σ w, (B, G)."""
    counts: Ints
    """The number of rewards, (B, G)."""
    slot: Ints
    """The slot of the source, (B, G); −1 where the place is free."""
    since: Ints
    """The update with which the stretch began, (B, G)."""
    last: Ints
    """The update that came last, (B, G)."""
    weight: Floats
    """How far the last vote believes the group, from 0 to 1, (B, G)."""
    current: Ints
    """The group that a source's next reward belongs to, (B, sources); −1 if it has none yet."""

    def __post_init__(self) -> None:
        self.changed: Bools = np.ones(self.slot.shape, dtype=bool)  # since somebody looked; no part of the statistics

    @classmethod
    def new(cls, batch: int, sources: int, places: int, dim: int) -> RoundGroups:
        """Groups that have seen nothing, with room for so many sources and groups in each trial."""
        whole = batch, places
        return cls(
            precision=np.zeros((*whole, dim, dim)),
            target=np.zeros((*whole, dim)),
            squares=np.zeros(whole),
            mass=np.zeros(whole),
            counts=np.zeros(whole, np.int64),
            slot=np.full(whole, FREE, np.int64),
            since=np.zeros(whole, np.int64),
            last=np.zeros(whole, np.int64),
            weight=np.ones(whole),
            current=np.full((batch, sources), FREE, np.int64),
        )

    def part(self, trials: Index) -> RoundGroups:
        """The groups of some trials, without places that none of them uses."""
        used = int((self.slot[trials] != FREE).sum(axis=1).max())
        arrays = {name: part_of(array, trials, used) for name, array in self.arrays().items() if name != "current"}
        return RoundGroups(**arrays, current=self.current[trials])

    def find(self, slots: Index, seen: Bools, now: Ints, stretches: int, trust: Floats) -> Index:
        """The group of the next reward from each of these slots, (B,); where the last is long enough, a new one.

        The first group of a source is believed by ``trust`` (B, sources).
        """
        trials = count_to(len(slots))
        found: Index = self.current[trials, slots]
        length = np.maximum(_SHORTEST, now // stretches)
        full = seen & ((found == FREE) | (self.counts[trials, found] >= length))
        if full.any():
            for trial in np.flatnonzero(full).tolist():
                slot = int(slots[trial])
                found[trial] = self.open(trial, slot, int(now[trial]), stretches, float(trust[trial, slot]))
        return found

    def open(self, trial: int, slot: int, now: int, stretches: int, trust: float) -> int:
        """Begin a new stretch of a source. It is believed as the one before it was, the first one by ``trust``."""
        before = self.current[trial, slot]
        known = np.count_nonzero(self.current[trial] != FREE) + (before == FREE)
        used = np.count_nonzero(self.slot[trial] != FREE)
        place = self.merge(trial) if used >= stretches + 2 * known else used
        before = self.current[trial, slot]  # which may have been merged
        self.slot[trial, place], self.since[trial, place] = slot, now
        self.weight[trial, place] = trust if before == FREE else self.weight[trial, before]
        self.current[trial, slot] = place
        return int(place)

    def merge(self, trial: int) -> int:
        """Merge the two neighbouring stretches of a source that have fewest rewards together; the place that is free.

        Stretches of which only one is believed had better be kept apart.
        """
        order = np.lexsort((self.since[trial], self.slot[trial]))
        order = order[self.slot[trial, order] != FREE]
        early, late = order[:-1], order[1:]
        cost = (self.counts[trial, early] + self.counts[trial, late]) * (
            1.0 + _APART * np.abs(self.weight[trial, early] - self.weight[trial, late])
        )
        best = np.where(self.slot[trial, early] == self.slot[trial, late], cost, np.inf).argmin()
        into, gone = int(early[best]), int(late[best])
        share = self.counts[trial, gone] / (self.counts[trial, into] + self.counts[trial, gone])
        self.weight[trial, into] += share * (self.weight[trial, gone] - self.weight[trial, into])
        for sums in (self.precision, self.target, self.squares, self.mass, self.counts):
            sums[trial, into] += sums[trial, gone]
            sums[trial, gone] = 0
        self.last[trial, into] = self.last[trial, gone]
        self.changed[trial, [into, gone]] = True
        self.current[trial][self.current[trial] == gone] = into
        return gone

    def add(self, groups: Index, actions: Floats, rewards: Floats, weights: Floats, now: Ints) -> None:
        """Fold one reward into a group of each trial; a weight of 0 changes nothing."""
        if len(groups) == 1:
            if weights[0]:
                self._add_one((0, groups.item()), actions[0], rewards.item(), weights.item(), now.item())
            return
        at, weighted, seen = (count_to(len(groups)), groups), weights[:, None] * actions, weights > 0.0
        self.precision[at] += weighted[:, :, None] * actions[:, None, :]
        self.target[at] += rewards[:, None] * weighted
        self.squares[at] += weights * (rewards * rewards)
        self.mass[at] += weights
        self.counts[at] += seen
        self.last[at] = np.where(seen, now, self.last[at])
        self.changed[at] = True

    def _add_one(self, at: tuple[int, int], action: Floats, reward: float, weight: float, now: int) -> None:
        """Do the same, bit for bit, for a batch of one, as a live service has: batched calls take thrice the time."""
        weighted = weight * action
        self.precision[at] += weighted[:, None] * action
        self.target[at] += reward * weighted
        self.squares[at] += weight * (reward * reward)
        self.mass[at] += weight
        self.counts[at] += 1
        self.last[at] = now
        self.changed[at] = True


def part_of(array: NDArray[T], trials: Index, used: int) -> NDArray[T]:
    """An array (B, G, …) for some trials and the first groups alone: a view where all trials are meant."""
    return array[:, :used] if len(trials) == len(array) else array[trials, :used]
