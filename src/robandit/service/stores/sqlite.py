"""A store in one SQLite file, on which everything acknowledged is safe on the disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from time import time
from typing import Any

import apsw

from robandit.service.stores.sql import EVENTS, REMEDY, Rows, SQLReader, checked, event_row, snapshot_row
from robandit.service.stores.sqlite_copy import copying, open_calm
from robandit.service.stores.sqlite_tables import UNREADABLE, faults, prepare
from robandit.service.stores.store import Beginning, DamageError, Item, Snapshot, Store, StoreError, open_ids

OLDEST = 3_051_003
"""The first SQLite (3.51.3) that does not lose commits when its write-ahead log is reset."""
_PAGES_BACK = 2000
"""Number of pages that the file shrinks by at most when events go. A purge frees fewer, unless its events are large."""
_REWRITE = "UPDATE events SET kind = ?, id = ?, body = ?, crc = ? WHERE bandit = ? AND place = ?"
_PURGE = """
DELETE FROM events WHERE bandit = ? AND place BETWEEN ? AND ? AND place NOT IN (SELECT value FROM json_each(?))
"""


class SQLiteStore(SQLReader):
    """A `Store` that one process may have open at a time."""

    shared = False
    heard = 0

    def __init__(
        self,
        path: Path | str,
        *,
        vfs: str | None = None,
        synchronous: str = "FULL",
        clock: Callable[[], float] = time,
    ) -> None:
        if _version() < OLDEST:
            raise StoreError(
                f"SQLite {apsw.sqlite_lib_version()} can lose commits; robandit needs 3.51.3 or later: update apsw"
            )
        self.now, self.where = clock, str(path)
        self._freed = False
        try:
            self._db = apsw.Connection(str(path), vfs=vfs)
            self._db.set_busy_timeout(0)
            self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
            if self._db.pragma("page_count") == 0:  # a file keeps this from its first page on
                self._db.execute("PRAGMA auto_vacuum = INCREMENTAL")
            mode = self._db.pragma("journal_mode", "WAL")
            self._db.execute(f"PRAGMA synchronous = {synchronous}; PRAGMA cell_size_check = ON")
            self._db.execute("PRAGMA secure_delete = ON").fetchall()  # what goes is overwritten
            prepare(self._db, self.where)
        except apsw.BusyError:
            raise StoreError(f"{path} is open in another process; only one can serve from it") from None
        except UNREADABLE as error:
            raise StoreError(f"can't open {path}: {error}") from error
        if mode != "wal":
            raise StoreError(f"{path} can't have a write-ahead log here (its mode is {mode})")

    def close(self) -> None:
        self._db.close()

    def join(self, *, stale: bool) -> None:
        if stale:
            raise StoreError("decisions on states that may be old need a PostgreSQL: one process alone serves a file")

    # Writing.

    def lane(self, number: int) -> Store:
        return self  # no other process writes

    def news(self) -> list[Item]:
        return []  # no other process writes

    def put(self, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
        rows = Rows.of(items)
        self._freed = bool(rows.purges)
        with self._whole():
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT OR REPLACE INTO bandits VALUES (?, ?, ?, ?, ?, ?)", rows.renamed)
            for table in ("snapshots", "beginnings"):
                self._db.executemany(f"DELETE FROM {table} WHERE bandit = ?", [(row[0],) for row in rows.renamed])
            self._db.executemany("INSERT INTO bandits VALUES (?, ?, ?, ?, ?, ?)", rows.bandits)
            self._db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?, ?)", map(event_row, rows.entries))
            self._db.executemany(_REWRITE, [(*row[2:], *row[:2]) for row in map(event_row, rows.rewrites)])
            self._db.executemany(_PURGE, [(*purge[:3], json.dumps(purge.keep)) for purge in rows.purges])
            self._db.executemany("INSERT OR REPLACE INTO beginnings VALUES (?, ?, ?, ?, ?)", rows.beginnings)
            self._db.executemany("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)", map(snapshot_row, snapshots))

    def commit(self) -> None:
        with self._whole():
            if self._freed:  # each page takes a step
                self._db.execute(f"PRAGMA incremental_vacuum({_PAGES_BACK})").fetchall()
            self._db.execute("COMMIT")

    def shrink(self) -> None:
        """Write the whole file anew, without free room, so that it can shrink by itself from then on."""
        with self._whole():
            self._db.execute("PRAGMA auto_vacuum = INCREMENTAL; VACUUM")
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Roll back and raise `StoreError` if anything goes wrong."""
        try:
            yield
        except apsw.Error as error:
            if not isinstance(error, apsw.ConnectionClosedError) and self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise StoreError(f"can't write: {error}") from error

    def release(self) -> None:
        pass

    def watches(self) -> bool:
        return True

    # Reading.

    def faults(self) -> list[str]:
        return faults(self._db)

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            return self._db.execute(query, values).fetchall()
        except UNREADABLE as error:
            raise DamageError(f"can't read {self.where}: {error}") from error

    def copy(self, path: Path) -> Generator[None, None, None]:
        return copying(self._db, path)

    @staticmethod
    def _id(id: str) -> str:  # noqa: A002
        return id

    _text = _id


