"""The decision service: what it answers, what it refuses, and that it loses nothing when it is killed."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import msgspec
import numpy as np
import pytest

from robandit.cli import main
from robandit.monitor.certificate import Certificate
from robandit.monitor.monitor import CorruptionMonitor
from robandit.policies import POLICIES
from robandit.service.hub import Hub, Refused
from robandit.service.keys import Keys, new_key
from robandit.service.learner import Learner
from robandit.service.log_lines import JsonLines
from robandit.service.looker import Looker, look
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Bandit, LogEntry, Snapshot, Store, StoreError, append, events
from robandit.wire.events import Closed, Decided, Event, Proved, Rewarded, decode, encode
from robandit.wire.types import Action, BanditSettings, Choice, Feedback

KILLS = int(os.environ.get("ROBANDIT_KILLS", "5"))
SHOP = {"dim": 3, "noise_range": 0.5}


class Server:
    """A service in a process of its own."""

    def __init__(self, store: Path | str, *options: str, port: int | None = None) -> None:
        self.port = port or _free_port()
        command = [sys.executable, "-m", "robandit", "serve", "--store", str(store), "--port", str(self.port), *options]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self._wait()

    def _wait(self) -> None:
        for _ in range(600):
            if self.process.poll() is not None:
                raise RuntimeError(self.process.stderr.read() if self.process.stderr else "")
            try:
                if self.ask("GET", "/ready")[0] == 200:
                    return
            except OSError:
                time.sleep(0.05)
        raise RuntimeError("it does not start")

    def ask(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, Any]:
        """The status and the answer. A body that is bytes is sent as it is."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            link.request(method, path, data, {"Authorization": f"Bearer {key}"} if key else {})
            answer = link.getresponse()
            text = answer.read()
            plain = answer.headers.get_content_type() == "application/json"
            return answer.status, json.loads(text) if plain else text.decode()
        finally:
            link.close()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
        self._close()

    def stop(self) -> bool:
        """Ask it to stop; whether it did in good order, which ends with the signal that it was asked by."""
        self.process.terminate()
        code = self.process.wait(20)
        self._close()
        return code == -signal.SIGTERM

    def _close(self) -> None:
        if self.process.stderr:
            self.process.stderr.close()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "log.db")
    try:
        yield one
    finally:
        one.kill() if one.process.poll() is None else one._close()


def menu(rng: np.random.Generator, number: int = 4, dim: int = 3) -> list[dict[str, Any]]:
    return [{"id": f"a{i}", "features": (rng.uniform(-1, 1, dim) / dim**0.5).tolist()} for i in range(number)]


def log_of(hub: Hub, name: str) -> Iterator[Event]:
    return events(hub._store, hub.bandits[name].record.number)


def check_fold(store: Store) -> dict[str, list[Event]]:
    """Every state is the fold of its log, from nothing as from a snapshot; gives the logs."""
    hub = Hub(store)
    logs = {name: list(log_of(hub, name)) for name in hub.bandits}
    for name, bandit in hub.bandits.items():
        learner = Learner(bandit.settings, bandit.record.seed)
        for event in logs[name]:
            learner.apply(event)
        assert learner.digest() == bandit.learner.digest()
        assert Learner.restore(bandit.settings, bandit.record.seed, learner.snapshot()).digest() == learner.digest()
    hub.stop()
    return logs


# ------------------------------------------------------------------------------------ over HTTP


