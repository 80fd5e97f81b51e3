"""The checks that every store must pass, and that stores which break a promise fail them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest
from msgspec import structs

from robandit.service.stores import open_store
from robandit.service.stores.checks import check_store
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Bandit, Item, LogEntry, Snapshot, StoreError, append, events
from robandit.wire.events import Closed, Decided, Rewarded, decode, encode


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

    def put(self, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
        try:
            super().put(items, snapshots)
        except StoreError:
            again = [item for item in items if isinstance(item, LogEntry)]
            super().put([one._replace(event=structs.replace(one.event, id=f"{one.event.id}!")) for one in again])


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


def test_an_event_can_not_be_written_twice(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "log.db")
    append(store, [Bandit(1, "shop", b"{}", 7, 0.0)])
    one = Decided(id="d", round=1, at=0.0, actions=["a"], index=0, features=[0.1], sigma=0.5, level=0, propensity=1.0)
    append(store, [LogEntry(1, 1, one), LogEntry(1, 2, Rewarded(id="d", at=0.0, reward=1.0))])
    for event in (one, Rewarded(id="d", at=1.0, reward=2.0), Closed(id="d", at=1.0)):
        with pytest.raises(StoreError, match="UNIQUE"):
            append(store, [LogEntry(1, 3, Rewarded(id="fine", at=0.0, reward=1.0)), LogEntry(1, 4, event)])
    assert len(list(events(store, 1))) == 2  # all or nothing
    store.close()


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(StoreError, match=r"3\.51\.2 can lose commits"):
        SQLiteStore(tmp_path / "log.db")


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_text("this is a letter, and not a database " * 100)
    with pytest.raises(StoreError, match="can't open"):
        SQLiteStore(tmp_path / "log.db")


@pytest.mark.parametrize("value", [0.1, 1e-300, -0.0, 1 / 3, 2.0**53 + 2, 1.7976931348623157e308])
def test_numbers_survive_the_log(value: float) -> None:
    event = Rewarded(id="x", at=value, reward=value)
    again = decode(encode(event))
    assert again == event and str(again.at) == str(value)
