"""Logs that are cut while others serve, are killed, or decide on states that may be old."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest
from kills import Forked, besiege
from postgres_server import Postgres
from served import ONE, SHOP, Customer, check_fold, offer
from test_stale import SETTINGS, stale, together

from robandit.service.files.check import check_bandits
from robandit.service.hub import Hub
from robandit.service.stores import open_store
from robandit.service.stores.store import open_ids
from robandit.wire.changes import Change
from robandit.wire.cuts import CutMade
from robandit.wire.events import Cut, Decided, Rewarded
from robandit.wire.types import Feedback

ONE_SERVICE = int(os.environ.get("ROBANDIT_KILLS_CUTS", "6"))
TWO_SERVICES = int(os.environ.get("ROBANDIT_KILLS_CUTS_TWO", "10"))


class Cutter(threading.Thread):
    """Cuts the log of the shop again and again, at once or nearly, and lets other policies learn it."""

    def __init__(self, ask: Any, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._ask, self._over = ask, over
        self.made: list[dict[str, Any]] = []
        self.odd: list[Any] = []

    def run(self) -> None:
        count = 0
        while not self._over.is_set():
            count += 1
            found = self._insist("POST", "/v1/bandits/shop/cuts", {"keep_days": (0, 1e-5)[count % 2]})
            if found is not None:
                self.made.append(found)
            if count % 3 == 0 and (seen := self._insist("GET", "/v1/bandits/shop", None)) is not None:
                policy = ("oful", "quorum")[count // 3 % 2]
                self._insist("PATCH", "/v1/bandits/shop", {"version": seen["version"], "policy": policy})

    def _insist(self, method: str, path: str, body: Any) -> Any:
        while not self._over.is_set():
            try:
                status, answer = self._ask(method, path, body)
            except (OSError, HTTPException, ValueError):
                time.sleep(0.02)
                continue
            if status in (200, 409):
                return answer if status == 200 else None
            if status not in (202, 503):
                self.odd.append((method, path, status, answer))
                return None
        return None


def attack(store: str, services: int, kills: int, *options: str) -> tuple[Cutter, list[Customer]]:
    rng, over = random.Random(7), threading.Event()
    all_ = [Forked(store, *options) for _ in range(services)]
    settings = {**SHOP, "exploration": 0.2}
    assert all_[0].ask("PUT", "/v1/bandits/shop", settings)[0] == 201
    assert all_[0].ask("POST", "/v1/bandits/shop/decisions", {"actions": [ONE], "decision_id": "open"})[0] == 200

    def ask(*request: Any) -> tuple[int, Any]:
        return random.choice(all_).ask(*request)

    cutter, customers = Cutter(ask, over), [Customer(ask, number, over) for number in range(2)]
    besiege(all_, [cutter, *customers], over, kills, rng, lambda: len(cutter.made) > 3)
    return cutter, customers


def check(url: str, cutter: Cutter, customers: list[Customer]) -> None:
    """The state is the fold of what is left, what was open is there, and what is left is what was acknowledged."""
    assert not cutter.odd and len(cutter.made) > 3
    events = [one["events"] for one in cutter.made]
    assert events == sorted(events) and events[-1] > 0
    db = open_store(url)
    assert [one.faults for one in check_bandits(db)] == [[]]
    beginning = db.beginning(1)
    assert beginning is not None and "open" in open_ids(beginning)
    found = db.find(1, "open", final=False)
    assert isinstance(found, Decided) and found.round == 1
    db.close()
    log = check_fold(open_store(url))["shop"]
    assert beginning.place >= events[-1] and any(isinstance(one, Cut) for one in log)
    made = {one.id: one for one in log if isinstance(one, Decided)}
    got = [one.id for one in log if isinstance(one, Rewarded)]
    assert len(set(got)) == len(got)
    told = {name: answer for one in customers for name, answer in one.decisions.items()}
    assert len(told) > 30
    for name, event in made.items():
        if name in told:
            assert (event.round, event.index) == (told[name]["round"], told[name]["index"])


def test_one_service_is_killed_while_its_log_is_cut(tmp_path: Path) -> None:
    store = str(tmp_path / "log.db")
    check(store, *attack(store, 1, ONE_SERVICE))


@pytest.mark.engines
def test_one_of_two_services_is_killed(postgres: Postgres) -> None:
    url = postgres.new("cuts")
    check(url, *attack(url, 2, TWO_SERVICES))


@pytest.mark.engines
def test_one_of_two_services_that_may_be_late_is_killed(postgres: Postgres) -> None:
    url = postgres.new("late")
    check(url, *attack(url, 2, TWO_SERVICES // 2, "--staleness", "500"))


@pytest.mark.engines
@pytest.mark.parametrize("staleness", [None, 0.5])
def test_another_process_hears_of_it(postgres: Postgres, staleness: float | None) -> None:
    """It reads the log from where it begins now, lets another policy learn that, and answers as the first one does."""
    url = postgres.new(f"heard{staleness is None}".lower())
    here, there = (Hub(open_store(url)) if staleness is None else stale(url, staleness) for _ in range(2))

    async def play() -> None:
        await here.create("shop", SETTINGS, 7)
        await there.catch_up()
        for number in range(60):
            await (here, there)[number % 2].decide("shop", offer(f"d{number}"))
            if number % 3:
                await there.reward("shop", [Feedback(decision_id=f"d{number}", reward=0.1)])
        await asyncio.sleep(0.01)
        cut = await here.cut("shop", 0)
        assert isinstance(cut, CutMade) and cut.kept_open == 20 and cut.decisions == 60
        await here.purge()
        await there.catch_up("shop")
        assert there.status("shop").cut == cut
        log = [line async for page in there.log("shop") for line in page]
        assert len(log) == 21
        statuses = await there.reward("shop", [Feedback(decision_id=f"d{n}", reward=0.1) for n in (0, 1)])
        assert [one.status for one in statuses] == ["accepted", "unknown"]
        made = await there.change("shop", Change(version=1, policy="oful"))
        assert made.learnt_after == cut.events  # type: ignore[union-attr]
        again = await there.decide("shop", offer("d3"))
        assert again.decision_id == "d3"
        assert await here.decide("shop", offer("d3")) == again
        await asyncio.sleep(0.01)
        assert isinstance(second := await there.cut("shop", 0), CutMade) and second.events > cut.events
        await there.purge()
        await here.catch_up("shop")
        assert here.status("shop").cut == second
        assert here.bandits["shop"].learner.digest() == there.bandits["shop"].learner.digest()

    together([here, there], play)
    for hub in (here, there):
        hub.stop()
    check_fold(open_store(url))


@pytest.mark.engines
@pytest.mark.parametrize("staleness", [None, 0.5])
def test_a_process_that_has_not_heard_what_is_gone(postgres: Postgres, staleness: float | None) -> None:
    """Events may go before every process has heard of them: it takes the state that is kept."""
    url = postgres.new(f"deaf{staleness is None}".lower())
    here, there = (Hub(open_store(url)) if staleness is None else stale(url, staleness) for _ in range(2))

    async def play() -> None:
        await here.create("shop", SETTINGS, 7)
        await there.catch_up("shop")
        for turn in range(4):
            one, other = (here, there) if turn % 2 else (there, here)
            for number in range(20):
                await one.decide("shop", offer(f"d{turn}-{number}"))
                await one.reward("shop", [Feedback(decision_id=f"d{turn}-{number}", reward=0.1)])
            await one.change("shop", Change(version=turn + 1, policy=("oful", "quorum")[turn % 2]))
            await asyncio.sleep(0.01)
            assert isinstance(await one.cut("shop", 0), CutMade)
            await one.purge()
            assert other.bandits["shop"].learner.place < one.bandits["shop"].learner.place - 40
            (found,) = await other.reward("shop", [Feedback(decision_id=f"d{turn}-0", reward=0.1)])
            assert found.status == "unknown"
            await other.decide("shop", offer(f"open{turn}"))
            await one.catch_up("shop")
            await other.catch_up("shop")
            assert here.bandits["shop"].learner.digest() == there.bandits["shop"].learner.digest()

    together([here, there], play)
    for hub in (here, there):
        hub.stop()
    check_fold(open_store(url))
