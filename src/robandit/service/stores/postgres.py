"""A store in PostgreSQL, which several services on several machines share.

Each service folds all logs. A bandit is in one of `LANES` lanes, and one service at a time may write to a lane: it
takes the lane's lock, reads what the others have written there since, decides on that state, writes, and commits, which
gives the lock back. So every decision is made on the newest state, there is nothing to hand over when a service dies,
and a bandit's log has one order, in which all services fold it. Bandits of different lanes don't wait for each other.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg

from robandit.service.stores.postgres_link import LANE, SESSION, PostgresLink, event_columns
from robandit.service.stores.postgres_part import PostgresPart
from robandit.service.stores.sql import REMEDY, Rows, checksum, snapshot_row
from robandit.service.stores.store import LANES, PAGE, UNPLACED, Item, LogEntry, Snapshot, StoreError

WRITING, _WATCHING = 0x726F62616E646974, 0x726F62616E646975  # advisory locks; those of other lanes are far from them
_TABLES = f"""
SELECT pg_advisory_xact_lock({WRITING});
CREATE SCHEMA IF NOT EXISTS robandit;
CREATE TABLE IF NOT EXISTS robandit.bandits (
    number BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings BYTEA NOT NULL, seed TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL, crc BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS robandit.events (
    number BIGINT PRIMARY KEY, bandit BIGINT NOT NULL, place BIGINT NOT NULL, kind SMALLINT NOT NULL,
    id BYTEA NOT NULL, body BYTEA NOT NULL, crc BIGINT NOT NULL, UNIQUE (bandit, place), UNIQUE (bandit, id, kind)
);
CREATE TABLE IF NOT EXISTS robandit.snapshots (
    bandit BIGINT PRIMARY KEY, place BIGINT NOT NULL, body BYTEA NOT NULL, crc BIGINT NOT NULL
);
CREATE TABLE IF NOT EXISTS robandit.beginnings (
    bandit BIGINT PRIMARY KEY, place BIGINT NOT NULL, open BYTEA NOT NULL, body BYTEA NOT NULL, crc BIGINT NOT NULL
);
CREATE SEQUENCE IF NOT EXISTS robandit.unplaced;
CREATE TABLE IF NOT EXISTS robandit.rounds (bandit BIGINT PRIMARY KEY, given BIGINT NOT NULL);
"""
_CLOCK_EVERY = 0.2
"""Seconds after which the server's clock is read again."""
_BEFORE = {  # the columns of each table, and its key, before there were checksums
    "bandits": (("number", "name", "settings", "seed", "at"), ("number",)),
    "events": (("bandit", "place", "kind", "id", "body"), ("bandit", "place")),
    "snapshots": (("bandit", "place", "body"), ("bandit",)),
}
# Decisions without a place come in the order in which they came. So one that was asked for after another had been
# answered stands after it in the log, as the monitor needs.
_NEWS = """
SELECT bandit, place, kind, id, body, crc, number FROM events WHERE number >= %s AND number < %s UNION ALL
SELECT bandit, place, kind, id, body, crc, number FROM events WHERE number > %s AND number < %s ORDER BY number
"""
_ADD = """
INSERT INTO events SELECT * FROM
unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::smallint[], %b::bytea[], %b::bytea[], %b::bigint[])
"""
_KEEP = """
INSERT INTO snapshots VALUES (%s, %s, %s, %s) ON CONFLICT (bandit) DO UPDATE
SET place = excluded.place, body = excluded.body, crc = excluded.crc WHERE excluded.place > snapshots.place
"""
_REWRITE = "UPDATE events SET kind = %s, id = %s, body = %s, crc = %s WHERE bandit = %s AND place = %s"
_PURGE = "DELETE FROM events WHERE bandit = %s AND place BETWEEN %s AND %s AND place <> ALL (%s::bigint[])"
_BEGIN = """
INSERT INTO beginnings VALUES (%s, %s, %s, %s, %s) ON CONFLICT (bandit) DO UPDATE
SET place = excluded.place, open = excluded.open, body = excluded.body, crc = excluded.crc
"""
_RENAME = "UPDATE bandits SET name = %s, settings = %s, seed = %s, at = %s, crc = %s WHERE number = %s"
_MODES = {False: 0x726F62616E646976, True: 0x726F62616E646977}
"""Locks that all processes share which decide on the newest state, or on one that may be old."""


class PostgresStore(PostgresLink):
    """A `Store` that many processes may have open at once."""

    shared = True

    def __init__(self, url: str, *, whole: PostgresStore | None = None, lane: int = 0) -> None:
        """Open the whole store; with ``whole``, one lane of that."""
        self._url, self._whole_store = url, whole or self
        self._own = range(LANES) if whole is None else range(lane, lane + 1)
        self._opened: dict[int, PostgresStore] = {}
        self._part: PostgresPart | None = None
        self._unplaced: dict[tuple[int, str], int] = {}  # the numbers of decisions that need a place, by bandit and id
        self._ahead = self._clock_read = 0.0  # seconds by which the server's clock is ahead of `monotonic`; when read
        self._watching = False
        super().__init__(url)

    def _begin(self) -> None:
        """Refuse a server that can lose commits, make the tables, and set the session up."""
        if self._whole_store is not self:
            self._follow(self._whole_store)
            return
        for setting in ("fsync", "full_page_writes"):
            if self._rows(f"SHOW {setting}") != [("on",)]:
                raise StoreError(f"this PostgreSQL can lose commits: set {setting} = on in its configuration")
        self._db.execute(_TABLES)
        self._add_checksums()
        self._db.execute(SESSION)
        ((self._bandits,),) = self._rows("SELECT coalesce(max(number), 0) FROM bandits")  # the number read so far
        last = "SELECT coalesce(max(number), ?) FROM events WHERE number > ? AND number < ?"
        self._events = {}  # by lane, the number read so far
        for lane in range(LANES):
            first = lane * LANE
            ((self._events[lane],),) = self._rows(last, first, first, first + LANE)
        self._read_clock()
        self._db.commit()
        self._start = self._bandits, self._events.copy()

    def _follow(self, whole: PostgresStore) -> None:
        """Set up a lane's session, which goes on from where the whole store was opened."""
        self._db.execute(SESSION)
        self._db.commit()
        self._bandits, self._events, self._clock_read = whole._start[0], whole._start[1].copy(), whole._clock_read

    def lane(self, number: int) -> PostgresStore:
        if number not in self._opened:
            self._opened[number] = PostgresStore(self._url, whole=self, lane=number)
        return self._opened[number]

    def _add_checksums(self) -> None:
        """Give the rows of an older store their checksums. Services of that version can't write from then on."""
        there = "table_schema = 'robandit' AND table_name = 'events' AND column_name = 'crc'"
        if self._rows(f"SELECT 1 FROM information_schema.columns WHERE {there}"):
            return
        for table, (columns, key) in _BEFORE.items():
            self._db.execute(f"ALTER TABLE robandit.{table} ADD COLUMN crc BIGINT".encode())
            with self._db.cursor("old") as rows, self._db.cursor() as cursor:
                rows.execute(f"SELECT {', '.join([*columns, *key])} FROM robandit.{table}".encode())
                update = f"UPDATE robandit.{table} SET crc = %s WHERE {' AND '.join(f'{name} = %s' for name in key)}"
                while some := [self._plain(row) for row in rows.fetchmany(PAGE)]:
                    cursor.executemany(
                        update.encode(), [(checksum(*row[: -len(key)]), *row[-len(key) :]) for row in some]
                    )
            self._db.execute(f"ALTER TABLE robandit.{table} ALTER COLUMN crc SET NOT NULL".encode())

    def _plain(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """A row of an older store with the id, which only events have, as a text."""
        return (*row[:3], self._text(row[3]), *row[4:]) if isinstance(row[3], bytes) else row

    def join(self, *, stale: bool) -> PostgresPart | None:
        with self._whole():
            self._rows("SELECT pg_advisory_xact_lock(?)", WRITING)  # one after the other
            try:
                self._db.execute("SET LOCAL lock_timeout = '2s'")  # in which one that was stopped goes
                self._rows("SELECT pg_advisory_lock(?)", _MODES[not stale])
            except psycopg.errors.LockNotAvailable:
                how = "without" if stale else "with"
                raise StoreError(f"another service on this database runs {how} --staleness: start all alike") from None
            self._rows("SELECT pg_advisory_unlock(?)", _MODES[not stale])
            self._rows("SELECT pg_advisory_lock_shared(?)", _MODES[stale])
            self._db.commit()
        self._part = PostgresPart(self._url, list(self._start[1].values())) if stale else None
        return self._part

    @property
    def heard(self) -> int:
        return self._events[self._own[0]]

    def close(self) -> None:
        for one in (*self._opened.values(), self._part):
            if one is not None:
                one.close()
        super().close()

    def now(self) -> float:
        return monotonic() + self._whole_store._ahead

    def _read_clock(self) -> None:
        """Go by the server's clock, as all services do."""
        ((server,),) = self._rows("SELECT extract(epoch FROM clock_timestamp())")
        self._clock_read = monotonic()
        self._whole_store._ahead = float(server) - self._clock_read

    # Writing.

    def news(self) -> list[Item]:
        self._unplaced.clear()
        with self._whole():
            # Not in a pipeline, nor by `executemany`, which uses one: a process that is stopped in a pipeline holds its
            # locks for good, since PostgreSQL (16) does not count it as idle.
            for lane in self._own:  # all take them in this order
                self._db.execute("SELECT pg_advisory_xact_lock(%s)", (WRITING - 2 * lane,))
            found = [self._db.execute(_NEWS, self._ranges(lane), binary=True) for lane in self._own]
            if monotonic() >= self._clock_read + _CLOCK_EVERY:
                self._read_clock()
            rows = [cursor.fetchall() for cursor in found]
            entries = [
                entry for lane, some in zip(self._own, rows, strict=True) for entry in self._heard_of(lane, some)
            ]
            unplaced = [self._waiting(row) for some in rows for row in some if row[6] < 0]
            # Lane 0 makes bandits; others need to know those that have an event.
            unknown = 0 in self._own or any(entry.bandit > self._bandits for entry in (*entries, *unplaced))
            bandits = self.bandits(after=self._bandits) if unknown else []
        self._bandits = bandits[-1].number if bandits else self._bandits
        return [*bandits, *entries, *unplaced]

    def _ranges(self, lane: int) -> tuple[int, ...]:
        """The numbers of a lane's events without a place, and of those that are new."""
        return -(lane + 1) * LANE, -lane * LANE, self._events[lane], (lane + 1) * LANE

    def _heard_of(self, lane: int, rows: Sequence[tuple[Any, ...]]) -> list[LogEntry]:
        """The events of a lane that have a place."""
        entries = [self._entry(*row[:6]) for row in rows if row[6] >= 0]
        self._events[lane] = max(self._events[lane], rows[-1][6]) if rows else self._events[lane]
        return entries

    def _waiting(self, row: tuple[Any, ...]) -> LogEntry:
        """A decision that has no place yet."""
        entry = self._entry(row[0], UNPLACED, *row[2:6])
        self._unplaced[entry.bandit, entry.event.id] = row[6]
        return entry

    def _next(self, bandit: int) -> int:
        """The number of the next event, in the lane of its bandit."""
        self._events[bandit % LANES] += 1
        return self._events[bandit % LANES]

    def put(self, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
        found = Rows.of(items)
        gone = [(row[0],) for row in found.renamed]
        with self._whole(), self._db.cursor() as cursor:
            for query, some in (
                (_RENAME, [(*row[1:], row[0]) for row in found.renamed]),
                ("DELETE FROM snapshots WHERE bandit = %s", gone),
                ("DELETE FROM beginnings WHERE bandit = %s", gone),
                ("INSERT INTO bandits VALUES (%s, %s, %s, %s, %s, %s)", found.bandits),
                (_PURGE, [(*purge[:3], list(purge.keep)) for purge in found.purges]),
                (_BEGIN, found.beginnings),
            ):
                for row in some:
                    cursor.execute(query.encode(), row)
            if found.entries:
                self._free([(entry.bandit, entry.event.id) for entry in found.entries])
                numbers = [self._next(entry.bandit) for entry in found.entries]
                cursor.execute(_ADD, (numbers, *event_columns(found.entries)))
            for bandit, place, *new in zip(*event_columns(found.rewrites), strict=True) if found.rewrites else ():
                cursor.execute(_REWRITE, (*new, bandit, place))
            for row in map(snapshot_row, snapshots):
                cursor.execute(_KEEP, row)
        self._bandits = found.bandits[-1][0] if found.bandits else self._bandits

    def _free(self, keys: Sequence[tuple[int, str]]) -> None:
        """Remove the rows without a place of what is put now."""
        if gone := [self._unplaced.pop(key) for key in keys if key in self._unplaced]:
            self._db.execute("DELETE FROM events WHERE number = ANY(%s)", (gone,))

    def commit(self) -> None:
        with self._whole():
            self._db.commit()

    def release(self) -> None:
        with self._whole():
            self._db.rollback()

    def watches(self) -> bool:
        if not self._watching:  # the lock is kept for as long as the connection is
            with self._whole():
                ((self._watching,),) = self._rows("SELECT pg_try_advisory_lock(?)", _WATCHING)
        return self._watching

    # Reading.

    def copy(self, path: Path) -> Generator[None, None, None]:
        raise StoreError(f"{self.where} is copied by its own tools: pg_dump --schema=robandit")

    def faults(self) -> list[str]:
        """Decisions without a place that are damaged. Its pages are the business of PostgreSQL, which can have
        checksums for them, too."""
        found = []
        query = "SELECT bandit, kind, id, body, crc FROM events WHERE number < 0"
        for bandit, kind, id, body, crc in self._rows(query):  # noqa: A001
            if checksum(bandit, UNPLACED, kind, self._text(id), body) != crc:
                found.append(f"{self.where}: a decision of bandit {self._name(bandit)} is damaged; {REMEDY}")
        return found
