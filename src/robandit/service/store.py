"""The log of a service, in one SQLite file: what was acknowledged is on the disk."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw

from robandit.service.events import Closed, Decided, Event, Proved, Rewarded, decode, encode

OLDEST = 3_051_003
"""The first SQLite (3.51.3) that does not lose commits when its write-ahead log is reset."""

_TABLES = """
CREATE TABLE IF NOT EXISTS bandits (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings BLOB NOT NULL, seed TEXT NOT NULL, at REAL NOT NULL
);
CREATE TABLE IF NOT EXISTS events (
    bandit INTEGER NOT NULL, place INTEGER NOT NULL, kind INTEGER NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (bandit, place)
) WITHOUT ROWID;
CREATE UNIQUE INDEX IF NOT EXISTS once ON events (bandit, id, kind);
CREATE TABLE IF NOT EXISTS snapshots (
    bandit INTEGER PRIMARY KEY, place INTEGER NOT NULL, body BLOB NOT NULL
);
"""
_KINDS: dict[type, int] = {Decided: 0, Rewarded: 1, Closed: 1, Proved: 2}
# `once` is what makes a decision, and its reward or default, happen once: whatever the code above it does, a second
# one can't be written.


class Bandit(NamedTuple):
    """A bandit's entry."""

    number: int
    name: str
    settings: bytes
    seed: int


class Entry(NamedTuple):
    """An event and its place in a bandit's log, from 1 on."""

    bandit: int
    place: int
    event: Event


class StoreError(Exception):
    """Not acknowledged. After a restart it may be there, whole, or not at all: ask again with the same ids."""


class Store:
    """All bandits and their logs. One process may have it open at a time."""

    def __init__(self, path: Path | str, *, vfs: str | None = None, synchronous: str = "FULL") -> None:
        if _version() < OLDEST:
            raise StoreError(
                f"SQLite {apsw.sqlite_lib_version()} can lose commits; robandit needs 3.51.3 or later: update apsw"
            )
        try:
            self._db = apsw.Connection(str(path), vfs=vfs)
            self._db.set_busy_timeout(0)
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            mode = self._db.pragma("journal_mode", "WAL")
            self._db.execute(f"PRAGMA synchronous = {synchronous}")
            self._db.execute(f"BEGIN IMMEDIATE; {_TABLES} COMMIT")
        except apsw.BusyError:
            raise StoreError(f"{path} is open in another process; only one can serve from it") from None
        except apsw.Error as error:
            raise StoreError(f"can't open {path}: {error}") from error
        if mode != "wal":
            raise StoreError(f"{path} can't have a write-ahead log here (its mode is {mode})")

    def close(self) -> None:
        self._db.close()

    # Writing: one transaction each.

    def create(self, name: str, settings: bytes, seed: int, at: float) -> Bandit:
        """A new bandit."""
        with self._writing():
            self._db.execute(
                "INSERT INTO bandits (name, settings, seed, at) VALUES (?, ?, ?, ?)", (name, settings, str(seed), at)
            )
        return Bandit(self._db.last_insert_rowid(), name, settings, seed)

    def append(self, entries: Sequence[Entry]) -> None:
        """Write these events, all of them or none. Once this returns, no crash loses them."""
        rows = [
            (entry.bandit, entry.place, _KINDS[type(entry.event)], entry.event.id, encode(entry.event))
            for entry in entries
        ]
        with self._writing():
            self._db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", rows)

    def save_snapshot(self, bandit: int, place: int, body: bytes) -> None:
        """Keep a state, so that a start need not fold the whole log."""
        with self._writing():
            self._db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", (bandit, place, body))

    def _writing(self) -> _Transaction:
        return _Transaction(self._db)

    # Reading.

    def bandits(self) -> list[Bandit]:
        found = self._db.execute("SELECT number, name, settings, seed FROM bandits ORDER BY number")
        return [Bandit(number, name, settings, int(seed)) for number, name, settings, seed in found]

    def events(self, bandit: int, after: int = 0) -> Iterator[Event]:
        """The log from one place on, in its order."""
        rows = self._db.execute(
            "SELECT body FROM events WHERE bandit = ? AND place > ? ORDER BY place", (bandit, after)
        )
        return (decode(body) for (body,) in rows)

    def find(self, bandit: int, id: str, *, final: bool) -> Event | None:  # noqa: A002
        """The decision of this id, or its reward or default."""
        row = self._db.execute(
            "SELECT body FROM events WHERE bandit = ? AND id = ? AND kind = ?", (bandit, id, int(final))
        ).fetchone()
        return None if row is None else decode(row[0])

    def snapshot(self, bandit: int) -> tuple[int, bytes] | None:
        """The place that it is of, and the state."""
        return self._db.execute("SELECT place, body FROM snapshots WHERE bandit = ?", (bandit,)).fetchone()


class _Transaction:
    """Commits, or rolls back and says that nothing was written."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def __enter__(self) -> None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
        except apsw.Error as error:
            raise StoreError(f"can't write: {error}") from error

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        failed: BaseException | None = error
        try:
            if error is None:
                self._db.execute("COMMIT")
        except apsw.Error as at_commit:
            failed = at_commit
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")
        if isinstance(failed, apsw.Error):
            raise StoreError(f"can't write: {failed}") from failed


def _version() -> int:
    major, minor, patch = (int(part) for part in apsw.sqlite_lib_version().split("."))
    return 1_000_000 * major + 1_000 * minor + patch