def test_a_day_in_the_shop(server: Server, tmp_path: Path) -> None:
    assert server.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
    assert server.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 200
    status, answer = server.ask("PUT", "/v1/bandits/shop", {**SHOP, "dim": 4})
    assert status == 409 and "other settings" in answer["error"]
    rng = np.random.default_rng(1)
    offer = {"actions": menu(rng), "decision_id": "mine", "source": "web"}
    status, first = server.ask("POST", "/v1/bandits/shop/decisions", offer)
    assert status == 200 and first.keys() == {"decision_id", "action_id", "index", "propensity", "round"}
    assert server.ask("POST", "/v1/bandits/shop/decisions", offer) == (200, first)  # a retry
    assert server.ask("POST", "/v1/bandits/shop/decisions", {**offer, "actions": menu(rng, 2)})[0] == 409
    _, second = server.ask("POST", "/v1/bandits/shop/decisions", {"actions": menu(rng)})
    assert second["round"] == 2 and second["decision_id"] != "mine"
    for reward, outcome in ((0.5, "accepted"), (0.5, "duplicate"), (0.7, "conflict")):
        answer = server.ask("POST", "/v1/bandits/shop/rewards", {"decision_id": "mine", "reward": reward})
        assert answer == (200, {"results": [{"decision_id": "mine", "status": outcome}]})
    several = [{"decision_id": name, "reward": 0.1} for name in ("nobody", second["decision_id"], "mine")]
    _, answer = server.ask("POST", "/v1/bandits/shop/rewards", several)
    assert [one["status"] for one in answer["results"]] == ["unknown", "accepted", "conflict"]
    status, seen = server.ask("GET", "/v1/bandits/shop")
    assert status == 200 and (seen["rounds"], seen["rewards"], seen["pending"]) == (2, 2, 0)
    assert "seed" not in json.dumps(seen) and seen["certificate"]["lower_bound"] == 0.0
    _, text = server.ask("GET", "/v1/bandits/shop/log")
    assert [json.loads(line)["type"] for line in text.splitlines()] == ["D", "D", "R", "R"]
    assert 'robandit_rounds_total{bandit="shop"} 2' in server.ask("GET", "/metrics")[1]
    assert server.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def everything(server: Server) -> Any:
    """All that can be seen of a service, but for the time."""
    seen = server.ask("GET", "/v1/bandits/shop")[1]
    return seen | {"now": 0}, server.ask("GET", "/v1/bandits/shop/log"), server.ask("GET", "/v1/bandits")


