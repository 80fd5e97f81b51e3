"""Decision sets, and the joint optimum max_{a ∈ D} max_{μ ∈ C} ⟨a, μ⟩ over action and parameter."""

from __future__ import annotations

from functools import cache
from itertools import product
from numbers import Integral
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from robandit.arrays import Bools, Floats, Index, all_true, count_to
from robandit.geometry.ellipsoid import Ellipsoid, Support
from robandit.geometry.intersection import Intersection
from robandit.geometry.secular import maximise_diagonal

CERTIFIED = 1e-9
"""An optimum is certified when a proven upper bound exceeds it by no more than this share."""

_CORNERS = 12  # boxes of up to 2¹² corners are searched corner by corner
_STARTS = 16  # random starts of a search, beside the axes
_FINALISTS = 8  # the most corners found that are improved further
_STEPS = 100  # the most steps of a search; the best start gets ten times as many
_STALLED = 1e-13  # a step with a smaller relative gain gains nothing
_CLOSE = 1e-8  # relative error of κ at ‖Mᵀμ‖; the bound is flat there, so its error is the square of this


class Ball(Ellipsoid):
    """The ball of a given radius around zero.

    >>> Ball(3).support([[0, 0, 2]]).points.tolist()
    [[0.0, 0.0, 1.0]]
    """

    def __init__(self, dim: int, radius: float = 1.0) -> None:
        if not isinstance(dim, Integral) or dim < 1:
            raise ValueError(f"dim must be an integer >= 1, got {dim!r}")
        super().__init__(center=np.zeros(dim), precision=np.eye(dim), radius=radius)


class Box:
    """All actions between ``low`` and ``high`` in every coordinate.

    >>> Box([-1, 0], [1, 2]).support([[3, -1]]).points.tolist()
    [[1.0, 0.0]]
    """

    def __init__(self, low: ArrayLike, high: ArrayLike) -> None:
        self.low, self.high = np.array(low, dtype=float), np.array(high, dtype=float)
        if self.low.ndim != 1 or self.low.shape != self.high.shape or not self.low.size:
            raise ValueError(f"low and high must be (d,) alike, got {self.low.shape} and {self.high.shape}")
        if not (np.isfinite(self.low).all() and np.isfinite(self.high).all()):
            raise ValueError("a Box must be bounded: low and high must be finite")
        if np.any(self.low > self.high):
            at = int(np.argmax(self.low > self.high))
            raise ValueError(f"low must be <= high, but coordinate {at} has {self.low[at]} > {self.high[at]}")

    @property
    def dim(self) -> int:
        """The dimension d."""
        return len(self.low)

    def support(self, directions: ArrayLike) -> Support:
        """The largest ⟨a, μ⟩ over the box and a corner that attains it, for directions μ (..., d)."""
        directions = np.asarray(directions, dtype=float)
        points = np.where(directions > 0, self.high, self.low)
        return Support(np.vecdot(directions, points), points)

    def farthest(self) -> Support:
        """The largest norm and a corner that attains it, as a support with K = 1."""
        corner = np.where(np.abs(self.high) > np.abs(self.low), self.high, self.low)[None]
        return Support(np.linalg.norm(corner, axis=-1), corner)

    def corners(self) -> Floats:
        """All 2^d corners, (2^d, d)."""
        return np.array(list(product(*zip(self.low, self.high, strict=True))))


class Polytope:
    """The convex hull of ``vertices`` (V, d). A linear function peaks at a vertex, so the vertices are enough."""

    def __init__(self, vertices: ArrayLike) -> None:
        self.vertices = np.array(vertices, dtype=float)
        if self.vertices.ndim != 2 or not self.vertices.size:
            raise ValueError(f"vertices must be (V, d) with V >= 1, got {self.vertices.shape}")
        if not np.isfinite(self.vertices).all():
            raise ValueError("vertices must be finite: a Polytope is bounded")


Region = Ellipsoid | Box
"""A decision set with infinitely many actions, shared by all trials."""


class Optimum(NamedTuple):
    """The best action under each of n confidence sets; the value is −∞ where the set is empty."""

    values: Floats  # (n,)
    maximisers: Bools | None  # (n, K): which actions attain it, for a finite set; None if `only` says it
    points: Floats | None  # (n, d): one action that attains it, for a region
    certified: Bools  # (n,): whether the optimum is proven to be global
    only: Index | None = None  # (n,): the place of the only action that attains it, where there are no ties

    def mask(self, actions: int) -> Bools:
        """Which of so many actions attain it, (n, K), for a finite set."""
        if self.maximisers is not None:
            return self.maximisers
        assert self.only is not None
        return count_to(actions) == self.only[:, None]


