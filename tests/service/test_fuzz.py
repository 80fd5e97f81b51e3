"""Nonsense over HTTP: there is no 500, nothing changes, and the service answers afterwards.

``ROBANDIT_FUZZ_SECONDS=120 pytest -s tests/service/test_fuzz.py -k bodies`` goes on for two minutes.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import SHOP, Server, check_fold, everything

from robandit.service.stores.sqlite import SQLiteStore

SECONDS = float(os.environ.get("ROBANDIT_FUZZ_SECONDS", "0"))
ACTIONS = [{"id": "a", "features": [0.1, 0.2, 0.3]}, {"id": "b", "features": [0.3, 0.2, 0.1], "sigma": 0.5}]
DECISIONS, REWARDS = "/v1/bandits/shop/decisions", "/v1/bandits/shop/rewards"


@pytest.fixture(scope="module")
def busy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A service with one bandit and one decision, whose state must be its log's fold at the end."""
    path = tmp_path_factory.mktemp("fuzz") / "log.db"
    server = Server(path)
    try:
        assert server.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
        assert server.ask("POST", DECISIONS, {"actions": ACTIONS, "decision_id": "first"})[0] == 200
        yield server
        assert server.stop()
        assert set(check_fold(SQLiteStore(path))) == {"shop"}
    finally:
        if server.process.poll() is None:
            server.kill()


@pytest.fixture
def shop(busy: Server) -> Iterator[Server]:
    """A busy service whose state must not change."""
    before = everything(busy)
    yield busy
    assert everything(busy) == before


# ------------------------------------------------------------------------------------ bodies

ODD: list[bytes] = [
    *(b"NaN", b"-Infinity", b"1e999", b"-1E400", b"-0", b"1" * 400, b"18446744073709551616", b"-9223372036854775809"),
    *(b"5e-324", b"0." + b"0" * 400 + b"1", b"01", b"+1", b".5", b"0x1", b"1_000", b"true", b"null", b"{}", b"[]"),
    *(b'""', b'"\\u0000"', b'"\\ud800"', b'"\\udc00\\ud800"', b'"\xed\xa0\x80"', b'"\xff"', b'"\xc0\x80"', b'"\n"'),
    *(b'"' + b"x" * 5000 + b'"', '"e\u0301"'.encode(), '"\u00e9"'.encode(), b'"\\x41"', b'"a', b"\xef\xbb\xbf1"),
    *(b"[" * 5000, b'{"a":' * 5000, b"[" * 2000 + b"]" * 2000, b"\x00", b"//", b"'a'"),
]


WRONG_KINDS = ["text/plain", "application/x-www-form-urlencoded", "text/json", "\xff/\xff", ""]


def forms(path: str) -> list[Any]:
    """Bodies that the service accepts."""
    if path == DECISIONS:
        return [{"actions": ACTIONS, "decision_id": "first"}, {"actions": ACTIONS[:1], "decision_id": "first"}]
    if path == REWARDS:
        return [{"decision_id": "nobody", "reward": 0.5}, [{"decision_id": "nobody", "reward": 0.5}] * 3]
    return [SHOP, {**SHOP, "policy": "oful", "horizon": 100, "sources": 3, "default_reward": None, "seed": 7}]


def broken(rng: random.Random, plain: bytes) -> bytes:
    """A body with something wrong, or with a harmless change."""
    kind = rng.randrange(7)
    at, to = sorted(rng.randrange(len(plain) + 1) for _ in range(2))
    if kind == 0:
        return plain[:at]
    if kind == 1:
        return plain[:at] + rng.randbytes(rng.randrange(1, 9)) + plain[to:]
    if kind == 2:
        return plain[:at] + rng.choice(ODD) + plain[at:]
    if kind == 3:
        return rng.randbytes(rng.choice([0, 1, 10, 1000, 70_000]))
    if kind == 4:
        return plain[:to] + plain[at:]
    words = json.loads(plain)
    holder = words
    while isinstance(holder, (dict, list)) and holder and rng.random() < 0.8:
        keys = list(holder) if isinstance(holder, dict) else list(range(len(holder)))
        key = rng.choice(keys)
        if not isinstance(holder[key], (dict, list)) or rng.random() < 0.3:
            holder[key] = "@"
            break
        holder = holder[key]
    odd = rng.choice(ODD)
    return json.dumps(words).encode().replace(b'"@"', odd) if kind == 5 else plain[:-1] + b', "reward": ' + odd + b"}"


