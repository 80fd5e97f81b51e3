"""Times our policies per round and trial, by every kernel, beside a plain NumPy OFUL in the same run.

The speed of a machine varies from minute to minute. So each number is the best of several slices, the plain OFUL is
timed beside each, and the ratios are what counts. All times are the processor's, since others may use the machine, too.
BLAS has one thread, as in the engines.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from time import process_time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import robandit

KERNELS = "numpy", "numba"
NOISE = 0.5
SLICES = 7


def plain_oful(actions: Any, rewards: Any, delta: float = 0.05, lam: float = 1.0) -> float:
    """Seconds per round of the fifteen lines that people write: one trial, Sherman–Morrison, no checks."""
    dim = actions.shape[1]
    inverse, b, log_det = np.eye(dim) / lam, np.zeros(dim), 0.0
    start = process_time()
    for reward in rewards:
        mean = inverse @ b
        widths = np.sqrt(((actions @ inverse) * actions).sum(axis=1))
        radius = NOISE * np.sqrt(log_det + 2 * np.log(1 / delta)) + np.sqrt(lam)
        chosen = actions[np.argmax(actions @ mean + radius * widths)]
        gain = inverse @ chosen
        c = 1 + chosen @ gain
        inverse -= np.outer(gain, gain) / c
        b += reward * chosen
        log_det += np.log(c)
    return (process_time() - start) / len(rewards)


def play(policy: robandit.Policy, actions: Any, rewards: Any) -> float:
    """Seconds per round and trial of choose and update, including validation."""
    start = process_time()
    for reward in rewards:
        policy.update(policy.choose(actions, sigma=0.02), reward)
    return (process_time() - start) / np.size(rewards)


def compare(make: Callable[..., robandit.Policy], dim: int, count: int, trials: int) -> tuple[float, float]:
    """The best seconds per round and trial of a policy, and of the plain OFUL beside it."""
    rng = np.random.default_rng(0)
    shape = (count, dim) if trials == 1 else (trials, count, dim)
    actions = rng.uniform(-1.0, 1.0, shape) / dim**0.5
    single = actions if trials == 1 else actions[0].copy()
    rounds = max(20, int(2e7 / (count * dim * dim * trials + 1e5 * trials**0.5)))
    policy = make(dim=dim, noise_range=NOISE, seed=1, trials=None if trials == 1 else trials)
    ours, plain = [], []
    for _ in range(SLICES):
        rewards = rng.uniform(-0.5, 0.5, (rounds,) if trials == 1 else (rounds, trials))
        ours.append(play(policy, actions, rewards.tolist() if trials == 1 else rewards))
        plain.append(plain_oful(single, rng.uniform(-0.5, 0.5, rounds)))
    return min(ours), min(plain)


def peak_flops() -> float:
    """Floating-point operations per second of one core in a large matrix product."""
    a = np.random.default_rng(0).random((600, 600))
    best = min(_seconds(lambda: a @ a) for _ in range(SLICES))
    return 2 * 600**3 / best


def _seconds(call: Callable[[], object]) -> float:
    start = process_time()
    call()
    return process_time() - start


def using(kernel: str, make: Callable[..., robandit.Policy]) -> Callable[..., robandit.Policy]:
    """The same policy by this kernel."""
    return make if kernel == "numpy" else partial(make, kernel=kernel)


def sizes(kernels: Sequence[str]) -> None:
    """Print a table of OFUL and Weighted OFUL at every size."""
    peak = peak_flops()
    print(f"one core: {peak / 1e9:.0f} Gflop/s in a large matrix product\n")
    print("policy          d     K  trials  kernel   µs/round/trial   plain OFUL µs   ratio   share of peak")
    cases = product((robandit.OFUL, robandit.WeightedOFUL), (5, 20, 100), (20, 1000), (1, 64), kernels)
    for kind, dim, count, trials, kernel in cases:
        ours, plain = compare(using(kernel, kind), dim, count, trials)
        flops = 2 * (count * dim * dim + 2 * count * dim + 3 * dim * dim)
        print(
            f"{kind.__name__:13s} {dim:3d} {count:5d} {trials:7d}  {kernel:6s} {1e6 * ours:16.2f} {1e6 * plain:15.2f} "
            f"{ours / plain:7.3f} {flops / ours / peak:14.1%}",
            flush=True,
        )


def paper_workload(make: Callable[..., robandit.Policy], lies: int, trials: int, rounds: int) -> float:
    """Median seconds per round and trial on the paper's workload: flips on fresh sets at first, then a fixed set."""
    dim, rng = 20, np.random.default_rng(0)
    policy = make(dim=dim, noise_range=NOISE, seed=1, trials=trials)
    fresh = rng.uniform(-1.0, 1.0, (max(lies, 1), trials, 20, dim)) * dim**-0.5
    slices: list[float] = []
    for first in range(0, rounds, rounds // 10):
        spent = 0.0
        for t in range(first, first + rounds // 10):
            actions = fresh[t] if t < lies else fresh[0]
            sigma = rng.uniform(0.0, 0.05, trials)
            start = process_time()
            decision = policy.choose(actions, sigma)
            spent += process_time() - start
            means = decision.action.sum(axis=1) * dim**-0.5
            rewards = (-means if t < lies else means) + sigma * rng.standard_normal(trials)
            start = process_time()
            policy.update(decision, rewards)
            spent += process_time() - start
        slices.append(spent / (rounds // 10 * trials))
    return float(np.median(slices))


def multi_level(kernels: Sequence[str]) -> None:
    """Print a table of exact Multi-level weighted OFUL against OFUL on the paper's workload."""
    trials, rounds = 64, 3000
    print(
        f"\nMulti-level weighted OFUL on the paper's workload (d = K = 20, {trials} trials, {rounds} rounds, medians)"
    )
    print("scale   flipped rounds   kernel   µs/round/trial   OFUL µs   ratio")
    for scale, lies, kernel in product((0.1, 0.01, 0.003, 0.001), (0, 450), kernels):
        multi = partial(robandit.MultiLevelWeightedOFUL, horizon=10_000, radius_scale=scale)
        ours = paper_workload(using(kernel, multi), lies, trials, rounds)
        oful = paper_workload(using(kernel, partial(robandit.OFUL, radius_scale=0.4)), lies, trials, rounds)
        print(f"{scale:5} {lies:16d}   {kernel:6s} {1e6 * ours:16.2f} {1e6 * oful:9.2f} {ours / oful:7.2f}", flush=True)


def whole_run(make: Callable[..., robandit.Policy], trials: int, sources: int, rounds: int) -> float:
    """Mean seconds per round and trial of all rounds, in which three tenths of the sources flip the rewards."""
    dim, rng = 20, np.random.default_rng(0)
    actions = rng.uniform(-1.0, 1.0, (trials, 20, dim)) * dim**-0.5
    policy = make(dim=dim, noise_range=NOISE, seed=1, trials=trials)
    spent = 0.0
    for _ in range(rounds):
        source, noise = rng.integers(0, max(sources, 1), trials), 0.02 * rng.standard_normal(trials)
        start = process_time()
        decision = policy.choose(actions, 0.02, source=source if sources else None)
        spent += process_time() - start
        means = decision.action.sum(axis=1) * dim**-0.5
        rewards = np.where(source < 0.3 * sources, -means, means) + noise
        start = process_time()
        policy.update(decision, rewards)
        spent += process_time() - start
    return spent / (rounds * trials)


def whole_runs(kernels: Sequence[str], rounds: int = 3000) -> None:
    """Print what Quorum, the default policy, costs on average, votes included, beside OFUL."""
    print(f"\nWhole runs of {rounds} rounds, a batch of 1 and of 64 (d = K = 20)")
    print("sources   trials   kernel   µs/round/trial   OFUL µs   ratio")
    for sources, trials, kernel in product((0, 10), (1, 64), kernels):
        oful = whole_run(using(kernel, robandit.OFUL), trials, sources, rounds)
        ours = whole_run(using(kernel, robandit.Quorum), trials, sources, rounds)
        times = f"{1e6 * ours:16.2f} {1e6 * oful:9.2f} {ours / oful:7.2f}"
        print(f"{sources:7d} {trials:8d}   {kernel:6s} {times}", flush=True)


def propensities(kernels: Sequence[str]) -> None:
    """Print how long Multi-level's exact propensities take for one trial, after 400 rounds."""
    print("\nMulti-level's exact propensities, one trial (d = K = 20)\nscale   kernel       ms")
    for scale, kernel in product((0.1, 0.01, 0.001), kernels):
        rng = np.random.default_rng(0)
        actions = rng.uniform(-1.0, 1.0, (20, 20)) / 20**0.5
        make = partial(robandit.MultiLevelWeightedOFUL, dim=20, noise_range=NOISE, horizon=10_000, seed=1)
        policy = using(kernel, make)(radius_scale=scale)
        for _ in range(400):
            decision = policy.choose(actions, sigma=0.02)
            policy.update(decision, float(decision.action.sum() / 20**0.5 + 0.02 * rng.normal()))
        best = min(_seconds(partial(policy.propensities, actions)) for _ in range(100))
        print(f"{scale:5}   {kernel:6s} {1e3 * best:8.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=KERNELS, help="default: all")
    kernels = parser.parse_args().kernels
    with threadpool_limits(1):
        sizes(kernels)
        multi_level(kernels)
        whole_runs(kernels)
        propensities(kernels)


if __name__ == "__main__":
    main()
