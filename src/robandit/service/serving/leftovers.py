"""Events that nobody reads any more, of deleted bandits and of logs that were cut: they go a few at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from robandit.service.serving.live_bandit import LiveBandit
from robandit.service.stores.store import KINDS, Item, Purge, Store, open_ids
from robandit.wire.events import Cut, Decided

PURGE = 1000
"""Number of events that go at a time."""


@dataclass
class _Before:
    """What a cut has left over."""

    place: int
    """Events before this place may still be there."""
    open: frozenset[str] | None = None
    """The ids of the decisions that stay, once they are read."""


class Leftovers:
    """Knows the bandits of which some events may have to go."""

    def __init__(self) -> None:
        self._left: dict[int, _Before | None] = {}  # by number; None for one that was deleted

    def __contains__(self, number: int) -> bool:
        return number in self._left

    def deleted(self, number: int) -> None:
        """Note that a bandit was deleted."""
        self._left[number] = None

    def cut(self, number: int, begins: int) -> None:
        """Note that a log begins after a place."""
        if begins > 0:
            self._left[number] = _Before(begins + 1)

    def next(self) -> int | None:
        """The number of a bandit of which some events may have to go, until `purge` finds none."""
        return next(iter(self._left), None)

    def purge(self, number: int, bandit: LiveBandit | None, readable: Callable[[], Store], items: list[Item]) -> None:
        """Let the next events of a bandit go."""
        left = self._left[number]
        if left is not None:
            self._purge_before(left, number, bandit, readable, items)
        elif bandit is None or not bandit.fresh:  # otherwise it is being deleted
            self._purge_all(number, readable(), items)

    def _purge_all(self, number: int, store: Store, items: list[Item]) -> None:
        """Of a bandit that was deleted only the last event stays, by which other processes hear of it."""
        ends = store.ends(number)
        if ends is None or ends[0] == ends[1]:
            del self._left[number]
        else:
            items.append(Purge(number, ends[0], min(ends[0] + PURGE, ends[1]) - 1))

    def _purge_before(
        self,
        left: _Before,
        number: int,
        bandit: LiveBandit | None,
        readable: Callable[[], Store],
        items: list[Item],
    ) -> None:
        """The last events go first. So a reward goes before its decision: an id never has a reward alone, which a later
        decision of the id would meet."""
        if bandit is not None and (KINDS[Cut], str(bandit.learner.life.begins)) in bandit.fresh:
            return  # the log is being cut
        store = readable()
        if left.open is None:
            beginning = store.beginning(number)
            left.open = frozenset(() if beginning is None else open_ids(beginning))
        if not (there := store.before(number, left.place, PURGE)):
            del self._left[number]
            return
        keep = tuple(one.place for one in there if one.kind == KINDS[Decided] and one.id in left.open)
        if len(keep) < len(there):
            items.append(Purge(number, there[-1].place, there[0].place, keep))
        left.place = there[-1].place
