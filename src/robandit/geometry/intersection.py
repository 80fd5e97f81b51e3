"""The exact intersection of two ellipsoids."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from robandit.arrays import Bools, Floats, Index, count_to
from robandit.geometry.ellipsoid import TIE, Ellipsoid, Support, leading, one_set
from robandit.geometry.frame import Frame
from robandit.geometry.secular import Blend

_ROUNDING = 1e-9  # TIE for upper bounds, which only decide which directions to make exact
_CLEARLY = 1e-5  # relative gap between two ellipsoids that no rounding can close


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
        if first.center.shape != second.center.shape:
            raise ValueError(f"the ellipsoids differ in shape: {first.center.shape} and {second.center.shape}")
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
            nearest = self._batch()[empty]._frame.nearest()
            empty[empty] = np.vecdot(nearest, nearest) > 1.0
        return empty.reshape(self.first.radius.shape)

    def separated(self, directions: Floats) -> Bools:
        """Whether a direction (B, d), one per pair, proves that the intersection is empty, by far more than rounding.

        It does if all of the first ellipsoid lies below all of the second in this direction. That takes O(d²).
        """
        if self.first._kernel is not None:
            found: Bools = self.first._kernel.separated(np.ascontiguousarray(directions), *self._stored(), _CLEARLY)
            return found
        width1, width2 = _half_widths(self.first, directions), _half_widths(self.second, directions)
        apart = np.vecdot(directions, self.second.center - self.first.center)
        return apart > (1.0 + _CLEARLY) * (width1 + width2)

    def separators(self) -> Floats:
        """Directions (B, d) that separate the two ellipsoids of each pair where the intersection is empty."""
        if self.first._kernel is not None:
            found: Floats
            found, accurate = self.first._kernel.separators(*self._stored())
            if accurate:
                return found
        frame = self._frame
        offset = self.second.center - self.first.center - np.matvec(frame.axes, frame.nearest())
        return np.matvec(self.second.precision, offset)

    def support(self, directions: ArrayLike) -> Support:
        """Values and maximisers for directions (..., K, d); −∞ and NaN where the intersection is empty."""
        directions = self.first._read("directions", directions)
        frame, batch = self._frame, directions.reshape(-1, *directions.shape[-2:])
        rows, places = np.divmod(np.arange(batch.shape[0] * batch.shape[1]), batch.shape[1])
        found = frame.peaks(frame.sight(batch), rows, places)
        points = frame.points(found, rows)
        return Support(found.values.reshape(directions.shape[:-1]), points.reshape(directions.shape))

    def argmax(self, directions: Floats) -> tuple[Bools, Floats]:
        """Which directions (..., K, d) have the largest support value, (..., K), and that value, (...).

        If the maximiser over the first ellipsoid lies in the second, it is the answer. Otherwise `_best_first`
        finds it. Where the intersection is empty, no direction is marked and the value is −∞.
        """
        pairs, batch = self._batch(), directions.reshape(-1, *directions.shape[-2:])
        mask, best = pairs._argmax(batch) if self.first._kernel is None else pairs._argmax_compiled(batch)
        return mask.reshape(directions.shape[:-1]), best.reshape(directions.shape[:-2])

    def _argmax(self, batch: Floats) -> tuple[Bools, Floats]:
        heights, widths = self.first._heights(batch)
        index, best, mask = leading(heights, widths)
        chosen = batch[count_to(len(batch)), index]
        settled = _contains(self.second, _tips(self.first, chosen))
        if np.count_nonzero(mask) > len(mask):
            settled &= ~_several(mask, batch, chosen)
        hard = np.flatnonzero(~settled)
        if hard.size:
            mask[hard], best[hard] = self[hard]._best_first(batch[hard], heights[hard], widths[hard])
        return mask, best

    def _argmax_compiled(self, batch: Floats) -> tuple[Bools, Floats]:
        """Do the same, up to rounding, by the compiled kernel; it leaves pairs that need singular values to NumPy."""
        kernel, along = self.first._kernel, batch @ self.first.root
        mask, best, ended = kernel.intersect(one_set(batch), along, *self._stored(), TIE)
        hard = np.flatnonzero(ended == kernel.HARD)
        if hard.size:
            mask[hard], best[hard] = self[hard]._argmax(batch[hard])
        return mask, best

    def _stored(self) -> tuple[Any, ...]:
        """Both batches as the compiled kernels take them, from `Ellipsoid._stored` and the radii."""
        rows, center, root, _ = self.first._stored()
        rows2, center2, root2, precision2 = self.second._stored()
        given = center2, root2, self.second.precision if precision2 is None else precision2
        radii = np.ascontiguousarray(self.first.radius), np.ascontiguousarray(self.second.radius)
        return rows, center, root, radii[0], rows2, *given, radii[1]

    def _best_first(self, directions: Floats, first: Floats, width1: Floats) -> tuple[Bools, Floats]:
        """`argmax` in general, for directions (B, K, d), given their heights and half-widths in the first ellipsoid.

        The smaller of the two ellipsoids' values bounds each direction from above; those with the largest bounds are
        made exact, until no bound left reaches the best exact value.
        """
        second, width2 = self.second._heights(directions)
        upper = np.minimum(first, second)  # (B, K)
        slack = _ROUNDING * np.maximum(width1.max(axis=1), width2.max(axis=1))  # rounding scales with the wider one
        exact = _refine(self._frame, directions, upper, slack)
        known = np.where(exact, upper, -np.inf)
        rows, k = count_to(len(upper)), known.argmax(axis=1)
        best, narrow = known[rows, k], np.minimum(width1[rows, k], width2[rows, k])
        return exact & _reaches(upper, best, TIE * (narrow + np.abs(best))), best

    def touching(self, directions: Floats) -> Ellipsoid:
        """The ellipsoid E_ρ whose support value in a direction (B, d), one per pair, equals the intersection's."""
        frame = self._frame
        rows = np.arange(len(directions))
        found = frame.peaks(frame.sight(directions[:, None, :]), rows, np.zeros_like(rows))
        blend = Blend(frame.scale, frame.shift, found.peak.log_rho)
        center = self.first.center + np.matvec(frame.axes, blend.y)
        return Ellipsoid.from_root(center, frame.axes / np.sqrt(blend.precision)[:, None, :], np.sqrt(blend.slack))

    @cached_property
    def _frame(self) -> Frame:
        pairs = self._batch()
        return Frame.of(pairs.first, pairs.second)

    def _batch(self) -> Intersection:
        """The same with exactly one batch axis."""
        return self if self.first.radius.ndim else self[None]


