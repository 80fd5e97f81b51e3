"""Services that are killed again and again under load, and a count of what was lost."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec import UNSET
from served import FORKS, SHOP, Customer, Server, check_fold, free_port

from robandit.service.stores import open_store
from robandit.wire.events import Decided, Rewarded

SNAPSHOTS = 300
"""Events from one snapshot to the next, so that kills hit those too."""


def _serve(store: str, port: int, *options: str) -> None:
    from robandit.cli import main
    from robandit.service.serving import live

    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    live.SNAPSHOT_EVERY = SNAPSHOTS
    main(["serve", "--store", store, "--port", str(port), *options])


class Forked(Server):
    """A service as `Server` is, from a process that has loaded the code already."""

    def __init__(self, store: Path | str, *options: str) -> None:
        self.port, self.store, self._options = free_port(), str(store), options
        self.restart()

    def start(self) -> None:
        """Start without waiting."""
        self._forked = FORKS.Process(target=_serve, args=(self.store, self.port, *self._options))
        self._forked.start()

    def restart(self) -> None:
        """Start and wait until it answers."""
        self.start()
        self._wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + 60.0
        while time.monotonic() < deadline and self._forked.is_alive():
            try:
                if self.ask("GET", "/ready")[0] == 200:
                    return
            except OSError:
                time.sleep(0.01)
        raise RuntimeError("it does not start")

    def kill(self) -> None:
        assert self._forked.is_alive(), "it has ended by itself"
        self._forked.kill()
        self._forked.join()
        self._forked.close()


@dataclass
class Tally:
    """What was done to services, and what became of what they had acknowledged."""

    kills: int = 0
    decisions: int = 0
    """Decisions acknowledged."""
    rewards: int = 0
    """Rewards acknowledged."""
    lost: int = 0
    """Acknowledged, and not there, or there otherwise."""
    double: int = 0
    """Events of an id and kind, and rounds, that were there already."""
    behind: int = 0
    """Decisions that were made on a state that lacked some event before them."""
    odd: int = 0
    """Answers that nobody should have got."""
    stores: int = 0
    """Stores whose states are the folds of their logs, from the beginning and from a snapshot."""

    def __str__(self) -> str:
        return (
            f"{self.kills} kills: {self.decisions} decisions and {self.rewards} rewards acknowledged, "
            f"{self.behind} made on a state that lacked something; "
            f"{self.lost} lost, {self.double} double, {self.odd} odd answers; "
            f"the folds of {self.stores} stores are identical"
        )

    def count(self, store: str, customers: Sequence[Customer]) -> None:
        """Compare what a store holds with what its customers were told."""
        log = check_fold(open_store(store))["shop"]
        decided = [event for event in log if isinstance(event, Decided)]
        rewarded = [event for event in log if isinstance(event, Rewarded)]
        made, got = {event.id: event for event in decided}, {event.id: event.reward for event in rewarded}
        self.double += len(decided) - len(made) + len(rewarded) - len(got)
        self.double += len(decided) - len({event.round for event in decided})
        told = [(place, event.made_on) for place, event in enumerate(log) if isinstance(event, Decided)]
        self.behind += sum(made_on is not UNSET and made_on < place for place, made_on in told)
        if all(made_on is UNSET for _, made_on in told):
            self.double += [event.round for event in decided] != list(range(1, len(decided) + 1))
        for customer in customers:
            for name, answer in customer.decisions.items():
                there = made.get(name)
                self.lost += there is None or (there.round, there.index) != (answer["round"], answer["index"])
            self.lost += sum(got.get(name) != reward for name, reward in customer.rewards.items())
            self.decisions += len(customer.decisions)
            self.rewards += len(customer.rewards)
            self.odd += len(customer.odd)
        self.stores += 1


def kill_under_load(tally: Tally, store: str, services: int, kills: int, rng: random.Random, *options: str) -> None:
    """Kill one of some services on a store at a random moment, again and again, some of them while they start."""
    all_ = [Forked(store, *options) for _ in range(services)]
    settings = {**SHOP, "exploration": 0.2} if options else SHOP  # so that the log has what was offered
    assert all_[0].ask("PUT", "/v1/bandits/shop", settings)[0] == 201
    over = threading.Event()

    def ask(*request: Any) -> tuple[int, Any]:
        return random.choice(all_).ask(*request)

    customers = [Customer(ask, number, over) for number in range(4)]
    for customer in customers:
        customer.start()
    for _ in range(kills):
        time.sleep(rng.uniform(0.05, 0.4))
        one = rng.choice(all_)
        one.kill()
        if rng.random() < 0.25:
            one.start()
            time.sleep(rng.uniform(0.0, 0.3))
            one.kill()
            tally.kills += 1
        one.restart()
        tally.kills += 1
    time.sleep(0.3)
    over.set()
    for customer in customers:
        customer.join(60)
        tally.odd += customer.is_alive()
    _check_same_status(all_)
    for one in all_:
        one.kill()
    tally.count(store, customers)


def _check_same_status(services: Sequence[Server]) -> None:
    """All services on a store say the same."""
    seen = [one.ask("GET", "/v1/bandits/shop")[1] | {"now": 0} for one in services]
    assert all(one == seen[0] for one in seen) and seen[0]["rounds"] > 10


def kill_loop(new: Callable[[int], str], services: int, kills: int, *options: str, a_store: int = 100) -> Tally:
    """Kill so often, with a new store after every hundred kills or so; say how it goes."""
    tally, rng = Tally(), random.Random(3)
    while tally.kills < kills:
        kill_under_load(tally, new(tally.stores), services, min(a_store, kills - tally.kills), rng, *options)
        print(tally, flush=True)
    return tally


def besiege(
    services: list[Forked],
    threads: Sequence[threading.Thread],
    over: threading.Event,
    kills: int,
    rng: random.Random,
    enough: Callable[[], bool],
) -> None:
    """Kill services and start them again while these threads ask them, until there is enough; then end all."""
    for thread in threads:
        thread.start()
    for _ in range(kills):
        time.sleep(rng.uniform(0.2, 0.8))
        killed = rng.choice(services)
        killed.kill()
        killed.restart()
    end = time.monotonic() + 60.0
    while not enough() and time.monotonic() < end:  # a fold aside may take longer than from kill to kill
        time.sleep(0.1)
    over.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    for service in services:
        service.kill()
