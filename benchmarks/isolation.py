"""Measures how long small decisions of one bandit take while the dearest legal requests go to others.

Each line has the latency of a decision between two actions, sent every 5 ms on a connection of its own: alone, and
while another connection sends one dear request after the other. With --bandits N it also makes N idle bandits first.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from robandit.service.cost import most_actions
from service import Link, cpu, once, request, run, running

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
        ("sceptic", 20),
        ("sceptic", 100),
        ("sceptic", 1000),
        ("multi-level-weighted-oful", 18),
        ("multi-level-weighted-oful", 130),
        ("lin-ts", 2),
        ("exp3p", 18),
    ):
        name = f"{policy}-{dim}"
        body = json.dumps({"dim": dim, "policy": policy, "noise_range": 0.5}).encode()
        whole = decision(name, policy, dim)
        count = whole.count(b'"id"')
        made = request(f"/v1/bandits/{name}", body, "PUT")
        yield f"{policy}, {count} x {dim}", [made], lambda n, whole=whole: whole  # type: ignore[misc]
    wide = json.dumps({"dim": 1000}).encode()
    yield "status, 1000 features", [], lambda n: request("/v1/bandits/sceptic-1000", b"", "GET")
    yield "new bandit, 1000 features", [], lambda n: request(f"/v1/bandits/wide-{n}", wide, "PUT")


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
            await once(port, asked(number))
        took.append(time.perf_counter() - begin)
        number += 1
    over.set()
    return await others, took


def show(name: str, port: int, pid: int, asked: Callable[[int], bytes] | None, seconds: float) -> None:
    """Measure, and print a line."""
    before = cpu(pid)
    found, took = run(beside(port, asked, seconds))
    spent = 1e3 * (cpu(pid) - before)
    half, most = np.percentile(1e3 * np.array(found), [50, 99])
    dear = f"   {spent / len(took):6.1f} ms of CPU for each of {len(took)}" if asked else ""
    print(
        f"{name:36} {len(found):>5} others   p50 {half:6.1f}   p99 {most:6.1f}   max {1e3 * max(found):6.1f} ms{dear}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=4.0, help="of each measurement (default %(default)s)")
    parser.add_argument("--bandits", type=int, default=0, metavar="N", help="measure beside N idle bandits, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        serve = ["-m", "robandit", "serve", "--store", str(Path(folder) / "log.db"), "--port"]
        with running(serve) as (port, process):
            show_all = partial(show, port=port, pid=process.pid, seconds=options.seconds)
            run(once(port, request("/v1/bandits/small", json.dumps({"dim": 2}).encode(), "PUT")))
            run(beside(port, None, 1.0))
            show_all("alone", asked=None)
            for number in range(options.bandits):
                run(once(port, request(f"/v1/bandits/idle-{number}", b'{"dim": 20}', "PUT")))
            if options.bandits:
                show_all(f"{options.bandits:,} idle bandits", asked=None)
            for name, first, asked in dear():
                for one in first:
                    run(once(port, one))
                show_all(name, asked=asked)
            show_all("alone, again", asked=None)


if __name__ == "__main__":
    main()
