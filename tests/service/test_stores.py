"""The checks that every store must pass, and that stores which break a promise fail them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from robandit.service.stores import open_store
from robandit.service.stores.checks import check_store
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Item, LogEntry, Snapshot, StoreError, append


def test_sqlite_keeps_every_promise(tmp_path: Path) -> None:
    check_store(lambda: open_store(str(tmp_path / "log.db")))


class Drops(SQLiteStore):
    """Loses the last event of a group."""

    def put(self, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
        super().put(items[:-1] if isinstance(items[-1], LogEntry) else items, snapshots)


class Reorders(SQLiteStore):
    """Reads the log backwards."""

    def page(self, bandit: int, after: int) -> list[bytes]:
        return super().page(bandit, after)[::-1]


class Doubles(SQLiteStore):
    """Applies an event twice."""

    def page(self, bandit: int, after: int) -> list[bytes]:
        page = super().page(bandit, after)
        return page[:1] + page if after == 0 else page


class Repeats(SQLiteStore):
    """Writes a second reward of a decision."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._db.execute("DROP INDEX once")


class Ignores(SQLiteStore):
    """Says nothing of an event that it can't write."""

    def put(self, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
        try:
            super().put(items, snapshots)
        except StoreError:
            super().put([], snapshots)


class Splits(SQLiteStore):
    """Writes each item of a group by itself."""

    def put(self, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
        for item in items[:-1]:
            append(super(), [item])  # type: ignore[arg-type]
        super().put(items[-1:], snapshots)


class Forgets(SQLiteStore):
    """Keeps no snapshot."""

    def put(self, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
        super().put(items)


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (Drops, "lost"),
        (Reorders, "out of order"),
        (Doubles, "lost, changed"),
        (Repeats, "written again"),
        (Ignores, "written again"),
        (Splits, "part of a refused group"),
        (Forgets, "last snapshot"),
    ],
)
def test_a_store_that_breaks_a_promise_fails(broken: type[SQLiteStore], why: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=why):
        check_store(lambda: broken(tmp_path / "log.db"))


def test_a_store_that_two_open_must_say_so(tmp_path: Path) -> None:
    def make() -> SQLiteStore:
        try:
            return SQLiteStore(tmp_path / "log.db")
        except StoreError:
            return SQLiteStore(tmp_path / "another.db")

    with pytest.raises(AssertionError, match="opened twice"):
        check_store(make)


def test_a_closed_store_must_refuse(tmp_path: Path) -> None:
    class Silent(SQLiteStore):
        def close(self) -> None:
            super().close()
            self.put = self.commit = lambda *_: None  # type: ignore[method-assign,assignment]

    with pytest.raises(AssertionError, match="acknowledges a write"):
        check_store(lambda: Silent(tmp_path / "log.db"))
