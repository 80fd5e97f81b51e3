"""How much of the corruption is proved: by groups, by single rounds, and of clicks with a cap on their mean.

Actions are fresh unit vectors. Some rewards have the other sign: the first k, k in the middle, k drawn at random, or
k/6 drawn at random. Bots in one publisher of three click on what they like. Everything is seeded.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from robandit import CorruptionMonitor
from robandit.arrays import Floats
from robandit.monitor.single_rounds import Rounds, prove_by_rounds

SHAPES = ((5, 1500, 90), (20, 1500, 90), (5, 6000, 600))  # d, rounds, lies
NOISES = (0.05, 0.2, 0.5)
LIES = ("prefix", "middle", "random", "sparse")
DELTA, ALONE = 0.05, 0.2  # as audit shares δ out


def flipped(seed: int, shape: tuple[int, int, int], noise: float, lies: str) -> tuple[Rounds, float]:
    """A stream, and the corruption in it."""
    dim, number, count = shape
    rng = np.random.default_rng([seed, dim, number])
    actions, mu = rng.standard_normal((number, dim)), rng.standard_normal(dim)
    actions /= np.linalg.norm(actions, axis=1, keepdims=True)
    means = actions @ (mu / np.linalg.norm(mu))
    order = rng.permutation(number)
    where = {"prefix": np.arange(count), "middle": number // 2 + np.arange(count), "random": order[:count]}
    where["sparse"] = order[: count // 6]
    altered = np.zeros(number)
    altered[where[lies]] = -2.0 * means[where[lies]]
    rewards = means + altered + noise * rng.standard_normal(number)
    return Rounds(actions, rewards, np.full(number, noise)), float(np.abs(altered).sum())


def power(streams: int) -> Iterator[str]:
    """Rows of a table: the proved share of the corruption."""
    yield "| d, rounds, lies | s | where | groups, all of δ | single rounds | the better, δ shared |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for shape in SHAPES:
        for noise in NOISES:
            for lies in LIES:
                found = np.zeros(4)
                for seed in range(streams):
                    found += proved(*flipped(seed, shape, noise, lies))
                shares = " | ".join(f"{value:.3f}" for value in found[:3] / found[3])
                yield f"| {shape[0]}, {shape[1]}, {shape[2]} | {noise:g} | {lies} | {shares} |"


def proved(rounds: Rounds, truth: float) -> Floats:
    """What groups, single rounds, and both together prove, and the truth."""
    by_groups = []
    for delta in (DELTA, DELTA * (1.0 - ALONE)):
        monitor = CorruptionMonitor(dim=rounds.actions.shape[1], noise=float(rounds.noise[0]), delta=delta)
        monitor.observe_log(rounds.actions, rounds.rewards)
        by_groups.append(float(monitor.lower_bounds()[0]))
    single = prove_by_rounds(rounds, DELTA * ALONE)[0]
    return np.array([by_groups[0], single, max(by_groups[1], single), truth])


def clicks(streams: int) -> Iterator[str]:
    """Rows of a table: what is proved of the clicks of bots."""
    yield "| every mean at most | rounds | bots click | clicks added | s = 1/2 | with the cap |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for cap in (0.05, 0.2):
        for number in (20_000, 60_000, 200_000):
            for bots in (0.1, 0.3):
                found = sum((bought(seed, cap, number, bots) for seed in range(streams)), np.zeros(3)) / streams
                cells = " | ".join(f"{value:,.1f}" for value in found[1:])
                yield f"| {cap:g} | {number:,} | {bots:g} | {found[0]:,.0f} | {cells} |"


def bought(seed: int, cap: float, number: int, bots: float) -> Floats:
    """The clicks that bots add, and what is proved of them without and with a cap on honest means."""
    rng = np.random.default_rng([seed, number, 7])
    actions = np.column_stack([rng.uniform(0.0, 1.0, (number, 3)), np.ones(number)])
    publisher, honest = rng.integers(0, 3, number), rng.random(number) < cap * (actions @ [0.3, 0.2, 0.1, 0.4])
    clicked = honest | ((publisher == 2) & (actions[:, 0] > 0.5) & (rng.random(number) < bots))
    found = [float(np.count_nonzero(clicked & ~honest))]
    for mean in (None, cap):
        monitor = CorruptionMonitor(dim=4, sources=3, block=1 << 20, reward_range=(0.0, 1.0), highest_mean=mean)
        monitor.observe_log(actions, clicked.astype(float), source=publisher.astype(str))
        found.append(float(monitor.lower_bounds()[0]))
    return np.array(found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--streams", type=int, default=10, help="(default %(default)s)")
    streams = parser.parse_args().streams
    for table in (power(streams), clicks(streams)):
        for row in table:
            print(row, flush=True)
        print()


if __name__ == "__main__":
    main()