ONE = {"id": "a", "features": [0.1, 0.2, 0.3]}
FIRST = {"actions": [ONE], "decision_id": "first"}
BAD: list[tuple[str, str, Any, int, str]] = [
    ("POST", "/v1/bandits/shop/decisions", b"{", 400, "not JSON"),
    ("POST", "/v1/bandits/shop/decisions", b"\xff\xfe{}", 400, "not JSON"),
    ("POST", "/v1/bandits/shop/decisions", b'{"actions": [{"id": "\xff", "features": [0, 0, 0]}]}', 400, ""),
    ("POST", "/v1/bandits/shop/decisions", b'{"actions": [{"id": "a", "features": [NaN, 0, 0]}]}', 400, ""),
    (
        "POST",
        "/v1/bandits/shop/decisions",
        b'{"actions": [{"id": "a", "features": [1e999, 0, 0]}]}',
        422,
        "out of range",
    ),
    ("POST", "/v1/bandits/shop/decisions", {"actions": []}, 422, "actions"),
    (
        "POST",
        "/v1/bandits/shop/decisions",
        {"actions": [{"id": "a", "features": [0.1, 0.2]}]},
        422,
        "has 2 features",
    ),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [{"id": "a", "features": [9, 0, 0]}]}, 422, "action_bound"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [{"id": "a", "features": [0, 0, 0]}] * 2}, 422, "must differ"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": "all"}, 422, "array"),
    ("POST", "/v1/bandits/shop/decisions", {"action": []}, 422, "action"),
    ("POST", "/v1/bandits/shop/decisions", b"x" * (5 << 20), 413, "bytes"),
    ("POST", "/v1/bandits/nobody/decisions", {"actions": [{"id": "a", "features": [0, 0, 0]}]}, 404, "nobody"),
    ("POST", "/v1/bandits/shop/rewards", {"decision_id": "first", "reward": "much"}, 422, ""),
    ("POST", "/v1/bandits/shop/rewards", {"decision_id": "first", "reward": 1e300}, 422, ""),
    ("POST", "/v1/bandits/shop/rewards", {"decision_id": "first"}, 422, "reward"),
    ("POST", "/v1/bandits/shop/rewards", {"decision_id": "first", "reward": 0.1, "sigma": 0.1}, 422, "sigma"),
    ("PUT", "/v1/bandits/other", {"dim": 0}, 422, "dim"),
    ("PUT", "/v1/bandits/other", {"dim": 2, "policy": "magic"}, 422, "magic"),
    ("PUT", "/v1/bandits/other", {"dim": 2, "seed": -1}, 422, "seed"),
    ("PUT", "/v1/bandits/other", {"dim": 2, "sead": 1}, 422, "sead"),
    ("PUT", "/v1/bandits/sp%20ace", {"dim": 2}, 422, ""),
    ("GET", "/v1/bandits/nobody", None, 404, "nobody"),
    ("GET", "/v1/nothing", None, 404, "nothing"),
    ("DELETE", "/v1/bandits/shop", None, 405, "GET"),
    ("GET", "/v1/bandits/shop/decisions", None, 405, "POST"),
    ("POST", "/v1/bandits/shop", {}, 405, "PUT"),
    # Names.
    ("GET", "/v1/bandits/SHOP", None, 404, "SHOP"),
    ("PUT", "/v1/bandits/shop%0A", SHOP, 422, "name"),
    ("PUT", "/v1/bandits/caf%C3%A9", SHOP, 422, "name"),
    ("PUT", "/v1/bandits/" + "x" * 65, SHOP, 422, "name"),
    ("PUT", "/v1/bandits/-rf", SHOP, 422, "name"),
    # Ids that were there before.
    ("PUT", "/v1/bandits/shop", {**SHOP, "seed": 8}, 409, "other settings"),
    ("POST", "/v1/bandits/shop/decisions", {**FIRST, "actions": [{**ONE, "id": "b"}]}, 409, "other actions"),
    ("POST", "/v1/bandits/shop/decisions", {**FIRST, "actions": [{**ONE, "features": [0, 0, 0]}]}, 409, "other"),
    ("POST", "/v1/bandits/shop/decisions", {**FIRST, "actions": [ONE, ONE]}, 409, "other actions"),
    ("POST", "/v1/bandits/shop/decisions", {**FIRST, "source": "web"}, 409, "source"),
    ("POST", "/v1/bandits/shop/decisions", FIRST, 200, "first"),
    # Ids and numbers of an odd size.
    ("POST", "/v1/bandits/shop/decisions", {"actions": [{**ONE, "id": ""}]}, 422, "id"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [{**ONE, "id": "x" * 129}]}, 422, "id"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [ONE], "decision_id": "x" * 129}, 422, "decision_id"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [ONE], "source": "x" * 129}, 422, "source"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [{**ONE, "sigma": 0}]}, 422, "sigma"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [{**ONE, "sigma": 1e10}]}, 422, "sigma"),
    ("POST", "/v1/bandits/shop/decisions", {"actions": [{**ONE, "features": [0.1] * 1001}]}, 422, "features"),
    (
        "POST",
        "/v1/bandits/shop/decisions",
        {"actions": [{**ONE, "features": [0, 0, 1.001]}]},
        422,
        "action_bound",
    ),
    ("POST", "/v1/bandits/shop/rewards", b'{"decision_id": "first", "reward": 1e999}', 422, "out of range"),
    ("POST", "/v1/bandits/shop/rewards", b'{"decision_id": "first", "reward": NaN}', 400, "not JSON"),
    ("POST", "/v1/bandits/shop/rewards", b"", 400, "not JSON"),
    ("POST", "/v1/bandits/nobody/rewards", {"decision_id": "first", "reward": 1}, 404, "nobody"),
    # All of a batch, or nothing.
    ("POST", "/v1/bandits/shop/rewards", [{"decision_id": "first", "reward": 1}, {"decision_id": "x"}], 422, "[1]"),
    ("PUT", "/v1/bandits/other", [], 422, "object"),
    ("PUT", "/v1/bandits/other", b'{"dim": 2, "noise_range": NaN}', 400, "not JSON"),
    ("PUT", "/v1/bandits/other", {"dim": 2.5}, 422, "dim"),
    ("PUT", "/v1/bandits/other", {"dim": "2"}, 422, "dim"),
    ("PUT", "/v1/bandits/other", {"dim": 10**30}, 422, "dim"),
    ("PUT", "/v1/bandits/other", {"dim": 2, "noise_range": 1e-300}, 422, "noise_range"),
    ("PUT", "/v1/bandits/other", {"dim": 2, "corruption": 1e-300}, 422, "corruption"),
    ("PUT", "/v1/bandits/other", {"dim": 2, "delta": 1}, 422, "delta"),
    ("PUT", "/v1/bandits/other", {"dim": 2, "policy": "robust-weighted-oful"}, 422, "must be told"),
    ("PUT", "/v1/bandits/other", b'{"dim": ' + b"[" * 100_000, 400, "nested"),
]


