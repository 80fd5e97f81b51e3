"""The service's HTTP side, in this process: what it answers when something goes wrong, on either side."""

from __future__ import annotations

import asyncio
import gc
import hashlib
import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from served import FIRST, SHOP, free_port
from starlette.requests import Request
from test_service import BAD

from robandit.files import write_file
from robandit.service.hub import Hub
from robandit.service.refused import Refused
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.web.app import Service
from robandit.service.web.keys import ROLES, Key, Keys, new_key
from robandit.service.web.protocol import Connection
from robandit.service.web.senders import Senders

Answer = tuple[int, dict[str, str], Any]


class Here:
    """A service in a thread."""

    def __init__(self, path: Path, keys: Keys, senders: Senders | None = None) -> None:
        self.hub = Hub(SQLiteStore(path))
        self.port = free_port()
        app = Service(self.hub, keys, senders)
        config = uvicorn.Config(app, port=self.port, http=Connection, lifespan="on", log_config=None, access_log=False)
        self.server = uvicorn.Server(config)

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        key: str | None = None,
        headers: Sequence[tuple[str, str]] | None = None,
    ) -> Answer:
        """The answer to a request; with ``headers``, it has these and no Host of its own."""
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            link.putrequest(method, path, skip_host=headers is not None)
            for name, value in headers or ():
                link.putheader(name, value)
            if data is not None and not any(name == "Content-Type" for name, _ in headers or ()):
                link.putheader("Content-Type", "application/json")
            if key:
                link.putheader("Authorization", key)
            if data is not None:
                link.putheader("Content-Length", str(len(data)))
            link.endheaders(data)
            answer = link.getresponse()
            text = answer.read()
            plain = answer.headers.get_content_type() == "application/json"
            return answer.status, dict(answer.getheaders()), json.loads(text) if plain else text.decode()
        finally:
            link.close()


@contextmanager
def serving(path: Path, keys: Keys | None = None, senders: Senders | None = None) -> Iterator[Here]:
    here = Here(path, keys or Keys([]), senders)
    thread = threading.Thread(target=here.server.run)
    thread.start()
    try:
        while not here.server.started and thread.is_alive():
            time.sleep(0.01)
        yield here
    finally:
        here.server.should_exit = True
        thread.join(20)


def test_bad_requests_are_told_what_is_wrong(tmp_path: Path) -> None:
    with serving(tmp_path / "log.db") as here:
        assert here.ask("PUT", "/v1/bandits/shop", {**SHOP, "seed": 7})[0] == 201
        assert here.ask("POST", "/v1/bandits/shop/decisions", FIRST)[0] == 200
        for method, path, body, status, word in BAD:
            found, headers, answer = here.ask(method, path, body)
            assert found == status and word in str(answer) and headers["content-type"] == "application/json"
            assert ("allow" in headers) == (status == 405)
        given = [{"decision_id": "first", "reward": value} for value in (1.0, 1.0, 2.0)]
        _, _, answer = here.ask("POST", "/v1/bandits/shop/rewards", given)
        assert [one["status"] for one in answer["results"]] == ["accepted", "duplicate", "conflict"]
        assert here.ask("GET", "/v1/bandits")[2] == ["shop"] and len(here.ask("GET", "/openapi.json")[2]["paths"]) == 17
        assert len(here.ask("GET", "/v1/bandits/shop/log")[2].splitlines()) == 2
        assert "robandit_rewards_total" in here.ask("GET", "/metrics")[2]


def test_keys_roles_and_rates(tmp_path: Path) -> None:
    keys = Keys([Key(role, role, hashlib.sha256(role.encode()).digest()) for role in ROLES], rate=3.0)
    with serving(tmp_path / "log.db", keys) as here:
        for wrong in (None, "Bearer", "Bearer ", "Basic admin", "admin", "Bearer admin admin", "Bearer \xff"):
            status, headers, answer = here.ask("GET", "/v1/bandits", key=wrong)
            assert (status, headers["www-authenticate"]) == (401, "Bearer") and "needs a key" in answer["error"]
        status, _, answer = here.ask("GET", "/v1/bandits", key="Bearer reward")
        assert status == 403 and answer["error"] == "this needs a key for 'read', and yours is for 'reward'"
        found = [here.ask("GET", "/v1/bandits", key="bearer  admin") for _ in range(6)]
        assert [status for status, _, _ in found][:3] == [200] * 3
        status, headers, answer = found[-1]
        assert (status, headers["retry-after"]) == (429, "1") and "slow down" in answer["error"]
        assert here.ask("GET", "/health")[0] == 200


