"""Times a round of our policies and of peers, in slices that take all learners in turn."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from peer_adapters import Knobs, Peer, Trial
from peer_race import Own, Theirs
from robandit.arrays import Floats
from robandit.policies import Policy

BATCH = 64


class Cost(NamedTuple):
    """Seconds per round and trial."""

    adapter: float
    """The time in our adapter."""
    building: float
    """The time to make the library's objects."""
    playing: float
    """The time to choose and to learn."""


def peer_round(peer: Peer, sets: Iterable[Floats]) -> Callable[[], Cost]:
    """A function that plays one round of a peer."""
    supply = iter(sets)

    def step() -> Cost:
        actions, clock = next(supply), time.perf_counter
        t0 = clock()
        converted = peer.convert(actions)
        t1 = clock()
        shown = peer.build(converted)
        t2 = clock()
        index = peer.pick(shown)
        t3 = clock()
        reward = float(actions[index].mean())
        t4 = clock()
        peer.learn(shown, index, reward)
        return Cost(t1 - t0, t2 - t1, t3 - t2 + clock() - t4)

    return step


def own_round(policy: Policy, sets: Iterable[Floats], batch: int) -> Callable[[], Cost]:
    """A function that plays one round of our policy, alone or in a batch, including validation."""
    supply = iter(sets)

    def step() -> Cost:
        actions, start = next(supply), time.perf_counter()
        decision = policy.choose(actions)
        spent = time.perf_counter() - start
        reward = decision.action.mean(axis=-1)
        start = time.perf_counter()
        policy.update(decision, reward)
        return Cost(0.0, 0.0, (spent + time.perf_counter() - start) / batch)

    return step


def fresh_sets(dim: int, count: int, batch: int | None = None) -> Iterable[Floats]:
    """Endless decision sets: a few in turn, so that no two in a row are the same."""
    rng, shape = np.random.default_rng(0), (count, dim) if batch is None else (batch, count, dim)
    few = [rng.uniform(-1.0, 1.0, shape) * dim**-0.5 for _ in range(3 if batch else 16)]
    while True:
        yield from few


def slice_of(step: Callable[[], Cost], seconds: float) -> Cost:
    """The mean cost of the rounds that fit into these seconds, at least two."""
    end, costs = time.perf_counter() + seconds, [step(), step()]
    while time.perf_counter() < end:
        costs.append(step())
    return Cost(*np.mean(costs, axis=0).tolist())


def steps_at(
    size: tuple[int, int], ours: Sequence[Own], theirs: Sequence[Theirs], chosen: Mapping[str, Knobs]
) -> dict[str, Callable[[], Cost]]:
    """The functions that are timed at one size, by name."""
    dim, count = size
    steps: dict[str, Callable[[], Cost]] = {}
    known = {"dim": dim, "horizon": 100_000, "seed": 1}
    for own in ours:
        knobs = chosen.get(own.name, {"radius_scale": 0.1} if "radius_scale" in own.grid[0] else {})
        steps[f"{own.name}, one trial"] = own_round(own.make(knobs, **known), fresh_sets(dim, count), 1)
        policy = own.make(knobs, trials=BATCH, **known)
        steps[f"{own.name}, batch of {BATCH}"] = own_round(policy, fresh_sets(dim, count, BATCH), BATCH)
    for peer in theirs:
        knobs = chosen.get(peer.name, peer.grid[len(peer.grid) // 2])
        steps[peer.name] = peer_round(peer.contender.make(knobs, Trial(dim, 100_000, 1)), fresh_sets(dim, count))
    return steps


def measure(
    sizes: Sequence[tuple[int, int]],
    ours: Sequence[Own],
    theirs: Sequence[Theirs],
    chosen: Mapping[str, Knobs],
    slices: int,
    seconds: float,
) -> dict[tuple[int, int], dict[str, Cost]]:
    """The median cost of every learner at every size (d, K)."""
    found: dict[tuple[int, int], dict[str, Cost]] = {}
    for size in tqdm(sizes, desc="timing"):
        steps = steps_at(size, ours, theirs, chosen)
        turns = [{name: slice_of(step, seconds) for name, step in steps.items()} for _ in range(slices)]
        found[size] = {name: Cost(*map(median, zip(*(turn[name] for turn in turns), strict=True))) for name in steps}
    return found