def test_bad_requests_change_nothing(server: Server, tmp_path: Path) -> None:
    assert server.ask("PUT", "/v1/bandits/shop", {**SHOP, "seed": 7})[0] == 201
    assert server.ask("POST", "/v1/bandits/shop/decisions", FIRST)[0] == 200
    before = everything(server)
    for method, path, body, status, word in BAD:
        found, answer = server.ask(method, path, body)
        assert found == status and word in str(answer), (path, body, found, answer)
        assert "Traceback" not in str(answer)
    for number, status, word in ((10_001, 422, "10000"), (10**6, 413, "bytes")):
        many = b'{"actions": [%b]}' % b", ".join(b'{"id": "%d", "features": [0,0,0]}' % i for i in range(number))
        found, answer = server.ask("POST", "/v1/bandits/shop/decisions", many)
        assert found == status and word in answer["error"]
    assert everything(server) == before
    assert server.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def test_its_own_log_is_json(tmp_path: Path) -> None:
    """Whatever is in it, and without secrets."""
    assert main(["key", "me", "admin", "--keys", str(tmp_path / "keys.json")]) == 0
    server = Server(tmp_path / "log.db", "--keys", str(tmp_path / "keys.json"))
    server.ask("GET", "/v1/bandits", key="a wrong secret")
    server.process.terminate()
    server.process.wait(20)
    assert server.process.stderr
    text = server.process.stderr.read()
    server._close()
    lines = [json.loads(line) for line in text.splitlines()]
    assert lines and all(line.keys() >= {"at", "level", "from", "text"} for line in lines)
    assert "a wrong secret" not in text
    record = logging.LogRecord(
        "here", logging.ERROR, "", 0, 'a "quoted"\nname', None, (ValueError, ValueError(1), None)
    )
    line = json.loads(JsonLines().format(record))
    assert line["text"] == 'a "quoted"\nname' and "ValueError: 1" in line["trace"]


def test_keys_and_roles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secrets = {}
    for role in ("decide", "reward", "admin"):
        assert main(["key", f"the {role}", role, "--keys", str(tmp_path / "keys.json")]) == 0
        secrets[role] = capsys.readouterr().out.strip()
    stored = (tmp_path / "keys.json").read_text(encoding="utf-8")
    assert not any(secret in stored for secret in secrets.values())
    assert main(["key", "the admin", "admin", "--keys", str(tmp_path / "keys.json")]) == 2
    server = Server(tmp_path / "log.db", "--keys", str(tmp_path / "keys.json"))
    try:
        offer = {"actions": [{"id": "a", "features": [0.1, 0.2, 0.3]}], "decision_id": "x"}
        requests: list[tuple[str, str, Any, str]] = [
            ("PUT", "/v1/bandits/shop", SHOP, "admin"),
            ("POST", "/v1/bandits/shop/decisions", offer, "decide"),
            ("POST", "/v1/bandits/shop/rewards", {"decision_id": "x", "reward": 0.1}, "reward"),
            ("GET", "/v1/bandits/shop", None, "admin"),
            ("GET", "/v1/bandits/shop/log", None, "admin"),
            ("GET", "/metrics", None, "admin"),
        ]
        for method, path, body, role in requests:
            for wrong in (None, "wrong", secrets["admin"][:-1], secrets["admin"] + "x", "\xff" * 9):
                status, answer = server.ask(method, path, body, wrong)
                assert status == 401 and "needs a key" in answer["error"]
            for other in ("decide", "reward"):
                if other != role:
                    status, answer = server.ask(method, path, body, secrets[other])
                    assert status == 403 and repr(role) in answer["error"]
            assert server.ask(method, path, body, secrets[role])[0] in (200, 201)
        assert server.ask("GET", "/health")[0] == 200
    finally:
        server.kill()


