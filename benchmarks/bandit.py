"""What `Bandit` costs beside its plain policy, and how fast a long table is encoded.

    python benchmarks/bandit.py

Both play the same rounds by turns, and the fastest of many short stretches counts, since other work disturbs the rest.
"""

from __future__ import annotations

import string
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from robandit import Bandit, Features

CANDIDATES, NUMBERS, LABELS, SETS, REPEATS = 20, 5, 2, 50, 200
ROWS = 1_000_000


def features() -> Features:
    """Five columns of numbers and two of labels."""
    action: dict[str, Any] = {f"n{place}": (0.0, 1.0) for place in range(NUMBERS)}
    return Features(action=action | {f"c{place}": list(string.ascii_lowercase[:8]) for place in range(LABELS)}, id="id")


def records(rng: np.random.Generator, number: int) -> list[dict[str, Any]]:
    """So many candidates as dicts."""
    letters = list(string.ascii_lowercase[:8])
    return [
        {"id": f"p{place}"}
        | {f"n{column}": float(rng.random()) for column in range(NUMBERS)}
        | {f"c{column}": str(rng.choice(letters)) for column in range(LABELS)}
        for place in range(number)
    ]


def rounds() -> tuple[float, float, float]:
    """Microseconds of a round: the plain policy on vectors that are there already, encoding alone, and `Bandit`."""
    rng, known = np.random.default_rng(0), features()
    sets = [records(rng, CANDIDATES) for _ in range(SETS)]
    vectors = [known.encode(candidates) for candidates in sets]
    bandit = Bandit(features=known, seed=1)
    policy = type(bandit.policy).from_state(bandit.policy.state())
    times: list[list[float]] = [[], [], []]
    for _ in range(REPEATS):
        start = perf_counter()
        for offered in vectors:
            policy.update(policy.choose(offered), 0.5)
        first = perf_counter()
        for candidates in sets:
            known.encode(candidates)
        second = perf_counter()
        for candidates in sets:
            bandit.learn(bandit.choose(candidates), 0.5)
        ends = start, first, second, perf_counter()
        for place in range(3):
            times[place].append(ends[place + 1] - ends[place])
    plain, encoding, ours = (min(found) / SETS * 1e6 for found in times)
    return plain, encoding, ours


def table_speed() -> tuple[float, float]:
    """Rows per second of a frame of pandas: encoded by known features, and fitted."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({f"n{place}": rng.random(ROWS) for place in range(NUMBERS)})
    for place in range(LABELS):
        frame[f"c{place}"] = rng.choice(list(string.ascii_lowercase[:8]), ROWS)
    start = perf_counter()
    features().rows(frame)
    middle = perf_counter()
    Features.fit(frame)
    return ROWS / (middle - start), ROWS / (perf_counter() - middle)


def main() -> None:
    """Print both tables."""
    with threadpool_limits(1):
        plain, encoding, ours = rounds()
        print(f"One round, {CANDIDATES} candidates as dicts, {NUMBERS} numbers and {LABELS} labels each:\n")
        print("| | µs | beside the plain policy |\n|---|---|---|")
        for name, time in (("plain policy", plain), ("encoding", encoding), ("`Bandit`", ours)):
            print(f"| {name} | {time:.1f} | {time / plain:.2f} |")
        encoded, fitted = table_speed()
        print(f"\nA frame of {ROWS:.0e} rows: {encoded:,.0f} rows/s encoded, {fitted:,.0f} rows/s fitted")


if __name__ == "__main__":
    main()
