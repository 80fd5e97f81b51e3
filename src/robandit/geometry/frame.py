"""Coordinates in which two ellipsoids are axis-parallel at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robandit.arrays import Bools, Floats, Index
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.secular import Blend, Peak, peak, secular

_CONDITION = 1e5  # ratio of the largest eigenvalue to the smallest up to which these keep ten digits
_CANCELLED = 1e7  # ratio of the terms that an eigenvalue is a sum of to the smallest eigenvalue, up to which it does


class _Axes(NamedTuple):
    """What singular values or eigenvalues say about n pairs."""

    scale: Floats
    shift: Floats
    axes: Floats
    axes2: Floats


class Sight(NamedTuple):
    """Directions a as seen from a frame. All are read at once, since BLAS may round one by one in another way."""

    along: Floats  # (n, k, d): ⟨a, μ − m₁⟩ = ⟨along, y⟩
    first: Floats  # ⟨a, m₁⟩ (n, k)
    second: Floats  # ⟨a, m₂⟩ (n, k)


class Peaks(NamedTuple):
    """The largest ⟨a, μ⟩ over some intersections, (m,), and where it is."""

    values: Floats  # −∞ where the intersection is empty
    peak: Peak
    narrower: Bools  # whether the first ellipsoid is the narrower one in this direction


@dataclass(frozen=True)
class Frame:
    """Coordinates in which both ellipsoids of a pair are axis-parallel.

    The first is ‖y‖ ≤ 1 in its coordinates y, the second ‖z‖ ≤ 1 with z = scale·y − shift.
    """

    center: Floats  # m₁ (n, d)
    center2: Floats  # m₂
    scale: Floats  # D (n, d) > 0
    shift: Floats  # e (n, d)
    axes: Floats  # (n, d, d): μ = m₁ + axes y
    axes2: Floats  # μ = m₂ + axes2 z

    @classmethod
    def of(cls, first: Ellipsoid, second: Ellipsoid) -> Frame:
        """The frame of each pair: by eigenvalues where they are accurate, by singular values elsewhere."""
        if second._precision is None:
            return cls(first.center, second.center, *_by_singular_values(first, second))
        found, trusted = _by_eigenvalues(first, second, second._precision)
        if not trusted.all():
            rows = np.flatnonzero(~trusted)
            for into, what in zip(found, _by_singular_values(first[rows], second[rows]), strict=True):
                into[rows] = what
        return cls(first.center, second.center, *found)

    def nearest(self) -> Floats:
        """The point y (n, d) of the second ellipsoid that is nearest to the first centre."""
        squared = self.scale**2
        rho = secular(self.shift / squared, 1.0 / squared)[:, None]
        return rho * self.scale * self.shift / (1.0 + rho * squared)

    def sight(self, directions: Floats) -> Sight:
        """Directions (n, k, d) in these coordinates."""
        centers = np.matvec(directions, self.center), np.matvec(directions, self.center2)
        return Sight(directions @ self.axes, *centers)

    def peaks(
        self,
        sight: Sight,
        rows: Index,
        places: Index,
        least: Floats | None = None,
        log_rho: Floats | None = None,
    ) -> Peaks:
        """The largest values in some of these directions, given by their rows and places (m,).

        Where a value turns out to be below ``least`` (m,), an upper bound that is below it, too, is enough. The search
        for each starts at ``log_rho`` (m,).
        """
        along, scale = sight.along[rows, places], self.scale[rows]
        size = np.abs(along).max(axis=1)
        units = np.where(size > 0, size, 1.0)
        g = np.where(size[:, None] > 0, along / units[:, None], 1.0)  # a zero direction: any point will do
        first, second = sight.first[rows, places], sight.second[rows, places]
        enough = None if least is None else np.where(size > 0, (least - first) / units, -np.inf)
        found = peak(scale, self.shift[rows], g, enough, log_rho)
        # Read the value off the ellipsoid that is narrower in this direction: rounding scales with its width.
        across = along / scale
        narrower = np.vecdot(along, along) <= np.vecdot(across, across)
        values = np.where(narrower, first + np.vecdot(along, found.y), second + np.vecdot(across, found.z))
        return Peaks(np.where(found.empty, -np.inf, values), found, narrower)

    def points(self, peaks: Peaks, rows: Index) -> Floats:
        """Where the largest values are attained, (m, d); NaN where the intersection is empty."""
        in_first = self.center[rows] + np.matvec(self.axes[rows], peaks.peak.y)
        in_second = self.center2[rows] + np.matvec(self.axes2[rows], peaks.peak.z)
        points = np.where(peaks.narrower[:, None], in_first, in_second)
        points[peaks.peak.empty] = np.nan
        return points

    def bounds(self, sight: Sight, rows: Index, log_rho: Floats) -> Floats:
        """Support values (m, k) of E_ρ in some rows, for one ρ each, (m,): they bound the intersection's from above."""
        blend = Blend(self.scale[rows, None, :], self.shift[rows, None, :], log_rho[:, None])
        return sight.first[rows] + blend.values(sight.along[rows])


def _by_eigenvalues(first: Ellipsoid, second: Ellipsoid, precision: Floats) -> tuple[_Axes, Bools]:
    """The axes from the eigenvalues of S₁ᵀΣ₂S₁, the squares of the scale, and for which pairs they are accurate."""
    half, r2 = first.radius[:, None, None] * first.root, second.radius
    product = precision @ half
    values, vectors = np.linalg.eigh(np.swapaxes(half, 1, 2) @ product)
    flat, wide = half.reshape(len(half), -1), precision.reshape(len(half), -1)
    size = np.vecdot(flat, flat) * np.sqrt(np.vecdot(wide, wide))
    trusted = (values[:, -1] <= _CONDITION * values[:, 0]) & (size <= _CANCELLED * values[:, 0])
    scale = np.sqrt(np.maximum(values, np.finfo(float).tiny)) / r2[:, None]
    pull = np.vecmat(second.center - first.center, product) / r2[:, None] ** 2
    axes = half @ vectors
    return _Axes(scale, np.vecmat(pull, vectors) / scale, axes, axes / scale[:, None, :]), trusted


def _by_singular_values(first: Ellipsoid, second: Ellipsoid) -> _Axes:
    """The axes from the singular values of S₂⁻¹S₁: twice as many digits as by eigenvalues, in twice the time."""
    r1, r2 = first.radius[:, None, None], second.radius[:, None, None]
    stacked = np.concatenate([r1 * first.root, (second.center - first.center)[:, :, None]], axis=2)
    solved = np.linalg.solve(second.root, stacked) / r2
    left, scale, right = np.linalg.svd(solved[:, :, :-1])
    axes = r1 * first.root @ np.swapaxes(right, 1, 2)
    return _Axes(scale, np.vecmat(solved[:, :, -1], left), axes, r2 * second.root @ left)
