"""Decisions the short way, the long way, and as a block of numbers: one answer, and the same checks."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import SHOP, Server, check_fold

from robandit.cli import main
from robandit.client import Client, ServiceError
from robandit.service.stores.sqlite import SQLiteStore

BLOCK = "application/octet-stream"
ROWS = np.random.default_rng(1).uniform(-0.5, 0.5, (4, 3))
PATH = "/v1/bandits/shop/decisions"


@contextmanager
def serving(folder: Path) -> Iterator[Server]:
    one = Server(folder / "log.db")
    for name in ("shop", "twin"):
        assert one.ask("PUT", f"/v1/bandits/{name}", SHOP | {"seed": 7})[0] == 201
    try:
        yield one
    finally:
        one.kill()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with serving(tmp_path) as one:
        yield one


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for all requests that change nothing."""
    with serving(tmp_path_factory.mktemp("untouched")) as one:
        yield one


def send(server: Server, path: str, body: bytes, **headers: str) -> tuple[int, Any]:
    """Send a body with these headers; the answer."""
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    try:
        link.request("POST", path, body, {name.replace("_", "-"): value for name, value in headers.items()})
        answer = link.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        link.close()


def offer(rows: Any = ROWS) -> bytes:
    return json.dumps({"actions": [{"id": str(i), "features": row.tolist()} for i, row in enumerate(rows)]}).encode()


def test_a_block_decides_as_json_does(server: Server, tmp_path: Path) -> None:
    """Bit for bit, and a retry in either form is the same decision."""
    for turn in range(20):
        rows = np.random.default_rng(turn).uniform(-0.5, 0.5, (5, 3))
        one = send(server, f"{PATH}?decision_id=d%20{turn}&source=web", rows.tobytes(), Content_Type=BLOCK)
        plain = json.loads(offer(rows)) | {"decision_id": f"d {turn}", "source": "web"}
        assert one == server.ask("POST", "/v1/bandits/twin/decisions", plain) and one[0] == 200
        assert server.ask("POST", PATH, plain) == one
    server.kill()
    logs = check_fold(SQLiteStore(tmp_path / "log.db"))
    kept = [[(e.features, e.actions, e.source, e.propensity) for e in logs[name]] for name in ("shop", "twin")]  # type: ignore[union-attr]
    assert kept[0] == kept[1] and len(kept[0]) == 20


@pytest.mark.parametrize(
    ("query", "rows", "status", "why"),
    [
        ("", b"", 422, "24 bytes for each of 1 to 10,000 actions"),
        ("", b"x" * 25, 422, "24 bytes for each"),
        ("", b"\0" * 24 * 10_001, 422, "24 bytes for each"),
        ("", np.full((2, 3), np.nan).tobytes(), 422, "finite"),
        ("", np.full((2, 3), np.inf).tobytes(), 422, "finite"),
        ("", np.full((2, 3), 9.0).tobytes(), 422, "action_bound"),
        ("", b"x" * (5 << 20), 413, "bytes"),
        ("?decision_id=", ROWS.tobytes(), 422, "decision_id"),
        ("?decision_id=" + "x" * 129, ROWS.tobytes(), 422, "decision_id"),
        ("?decision_id=a&decision_id=b", ROWS.tobytes(), 422, "each once"),
        ("?sigma=1", ROWS.tobytes(), 422, "the query may say"),
        ("?decision_id=%FF", ROWS.tobytes(), 422, "can't be read"),
    ],
)
def test_bad_blocks_change_nothing(untouched: Server, query: str, rows: bytes, status: int, why: str) -> None:
    found = send(untouched, PATH + query, rows, Content_Type=BLOCK)
    assert found[0] == status and why in found[1]["error"]
    assert untouched.ask("GET", "/v1/bandits/shop")[1]["rounds"] == 0


