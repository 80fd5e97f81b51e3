"""Groups of rounds: every source's rewards in a few stretches of time, each with the sums of a regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Bools, Floats, Index, Ints
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
        """The groups of some trials, without places that none of them uses. The open groups of sources are not cut."""
        used = int((self.slot[trials] != FREE).sum(axis=1).max())
        whole = len(trials) == len(self.slot)
        arrays = {name: array[:, :used] if whole else array[trials, :used] for name, array in self.arrays().items()}
        return RoundGroups(**arrays | {"current": self.current[trials]})

    def find(self, trials: Index, slots: Index, seen: Bools, now: Ints, stretches: int) -> Index:
        """The group of the next reward from each of these slots, (B,); where the last is long enough, a new one."""
        found = self.current[trials, slots]
        length = np.maximum(_SHORTEST, now // stretches)
        full = seen & ((found == FREE) | (self.counts[trials, found] >= length))
        for trial in np.flatnonzero(full).tolist():
            found[trial] = self.open(trial, int(slots[trial]), int(now[trial]), stretches)
        return found

    def open(self, trial: int, slot: int, now: int, stretches: int) -> int:
        """Begin a new stretch of a source. It is believed as the one before it was."""
        before = self.current[trial, slot]
        known = np.count_nonzero(self.current[trial] != FREE) + (before == FREE)
        used = np.count_nonzero(self.slot[trial] != FREE)
        place = self.merge(trial) if used >= stretches + 2 * known else used
        before = self.current[trial, slot]  # which may have been merged
        self.slot[trial, place], self.since[trial, place] = slot, now
        self.weight[trial, place] = 1.0 if before == FREE else self.weight[trial, before]
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
        self.current[trial][self.current[trial] == gone] = into
        return gone

    def add(self, trials: Index, groups: Index, actions: Floats, rewards: Floats, weights: Floats, now: Ints) -> None:
        """Fold one reward into a group of each of these trials; a weight of 0 changes nothing."""
        at, weighted = (trials, groups), weights[:, None] * actions
        self.precision[at] += weighted[:, :, None] * actions[:, None, :]
        self.target[at] += rewards[:, None] * weighted
        self.squares[at] += weights * rewards**2
        self.mass[at] += weights
        self.counts[at] += weights > 0.0
        self.last[at] = np.where(weights > 0.0, now, self.last[at])
