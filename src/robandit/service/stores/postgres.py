"""A store in PostgreSQL, which several services on several machines share.

Each service folds all logs. A bandit is in one of `LANES` lanes, and one service at a time may write to a lane: it
takes the lane's lock, reads what the others have written there since, decides on that state, writes, and commits, which
gives the lock back. So every decision is made on the newest state, there is nothing to hand over when a service dies,
and a bandit's log has one order, in which all services fold it. Bandits of different lanes don't wait for each other.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

import psycopg

from robandit.service.stores.sql import SQLReader, bandit_row, checksum, event_row, snapshot_row
from robandit.service.stores.store import LANES, PAGE, Bandit, Item, LogEntry, Snapshot, StoreError

_WRITING, _WATCHING = 0x726F62616E646974, 0x726F62616E646975  # advisory locks; those of other lanes are far from them
_LANE = 1 << 48
"""Numbers of events from one lane to the next. Before there were lanes, all events were in what is now lane 0."""
_TABLES = f"""
SELECT pg_advisory_xact_lock({_WRITING});
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
"""
_CLOCK_EVERY = 0.2
"""Seconds after which the server's clock is read again."""
_BEFORE = {  # the columns of each table, and its key, before there were checksums
    "bandits": (("number", "name", "settings", "seed", "at"), ("number",)),
    "events": (("bandit", "place", "kind", "id", "body"), ("bandit", "place")),
    "snapshots": (("bandit", "place", "body"), ("bandit",)),
}
# A machine that is gone must give the lock back. So the server closes a connection that does nothing in a transaction,
# or does not answer, for some seconds.
_SESSION = """
SET search_path = robandit;
SET synchronous_commit = on;
SET idle_in_transaction_session_timeout = '10s';
SET lock_timeout = '60s';
SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;
"""
_KEEP = """
INSERT INTO snapshots VALUES (%s, %s, %s, %s) ON CONFLICT (bandit) DO UPDATE
SET place = excluded.place, body = excluded.body, crc = excluded.crc WHERE excluded.place > snapshots.place
"""
_LINK: dict[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "connect_timeout": 10,
    "tcp_user_timeout": 11_000,  # or an answer of a machine that is gone is waited for, for a quarter of an hour
}


