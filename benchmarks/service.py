"""Measures the service's durable decisions per second and their latency.

Beside it, in the same run, are the same service without a log and a trivial JSON echo on the same stack. With
--memory N it measures the service's memory over N decisions and rewards instead. The clients use part of the two cores
themselves, so ratios count more than rates.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")

ECHO = """
import sys, msgspec, uvicorn
async def app(scope, receive, send):
    if scope["type"] == "lifespan":
        while True:
            message = await receive()
            await send({"type": message["type"] + ".complete"})
            if message["type"] == "lifespan.shutdown":
                return
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    out = msgspec.json.encode(msgspec.json.decode(body)) if body else b"{}"
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(out))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": out})
uvicorn.run(app, port=int(sys.argv[1]), log_level="error", access_log=False, server_header=False, date_header=False)
"""

NO_LOG = """
import sys, time, uvicorn
from robandit.service.web.app import Service
from robandit.service.hub import Hub
from robandit.service.web.keys import Keys
from robandit.service.learning.looker import Looker
from robandit.service.web.protocol import Connection
class Nothing:
    shared = False
    now = staticmethod(time.time)
    news = bandits = faults = lambda self: []
    put = lambda self, items, snapshots=(): None
    commit = release = close = lambda self: None
    watches = lambda self: True
    join = lambda self, stale: None
    lane = lambda self, number: self
    page = lambda self, bandit, after: []
    find = lambda self, bandit, id, final: None
    snapshot = lambda self, bandit: None
app = Service(Hub(Nothing(), look=Looker()), Keys([]))
if __name__ == "__main__":
    options = dict(log_level="error", access_log=False, server_header=False, date_header=False)
    uvicorn.run(app, http=Connection, port=int(sys.argv[1]), **options)
