"""Connections: what is pipelined before garbage is answered, and floods of half requests stop nobody."""

from __future__ import annotations

import json
import resource
import socket
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from served import FIRST, ONE, SHOP, Server

from robandit.service.web.protocol import SPARE, most_connections

DESCRIPTORS = 256
GARBAGE = [b"\x00nonsense\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A service that may have few descriptors."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    one = Server(
        tmp_path / "log.db",
        before=partial(resource.setrlimit, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS)),
    )
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == before
    assert one.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
    try:
        yield one
    finally:
        one.kill()


def post(body: object) -> bytes:
    data = json.dumps(body).encode()
    head = b"POST /v1/bandits/shop/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(data) + data


def exchange(server: Server, raw: bytes) -> list[bytes]:
    """All answers on one connection, until the service hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as link:
        link.sendall(raw)
        found = b""
        while part := link.recv(65536):
            found += part
    return [b"HTTP/1.1 " + one for one in found.split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_what_came_before_garbage_is_answered(server: Server, garbage: bytes) -> None:
    """It was carried out and answered 400 only."""
    second = {"actions": [ONE], "decision_id": "second"}
    answers = exchange(server, post(FIRST) + post(second) + garbage)
    assert [one[9:12] for one in answers] == [b"200", b"200", b"400"]
    assert b'"first"' in answers[0] and b'"second"' in answers[1] and b"not HTTP" in answers[2]
    assert server.ask("GET", "/v1/bandits/shop")[1]["rounds"] == 2


def test_a_broken_request_is_not_begun(server: Server) -> None:
    """Its head was read, and its body is garbage. What came before it is answered; it is not carried out."""
    broken = b"POST /v1/bandits/shop/decisions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    answers = exchange(server, post(FIRST) + broken)
    assert [one[9:12] for one in answers] == [b"200", b"400"]
    assert [one[9:12] for one in exchange(server, broken)] == [b"400"]
    assert server.ask("GET", "/v1/bandits/shop")[1]["rounds"] == 1


@pytest.mark.parametrize("sent", [b"", b"POST /v1/bandits/shop/decisions HTTP/1.1\r\nHost: loc", post(FIRST)[:-5]])
def test_a_flood_of_half_requests_stops_nobody(server: Server, sent: bytes) -> None:
    """There are more than the service may have descriptors. It answers others, closes the flood's, and says so."""
    flood: list[socket.socket] = []
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(server.process.stderr or []), daemon=True)
    reader.start()
    try:
        for number in range(2 * DESCRIPTORS):
            link = socket.create_connection(("127.0.0.1", server.port), timeout=20)
            link.sendall(sent)
            flood.append(link)
            if number % 50 == 49:
                offer = {"actions": [ONE], "decision_id": str(number)}
                assert server.ask("POST", "/v1/bandits/shop/decisions", offer)[0] == 200
        assert flood[0].recv(65536).startswith(b"HTTP/1.1 503 ")
    finally:
        for link in flood:
            link.close()
    assert server.ask("GET", "/v1/bandits/shop")[1]["rounds"] == 2 * DESCRIPTORS // 50
    server.process.terminate()
    server.process.wait(20)
    reader.join(20)
    assert any("connections, and this one waited longest" in line for line in lines)


def test_all_descriptors_are_asked_for() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[0], 700), before[1]))
        most = most_connections()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert soft == min(hard, 65_536) and most == soft - SPARE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