def test_a_block_passes_the_same_checks(server: Server) -> None:
    """Host, Origin and type; rewards and settings are JSON alone, and a bandit with records takes records."""
    rows = ROWS.tobytes()
    assert send(server, PATH, rows, Content_Type=BLOCK, Host="evil.example")[0] == 421
    assert send(server, PATH, rows, Content_Type=BLOCK, Origin="http://evil.example")[0] == 403
    assert send(server, PATH, rows, Content_Type=BLOCK, Sec_Fetch_Site="cross-site")[0] == 403
    assert send(server, PATH, rows, Content_Type="text/plain")[0] == 415
    assert send(server, PATH, rows)[0] == 415
    assert send(server, "/v1/bandits/shop/rewards", rows, Content_Type=BLOCK)[0] == 415
    assert send(server, f"{PATH}?source=a", offer(), Content_Type="application/json")[0] == 422
    assert server.ask("PUT", "/v1/bandits/named", {"features": {"action": {"price": [0, 1]}}, "rewards": "clicks"})[0]
    status, found = send(server, "/v1/bandits/named/decisions", rows, Content_Type=BLOCK)
    assert status == 422 and "records" in found["error"]
    wide = np.zeros((3000, 100)).tobytes()
    assert server.ask("PUT", "/v1/bandits/dear", {"dim": 100, "policy": "exp3p", "noise_range": 0.5})[0] == 201
    assert send(server, "/v1/bandits/dear/decisions", wide, Content_Type=BLOCK)[0] == 413


def test_keys_hold_on_the_short_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keys = []
    for name, role in (("me", "admin"), ("front", "decide"), ("clicks", "reward")):
        assert main(["key", name, role, "--keys", str(tmp_path / "keys.json")]) == 0
        keys.append(capsys.readouterr().out.strip())
    server = Server(tmp_path / "log.db", "--keys", str(tmp_path / "keys.json"), "--rate", "3")
    try:
        assert server.ask("PUT", "/v1/bandits/shop", SHOP, keys[0])[0] == 201
        for kind, body in (("application/json", offer()), (BLOCK, ROWS.tobytes())):
            found = [
                send(server, PATH, body, Content_Type=kind, Authorization=f"Bearer {key}")[0] for key in (*keys, "no")
            ]
            assert found == [200, 200, 403, 401]
            assert send(server, PATH, body, Content_Type=kind)[0] == 401
        often = [send(server, PATH, offer(), Content_Type="application/json", Authorization=f"Bearer {keys[1]}")[0]] * 1
        often += [server.ask("POST", PATH, offer(), keys[1])[0] for _ in range(30)]
        assert 429 in often
    finally:
        server.kill()


@pytest.mark.parametrize(
    "raw",
    [
        b"POST /v1/bandits/sh%%6fp/decisions HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
        b"POST /v1/bandits/shop/decisions HTTP/1.0\r\nHost: localhost\r\n%s\r\n",
        b"POST /v1/bandits/shop/decisions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n%s\r\n",
        b"POST /v1/bandits/shop/decisions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n",
        b"POST /v1/bandits/shop/decisions? HTTP/1.1\r\nHost: localhost\r\n%s\r\n",
    ],
)
def test_unusual_requests_are_answered_too(server: Server, raw: bytes) -> None:
    """The long way, or the short one with a connection that closes."""
    body = offer()
    head = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as link:
        link.sendall(raw % head + body)
        found = link.recv(65536)
        while b'"round"' not in found and (part := link.recv(65536)):
            found += part
    assert b" 200 OK\r\n" in found and b'"round":1' in found


def test_a_body_in_pieces_and_many_at_once(server: Server) -> None:
    """Requests that come a byte at a time, and many in one piece, are answered in their order."""
    body = offer()
    one = b"POST /v1/bandits/shop/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    one += b"Content-Length: %d\r\n\r\n" % len(body) + body
    other = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as link:
        for start in range(0, len(one), 7):
            link.sendall(one[start : start + 7])
        link.sendall((one + other) * 10 + one)
        found = b""
        while found.count(b"HTTP/1.1 200") < 22:
            found += link.recv(65536)
    rounds = [int(part.partition(b"}")[0]) for part in found.split(b'"round":')[1:]]
    assert rounds == list(range(1, 13))
    assert [b'"ok"' in part for part in found.split(b"HTTP/1.1 200")[1:]] == [False] + [False, True] * 10 + [False]


def test_the_client_sends_blocks_if_asked(server: Server) -> None:
    with Client(f"http://127.0.0.1:{server.port}", blocks=True) as client:
        found = client.decide("shop", ROWS, "visit 1", "the web")
        assert (found.decision_id, found.action_id) == ("visit 1", str(found.index))
        with Client(f"http://127.0.0.1:{server.port}") as plain:
            assert plain.decide("shop", ROWS, "visit 1", "the web") == found
        assert client.reward("shop", "visit 1", 0.5).status == "accepted"
        with pytest.raises(ServiceError, match="24 bytes for each"):
            client.decide("shop", np.zeros((2, 2)))