def fuzz(server: Server, rng: random.Random, done: set[tuple[str, str]]) -> Counter[int]:
    """Send nonsense over one connection; count the answers by status, and add what was carried out to ``done``."""
    seen: Counter[int] = Counter()
    link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    until, number = time.monotonic() + SECONDS, 0
    while number < 1500 or time.monotonic() < until:
        number += 1
        path = rng.choice([DECISIONS, REWARDS, "/v1/bandits/shop", "/v1/bandits/shop/nothing"])
        body = broken(rng, json.dumps(rng.choice(forms(path))).encode())
        method = "PUT" if path.endswith("shop") else "POST"
        kind = rng.choice([*["application/json", "Application/JSON; charset=utf-8"] * 5, *WRONG_KINDS])
        chunked = rng.random() < 0.2
        data: Any = iter([body[:7], body[7:]]) if chunked and len(body) > 7 else body
        link.request(method, path, data, {"Content-Type": kind}, encode_chunked=chunked and len(body) > 7)
        answer = link.getresponse()
        text = answer.read()
        seen[answer.status] += 1
        assert answer.status in (200, 400, 404, 409, 415, 422), (path, body, answer.status, text)
        assert (answer.status == 415) == (kind in WRONG_KINDS and answer.status != 404), (path, kind, text)
        assert answer.status == 200 or json.loads(text)["error"], (path, body, text)
        if answer.status == 200 and path == DECISIONS:
            done.add(("D", json.loads(text)["decision_id"]))
        elif answer.status == 200 and path == REWARDS:
            results = json.loads(text)["results"]
            done.update(("R", one["decision_id"]) for one in results if one["status"] == "accepted")
    link.close()
    return seen


@pytest.mark.no_cover
def test_bodies_of_nonsense(busy: Server) -> None:
    """A body that happens to make sense is in the log once, and nothing else is."""
    done = {("D", "first")}
    seen = fuzz(busy, random.Random(1), done)
    print(seen.total(), "requests:", dict(seen))
    assert seen.keys() >= {200, 400, 404, 409, 415, 422}
    log = [json.loads(line) for line in busy.ask("GET", "/v1/bandits/shop/log")[1].splitlines()]
    assert sorted((event["type"], event["id"]) for event in log) == sorted(done)


@pytest.mark.parametrize("deep", [b"[", b'{"a":', b'[{"a":'])
@pytest.mark.parametrize(("method", "path"), [("POST", DECISIONS), ("POST", REWARDS), ("PUT", "/v1/bandits/deep")])
def test_deep_nesting(shop: Server, method: str, path: str, deep: bytes) -> None:
    for body in (deep * 100_000, b'{"dim": ' + deep * 100_000):
        status, answer = shop.ask(method, path, body)
        assert status in (400, 422) and answer["error"]


# ------------------------------------------------------------------------------------ below bodies


