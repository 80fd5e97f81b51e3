"""Where the log is kept: what every store promises."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from robandit.wire.events import Closed, Decided, Event, Proved, Rewarded, decode

KINDS: dict[type, int] = {Decided: 0, Rewarded: 1, Closed: 1, Proved: 2}
"""A bandit's log has one event of an id and a kind. That is what makes a decision, and its reward or default, happen
once: whatever the code above it does, a second one can't be written."""


class Bandit(NamedTuple):
    """A bandit's entry."""

    number: int
    name: str
    settings: bytes
    seed: int
    at: float


class Entry(NamedTuple):
    """An event and its place in a bandit's log, from 1 on."""

    bandit: int
    place: int
    event: Event


class Snapshot(NamedTuple):
    """A state, so that a start need not fold the whole log."""

    bandit: int
    place: int
    body: bytes


Item: TypeAlias = Bandit | Entry


class StoreError(Exception):
    """Not acknowledged. After a restart it may be there, whole, or not at all: ask again with the same ids."""


class Store(Protocol):
    """All bandits and their logs.

    A group of changes begins with `news`, after which nobody else writes. It ends with `put` and `commit`, or with
    `release`.
    """

    shared: bool
    """Whether other processes may have it open, too."""

    def news(self) -> list[Item]:
        """What other processes have written since the last call, in its order; nobody writes from now on."""
        ...

    def put(self, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
        """Hand these over, all or none. They are not safe yet."""
        ...

    def commit(self) -> None:
        """Once this returns, no crash loses what was put; and others may write."""
        ...

    def release(self) -> None:
        """Write nothing, and let others write."""
        ...

    def now(self) -> float:
        """The time, in seconds since 1970; the same clock for all who share the store."""
        ...

    def watches(self) -> bool:
        """Whether it is for this process, and no other that shares the store, to look at the monitors."""
        ...

    def bandits(self) -> list[Bandit]: ...

    def page(self, bandit: int, after: int) -> list[bytes]:
        """Some of the log after a place, in its order, as `encode` has it; none once there is no more."""
        ...

    def find(self, bandit: int, id: str, *, final: bool) -> Event | None:  # noqa: A002
        """The decision of this id, or its reward or default."""
        ...

    def snapshot(self, bandit: int) -> Snapshot | None:
        """The last that was kept."""
        ...

    def close(self) -> None: ...


def append(store: Store, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
    """Put and commit."""
    store.put(items, snapshots)
    store.commit()


PAGE = 1000
"""Events that are read at a time."""


def events(store: Store, bandit: int, after: int = 0) -> Iterator[Event]:
    """The log of a bandit from one place on, in its order."""
    while page := store.page(bandit, after):
        yield from map(decode, page)
        after += len(page)