class PostgresStore(SQLReader):
    """A `Store` that many processes may have open at once."""

    shared = True

    def __init__(self, url: str, *, whole: PostgresStore | None = None, lane: int = 0) -> None:
        """Open the whole store; with ``whole``, one lane of that."""
        self._url, self._whole_store = url, whole or self
        self._own = range(LANES) if whole is None else range(lane, lane + 1)
        self._opened: dict[int, PostgresStore] = {}
        self._ahead = self._clock_read = 0.0  # seconds by which the server's clock is ahead of `monotonic`; when read
        try:
            self._db = psycopg.connect(url, **_LINK)
            try:
                self._begin() if whole is None else self._join(whole)
            except BaseException:
                self._db.close()
                raise
        except psycopg.Error as error:
            raise StoreError(f"can't use this PostgreSQL: {error}".strip()) from error
        self.where = f"the database {self._db.info.dbname} at {self._db.info.host}"
        self._watching = False

    def _begin(self) -> None:
        """Refuse a server that can lose commits, make the tables, and set the session up."""
        self._db.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # what is read after the lock is new
        for setting in ("fsync", "full_page_writes"):
            if self._rows(f"SHOW {setting}") != [("on",)]:
                raise StoreError(f"this PostgreSQL can lose commits: set {setting} = on in its configuration")
        self._db.execute(_TABLES)
        self._add_checksums()
        self._db.execute(_SESSION)
        ((self._bandits,),) = self._rows("SELECT coalesce(max(number), 0) FROM bandits")  # the number read so far
        last = "SELECT coalesce(max(number), ?) FROM events WHERE number > ? AND number < ?"
        self._events = {}  # by lane, the number read so far
        for lane in range(LANES):
            first = lane * _LANE
            ((self._events[lane],),) = self._rows(last, first, first, first + _LANE)
        self._read_clock()
        self._db.commit()
        self._start = self._bandits, self._events.copy()

    def _join(self, whole: PostgresStore) -> None:
        """Set up a lane's session, which goes on from where the whole store was opened."""
        self._db.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        self._db.execute(_SESSION)
        self._db.commit()
        self._bandits, self._events, self._clock_read = whole._start[0], whole._start[1].copy(), whole._clock_read

    def lane(self, number: int) -> PostgresStore:
        if number not in self._opened:
            self._opened[number] = PostgresStore(self._url, whole=self, lane=number)
        return self._opened[number]

    def _add_checksums(self) -> None:
        """Give the rows of an older store their checksums. Services of that version can't write from then on."""
        query = "SELECT 1 FROM information_schema.columns WHERE table_schema = 'robandit' AND column_name = 'crc'"
        if self._rows(query):
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

    def close(self) -> None:
        for lane in self._opened.values():
            lane.close()
        self._db.close()

    def now(self) -> float:
        return monotonic() + self._whole_store._ahead

    def _read_clock(self) -> None:
        """Go by the server's clock, as all services do."""
        ((server,),) = self._rows("SELECT extract(epoch FROM clock_timestamp())")
        self._clock_read = monotonic()
        self._whole_store._ahead = float(server) - self._clock_read

    # Writing.

    def news(self) -> list[Item]:
        with self._whole():
            for lane in self._own:  # all take them in this order
                self._rows("SELECT pg_advisory_xact_lock(?)", _WRITING - 2 * lane)
            if monotonic() >= self._clock_read + _CLOCK_EVERY:
                self._read_clock()
            entries = [entry for lane in self._own for entry in self._news_of(lane)]
            # Lane 0 makes bandits; others need to know those that have an event.
            unknown = 0 in self._own or any(entry.bandit > self._bandits for entry in entries)
            bandits = self.bandits(after=self._bandits) if unknown else []
        self._bandits = bandits[-1].number if bandits else self._bandits
        return [*bandits, *entries]

    def _news_of(self, lane: int) -> list[LogEntry]:
        query = "SELECT bandit, place, kind, id, body, crc, number FROM events"
        query += " WHERE number > ? AND number < ? ORDER BY number"
        rows = self._rows(query, self._events[lane], (lane + 1) * _LANE)
        entries = [self._entry(*row[:6]) for row in rows]
        self._events[lane] = rows[-1][6] if rows else self._events[lane]
        return entries

    def _next(self, bandit: int) -> int:
        """The number of the next event, in the lane of its bandit."""
        self._events[bandit % LANES] += 1
        return self._events[bandit % LANES]

    def put(self, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
        bandits = [item for item in items if isinstance(item, Bandit)]
        entries = [item for item in items if isinstance(item, LogEntry)]
        rows = [(self._next(row[0]), *row[:3], self._id(row[3]), *row[4:]) for row in map(event_row, entries)]
        with self._whole(), self._db.cursor() as cursor:
            for query, some in (
                ("INSERT INTO bandits VALUES (%s, %s, %s, %s, %s, %s)", list(map(bandit_row, bandits))),
                ("INSERT INTO events VALUES (%s, %s, %s, %s, %s, %s, %s)", rows),
                (_KEEP, list(map(snapshot_row, snapshots))),
            ):
                if some:
                    cursor.executemany(query.encode(), some)
        self._bandits = bandits[-1].number if bandits else self._bandits

    def commit(self) -> None:
        with self._whole():
            self._db.commit()

    def release(self) -> None:
        with self._whole():
            self._db.rollback()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Roll back, close and raise `StoreError` if anything goes wrong."""
        try:
            yield
        except psycopg.Error as error:
            self._db.close()  # which rolls back and gives up all locks
            raise StoreError(f"can't write: {error}".strip()) from error

    def watches(self) -> bool:
        if not self._watching:  # the lock is kept for as long as the connection is
            with self._whole():
                ((self._watching,),) = self._rows("SELECT pg_try_advisory_lock(?)", _WATCHING)
        return self._watching

    # Reading.

    def copy(self, path: Path) -> Generator[None, None, None]:
        raise StoreError(f"{self.where} is copied by its own tools: pg_dump --schema=robandit")

    def faults(self) -> list[str]:
        return []  # its pages are the business of PostgreSQL, which can have checksums for them, too

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._db.execute(query.replace("?", "%s").encode(), values).fetchall()

    @staticmethod
    def _id(id: str) -> bytes:  # noqa: A002
        return id.encode()  # PostgreSQL's texts can't hold every character

    @staticmethod
    def _text(id: bytes) -> str:  # noqa: A002
        return id.decode(errors="replace")  # which a checksum notices
