"""Many decisions in one request: each is made as if it had come alone, and holds nobody up."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from served import SHOP, check_fold, menu, offer, working
from test_app import serving

from robandit import AsyncClient, Client, ServiceError
from robandit.service.hub import Hub
from robandit.service.refused import Refused
from robandit.service.stores.sqlite import SQLiteStore
from robandit.wire.types import Action, BanditSettings, NamedChoice

SETTINGS = BanditSettings(dim=3, noise_range=0.5, exploration=0.3)


def named(number: int, actions: int = 4) -> NamedChoice:
    rows = menu(np.random.default_rng(number), actions)
    return NamedChoice(actions=[Action(one["id"], one["features"]) for one in rows], decision_id=f"d{number}")


def test_each_is_made_as_if_it_had_come_alone(tmp_path: Path) -> None:
    """The same actions with the same chances, and the same log but for the times."""
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    asked = [named(number) for number in range(30)]
    one_by_one: list[Any] = [partial(hub.decide, "single", one) for one in asked]
    *_, found = working(
        hub,
        lambda: hub.create("single", SETTINGS, 7),
        lambda: hub.create("many", SETTINGS, 7),
        *one_by_one,
        lambda: hub.decide_many("many", asked),
    )
    hub.stop()
    logs = check_fold(SQLiteStore(tmp_path / "log.db"))
    plain = [[msgspec.structs.replace(event, at=0.0) for event in logs[name]] for name in ("single", "many")]
    assert plain[0] == plain[1] and len(plain[0]) == 30
    assert [one.chosen.round for one in found] == list(range(1, 31))


def test_what_is_refused_stops_no_other(tmp_path: Path) -> None:
    """And a retry of all of them gets the same answers, and decides nothing."""
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    twice = named(3)
    wrong = msgspec.structs.replace(twice, actions=[*twice.actions, twice.actions[0]], decision_id="twice")
    other = msgspec.structs.replace(named(5), decision_id="d1")
    asked = [named(1), wrong, named(2), named(1), other, named(4)]
    _, first, again, last = working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        lambda: hub.decide_many("shop", asked),
        lambda: hub.decide_many("shop", asked),
        lambda: hub.decide("shop", offer("last")),
    )
    assert again == first and last.round == 4
    assert [one.status for one in first] == [200, 422, 200, 200, 409, 200]
    assert [one.decision_id for one in first] == [one.decision_id for one in asked]
    assert first[0] == first[3] and "is there twice" in first[1].error and "between other actions" in first[4].error
    hub.stop()
    assert len(check_fold(SQLiteStore(tmp_path / "log.db"))["shop"]) == 4


def test_others_come_in_between(tmp_path: Path) -> None:
    """A request whose decisions take long is served in slices: a small one that comes later is answered first."""
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    settings = BanditSettings(dim=3, policy="multi-level-weighted-oful", horizon=10_000)
    over: list[str] = []

    async def note(word: str, call: Any) -> None:
        await call
        over.append(word)

    async def both() -> None:
        many = note("many", hub.decide_many("slow", [named(number, 25) for number in range(400)]))
        await asyncio.gather(many, note("small", hub.decide("shop", offer("one"))))

    working(hub, lambda: hub.create("slow", settings, 7), lambda: hub.create("shop", SETTINGS, 7), both)
    assert over == ["small", "many"] and hub.bandits["slow"].learner.policy.rounds == 400
    hub.stop()


def test_there_are_not_too_many(tmp_path: Path) -> None:
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    asked = [named(number, 101) for number in range(100)]
    _, found, unknown = working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        lambda: hub.decide_many("shop", asked),
        lambda: hub.decide_many("nobody", [named(1)]),
    )
    assert isinstance(found, Refused) and found.status == 413 and "10,100" in str(found)
    assert isinstance(unknown, Refused) and unknown.status == 404
    hub.stop()


def test_over_http(tmp_path: Path) -> None:
    body = [{"decision_id": f"d{number}", "actions": menu(np.random.default_rng(number))} for number in range(3)]
    with serving(tmp_path / "log.db") as here:
        here.ask("PUT", "/v1/bandits/shop", SHOP)
        status, _, found = here.ask("POST", "/v1/bandits/shop/decisions/batch", body)
        assert status == 200 and [one["chosen"]["round"] for one in found["results"]] == [1, 2, 3]
        assert here.ask("POST", "/v1/bandits/shop/decisions/batch", body)[2] == found
        alone = here.ask("POST", "/v1/bandits/shop/decisions", body[1])[2]
        assert alone == found["results"][1]["chosen"]
        for wrong in ([], [{"actions": menu(np.random.default_rng(1))}], body[0], [body[0]] * 1001):
            status, _, found = here.ask("POST", "/v1/bandits/shop/decisions/batch", wrong)
            assert status == 422 and found["error"]
        assert here.ask("GET", "/v1/bandits/shop/decisions/batch")[0] == 405


def requests_of(count: int) -> Sequence[dict[str, Any]]:
    return [
        {"actions": np.random.default_rng(number).uniform(-0.5, 0.5, (12, 3)), "decision_id": f"d{number}"}
        for number in range(count)
    ]


def test_from_python(tmp_path: Path) -> None:
    """A list that is too long for one request goes in several."""
    with serving(tmp_path / "log.db") as here, Client(f"http://127.0.0.1:{here.port}") as client:
        client.create("shop", **SHOP)
        found = client.decide_many("shop", requests_of(1100))
        assert [one.decision_id for one in found] == [f"d{number}" for number in range(1100)]
        assert client.status("shop").rounds == 1100
        assert client.decide_many("shop", requests_of(5)) == found[:5] and client.decide_many("shop", []) == []
        (drawn,) = client.decide_many("shop", [{"actions": {"a": [0, 0, 1]}, "source": "web"}])
        assert client.rewards("shop", {drawn.decision_id: 0.2})[0].status == "accepted"
        wrong = [{"actions": {"a": [0, 0, 1]}, "decision_id": "d1"}]
        with pytest.raises(ServiceError, match="decision 'd1': decision 'd1' was made already") as caught:
            client.decide_many("shop", wrong)
        assert caught.value.status == 409
        with pytest.raises(TypeError, match="did you mean 'actions'"):
            client.decide_many("shop", [{"action": {}}])

        async def crowd() -> None:
            async with AsyncClient(f"http://127.0.0.1:{here.port}") as other:
                assert await other.decide_many("shop", requests_of(5)) == found[:5]

        asyncio.run(crowd())
