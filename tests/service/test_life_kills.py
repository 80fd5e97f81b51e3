"""Operators who change, delete and teach bandits of a service that is killed again and again: nothing is half done.

ROBANDIT_KILLS_LIFE says how often SQLite's service is killed, and ROBANDIT_KILLS_LIFE_TWO how often one of two on
PostgreSQL is. Operators work at the same time, and send a request again until it is answered.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kills import Forked
from postgres_server import Postgres
from served import ONE, SHOP, Customer, check_fold, check_nothing_lost, menu

from robandit.service.stores import open_store
from robandit.service.stores.store import read_tombstone
from robandit.wire.events import Changed, Imported

ONE_SERVICE = int(os.environ.get("ROBANDIT_KILLS_LIFE", "5"))
TWO_SERVICES = int(os.environ.get("ROBANDIT_KILLS_LIFE_TWO", "10"))
Ask = Callable[..., tuple[int, Any]]


class Operator(threading.Thread):
    """Changes the shop, teaches it history, and makes and deletes bandits of its own."""

    def __init__(self, ask: Ask, number: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._ask, self.number, self._over = ask, number, over
        self.changed: dict[int, Any] = {}
        """What was asked, by the version that was acknowledged for it."""
        self.rows: set[str] = set()
        self.deleted = self.refused = 0
        self.odd: list[Any] = []

    def run(self) -> None:
        count = 0
        while not self._over.is_set():
            count += 1
            asked: dict[str, Any] = {"exploration": count % 10 / 20 + self.number / 1000}
            if count % 6 == 0:
                asked["policy"] = ("oful", "quorum")[count // 6 % 2]
            self._change("shop", asked)
            rng = np.random.default_rng([self.number, count])
            rows = [
                {"id": f"h{self.number}-{count}-{place}", "features": one["features"], "reward": 0.1}
                for place, one in enumerate(menu(rng))
            ]
            if self._insist("POST", "/v1/bandits/shop/imports", rows)[0] == 200:
                self.rows |= {one["id"] for one in rows}
            if count % 3 == 0:
                self._short_life(f"pop{self.number}")

    def _change(self, name: str, asked: dict[str, Any]) -> int | None:
        """Make a change to the settings as they are now; another operator may be faster."""
        status, seen = self._insist("GET", f"/v1/bandits/{name}", None)
        if status != 200:
            return None
        status, made = self._insist("PATCH", f"/v1/bandits/{name}", {"version": seen["version"], **asked})
        if status == 200 and name == "shop":
            self.changed[made["version"]] = asked
        self.refused += status == 409
        return made["version"] if status == 200 else None

    def _short_life(self, name: str) -> None:
        """Make a bandit, use it, and delete it. A decision of an earlier life must not be known."""
        self._insist("PUT", f"/v1/bandits/{name}", SHOP)
        status, found = self._insist("POST", f"/v1/bandits/{name}/decisions", {"actions": [ONE], "decision_id": "only"})
        if status == 200 and found["round"] != 1:
            self.odd.append(found)
        version = self._change(name, {"archived": True})
        if version is not None:
            self.deleted += self._insist("DELETE", f"/v1/bandits/{name}?version={version}", None)[0] == 200

    def _insist(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        """Send a request until it is answered, and not by 503 or 202."""
        while not self._over.is_set():
            try:
                status, answer = self._ask(method, path, body)
            except (OSError, HTTPException, ValueError):
                time.sleep(0.02)
                continue
            if status not in (200, 201, 202, 409, 503):
                self.odd.append((method, path, status, answer))
                return status, answer
            if status not in (202, 503):
                return status, answer
        return 0, None


def attack(store: str, services: int, kills: int) -> tuple[list[Operator], list[Customer]]:
    rng, over = random.Random(5), threading.Event()
    all_ = [Forked(store) for _ in range(services)]
    assert all_[0].ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201

    def ask(*request: Any) -> tuple[int, Any]:
        return random.choice(all_).ask(*request)

    operators = [Operator(ask, number, over) for number in range(2)]
    customers = [Customer(ask, number, over) for number in range(2)]
    for one in (*operators, *customers):
        one.start()
    for _ in range(kills):
        time.sleep(rng.uniform(0.2, 0.8))
        killed = rng.choice(all_)
        killed.kill()
        killed.restart()
    time.sleep(1.0)
    over.set()
    for one in (*operators, *customers):
        one.join(60)
        assert not one.is_alive()
    for service in all_:
        service.kill()
    return operators, customers


def check(store: str, operators: list[Operator], customers: list[Customer]) -> None:
    """What was acknowledged is there once, every version was made once, and no life of a bandit knows another."""
    assert not [one.odd for one in operators if one.odd]
    logs = check_fold(open_store(store))
    check_nothing_lost(open_store(store), customers)
    changes = [one for one in logs["shop"] if isinstance(one, Changed)]
    assert [one.id for one in changes] == [str(number + 2) for number in range(len(changes))]
    learnt = [one.id for one in logs["shop"] if isinstance(one, Imported)]
    assert len(set(learnt)) == len(learnt)
    for one in operators:
        assert one.rows <= set(learnt)
        for version, asked in one.changed.items():
            assert changes[version - 2].asked == asked
    acknowledged = [version for one in operators for version in one.changed]
    assert len(set(acknowledged)) == len(acknowledged) > 5
    db = open_store(store)
    records = db.bandits()
    gone = [found for record in records if (found := read_tombstone(record)) is not None]
    assert len(gone) >= sum(one.deleted for one in operators) > 0
    assert {one.name for one in gone} <= {"pop0", "pop1"}
    assert [record.number for record in records] == list(range(1, len(records) + 1))
    db.close()


@pytest.mark.no_cover
def test_operators_of_a_service_that_is_killed(tmp_path: Path) -> None:
    store = str(tmp_path / "log.db")
    operators, customers = attack(store, 1, ONE_SERVICE)
    check(store, operators, customers)


@pytest.mark.engines
def test_operators_of_two_services_of_which_one_is_killed(postgres: Postgres) -> None:
    store = postgres.new("lives")
    operators, customers = attack(store, 2, TWO_SERVICES)
    check(store, operators, customers)
