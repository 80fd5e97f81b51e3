"""The exact intersection of two ellipsoids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robandit.arrays import ALL, Bools, Floats, Index
from robandit.geometry.ellipsoid import TIE, Ellipsoid, Support
from robandit.geometry.secular import Blend, dual, secular

_ROUNDING = 1e-9  # the same for a bound, which need only be compared well enough to decide what to make exact
_TOGETHER = 4  # how many directions to make exact at a time: hardly dearer than one, and it is rarely more


class Intersection:
    """The intersection of two ellipsoids, or of a batch of pairs (at most one batch axis), exactly.

    Let q₁ ≤ 1 and q₂ ≤ 1 describe the two. For every ρ ≥ 0 the ellipsoid E_ρ = {q₁ + ρ q₂ ≤ 1 + ρ} contains the
    intersection, and by convex duality the least of their support functions over ρ is that of the intersection.

    >>> left = Ellipsoid(center=[-1, 0], precision=[[1, 0], [0, 1]], radius=2)
    >>> right = Ellipsoid(center=[1, 0], precision=[[1, 0], [0, 1]], radius=2)
    >>> Intersection(left, right).support([[1, 0], [0, 1]]).values.round(9).tolist()  # 1 and √3
    [1.0, 1.732050808]
    """

    def __init__(self, first: Ellipsoid, second: Ellipsoid) -> None:
        if first.root.shape != second.root.shape:
            raise ValueError(f"the ellipsoids differ in shape: {first.root.shape} and {second.root.shape}")
        if not (first.radius.all() and second.radius.all()):
            raise ValueError("an intersection needs ellipsoids of radius > 0, got 0")
        self.first, self.second = first, second

    def __getitem__(self, rows: Any) -> Intersection:
        """A part of the batch."""
        return Intersection(self.first[rows], self.second[rows])

    def is_empty(self) -> Bools:
        """Whether no point lies in both, per pair."""
        d1 = self.first.distance(self.second.center[..., None, :])[..., 0]
        d2 = self.second.distance(self.first.center[..., None, :])[..., 0]
        # The segment between the centres meets both when 1/d₁ + 1/d₂ ≥ 1; most pairs need no more than that.
        empty = np.atleast_1d(d1 * d2 > d1 + d2)
        if empty.any():
            empty[empty] = self._batch()[empty]._frame.is_empty()
        return empty.reshape(self.first.radius.shape)

    def support(self, directions: ArrayLike) -> Support:
        """Values and maximisers for directions (..., K, d); −∞ and NaN where the intersection is empty."""
        directions = self.first._read("directions", directions)
        values, points, _ = self._frame.support(directions.reshape(-1, *directions.shape[-2:]))
        return Support(values.reshape(directions.shape[:-1]), points.reshape(directions.shape))

    def argmax(self, directions: Floats) -> tuple[Bools, Floats]:
        """Which directions (..., K, d) have the largest support value, (..., K), and that value, (...).

        If the maximiser over the first ellipsoid lies in the second, it is the answer. Otherwise the search goes best
        first. Where the intersection is empty, no direction and −∞.
        """
        pairs, batch = self._batch(), directions.reshape(-1, *directions.shape[-2:])
        mask, best = pairs.first.argmax(batch)
        chosen = batch[np.arange(len(batch)), mask.argmax(axis=1)][:, None, :]
        inside = pairs.second._distance(pairs.first._support(chosen).points)[:, 0] <= 1.0
        hard = np.flatnonzero(~inside | (np.count_nonzero(mask, axis=1) > 1))
        if hard.size:
            mask[hard], best[hard] = pairs[hard]._best_first(batch[hard])
        return mask.reshape(directions.shape[:-1]), best.reshape(directions.shape[:-2])

    def _best_first(self, directions: Floats) -> tuple[Bools, Floats]:
        """`argmax` in general, for directions (B, K, d).

        The smaller of the two ellipsoids' values bounds each direction from above; those with the largest bounds are
        made exact, until no bound left reaches the best exact value.
        """
        (first, width1), (second, width2) = self.first._heights(directions), self.second._heights(directions)
        upper = np.minimum(first, second)  # (B, K)
        slack = np.maximum(width1.max(axis=1), width2.max(axis=1))  # rounding scales with the wider ellipsoid
        rows, k = np.arange(len(upper)), upper.argmax(axis=1)
        exact = np.zeros(upper.shape, dtype=bool)
        exact[rows, k] = self._attains(directions[rows, k], first[rows, k] <= second[rows, k])
        rivals = _reaches(upper, upper[rows, k], _ROUNDING * slack) & ~exact
        undecided = np.flatnonzero(rivals.any(axis=1))
        if undecided.size:
            _refine(self[undecided], directions[undecided], upper, exact, undecided, _ROUNDING * slack)
        known = np.where(exact, upper, -np.inf)
        k, narrow = known.argmax(axis=1), np.minimum(width1, width2)
        best = known[rows, k]
        return exact & _reaches(upper, best, TIE * (narrow[rows, k] + np.abs(best))), best

    def touching(self, directions: Floats) -> Ellipsoid:
        """The ellipsoid E_ρ whose support value in a direction (B, d), one per pair, equals the intersection's."""
        frame = self._frame
        log_rho = frame.support(directions[:, None, :])[2]
        blend = Blend(frame.scale[:, None, :], frame.shift[:, None, :], log_rho)
        center = self.first.center + np.matvec(frame.axes, blend.y[:, 0])
        return Ellipsoid.from_root(center, frame.axes / np.sqrt(blend.precision), np.sqrt(blend.slack[:, 0]))

    @cached_property
    def _frame(self) -> _Frame:
        return _Frame.of(self._batch())

    def _attains(self, directions: Floats, in_first: Bools) -> Bools:
        """Whether the maximiser over the first (or the second) ellipsoid lies in the other, one direction per pair."""
        attained = np.zeros(len(in_first), dtype=bool)
        for inner, outer, rows in ((self.first, self.second, in_first), (self.second, self.first, ~in_first)):
            if rows.any():
                part = ALL if rows.all() else rows
                points = inner[part]._support(directions[part, None, :]).points
                attained[part] = outer[part]._distance(points)[:, 0] <= 1.0
        return attained

    def _batch(self) -> Intersection:
        """The same with exactly one batch axis."""
        return self if self.first.radius.ndim else self[None]