def exchange(server: Server, raw: bytes, *, wait: float = 5.0) -> bytes:
    """The answer to these bytes: all that comes until the service is silent or hangs up."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=wait) as link:
        link.sendall(raw)
        found = b""
        try:
            while piece := link.recv(65536):
                found += piece
        except (TimeoutError, ConnectionResetError):
            pass
        return found


JSON = (b"Host: localhost", b"Content-Type: application/json")


def post(body: bytes, *headers: bytes, target: bytes = REWARDS.encode()) -> bytes:
    return b"\r\n".join([b"POST " + target + b" HTTP/1.1", *JSON, *headers, b"Connection: close", b"", body])


def get(target: bytes, method: bytes = b"GET") -> bytes:
    return method + b" " + target + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


ONE = b'{"decision_id": "nobody", "reward": 1}'
WIRE: list[tuple[bytes, int]] = [
    (b"\x00\x01\x02\r\n\r\n", 400),
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # TLS
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
    (b"GET / HTTP/9.9\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n", 400),
    (b"GET /health HTTP/1.1\r\nA: b\r\n folded: c\r\nB\x00: d\r\n\r\n", 400),
    (get(b"a:80", b"CONNECT"), 400),
    (get(b"/\xff"), 400),
    (get(b"*", b"OPTIONS"), 404),
    (get(b"/health", b"HEAD"), 200),
    (get(b"/health", b"TRACE"), 405),
    (get(b"/health", b"OPTIONS"), 405),
    (get(DECISIONS.encode()), 405),
    (get(b"/v1/bandits/shop/"), 404),
    (get(b"/v1/bandits/"), 404),
    (get(b"//v1/bandits"), 404),
    (get(b"/v1/bandits/%00"), 404),
    (get(b"/v1/bandits/%ff%fe"), 404),
    (get(b"/v1/bandits/%zz%"), 404),
    (get(b"/v1/bandits/shop%2Flog"), 200),  # paths are decoded before they are split, here as in Starlette
    (get(b"/v1/bandits/..%2f..%2fetc%2fpasswd"), 404),
    (get(b"/v1/bandits/SHOP"), 404),
    (get(b"/v1/bandits/shop%0a"), 404),
    (get(b"/v1/bandits/shop/decisions%0a", b"POST"), 404),
    (get(b"/v1/bandits//decisions", b"POST"), 415),
    (b"GET /v1/nothing HTTP/1.1\r\nHost: [\r\nConnection: close\r\n\r\n", 421),
    (b"DELETE /health HTTP/1.1\r\nHost: a:b@[::\r\nConnection: close\r\n\r\n", 421),
    (
        b"PUT /v1/bandits/new%0a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\nConnection: close\r\n\r\n"
        + b'{"dim": 2}',
        422,
    ),
    (post(ONE), 400),  # no length: no body
    (post(ONE, b"Content-Length: %d" % len(ONE)), 200),
    (post(ONE, b"Content-Length: 5"), 400),
    (post(ONE, b"Content-Length: -1"), 400),
    (post(ONE, b"Content-Length: 9" + b"9" * 30), 400),
    (post(ONE, b"Content-Length: 99999999999"), 413),
    (post(ONE, b"Content-Length: %d" % len(ONE), b"Content-Length: 3"), 400),
    (post(b"26\r\n" + ONE + b"\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"), 200),
    (post(b"zz\r\n" + ONE + b"\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"), 400),
    (post(b"0\r\n\r\n", b"Content-Length: 5", b"Transfer-Encoding: chunked"), 400),  # to smuggle a request
    (post(b"0\r\n\r\n", b"Transfer-Encoding: chunked", b"Transfer-Encoding: x"), 400),
    (post(b"0\r\n\r\n", b"Transfer-Encoding: xchunked"), 400),
    (post(ONE, b"Content-Length: %d" % len(ONE), b"Expect: 100-continue"), 100),
    (post(ONE, b"Content-Length: %d" % len(ONE), *(b"X-%d: y" % i for i in range(1000))), 200),
]


@pytest.mark.no_cover
@pytest.mark.parametrize(("raw", "status"), WIRE, ids=range(len(WIRE)))
def test_bytes_on_the_wire(shop: Server, raw: bytes, status: int) -> None:
    answer = exchange(shop, raw)
    assert answer.startswith(b"HTTP/1.1 %d " % status), (raw[:200], answer)
    assert b"Traceback" not in answer


def test_pipelined_requests_are_answered_in_their_order(shop: Server) -> None:
    raw = b"GET /v1/bandits HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50 + get(b"/v1/nothing")
    answer = exchange(shop, raw)
    assert answer.count(b"HTTP/1.1 200 ") == 50 and answer.count(b'["shop"]') == 50
    assert answer.split(b"HTTP/1.1 ")[-1].startswith(b"404 ")


def rss(server: Server) -> float:
    """The memory of the service, in MiB."""
    status = Path(f"/proc/{server.process.pid}/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


def pour(server: Server, head: bytes, piece: bytes, times: int) -> tuple[bytes, int]:
    """Send a head and many pieces until the service hangs up; return its answer and the number of pieces sent."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as link:
        link.sendall(head)
        sent, answer = 0, b""
        link.setblocking(False)
        until = time.monotonic() + 20
        while sent < times and time.monotonic() < until:
            try:
                answer += link.recv(65536)
            except BlockingIOError:
                pass
            except ConnectionResetError:
                break
            try:
                link.setblocking(True)
                link.settimeout(5)
                link.sendall(piece)
                sent += 1
            except (ConnectionError, TimeoutError):
                break
            finally:
                link.setblocking(False)
        return answer, sent


