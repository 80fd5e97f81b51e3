"""Services on one PostgreSQL that decide at the same time, on states that may be old."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import numpy as np
import psycopg
import pytest
from msgspec import UNSET
from postgres_server import Postgres
from served import Server, check_fold, log_of, menu, offer, working

from robandit.service.hub import Hub
from robandit.service.refused import Refused
from robandit.service.serving.stale_queue import StaleQueue
from robandit.service.stores import StoreError, open_store
from robandit.service.stores.store import LANES, LogEntry
from robandit.wire.events import Closed, Decided, Event, Rewarded
from robandit.wire.types import Action, BanditSettings, Choice, Feedback

pytestmark = pytest.mark.engines

SETTINGS = BanditSettings(dim=3, noise_range=0.5, exploration=0.3)


def stale(url: str, staleness: float = 0.5) -> Hub:
    return Hub(open_store(url), staleness=staleness)


def part_of(hub: Hub) -> Any:
    queue = hub._lanes.stale
    assert isinstance(queue, StaleQueue)
    return queue._part


def reward(hub: Hub, name: str, value: float) -> Callable[[], Any]:
    return lambda: hub.reward("shop", [Feedback(decision_id=name, reward=value)])


def together(hubs: Sequence[Hub], play: Callable[[], Awaitable[Any]]) -> Any:
    """What this play comes to while all these hubs work."""

    async def everything() -> Any:
        tasks = [asyncio.create_task(hub.work()) for hub in hubs]
        try:
            return await asyncio.wait_for(play(), 60.0)
        finally:
            for task in tasks:
                task.cancel()

    return asyncio.run(everything())


def decisions(log: Sequence[Event]) -> list[Decided]:
    return [event for event in log if isinstance(event, Decided)]


def test_one_id_asked_of_two_at_once_is_one_decision(postgres: Postgres) -> None:
    """Whoever is first owns it, also where the two would have chosen differently, and later retries say the same."""
    url = postgres.new("race")
    servers = [Server(url, "--staleness", "500") for _ in range(2)]
    settings = {"dim": 3, "noise_range": 0.5, "exploration": 1.0}  # so that each would choose at random
    assert servers[0].ask("PUT", "/v1/bandits/shop", settings)[0] == 201
    assert servers[1].ask("GET", "/v1/bandits/shop")[0] == 200
    rng, differ = np.random.default_rng(1), set()
    with ThreadPoolExecutor(6) as pool:
        for number in range(60):
            shown = {"actions": menu(rng), "decision_id": f"d{number}"}
            asked = [pool.submit(servers[i % 2].ask, "POST", "/v1/bandits/shop/decisions", shown) for i in range(6)]
            answers = [one.result() for one in asked]
            assert answers[0][0] == 200 and all(one == answers[0] for one in answers)
            assert servers[number % 2].ask("POST", "/v1/bandits/shop/decisions", shown) == answers[0]
            differ.add(answers[0][1]["index"])
            other = {**shown, "actions": menu(rng)}
            assert servers[number % 2].ask("POST", "/v1/bandits/shop/decisions", other)[0] == 409
    assert differ == {0, 1, 2, 3}
    for server in servers:
        server.kill()
    assert len(check_fold(open_store(url))["shop"]) == 60


def test_a_state_that_is_too_old_when_the_decision_is_written_does_not_count(postgres: Postgres) -> None:
    """A service stands still between choosing and writing. Meanwhile the other one learns: so it chooses again."""
    url = postgres.new("old")
    slow, other = stale(url, 0.3), stale(url, 0.3)
    part, held = part_of(slow), list[float]()
    add = part.add

    def late(entries: Sequence[LogEntry], until: float) -> Any:
        if not held:
            held.append(until)
            deadline = time.monotonic() + 20.0
            while other.bandits["shop"].learner.rewards == 0 and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.4)
        return add(entries, until)

    async def play() -> None:
        await slow.create("shop", SETTINGS, 7)
        await other.decide("shop", offer("first"))
        part.add = late
        waiting = asyncio.create_task(slow.decide("shop", offer("second")))
        while not held:
            await asyncio.sleep(0.01)
        await reward(other, "first", 0.5)()
        await waiting
        await other.catch_up()

    together([slow, other], play)
    log = list(log_of(other, "shop"))
    assert [type(event) for event in log] == [Decided, Rewarded, Decided]
    assert decisions(log)[1].made_on == 2
    slow.stop()
    other.stop()
    check_fold(open_store(url))


def test_a_service_that_is_always_too_late_refuses(postgres: Postgres) -> None:
    url = postgres.new("late")
    hub = stale(url, 0.05)
    part = part_of(hub)
    add = part.add

    def slow(entries: Sequence[LogEntry], until: float) -> Any:
        time.sleep(0.06)
        return add(entries, until)

    async def play() -> None:
        await hub.create("shop", SETTINGS, 7)
        part.add = slow
        with pytest.raises(Refused, match="at most 50 ms old") as found:
            await hub.decide("shop", offer("one"))
        assert found.value.status == 503
        part.add = add
        assert (await hub.decide("shop", offer("one"))).decision_id == "one"  # which it survives

    together([hub], play)
    hub.stop()
    assert len(check_fold(open_store(url))["shop"]) == 1


def test_no_decision_is_made_on_what_is_not_safe(postgres: Postgres) -> None:
    """A reward changes the state at once. Where it can't be written, decisions that know of it are not made, either."""
    url = postgres.new("unsafe")
    hub = stale(url, 5.0)

    def fail() -> None:
        time.sleep(0.5)
        raise StoreError("the disk is full")

    async def play() -> list[Any]:
        await hub.create("shop", SETTINGS, 7)
        await hub.decide("shop", offer("one"))
        await hub.catch_up()
        hub._store.lane(hub.bandits["shop"].record.number % LANES).commit = fail  # type: ignore[method-assign]
        paid = asyncio.create_task(reward(hub, "one", 0.5)())
        while hub.bandits["shop"].learner.rewards == 0:
            await asyncio.sleep(0.001)
        asked = asyncio.create_task(hub.decide("shop", offer("two")))
        return list(await asyncio.gather(paid, asked, return_exceptions=True))

    found = together([hub], play)
    assert [one.status for one in found] == [503, 503] and hub.broken is not None
    hub.stop()
    log = check_fold(open_store(url))["shop"]
    assert [event.id for event in log] == ["one"]