def _version() -> int:
    major, minor, patch = (int(part) for part in apsw.sqlite_lib_version().split("."))
    return 1_000_000 * major + 1_000 * minor + patch


def read_only(path: Path, name: str | None) -> Iterator[bytes]:
    """Read a bandit's log from a file that no service has open: its events in order, as `pack` writes them.

    Nothing is written, as `open_calm` says.
    """
    with reading(path, f"ask that for the log: {_ASK}") as db:
        yield from _read_log(db, path, *_number(db, path, name))


_ASK = "GET /v1/bandits/NAME/log, with ?format=parquet if you like"


@contextmanager
def reading(path: Path, remedy: str) -> Iterator[apsw.Connection]:
    """Open a file that no service has open, to read it as it is. ``remedy`` says what to do if one has."""
    calm, before = not Path(f"{path}-wal").exists(), path.stat()
    try:
        with closing(open_calm(path)) as db:
            yield db
    except apsw.BusyError:
        raise StoreError(f"{path} is open in a running service; {remedy}") from None
    except UNREADABLE as error:
        raise StoreError(f"can't read {path}: {error}") from error
    after = path.stat()
    if calm and (before.st_mtime_ns, before.st_size) != (after.st_mtime_ns, after.st_size):
        raise StoreError(f"{path} has changed while it was read: a service has started; {remedy}")


def _read_log(db: apsw.Connection, path: Path, name: str, number: int) -> Iterator[bytes]:
    """A bandit's events. Rows are checked, unless they were written before there were checksums."""
    if db.pragma("user_version") == 0:
        query = "SELECT body FROM events WHERE bandit = ? ORDER BY place"
        yield from (body for (body,) in db.execute(query, (number,)))
        return
    begins, open_ = 0, list[str]()
    if db.pragma("user_version") >= 3:
        for row in db.execute("SELECT bandit, place, open, body FROM beginnings WHERE bandit = ?", (number,)):
            found = Beginning(*row)
            begins, open_ = found.place, open_ids(found)
    for id in open_:  # noqa: A001
        query = "SELECT body FROM events WHERE bandit = ? AND id = ? AND kind = 0"
        yield from (body for (body,) in db.execute(query, (number, id)))
    rows = db.execute(f"{EVENTS} AND place > ? ORDER BY place", (number, begins))

    def damaged(place: int) -> DamageError:
        return DamageError(f"{path}: event {place} of bandit {name!r} is damaged or missing; {REMEDY}")

    yield from checked(rows, begins, damaged)


def _number(db: apsw.Connection, path: Path, name: str | None) -> tuple[str, int]:
    """The name and the number of the bandit of this name, or of the only one."""
    query = "SELECT name, number FROM bandits WHERE name NOT LIKE '/%' ORDER BY number"  # which were deleted
    known: dict[str, int] = dict(db.execute(query))
    if name is None and len(known) == 1:
        return next(iter(known.items()))
    if name is None or name not in known:
        lacks = "holds no bandit" if not known else f"holds the bandits {', '.join(known)}"
        raise StoreError(f"{path} {lacks}" + (f", and none named {name!r}" if name else "; choose one with --bandit"))
    return name, known[name]