MIB = b"x" * (1 << 20)
LONG = [
    (
        b"POST %s HTTP/1.1\r\n%b\r\nContent-Length: 104857600\r\n\r\n" % (DECISIONS.encode(), b"\r\n".join(JSON)),
        MIB,
        b"413",
    ),
    (b"PUT /v1/bandits/new HTTP/1.1\r\n%b\r\nContent-Length: 104857600\r\n\r\n" % b"\r\n".join(JSON), MIB, b"413"),
    (
        b"POST %s HTTP/1.1\r\n%b\r\nTransfer-Encoding: chunked\r\n\r\n" % (DECISIONS.encode(), b"\r\n".join(JSON)),
        b"100000\r\n%b\r\n" % MIB,
        b"413",
    ),
    (b"GET /health HTTP/1.1\r\n", b"X-Header: %b\r\n" % MIB[:1000] * 1000, b"431"),
    (b"GET /health HTTP/1.1\r\nX-Header: ", MIB, b"431"),
    (b"GET /", MIB, b"431"),
]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="its memory is read from /proc")
@pytest.mark.parametrize(("head", "piece", "status"), LONG, ids=range(len(LONG)))
def test_what_never_ends_is_cut_off(shop: Server, head: bytes, piece: bytes, status: bytes) -> None:
    """A hundred megabytes are refused at the limit, and not kept."""
    shop.ask("POST", DECISIONS, b"x" * (4 << 20))  # memory that a request may take
    before = rss(shop)
    answer, sent = pour(shop, head, piece, 100)
    assert sent < 90 and rss(shop) < before + 16.0
    assert answer[9:12] in (status, b"")  # who is cut off may not hear why
    assert shop.ask("GET", "/health")[0] == 200


def test_a_declared_length_is_refused_before_it_comes(shop: Server) -> None:
    with socket.create_connection(("127.0.0.1", shop.port), timeout=5) as link:
        link.sendall(LONG[0][0])
        answer = b""
        while b"bytes" not in answer and (piece := link.recv(65536)):
            answer += piece
        assert answer.startswith(b"HTTP/1.1 413 ") and b"bytes" in answer and b"connection: close" in answer.lower()


def test_many_who_say_nothing(shop: Server) -> None:
    """Unfinished requests hold a socket each, and hold up nobody else."""
    halves = [b"", b"GET", b"GET /health HTTP/1.1\r\nHo", post(ONE, b"Content-Length: 1000")]
    links = [socket.create_connection(("127.0.0.1", shop.port), timeout=5) for _ in range(100)]
    for i, link in enumerate(links):
        link.sendall(halves[i % 4])
    assert shop.ask("GET", "/health")[0] == 200
    for link in links:
        link.close()
    assert shop.ask("GET", "/health")[0] == 200
