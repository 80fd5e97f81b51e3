"""What every store promises: an event is kept once, in its order, and for good."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

import msgspec

from robandit.wire.events import (
    Acknowledged,
    Blank,
    Changed,
    Closed,
    Cut,
    Decided,
    Delivered,
    Erased,
    Event,
    Forgot,
    Imported,
    Proved,
    Rewarded,
    decode,
    encode,
)

KINDS: dict[type, int] = {Decided: 0, Imported: 0, Rewarded: 1, Closed: 1, Proved: 2, Changed: 3, Erased: 3}
KINDS |= {Acknowledged: 4, Delivered: 5, Cut: 6, Blank: 7, Forgot: 8}
"""Kind of each event. A bandit's log has one event of an id and a kind, and the store itself forbids a second one. So a
decision, and its reward or default, happens once, whatever the code above the store does."""
FORMAT = 4
"""Number of the present format of a store, which the store itself keeps. Format 0 had no checksums. In 1, a log held
decisions, rewards, defaults and proofs alone. In 2, every log was whole. In 3, all of an event was JSON. A store of a
newer format is refused; an older one is taken over."""
LANES = 8
"""Number of lanes of a shared store. A bandit is in the lane of its number modulo this, and bandits of different lanes
don't wait for each other. All processes that share a store must agree on it."""
PAGE = 1000
"""Number of events that are read at a time."""
PAGE_BYTES = 4 << 20
"""Bytes of events that are read at a time, unless one event alone has more."""


class Bandit(NamedTuple):
    """A bandit as the store keeps it."""

    number: int
    name: str
    settings: bytes
    seed: int
    at: float
    """Time of its creation, in seconds since 1970."""


UNPLACED = 0
"""Place of a decision that is kept for good, and that has no place in its log yet."""


class LogEntry(NamedTuple):
    """An event of a bandit and its place in that bandit's log, from 1 on, or `UNPLACED`."""

    bandit: int
    place: int
    event: Event


class Purge(NamedTuple):
    """Places of a log, from the first to the last, whose events are to go: the bandit was deleted, or its log cut."""

    bandit: int
    first: int
    last: int
    keep: tuple[int, ...] = ()
    """Those among these places whose events stay."""


class Snapshot(NamedTuple):
    """A bandit's state after the event at a place, so that a start need not fold the whole log."""

    bandit: int
    place: int
    body: bytes


class Beginning(NamedTuple):
    """What a log begins with that was cut at a place: the state there, which is kept until it is cut again."""

    bandit: int
    place: int
    open: bytes
    """The ids of the decisions before that place which stay, as `open_ids` reads them."""
    body: bytes


class Rewrite(NamedTuple):
    """An event that takes the place of another, which is to go."""

    bandit: int
    place: int
    event: Event


class Held(NamedTuple):
    """An event that is in a log: where, of which kind, and its id."""

    place: int
    kind: int
    id: str


Item: TypeAlias = Bandit | LogEntry | Purge | Beginning | Rewrite


class StoreError(Exception):
    """The store can't be opened, or a write was not acknowledged. In the latter case the write is there after a
    restart, whole, or not at all: ask again with the same ids."""


class DamageError(StoreError):
    """Something in the store is not as it was written. The message names the store, the bandit and the event."""


def newer(where: str, found: int) -> str:
    """The reason why a store of a newer format is refused."""
    return f"{where} is of a newer robandit (its format is {found}, and this one knows up to {FORMAT}): update robandit"


class AwayError(StoreError):
    """The store can't be reached now, and may be back later."""


class View(NamedTuple):
    """What a part of a store hears of the rest."""

    entries: list[LogEntry]
    """The events that have a place and are new, lane by lane in their order."""
    heard: list[int]
    """The number of the last event heard of each lane."""
    at: float
    """The time before which everything that was safe has been heard, in seconds since 1970 by the store's clock."""


class StorePart(Protocol):
    """A part of a shared store's logs to which one process adds decisions, without holding others off.

    They are safe at once and have no place yet: whoever calls `Store.news` of their lane next gives them one. After a
    `StoreError` a part is only closed.
    """

    heard: list[int]
    """The number of the last event of each lane when the store was opened."""

    def look(self, after: Sequence[int]) -> View:
        """Return what is new in each lane after the event of a number."""
        ...

    def reserve(self, wanted: Mapping[int, tuple[int, int]]) -> dict[int, range]:
        """Return round numbers that nobody else gets. For each bandit, say a number that they come after, and how
        many."""
        ...

    def add(self, decided: Sequence[LogEntry], until: float) -> set[tuple[int, str]] | None:
        """Keep these decisions for good, except those whose id is taken. Return the bandits and ids of what is kept; or
        None if it was too late, after the time ``until`` by the store's clock, and nothing is kept."""
        ...

    def find(self, bandit: int, id: str, *, final: bool) -> Event | None:  # noqa: A002
        """The decision of an id."""
        ...

    def page(self, bandit: int, after: int) -> list[bytes]:
        """Events after a place of the log, as `Store.page` has them."""
        ...

    def snapshot(self, bandit: int) -> Snapshot | None:
        """The last snapshot kept of a bandit."""
        ...

    def beginning(self, bandit: int) -> Beginning | None:
        """What a log begins with that was cut."""
        ...

    def bandits(self) -> list[Bandit]:
        """All bandits, by number."""
        ...

    def ends(self, bandit: int) -> tuple[int, int] | None:
        """The places of the first and of the last event of a log."""
        ...

    def unplaced(self) -> set[int]:
        """The lanes that have decisions without a place."""
        ...

    def close(self) -> None:
        """Close this part."""
        ...


