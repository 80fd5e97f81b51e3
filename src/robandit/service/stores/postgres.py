"""The log in PostgreSQL, which several services on several machines share.

Each of them folds the whole log. One at a time may write: it takes a lock, reads what the others have written since,
decides on that state, writes and commits, which gives the lock back. So every decision is made on the newest state,
there is nothing to hand over when a service dies, and the log has one order, in which everybody folds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import monotonic
from typing import Any

import psycopg

from robandit.service.stores.store import KINDS, PAGE, Bandit, Entry, Item, Snapshot, StoreError
from robandit.wire.events import Event, decode, encode

_WRITING, _WATCHING = 0x726F62616E646974, 0x726F62616E646975  # two advisory locks
_TABLES = f"""
SELECT pg_advisory_xact_lock({_WRITING});
CREATE SCHEMA IF NOT EXISTS robandit;
CREATE TABLE IF NOT EXISTS robandit.bandits (
    number BIGINT PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings BYTEA NOT NULL, seed TEXT NOT NULL,
    at DOUBLE PRECISION NOT NULL
);
CREATE TABLE IF NOT EXISTS robandit.events (
    number BIGINT PRIMARY KEY, bandit BIGINT NOT NULL, place BIGINT NOT NULL, kind SMALLINT NOT NULL,
    id BYTEA NOT NULL, body BYTEA NOT NULL, UNIQUE (bandit, place), UNIQUE (bandit, id, kind)
);
CREATE TABLE IF NOT EXISTS robandit.snapshots (bandit BIGINT PRIMARY KEY, place BIGINT NOT NULL, body BYTEA NOT NULL);
"""
# A machine that is gone must give the lock back: the server closes its connection after some seconds in which it does
# nothing in a transaction, or does not answer.
_SESSION = """
SET search_path = robandit;
SET synchronous_commit = on;
SET idle_in_transaction_session_timeout = '10s';
SET lock_timeout = '60s';
SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;
"""
_LINK: dict[str, Any] = {
    "keepalives": 1,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "connect_timeout": 10,
}


class PostgresStore:
    """A `Store` that many processes may have open."""

    shared = True

    def __init__(self, url: str) -> None:
        try:
            self._db = psycopg.connect(url, **_LINK)
            try:
                self._begin()
            except BaseException:
                self._db.close()
                raise
        except psycopg.Error as error:
            raise StoreError(f"can't use this PostgreSQL: {error}".strip()) from error
        self._watching = False

    def _begin(self) -> None:
        """Make sure of the server, the tables and the session."""
        self._db.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # what is read after the lock is new
        for setting in ("fsync", "full_page_writes"):
            if self._row(f"SHOW {setting}")[0] != "on":
                raise StoreError(f"this PostgreSQL can lose commits: set {setting} = on in its configuration")
        self._db.execute(_TABLES)
        self._db.execute(_SESSION)
        self._bandits, self._events = self._row(
            "SELECT (SELECT coalesce(max(number), 0) FROM bandits), (SELECT coalesce(max(number), 0) FROM events)"
        )  # the last that were read
        self._read_clock()
        self._db.commit()

    def close(self) -> None:
        self._db.close()

    def now(self) -> float:
        return monotonic() + self._ahead

    def _read_clock(self) -> None:
        """All services go by the server's clock."""
        self._ahead = float(self._row("SELECT extract(epoch FROM clock_timestamp())")[0]) - monotonic()

    def _row(self, query: str, values: Sequence[Any] = ()) -> Any:
        return self._db.execute(query.encode(), values).fetchone()

    # Writing.

    def news(self) -> list[Item]:
        with self._whole():
            self._row("SELECT pg_advisory_xact_lock(%s)", (_WRITING,))
            self._read_clock()
            bandits = [bandit for bandit in self.bandits() if bandit.number > self._bandits]
            rows = self._db.execute(
                "SELECT number, bandit, place, body FROM events WHERE number > %s ORDER BY number", (self._events,)
            ).fetchall()
        entries = [Entry(bandit, place, decode(body)) for _, bandit, place, body in rows]
        self._events = rows[-1][0] if rows else self._events
        self._bandits = bandits[-1].number if bandits else self._bandits
        return [*bandits, *entries]

    def put(self, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
        rows = []
        with self._whole(), self._db.cursor() as cursor:
            for item in items:
                if isinstance(item, Bandit):
                    values = (item.number, item.name, item.settings, str(item.seed), item.at)
                    cursor.execute("INSERT INTO bandits VALUES (%s, %s, %s, %s, %s)", values)
                    self._bandits = item.number
                else:
                    kind, name = KINDS[type(item.event)], item.event.id.encode()
                    self._events += 1
                    rows.append((self._events, item.bandit, item.place, kind, name, encode(item.event)))
            cursor.executemany("INSERT INTO events VALUES (%s, %s, %s, %s, %s, %s)", rows)
            cursor.executemany(
                "INSERT INTO snapshots VALUES (%s, %s, %s) ON CONFLICT (bandit) DO UPDATE "
                "SET place = excluded.place, body = excluded.body WHERE excluded.place > snapshots.place",
                snapshots,
            )

    def commit(self) -> None:
        with self._whole():
            self._db.commit()

    def release(self) -> None:
        with self._whole():
            self._db.rollback()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            self._db.close()  # which rolls back and gives up all locks
            raise StoreError(f"can't write: {error}".strip()) from error

    def watches(self) -> bool:
        if not self._watching:  # the lock is kept for as long as the connection is
            with self._whole():
                self._watching = self._row("SELECT pg_try_advisory_lock(%s)", (_WATCHING,))[0]
        return self._watching

    # Reading.

    def bandits(self) -> list[Bandit]:
        rows = self._db.execute("SELECT number, name, settings, seed, at FROM bandits ORDER BY number")
        return [Bandit(number, name, settings, int(seed), at) for number, name, settings, seed, at in rows]

    def page(self, bandit: int, after: int) -> list[bytes]:
        rows = self._db.execute(
            "SELECT body FROM events WHERE bandit = %s AND place > %s ORDER BY place LIMIT %s", (bandit, after, PAGE)
        )
        return [body for (body,) in rows]

    def find(self, bandit: int, id: str, *, final: bool) -> Event | None:  # noqa: A002
        query = "SELECT body FROM events WHERE bandit = %s AND id = %s AND kind = %s"
        row = self._row(query, (bandit, id.encode(), int(final)))
        return None if row is None else decode(row[0])

    def snapshot(self, bandit: int) -> Snapshot | None:
        row = self._row("SELECT bandit, place, body FROM snapshots WHERE bandit = %s", (bandit,))
        return None if row is None else Snapshot(*row)
