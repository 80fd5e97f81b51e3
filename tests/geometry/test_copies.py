"""Sets with copies of an action: they tie, and are searched once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.frame import Frame
from robandit.geometry.intersection import Intersection
from robandit.geometry.kernel import KERNELS, load_kernel


def pairs(rng: np.random.Generator, rows: int, dim: int) -> Intersection:
    """Intersections most of which need the exact search."""

    def body(center: Any) -> Ellipsoid:
        seen = rng.normal(size=(rows, 3 * dim, dim))
        return Ellipsoid(center, np.swapaxes(seen, 1, 2) @ seen, rng.uniform(0.5, 2.0, rows))

    center = rng.normal(size=(rows, dim))
    return Intersection(body(center), body(center + 0.15 * rng.normal(size=(rows, dim))))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("copies", [2, 7])
def test_a_set_of_copies_is_the_set_without_them(kernel: str, copies: int) -> None:
    rng = np.random.default_rng(copies)
    both = pairs(rng, 50, 6)
    both.first._kernel = load_kernel(kernel)
    directions = rng.normal(size=(50, 9, 6))
    directions[:, 1] = directions[:, 0] + 1e-15  # nearly a copy: it must not be taken for one
    mask, best = both.argmax(directions)
    order = rng.permutation(9 * copies)
    repeated, value = both.argmax(np.repeat(directions, copies, axis=1)[:, order])
    assert value.tobytes() == best.tobytes()
    assert (repeated == np.repeat(mask, copies, axis=1)[:, order]).all()


def test_copies_are_searched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of directions that are made exact does not grow with the copies."""
    rng = np.random.default_rng(3)
    both, directions = pairs(rng, 50, 6), rng.normal(size=(50, 9, 6))
    counts: list[int] = []
    inner = Frame.peaks

    def counted(self: Frame, sight: Any, rows: Any, *rest: Any) -> Any:
        counts[-1] += len(rows)
        return inner(self, sight, rows, *rest)

    monkeypatch.setattr(Frame, "peaks", counted)
    for copies in (1, 5):
        counts.append(0)
        both.argmax(np.repeat(directions, copies, axis=1))
    assert 0 < counts[1] <= counts[0]
