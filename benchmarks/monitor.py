"""Times a million observations of the corruption monitor at d = 20, beside a plain ridge update in the same run."""

from __future__ import annotations

import argparse
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from robandit import CorruptionMonitor
from robandit.arrays import Floats
from robandit.geometry.ridge import Ridge

DIM, NOISE, CHUNK = 20, 0.05, 10_000


Part = tuple[Floats, Floats]
"""Actions (n, d) and rewards (n,)."""


def stream(rng: np.random.Generator, rounds: int) -> Part:
    """Actions (n, d) and clean rewards (n,)."""
    actions = rng.uniform(-1.0, 1.0, (rounds, DIM)) / DIM**0.5
    return actions, actions.sum(axis=1) / DIM**0.5 + rng.normal(0.0, NOISE, rounds)


def held(monitor: CorruptionMonitor) -> int:
    """The bytes in the arrays of the monitor's state."""
    return sum(array.nbytes for array in monitor.state()["arrays"].values())


class Stopwatch:
    """Adds up the seconds of named pieces of work."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def timing(self, name: str) -> Iterator[None]:
        """Add the time of the block to a name."""
        begin = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begin


def feed(monitor: CorruptionMonitor, logs: CorruptionMonitor, ridge: Ridge, watch: Stopwatch, part: Part) -> None:
    """Give the same rounds to a monitor one by one, to another as a log, and to a plain ridge."""
    actions, rewards = part
    weight = np.array([NOISE**-2.0])
    with watch.timing("observe"):
        for action, reward in zip(actions, rewards.tolist(), strict=True):
            monitor.observe(action, reward)
    with watch.timing("observe_log"):
        logs.observe_log(actions, rewards)
    with watch.timing("ridge update"):
        for i in range(len(rewards)):
            ridge.update(actions[i : i + 1], rewards[i : i + 1], weight)


def look(monitor: CorruptionMonitor, watch: Stopwatch, rounds: int) -> None:
    """Look at the proved corruption once, and print times and sizes so far."""
    begin = time.perf_counter()
    tracemalloc.start()
    bound = monitor.lower_bounds()[0]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    taken = time.perf_counter() - begin
    each = [f"{1e6 * spent / rounds:.1f}" for spent in watch.seconds.values()]
    print(
        f"{rounds:>9,} {each[0]:>8} {each[1]:>6} {each[2]:>6}     {held(monitor) / 1024:6.0f} K  "
        f"{peak / 2**20:6.1f} M  {1e3 * taken:4.0f} ms  {len(monitor.state()['blocks'])}; proved {bound:g}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000_000, help="(default %(default)s)")
    rounds = parser.parse_args().rounds
    rng, watch = np.random.default_rng(1), Stopwatch()
    monitor, logs = (CorruptionMonitor(dim=DIM, noise=NOISE) for _ in range(2))
    ridge = Ridge(rows=1, dim=DIM, regularization=1.0)
    tenths = {rounds * part // 10 for part in range(1, 11)}
    print(f"{'rounds':>9} {'observe':>8} {'log':>6} {'ridge':>6} µs  {'state':>8}  {'peak':>8}  {'look':>7}  groups")
    for done in range(0, rounds, CHUNK):
        part = stream(rng, min(CHUNK, rounds - done))
        feed(monitor, logs, ridge, watch, part)
        now = done + len(part[1])
        if now in tenths:
            look(monitor, watch, now)
    plain = watch.seconds["ridge update"]
    single, whole = watch.seconds["observe"] / plain, watch.seconds["observe_log"] / plain
    print(f"observe takes {single:.2f} times as long as a ridge update, observe_log {whole:.2f} times, without looks")


if __name__ == "__main__":
    main()