def optimise(actions: Floats | Region, confidence: Ellipsoid | Intersection) -> Optimum:
    """The joint optimum over action and parameter for n confidence sets; finite ``actions`` are (n, K, d)."""
    if isinstance(actions, np.ndarray):
        if isinstance(confidence, Ellipsoid):
            index, values, ties = confidence.best(actions)
            return Optimum(values, ties, None, all_true(len(values)), index if ties is None else None)
        maximisers, values = confidence.argmax(actions)
        return Optimum(values, maximisers, None, values > -np.inf)
    if isinstance(actions, Box):
        return _over_box(actions, confidence)
    if isinstance(confidence, Ellipsoid):
        return _over_ellipsoid(actions, confidence)
    return _over_intersection(actions, confidence)


def _over_box(box: Box, confidence: Ellipsoid | Intersection) -> Optimum:
    """Over a box: by all corners, where a convex function peaks, if they are few; else by alternation, unproven."""
    n = len(_first(confidence).center)
    if box.dim <= _CORNERS:
        corners = box.corners()
        mask, values = confidence.argmax(np.broadcast_to(corners, (n, *corners.shape)))
        return Optimum(values, None, corners[mask.argmax(axis=1)], values > -np.inf)
    found = Optimum(np.full(n, -np.inf), None, np.zeros((n, box.dim)), np.zeros(n, dtype=bool))
    full = np.ones(n, dtype=bool) if isinstance(confidence, Ellipsoid) else ~confidence.is_empty()
    if full.any() and found.points is not None:
        found.values[full], found.points[full] = _alternate(box, confidence[full])
    return found


def _over_ellipsoid(region: Ellipsoid, confidence: Ellipsoid) -> Optimum:
    """Over an ellipsoid: by the trust region where it is certified; otherwise by alternation."""
    values, points, bound = _by_trust_region(region, confidence)
    unproven = ~_proven(values, bound)
    if unproven.any():
        other, elsewhere = _alternate(region, confidence)
        better = unproven & (other > values)
        values, points = np.where(better, other, values), np.where(better[:, None], elsewhere, points)
    return Optimum(values, None, points, _proven(values, bound))


def _over_intersection(region: Ellipsoid, confidence: Intersection) -> Optimum:
    """The optimum over the first ellipsoid, if it is certified and lies in the second; otherwise by alternation."""
    found = _over_ellipsoid(region, confidence.first)
    assert found.points is not None
    parameters = confidence.first.support(found.points[:, None, :]).points
    settled = found.certified & (confidence.second.distance(parameters)[:, 0] <= 1.0)
    rest = np.flatnonzero(~settled)
    if rest.size:
        part = confidence[rest]
        empty = part.is_empty()
        found.values[rest[empty]], found.certified[rest[empty]] = -np.inf, False
        rest, part = rest[~empty], part[~empty]
    if rest.size:
        values, points = _alternate(region, part)
        found.values[rest], found.points[rest] = values, points
        bound = _by_trust_region(region, part.touching(points))[2]  # over the E_ρ that touches the optimum found
        found.certified[rest] = _proven(values, bound)
    return found


def _proven(values: Floats, bound: Floats) -> Bools:
    return bound <= values + CERTIFIED * np.abs(values)


def _by_trust_region(region: Ellipsoid, confidence: Ellipsoid) -> tuple[Floats, Floats, Floats]:
    """An optimum over {c + M y : ‖y‖ ≤ 1} and a proven upper bound, which is tight except in degenerate cases.

    Over the action, the maximum is ⟨c, μ⟩ + ‖Mᵀμ‖ ≤ ⟨c, μ⟩ + (‖Mᵀμ‖²/κ + κ)/2 for every κ > 0, and the right side is a
    trust-region problem over μ, solved globally. The bound is convex in κ and least where κ = ‖Mᵀμ‖ at its
    maximiser: there it is attained. Around zero (c = 0), any κ will do.
    """
    reach, axes = region.radius * region.root, confidence.radius[:, None, None] * confidence.root
    image, start = np.swapaxes(reach, -1, -2) @ axes, np.vecmat(confidence.center, reach)  # Mᵀμ = start + image x
    eigenvalues, basis = np.linalg.eigh(np.swapaxes(image, -1, -2) @ image)
    pull, drift = np.vecmat(np.vecmat(start, image), basis), np.vecmat(np.vecmat(region.center, axes), basis)
    low = np.zeros(len(start))
    high = np.linalg.norm(start, axis=-1) + np.sqrt(np.maximum(eigenvalues[:, -1], 0.0))
    kappa, active = high, np.ones(len(start), dtype=bool)
    for step in range(_STEPS):
        safe = np.where(kappa > 0, kappa, 1.0)[:, None]
        x = np.matvec(basis, maximise_diagonal(eigenvalues / safe, pull / safe + drift))
        end = start + np.matvec(image, x)
        length = np.linalg.norm(end, axis=-1)
        active &= (np.abs(length - kappa) > _CLOSE * high) & (high - low > _CLOSE * _CLOSE * high)
        if not active.any() or not region.center.any():
            break
        low, high = np.where(length > kappa, kappa, low), np.where(length > kappa, high, kappa)
        inside = (length > low) & (length < high) & (step % 3 < 2)  # every third step bisects
        kappa = np.where(active, np.where(inside, length, 0.5 * (low + high)), kappa)
    along = np.vecdot(confidence.center + np.matvec(axes, x), region.center)
    kappa = np.where((kappa > 0) & region.center.any(), kappa, np.where(length > 0, length, 1.0))
    ahead = np.where(length[:, None] > 0, end, np.eye(region.dim)[0])  # where all directions are alike, any one
    points = region.center + np.matvec(reach, ahead / np.where(length > 0, length, 1.0)[:, None])
    return along + length, points, along + 0.5 * (length**2 / kappa + kappa) * (length > 0)