class Store(Protocol):
    """All bandits and their logs.

    A group of changes begins with `news`, after which nobody else writes. It ends with `put` and `commit`, or with
    `release`. After a `StoreError` a store is only closed.
    """

    shared: bool
    """Whether several processes may have the store open at once."""

    @property
    def heard(self) -> int:
        """Number of the last event of this lane that was heard or written; 0 in a store that is not shared."""
        ...

    def join(self, *, stale: bool) -> StorePart | None:
        """Begin to serve. Those who share a store decide alike: on the newest state; or ``stale``, on one that may be
        old, and then this returns what the decisions are added to."""
        ...

    def lane(self, number: int) -> Store:
        """One lane of a shared store, as a store of its own, which is opened when it is first needed. Lane 0 also makes
        bandits."""
        ...

    def news(self) -> list[Item]:
        """Return what other processes have written since the last call, in its order, and then all decisions that are
        `UNPLACED`, which are to be put with their place. Nobody else writes from now on, until `commit` or `release`,
        but for decisions into a `StorePart`."""
        ...

    def put(self, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
        """Hand these over, all or none. They are not safe before `commit`.

        After an event `Erased` the bandit has no snapshot and no beginning, and its name is free; `bandits` has its
        `tombstone`. A `Beginning` takes the place of the one before.
        """
        ...

    def commit(self) -> None:
        """Make safe what was put: once this returns, no crash loses it. Others may write again."""
        ...

    def release(self) -> None:
        """Write nothing, and let others write."""
        ...

    def now(self) -> float:
        """The time in seconds since 1970, by one clock for all who share the store."""
        ...

    def watches(self) -> bool:
        """Whether this process is the one that looks at the monitors, of all that share the store."""
        ...

    def faults(self) -> list[str]:
        """What is wrong with the database itself. Its rows are checked whenever they are read."""
        ...

    def bandits(self) -> list[Bandit]:
        """All bandits, by number."""
        ...

    def page(self, bandit: int, after: int) -> list[bytes]:
        """Up to `PAGE` events after a place of the log, in its order, as `pack` writes them; none at its end.

        Large ones are fewer, at least one and about `PAGE_BYTES`: while they are read nobody else is served.
        """
        ...

    def find(self, bandit: int, id: str, *, final: bool) -> Event | None:  # noqa: A002
        """The decision of an id; with ``final``, its reward or default."""
        ...

    def change(self, bandit: int, version: int) -> Event | None:
        """The change that made a version of a bandit's settings."""
        ...

    def ends(self, bandit: int) -> tuple[int, int] | None:
        """The places of the first and of the last event that is there. The first is 1 unless the bandit was deleted or
        its log cut."""
        ...

    def before(self, bandit: int, place: int, most: int) -> list[Held]:
        """What a log holds before a place: the last ``most`` events, the nearest first."""
        ...

    def held(self, bandit: int, id: str) -> list[Held]:  # noqa: A002
        """The decision of an id, and its reward or default."""
        ...

    def snapshot(self, bandit: int) -> Snapshot | None:
        """The last snapshot kept of a bandit."""
        ...

    def beginning(self, bandit: int) -> Beginning | None:
        """What a log begins with that was cut. Its events come after that place."""
        ...

    def copy(self, path: Path) -> Generator[None, None, None]:
        """Copy a store that is not shared into a new file, a little at a time, while it is used in between. In the end
        the copy holds all that was committed before, whole groups of what came since, and nothing else."""
        ...

    def close(self) -> None:
        """Close the store. What was put and not committed is dropped."""
        ...


def open_ids(beginning: Beginning) -> list[str]:
    """The ids of the decisions that stay although the log was cut after them, the oldest first."""
    return msgspec.msgpack.decode(beginning.open, type=list[str])


def tombstone(entry: LogEntry) -> Bandit:
    """What stays of a deleted bandit: its number, so that no other gets it, and that it was deleted.

    A bandit's own name can't begin with a slash.
    """
    return Bandit(entry.bandit, f"/{entry.bandit}", encode(entry.event), 0, entry.event.at)


def read_tombstone(bandit: Bandit) -> Erased | None:
    """The event that deleted a bandit; None for one that is there."""
    event = decode(bandit.settings) if bandit.name.startswith("/") else None
    assert event is None or isinstance(event, Erased)
    return event


def append(store: Store, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
    """Put and commit."""
    store.put(items, snapshots)
    store.commit()


def events(store: Store | StorePart, bandit: int, after: int = 0) -> Iterator[Event]:
    """The log of a bandit from one place on, in its order."""
    while page := store.page(bandit, after):
        yield from map(decode, page)
        after += len(page)