def test_decisions_without_a_place_are_seen_rewarded_and_closed(postgres: Postgres) -> None:
    """By the other service at once; and by one that decides in the ordinary way after both were killed."""
    url = postgres.new("placed")
    one, two = stale(url), stale(url)
    settings = BanditSettings(dim=3, noise_range=0.5, exploration=0.3, reward_window=3600.0)

    async def play() -> tuple[Any, ...]:
        await one.create("shop", settings, 7)
        made = [await one.decide("shop", offer(f"d{number}")) for number in range(4)]
        assert one.bandits["shop"].learner.decisions == 0  # none has a place
        paid = await reward(two, "d0", 0.25)()
        assert two.status("shop").rounds == 4 and two.status("shop").pending == 3
        again = await two.decide("shop", offer("d1"))
        more = await two.decide("shop", offer("d4"))
        return made, paid, again, more

    made, paid, again, more = together([one, two], play)
    assert paid[0].status == "accepted" and again == made[1] and more.round > max(chosen.round for chosen in made)
    for hub in (one, two):
        hub._lanes.finish()
        hub._store.close()  # as if they were killed
    late = Hub(open_store(url))
    assert late.bandits["shop"].learner.decisions == 4
    retry, next_ = (lambda: late.decide("shop", offer("d4"))), (lambda: late.decide("shop", offer("d5")))
    found = working(late, late.place, retry, reward(late, "d4", 0.5), next_)
    assert found[1] == more and found[2][0].status == "accepted"
    assert late.status("shop").rounds == 6 and late.status("shop").pending == 4
    late.stop()
    log = check_fold(open_store(url))["shop"]
    assert len({event.round for event in decisions(log)}) == 6
    assert [event.made_on is UNSET for event in decisions(log)] == [False] * 5 + [True]


