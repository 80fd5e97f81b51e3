"""A connection to PostgreSQL as every store here has it: its session, its reading, and what an error does."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from robandit.service.stores.sql import SQLReader, event_row
from robandit.service.stores.store import LogEntry, StoreError

LANE = 1 << 48
"""Numbers of events from one lane to the next. Before there were lanes, all events were in what is now lane 0.

A decision without a place has a negative number, in the order in which it came: lane ℓ has those from −(ℓ + 1) · `LANE`
on. Its place is that number until it gets one.
"""
# A machine that is gone must give the lock back. So the server closes a connection that does nothing in a transaction,
# or does not answer, for some seconds.
SESSION = """
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
    "tcp_user_timeout": 11_000,  # or an answer of a machine that is gone is waited for, for a quarter of an hour
}


def event_columns(entries: Sequence[LogEntry]) -> list[list[Any]]:
    """The columns of events, as PostgreSQL keeps them: bandit, place, kind, id, body and checksum."""
    found = [list(column) for column in zip(*map(event_row, entries), strict=True)]
    found[3] = [id.encode() for id in found[3]]  # noqa: A001
    return found


class PostgresLink(SQLReader):
    """A connection, which reads as every store does."""

    def __init__(self, url: str, *, autocommit: bool = False) -> None:
        try:
            self._db = psycopg.connect(url, autocommit=autocommit, **_LINK)
            try:
                self._db.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # what is read after a lock is new
                self._begin()
            except BaseException:
                self._db.close()
                raise
        except psycopg.Error as error:
            raise StoreError(f"can't use this PostgreSQL: {error}".strip()) from error
        self.where = f"the database {self._db.info.dbname} at {self._db.info.host}"

    def _begin(self) -> None:
        """Set the session up."""
        self._db.execute(SESSION)

    def close(self) -> None:
        """Close the connection, which rolls back and gives up all locks."""
        self._db.close()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """Roll back, close and raise `StoreError` if anything goes wrong."""
        try:
            yield
        except psycopg.Error as error:
            self._db.close()
            raise StoreError(f"can't write: {error}".strip()) from error

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._db.execute(query.replace("?", "%s").encode(), values, binary=True).fetchall()

    @staticmethod
    def _id(id: str) -> bytes:  # noqa: A002
        return id.encode()  # PostgreSQL's texts can't hold every character

    @staticmethod
    def _text(id: bytes) -> str:  # noqa: A002
        return id.decode(errors="replace")  # which a checksum notices
