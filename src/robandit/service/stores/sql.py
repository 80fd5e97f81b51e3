"""What the stores in SQLite and PostgreSQL have in common: how rows are made and read."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from robandit.service.stores.store import KINDS, PAGE, Bandit, LogEntry, Snapshot
from robandit.wire.events import Event, decode, encode


def bandit_row(bandit: Bandit) -> tuple[Any, ...]:
    """A row of the table ``bandits``. A seed may have more bits than a database's integers."""
    return (*bandit[:3], str(bandit.seed), bandit.at)


def event_row(entry: LogEntry, id: str | bytes) -> tuple[Any, ...]:  # noqa: A002
    """A row of the table ``events``, with the id as the database keeps it."""
    return entry.bandit, entry.place, KINDS[type(entry.event)], id, encode(entry.event)


class SQLReader(ABC):
    """Reads bandits, logs and snapshots from a database."""

    @abstractmethod
    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows that a query finds, in which ``?`` stands for each value."""

    @staticmethod
    @abstractmethod
    def _id(id: str) -> str | bytes:  # noqa: A002
        """An id as the database keeps it."""

    def bandits(self) -> list[Bandit]:
        rows = self._rows("SELECT number, name, settings, seed, at FROM bandits ORDER BY number")
        return [Bandit(number, name, settings, int(seed), at) for number, name, settings, seed, at in rows]

    def page(self, bandit: int, after: int) -> list[bytes]:
        query = "SELECT body FROM events WHERE bandit = ? AND place > ? ORDER BY place LIMIT ?"
        return [body for (body,) in self._rows(query, bandit, after, PAGE)]

    def find(self, bandit: int, id: str, *, final: bool) -> Event | None:  # noqa: A002
        query = "SELECT body FROM events WHERE bandit = ? AND id = ? AND kind = ?"
        rows = self._rows(query, bandit, self._id(id), int(final))
        return decode(rows[0][0]) if rows else None

    def snapshot(self, bandit: int) -> Snapshot | None:
        rows = self._rows("SELECT bandit, place, body FROM snapshots WHERE bandit = ?", bandit)
        return Snapshot(*rows[0]) if rows else None
