"""A service in a process of its own, customers who use it, and checks of what it leaves behind."""

from __future__ import annotations

import asyncio
import http.client
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, cast

import msgspec
import numpy as np
from msgspec import UNSET

from robandit.service import meters
from robandit.service.hub import Hub
from robandit.service.learning.fold import fold, step
from robandit.service.learning.kept import first_learner, read_kept
from robandit.service.learning.learner import Asked, Learner
from robandit.service.refused import Refused
from robandit.service.stores.store import Store, events
from robandit.wire.events import Decided, Event, Forgot, Rewarded
from robandit.wire.types import Action, BanditSettings, Choice

SHOP = {"dim": 3, "noise_range": 0.5}
FORKS = multiprocessing.get_context("forkserver")
"""Starts services from a process that has loaded the code already: a start takes a third of the time."""
FORKS.set_forkserver_preload(["robandit.cli", "robandit.service.web.app", "robandit.service.web.protocol", "served"])


def _main(stderr: Connection, before: Callable[[], None] | None, words: Sequence[str]) -> None:
    from robandit.cli import main

    os.dup2(stderr.fileno(), 2)
    stderr.close()
    meters._STARTED = time.time()  # not when the fork server loaded the code
    if before:
        before()
    sys.exit(main(words))


class ForkedProcess:
    """`robandit` in a process of the fork server, with what is used here of `subprocess.Popen`."""

    def __init__(self, *words: str, before: Callable[[], None] | None = None) -> None:
        ours, theirs = FORKS.Pipe(duplex=False)
        self._process = FORKS.Process(target=_main, args=(theirs, before, words))
        self._process.start()
        Finalize(None, self._process.kill, exitpriority=0)  # one that a failed test has left would be waited for
        theirs.close()
        self.pid, self.stderr = self._process.pid, os.fdopen(os.dup(ours.fileno()), encoding="utf-8")
        ours.close()

    def poll(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float | None = None) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("robandit", timeout or 0.0)
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.pid is not None and self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class Server:
    """A service in a process of its own; one with another program is started from nothing."""

    def __init__(
        self,
        store: Path | str,
        *options: str,
        port: int | None = None,
        before: Callable[[], None] | None = None,
        program: Sequence[str] = (),
    ) -> None:
        self.port, self.log = port or free_port(), ""
        words = ["serve", "--store", str(store), "--port", str(self.port), *options]
        self.process: ForkedProcess | subprocess.Popen[str] = (
            subprocess.Popen([sys.executable, *program, *words], stderr=subprocess.PIPE, text=True, preexec_fn=before)
            if program
            else ForkedProcess(*words, before=before)
        )
        self._wait()

    def _wait(self) -> None:
        for _ in range(600):
            if self.process.poll() is not None:
                raise RuntimeError(self.process.stderr.read() if self.process.stderr else "")
            with suppress(OSError):
                if self.ask("GET", "/ready")[0] == 200:
                    return
            time.sleep(0.05)
        raise RuntimeError("it does not start")

    def ask(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        """The status and the answer. A body that is bytes is sent as it is."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            headers = {} if data is None else {"Content-Type": "application/json"}
            link.request(method, path, data, headers | ({"Authorization": f"Bearer {key}"} if key else {}))
            answer = link.getresponse()
            text = answer.read()
            plain = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(text) if plain else text.decode(errors="replace")
        finally:
            link.close()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._close()

    def stop(self) -> bool:
        """Ask the service to stop; return whether it ended in good order, by the signal that it was sent."""
        self.process.terminate()
        code = self.process.wait(20)
        self.log = self.process.stderr.read() if self.process.stderr else ""
        self._close()
        return code == -signal.SIGTERM

    def _close(self) -> None:
        if self.process.stderr:
            self.process.stderr.close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def menu(rng: np.random.Generator, number: int = 4, dim: int = 3) -> list[dict[str, Any]]:
    return [{"id": f"a{i}", "features": (rng.uniform(-1, 1, dim) / dim**0.5).tolist()} for i in range(number)]


def log_of(hub: Hub, name: str) -> Iterator[Event]:
    bandit = hub.bandits[name]
    return events(hub._store, bandit.record.number, bandit.learner.life.begins)


def check_fold(store: Store) -> dict[str, list[Event]]:
    """Check that every state is the fold of its log, from the beginning and from a snapshot; return the logs."""
    hub = Hub(store)
    working(hub, hub.catch_up)  # decisions without a place get theirs
    logs = {name: list(log_of(hub, name)) for name in hub.bandits}
    for name, bandit in hub.bandits.items():
        first = msgspec.json.decode(bandit.record.settings, type=BanditSettings)
        begins, beginning = bandit.learner.life.begins, store.beginning(bandit.record.number)
        assert begins == (0 if beginning is None else beginning.place)
        learner, kept = first_learner(first, bandit.record.seed, beginning), read_kept(beginning)
        after_place = partial(_after, logs[name], begins)
        for _ in fold(learner, after_place, lambda kept=kept: kept):  # type: ignore[misc]
            pass
        assert learner.digest() == bandit.learner.digest()
        assert Learner.restore(first, bandit.record.seed, learner.snapshot()).digest() == learner.digest()
        if beginning is None and not any(isinstance(event, Forgot) for event in logs[name]):
            # otherwise the states are gone that some were made on
            check_made_as_said(first, bandit.record.seed, logs[name])
    hub.stop()
    return logs


def _after(log: Sequence[Event], begins: int, place: int) -> Iterator[Event]:
    """The events after a place of a log that begins after another."""
    return iter(log[place - begins :])


def check_made_as_said(first: BanditSettings, seed: int, log: Sequence[Event]) -> None:
    """Check that decisions that say which state they were made on follow from that state, by making them again. The log
    must have what was offered."""
    made = [event for event in log if isinstance(event, Decided) and event.made_on is not UNSET]
    learner = Learner(first, seed)
    for event in sorted(made, key=lambda event: cast(int, event.made_on)):
        assert event.made_on is not UNSET and event.made_on <= log.index(event) and event.offered is not None
        while learner.place < event.made_on:
            step(learner, log[learner.place], lambda after: iter(log[after:]))
        features = np.frombuffer(event.offered).reshape(-1, first.dim)
        asked = Asked(event.actions, features, event.id, event.source)
        again = learner.decide_in(event.round, asked, event.at)
        assert again == msgspec.structs.replace(event, at=again.at)


def everything(server: Server) -> Any:
    """All that can be seen of a service, except the time."""
    seen = server.ask("GET", "/v1/bandits/shop")[1]
    return seen | {"now": 0}, server.ask("GET", "/v1/bandits/shop/log"), server.ask("GET", "/v1/bandits")


ONE = {"id": "a", "features": [0.1, 0.2, 0.3]}
FIRST = {"actions": [ONE], "decision_id": "first"}


class Customer(threading.Thread):
    """Decides and rewards, tries again with the same ids until there is an answer, and remembers the answers."""

    def __init__(self, ask: Callable[..., tuple[int, Any]], number: int, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._ask, self._number, self._over = ask, number, over
        self.decisions: dict[str, Any] = {}
        self.rewards: dict[str, float] = {}
        self.odd: list[Any] = []

    def run(self) -> None:
        rng, count = np.random.default_rng(self._number), 0
        while not self._over.is_set():
            count += 1
            name = f"{self._number}-{count}"
            offer = {"actions": menu(rng), "decision_id": name}
            answer = self._insist("/v1/bandits/shop/decisions", offer)
            if answer is None:
                return
            self.decisions[name] = answer
            if count % 4:
                reward = round(float(rng.normal(0.0, 0.3)), 6)
                answer = self._insist("/v1/bandits/shop/rewards", {"decision_id": name, "reward": reward})
                if answer is None:
                    return
                if answer["results"][0]["status"] not in ("accepted", "duplicate"):
                    self.odd.append(answer)
                self.rewards[name] = reward

    def _insist(self, path: str, body: Any) -> Any:
        while not self._over.is_set():
            try:
                status, answer = self._ask("POST", path, body)
            except (OSError, http.client.HTTPException, ValueError):
                time.sleep(0.02)
                continue
            if status == 200:
                return answer
            if status != 503:
                self.odd.append((status, answer))
        return None


def check_nothing_lost(store: Store, customers: Sequence[Customer]) -> None:
    log = check_fold(store)["shop"]
    decisions = [event for event in log if isinstance(event, Decided)]
    rewards = [event for event in log if isinstance(event, Rewarded)]
    made, got = {event.id: event for event in decisions}, {event.id: event.reward for event in rewards}
    assert len(made) == len(decisions) and len(got) == len(rewards)  # nothing twice
    rounds = [event.round for event in decisions]
    assert rounds == list(range(1, len(rounds) + 1)) or decisions[0].made_on is not UNSET
    assert len(set(rounds)) == len(rounds)
    assert not any(customer.odd for customer in customers)
    acknowledged = 0
    for customer in customers:
        for name, answer in customer.decisions.items():
            assert (made[name].round, made[name].index) == (answer["round"], answer["index"])
        for name, reward in customer.rewards.items():
            assert got[name] == reward
        acknowledged += len(customer.decisions) + len(customer.rewards)
    assert acknowledged > 50


def working(hub: Hub, *calls: Callable[[], Any]) -> list[Any]:
    """The results of these calls, made one after the other while the hub works."""

    async def everything() -> list[Any]:
        work = asyncio.create_task(hub.work())
        found = []
        for call in calls:
            try:
                found.append(await call())
            except Refused as error:
                found.append(error)
        work.cancel()
        return found

    return asyncio.run(everything())


def offer(name: str, dim: int = 3) -> Choice:
    rng = np.random.default_rng(abs(hash(name)) % 2**32)
    return Choice(actions=[Action(one["id"], one["features"]) for one in menu(rng, dim=dim)], decision_id=name)
