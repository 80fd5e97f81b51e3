"""What the stores in SQLite and PostgreSQL have in common: how rows are made, read and checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, NamedTuple
from zlib import crc32

import msgspec

from robandit.service.stores.store import (
    KINDS,
    PAGE,
    PAGE_BYTES,
    UNPLACED,
    Bandit,
    Beginning,
    DamageError,
    Held,
    Item,
    LogEntry,
    Purge,
    Rewrite,
    Snapshot,
    tombstone,
)
from robandit.wire.events import Changed, Erased, Event, decode, pack

EVENTS = "SELECT bandit, place, kind, id, body, crc FROM events WHERE bandit = ?"
REMEDY = "restore it from a backup, and see what else `robandit check` finds"


def checksum(*row: Any) -> int:
    """A sum over all values of a row, which any burst of up to 32 changed bits changes."""
    return crc32(_ENCODE(row))


_ENCODE = msgspec.msgpack.Encoder().encode


def bandit_row(bandit: Bandit) -> tuple[Any, ...]:
    """A row of the table ``bandits``. A seed may have more bits than a database's integers."""
    row = (*bandit[:3], str(bandit.seed), bandit.at)
    return *row, checksum(*row)


class Rows(NamedTuple):
    """What a group of changes does to the tables, in this order."""

    renamed: list[tuple[Any, ...]]
    """Rows of the table ``bandits`` that take the place of others, which were deleted."""
    bandits: list[tuple[Any, ...]]
    entries: list[LogEntry]
    purges: list[Purge]
    beginnings: list[tuple[Any, ...]]
    rewrites: list[LogEntry]

    @classmethod
    def of(cls, items: Sequence[Item]) -> Rows:
        """Sort out the items of a group. A bandit may be made and deleted in the same one."""
        entries = [item for item in items if isinstance(item, LogEntry)]
        erased = {entry.bandit: tombstone(entry) for entry in entries if isinstance(entry.event, Erased)}
        made = [item for item in items if isinstance(item, Bandit)]
        new = {one.number for one in made}
        return cls(
            [bandit_row(one) for number, one in erased.items() if number not in new],
            [bandit_row(erased.get(one.number, one)) for one in made],
            entries,
            [item for item in items if isinstance(item, Purge)],
            [(*item, checksum(*item)) for item in items if isinstance(item, Beginning) and item.bandit not in erased],
            [LogEntry(*item) for item in items if isinstance(item, Rewrite)],
        )


def event_row(entry: LogEntry) -> tuple[int, int, int, str, bytes, int]:
    """A row of the table ``events``."""
    row = entry.bandit, entry.place, KINDS[type(entry.event)], entry.event.id, pack(entry.event)
    return *row, checksum(*row)


def snapshot_row(kept: Snapshot) -> tuple[Any, ...]:
    """A row of the table ``snapshots``."""
    return *kept, checksum(*kept)


def checked(rows: Iterable[tuple[Any, ...]], after: int, damaged: Callable[[int], DamageError]) -> Iterator[bytes]:
    """The events in the rows of a log after a place. Where one is damaged or missing, this raises what ``damaged`` says
    of that place."""
    for place, (*row, crc) in enumerate(rows, start=after + 1):
        if row[1] != place or checksum(*row) != crc:
            raise damaged(place)
        yield row[4]


