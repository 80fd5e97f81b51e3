"""Decisions that are forgotten while others serve, and by services that are killed."""

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
from served import SHOP, Customer, check_fold, offer
from test_stale import SETTINGS, stale, together

from robandit.service.files.check import check_bandits
from robandit.service.hub import Hub
from robandit.service.stores import open_store
from robandit.wire.changes import Change
from robandit.wire.events import Blank, Decided, Forgot, Rewarded
from robandit.wire.forgetting import ForgetMade
from robandit.wire.types import Feedback

ONE_SERVICE = int(os.environ.get("ROBANDIT_KILLS_FORGET", "6"))
TWO_SERVICES = int(os.environ.get("ROBANDIT_KILLS_FORGET_TWO", "10"))


class Forgetful(threading.Thread):
    """Has decisions of its own forgotten, and sends each request again until it is answered."""

    def __init__(self, ask: Any, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._ask, self._over = ask, over
        self.forgotten: set[str] = set()
        self.kept: set[str] = set()
        self.odd: list[Any] = []

    def run(self) -> None:
        count = 0
        while not self._over.is_set():
            count += 1
            names = [f"f{count}-{number}" for number in range(3)]
            for name in names:
                actions = [{"id": "a", "features": [0.1, 0.2, 0.3]}, {"id": "b", "features": [0.3, 0.2, 0.1]}]
                self._insist("decisions", {"actions": actions, "decision_id": name})
            self._insist("rewards", {"decision_id": names[0], "reward": 0.9})
            if self._insist("forget", {"decision_ids": names[:2]}) is not None:
                self.forgotten |= set(names[:2])
                self.kept.add(names[2])

    def _insist(self, what: str, body: Any) -> Any:
        while not self._over.is_set():
            try:
                status, answer = self._ask("POST", f"/v1/bandits/shop/{what}", body)
            except (OSError, HTTPException, ValueError):
                time.sleep(0.02)
                continue
            if status == 200:
                return answer
            if status not in (202, 503):
                self.odd.append((what, status, answer))
                return None
        return None


def attack(url: str, services: int, kills: int, *options: str) -> None:
    """What was acknowledged as forgotten is gone; all else is there; the state is the fold of that."""
    rng, over = random.Random(11), threading.Event()
    all_ = [Forked(url, *options) for _ in range(services)]
    assert all_[0].ask("PUT", "/v1/bandits/shop", {**SHOP, "exploration": 0.2})[0] == 201

    def ask(*request: Any) -> tuple[int, Any]:
        return random.choice(all_).ask(*request)

    person, customers = Forgetful(ask, over), [Customer(ask, number, over) for number in range(2)]
    besiege(all_, [person, *customers], over, kills, rng, lambda: len(person.forgotten) > 10)
    assert not person.odd and len(person.forgotten) > 10
    db = open_store(url)
    assert [one.faults for one in check_bandits(db)] == [[]]
    db.close()
    log = check_fold(open_store(url))["shop"]
    made = {one.id: one for one in log if isinstance(one, Decided)}
    got = {one.id: one.reward for one in log if isinstance(one, Rewarded)}
    assert not person.forgotten & set(made) and not person.forgotten & set(got) and person.kept <= set(made)
    for one in customers:
        for name, answer in one.decisions.items():
            assert (made[name].round, made[name].index) == (answer["round"], answer["index"])
        assert all(got[name] == reward for name, reward in one.rewards.items())
    assert sum(isinstance(one, Blank) for one in log) >= len(person.forgotten)
    assert sum(one.decisions for one in log if isinstance(one, Forgot)) >= len(person.forgotten)


def test_one_service_is_killed(tmp_path: Path) -> None:
    attack(str(tmp_path / "log.db"), 1, ONE_SERVICE)


@pytest.mark.engines
def test_one_of_two_services_is_killed(postgres: Postgres) -> None:
    attack(postgres.new("forget"), 2, TWO_SERVICES)


@pytest.mark.engines
@pytest.mark.parametrize("staleness", [None, 0.5])
def test_another_process_hears_of_it(postgres: Postgres, staleness: float | None) -> None:
    """It goes on from the new state, whether it knew the decisions or not."""
    url = postgres.new(f"gone{staleness is None}".lower())
    here, there = (Hub(open_store(url)) if staleness is None else stale(url, staleness) for _ in range(2))

    async def play() -> None:
        await here.create("shop", SETTINGS, 7)
        await there.catch_up("shop")
        for turn in range(6):
            one, other = (here, there) if turn % 2 else (there, here)
            for number in range(10):
                await one.decide("shop", offer(f"d{turn}-{number}"))
                await one.reward("shop", [Feedback(decision_id=f"d{turn}-{number}", reward=0.1)])
            if turn % 3 == 0:
                await other.catch_up("shop")
            if turn == 3:
                await one.change("shop", Change(version=1, policy="oful"))
            ids = [f"d{turn}-{number}" for number in (0, 4, 9)]
            assert await one.forget("shop", ids) == ForgetMade(decisions=3, unknown=[], cut=[])
            found = await other.reward("shop", [Feedback(decision_id=name, reward=0.1) for name in ids])
            assert [status.status for status in found] == ["unknown"] * 3
            assert await other.forget("shop", ids) == ForgetMade(decisions=0, unknown=ids, cut=[])
            await asyncio.gather(here.catch_up("shop"), there.catch_up("shop"))
            assert here.bandits["shop"].learner.digest() == there.bandits["shop"].learner.digest()
        assert here.status("shop").rounds == 42

    together([here, there], play)
    for hub in (here, there):
        hub.stop()
    check_fold(open_store(url))