SENT: list[tuple[list[tuple[str, str]], int, str]] = [
    ([("Host", "localhost")], 200, ""),
    ([("Host", "LOCALHOST.:8000")], 200, ""),
    ([("Host", "127.8.9.10:1")], 200, ""),
    ([("Host", "[::1]:8000")], 200, ""),
    ([("Host", "shop.example")], 200, ""),
    ([], 400, "one header Host"),
    ([("Host", "localhost"), ("Host", "localhost")], 400, "this one has 2"),
    *(([("Host", name)], 421, "--allow-host") for name in ("evil.example:8000", "10.0.0.1", "localhost.evil.example")),
    *(([("Host", name)], 421, "not known") for name in ("", "0.0.0.0", "127.1", "[::1", "localhost@evil.example")),
    ([("Host", "localhost:8000"), ("Origin", "http://localhost:8000")], 200, ""),
    ([("Host", "shop.example"), ("Origin", "https://shop.example")], 200, ""),  # behind a proxy that has TLS
    ([("Host", "localhost:8000"), ("Origin", "http://localhost:3000")], 403, "localhost:3000"),
    ([("Host", "localhost"), ("Origin", "null")], 403, "another page"),
    ([("Host", "localhost"), ("Sec-Fetch-Site", "same-origin")], 200, ""),
    ([("Host", "localhost"), ("Sec-Fetch-Site", "none")], 200, ""),
    ([("Host", "localhost"), ("Sec-Fetch-Site", "same-site")], 403, "another page"),
    ([("Host", "localhost"), ("Sec-Fetch-Site", "cross-site")], 403, "another page"),
]
EVERY_ROUTE = ["/v1/bandits", "/v1/bandits/shop", "/v1/bandits/shop/log", "/metrics", "/openapi.json", "/health"]
CALLS = [("GET", path) for path in EVERY_ROUTE] + [
    ("POST", f"/v1/bandits/shop/{what}") for what in ("decisions", "rewards")
]


def test_every_call_asks_who_sends(tmp_path: Path) -> None:
    """The calls that pass Starlette by ask as well. A link on any page may lead to the dashboard."""
    with serving(tmp_path / "log.db", senders=Senders(["Shop.example"])) as here:
        assert here.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
        for headers, status, word in SENT:
            for method, path in CALLS:
                body = {"GET": None, "POST": FIRST if "decisions" in path else []}[method]
                found, _, answer = here.ask(method, path, body, headers=headers)
                assert found == status and word in str(answer), (path, headers, found, answer)
        cross = [("Host", "localhost"), ("Sec-Fetch-Site", "cross-site")]
        assert [here.ask("GET", path, headers=cross)[0] for path in ("/", "/docs")] == [200, 200]
        for kind in ("text/plain", "", "application/json-seq"):
            for method, path in (("PUT", "/v1/bandits/b"), *CALLS[-2:]):
                status, _, answer = here.ask(
                    method, path, b"{}", headers=[("Host", "localhost"), ("Content-Type", kind)]
                )
                assert status == 415 and "curl --json" in answer["error"]
        assert len(here.ask("GET", "/v1/bandits/shop/log")[2].splitlines()) == 1


def test_on_a_network_addresses_are_known_and_names_are_not() -> None:
    wide = Senders(addresses=True)
    wide.check({"headers": [(b"host", b"10.0.0.1:8000")]})
    with pytest.raises(Refused, match="--allow-host shop.example"):
        wide.check({"headers": [(b"host", b"shop.example:8000")]})
    Senders(["*"]).check({"headers": [(b"host", b"anything.example")]})
    for wrong in ("shop.example:80", "http://shop.example", ""):
        with pytest.raises(ValueError, match="without a port"):
            Senders([wrong])


def test_a_key_for_one_bandit_sees_no_other(tmp_path: Path) -> None:
    def key(role: str, *bandits: str) -> Key:
        return Key(role, role, hashlib.sha256(role.encode()).digest(), frozenset(bandits) or None)

    keys = Keys([key("admin"), key("decide", "shop"), key("reward", "shop"), key("read", "shop")])
    with serving(tmp_path / "log.db", keys) as here:
        for name in ("shop", "other"):
            assert here.ask("PUT", f"/v1/bandits/{name}", SHOP, "Bearer admin")[0] == 201
        calls = [("decide", "POST", "/decisions", FIRST), ("reward", "POST", "/rewards", []), ("read", "GET", "", None)]
        for role, method, path, body in calls:
            assert here.ask(method, f"/v1/bandits/shop{path}", body, f"Bearer {role}")[0] == 200
            for name in ("other", "nobody"):  # who may not see a bandit can't tell whether it is there
                status, _, answer = here.ask(method, f"/v1/bandits/{name}{path}", body, f"Bearer {role}")
                assert status == 403 and answer["error"] == f"your key is not for bandit '{name}'"
        assert here.ask("GET", "/v1/bandits", key="Bearer read")[2] == ["shop"]
        assert here.ask("GET", "/v1/bandits", key="Bearer admin")[2] == ["other", "shop"]
        assert "other" not in here.ask("GET", "/metrics", key="Bearer read")[2]