def _alternate(region: Region, confidence: Ellipsoid | Intersection) -> tuple[Floats, Floats]:
    """The best local optimum from many starts, (n,) and (n, d)."""
    first = _first(confidence)
    axes = np.swapaxes(np.linalg.svd(first.root)[0], -1, -2)
    random = np.broadcast_to(_random_starts(region.dim), (len(axes), _STARTS, region.dim))
    starts = np.concatenate([first.center[:, None, :], axes, -axes, random], axis=1)
    values, actions = _climb(region, confidence, region.support(starts).points, _STEPS)
    best = np.argsort(-values, axis=1, kind="stable")[:, :_FINALISTS, None]
    finalists = np.take_along_axis(actions, best, axis=1)
    if isinstance(region, Box):
        values, actions = _flip(region, confidence, finalists)
    else:
        values, actions = _climb(region, confidence, finalists[:, :1], 10 * _STEPS)
    winner = np.arange(len(values)), values.argmax(axis=1)
    return values[winner], actions[winner]


def _climb(region: Region, confidence: Ellipsoid | Intersection, actions: Floats, steps: int) -> tuple[Floats, Floats]:
    """Climb from actions (n, s, d) by maximising over the parameter and the action in turn.

    Such steps never lose but can be short. So each goes further in the same direction, by more as long as it gains.
    """
    values, parameters = confidence.support(actions)
    previous, stretch = parameters, np.zeros(values.shape)
    live = np.ones(values.shape, dtype=bool)
    for _ in range(steps):
        ahead = region.support(parameters + stretch[..., None] * (parameters - previous)).points
        found = confidence.support(ahead)
        gained = live & (found.values > values + _STALLED * np.abs(values))
        live &= gained | (stretch > 0)  # stop where a plain step gains nothing
        if not live.any():
            break
        moved = gained[..., None]
        values, actions = np.where(gained, found.values, values), np.where(moved, ahead, actions)
        previous, parameters = np.where(moved, parameters, previous), np.where(moved, found.points, parameters)
        stretch = np.where(gained, 1.5 * stretch + 0.5, 0.0)
    return values, actions


def _flip(box: Box, confidence: Ellipsoid | Intersection, corners: Floats) -> tuple[Floats, Floats]:
    """Climb from corners (n, s, d) of a box by moving to the best neighbouring corner."""
    values = confidence.support(corners).values
    other = box.low + box.high
    for _ in range(_STEPS):
        n, s, d = corners.shape
        neighbours = np.broadcast_to(corners[:, :, None, :], (n, s, d, d)).copy()
        neighbours[..., np.arange(d), np.arange(d)] = other - corners
        heights = confidence.support(neighbours.reshape(n, s * d, d)).values.reshape(n, s, d)
        k = heights.argmax(axis=2)
        best = np.take_along_axis(heights, k[..., None], axis=2)[..., 0]
        gained = best > values + _STALLED * np.abs(values)
        if not gained.any():
            break
        chosen = np.take_along_axis(neighbours, k[..., None, None], axis=2)[:, :, 0]
        values, corners = np.where(gained, best, values), np.where(gained[..., None], chosen, corners)
    return values, corners


def _first(confidence: Ellipsoid | Intersection) -> Ellipsoid:
    return confidence if isinstance(confidence, Ellipsoid) else confidence.first


@cache
def _random_starts(dim: int) -> Floats:
    """Random directions, always the same ones: replaying a log must give the same search."""
    return np.random.default_rng(0).normal(size=(_STARTS, dim))
