"""Processor time that metrics and the access log take from a decision: `python benchmarks/watching.py`.

The front is timed alone, around answers that take no time, since a whole decision takes a hundred times as long and
varies by more. The thread that writes the lines counts as well.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from functools import partial

from starlette.types import Receive, Scope, Send

from robandit.service.meters import Meters
from robandit.service.web.access_log import AccessLog
from robandit.service.web.front import Front
from robandit.service.web.keys import Key, Keys, new_key
from robandit.service.web.quick import Begin, WriteAnswer


class AtOnce:
    """Answers every request at once."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raise NotImplementedError

    def accept(self, scope: Scope) -> Begin | None:
        return self._begin

    def _begin(self, body: bytes, write: WriteAnswer) -> None:
        write(200, (), b"")


def seconds(front: Front | AtOnce, scope: Scope, number: int) -> float:
    """Processor time of so many requests."""
    start = time.process_time()
    for _ in range(number):
        begin = front.accept(scope)
        assert begin is not None
        begin(b"", _write)
    return time.process_time() - start


def _write(status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
    pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    secrets = [new_key(f"key {number}", "admin") for number in range(10)]
    headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {secrets[-1][0]}".encode())]
    scope = {"method": "POST", "path": "/v1/bandits/shop/decisions", "headers": headers}
    sink = os.open(os.devnull, os.O_WRONLY)
    make: dict[str, Callable[[], Front]] = {
        "metrics": lambda: Front(AtOnce(), Meters()),
        "metrics and access log": lambda: Front(AtOnce(), Meters(), AccessLog(Keys([]), sink)),
        "the same with ten keys": lambda: Front(
            AtOnce(), Meters(), AccessLog(Keys([Key.of(entry) for _, entry in secrets]), sink)
        ),
    }
    run = partial(seconds, scope=scope, number=options.requests)
    least = min(run(AtOnce()) for _ in range(options.turns))
    for name, front in make.items():
        found = sorted(1e6 * (run(front()) - least) / options.requests for _ in range(options.turns))
        print(f"{name:24} {found[len(found) // 2]:5.1f} µs more for a request ({found[0]:.1f} to {found[-1]:.1f})")


if __name__ == "__main__":
    main()
