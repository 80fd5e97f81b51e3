"""Worlds with sources of traffic, and attacks by source, in kernels."""

# Triton has types of its own.
# mypy: ignore-errors

from __future__ import annotations

import interpreted  # noqa: F401  before the kernels are imported
import numpy as np
import philox
import pytest
import triton
import triton.language as tl

from robandit.lab import attacks, environments
from robandit.lab.gpu.kernels.world import source_of
from robandit.lab.gpu.launch import Device, key_of
from robandit.lab.gpu.worlds import ends_of, world_of

pytestmark = pytest.mark.gpu


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
