"""Services that decide on states that may be old, while an operator changes, archives and deletes bandits."""

from __future__ import annotations

import asyncio

import psycopg
import pytest
from postgres_server import Postgres
from served import check_fold, offer
from test_stale import SETTINGS, decisions, stale, together

from robandit.service.refused import Refused
from robandit.service.stores import open_store
from robandit.wire.changes import Change
from robandit.wire.events import Imported
from robandit.wire.imports import HistoryRow, ImportDone
from robandit.wire.types import Chosen

pytestmark = pytest.mark.engines


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
                "SELECT query FROM pg_stat_activity "
                "WHERE datname = current_database() AND state = 'idle in transaction'"
            ).fetchall()
        assert idle == []

    together([here, there], play)
    for hub in (here, there):
        hub.stop()
    check_fold(open_store(url))


def test_an_id_imported_and_decided_at_once_is_one_of_the_two(postgres: Postgres) -> None:
    """Decisions wait for no lane, so one may take the id between the look at it and the writing of the row."""
    url = postgres.new("both")
    here, there = stale(url), stale(url)
    won = {"row": 0, "decision": 0}

    async def both(name: str) -> None:
        row = HistoryRow(id=name, features=[1.0, 0.0, 0.0], reward=0.5)
        asked = here.learn_history("shop", [row]), there.decide("shop", offer(name))
        done, made = await asyncio.gather(*asked, return_exceptions=True)
        if isinstance(made, Refused):
            assert made.status == 409 and isinstance(done, ImportDone) and done.imported == 1
            won["row"] += 1
        else:
            assert isinstance(made, Chosen) and isinstance(done, ImportDone) and done.conflicts == [name]
            won["decision"] += 1

    async def play() -> None:
        await here.create("shop", SETTINGS, 7)
        await there.catch_up()
        for number in range(60):
            await both(f"x{number}")

    together([here, there], play)
    for hub in (here, there):
        hub.stop()
    log = check_fold(open_store(url))["shop"]
    assert len(log) == 60 and len(decisions(log)) == won["decision"]
    assert sum(isinstance(event, Imported) for event in log) == won["row"]


def test_rows_are_imported_once_beside_decisions_that_may_be_old(postgres: Postgres) -> None:
    """The same rows at two services at once, one of them twice in a request, and one as an id that decides already."""
    url = postgres.new("rows")
    here, there = stale(url), stale(url)
    rows = [HistoryRow(id=f"h{number}", features=[1.0, 0.0, 0.0], reward=0.5) for number in range(50)]
    rows += [rows[7], HistoryRow(id="h8", features=[1.0, 0.0, 0.0], reward=0.6)]

    async def play() -> list[ImportDone]:
        await here.create("shop", SETTINGS, 7)
        await there.decide("shop", offer("h3"))
        found = list(await asyncio.gather(here.learn_history("shop", rows), there.learn_history("shop", rows)))
        await asyncio.gather(here.catch_up(), there.catch_up())
        assert here.status("shop").imported == there.status("shop").imported == 49
        await here.change("shop", Change(version=1, archived=True))
        with pytest.raises(Refused, match="archived"):
            await here.learn_history("shop", [HistoryRow(id="late", features=[1.0, 0.0, 0.0], reward=0.5)])
        return found

    one, other = together([here, there], play)
    assert one.imported + other.imported == 49 and one.duplicates + other.duplicates == 51
    assert one.conflicts == other.conflicts == ["h3", "h8"]
    for hub in (here, there):
        hub.stop()
    check_fold(open_store(url))
