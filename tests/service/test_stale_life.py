"""Services that decide on states that may be old, while an operator changes, archives and deletes bandits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from served import check_fold, log_of, offer
from test_postgres import Postgres
from test_stale import SETTINGS, decisions, part_of, reward, stale, together

from robandit.service.hub import Hub
from robandit.service.refused import Refused
from robandit.service.stores import open_store
from robandit.wire.changes import Change
from robandit.wire.events import Decided
from robandit.wire.imports import HistoryRow
from robandit.wire.types import BanditSettings, Feedback

pytestmark = pytest.mark.engines


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    one = Postgres()
    try:
        yield one
    finally:
        one.close()


def test_the_id_of_an_imported_row_is_refused_and_ends_nobody(postgres: Postgres) -> None:
    url = postgres.new("imported")
    hub = stale(url)

    async def play() -> None:
        await hub.create("shop", SETTINGS, 7)
        await hub.learn_history("shop", [HistoryRow(id="h1", features=[1.0, 0.0, 0.0], reward=0.5)])
        with pytest.raises(Refused, match="imported") as refused:
            await hub.decide("shop", offer("h1"))
        assert refused.value.status == 409
        assert (await hub.decide("shop", offer("d1"))).decision_id == "d1"

    together([hub], play)
    hub.stop()
    check_fold(open_store(url))


def test_hearing_of_another_policy_leaves_no_transaction_open(postgres: Postgres) -> None:
    """The server would end a connection that does nothing in a transaction, and with it the service."""
    url = postgres.new("heard")
    here, there = stale(url, 0.05), stale(url, 0.05)

    async def play() -> None:
        await here.create("first", SETTINGS, 7)
        for name in ("second", "third"):
            await here.create(name, SETTINGS, 7)
        await there.catch_up()
        await there.decide("second", offer("d0"))
        await here.change("second", Change(version=1, policy="oful"))
        await asyncio.sleep(0.1)
        await there.decide("third", offer("d1"))
        assert there.bandits["second"].settings.policy == "oful"
        with psycopg.connect(url, autocommit=True) as db:
            idle = db.execute(
                "SELECT query FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
            ).fetchall()
        assert idle == []

    together([here, there], play)
    for hub in (here, there):
        hub.stop()
    check_fold(open_store(url))
