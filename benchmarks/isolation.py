"""Measures how long small decisions of one bandit take while the dearest legal requests go to others.

Each line has the latency of a decision between two actions, sent every 5 ms on a connection of its own: alone, and
while another connection sends one dear request after the other. With --bandits N it also makes N idle bandits first.

The last figure is the longest step of the service's event loop, in CPU time: what others wait for at most, on a machine
that has nothing else to do. Latencies by the clock tell more about the machine where it has.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from robandit.service.requests.cost import most_actions
from service import Link, once, request, run, running

SMALL = {"actions": [{"id": "a", "features": [0.1, 0.2]}, {"id": "b", "features": [0.3, 0.1]}]}


def decision(name: str, policy: str, dim: int) -> bytes:
    """The largest decision that is allowed."""
    count = min(10_000, most_actions(policy, dim), 4_000_000 // (5 * dim + 30))
    rows = np.random.default_rng(1).uniform(-1.0, 1.0, (count, dim)) / dim**0.5
    actions = [{"id": str(i), "features": row} for i, row in enumerate(rows.round(3).tolist())]
    return request(f"/v1/bandits/{name}/decisions", json.dumps({"actions": actions}, separators=(",", ":")).encode())


def dear() -> Iterator[tuple[str, list[bytes], Callable[[int], bytes]]]:
    """The name of each kind of dear request, what must come before it, and the n-th such request."""
    unknown = [{"decision_id": f"{i:x}", "reward": 0} for i in range(10_000)]
    batch = request("/v1/bandits/small/rewards", json.dumps(unknown, separators=(",", ":")).encode())
    yield "10 000 unknown rewards", [], lambda n: batch
    for policy, dim in (
        ("oful", 2),
        ("oful", 1000),
        ("quorum", 20),
        ("quorum", 100),
        ("multi-level-weighted-oful", 18),
        ("multi-level-weighted-oful", 130),
        ("lin-ts", 2),
        ("exp3p", 18),
    ):
        name = f"{policy}-{dim}"
        body = json.dumps({"dim": dim, "policy": policy, "noise_range": 0.5, "exploration": 0.1}).encode()
        whole = decision(name, policy, dim)
        count = whole.count(b'"id"')
        made = request(f"/v1/bandits/{name}", body, "PUT")
        yield f"{policy}, {count} x {dim}", [made], lambda n, whole=whole: whole  # type: ignore[misc]
    wide = json.dumps({"dim": 1000, "policy": "oful"}).encode()
    yield "status, 1000 features", [], lambda n: request("/v1/bandits/oful-1000", b"", "GET")
    yield "new bandit, 1000 features", [], lambda n: request(f"/v1/bandits/wide-{n}", wide, "PUT")
    yield "the log of the largest decisions", [], lambda n: request("/v1/bandits/oful-2/log", b"", "GET")
    yield "metrics", [], lambda n: request("/metrics", b"", "GET")
    yield "the list of bandits", [], lambda n: request("/v1/bandits", b"", "GET")


async def probe(port: int, over: asyncio.Event) -> list[float]:
    """The latencies of small decisions until it is over."""
    found: list[float] = []
    small = request("/v1/bandits/small/decisions", json.dumps(SMALL).encode())
    pause = asyncio.Event()

    def done(took: float, answer: bytes) -> None:
        found.append(took)
        pause.set()

    rounds = itertools.count()
    while not over.is_set():
        turn = next(rounds)
        link = (
            await asyncio.get_running_loop().create_connection(
                lambda turn=turn: Link(lambda: small if len(found) == turn else None, done),  # type: ignore[misc]
                "127.0.0.1",
                port,
            )
        )[1]
        await link.over
        await asyncio.sleep(0.005)
    return found


async def whole(port: int, asked: bytes) -> None:
    """Ask, and read all of the answer, however it comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(asked.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1))
    while await reader.read(1 << 20):
        pass
    writer.close()


async def beside(port: int, asked: Callable[[int], bytes] | None, seconds: float) -> tuple[list[float], list[float]]:
    """The latencies of small decisions, and of the dear requests beside them."""
    over, took = asyncio.Event(), []
    others = asyncio.create_task(probe(port, over))
    end, number = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        begin = time.perf_counter()
        if asked is None:
            await asyncio.sleep(seconds)
        else:
            await whole(port, asked(number))
        took.append(time.perf_counter() - begin)
        number += 1
    over.set()
    return await others, took


def longest(process: subprocess.Popen[bytes], file: Path) -> tuple[float, int, float]:
    """The longest step of the loop since this was last asked, the number of steps, and their CPU, in milliseconds."""
    file.unlink(missing_ok=True)
    process.send_signal(signal.SIGUSR1)
    while not file.exists():
        time.sleep(0.01)
    most, number, total = file.read_text(encoding="ascii").split()
    return float(most), int(number), float(total)


class Service(NamedTuple):
    """The service that is measured."""

    port: int
    process: subprocess.Popen[bytes]
    file: Path

    def show(self, name: str, asked: Callable[[int], bytes] | None, seconds: float) -> None:
        """Measure, and print a line."""
        longest(self.process, self.file)
        found, took = run(beside(self.port, asked, seconds))
        most, _, total = longest(self.process, self.file)
        half, slow = np.percentile(1e3 * np.array(found), [50, 99])
        dear = f"{total / len(took):7.1f} ms for each of {len(took)}" if asked else f"{total / len(found):7.2f} ms each"
        print(
            f"{name:36} {len(found):>5} others   p50 {half:6.1f}   p99 {slow:6.1f}   max {1e3 * max(found):6.1f} ms"
            f"   CPU: longest step {most:6.1f} ms, {dear}",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (default %(default)s)")
    parser.add_argument("--bandits", type=int, default=0, metavar="N", help="measure beside N idle bandits, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file, script = Path(folder) / "steps", str(Path(__file__).with_name("loop_times.py"))
        serve = [script, str(file), "serve", "--store", str(Path(folder) / "log.db"), "--port"]
        with running(serve) as (port, process):
            measure(Service(port, process, file), options.seconds, options.bandits)


def measure(service: Service, seconds: float, bandits: int) -> None:
    """All measurements, one after the other."""
    run(once(service.port, request("/v1/bandits/small", json.dumps({"dim": 2, "policy": "oful"}).encode(), "PUT")))
    run(beside(service.port, None, 1.0))
    service.show("alone", None, seconds)
    for number in range(bandits):
        run(once(service.port, request(f"/v1/bandits/idle-{number}", b'{"dim": 20, "policy": "oful"}', "PUT")))
    if bandits:
        service.show(f"{bandits:,} idle bandits", None, seconds)
    for name, first, asked in dear():
        for one in first:
            run(once(service.port, one))
        service.show(name, asked, seconds)
    service.show("alone, again", None, seconds)


if __name__ == "__main__":
    main()
