"""Several services on one PostgreSQL, some of which are killed."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from postgres_server import Postgres
from served import FIRST, SHOP, Customer, Server, check_fold, check_nothing_lost, log_of, working

from robandit.cli import main
from robandit.service.hub import Hub
from robandit.service.stores import StoreError, open_store
from robandit.service.stores.checks import check_store
from robandit.service.stores.store import FORMAT, LANES
from robandit.wire.types import Action, BanditSettings, Choice

pytestmark = pytest.mark.engines


WAYS = pytest.mark.parametrize("options", [(), ("--staleness", "1000")], ids=["in turn", "at once"])
"""Both ways to decide."""


class Services:
    """Some services on one database. A customer asks any of them, and another if it does not answer."""

    def __init__(self, url: str, number: int, *options: str) -> None:
        self.url = url
        self.all = [Server(url, *options) for _ in range(number)]
        self._rng = random.Random(1)

    def ask(self, *request: Any) -> tuple[int, Any]:
        return self._rng.choice(self.all).ask(*request)

    def restart(self, place: int) -> None:
        self.all[place].kill()
        self.all[place] = Server(self.url, port=self.all[place].port)

    def close(self) -> None:
        for server in self.all:
            server.kill()


def shopping(services: Services, number: int = 4) -> tuple[list[Customer], threading.Event]:
    over = threading.Event()
    customers = [Customer(services.ask, place, over) for place in range(number)]
    for customer in customers:
        customer.start()
    return customers, over


def finish(customers: list[Customer], over: threading.Event) -> None:
    over.set()
    for customer in customers:
        customer.join(60)
        assert not customer.is_alive()


def go_on(customers: list[Customer], more: int, seconds: float = 30.0) -> bool:
    """Whether customers make so many more decisions in time."""
    enough = count(customers) + more
    return until(lambda: count(customers) >= enough, seconds)


def until(true: Callable[[], object], seconds: float = 30.0) -> bool:
    """Wait until something is true; return whether it became so in time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def count(customers: list[Customer]) -> int:
    return sum(len(customer.decisions) for customer in customers)


def test_postgres_keeps_every_promise(postgres: Postgres) -> None:
    url = postgres.new("checks")
    check_store(lambda: open_store(url))


def test_one_of_two_is_killed_and_the_other_goes_on(postgres: Postgres) -> None:
    """Requests and retries go to either; nothing is lost, and nothing counts twice."""
    services = Services(postgres.new("killed"), 2)
    assert services.all[0].ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
    assert services.all[1].ask("PUT", "/v1/bandits/shop", SHOP)[0] == 200
    customers, over = shopping(services)
    rng = random.Random(2)
    for _ in range(int(os.environ.get("ROBANDIT_KILLS", "5"))):
        time.sleep(rng.uniform(0.3, 1.0))
        services.restart(rng.randrange(2))
    time.sleep(0.5)
    services.all.pop(0).kill()  # for good
    assert go_on(customers, 21, 1.5)  # the other has taken over
    finish(customers, over)
    services.close()
    check_nothing_lost(open_store(services.url), customers)


def test_all_come_to_the_same_state(postgres: Postgres) -> None:
    services = Services(postgres.new("same"), 3)
    services.all[2].ask("PUT", "/v1/bandits/shop", {**SHOP, "reward_window": 1.0, "default_reward": 0.0})
    customers, over = shopping(services)
    assert until(lambda: count(customers) >= 60)
    finish(customers, over)
    seen: list[Any] = []

    def closed() -> bool:
        seen[:] = [server.ask("GET", "/v1/bandits/shop")[1] | {"now": 0} for server in services.all]
        return seen[0] == seen[1] == seen[2] and seen[0]["pending"] == 0

    assert until(closed, 3.0)  # all windows, and all hear of it
    assert seen[0]["rounds"] > 50 and seen[0]["defaults"] > 5
    logs = [server.ask("GET", "/v1/bandits/shop/log") for server in services.all]
    assert logs[0] == logs[1] == logs[2]
    services.close()
    check_fold(open_store(services.url))


