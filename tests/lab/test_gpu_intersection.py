"""The search for the best action under two ellipsoids, in a kernel, against the exact one in float64."""

# Triton has types of its own.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import interpreted  # noqa: F401  before the kernels are imported
import numpy as np
import pytest
import triton
import triton.language as tl

from robandit import Greedy
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.intersection import Intersection
from robandit.lab import attacks, environments
from robandit.lab.gpu.kernels.intersection import best_first, frame_of, inverse
from robandit.lab.gpu.launch import Device
from robandit.lab.gpu.plan import plan
from robandit.lab.protocol import Scenario

pytestmark = pytest.mark.gpu
D, K, SIZE = 4, 6, 16
KIND = plan(
    Greedy, Scenario(environments.Fresh(dim=D, actions=K), attacks.NoAttack(), [0]), rounds=1, seed=1
).world_kind


@triton.jit
def invert(out, matrix, SIZE: tl.constexpr, D: tl.constexpr):
    j, i = tl.arange(0, SIZE)[:, None], tl.arange(0, SIZE)[None, :]
    tl.store(out + j * SIZE + i, inverse(tl.load(matrix + j * SIZE + i), j, i, D))


@triton.jit
def decide(out, roots, inverses, centers, actions, radii, W: tl.constexpr):
    SIZE: tl.constexpr = W.wide
    j = tl.arange(0, SIZE)
    square = tl.program_id(0) * SIZE * SIZE + j[:, None] * SIZE + j[None, :]
    mean, center = (
        tl.load(centers + tl.program_id(0) * 2 * SIZE + j),
        tl.load(centers + (tl.program_id(0) * 2 + 1) * SIZE + j),
    )
    beta, gamma = tl.load(radii + tl.program_id(0) * 2), tl.load(radii + tl.program_id(0) * 2 + 1)
    root, other, sets = tl.load(roots + square), tl.load(inverses + square), tl.load(actions + square)
    spread, estimates = tl.dot(root, sets, input_precision="ieee"), tl.sum(sets * mean[:, None], axis=0)
    upper = estimates + beta * tl.sqrt(tl.sum(spread * spread, axis=0))
    frame = frame_of((root, mean), (other, center), beta, gamma, W)
    upper = tl.where(j < W.actions, upper, -float("inf"))
    i, empty = best_first(frame, spread, estimates, beta, upper, j, W)
    tl.store(out + tl.program_id(0) * 2, i)
    tl.store(out + tl.program_id(0) * 2 + 1, empty.to(tl.int32))


def padded(*arrays: Any) -> list[Any]:
    """Arrays (n, D, …) in tiles of zeros."""
    found = []
    for array in arrays:
        whole = np.zeros((len(array), SIZE, SIZE))
        whole[:, : array.shape[1], : array.shape[2]] = array
        found.append(whole)
    return found


def test_an_inverse_by_sweeps_is_the_inverse() -> None:
    rng, device = np.random.default_rng(4), Device.find()
    root = rng.normal(size=(D, D))
    matrix = root @ root.T + 1e-3 * np.eye(D)
    out = device.filled((SIZE, SIZE), 0.0)
    invert[(1,)](out, device.array(padded(matrix[None])[0][0], "float32"), SIZE, D, num_warps=1)
    assert np.abs(out.cpu().numpy()[:D, :D] @ matrix - np.eye(D)).max() < 1e-3


def test_the_best_action_and_emptiness_are_exact() -> None:
    rng, device, number = np.random.default_rng(5), Device.find(), 24
    roots = rng.normal(size=(2, number, D, D)) + 1.5 * np.eye(D)  # S, S Sᵀ = Σ⁻¹
    far = np.linspace(0.2, 2.5, number)[:, None]
    centers = rng.normal(size=(2, number, D))
    centers[1] = centers[0] + far * (centers[1] - centers[0])
    radii, sets = np.ones((number, 2)), rng.normal(size=(number, K, D))
    precisions = np.linalg.inv(roots @ np.swapaxes(roots, -1, -2))
    pairs = Intersection(*(Ellipsoid(centers[n], precisions[n], radii[:, n]) for n in (0, 1)))
    values, empty = pairs.support(sets).values, pairs.is_empty()
    assert 4 < empty.sum() < 20
    tiles = padded(np.swapaxes(roots[0], 1, 2), np.linalg.inv(roots[1]), np.swapaxes(sets, 1, 2))
    middle = np.zeros((number, 2, SIZE))
    middle[:, :, :D] = centers.transpose(1, 0, 2)
    given = [device.array(array, "float32") for array in (*tiles[:2], middle, tiles[2], radii)]
    out = device.filled((number, 2), -1, "int32")
    decide[(number,)](out, *given, KIND, num_warps=1)
    chosen, said = out.cpu().numpy().T
    assert np.array_equal(said.astype(bool), empty)
    at = values[np.arange(number), chosen][~empty]
    assert at == pytest.approx(values[~empty].max(axis=1), abs=1e-4)
    plain = Ellipsoid(centers[0], precisions[0], radii[:, 0]).support(sets).values.argmax(axis=1)
    assert (plain != values.argmax(axis=1))[~empty].sum() > 3  # bounds alone would have chosen other actions
