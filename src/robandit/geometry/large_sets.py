"""The best of many actions under an ellipsoid: bounds that stay from round to round spare most of the work.

Exact widths of K actions cost K·d². While a set stays, its widths can be followed from update to update for K·d, up to
rounding. That is enough to see which actions can't be best; the few that are left are computed afresh. So an answer
depends on the ellipsoid alone, and never on which bounds there were.
"""

from __future__ import annotations

from math import inf, sqrt
from operator import itemgetter
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Bools, Floats, Index

Singles: TypeAlias = NDArray[np.float32]

LARGE = 4000
"""Sets of so many numbers, K·d, are large: below, computing all widths afresh is faster."""

_LIFE = 10_000  # updates for which widths are followed before they are computed again
_EPSILON = 4 * np.finfo(float).eps  # times d: what rounding can take from a squared width that is new, likewise
_MARGIN = 1e-11  # of ‖a‖² tr Σ⁻¹: more than rounding can take from a squared width in all of these updates
_SINGLE = 64  # features from which on single precision is worth the conversion
_SMALLEST, _TINIEST = 1e-10, 1e-12  # within these, squares in single precision neither overflow nor vanish unnoticed
_ROOM = 2**22  # numbers of a set up to which room is kept to compute in; memory that is new takes as long to get
_MANY = 32  # candidates that are computed one by one; where there are more, bounds are computed again


class WidthBounds:
    """Upper bounds on the squared widths ‖a‖²_{Σ⁻¹} of one decision set (n, K, d), for each of n regressions.

    They are followed only while the same array is asked about, which nobody may write to.
    """

    def __init__(self) -> None:
        self._directions: Floats | None = None
        self._squares: Floats = np.empty(0)  # (n, K)
        self._margin: Floats = np.empty(0)  # (n, K)
        self._age = 0  # updates
        self._room = np.empty(0, np.float32)

    def of(self, directions: Floats, root: Floats) -> Floats:
        """The bounds (n, K) for these directions: those that are kept, or new ones."""
        if directions is not self._directions or self._age >= _LIFE:
            if directions.flags.writeable:  # a set that is not kept
                self._directions = None
                room = self._room_for(directions[0].size)
                return np.stack([_fresh_bounds(*pair, room) for pair in zip(directions, root, strict=True)])
            squares = np.stack([_squared_widths(*pair) for pair in zip(directions, root, strict=True)])
            largest = np.vecdot(root, root).sum(axis=-1)[:, None]  # tr Σ⁻¹, at least the largest eigenvalue
            self._squares, self._directions, self._age = squares, directions, 0
            self._margin = _MARGIN * np.vecdot(directions, directions) * largest
        return np.maximum(self._squares + self._margin, 0.0)

    def _room_for(self, numbers: int) -> Singles:
        """Room for twice so many numbers in single precision, the same in every round."""
        if len(self._room) >= 2 * numbers:
            return self._room
        room = np.empty(2 * numbers, np.float32)
        if numbers <= _ROOM:
            self._room = room
        return room

    def renew(self, row: int, root: Floats) -> None:
        """Compute the bounds of one regression again."""
        if self._directions is not None:
            self._squares[row] = _squared_widths(self._directions[row], root)

    @property
    def kept(self) -> bool:
        """Whether a set is followed."""
        return self._directions is not None

    def shrink(self, gain: Floats, share: Floats) -> None:
        """Follow an update of Σ⁻¹ by −share·gain gainᵀ: gain (n, d), share (n,)."""
        if self._directions is not None:
            along = np.matvec(self._directions, gain)  # (n, K)
            along *= along
            self._squares -= share[:, None] * along
            self._age += 1

    def forget(self) -> None:
        """Drop everything, since widths may have grown."""
        self._directions = None


def _fresh_bounds(directions: Floats, root: Floats, room: Singles) -> Floats:
    """Upper bounds (K,) on the squared widths in directions (K, d) that are asked for once."""
    dim, trace = len(root), float(root.ravel().dot(root.ravel()))
    if dim >= _SINGLE and _SMALLEST < trace < 1.0 / _SMALLEST:
        found = _single_bounds(directions, root, trace, room)
        if found[found.argmax()] < np.inf:  # not so for NaN, which argmax finds first
            return found
    flat = directions.ravel()
    return _squared_widths(directions, root) + _EPSILON * dim * flat.dot(flat) * trace


def _single_bounds(directions: Floats, root: Floats, trace: float, room: Singles) -> Floats:
    """The same in single precision, which takes half the time.

    Rounding a, S, their products and sums moves Sᵀa by at most (d + 2)ε‖a‖‖S‖, and its length by (d + 2)ε of itself.
    """
    single, along = room[: 2 * directions.size].reshape(2, *directions.shape)
    with np.errstate(over="ignore", invalid="ignore"):
        np.copyto(single, directions, casting="same_kind")
        np.dot(single, root.astype(np.float32), out=along)
        widths, sizes = (np.sqrt(np.vecdot(each, each), dtype=float) for each in (along, single))
    error = 2 * (len(root) + 4) * float(np.finfo(np.float32).eps)  # twice as much as can be
    widths += error * (widths + sqrt(trace) * sizes + (1.0 + sqrt(trace)) * _TINIEST)
    widths *= widths
    return widths


def _squared_widths(directions: Floats, root: Floats) -> Floats:
    along = directions.dot(root)
    return np.vecdot(along, along)


def best_of_many(
    directions: Floats, center: Floats, root: Floats, radius: Floats, tie: float, bounds: WidthBounds
) -> tuple[Index, Floats, Bools | None]:
    """`Ellipsoid.best` for large sets of directions (n, K, d)."""
    squares = bounds.of(directions, root)
    best: list[tuple[int, float, float]] = []
    equal: list[list[int]] = []
    for row, offered in enumerate(directions):
        means = offered.dot(center[row])
        found = _candidates(offered, means, squares[row], root[row], radius.item(row), tie)
        top = max(found, key=itemgetter(1))
        least = top[1] - tie * (top[2] + abs(top[1]))
        best.append(top)
        equal.append([k for k, value, _ in found if value >= least])
        if len(found) > _MANY:
            bounds.renew(row, root[row])
    ties: Bools | None = None
    if any(len(places) > 1 for places in equal):
        ties = np.zeros(squares.shape, dtype=bool)
        for row, places in enumerate(equal):
            ties[row, places] = True
    return np.array([k for k, _, _ in best]), np.array([value for _, value, _ in best]), ties


def _candidates(
    directions: Floats, means: Floats, squares: Floats, root: Floats, radius: float, tie: float
) -> list[tuple[int, float, float]]:
    """All directions that may have the largest support value: their places, exact values and half-widths."""
    rest = np.sqrt(squares)
    rest *= radius
    rest += means
    found: list[tuple[int, float, float]] = []
    least = -inf  # what the others must reach
    while rest.item(k := rest.argmax()) >= least:
        along = directions[k].dot(root)
        half_width = radius * sqrt(along.dot(along))
        value = means.item(k) + half_width
        found.append((int(k), value, half_width))
        least = max(least, value - tie * (half_width + abs(value)))
        rest[k] = -inf
        if len(found) == _MANY:  # all others at once
            more = np.flatnonzero(rest >= least)
            far = np.vecmat(directions[more], root)
            half_widths = radius * np.sqrt(np.vecdot(far, far))
            return found + list(zip(*(x.tolist() for x in (more, means[more] + half_widths, half_widths)), strict=True))
    return found