@WAYS
def test_a_service_that_hangs_is_done_without(postgres: Postgres, options: tuple[str, ...]) -> None:
    """Wherever it hangs, the others go on within seconds, and it can't write on an old state afterwards."""
    services = Services(postgres.new(f"hangs{len(options)}"), 2, *options)
    services.all[0].ask("PUT", "/v1/bandits/shop", {**SHOP, "exploration": 0.2})
    customers, over = shopping(services)
    time.sleep(0.7)
    hung = services.all.pop(0)
    hung.process.send_signal(signal.SIGSTOP)
    assert go_on(customers, 100)
    hung.process.send_signal(signal.SIGCONT)
    time.sleep(1.0)
    finish(customers, over)
    services.close()
    hung.kill()
    check_nothing_lost(open_store(services.url), customers)


def test_one_that_hangs_while_it_waits_for_a_lane_gives_it_back(postgres: Postgres) -> None:
    """PostgreSQL cuts it off, and would not if lock and news were asked for in a pipeline."""
    url = postgres.new("waits")
    store = open_store(url)
    mine = store.lane(1)
    code = f"from robandit.service.stores import open_store\nlane = open_store({url!r}).lane(1)\nprint(flush=True)"
    command = [sys.executable, "-c", f"{code}\ninput()\nlane.news()"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process as other, psycopg.connect(url, autocommit=True) as db:
        assert other.stdin and other.stdout and other.stdout.readline()  # it is about to ask
        mine.news()
        other.stdin.write(b"\n")
        other.stdin.flush()
        assert until(lambda: db.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchall())
        other.send_signal(signal.SIGSTOP)
        mine.release()  # now it is the other's turn, which knows nothing of it
        start = time.monotonic()
        while not db.execute("SELECT 1 FROM pg_locks WHERE granted AND objid = 1852074354").fetchall():
            assert time.monotonic() < start + 5.0
        mine.news()
        assert 5.0 < time.monotonic() - start < 30.0
        other.kill()
    store.close()


def test_the_database_is_killed(postgres: Postgres) -> None:
    """The services live on, say that they are not ready, and go on when it is back. Nothing acknowledged is lost."""
    services = Services(postgres.new("database"), 2)
    services.all[0].ask("PUT", "/v1/bandits/shop", SHOP)
    customers, over = shopping(services)
    for mode in ("immediate", "fast"):
        time.sleep(0.7)
        postgres.stop(mode)
        for server in services.all:
            until_answered(server, 503)
            assert server.ask("GET", "/health") == (200, {"status": "ok"})
            assert server.ask("POST", "/v1/bandits/shop/decisions", FIRST)[0] == 503
            assert "robandit_ready 0\n" in server.ask("GET", "/metrics")[1]
        postgres.start()
        for server in services.all:
            until_answered(server, 200)
        assert go_on(customers, 50)
    finish(customers, over)
    assert [server.process.poll() for server in services.all] == [None, None]  # the same two processes
    seen = [server.ask("GET", "/v1/bandits/shop")[1] | {"now": 0} for server in services.all]
    assert seen[0] == seen[1]
    services.close()
    check_nothing_lost(open_store(services.url), customers)


def test_connections_are_cut_off(postgres: Postgres) -> None:
    """All of a service's, again and again under load, as by an administrator or a proxy that restarts."""
    services = Services(postgres.new("cut"), 2)
    services.all[0].ask("PUT", "/v1/bandits/shop", SHOP)
    customers, over = shopping(services)
    with psycopg.connect(services.url, autocommit=True) as db:
        for _ in range(int(os.environ.get("ROBANDIT_KILLS", "5"))):
            time.sleep(0.6)
            mine = "datname = current_database() AND pid <> pg_backend_pid()"
            db.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {mine}")
    for server in services.all:
        until_answered(server, 200)
    time.sleep(0.7)
    finish(customers, over)
    assert [server.process.poll() for server in services.all] == [None, None]
    services.close()
    check_nothing_lost(open_store(services.url), customers)


def test_without_a_wait_a_service_ends_with_its_database(postgres: Postgres) -> None:
    server = Server(postgres.new("no_wait"), "--wait", "0")
    server.ask("PUT", "/v1/bandits/shop", SHOP)
    postgres.stop("immediate")
    with contextlib.suppress(OSError, http.client.HTTPException):
        server.ask("POST", "/v1/bandits/shop/decisions", FIRST)
    assert server.process.wait(20) == 1
    assert server.process.stderr and "can't write" in server.process.stderr.read()
    server.process.stderr.close()
    postgres.start()


def test_a_start_waits_for_the_database(postgres: Postgres, capsys: pytest.CaptureFixture[str]) -> None:
    """A name or a password that is wrong is no reason to wait."""
    url = postgres.new("later")
    assert main(["serve", "--store", postgres.url("never")]) == 2
    assert "does not exist" in capsys.readouterr().err
    postgres.stop()
    assert main(["serve", "--store", url, "--wait", "0"]) == 2
    starting = threading.Timer(1.5, postgres.start)
    starting.start()
    server = Server(url)  # which waits until it is ready
    starting.join()
    assert server.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
    server.kill()


def until_answered(server: Server, status: int) -> None:
    """Wait until a service says that it is ready, or that it is not."""
    assert until(lambda: server.ask("GET", "/ready")[0] == status)


def test_a_dump_is_a_backup(postgres: Postgres) -> None:
    """Taken with pg_dump under load: restored to another database, it is a beginning of the log that holds what had
    been acknowledged before, and folds the same."""
    services = Services(postgres.new("dumped"), 2)
    services.all[0].ask("PUT", "/v1/bandits/shop", SHOP)
    customers, over = shopping(services)
    time.sleep(1.0)
    known = [name for customer in customers for name in list(customer.decisions)]
    dump = postgres.dump(services.url)
    time.sleep(0.5)
    finish(customers, over)
    services.close()
    other = postgres.new("restored")
    postgres.restore(other, dump)
    assert main(["check", other]) == 0
    log, whole = (check_fold(open_store(url))["shop"] for url in (other, services.url))
    assert log == whole[: len(log)] and set(known) <= {event.id for event in log} and len(known) > 5
    check_nothing_lost(open_store(services.url), customers)


def test_only_one_looks_at_the_monitors(postgres: Postgres) -> None:
    url = postgres.new("watch")
    first, second = open_store(url), open_store(url)
    assert first.watches() and not second.watches() and first.watches()
    first.close()
    assert until(second.watches)  # the server takes a moment to notice
    second.close()


def test_what_one_writes_the_other_reads(postgres: Postgres) -> None:
    url = postgres.new("news")
    first, second = Hub(open_store(url)), Hub(open_store(url))
    strange = "\x00 ' \\ ü"  # PostgreSQL's texts can't have the first of these
    choice = Choice(actions=[Action("a", [0.1, 0.2, 0.3])], decision_id=strange)
    (_, chosen) = working(
        first, lambda: first.create("shop", BanditSettings(dim=3), 7), lambda: first.decide("shop", choice)
    )
    assert working(second, lambda: second.decide("shop", choice)) == [chosen]
    assert [event.id for event in log_of(second, "shop")] == [strange]
    assert second.bandits["shop"].learner.digest() == first.bandits["shop"].learner.digest()
    assert abs(first.status("shop").now - time.time()) < 60.0
    first.stop()
    second.stop()


@WAYS
def test_what_one_acknowledged_is_read_at_the_other(postgres: Postgres, options: tuple[str, ...]) -> None:
    """At once: in the log, the status, the list and the metrics."""
    services = Services(postgres.new(f"reading{len(options)}"), 2, *options)
    first, second = services.all
    assert first.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
    assert second.ask("GET", "/v1/bandits")[1] == ["shop"]
    for number in range(1, 21):
        first, second = second, first
        shown = {"actions": [{"id": "a", "features": [0.1, 0.2, 0.3]}], "decision_id": f"d{number}"}
        assert first.ask("POST", "/v1/bandits/shop/decisions", shown)[0] == 200
        assert second.ask("GET", "/v1/bandits/shop")[1]["rounds"] == number
        assert second.ask("GET", "/v1/bandits/shop/log")[1].count("\n") == number
        assert f'robandit_rounds_total{{bandit="shop"}} {number}' in second.ask("GET", "/metrics")[1]
    services.close()


def test_a_dear_decision_is_refused_and_ends_nobody(postgres: Postgres) -> None:
    """It outlasted the time that a transaction may take, and its retry ended the next process."""
    services = Services(postgres.new("dear"), 2)
    settings = {"dim": 18, "policy": "multi-level-weighted-oful"}
    assert services.all[0].ask("PUT", "/v1/bandits/shop", settings)[0] == 201
    rows = [[round(0.01 * ((i * j) % 17), 2) for j in range(18)] for i in range(10_000)]
    shown = {"actions": [{"id": f"a{i}" * 20, "features": row} for i, row in enumerate(rows)], "decision_id": "one"}
    for server in services.all:
        status, answer = server.ask("POST", "/v1/bandits/shop/decisions", shown)
        assert status == 413 and "actions at a time" in answer["error"]
        fewer = {"actions": shown["actions"][:500], "decision_id": str(server.port)}
        assert server.ask("POST", "/v1/bandits/shop/decisions", fewer)[0] == 200
    assert [server.process.poll() for server in services.all] == [None, None]
    services.close()


def test_damage_is_noticed(postgres: Postgres, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows are checked when they are read, when another process hears of them, and by `robandit check`."""
    url = postgres.new("damage")
    first, second = Hub(open_store(url)), Hub(open_store(url))
    shown = Choice(actions=[Action("a", [0.1, 0.2, 0.3])], decision_id="one")
    working(first, lambda: first.create("shop", BanditSettings(dim=3), 7), lambda: first.decide("shop", shown))
    first.stop()
    assert main(["check", url]) == 0 and capsys.readouterr().out.startswith("shop: 1 events, whole")
    with psycopg.connect(url) as db:
        db.execute("UPDATE robandit.events SET body = set_bit(body, 77, 1 - get_bit(body, 77))")
    assert main(["check", url]) == 1 and "event 1 of bandit 'shop' is damaged" in capsys.readouterr().err
    (found,) = working(second, lambda: second.decide("shop", shown))
    assert found.status == 503 and second.broken is not None and "event 1 of bandit" in second.broken
    second.stop()


def test_an_older_store_gets_its_checksums(postgres: Postgres) -> None:
    """Its tables as version 95351fc made them. Services of that version can't write any more."""
    url = postgres.new("older")
    hub = Hub(open_store(url))
    shown = Choice(actions=[Action("a", [0.1, 0.2, 0.3])], decision_id="\x00 ü")
    working(hub, lambda: hub.create("shop", BanditSettings(dim=3), 7), lambda: hub.decide("shop", shown))
    digest = hub.bandits["shop"].learner.digest()
    hub.stop()
    with psycopg.connect(url) as db:
        before = [
            db.execute(f"SELECT crc FROM robandit.{name}").fetchall() for name in ("bandits", "events", "snapshots")
        ]
        for name in ("bandits", "events", "snapshots"):
            db.execute(f"ALTER TABLE robandit.{name} DROP COLUMN crc")
        db.execute("DROP TABLE robandit.rounds")
        db.execute("DROP SEQUENCE robandit.unplaced")
    again = Hub(open_store(url))
    assert again.bandits["shop"].learner.digest() == digest
    again.stop()
    with psycopg.connect(url) as db:
        after = [
            db.execute(f"SELECT crc FROM robandit.{name}").fetchall() for name in ("bandits", "events", "snapshots")
        ]
        assert after == before and all(len(rows) == 1 for rows in before)
        with pytest.raises(psycopg.errors.NotNullViolation):
            db.execute("INSERT INTO robandit.events VALUES (2, 1, 2, 1, 'x', 'y')")
    check_fold(open_store(url))


def test_a_store_says_its_format(postgres: Postgres) -> None:
    """One of a newer format is refused, and nothing is changed there; an older one, which has no number, gets one."""
    url = postgres.new("format")
    for change in (None, "DROP TABLE robandit.format", f"UPDATE robandit.format SET version = {FORMAT - 1}"):
        if change is not None:
            with psycopg.connect(url) as db:
                db.execute(change.encode())
        open_store(url).close()
        with psycopg.connect(url) as db:
            assert db.execute("SELECT version FROM robandit.format").fetchall() == [(FORMAT,)]
    with psycopg.connect(url) as db:
        db.execute(f"UPDATE robandit.format SET version = {FORMAT + 1}; DROP TABLE robandit.snapshots".encode())
    with pytest.raises(StoreError, match=f"of a newer robandit .its format is {FORMAT + 1}"):
        open_store(url)
    with psycopg.connect(url) as db:
        assert db.execute("SELECT to_regclass('robandit.snapshots')").fetchall() == [(None,)]


def test_what_is_refused(postgres: Postgres) -> None:
    url = postgres.new("unsafe")
    with pytest.raises(StoreError, match="can't use") as failed:
        open_store(url.replace("robandit@", "nobody:secret@"))
    assert "secret" not in str(failed.value)
    with psycopg.connect(url, autocommit=True) as db:
        try:
            db.execute("ALTER SYSTEM SET fsync = off")
            db.execute("SELECT pg_reload_conf()")
            assert until(lambda: db.execute("SHOW fsync").fetchall() == [("off",)])
            with pytest.raises(StoreError, match="fsync = on"):
                open_store(url)
        finally:
            db.execute("ALTER SYSTEM RESET fsync")
            db.execute("SELECT pg_reload_conf()")
            assert until(lambda: db.execute("SHOW fsync").fetchall() == [("on",)])


def test_bandits_do_not_wait_for_each_others_lock(postgres: Postgres) -> None:
    """While somebody else holds the lane of one bandit, another one decides; and the first goes on after that."""
    url = postgres.new("lanes")
    hub, other = Hub(open_store(url)), open_store(url)
    settings = BanditSettings(dim=2, noise_range=0.5)
    choice = Choice(actions=[Action("a", [0.1, 0.2])])

    async def go() -> list[int]:
        work = asyncio.create_task(hub.work())
        for name in ("one", "two"):
            await hub.create(name, settings, 1)
        held = other.lane(hub.bandits["one"].record.number % LANES)
        held.news()
        waiting = asyncio.create_task(hub.decide("one", choice))
        found = [(await asyncio.wait_for(hub.decide("two", choice), 10.0)).round for _ in range(3)]
        assert not waiting.done()
        held.release()
        found.append((await asyncio.wait_for(waiting, 10.0)).round)
        work.cancel()
        return found

    assert asyncio.run(go()) == [1, 2, 3, 1]
    hub.stop()
    other.close()


def test_events_of_all_lanes_are_heard(postgres: Postgres) -> None:
    """Ten bandits in eight lanes, made by one service and used by two in turn, come to the same state in both."""
    url = postgres.new("ten")
    one, two = Hub(open_store(url)), Hub(open_store(url))
    settings = BanditSettings(dim=2, noise_range=0.5)
    choice = Choice(actions=[Action("a", [0.1, 0.2]), Action("b", [0.2, 0.1])])

    async def go() -> None:
        tasks = [asyncio.create_task(hub.work()) for hub in (one, two)]
        names = [f"b{i}" for i in range(10)]
        for name in names:
            await one.create(name, settings, 1)
        for turn in range(4):
            made = await asyncio.gather(*((one, two)[(i + turn) % 2].decide(n, choice) for i, n in enumerate(names)))
            assert [found.round for found in made] == [turn + 1] * 10
        await asyncio.gather(one.catch_up(), two.catch_up())
        digests = [[hub.bandits[name].learner.digest() for name in names] for hub in (one, two)]
        assert digests[0] == digests[1]
        for task in tasks:
            task.cancel()

    asyncio.run(go())
    one.stop()
    two.stop()
    assert {name: len(log) for name, log in check_fold(open_store(url)).items()} == {f"b{i}": 4 for i in range(10)}