def test_time_never_goes_back_in_the_log_and_windows_close(postgres: Postgres) -> None:
    url = postgres.new("windows")
    one, two = stale(url), stale(url)
    settings = BanditSettings(dim=3, noise_range=0.5, exploration=0.3, reward_window=1.0, default_reward=0.0)

    async def play() -> None:
        await one.create("shop", settings, 7)
        await two.catch_up()
        for number in range(30):
            await asyncio.gather(
                *(hub.decide("shop", offer(f"{place}-{number}")) for place, hub in enumerate((one, two)))
            )
            if number % 3 == 0:
                await reward((one, two)[number % 2], f"0-{number}", 0.1)()
        deadline = time.monotonic() + 30.0
        while one.status("shop").pending or two.status("shop").pending or one.status("shop").rounds < 60:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.05)
            for hub in (one, two):
                await hub.place()
                await hub.close_windows()

    together([one, two], play)
    assert one.bandits["shop"].learner.digest() == two.bandits["shop"].learner.digest()
    assert one.bandits["shop"].learner.monitor.rounds == 60
    one.stop()
    two.stop()
    log = check_fold(open_store(url))["shop"]
    times = [event.at for event in log]
    assert times == sorted(times) and sum(isinstance(event, Closed) for event in log) == 50


def test_all_services_decide_in_the_same_way(postgres: Postgres) -> None:
    url = postgres.new("ways")
    first = Hub(open_store(url))
    with closing(open_store(url)) as store, pytest.raises(StoreError, match="runs without --staleness"):
        Hub(store, staleness=0.5)
    first.stop()
    second, third = stale(url), stale(url, 1.0)
    with closing(open_store(url)) as store, pytest.raises(StoreError, match="runs with --staleness"):
        Hub(store)
    second.stop()
    third.stop()
    Hub(open_store(url)).stop()


def test_many_bandits_of_many_lanes_at_once(postgres: Postgres) -> None:
    """More decisions than are reserved or placed at a time, in two services."""
    url = postgres.new("many")
    one, two = stale(url), stale(url)
    actions = [Action("a", [0.1, 0.2, 0.0]), Action("b", [0.2, 0.1, 0.0])]

    async def play() -> None:
        names = [f"b{number}" for number in range(10)]
        for name in names:
            await one.create(name, SETTINGS, 1)
        await two.catch_up()
        for _ in range(6):
            asked = (
                hub.decide(name, Choice(actions=actions)) for name in names for hub in (one, two) for _ in range(20)
            )
            await asyncio.gather(*asked)
        await asyncio.gather(one.catch_up(), two.catch_up())
        await asyncio.gather(one.catch_up(), two.catch_up())
        digests = [[hub.bandits[name].learner.digest() for name in names] for hub in (one, two)]
        assert digests[0] == digests[1]

    together([one, two], play)
    one.stop()
    two.stop()
    for log in check_fold(open_store(url)).values():
        assert len(log) == 240 and len({event.round for event in decisions(log)}) == 240


def test_damage_to_a_decision_without_a_place_is_noticed(postgres: Postgres) -> None:
    """The request that needs it is an error, others are served, and nobody starts on it."""
    url = postgres.new("hurt")
    hub = stale(url)

    async def play() -> None:
        await hub.create("shop", SETTINGS, 7)
        await hub.decide("shop", offer("one"))
        with psycopg.connect(url) as db:
            db.execute("UPDATE robandit.events SET body = set_bit(body, 77, 1 - get_bit(body, 77)) WHERE number < 0")
        with pytest.raises(Refused, match="is damaged") as found:
            await hub.decide("shop", offer("one"))
        assert found.value.status == 500
        await hub.decide("shop", offer("two"))

    together([hub], play)
    hub._lanes.finish()
    hub._store.close()
    with closing(open_store(url)) as store, pytest.raises(StoreError, match="a decision of bandit 'shop' is damaged"):
        Hub(store)
