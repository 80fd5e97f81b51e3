"""A million observations of the corruption monitor at d = 20, beside a plain ridge update timed in the same run."""

from __future__ import annotations

import argparse
import time
import tracemalloc

import numpy as np

from robandit import CorruptionMonitor
from robandit.arrays import Floats
from robandit.geometry.ridge import Ridge

DIM, NOISE, CHUNK = 20, 0.05, 10_000


def stream(rng: np.random.Generator, rounds: int) -> tuple[Floats, Floats]:
    """Actions (n, d) and clean rewards (n,)."""
    actions = rng.uniform(-1.0, 1.0, (rounds, DIM)) / DIM**0.5
    return actions, actions.sum(axis=1) / DIM**0.5 + rng.normal(0.0, NOISE, rounds)


def held(monitor: CorruptionMonitor) -> int:
    """Bytes of its state's arrays."""
    return sum(array.nbytes for array in monitor.state()["arrays"].values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000_000, help="(default %(default)s)")
    rounds = parser.parse_args().rounds
    rng = np.random.default_rng(1)
    monitor, logs = (CorruptionMonitor(dim=DIM, noise=NOISE) for _ in range(2))
    ridge = Ridge(rows=1, dim=DIM, regularization=1.0)
    seconds = dict.fromkeys(("observe", "observe_log", "ridge update"), 0.0)
    weight, tenths = np.array([NOISE**-2.0]), {rounds * part // 10 for part in range(1, 11)}
    print(f"{'rounds':>9} {'observe':>8} {'log':>6} {'ridge':>6} µs  {'state':>8}  {'peak':>8}  {'look':>7}  groups")
    for done in range(0, rounds, CHUNK):
        actions, rewards = stream(rng, min(CHUNK, rounds - done))
        begin = time.perf_counter()
        for action, reward in zip(actions, rewards.tolist(), strict=True):
            monitor.observe(action, reward)
        seconds["observe"] += time.perf_counter() - begin
        begin = time.perf_counter()
        logs.observe_log(actions, rewards)
        seconds["observe_log"] += time.perf_counter() - begin
        begin = time.perf_counter()
        for i in range(len(rewards)):
            ridge.update(actions[i : i + 1], rewards[i : i + 1], weight)
        seconds["ridge update"] += time.perf_counter() - begin
        now = done + len(rewards)
        if now in tenths:
            begin = time.perf_counter()
            tracemalloc.start()
            bound = monitor.lower_bounds()[0]
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            look = time.perf_counter() - begin
            each = [f"{1e6 * spent / now:.1f}" for spent in seconds.values()]
            print(
                f"{now:>9,} {each[0]:>8} {each[1]:>6} {each[2]:>6}     {held(monitor) / 1024:6.0f} K  "
                f"{peak / 2**20:6.1f} M  {1e3 * look:4.0f} ms  {len(monitor.state()['blocks'])}; proved {bound:g}"
            )
    ratio = seconds["observe"] / seconds["ridge update"]
    whole = seconds["observe_log"] / seconds["ridge update"]
    print(f"observe takes {ratio:.2f} times as long as a ridge update, observe_log {whole:.2f} times, looks apart")


if __name__ == "__main__":
    main()