"""


class Link(asyncio.Protocol):
    """A connection that sends the next request as soon as it has an answer."""

    def __init__(self, ask: Callable[[], bytes | None], done: Callable[[float, bytes], None]) -> None:
        self._ask, self._done = ask, done
        self._got, self._begin = b"", 0.0
        self.over = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._next()

    def data_received(self, data: bytes) -> None:
        self._got += data
        head, found, rest = self._got.partition(b"\r\n\r\n")
        if not found or len(rest) < int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0]):
            return
        if head[9:11] != b"20":
            self.over.set_exception(RuntimeError(self._got.decode()))
            return
        self._got = b""
        self._done(time.perf_counter() - self._begin, rest)
        self._next()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.over.done():
            self.over.set_exception(error or RuntimeError("the service closed the connection"))

    def _next(self) -> None:
        self._begin, request = time.perf_counter(), self._ask()
        if request is None:
            self.over.set_result(None)
            self._transport.close()
        else:
            self._transport.write(request)


def request(path: str, body: bytes, method: str = "POST", kind: str = "application/json") -> bytes:
    """An HTTP request as bytes."""
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}"
    return f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


async def load(ports: list[int], connections: int, seconds: float, requests: list[bytes]) -> list[float]:
    """The latencies of all decisions on these many connections in this time."""
    loop, found, place = asyncio.get_running_loop(), [], [0]
    end = time.perf_counter() + seconds

    def ask() -> bytes | None:
        place[0] += 1
        return requests[place[0] % len(requests)] if time.perf_counter() < end else None

    links = [
        (await loop.create_connection(lambda: Link(ask, lambda took, _: found.append(took)), "127.0.0.1", port))[1]
        for port in itertools.islice(itertools.cycle(ports), connections)
    ]
    await asyncio.gather(*(link.over for link in links))
    return found


async def once(port: int, asked: bytes) -> bytes:
    """The answer to one request."""
    answers: list[bytes] = []
    link = (
        await asyncio.get_running_loop().create_connection(
            lambda: Link(lambda: None if answers else asked, lambda _, answer: answers.append(answer)),
            "127.0.0.1",
            port,
        )
    )[1]
    await link.over
    return answers[0]


@contextmanager
def running(command: list[str]) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """Start a server on a free port, wait until it is ready, and stop it at the end."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    command = [sys.executable, *command, str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(200):
            try:
                asyncio.run(once(port, request("/ready", b"", "GET")))
                break
            except OSError:
                time.sleep(0.05)
        yield port, process
    finally:
        process.terminate()
        process.wait()


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run in a fast loop if there is one, so that the clients take less of the machine."""
    try:
        import uvloop
    except ModuleNotFoundError:
        return asyncio.run(work)
    return uvloop.run(work)


def cpu(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def offers(bandits: int, block: bool) -> list[bytes]:
    """Requests for decisions between 20 actions of 20 features."""
    rng = np.random.default_rng(1)
    menus = rng.uniform(-1.0, 1.0, (64, 20, 20)).round(4) / 20**0.5
    found = []
    for number, menu in enumerate(menus):
        path = f"/v1/bandits/shop-{number % bandits}/decisions"
        offer = {"actions": [{"id": f"a{i}", "features": row} for i, row in enumerate(menu.tolist())]}
        kind = "application/octet-stream" if block else "application/json"
        found.append(request(path, menu.tobytes() if block else json.dumps(offer).encode(), kind=kind))
    return found


def measure(
    name: str, command: list[str], seconds: float, processes: int = 1, bandits: int = 1, block: bool = False
) -> list[float]:
    """Print rate, CPU and latency with 1, 32 and 128 connections, and return the rates."""
    requests, rates = offers(bandits, block), []
    with ExitStack() as stack:
        services = [stack.enter_context(running(command)) for _ in range(processes)]
        ports = [port for port, _ in services]
        settings = json.dumps({"dim": 20, "noise_range": 0.5}).encode()
        for port in ports:
            for number in range(bandits):
                run(once(port, request(f"/v1/bandits/shop-{number}", settings, "PUT")))
        run(load(ports, 32, 3.0, requests))  # warm up: the first looks at the monitor start a process
        for connections in (1, 32, 128):
            before = sum(cpu(process.pid) for _, process in services)
            found = 1e3 * np.array(run(load(ports, connections, seconds, requests)))
            spent = sum(cpu(process.pid) for _, process in services) - before
            rates.append(len(found) / seconds)
            half, most = np.percentile(found, [50, 99])
            print(
                f"{name:8} {connections:>4} connections {rates[-1]:>7.0f} /s   "
                f"{1e6 * spent / len(found):5.0f} µs of CPU   p50 {half:6.2f} ms   p99 {most:6.2f} ms",
                flush=True,
            )
    return rates


class Shopper:
    """Asks for decisions among three actions, and pays the rewards a hundred at a time."""

    def __init__(self, number: int, process: subprocess.Popen[bytes]) -> None:
        self._number, self._process, self._asked = number, process, 0
        self._rng = np.random.default_rng(1)
        self._owed: list[dict[str, Any]] = []

    def ask(self) -> bytes | None:
        """The next request, or None after the last decision."""
        if len(self._owed) >= 100:
            paid, self._owed = self._owed, []
            return request("/v1/bandits/shop/rewards", json.dumps(paid).encode())
        self._asked += 1
        if self._asked % (self._number // 10) == 0:
            size = Path(f"/proc/{self._process.pid}/statm").read_text().split()[1]
            print(f"{self._asked:>9,} decisions: {int(size) * 4 // 1024} MiB", flush=True)
        features = (self._rng.uniform(-1.0, 1.0, (3, 5)) / 5**0.5).tolist()
        offer = {"actions": [{"id": str(i), "features": row} for i, row in enumerate(features)]}
        last = self._asked > self._number
        return None if last else request("/v1/bandits/shop/decisions", json.dumps(offer).encode())

    def answered(self, took: float, answer: bytes) -> None:
        """Note the reward of a decision."""
        if answer.startswith(b'{"decision_id"'):
            owed = {"decision_id": json.loads(answer)["decision_id"], "reward": self._rng.normal(0.2, 0.2)}
            self._owed.append(owed)


def remember(command: list[str], number: int) -> None:
    """Print the memory of a service over this many decisions and rewards."""
    settings = json.dumps({"dim": 5, "noise_range": 0.5, "policy": "oful"}).encode()
    with running(command) as (port, process):
        run(once(port, request("/v1/bandits/shop", settings, "PUT")))
        shopper = Shopper(number, process)

        async def shop() -> None:
            loop = asyncio.get_running_loop()
            links = [
                (await loop.create_connection(lambda: Link(shopper.ask, shopper.answered), "127.0.0.1", port))[1]
                for _ in range(32)
            ]
            await asyncio.gather(*(link.over for link in links))

        run(shop())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="of each measurement (default %(default)s)")
    parser.add_argument("--memory", type=int, metavar="N", help="measure the memory over N decisions instead")
    parser.add_argument("--store", metavar="URL", help="a PostgreSQL to use instead of a file")
    parser.add_argument("--processes", type=int, default=1, help="services on that PostgreSQL (default %(default)s)")
    parser.add_argument("--bandits", type=int, default=1, help="that share the decisions (default %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store = options.store or str(Path(folder) / "log.db")
        serve = ["-m", "robandit", "serve", "--store", store, "--port"]
        if options.memory:
            remember(serve, options.memory)
            return
        (Path(folder) / "no_log.py").write_text(NO_LOG, encoding="utf-8")
        ours = measure("durable", serve, options.seconds, options.processes, options.bandits)
        measure("block", serve, options.seconds, options.processes, options.bandits, block=True)
        bare = measure("no log", [str(Path(folder) / "no_log.py")], options.seconds, 1, options.bandits)
        echo = measure("echo", ["-c", ECHO], options.seconds)
    for name, rates in (("the same without a log", bare), ("the echo", echo)):
        print(f"of the rate of {name}: " + ", ".join(f"{a / b:.2f}" for a, b in zip(ours, rates, strict=True)))


if __name__ == "__main__":
    main()
