"""The service's HTTP side, in this process: what it answers when something goes wrong, on either side."""

from __future__ import annotations

import hashlib
import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from served import FIRST, SHOP, free_port
from test_service import BAD

from robandit.service.app import Service
from robandit.service.hub import Hub
from robandit.service.keys import ROLES, Key, Keys
from robandit.service.protocol import Connection
from robandit.service.stores.sqlite import SQLiteStore

Answer = tuple[int, dict[str, str], Any]


class Here:
    """A service in a thread."""

    def __init__(self, path: Path, keys: Keys) -> None:
        self.hub = Hub(SQLiteStore(path))
        self.port = free_port()
        app = Service(self.hub, keys)
        config = uvicorn.Config(app, port=self.port, http=Connection, lifespan="on", log_config=None, access_log=False)
        self.server = uvicorn.Server(config)

    def ask(self, method: str, path: str, body: Any = None, key: str | None = None) -> Answer:
        link = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
            link.request(method, path, data, {"Authorization": key} if key else {})
            answer = link.getresponse()
            text = answer.read()
            plain = answer.headers.get_content_type() == "application/json"
            return answer.status, dict(answer.getheaders()), json.loads(text) if plain else text.decode()
        finally:
            link.close()


@contextmanager
def serving(path: Path, keys: Keys | None = None) -> Iterator[Here]:
    here = Here(path, keys or Keys([]))
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
        assert here.ask("GET", "/v1/bandits")[2] == ["shop"] and len(here.ask("GET", "/openapi.json")[2]["paths"]) == 9
        assert len(here.ask("GET", "/v1/bandits/shop/log")[2].splitlines()) == 2
        assert "robandit_rewards_total" in here.ask("GET", "/metrics")[2]


def test_keys_roles_and_rates(tmp_path: Path) -> None:
    keys = Keys([Key(role, role, hashlib.sha256(role.encode()).digest()) for role in ROLES], rate=3.0)
    with serving(tmp_path / "log.db", keys) as here:
        for wrong in (None, "Bearer", "Bearer ", "Basic admin", "admin", "Bearer admin admin", "Bearer \xff"):
            status, headers, answer = here.ask("GET", "/v1/bandits", key=wrong)
            assert (status, headers["www-authenticate"]) == (401, "Bearer") and "needs a key" in answer["error"]
        status, _, answer = here.ask("GET", "/v1/bandits", key="Bearer reward")
        assert status == 403 and answer["error"] == "this needs a key for 'admin', and yours is for 'reward'"
        found = [here.ask("GET", "/v1/bandits", key="bearer  admin") for _ in range(6)]
        assert [status for status, _, _ in found][:3] == [200] * 3
        status, headers, answer = found[-1]
        assert (status, headers["retry-after"]) == (429, "1") and "slow down" in answer["error"]
        assert here.ask("GET", "/health")[0] == 200


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
        here.hub.broken = "the disk is gone"
        assert here.ask("GET", "/ready")[0] == 503
        assert here.ask("POST", "/v1/bandits/shop/decisions", FIRST)[0] == 503
        here.hub.broken = None


def half(*words: bytes) -> bytes:
    return b"POST /v1/bandits/shop/rewards HTTP/1.1\r\nContent-Length: 1000\r\n\r\n" + b"".join(words)


def test_patience_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that begins no request, or does not end one, is told so and closed; uvicorn closes idle ones."""
    monkeypatch.setattr("robandit.service.protocol.PATIENCE", 0.3)
    with serving(tmp_path / "log.db") as here:
        for words in (b"", b"GET /health HT", half(b"{")):
            with socket.create_connection(("127.0.0.1", here.port), timeout=5) as link:
                link.sendall(words)
                assert link.recv(65536).startswith(b"HTTP/1.1 408 ") and not link.recv(65536)
        with socket.create_connection(("127.0.0.1", here.port), timeout=5) as link:
            for _ in range(3):
                link.sendall(b"GET /health HTTP/1.1\r\n\r\n")
                assert b" 200 OK" in link.recv(65536)
                time.sleep(0.4)  # between requests


CHUNKED = b"POST /v1/bandits/shop/rewards HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = [
    (b"GET / HTTP/1.1\r\nA: " + b"x" * 300_000, b"431"),
    (CHUNKED + b"500000\r\n" + b"x" * 0x500000, b"413"),
    (b"\r\nnonsense\r\n\r\n", b"400"),
    (b"POST /v1/bandits/shop/rewards%0a HTTP/1.1\r\n\r\n", b"404"),
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
