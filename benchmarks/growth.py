"""How the time of a round grows with the rounds played, the trials, the actions and the features.

Each line doubles one size and fits the exponent: 1 means that twice the size takes twice the time. A set that stays is
the same array in every round; fresh sets are new ones. BLAS has one thread, as in the engines.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import robandit

SLICES = 5


def offers(trials: int, count: int, dim: int, fresh: bool) -> Iterator[Any]:
    """Endless decision sets."""
    rng = np.random.default_rng(0)
    shape = (count, dim) if trials == 1 else (trials, count, dim)
    return cycle([rng.uniform(-1.0, 1.0, shape) / dim**0.5 for _ in range(4 if fresh else 1)])


def seconds(trials: int = 1, count: int = 20, dim: int = 20, fresh: bool = False, played: int = 0) -> float:
    """The best seconds per round, for all trials together, after so many rounds."""
    policy = robandit.OFUL(dim=dim, noise_range=0.5, seed=1, trials=None if trials == 1 else trials, radius_scale=0.4)
    sets, reward = offers(trials, count, dim, fresh), 0.1 if trials == 1 else np.full(trials, 0.1)
    rounds = max(10, int(1e6 / (trials * count * dim)))
    for _ in range(max(played, 10)):
        policy.update(policy.choose(next(sets)), reward)
    slices = []
    for _ in range(SLICES):
        start = time.process_time()
        for _ in range(rounds):
            policy.update(policy.choose(next(sets)), reward)
        slices.append((time.process_time() - start) / rounds)
    return min(slices)


def line(name: str, sizes: Sequence[int], measure: Callable[[int], float]) -> None:
    """Print the times, and the exponent over the larger half of the sizes, where calls no longer count."""
    times = [measure(size) for size in sizes]
    half = len(sizes) // 2
    slope = np.polyfit(np.log(sizes[half:]), np.log(times[half:]), 1)[0]
    shown = "  ".join(f"{size}: {1e6 * each:.0f}" for size, each in zip(sizes, times, strict=True))
    print(f"{name:42s} {slope:5.2f}    {shown}", flush=True)


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print("OFUL; a round by                        exponent    size: µs")
    with threadpool_limits(1):
        line("rounds played before (d = K = 20)", [1000, 4000, 16000, 64000], lambda n: seconds(played=n))
        line("trials (d = K = 20)", [16, 32, 64, 128, 256], lambda n: seconds(trials=n))
        actions, features = [500, 1000, 2000, 4000, 8000], [25, 50, 100, 200, 400]
        line("actions, a set that stays (d = 50)", actions, lambda n: seconds(count=n, dim=50))
        line("actions, fresh sets (d = 50)", actions, lambda n: seconds(count=n, dim=50, fresh=True))
        line("features, a set that stays (K = 500)", features, lambda n: seconds(count=500, dim=n))
        line("features, fresh sets (K = 500)", features, lambda n: seconds(count=500, dim=n, fresh=True))


if __name__ == "__main__":
    main()