def test_keys_change_without_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path, secrets = tmp_path / "keys.json", dict[str, str]()

    def write(*names: str) -> None:
        entries = []
        for name in names:
            secrets[name], entry = new_key(name, "admin")
            entries.append(entry)
        write_file(path, json.dumps(entries).encode())

    write("old")
    with serving(tmp_path / "log.db", Keys.read(path)) as here:

        def until(name: str, status: int) -> None:
            end = time.monotonic() + 5.0
            while here.ask("GET", "/v1/bandits", key=f"Bearer {secrets[name]}")[0] != status:
                assert time.monotonic() < end, name
                time.sleep(0.05)

        until("old", 200)
        write("new")
        until("new", 200)
        until("old", 401)
        path.write_text("[{", encoding="utf-8")
        time.sleep(1.3)
        until("new", 200)
        assert "the keys stay as they were" in caplog.text
        write()  # the last one is revoked, and that opens nothing
        until("new", 401)


def test_what_goes_wrong_inside_stays_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(tmp_path / "log.db") as here:
        assert here.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201

        def fail(name: str) -> None:
            raise ZeroDivisionError("a secret")

        monkeypatch.setattr(here.hub, "status", fail)
        with caplog.at_level(logging.ERROR, "robandit.service"):
            status, _, answer = here.ask("GET", "/v1/bandits/shop")
        assert status == 500 and answer == {"error": "something went wrong here; it is in the service's log"}
        assert caplog.records[-1].getMessage() == "a request to /v1/bandits/shop failed"
        here.hub._lanes.main.broken = "the disk is gone"
        assert here.ask("GET", "/ready")[0] == 503
        assert here.ask("POST", "/v1/bandits/shop/decisions", FIRST)[0] == 503
        here.hub._lanes.main.broken = None


JSON = b"Host: localhost\r\nContent-Type: application/json"


def half(*words: bytes) -> bytes:
    return b"POST /v1/bandits/shop/rewards HTTP/1.1\r\n%b\r\nContent-Length: 1000\r\n\r\n" % JSON + b"".join(words)


def test_metrics_of_many_bandits_are_written_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of 10 000 held everybody up for 79 ms. Others come in between."""
    turns: list[int] = []

    async def ask() -> int:
        hub = Hub(SQLiteStore(tmp_path / "log.db"))
        service = Service(hub, Keys([]))

        def metrics(names: Any) -> Iterator[str]:
            for number in range(60_000):
                turns.append(number)
                yield f"line {number}"

        monkeypatch.setattr(hub, "metrics", metrics)
        work = asyncio.create_task(service._metrics(Request({"type": "http", "headers": []})))
        most, before = 0, 0
        while not work.done():
            await asyncio.sleep(0)
            most, before = max(most, len(turns) - before), len(turns)
        hub.stop()
        assert bytes((await work).body).count(b"\nline ") == 60_000
        return most

    assert asyncio.run(ask()) <= 2000


def test_bandits_are_not_looked_through_for_garbage(tmp_path: Path) -> None:
    """Once there were 10 000, a search through all of them held everybody up for 188 ms."""
    with serving(tmp_path / "log.db") as here:
        before = gc.get_freeze_count()
        try:
            assert here.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
            made = here.hub.bandits["shop"].learner.policy
            assert gc.get_freeze_count() > before and not any(one is made for one in gc.get_objects())
        finally:
            gc.unfreeze()


def test_patience_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that begins no request, or does not end one, is told so and closed; uvicorn closes idle ones."""
    monkeypatch.setattr("robandit.service.web.protocol.PATIENCE", 0.3)
    with serving(tmp_path / "log.db") as here:
        for words in (b"", b"GET /health HT", half(b"{")):
            with socket.create_connection(("127.0.0.1", here.port), timeout=5) as link:
                link.sendall(words)
                assert link.recv(65536).startswith(b"HTTP/1.1 408 ") and not link.recv(65536)
        with socket.create_connection(("127.0.0.1", here.port), timeout=5) as link:
            for _ in range(3):
                link.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b" 200 OK" in link.recv(65536)
                time.sleep(0.4)  # between requests


CHUNKED = b"POST /v1/bandits/shop/rewards HTTP/1.1\r\n" + JSON + b"\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = [
    (b"GET / HTTP/1.1\r\nA: " + b"x" * 300_000, b"431"),
    (CHUNKED + b"500000\r\n" + b"x" * 0x500000, b"413"),
    (b"\r\nnonsense\r\n\r\n", b"400"),
    (b"POST /v1/bandits/shop/rewards%0a HTTP/1.1\r\nHost: localhost\r\n\r\n", b"404"),
]


def test_requests_have_an_end(tmp_path: Path) -> None:
    with serving(tmp_path / "log.db") as here:
        for words, status in ENDLESS:
            with socket.create_connection(("127.0.0.1", here.port), timeout=5) as link:
                link.sendall(words)
                assert link.recv(65536).startswith(b"HTTP/1.1 " + status)
        with socket.create_connection(("127.0.0.1", here.port), timeout=5) as link:
            link.sendall(half(b"{"))  # and is gone
        assert here.ask("GET", "/health")[0] == 200