def _reaches(values: Floats, best: Floats, slack: Floats) -> Bools:
    """Which values (..., K) come up to the best (...), but for some slack (...); none if the best is −∞."""
    return (values >= (best - slack)[..., None]) & (values > -np.inf)


def _refine(pairs: Intersection, directions: Floats, upper: Floats, exact: Bools, rows: Index, slack: Floats) -> None:
    """Make the bounds ``upper`` (B, K) of these rows exact, best first, until the largest among them is exact."""

    def rivals() -> Index:
        """Where some bound still reaches the best exact value."""
        best = np.where(exact[at], upper[at], -np.inf).max(axis=1)
        reached = _reaches(upper[at], best, slack[at]) & ~exact[at]
        return np.flatnonzero(reached.any(axis=1) & (best > -np.inf))

    frame, at = pairs._frame, rows
    while True:
        order = np.argsort(np.where(exact[at], np.inf, -upper[at]), axis=1, kind="stable")[:, :_TOGETHER]
        values, _, log_rho = frame.support(np.take_along_axis(directions, order[..., None], axis=1))
        upper[at[:, None], order], exact[at[:, None], order] = values, True
        left = rivals()
        if not left.size:
            return
        frame, at, directions = frame.take(left), at[left], directions[left]
        bounds = frame.bounds(directions, log_rho[left, :1])
        upper[at] = np.where(exact[at], upper[at], np.minimum(upper[at], bounds))
        left = rivals()
        if not left.size:
            return
        frame, at, directions = frame.take(left), at[left], directions[left]


@dataclass(frozen=True)
class _Frame:
    """Coordinates in which both ellipsoids of a pair are axis-parallel.

    The first is ‖y‖ ≤ 1 in its coordinates y, the second ‖z‖ ≤ 1 with z = scale·y − shift. They come from the singular
    values of S₂⁻¹S₁. The generalised eigenvalues of (Σ₁, Σ₂) are their squares: to compute those would lose half of
    the digits.
    """

    pairs: Intersection
    scale: Floats  # D (n, d) > 0
    shift: Floats  # e (n, d)
    axes: Floats  # (n, d, d): μ = m₁ + axes y
    axes2: Floats  # μ = m₂ + axes2 z

    @classmethod
    def of(cls, pairs: Intersection) -> _Frame:
        first, second = pairs.first, pairs.second
        r1, r2 = first.radius[:, None, None], second.radius[:, None, None]
        stacked = np.concatenate([r1 * first.root, (second.center - first.center)[:, :, None]], axis=2)
        solved = np.linalg.solve(second.root, stacked) / r2
        left, scale, right = np.linalg.svd(solved[:, :, :-1])
        axes = r1 * first.root @ np.swapaxes(right, 1, 2)
        return cls(pairs, scale, np.vecmat(solved[:, :, -1], left), axes, r2 * second.root @ left)

    def take(self, rows: Index) -> _Frame:
        return _Frame(self.pairs[rows], self.scale[rows], self.shift[rows], self.axes[rows], self.axes2[rows])

    def is_empty(self) -> Bools:
        """Whether the point of the second ellipsoid that is nearest to the first centre lies outside of the first."""
        squared = self.scale**2
        rho = secular(self.shift / squared, 1.0 / squared)[:, None]
        nearest = rho * self.scale * self.shift / (1.0 + rho * squared)
        return np.vecdot(nearest, nearest) > 1.0

    def support(self, directions: Floats) -> tuple[Floats, Floats, Floats]:
        """Values (n, k), maximisers (n, k, d) and dual variables log ρ (n, k) of directions (n, k, d)."""
        g = directions @ self.axes
        size = np.abs(g).max(axis=2, keepdims=True)
        g = np.where(size > 0, g / np.where(size > 0, size, 1.0), 1.0)  # a zero direction: any point will do
        scale, shift = self.scale[:, None, :], self.shift[:, None, :]
        log_rho, empty = dual(scale, shift, g)
        y, z = Blend(scale, shift, log_rho).maximiser(g)
        # Read the point off the ellipsoid that is narrower in this direction: rounding scales with its width.
        first, second = self.pairs.first.center[:, None, :], self.pairs.second.center[:, None, :]
        in_first = first + y @ np.swapaxes(self.axes, 1, 2)
        in_second = second + z @ np.swapaxes(self.axes2, 1, 2)
        narrower = np.vecdot(g, g) <= np.vecdot(g / scale, g / scale)
        points = np.where(narrower[..., None], in_first, in_second)
        points[empty] = np.nan
        return np.where(empty, -np.inf, np.vecdot(directions, points)), points, log_rho

    def bounds(self, directions: Floats, log_rho: Floats) -> Floats:
        """Support values (n, k) of E_ρ, which are upper bounds on those of the intersection, for one ρ per pair."""
        blend = Blend(self.scale[:, None, :], self.shift[:, None, :], log_rho)
        return np.matvec(directions, self.pairs.first.center) + blend.values(directions @ self.axes)