def test_numbers_at_the_edge(server: Server, tmp_path: Path) -> None:
    """What is small, large or alone is no mistake."""
    made = {"dim": 2.0, "horizon": 1e6, "action_bound": 3, "exploration": 0.5}
    assert server.ask("PUT", "/v1/bandits/" + "x" * 64, made)[0] == 201  # whole numbers, however they are written
    assert server.ask("PUT", "/v1/bandits/" + "x" * 64, {**made, "dim": 2, "horizon": 1_000_000})[0] == 200
    features = [[1e-300, 5e-324], [0.0, -0.0], [3.0, 0.0], [1.8, 2.4], [-3, 0]]
    for sigma in (None, 1e-300, 1e9):
        for some in (features[:1], features):
            actions = [{"id": str(i), "features": one, "sigma": sigma} for i, one in enumerate(some)]
            status, answer = server.ask("POST", f"/v1/bandits/{'x' * 64}/decisions", {"actions": actions})
            assert status == 200 and (len(some) > 1 or answer["propensity"] == 1.0), answer
            for reward in (1e9, -1e9):
                given = {"decision_id": answer["decision_id"], "reward": reward}
                assert server.ask("POST", f"/v1/bandits/{'x' * 64}/rewards", given)[0] == 200
    status, seen = server.ask("GET", "/v1/bandits/" + "x" * 64)
    assert status == 200 and None not in seen["estimate"] + seen["uncertainty"]
    assert server.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def test_a_horizon_that_is_over_is_no_error(server: Server) -> None:
    """It is said once."""
    assert server.ask("PUT", "/v1/bandits/b", {"dim": 3, "horizon": 2, "policy": "multi-level-weighted-oful"})[0] == 201
    for _ in range(6):
        assert server.ask("POST", "/v1/bandits/b/decisions", {"actions": [ONE]})[0] == 200
    server.process.terminate()
    assert server.process.stderr is not None and server.process.stderr.read().count("horizon of 2 rounds is over") == 1


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("[]", "has no keys"),
        ("{", "not a list of keys"),
        ('[{"name": "me"}]', "not a list of keys"),
        ('[{"name": "me", "role": "king", "sha256": "00"}]', "one of the roles"),
        ('[{"name": "me", "role": "admin", "sha256": "00"}]', "a sha256"),
    ],
)
def test_keys_that_are_none(text: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Open to all is what nobody wants who names a file; nor is a broken one written to."""
    path = tmp_path / "keys.json"
    path.write_text(text)
    for command in (["serve", "--store", str(tmp_path / "log.db")], ["key", "you", "admin"]):
        assert main([*command, "--keys", str(path)]) == 1
        assert word in capsys.readouterr().err and path.read_text() == text
    assert not (tmp_path / "log.db").exists()


def test_it_listens_elsewhere_only_with_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--host", "0.0.0.0", "--store", str(tmp_path / "log.db")]) == 2
    assert "needs --keys" in capsys.readouterr().err and not (tmp_path / "log.db").exists()
    assert main(["serve", "--keys", str(tmp_path / "none.json")]) == 1


def test_two_services_can_not_share_a_file(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--store", str(tmp_path / "log.db"), "--port", str(_free_port())]) == 2
    assert "another process" in capsys.readouterr().err


# ------------------------------------------------------------------------------------ killed under load


class Customer(threading.Thread):
    """Decides and rewards, tries again with the same ids until it is answered, and remembers what it was answered."""

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


def test_what_was_acknowledged_survives_kills(tmp_path: Path) -> None:
    """`kill -9` at random moments under load: all that was acknowledged is there, once; the state is the log's fold."""
    path, rng = tmp_path / "log.db", random.Random(3)
    server = Server(path)
    assert server.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
    over = threading.Event()

    def ask(*request: Any) -> tuple[int, Any]:
        return server.ask(*request)

    customers = [Customer(ask, number, over) for number in range(4)]
    for customer in customers:
        customer.start()
    for _ in range(KILLS):
        time.sleep(rng.uniform(0.05, 0.6))
        server.kill()
        server = Server(path, port=server.port)
    time.sleep(0.3)
    over.set()
    for customer in customers:
        customer.join(30)
    server.kill()
    check_nothing_lost(SQLiteStore(path), customers)


def check_nothing_lost(store: Store, customers: Sequence[Customer]) -> None:
    log = check_fold(store)["shop"]
    decisions = [event for event in log if isinstance(event, Decided)]
    rewards = [event for event in log if isinstance(event, Rewarded)]
    made, got = {event.id: event for event in decisions}, {event.id: event.reward for event in rewards}
    assert len(made) == len(decisions) and len(got) == len(rewards)  # nothing twice
    assert [event.round for event in decisions] == list(range(1, len(decisions) + 1))
    assert not any(customer.odd for customer in customers)
    acknowledged = 0
    for customer in customers:
        for name, answer in customer.decisions.items():
            assert (made[name].round, made[name].index) == (answer["round"], answer["index"])
        for name, reward in customer.rewards.items():
            assert got[name] == reward
        acknowledged += len(customer.decisions) + len(customer.rewards)
    assert acknowledged > 50


# ------------------------------------------------------------------------------------ inside


def working(hub: Hub, *calls: Callable[[], Any]) -> list[Any]:
    """What these coroutines give, one after the other, while the hub works."""

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


@pytest.mark.parametrize("default", [0.0, None])
def test_windows_close(tmp_path: Path, default: float | None) -> None:
    """By the service's clock, which never goes back; the default is applied once, and late rewards are refused."""
    now = [1000.0]
    hub = Hub(SQLiteStore(tmp_path / "log.db", clock=lambda: now[0]))
    settings = BanditSettings(dim=3, noise_range=0.5, reward_window=60.0, default_reward=default)

    async def later(seconds: float) -> None:
        now[0] += seconds

    found = working(
        hub,
        lambda: hub.create("shop", settings, 7),
        lambda: hub.decide("shop", offer("one")),
        lambda: later(-500.0),  # somebody sets the clock back
        lambda: hub.decide("shop", offer("two")),
        lambda: later(555.0),
        lambda: hub.reward("shop", [Feedback(decision_id="two", reward=0.2)]),
        lambda: later(10.0),
        hub.close_windows,
        lambda: hub.reward("shop", [Feedback(decision_id="one", reward=0.2)]),
    )
    assert [one.status for one in found[5]] == ["accepted"] and [one.status for one in found[8]] == ["expired"]
    log = list(log_of(hub, "shop"))
    assert [type(event) for event in log] == [Decided, Decided, Rewarded, Closed]
    assert [event.at for event in log] == sorted(event.at for event in log)
    learner = hub.bandits["shop"].learner
    assert (learner.rewards, learner.defaults, learner.lost) == (1, default is not None, default is None)
    assert learner.policy.updates == 1 + (default is not None)
    hub.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def test_ids_that_come_again(tmp_path: Path) -> None:
    """Within a batch, after the window, and in another bandit."""
    now = [1000.0]
    hub = Hub(SQLiteStore(tmp_path / "log.db", clock=lambda: now[0]))
    settings = BanditSettings(dim=3, noise_range=0.5, reward_window=60.0)

    def rewards(name: str, *values: float, bandit: str = "shop") -> Callable[[], Any]:
        return lambda: hub.reward(bandit, [Feedback(decision_id=name, reward=value) for value in values])

    async def later(seconds: float) -> None:
        now[0] += seconds

    found = working(
        hub,
        lambda: hub.create("shop", settings, 7),
        lambda: hub.create("Shop", settings, 7),
        lambda: hub.decide("shop", offer("one")),
        lambda: hub.decide("shop", offer("two")),
        rewards("one", 0.1, 0.1, 0.2),
        rewards("one", 0.1, bandit="Shop"),
        lambda: hub.decide("Shop", offer("one")),
        rewards("one", 0.2, bandit="Shop"),
        lambda: later(1e6),
        rewards("two", 0.1, 0.1),
        lambda: hub.decide("shop", offer("two")),  # a retry that comes late is one still
        lambda: later(-2e6),
        rewards("two", 0.1),
    )
    statuses = [[one.status for one in found[i]] for i in (4, 5, 7, 9, 12)]
    assert statuses == [["accepted", "duplicate", "conflict"], ["unknown"], ["accepted"], ["expired"] * 2, ["expired"]]
    assert found[10] == found[3] and found[6].round == 1
    hub.stop()
    logs = check_fold(SQLiteStore(tmp_path / "log.db"))
    assert [len(logs[name]) for name in ("shop", "Shop")] == [4, 2]


def test_the_monitor_reads_decisions_in_their_order(tmp_path: Path) -> None:
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    names = [f"d{i}" for i in range(6)]
    calls: list[Callable[[], Any]] = [lambda: hub.create("shop", BanditSettings(dim=3, noise_range=0.5), 7)]
    calls += [partial(hub.decide, "shop", offer(name)) for name in names]
    for name in ("d2", "d1", "d4", "d0"):
        calls.append(partial(hub.reward, "shop", [Feedback(decision_id=name, reward=0.1)]))
    working(hub, *calls)
    learner = hub.bandits["shop"].learner
    assert learner.monitor.rounds == 3  # d3 is still open
    expected = [event.features for event in log_of(hub, "shop") if isinstance(event, Decided)][:3]
    gram = learner.monitor.state()["arrays"]["past_gram"][0, 0]
    assert gram == pytest.approx(sum(np.outer(one, one) / 0.25 for one in expected))
    hub.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def test_a_proof_of_corruption_is_in_the_log(tmp_path: Path) -> None:
    """It is found on a copy, written down, and there after a restart; looking changes nothing else."""
    hub, rng = Hub(SQLiteStore(tmp_path / "log.db")), np.random.default_rng(5)
    settings = BanditSettings(dim=3, noise_range=0.5, noise=0.05)
    calls: list[Callable[[], Any]] = [lambda: hub.create("shop", settings, 7)]
    answers: dict[str, Any] = {}

    async def visit(t: int) -> None:
        shown = Choice(actions=[Action(one["id"], one["features"]) for one in menu(rng)], decision_id=f"v{t}")
        answers[f"v{t}"] = await hub.decide("shop", shown)
        features = np.frombuffer(hub.bandits["shop"].learner.pending[f"v{t}"].features)
        mean = float(features @ [0.6, 0.3, 0.5]) + rng.normal(0.0, 0.05)
        await hub.reward("shop", [Feedback(decision_id=f"v{t}", reward=-mean if 150 <= t < 200 else mean)])

    calls += [partial(visit, t) for t in range(300)]
    before: list[str] = []

    async def remember() -> None:
        before.append(hub.bandits["shop"].learner.monitor.state()["arrays"]["by_time"].tobytes().hex())

    working(hub, *calls, remember, hub.look, remember)
    assert before[0] == before[1]
    found = hub.status("shop").certificate
    assert found.lower_bound > 1.0 and found.alarm == 300 and "corrupted" in found.sentence
    assert 'robandit_corruption_proved{bandit="shop"}' in "\n".join(hub.metrics())
    hub.stop()
    log = check_fold(SQLiteStore(tmp_path / "log.db"))["shop"]
    assert isinstance(log[-1], Proved) and log[-1].lower_bound == found.lower_bound

    def see_more(state: dict[str, Any]) -> Certificate | None:  # as another machine or version might
        seen = look(state)
        return seen and replace(seen, lower_bound=99.0)

    again = Hub(SQLiteStore(tmp_path / "log.db"), look=see_more)
    assert again.status("shop").certificate == found
    working(again, again.look)
    assert again.status("shop").certificate.lower_bound == 99.0 and again.broken is None
    again.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


@pytest.mark.parametrize("body", [b"", b"nonsense", msgspec.msgpack.encode({"place": 3})])
def test_a_snapshot_of_no_use_is_done_without(body: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One of another version, say: the log is the truth."""
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    calls = [partial(hub.decide, "shop", offer(f"d{i}")) for i in range(5)]
    working(hub, lambda: hub.create("shop", BanditSettings(dim=3, noise_range=0.5), 7), *calls)
    digest = hub.bandits["shop"].learner.digest()
    append(hub._store, [], [Snapshot(1, 5, body)])
    hub._store.close()
    again = Hub(SQLiteStore(tmp_path / "log.db"))
    assert again.bandits["shop"].learner.digest() == digest and "of no use" in caplog.text
    again.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def test_looks_in_another_process(caplog: pytest.LogCaptureFixture) -> None:
    """They see the same; and if the process dies, one look is missed."""
    monitor, rng = CorruptionMonitor(dim=2, noise=0.05), np.random.default_rng(1)
    for t in range(200):
        shown = rng.uniform(-0.7, 0.7, 2)
        monitor.observe(shown, float(shown @ [0.6, 0.3]) * (-1 if t < 50 else 1))
    looker = Looker()
    found = looker(monitor.state())
    assert found == look(monitor.state()) and found is not None and found.lower_bound > 1.0
    looker.process.kill()
    looker.process.join()
    assert looker(monitor.state()) is None and "died" in caplog.text
    assert looker(monitor.state()) == found
    looker.stop()
    looker.process.join(20)
    assert looker.process.exitcode == 0


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_can_serve(policy: str, tmp_path: Path) -> None:
    """And is the fold of its log, from the middle of it as from its beginning."""
    more: dict[str, Any] = {"corruption": 2.0} if policy in ("robust-weighted-oful", "robust-lin-ts") else {}
    settings = BanditSettings(dim=2, policy=policy, noise_range=0.5, horizon=200, **more)
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    calls: list[Callable[[], Any]] = [lambda: hub.create("shop", settings, 7)]
    for i in range(12):
        calls.append(partial(hub.decide, "shop", offer(f"d{i}", 2)))
        if i % 3:
            calls.append(partial(hub.reward, "shop", [Feedback(decision_id=f"d{i}", reward=0.1 * i)]))
    found = working(hub, *calls)
    assert not [one for one in found if isinstance(one, Exception)]
    append(hub._store, [], [Snapshot(1, 0, b"")])  # which a crash may have left behind; the next replaces it
    hub.stop()
    log = check_fold(SQLiteStore(tmp_path / "log.db"))["shop"]
    assert len(log) == 20


def test_a_full_disk_stops_it(tmp_path: Path) -> None:
    """What can't be written is not acknowledged, and nothing is after that; what was, is there."""
    store = SQLiteStore(tmp_path / "log.db")
    store._db.pragma("max_page_count", 40)
    hub = Hub(store)
    calls = [partial(hub.decide, "shop", offer(f"d{i}")) for i in range(2000)]
    found = working(hub, lambda: hub.create("shop", BanditSettings(dim=3, noise_range=0.5), 7), *calls)[1:]
    refused = [one for one in found if isinstance(one, Refused)]
    assert refused and all(one.status == 503 for one in refused) and hub.broken is not None
    answered = [one for one in found if not isinstance(one, Refused)]
    assert found == answered + refused
    hub.stop()
    log = check_fold(SQLiteStore(tmp_path / "log.db"))["shop"]
    assert [event.id for event in log] == [one.decision_id for one in answered]


def test_nobody_waits_for_a_service_that_can_not_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does who asks while it finds that out."""
    hub = Hub(SQLiteStore(tmp_path / "log.db"))

    def fail() -> None:
        time.sleep(0.3)
        raise StoreError("the disk is gone")

    async def two_ask() -> Sequence[Any]:
        work = asyncio.create_task(hub.work())
        await hub.create("shop", BanditSettings(dim=3, noise_range=0.5), 7)
        monkeypatch.setattr(hub._store, "commit", fail)
        first = asyncio.create_task(hub.decide("shop", offer("first")))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(hub.decide("shop", offer("second")))
        found = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), 10.0)
        await work
        return found

    found = asyncio.run(two_ask())
    assert [one.status for one in found] == [503, 503] and hub.broken == "the disk is gone"
    hub._store.close()


def test_an_event_can_not_be_written_twice(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "log.db")
    append(store, [Bandit(1, "shop", b"{}", 7, 0.0)])
    one = Decided(id="d", round=1, at=0.0, actions=["a"], index=0, features=[0.1], sigma=0.5, level=0, propensity=1.0)
    append(store, [LogEntry(1, 1, one), LogEntry(1, 2, Rewarded(id="d", at=0.0, reward=1.0))])
    for event in (one, Rewarded(id="d", at=1.0, reward=2.0), Closed(id="d", at=1.0)):
        with pytest.raises(StoreError, match="UNIQUE"):
            append(store, [LogEntry(1, 3, Rewarded(id="fine", at=0.0, reward=1.0)), LogEntry(1, 4, event)])
    assert len(list(events(store, 1))) == 2  # all or nothing
    store.close()


def test_an_old_sqlite_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(StoreError, match=r"3\.51\.2 can lose commits"):
        SQLiteStore(tmp_path / "log.db")


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log.db").write_text("this is a letter, and not a database " * 100)
    with pytest.raises(StoreError, match="can't open"):
        SQLiteStore(tmp_path / "log.db")


@pytest.mark.parametrize("value", [0.1, 1e-300, -0.0, 1 / 3, 2.0**53 + 2, 1.7976931348623157e308])
def test_numbers_survive_the_log(value: float) -> None:
    event = Rewarded(id="x", at=value, reward=value)
    again = decode(encode(event))
    assert again == event and str(again.at) == str(value)


def test_a_key_has_a_rate() -> None:
    _, entry = new_key("me", "admin")
    assert entry["role"] == "admin"
    keys = Keys([], rate=5.0)
    assert [keys.within_rate("me") for _ in range(7)] == [True] * 5 + [False] * 2
    assert keys.within_rate("you")
    with pytest.raises(ValueError, match="role must be"):
        new_key("me", "king")


# ------------------------------------------------------------------------------------ the page


def test_the_five_minutes_of_the_docs(server: Server) -> None:
    """Every curl of docs/service.md, against a service that was started as the page says."""
    page = (Path(__file__).parents[2] / "docs" / "service.md").read_text(encoding="utf-8")
    (console,) = re.findall(r"```console\n(.*?)```", page, re.DOTALL)
    answers = []
    for words in map(shlex.split, re.split(r"^\$ curl", console, flags=re.MULTILINE)[1:]):
        (address,) = [word for word in words if word.startswith("localhost:8000")]
        method = words[words.index("-X") + 1] if "-X" in words else "GET"
        body = words[words.index("-d") + 1].encode() if "-d" in words else None
        answers.append(server.ask(method, address.removeprefix("localhost:8000"), body))
    assert [status for status, _ in answers] == [201, 200, 200, 200]
    assert answers[1][1]["action_id"] in ("red", "blue")
    assert answers[2][1]["results"][0]["status"] == "accepted"
    assert answers[3][1]["rewards"] == 1


def test_every_call_of_the_page_is_in_the_document(server: Server) -> None:
    _, document = server.ask("GET", "/openapi.json")
    bandit = "/v1/bandits/{name}"
    assert set(document["paths"]) == {
        *("/v1/bandits", bandit, f"{bandit}/decisions", f"{bandit}/rewards", f"{bandit}/log"),
        *("/metrics", "/health", "/ready", "/openapi.json"),
    }
    page = (Path(__file__).parents[2] / "docs" / "service.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in BanditSettings.__struct_fields__)