class SQLReader(ABC):
    """Reads bandits, logs and snapshots from a database. A row that is not as it was written is a `DamageError`."""

    where: str
    """The file or the database, for messages."""

    @abstractmethod
    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a query finds, in which ``?`` stands for each value."""

    @staticmethod
    @abstractmethod
    def _id(id: str) -> str | bytes:  # noqa: A002
        """An id as the database keeps it."""

    @staticmethod
    @abstractmethod
    def _text(id: Any) -> str:  # noqa: A002
        """An id that the database kept: the inverse of `_id`."""

    def bandits(self, after: int = 0) -> list[Bandit]:
        found = []
        query = "SELECT number, name, settings, seed, at, crc FROM bandits WHERE number > ? ORDER BY number"
        for *row, crc in self._rows(query, after):
            if checksum(*row) != crc:
                raise DamageError(f"{self.where}: the settings of bandit {row[1]!r} are damaged; {REMEDY}")
            found.append(Bandit(row[0], row[1], row[2], int(row[3]), row[4]))
        return found

    def ends(self, bandit: int) -> tuple[int, int] | None:
        query = "SELECT place FROM events WHERE bandit = ? ORDER BY place"
        first, last = (self._rows(f"{query} {way} LIMIT 1", bandit) for way in ("ASC", "DESC"))
        return (first[0][0], last[0][0]) if first and last else None

    def page(self, bandit: int, after: int) -> list[bytes]:
        rows = self._rows(f"{EVENTS} AND place > ? ORDER BY place LIMIT ?", bandit, after, self._fit(bandit, after))
        texts = ((*row[:3], self._text(row[3]), *row[4:]) for row in rows)
        return list(checked(texts, after, partial(self._damaged, bandit)))

    def _fit(self, bandit: int, after: int) -> int:
        """Number of events after a place that fit on a page."""
        query = "SELECT length(body) FROM events WHERE bandit = ? AND place > ? ORDER BY place LIMIT ?"
        sizes = accumulate(size for (size,) in self._rows(query, bandit, after, PAGE))
        return max(1, sum(size <= PAGE_BYTES for size in sizes))

    def find(self, bandit: int, id: str, *, final: bool) -> Event | None:  # noqa: A002
        return self._find(bandit, id, int(final))

    def change(self, bandit: int, version: int) -> Event | None:
        return self._find(bandit, str(version), KINDS[Changed])

    def _find(self, bandit: int, id: str, kind: int) -> Event | None:  # noqa: A002
        """The event of an id and a kind."""
        query = "SELECT place, body, crc FROM events WHERE bandit = ? AND id = ? AND kind = ?"
        rows = self._rows(query, bandit, self._id(id), kind)
        if not rows:
            return None
        ((place, body, crc),) = rows
        if checksum(bandit, max(place, UNPLACED), kind, id, body) != crc:
            raise self._damaged(bandit, place)
        return decode(body)

    def held(self, bandit: int, id: str) -> list[Held]:  # noqa: A002
        query = "SELECT place, kind FROM events WHERE bandit = ? AND id = ? AND kind < 2 AND place > 0 ORDER BY kind"
        return [Held(place, kind, id) for place, kind in self._rows(query, bandit, self._id(id))]

    def before(self, bandit: int, place: int, most: int) -> list[Held]:
        query = "SELECT place, kind, id FROM events WHERE bandit = ? AND place > 0 AND place < ?"
        rows = self._rows(f"{query} ORDER BY place DESC LIMIT ?", bandit, place, most)
        return [Held(there, kind, self._text(id)) for there, kind, id in rows]  # noqa: A001

    def _entry(self, bandit: int, place: int, kind: int, id: Any, body: bytes, crc: int) -> LogEntry:  # noqa: A002
        """An event of the log from its row."""
        if checksum(bandit, place, kind, self._text(id), body) != crc:
            raise self._damaged(bandit, place)
        return LogEntry(bandit, place, decode(body))

    def snapshot(self, bandit: int) -> Snapshot | None:
        rows = self._rows("SELECT bandit, place, body, crc FROM snapshots WHERE bandit = ?", bandit)
        if rows and checksum(*rows[0][:3]) != rows[0][3]:
            raise DamageError(f"{self.where}: the snapshot of bandit {self._name(bandit)} is damaged")
        return Snapshot(*rows[0][:3]) if rows else None

    def beginning(self, bandit: int) -> Beginning | None:
        rows = self._rows("SELECT bandit, place, open, body, crc FROM beginnings WHERE bandit = ?", bandit)
        if rows and checksum(*rows[0][:4]) != rows[0][4]:
            raise DamageError(
                f"{self.where}: the state that the log of bandit {self._name(bandit)} begins with is damaged; {REMEDY}"
            )
        return Beginning(*rows[0][:4]) if rows else None

    def _damaged(self, bandit: int, place: int) -> DamageError:
        return DamageError(
            f"{self.where}: event {place} of bandit {self._name(bandit)} is damaged or missing; {REMEDY}"
        )

    def _name(self, bandit: int) -> str:
        rows = self._rows("SELECT name FROM bandits WHERE number = ?", bandit)
        return repr(rows[0][0]) if rows else f"number {bandit}"
