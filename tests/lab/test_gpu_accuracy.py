"""Why kernels carry a square root along: three ways to keep widths in single precision, against double precision.

An action that is played again and again has a width that shrinks as 1/√(wn). The three ways are written down here in
NumPy, since an interpreter would take hours for so many rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from robandit.arrays import Floats

D, K, ROUNDS, WEIGHT = 20, 20, 5_000, 80.0  # 1/σ̄² of Weighted OFUL at R = 0.5 and d = 20
PLAYED = 3  # actions


def by_square_root(sets: Floats, kind: Any, again: int = 16) -> Floats:
    """V = SᵀX by Potter's update, and squared widths that are carried along, as `on_held_set` does."""
    spread, weight = sets.astype(kind), kind(WEIGHT)  # (d, K), with S = I
    squares = (spread * spread).sum(axis=0)
    for t in range(1, ROUNDS + 1):
        v = spread[:, t % PLAYED].copy()
        c = kind(1.0) + weight * (v * v).sum()
        u = v @ spread
        spread -= v[:, None] * (weight / (c + np.sqrt(c)) * u)[None, :]
        squares -= weight / c * u * u
        if t % again == 0:
            squares = (spread * spread).sum(axis=0)
    return squares


def by_inverse(sets: Floats, kind: Any) -> Floats:
    """Σ⁻¹ by Sherman and Morrison's update."""
    inverse, weight, columns = np.eye(D, dtype=kind), kind(WEIGHT), sets.astype(kind)
    for t in range(1, ROUNDS + 1):
        a = columns[:, t % PLAYED]
        gain = inverse @ a
        inverse -= weight / (kind(1.0) + weight * (a @ gain)) * np.outer(gain, gain)
    return ((inverse @ columns) * columns).sum(axis=0)


def by_products(sets: Floats, kind: Any) -> Floats:
    """Xᵀ Σ⁻¹ X, the products of the actions, by the same update."""
    columns, weight = sets.astype(kind), kind(WEIGHT)
    products = columns.T @ columns
    for t in range(1, ROUNDS + 1):
        row = products[t % PLAYED].copy()
        products -= weight / (kind(1.0) + weight * row[t % PLAYED]) * np.outer(row, row)
    return np.diagonal(products)


def error(way: Callable[..., Floats], sets: Floats, of: slice) -> float:
    """The largest relative error of a width."""
    right, found = np.sqrt(by_square_root(sets, np.float64, again=1)), way(sets, np.float32).astype(float)
    return float(np.abs(np.sqrt(np.maximum(found, 0.0)) / right - 1.0)[of].max())


@pytest.fixture(scope="module")
def sets() -> Floats:
    """Actions (d, K) of which the last is a mean of those that are played, so that it is known as well as they are."""
    found = np.random.default_rng(6).uniform(-1.0, 1.0, (D, K)) * D**-0.5
    found[:, -1] = found[:, :PLAYED].mean(axis=1)
    return found


def test_the_square_root_keeps_the_digits_of_every_width(sets: Floats) -> None:
    assert error(by_square_root, sets, slice(None)) < 1e-3


@pytest.mark.parametrize("way", [by_inverse, by_products])
def test_other_ways_lose_those_of_actions_that_are_known_well(way: Callable[..., Floats], sets: Floats) -> None:
    assert error(way, sets, slice(None)) > 20.0 * error(by_square_root, sets, slice(None))


def test_squares_that_are_never_computed_anew_lose_them_too(sets: Floats) -> None:
    def never(sets: Floats, kind: Any) -> Floats:
        return by_square_root(sets, kind, again=ROUNDS + 1)

    assert error(never, sets, slice(None)) > 5.0 * error(by_square_root, sets, slice(None))
