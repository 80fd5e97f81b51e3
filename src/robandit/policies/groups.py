"""Groups of rounds: every source's rewards in a few stretches of time, each with the sums of a regression.

A source has two sides, each with stretches of its own: rewards that fit what is believed, and those that dissent. When
dissent is believed and something on the other side is not, a new spell of the source begins, and dissent is its norm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Bools, Floats, Index, Ints, T, count_to
from robandit.policies.parts import FieldArrays

FREE = -1
"""The slot of a place that is not in use, and the group of a source that has none yet."""
FITS, DISSENTS = 0, 1
"""The sides of a source."""

_PER_SOURCE = "current", "now"  # the arrays that are not by group
_ADDED = "precision", "target", "squares", "mass", "counts", "last", "changed"  # what a reward is added to
_FIRST, _MORE = 8, 20  # places at first, and how many are made when all are in use: moving them takes time
_SHORTEST = 16  # rewards in a stretch before the next one begins
_OTHER_SPELL = 1e9  # what it costs to merge stretches of two spells: it is the last resort
_APART = 8.0  # how much longer two stretches must be to be merged where one is believed and the other is not


@dataclass(kw_only=True)
class RoundGroups(FieldArrays):
    """The groups of every trial: (B, G) places. Each side of a source has stretches of time among them.

    There are only as many places as were ever needed, since a place holds d² numbers. No result depends on how many.
    """

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
    side: Ints
    """`FITS` or `DISSENTS`, (B, G)."""
    spell: Ints
    """The spell of its source that the group belongs to, (B, G)."""
    since: Ints
    """The update with which the stretch began, (B, G)."""
    last: Ints
    """The update that came last, (B, G)."""
    weight: Floats
    """How far the last vote believes the group, from 0 to 1, (B, G)."""
    current: Ints
    """The group that the next reward on each side of a source belongs to, (B, sources, 2); −1 if it has none yet."""
    now: Ints
    """The spell that each source is in, (B, sources)."""

    def __post_init__(self) -> None:
        self.changed: Bools = np.ones(self.slot.shape, dtype=bool)  # since somebody looked; no part of the statistics
        self._flatten()

    def _flatten(self) -> None:
        """Keep what has a group as one axis of places, too: one index takes a third of the time that two take."""
        kept = {name: array for name, array in self.arrays().items() if name not in _PER_SOURCE}
        self._flat: dict[str, NDArray[Any]] = {
            name: flat(array) for name, array in (*kept.items(), ("changed", self.changed))
        }
        self._first = count_to(len(self.slot)) * self.slot.shape[1]  # the first place of each trial there

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_flat"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._flatten()  # a copy of a view would be no view of the copy

    @classmethod
    def new(cls, batch: int, sources: int, dim: int) -> RoundGroups:
        """Groups that have seen nothing, with room for so many sources."""
        whole = batch, _FIRST
        return cls(
            precision=np.zeros((*whole, dim, dim)),
            target=np.zeros((*whole, dim)),
            squares=np.zeros(whole),
            mass=np.zeros(whole),
            counts=np.zeros(whole, np.int64),
            slot=np.full(whole, FREE, np.int64),
            side=np.zeros(whole, np.int64),
            spell=np.zeros(whole, np.int64),
            since=np.zeros(whole, np.int64),
            last=np.zeros(whole, np.int64),
            weight=np.ones(whole),
            current=np.full((batch, sources, 2), FREE, np.int64),
            now=np.zeros((batch, sources), np.int64),
        )

    def make_room(self, places: int) -> None:
        """Have at least so many places in each trial."""
        batch, there = self.slot.shape
        if places <= there:
            return
        fresh = RoundGroups.new(batch, 1, self.target.shape[-1]).arrays()
        for name, array in self.arrays().items():
            if name not in _PER_SOURCE:
                empty = np.broadcast_to(fresh[name][:, :1], (batch, places - there, *array.shape[2:]))
                setattr(self, name, np.concatenate([array, empty], axis=1))
        self.changed = np.pad(self.changed, ((0, 0), (0, places - there)), constant_values=True)
        self._flatten()

    def used(self, trials: Index) -> int:
        """The most places that one of these trials uses; they come first."""
        return int((self.slot[trials] != FREE).sum(axis=1).max())

    def find(self, slots: Index, sides: Ints, seen: Bools, now: Ints, stretches: int) -> tuple[Index, Index | None]:
        """The group that takes the rewards on each of these sides, (B,), and the trials that need a new one, if any.

        They are those that have none yet, or where the last one is long enough.
        """
        trials = count_to(len(slots))
        found: Index = self.current[trials, slots, sides]
        full = seen & ((found == FREE) | (self.counts[trials, found] >= np.maximum(_SHORTEST, now // stretches)))
        return found, np.flatnonzero(full) if full.any() else None

    def find_one(self, slot: int, side: int, now: int, stretches: int) -> int | None:
        """The same for a batch of one: the group, or None if a new one is needed."""
        group: int = self.current.item(0, slot, side)
        return group if group != FREE and self.counts.item(0, group) < max(_SHORTEST, now // stretches) else None

    def open(self, at: tuple[Index, Index, Ints], now: Ints, stretches: int, first: Floats) -> Index:
        """Begin a new stretch of a side of a source in each of some trials; the place of each.

        It is believed as the one before it was, the first one by ``first``. ``at`` are the trials, slots and sides.
        """
        trials, slots, sides = at
        places: Index = np.add.reduce(self.slot[trials] != FREE, axis=1)
        if places.max() > stretches:
            known = np.add.reduce((self.current[trials] != FREE).reshape(len(trials), -1), axis=1)
            full = places >= stretches + 2 * (known + (self.current[at] == FREE))
            if full.any():
                places[full] = self.merge(trials[full])
        if places.max() == self.slot.shape[1]:
            self.make_room(self.slot.shape[1] + _MORE)
        held, first_of = self._flat, self._first[trials]
        before, place = self.current[at], first_of + places  # what was before may have been merged
        held["slot"][place], held["side"][place], held["since"][place] = slots, sides, now
        held["spell"][place] = self.now[trials, slots]
        weight = held["weight"]
        weight[place] = np.where(before == FREE, first, weight[first_of + before])
        self.current[at] = places
        return places

    def merge(self, trials: Index) -> Index:
        """Merge the two neighbouring stretches of a side that have fewest rewards together; the place that is free.

        Stretches of which only one is believed had better be kept apart, and so had those of different spells.
        """
        kind, since, row = 2 * self.slot[trials] + self.side[trials], self.since[trials], count_to(len(trials))
        order = (kind * (since.max() + 1) + since).argsort(axis=1)  # (m, G); free places come first
        first_of = self._first[trials]
        along = first_of[:, None] + order
        spell, counts, weight = (self._flat[name].take(along) for name in ("spell", "counts", "weight"))
        kind = kind[row[:, None], order]
        cost = (counts[:, :-1] + counts[:, 1:]) * (1.0 + _APART * np.abs(weight[:, 1:] - weight[:, :-1]))
        cost += _OTHER_SPELL * (spell[:, 1:] != spell[:, :-1])
        cost[(kind[:, 1:] != kind[:, :-1]) | (kind[:, 1:] < 0)] = np.inf
        best = cost.argmin(axis=1)
        early, late = order[row, best], order[row, best + 1]
        self._join(first_of + early, first_of + late)
        current = self.current[trials]
        self.current[trials] = np.where(current == late[:, None, None], early[:, None, None], current)
        return late

    def _join(self, into: Index, gone: Index) -> None:
        """Add the later of two groups to the earlier one, in each of some trials, and empty its place.

        They are given as places in arrays that have one axis for all.
        """
        held = self._flat
        counts, weight = held["counts"], held["weight"]
        weight[into] += counts[gone] / (counts[into] + counts[gone]) * (weight[gone] - weight[into])
        for sums in (held["precision"], held["target"], held["squares"], held["mass"], counts):
            sums[into] += sums[gone]
            sums[gone] = 0
        for latest in (held["last"], held["spell"]):  # a new spell's stretches may have begun before old ones
            latest[into] = np.maximum(latest[into], latest[gone])
        held["changed"][into] = held["changed"][gone] = True

    def turn(self, trials: Index, believed: Bools) -> None:
        """Begin a new spell of each source of which dissent is ``believed`` (n, G) and what it contradicts is not.

        Dissent that is believed belongs to the new spell, and is what fits there.
        """
        used = believed.shape[1]
        slot, side, spell = (part_of(array, trials, used) for array in (self.slot, self.side, self.spell))
        mine = (slot != FREE) & (spell == np.take_along_axis(self.now[trials], np.maximum(slot, 0), axis=1))
        risen, fallen = mine & believed & (side == DISSENTS), mine & ~believed & (side == FITS)
        for row in np.flatnonzero(risen.any(axis=1) & fallen.any(axis=1)).tolist():
            trial, own = int(trials[row]), slot[row]
            for source in set(own[risen[row]].tolist()) & set(own[fallen[row]].tolist()):
                up = np.flatnonzero(risen[row] & (own == source))
                self.now[trial, source] += 1
                self.spell[trial, up], self.side[trial, up] = self.now[trial, source], FITS
                self.current[trial, source] = up[self.since[trial, up].argmax()], FREE

    def closed(self, trials: Index, used: int) -> Bools:
        """Which of the first groups of some trials belong to a spell that is over, (n, G)."""
        slot, spell = part_of(self.slot, trials, used), part_of(self.spell, trials, used)
        return (slot != FREE) & (spell < np.take_along_axis(self.now[trials], np.maximum(slot, 0), axis=1))

    def add(
        self, groups: Index, actions: Floats, rewards: Floats, weights: Floats, now: Ints, kernel: Any = None
    ) -> None:
        """Fold one reward into a group of each trial; a weight of 0 changes nothing. ``kernel``: see `load_kernel`."""
        held, at = self._flat, self._first + np.maximum(groups, 0)  # who sees nothing may not have a group yet
        if kernel is not None:
            into = [held[name] for name in _ADDED]
            kernel.add(*into, at, *map(np.ascontiguousarray, (actions, rewards, weights, now)))
            return
        weighted, seen = weights[:, None] * actions, weights > 0.0
        squares = np.einsum("mi,mj->mij", weighted, actions)
        squares += held["precision"].take(at, axis=0)
        held["precision"][at] = squares
        held["target"][at] += rewards[:, None] * weighted
        held["squares"][at] += weights * (rewards * rewards)
        held["mass"][at] += weights
        held["counts"][at] += seen
        held["last"][at] = np.where(seen, now, held["last"][at])
        held["changed"][at] = True

    def add_one(self, at: tuple[int, int], action: Floats, reward: float, weight: float, now: int) -> None:
        """Do the same, bit for bit, for a batch of one, as a live service has: batched calls take thrice the time."""
        weighted, precision, target = weight * action, self.precision[at], self.target[at]
        precision += weighted[:, None].dot(action[None])  # the outer product, at half the time
        target += reward * weighted
        self.squares[at] += weight * (reward * reward)
        self.mass[at] += weight
        self.counts[at] += 1
        self.last[at] = now
        self.changed[at] = True


def flat(array: NDArray[T]) -> NDArray[T]:
    """An array (B, G, …) with one axis for all places: one index takes a third of the time that two take."""
    return array.reshape(-1, *array.shape[2:])


def part_of(array: NDArray[T], trials: Index, used: int) -> NDArray[T]:
    """An array (B, G, …) for some trials, in order, and the first groups alone: a view where they are neighbours."""
    first, last = int(trials[0]), int(trials[-1])
    return array[first : last + 1, :used] if last - first == len(trials) - 1 else array[trials, :used]