def _half_widths(body: Ellipsoid, directions: Floats) -> Floats:
    """The half-widths (B,) in one direction each, (B, d)."""
    along = np.vecmat(directions, body.root)
    return body.radius * np.sqrt(np.vecdot(along, along))


def _tips(body: Ellipsoid, directions: Floats) -> Floats:
    """The points (B, d) that are farthest in one direction each, (B, d); for a zero one, the centre."""
    along = np.vecmat(directions, body.root)
    widths = np.sqrt(np.vecdot(along, along))
    step = body.radius / np.where(widths > 0, widths, 1.0)
    return body.center + step[:, None] * np.matvec(body.root, along)


def _contains(body: Ellipsoid, points: Floats) -> Bools:
    """Whether each ellipsoid contains its point, (B, d)."""
    if body._precision is None:
        return body._distance(points[:, None, :])[:, 0] <= 1.0
    offsets = points - body.center
    return np.vecdot(np.matvec(body._precision, offsets), offsets) <= body.radius * body.radius


def _reaches(values: Floats, best: Floats, slack: Floats) -> Bools:
    """Which values (B, K) reach the best (B,) up to some slack (B,); none if the best is −∞."""
    return values >= np.where(best > -np.inf, best - slack, np.inf)[:, None]


def _several(mask: Bools, directions: Floats, chosen: Floats) -> Bools:
    """In which rows a direction is marked that is no copy of the one that was chosen."""
    several = np.count_nonzero(mask, axis=1) > 1
    marked = mask & several[:, None]
    rows = np.repeat(count_to(len(mask)), np.count_nonzero(marked, axis=1))
    other = directions.reshape(-1, chosen.shape[1]).compress(marked.ravel(), axis=0) != chosen.take(rows, axis=0)
    several[:] = False
    several[rows[other.any(axis=1)]] = True
    return several


def _refine(frame: Frame, directions: Floats, upper: Floats, slack: Floats) -> Bools:
    """Make the largest of the bounds ``upper`` (B, K) exact, and those that reach its exact value; say which.

    The E_ρ that touches the intersection in the most promising direction bounds the others. Those that turn out not to
    reach its value are left once that is certain.
    """
    sight, exact = frame.sight(directions), np.zeros(upper.shape, dtype=bool)
    rows, k = count_to(len(upper)), upper.argmax(axis=1)
    found = frame.peaks(sight, rows, k)
    best = upper[rows, k] = found.values
    exact[rows, k] = True
    rivals = _reaches(upper, best, slack) & ~exact
    i, j = np.nonzero(rivals)
    copy = (directions[i, j] == directions[i, k[i]]).all(axis=1)
    i, j = i[copy], j[copy]
    upper[i, j], exact[i, j], rivals[i, j] = best[i], True, False
    left = np.flatnonzero(rivals.any(axis=1))
    if left.size:
        bounds = frame.bounds(sight, left, found.peak.log_rho[left])
        upper[left] = np.where(exact[left], upper[left], np.minimum(upper[left], bounds))
        places = i, j = np.nonzero(_reaches(upper, best, slack) & ~exact)
        if i.size:
            one, copies = _fold(i, upper[places], directions[places])
            i, j = i[one], j[one]
            least, start = best[i] - slack[i], found.peak.log_rho[i]
            upper[places], exact[places] = frame.peaks(sight, i, j, least, start).values[copies], True
    return exact


def _fold(rows: Index, bounds: Floats, directions: Floats) -> tuple[Index, Index]:
    """The places of one of each direction (m, d) within its row, and for all of them which of these it is a copy of.

    Copies have the same bound, bit for bit, so sorting by it brings them together.
    """
    order = np.lexsort((bounds, rows))
    starts = np.ones(len(order), dtype=bool)
    last, this = order[:-1], order[1:]
    starts[1:] = (rows[this] != rows[last]) | (directions[this] != directions[last]).any(axis=1)
    copies = np.empty_like(order)
    copies[order] = np.cumsum(starts) - 1
    return order[starts], copies
