"""The tables of a store in SQLite, and how older ones become the present ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apsw
import msgspec

from robandit.service.stores.sql import checksum
from robandit.service.stores.store import FORMAT, KINDS, DamageError, StoreError, newer
from robandit.wire.events import decode

UNREADABLE = (apsw.Error, UnicodeDecodeError)
"""What SQLite raises where its file is damaged."""
TABLES = {
    "bandits": """CREATE TABLE bandits (
    number INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings BLOB NOT NULL, seed TEXT NOT NULL,
    at REAL NOT NULL, crc INTEGER NOT NULL
)""",
    "events": """CREATE TABLE events (
    bandit INTEGER NOT NULL, place INTEGER NOT NULL, kind INTEGER NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL,
    crc INTEGER NOT NULL, PRIMARY KEY (bandit, place)
) WITHOUT ROWID""",
    "once": "CREATE UNIQUE INDEX once ON events (bandit, id, kind)",
    "snapshots": """CREATE TABLE snapshots (
    bandit INTEGER PRIMARY KEY, place INTEGER NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL
)""",
    "beginnings": """CREATE TABLE beginnings (
    bandit INTEGER PRIMARY KEY, place INTEGER NOT NULL, open BLOB NOT NULL, body BLOB NOT NULL, crc INTEGER NOT NULL
)""",
}
_NEW = {"beginnings": 3}
"""The format that brought a table which the first did not have."""


def prepare(db: apsw.Connection, path: str) -> None:
    """Make the tables, or check that they are there as they should be, or make them of older ones, all or none."""
    version, there = db.pragma("user_version"), _tables(db)
    if version > FORMAT:
        raise StoreError(newer(path, version))
    if version == 0 and not there:
        db.execute(f"BEGIN IMMEDIATE; {_script()}; PRAGMA user_version = {FORMAT}; COMMIT")
    elif not _fits(version, there):
        raise DamageError(f"{path} is damaged: its tables are not as robandit makes them; restore it from a backup")
    elif version < FORMAT:
        _migrate(db, path, version)


def _fits(version: int, there: dict[str, str]) -> bool:
    """Whether the tables are those of a format."""
    known = {name: sql for name, sql in TABLES.items() if version >= _NEW.get(name, 0)}
    if version > 0:
        return there == known
    return set(there) == set(known) and not any("crc" in sql for sql in there.values())


def faults(db: apsw.Connection) -> list[str]:
    """What SQLite finds wrong with its pages, and where an index and its table differ."""
    try:
        found = [str(line) for (line,) in db.execute("PRAGMA integrity_check")]
    except UNREADABLE as error:
        return [str(error)]
    return [] if found == ["ok"] else found


def _script() -> str:
    return "; ".join(TABLES.values())


def _tables(db: apsw.Connection) -> dict[str, str]:
    return dict(db.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL"))


def _migrate(db: apsw.Connection, path: str, version: int) -> None:
    """Take one step after the other to the present format, all or none. What is damaged already stays as it is."""
    if found := faults(db):
        raise DamageError(f"{path} is damaged: {found[0]}; restore it from a backup")
    db.execute("BEGIN IMMEDIATE")
    try:
        for step in _STEPS[version:]:
            step(db, path)
        db.execute(f"PRAGMA user_version = {FORMAT}; COMMIT")
    except BaseException:
        db.execute("ROLLBACK")
        raise


def _add_checksums(db: apsw.Connection, path: str) -> None:
    """Give every row a checksum."""
    db.execute("DROP INDEX once")
    for table in ("bandits", "events", "snapshots"):
        db.execute(f"ALTER TABLE {table} RENAME TO old_{table}")
    db.execute("; ".join(sql for name, sql in TABLES.items() if name not in _NEW))
    for table, order, width in (
        ("bandits", "number", 6),
        ("events", "bandit, place", 6),
        ("snapshots", "bandit", 4),
    ):
        rows: Iterable[tuple[Any, ...]] = db.execute(f"SELECT * FROM old_{table} ORDER BY {order}")
        if table == "events":
            rows = _agreeing(rows, path)
        marks = ", ".join("?" * width)
        db.executemany(f"INSERT INTO {table} VALUES ({marks})", ((*row, checksum(*row)) for row in rows))
        db.execute(f"DROP TABLE old_{table}")


def _keep_older_releases_out(db: apsw.Connection, path: str) -> None:
    """Change nothing but the number: from 2 on, and again from 4 on, logs may hold what older releases can't read."""


def _add_beginnings(db: apsw.Connection, path: str) -> None:
    """Make room for what logs begin with that were cut."""
    db.execute(TABLES["beginnings"])


_STEPS = (_add_checksums, _keep_older_releases_out, _add_beginnings, _keep_older_releases_out)
"""What makes tables of the next format of those of each format, from 0 on."""


def _agreeing(rows: Iterable[tuple[Any, ...]], path: str) -> Iterator[tuple[Any, ...]]:
    """Rows of events, each of which must agree with the event in it."""
    for row in rows:
        try:
            event = decode(row[4])
            agrees = (KINDS[type(event)], event.id) == row[2:4]
        except (msgspec.DecodeError, UnicodeDecodeError):
            agrees = False
        if not agrees:
            raise DamageError(f"{path}: event {row[1]} of bandit number {row[0]} is damaged; restore it from a backup")
        yield row
