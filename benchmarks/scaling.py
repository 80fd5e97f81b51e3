"""Measures several services on one PostgreSQL: decisions a second, and the processor time that each takes.

    python benchmarks/scaling.py postgresql://robandit@localhost/postgres
    python benchmarks/scaling.py postgresql://robandit@localhost/postgres --steps 4000

Each line is a database of its own, with 1, 2 and 4 services, one bandit and eight, in the ordinary way and with
--staleness 200. With --rewards, each decision is rewarded, twenty at a time.

Clients, database and services share the machine's cores. So the rate on few cores shows little, and two more figures
are computed from what was measured: with services on cores of their own they make at most `services / CPU` decisions a
second, and no more than the lock of a lane allows, as it was held for a share of the time at the measured rate.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import threading
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

import numpy as np
import psycopg

from robandit.service.hub import Hub
from robandit.service.serving import stale_queue
from robandit.service.stores import open_store
from robandit.service.stores.postgres import WRITING
from robandit.service.stores.store import LANES
from robandit.wire.types import Action, BanditSettings, Choice, Feedback
from service import Link, cpu, offers, once, request, run, running

LOCKS = """
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted AND objid = ANY(%s)
AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
"""


class Visitor:
    """What one connection asks for: decisions, and the rewards of those that it got."""

    def __init__(self, requests: list[bytes], rewards: bool, end: float, first: int) -> None:
        self._requests, self._rewards, self._end = requests, rewards, end
        self._places, self._asked = itertools.count(first), 0
        self._owed: dict[int, list[str]] = defaultdict(list)
        self.took: list[float] = []

    def ask(self) -> bytes | None:
        """The next request, or None when the time is over."""
        if time.perf_counter() > self._end:
            return None
        for bandit, names in self._owed.items():
            if len(names) >= 20:
                self._asked = -1
                del self._owed[bandit]
                body = json.dumps([{"decision_id": name, "reward": 0.1} for name in names])
                return request(f"/v1/bandits/shop-{bandit}/rewards", body.encode())
        self._asked = next(self._places) % len(self._requests)
        return self._requests[self._asked]

    def answered(self, took: float, answer: bytes) -> None:
        """Note the latency of a decision, and that its reward is owed."""
        if self._asked >= 0:
            self.took.append(took)
            if self._rewards:
                bandit = int(self._requests[self._asked].split(b"/", 4)[3].removeprefix(b"shop-"))
                self._owed[bandit].append(answer.split(b'"', 4)[3].decode())


async def load(ports: list[int], connections: int, make: Callable[[int], Visitor]) -> list[float]:
    """The latencies of all decisions."""
    visitors = [make(number) for number in range(connections)]
    loop, links = asyncio.get_running_loop(), []
    for visitor, port in zip(visitors, itertools.cycle(ports), strict=False):
        link = await loop.create_connection(lambda v=visitor: Link(v.ask, v.answered), "127.0.0.1", port)  # type: ignore[misc]
        links.append(link[1])
    await asyncio.gather(*(link.over for link in links))
    return [took for visitor in visitors for took in visitor.took]


class LockWatch(threading.Thread):
    """Looks every 5 ms how many lanes are locked."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self._url, self._over, self.seen = url, threading.Event(), list[int]()

    def run(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as db:
            lanes = [(WRITING - 2 * lane) % (1 << 32) for lane in range(LANES)]
            while not self._over.wait(0.005):
                self.seen.append(db.execute(LOCKS, (lanes,)).fetchall()[0][0])

    def stop(self) -> float:
        """The mean number of lanes that were locked."""
        self._over.set()
        self.join()
        return float(np.mean(self.seen))


class Setting(NamedTuple):
    """What is measured."""

    staleness: int | None
    bandits: int
    services: int


def measure(url: str, setting: Setting, options: argparse.Namespace) -> None:
    """Print a line."""
    stale = [] if setting.staleness is None else ["--staleness", str(setting.staleness)]
    command = ["-m", "robandit", "serve", "--store", url, *stale, "--port"]
    requests = offers(setting.bandits, block=False)
    settings = json.dumps({"dim": 20, "noise_range": 0.5}).encode()
    with ExitStack() as stack:
        services = [stack.enter_context(running(command)) for _ in range(setting.services)]
        ports = [port for port, _ in services]
        for number in range(setting.bandits):
            run(once(ports[0], request(f"/v1/bandits/shop-{number}", settings, "PUT")))

        def play(seconds: float) -> list[float]:
            end = time.perf_counter() + seconds
            return run(load(ports, options.connections, lambda n: Visitor(requests, options.rewards, end, 7 * n)))

        play(2.0)  # warm up
        watch = LockWatch(url)
        watch.start()
        before, start = sum(cpu(process.pid) for _, process in services), time.perf_counter()
        found = play(options.seconds)
        rate = len(found) / (time.perf_counter() - start)
        spent = (sum(cpu(process.pid) for _, process in services) - before) / len(found)
        held = watch.stop()
    own, lanes = setting.services / spent, min(setting.bandits, LANES)
    print(
        f"| {'' if setting.staleness is None else f'{setting.staleness} ms'} | {setting.bandits} | {setting.services} "
        f"| {rate:.0f} | {1e6 * spent:.0f} µs | {1e3 * float(np.median(found)):.0f} ms | {held / lanes:.2f} "
        f"| {own:.0f} | {rate * lanes / held if held else float('inf'):.0f} |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="a PostgreSQL in which databases may be made")
    parser.add_argument("--seconds", type=float, default=6.0, help="of each measurement (default %(default)s)")
    parser.add_argument("--connections", type=int, default=64, help="of all clients (default %(default)s)")
    parser.add_argument("--services", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--bandits", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--staleness", type=int, nargs="+", default=[0, 200], help="in ms; 0 for the ordinary way")
    parser.add_argument("--rewards", action="store_true", help="also reward each decision")
    parser.add_argument("--steps", type=int, metavar="N", help="measure what N decisions take step by step, instead")
    options = parser.parse_args()
    if options.steps:
        with new_database(options.url, "robandit_steps") as url:
            asyncio.run(steps(url, options.steps))
        return
    print("| staleness | bandits | services | decisions a second | CPU | p50 | lane locked | own cores | lock |")
    print("|---|---|---|---|---|---|---|---|---|")
    for place, chosen in enumerate(itertools.product(options.staleness, options.bandits, options.services)):
        with new_database(options.url, f"robandit_scaling_{place}") as url:
            measure(url, Setting(chosen[0] or None, chosen[1], chosen[2]), options)


@contextmanager
def new_database(url: str, name: str) -> Iterator[str]:
    """The URL of a new database on the same server, which is removed at the end."""
    head, _, query = url.partition("?")
    with psycopg.connect(url, autocommit=True) as db:
        db.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        db.execute(f"CREATE DATABASE {name}".encode())
        yield f"{head.rpartition('/')[0]}/{name}" + (f"?{query}" if query else "")
        db.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


async def steps(url: str, number: int) -> None:
    """Print the processor time of each step of a decision and its reward, in two hubs of this process, without HTTP."""
    stale_queue.PLACE_AFTER = 10 * number  # only when it is asked for
    one, two = (Hub(open_store(url), staleness=1.0) for _ in range(2))
    work = [asyncio.create_task(hub.work()) for hub in (one, two)]
    menus = np.random.default_rng(1).uniform(-1.0, 1.0, (64, 20, 20)).round(4) / 20**0.5
    choices = [Choice(actions=[Action(f"a{i}", row) for i, row in enumerate(menu.tolist())]) for menu in menus]

    async def decide(rounds: int) -> None:
        for _ in range(rounds // len(choices)):
            await asyncio.gather(*(one.decide("shop", choice) for choice in choices))

    async def reward() -> None:
        owed = [Feedback(decision_id=name, reward=0.2) for name in one.bandits["shop"].learner.pending]
        for place in range(0, number, 500):
            await one.reward("shop", owed[place : place + 500])

    await one.create("shop", BanditSettings(dim=20, noise_range=0.5), 1)
    await decide(640)
    await one.catch_up()
    await two.catch_up()
    plan: tuple[tuple[str, Callable[[], Awaitable[None]]], ...] = (
        ("decide and add", partial(decide, number)),
        ("give it its place", one.catch_up),
        ("hear of it", two.catch_up),
        ("take its reward", reward),
        ("hear of its reward", two.catch_up),
    )
    for name, step in plan:
        before = time.process_time()
        await step()
        print(f"{name:20} {1e6 * (time.process_time() - before) / number:6.1f} µs", flush=True)
    sizes = [len(line) async for page in one.log("shop") for line in page if line.startswith(b'{"type":"D"')]
    print(f"{'a decision in the log':20} {np.mean(sizes):5.0f} bytes")
    for task in work:
        task.cancel()
    one.stop()
    two.stop()


if __name__ == "__main__":
    main()
