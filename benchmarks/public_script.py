"""Computes Figure 1 the way public research scripts do, as a yardstick for the engine of this package.

It runs one trial at a time in plain NumPy, with a Python loop over the actions and a new inverse of the d × d matrix
for each of them. It is written from a description of such scripts, without this package and without anyone's code. It
departs from the paper where they do:

- Weights are 1/σ² without a floor.
- Robust weighted OFUL is not told C.
- Multi-level weighted OFUL takes the smaller of two bounds instead of the intersection, and has no cascade.
- Corrupted rewards have no noise.
"""

from __future__ import annotations

import argparse
import time
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

OFUL, WEIGHTED, GREEDY = "OFUL", "Weighted OFUL", "Greedy"
ROBUST, MULTI_LEVEL = "Robust weighted OFUL", "Multi-level weighted OFUL"
POLICIES = (OFUL, WEIGHTED, GREEDY, ROBUST, MULTI_LEVEL)

DIM, ACTIONS, NOISE, DELTA = 20, 20, 0.5, 0.05  # d, |D_t|, R, δ; λ = A = B = 1
HORIZON, FLIPPED = 10_000, 90  # T, k
LEVELS = 15  # ⌈log₂ 2T⌉

# The scripts' radius scales are tuned by hand, from 0.0008 to 0.6. Which policy has which is made up here; it does not
# change the time.
SCALES = {OFUL: 0.6, WEIGHTED: 0.002, GREEDY: 0.0, ROBUST: 0.002, MULTI_LEVEL: 0.0008}

Floats = NDArray[np.float64]


class Regression:
    """Σ and b of a ridge regression. Everything else is computed from them on every call."""

    def __init__(self) -> None:
        self.sigma: Floats = np.eye(DIM)
        self.b: Floats = np.zeros(DIM)

    def bound(self, action: Floats, radius: float) -> float:
        """⟨a, Σ⁻¹b⟩ + radius ‖a‖_{Σ⁻¹}, with an inversion for each action."""
        inverse = np.linalg.inv(self.sigma)
        estimate = inverse @ self.b
        width = sqrt(max(float(action @ inverse @ action), 0.0))
        return float(action @ estimate) + radius * width

    def add(self, action: Floats, reward: float, weight: float) -> None:
        self.sigma += weight * np.outer(action, action)
        self.b += weight * reward * action


def radius(policy: str, regression: Regression, t: int, level: int) -> float:
    """The radius of the ellipsoid over all rounds."""
    if policy == OFUL:
        return NOISE * sqrt(np.linalg.slogdet(regression.sigma)[1] + 2 * log(1 / DELTA)) + 1
    if policy == WEIGHTED:
        return bernstein(t, NOISE, log(4 * t**2 / DELTA)) + 1
    corruption = 2.0**level if policy == MULTI_LEVEL else 0.0
    return bernstein(t, NOISE + 1, log(4 * t**2 / DELTA)) + corruption * sqrt(DIM) + 1


def level_radius(t: int, level: int) -> float:
    """The radius of the ellipsoid over the rounds of one level."""
    corruption = log(2 * level**2 / DELTA) + 3
    return bernstein(t, NOISE + 1, log(8 * t**2 * HORIZON / DELTA)) + corruption * sqrt(DIM) + 1


def bernstein(t: int, noise: float, confidence: float) -> float:
    return 8 * sqrt(DIM * log(1 + t / noise**2) * confidence) + 4 * sqrt(DIM) * confidence


def play(policy: str, rounds: int, flipped: int = FLIPPED, seed: int = 0) -> float:
    """The regret of one trial of the paper's workload: flips on fresh sets at first, then a fixed set."""
    rng, scale = np.random.default_rng(seed), SCALES[policy]
    truth = np.full(DIM, DIM**-0.5)
    fixed = rng.uniform(-1, 1, (ACTIONS, DIM)) * DIM**-0.5
    everything, levels = Regression(), [Regression() for _ in range(LEVELS)]
    regret = 0.0
    for t in range(1, rounds + 1):
        actions = rng.uniform(-1, 1, (ACTIONS, DIM)) * DIM**-0.5 if t <= flipped else fixed
        sigma = rng.uniform(0, 0.05)
        drawn = int(rng.geometric(0.5))
        level = drawn if drawn <= LEVELS else 1  # ℓ > 1 with probability 2^−ℓ, otherwise 1
        ellipsoids = [(everything, scale * radius(policy, everything, t, level))]
        if policy == MULTI_LEVEL:
            ellipsoids.append((levels[level - 1], scale * level_radius(t, level)))
        values = []
        for action in actions:
            values.append(min(regression.bound(action, reach) for regression, reach in ellipsoids))
        chosen = actions[int(np.argmax(values))]
        mean = float(chosen @ truth)
        reward = -mean if t <= flipped else mean + float(np.clip(sigma * rng.standard_normal(), -NOISE, NOISE))
        weight = 1.0 if policy in (OFUL, GREEDY) else sigma**-2
        for regression, _ in ellipsoids:
            regression.add(chosen, reward, weight)
        regret += float(np.max(actions @ truth)) - mean
    return regret


def seconds_per_round(policy_name: str, rounds: int) -> float:
    """Seconds per round of one trial, from the first round on. The caller limits BLAS to one thread."""
    play(policy_name, 2)  # the first calls of NumPy load modules
    start = time.process_time()
    play(policy_name, rounds)
    return (time.process_time() - start) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300, help="of each policy to time (default %(default)s)")
    rounds = parser.parse_args().rounds
    with threadpool_limits(1):
        for policy in POLICIES:
            print(f"{policy:26s} {1e6 * seconds_per_round(policy, rounds):8.0f} µs per round", flush=True)


if __name__ == "__main__":
    main()
