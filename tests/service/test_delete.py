"""Bandits that are deleted: for good, once, and without holding anybody up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from served import SHOP, check_fold, working
from test_app import serving
from test_life import SETTINGS, choice, store, traffic

from robandit import Client, ServiceError
from robandit.cli import main
from robandit.service.hub import Hub
from robandit.service.refused import Refused
from robandit.service.serving import leftovers
from robandit.service.stores.sqlite import SQLiteStore, read_only
from robandit.service.stores.store import StoreError
from robandit.wire.changes import Change, Deleted
from robandit.wire.types import Feedback

ARCHIVE = Change(version=1, archived=True)


def rows(path: Path) -> int:
    db = SQLiteStore(path / "log.db")
    ((count,),) = db._rows("SELECT count(*) FROM events")
    db.close()
    return int(count)


def test_its_name_is_free_and_its_ids_are_forgotten(tmp_path: Path) -> None:
    """Whatever the new bandit of the name is asked, nothing of the old one is in the answer, after a restart too."""
    hub = Hub(store(tmp_path))
    _, *_, made, deleted, again, _, fresh, late = working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        *traffic(hub, 0, 10),
        lambda: hub.change("shop", ARCHIVE),
        lambda: hub.delete("shop", 2),
        lambda: hub.delete("shop", 2),
        lambda: hub.create("shop", SETTINGS, 8),
        lambda: hub.decide("shop", choice(3)),
        lambda: hub.reward("shop", [Feedback(decision_id="d2", reward=0.1)]),
    )
    assert made.version == 2 and isinstance(deleted, Deleted) and again == deleted and deleted.version == 2
    assert fresh.round == 1 and late[0].status == "unknown"
    hub.stop()
    hub = Hub(store(tmp_path))
    found = working(
        hub,
        hub.purge,
        lambda: hub.decide("shop", choice(3)),
        lambda: hub.delete("shop", 2),
        lambda: hub.reward("shop", [Feedback(decision_id="d2", reward=0.1)]),
    )
    assert found[1] == fresh and found[2] == deleted and found[3][0].status == "unknown"
    assert hub.bandits["shop"].record.number == 2 and hub.bandits.next_number() == 3
    hub.stop()
    assert {name: len(log) for name, log in check_fold(store(tmp_path)).items()} == {"shop": 1}
    assert rows(tmp_path) == 2  # the new decision, and that the old bandit was deleted


def test_only_what_is_archived_can_be_deleted(tmp_path: Path) -> None:
    hub = Hub(store(tmp_path))
    found = working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        lambda: hub.delete("shop", 1),
        lambda: hub.change("shop", ARCHIVE),
        lambda: hub.delete("shop", 1),
        lambda: hub.delete("nobody", 1),
        lambda: hub.delete("shop", 2),
        lambda: hub.delete("shop", 1),
        lambda: hub.change("shop", Change(version=2, archived=False)),
        lambda: hub.decide("shop", choice(1)),
    )
    assert [one.status for one in found if isinstance(one, Refused)] == [409, 409, 404, 404, 404, 404]
    assert "archive it first" in str(found[1]) and "look at them again" in str(found[3])
    hub.stop()


def test_what_was_on_its_way_is_refused(tmp_path: Path) -> None:
    """All of this runs in one group, before anything is written."""
    hub = Hub(store(tmp_path))

    async def together() -> list[Any]:
        calls: list[Callable[[], Any]] = [
            lambda: hub.create("shop", SETTINGS, 7),
            lambda: hub.create("rest", SETTINGS, 7),
        ]
        for call in calls:
            await call()
        asked = [
            hub.change("shop", ARCHIVE),
            hub.delete("shop", 2),
            hub.decide("shop", choice(1)),
            hub.create("shop", SETTINGS, 9),
            hub.decide("shop", choice(2)),
            hub.purge(),
        ]
        return await asyncio.gather(*asked, return_exceptions=True)

    (found,) = working(hub, together)
    assert [getattr(one, "status", None) for one in found[2:3]] == [404] and found[3] is True and found[4].round == 1
    assert isinstance(found[1], Deleted)
    hub.stop()
    assert {name: len(log) for name, log in check_fold(store(tmp_path)).items()} == {"shop": 1, "rest": 0}


def test_a_log_that_goes_holds_nobody_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes in parts, between which others are served; a service that is stopped meanwhile goes on at its start."""
    monkeypatch.setattr(leftovers, "PURGE", 50)
    hub = Hub(store(tmp_path))
    calls = traffic(hub, 0, 600)
    steps: list[float] = []

    async def delete() -> None:
        await hub.delete("shop", 2)
        task = asyncio.create_task(hub.purge())
        for _ in range(30):
            begin = time.process_time()
            await asyncio.sleep(0)
            steps.append(time.process_time() - begin)
        task.cancel()

    working(hub, lambda: hub.create("shop", SETTINGS, 7), *calls, lambda: hub.change("shop", ARCHIVE), delete)
    assert max(steps) < 0.05
    hub.stop()
    assert 2 < rows(tmp_path) < 1200, "it is not gone at once"
    hub = Hub(store(tmp_path))
    assert not hub.bandits
    working(hub, hub.purge, lambda: hub.create("next", SETTINGS, 7), lambda: hub.decide("next", choice(1)))
    assert hub.bandits["next"].record.number == 2 and hub.bandits.leftovers.next() is None
    hub.stop()
    assert rows(tmp_path) == 2
    assert {name: len(log) for name, log in check_fold(store(tmp_path)).items()} == {"next": 1}


def test_a_log_that_is_read_meanwhile_ends(tmp_path: Path) -> None:
    hub = Hub(store(tmp_path))

    async def read() -> Any:
        pages = hub.log("shop")
        await hub.delete("shop", 2)
        return [page async for page in pages]

    calls = [*traffic(hub, 0, 30), lambda: hub.change("shop", ARCHIVE), read]
    *_, found = working(hub, lambda: hub.create("shop", SETTINGS, 7), *calls)
    assert isinstance(found, Refused) and found.status == 404
    hub.stop()


def test_over_http_and_from_python(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(tmp_path / "log.db") as here, Client(f"http://127.0.0.1:{here.port}") as client:
        client.create("shop", **SHOP)
        client.decide("shop", {"a": [0.1, 0.2, 0.3]})
        with pytest.raises(ServiceError, match="archive it first"):
            client.delete("shop")
        client.archive("shop")
        assert client.delete("shop", 2) == client.delete("shop", 2) and client.bandits() == []
        with pytest.raises(ServiceError, match="there is no bandit"):
            client.status("shop")
        for query in ("", "?version=", "?version=0", "?version=x", "?version=-1", "?version=1e3"):
            assert here.ask("DELETE", f"/v1/bandits/shop{query}")[0] == 422
        client.create("shop", **SHOP)
    assert main(["check", str(tmp_path / "log.db")]) == 0 and "shop: 0 events, whole" in capsys.readouterr().out


def test_commands_do_not_find_it(tmp_path: Path) -> None:
    hub = Hub(store(tmp_path))
    working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        partial(hub.change, "shop", ARCHIVE),
        partial(hub.delete, "shop", 2),
    )
    hub.stop()
    with pytest.raises(StoreError, match="holds no bandit"):
        list(read_only(tmp_path / "log.db", "shop"))
