"""What was decided and earned by each action, and for each source, over time and in all. It is part of the fold, and
takes a bounded space, whatever names come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

import msgspec

from robandit.service.learning.history import SCALES

MOST = 32
"""Number of names that are told apart."""
IDLE = 86_400.0
"""Seconds after which a name that did not come again makes room for a new one."""
OTHERS = 0
"""Number that stands for all names that are not told apart."""

Sums: TypeAlias = list[Any]
"""Decisions, rewards, the sum of those rewards, and the sum of their squares."""
_ROW = Struct("<IIIdd")  # the number of a name, and its sums


class Name(msgspec.Struct, array_like=True):
    """A name that is told apart."""

    number: int
    at: float
    """When it last came."""
    sums: Sums


class Slice(NamedTuple):
    """A stretch of time that is over: the sums of each number, packed."""

    start: float
    rows: bytes

    def sums(self) -> Iterator[tuple[int, Sums]]:
        """The sums of each number."""
        return ((number, sums) for number, *sums in _ROW.iter_unpack(self.rows))


class Tally:
    """Counts by name. The first `MOST` names are told apart. One that has not come for a day makes room, and counts
    with the others from then on, as do all that find no room. Time must not go back."""

    def __init__(self) -> None:
        self.names: dict[str | None, Name] = {}  # the one that came last at the end
        self._numbers: dict[int, Name] = {}
        self.others: Sums = [0, 0, 0.0, 0.0]
        self._last = OTHERS
        self._slices: dict[str, list[Slice]] = {scale: [] for scale in SCALES}
        self._open: dict[str, tuple[float, dict[int, Sums]]] = {}
        self._until = float("-inf")  # when the first of the open stretches ends

    def decided(self, name: str | None, at: float) -> int:
        """Count a decision; return the number by which `rewarded` knows the name."""
        found = self._come(name, at)
        sums = self.others if found is None else found.sums
        number = OTHERS if found is None else found.number
        sums[0] += 1
        for cell in self._cells(number, at):
            cell[0] += 1
        return number

    def rewarded(self, number: int, at: float, reward: float) -> None:
        """Count the final reward of a decision, for the name of this number."""
        known = self._numbers.get(number)  # unless it has made room meanwhile
        sums = self.others if known is None else known.sums
        for cell in (sums, *self._cells(OTHERS if known is None else number, at)):
            cell[1] += 1
            cell[2] += reward
            cell[3] += reward * reward

    def _come(self, name: str | None, at: float) -> Name | None:
        """The name that comes, if it is told apart from now on."""
        found = self.names.pop(name, None)
        if found is None:
            if len(self.names) >= MOST and not self._make_room(at):
                return None
            self._last += 1
            found = self._numbers[self._last] = Name(self._last, at, [0, 0, 0.0, 0.0])
        found.at = at
        self.names[name] = found
        return found

    def _make_room(self, at: float) -> bool:
        """Let the name that has not come for longest count with the others, if it is idle."""
        idlest = next(iter(self.names))
        if at < self.names[idlest].at + IDLE:
            return False
        gone = self.names.pop(idlest)
        del self._numbers[gone.number]
        add(self.others, gone.sums)
        return True

    def _cells(self, number: int, at: float) -> list[Sums]:
        """The sums of a number in all open stretches of time."""
        if at >= self._until:
            self._turn(at)
        found = []
        for _, sums in self._open.values():
            if (cell := sums.get(number)) is None:
                cell = sums[number] = [0, 0, 0.0, 0.0]
            found.append(cell)
        return found

    def _turn(self, at: float) -> None:
        """Close the stretches that are over, and drop those that are too old."""
        for scale, (width, most) in SCALES.items():
            start = at - at % width
            if scale in self._open and self._open[scale][0] < start:
                before, sums = self._open[scale]
                rows = b"".join(_ROW.pack(number, *one) for number, one in sorted(sums.items()))
                kept = [*self._slices[scale], Slice(before, rows)]
                self._slices[scale] = [one for one in kept if one.start > start - most * width]
            if scale not in self._open or self._open[scale][0] < start:
                self._open[scale] = start, {}
        self._until = min(start + SCALES[scale][0] for scale, (start, _) in self._open.items())

    def over(self, scale: str, now: float) -> Iterator[tuple[float, dict[int, Sums]]]:
        """The stretches of a range that ends now: when each began, and the sums of each number. Those whose names have
        made room count with the others. Nobody may change what this yields."""
        width, most = SCALES[scale]
        first = now - now % width - (most - 1) * width
        known = self._numbers
        slices: Iterable[tuple[float, Any]] = ((one.start, one.sums()) for one in self._slices[scale])
        last = [(start, sums.items()) for start, sums in [self._open[scale]]] if scale in self._open else []
        for start, rows in (*slices, *last):
            if start >= first:
                found: dict[int, Sums] = {}
                for number, sums in rows:
                    if number in known:
                        found[number] = sums
                    else:
                        add(found.setdefault(OTHERS, [0, 0, 0.0, 0.0]), sums)
                yield start, found

    # Keeping.

    def plain(self) -> list[Any]:
        """All of it as plain data."""
        opened = [(scale, start, list(sums.items())) for scale, (start, sums) in self._open.items()]
        return [list(self.names.items()), self.others, self._last, self._slices, opened]

    def restore(self, plain: list[Any]) -> None:
        """Go on from what `plain` gave."""
        names, self.others, self._last, slices, opened = plain
        self.names = {name: Name(*known) for name, known in names}
        self._numbers = {known.number: known for known in self.names.values()}
        self._slices = {scale: [Slice(*one) for one in kept] for scale, kept in slices.items()}
        self._open = {scale: (start, dict(map(tuple, sums))) for scale, start, sums in opened}
        if self._open:
            self._until = min(start + SCALES[scale][0] for scale, (start, _) in self._open.items())


def add(total: Sums, more: Iterable[Any]) -> None:
    """Add sums to sums."""
    for place, value in enumerate(more):
        total[place] += value
