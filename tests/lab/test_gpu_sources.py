"""Worlds with sources of traffic, and attacks by source, in kernels."""

# Triton has types of its own.
# mypy: ignore-errors

from __future__ import annotations

from functools import partial

import interpreted  # noqa: F401  before the kernels are imported
import numpy as np
import philox
import pytest
import triton
import triton.language as tl
from gpu_replay import replayed

from robandit import CWOFUL, OFUL, Greedy, MultiLevelWeightedOFUL, RobustWeightedOFUL, WeightedOFUL
from robandit.lab import attacks, environments
from robandit.lab.gpu.kernels.world import source_of
from robandit.lab.gpu.launch import Device, key_of
from robandit.lab.gpu.worlds import ends_of, world_of
from robandit.lab.protocol import REALISED, Scenario

pytestmark = pytest.mark.gpu
FOUR = {"dim": 4, "actions": 5, "sources": 4}
CASES = {
    "clicks on one set, three of ten promote": (
        partial(OFUL, radius_scale=0.2),
        environments.Clicks(dim=4, actions=6, sources=10, fresh_rounds=5),
        attacks.SourcePromote(liars=3),
    ),
    "clicks on fresh sets, sources that differ, liars that move": (
        Greedy,
        environments.Clicks(dim=4, actions=5, sources=5, skew=1.0, zeta=0.3),
        attacks.SourcePromote(liars=2, first=4, begin=4, end=25, move_every=6, budget=6.0),
    ),
    "promotion on fresh sets": (
        partial(WeightedOFUL, radius_scale=0.02),
        environments.Fresh(**FOUR, zeta=0.2),
        attacks.SourcePromote(liars=2, move_every=9),
    ),
    "promotion on one set, which is odd": (
        partial(CWOFUL, radius_scale=0.1, corruption=REALISED),
        environments.Paper(**FOUR, zeta=0.1, fresh_rounds=8),
        attacks.SourcePromote(liars=1, first=2, budget=5.0),
    ),
    "suppression": (
        partial(WeightedOFUL, radius_scale=0.02),
        environments.Fresh(**FOUR, hide_sigma=True),
        attacks.SourceSuppress(liars=3, begin=3),
    ),
    "suppressed clicks": (
        partial(OFUL, radius_scale=0.2),
        environments.Bernoulli(**FOUR, zeta=0.9),  # so that some rates would be beyond 0 and 1
        attacks.SourceSuppress(liars=2, end=20),
    ),
    "flips": (
        partial(RobustWeightedOFUL, radius_scale=0.02, corruption=REALISED),
        environments.Heteroscedastic(**FOUR, zeta=0.2),
        attacks.SourceFlip(liars=2),
    ),
    "flipped clicks": (Greedy, environments.Clicks(**FOUR, zeta=0.1), attacks.SourceFlip(liars=9, budget=4.0)),
    "praise and slander by chance": (
        partial(OFUL, radius_scale=0.3),
        environments.Paper(**FOUR),
        attacks.SourceNoise(liars=2, move_every=5),
    ),
    "clicks by chance": (Greedy, environments.Clicks(**FOUR), attacks.SourceNoise(liars=1)),
    "lies about everybody's clicks, where sources differ": (
        partial(OFUL, radius_scale=0.2),
        environments.Clicks(**FOUR, zeta=0.2),
        attacks.ClickFraud(share=0.4, owned=2, budget=5.0),
    ),
    "sources that nobody lies for": (Greedy, environments.Fresh(**FOUR, zeta=0.1, skew=2.0), attacks.NoAttack()),
    "a world without sources, where all lie": (
        Greedy,
        environments.Paper(dim=4, actions=5),
        attacks.SourcePromote(liars=3, begin=5, end=20),
    ),
    "levels on fresh sets, then one that stays": (
        partial(MultiLevelWeightedOFUL, radius_scale=0.002),
        environments.Paper(**FOUR, fresh_rounds=10, zeta=0.1),
        attacks.SourcePromote(liars=2),
    ),
}


@triton.jit
def visit(out, numbers, seed, first, ROUNDS: tl.constexpr, W: tl.constexpr):
    for t in range(1, ROUNDS + 1):
        tl.store(out + tl.program_id(0) * ROUNDS + t - 1, source_of(numbers, seed, t, first + tl.program_id(0), W))


@pytest.mark.parametrize(("sources", "skew"), [(1, 0.0), (2, 0.0), (5, 1.0), (10, 0.5), (32, 0.0)])
def test_visitors_come_from_the_sources_that_philox_says(sources: int, skew: float) -> None:
    world, device, rounds = environments.Fresh(dim=3, actions=4, sources=sources, skew=skew), Device.find(), 150
    kind, known, _ = world_of(world, attacks.NoAttack(), rounds, record=False)
    out = device.filled((4, rounds), -1, "int32")
    numbers = device.array([*known, *ends_of(world)], "float32")
    visit[(4,)](out, numbers, key_of(1), 3, rounds, kind, num_warps=1)
    seen = out.cpu().numpy()
    assert np.array_equal(seen, philox.sources_of(world, 1, range(3, 7), rounds))
    found = np.bincount(seen.ravel(), minlength=sources) / seen.size
    assert found.shape == (sources,)
    assert np.abs(found - world.shares).max() < 4.0 * 0.5 / seen.size**0.5


@pytest.mark.parametrize("name", CASES)
def test_the_cpu_would_have_done_the_same(name: str) -> None:
    make, environment, attack = CASES[name]
    found = replayed(make, Scenario(environment, attack, range(3, 6)), rounds=30)
    print(f"{name}: {found}")
    assert found.behind < (1e-4 if "levels" in name else 1e-5)
    assert found.changed <= 0.05
    assert found.reward < 1e-5
    assert found.columns < 1e-4
