"""Copies of a store in SQLite, made while it is used, and what they hold."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import closing
from pathlib import Path
from shutil import disk_usage
from typing import Any, NamedTuple

import apsw

from robandit.service.stores.sql import checksum
from robandit.service.stores.sqlite_tables import UNREADABLE, faults
from robandit.service.stores.store import FORMAT, DamageError, StoreError, newer

_AT_ONCE = 64
"""Number of pages that are copied before others may have their turn: about a millisecond."""
_ROWS = {  # what a checksum is taken over, table by table
    "bandits": "number, name, settings, seed, at, crc",
    "events": "bandit, place, kind, id, body, crc",
    "snapshots": "bandit, place, body, crc",
}
_BEGINNINGS = {"beginnings": "bandit, place, open, body, crc"}  # since format 3


class Contents(NamedTuple):
    """What a copy holds."""

    format: int
    """Format of the store."""
    bandits: int
    """Number of bandits."""
    events: int
    """Number of events in all their logs."""


def copying(db: apsw.Connection, path: Path) -> Generator[None, None, None]:
    """Copy a database, some pages at each step. Between two steps the same connection may write: SQLite puts what it
    changes into the copy as well. A copy must not fill the disk on which the service writes."""
    need, free = db.pragma("page_count") * db.pragma("page_size"), disk_usage(path.parent).free
    if free < 2 * need:
        raise StoreError(f"a copy of {need:,} bytes needs twice as many free in {path.parent}, which has {free:,}")
    with closing(apsw.Connection(str(path))) as copy:
        copy.execute("PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF")  # whoever keeps the file flushes it
        with copy.backup("main", db, "main") as backup:
            while not backup.done:
                backup.step(_AT_ONCE)
                yield


def open_calm(path: Path) -> apsw.Connection:
    """Open a file that nobody writes to. Nothing is written, not even beside it, unless a service was killed and left
    its write-ahead log."""
    calm = not Path(f"{path}-wal").exists()  # then the file itself holds everything and can be read without locks
    return apsw.Connection(
        f"{path.resolve().as_uri()}?mode=ro{'&immutable=1' if calm else ''}",
        flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI,
    )


def verify(path: Path) -> Contents:
    """Compare every row of a copy with its checksum, and the indexes with the tables; say what it holds."""
    try:
        with closing(open_calm(path)) as db:
            version = db.pragma("user_version")
            if version > FORMAT:
                raise StoreError(newer(str(path), version))
            if found := faults(db):
                raise DamageError(f"{path} is damaged: {found[0]}")
            if version > 0:
                for table, columns in (_ROWS | (_BEGINNINGS if version >= 3 else {})).items():
                    _check_rows(path, table, db.execute(f"SELECT {columns} FROM {table}"))
            bandits, events = (db.execute(f"SELECT count(*) FROM {name}").get for name in ("bandits", "events"))
            return Contents(version, int(bandits), int(events))
    except UNREADABLE as error:
        raise StoreError(f"{path} is no store of robandit's: {error}") from error


def _check_rows(path: Path, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    for *row, crc in rows:
        if checksum(*row) != crc:
            raise DamageError(f"{path} is damaged: a row of {table}, which begins {row[:2]}")
