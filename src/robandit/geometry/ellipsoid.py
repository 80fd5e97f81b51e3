"""The ellipsoid, as a confidence set or a decision set."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from robandit.arrays import ALL, Bools, Floats, Index, Rows, count_to
from robandit.geometry.large_sets import LARGE, WidthBounds, best_of_many
from robandit.geometry.ridge import Ridge
from robandit.geometry.secular import maximise_in_ball

TIE = 1e-12
"""Values that differ by less, relative to their size and the set's half-width, count as equal: it is rounding."""


_WORTH_BOUNDS = 64  # features from which on the compiled kernel, too, gains by `large_sets`


class Support(NamedTuple):
    """The largest ⟨a, x⟩ over a set for each direction a, and a point x that attains it."""

    values: Floats  # (..., K)
    points: Floats  # (..., K, d)


class Ellipsoid:
    """The set {x : (x − center)ᵀ precision (x − center) ≤ radius²}, or a batch of such sets.

    Shapes: ``center`` (..., d), ``precision`` (..., d, d), ``radius`` (...).

    >>> ellipse = Ellipsoid(center=[0, 0], precision=[[1, 0], [0, 4]], radius=1)
    >>> ellipse.support([[1, 0], [0, 1]]).values.tolist()
    [1.0, 0.5]
    """

    center: Floats
    root: Floats
    radius: Floats
    _precision: Floats | None
    _bounds: WidthBounds | None = None  # of a regression that it is around, to search large sets by
    _kernel: Any = None  # the compiled kernel, if that computes

    def __init__(self, center: ArrayLike, precision: ArrayLike, radius: ArrayLike) -> None:
        self.center = _finite("center", center)
        self._precision = _finite("precision", precision)
        self.radius = _finite("radius", radius)
        _check_shapes(self.center, self._precision, self.radius)
        if np.any(self.radius < 0):
            raise ValueError(f"radius must be >= 0, got {self.radius.min()}")
        try:
            lower = np.linalg.cholesky(self._precision)
        except np.linalg.LinAlgError:
            smallest = np.linalg.eigvalsh(self._precision).min()
            raise ValueError(
                f"precision must be positive definite, but its smallest eigenvalue is {smallest}"
            ) from None
        self.root = np.linalg.inv(np.swapaxes(lower, -1, -2))  # Σ = LLᵀ, S = L⁻ᵀ

    @classmethod
    def from_root(
        cls,
        center: Floats,
        root: Floats,
        radius: Floats | float,
        precision: Floats | None = None,
        of: Ridge | None = None,
    ) -> Ellipsoid:
        """Make an ellipsoid from S with S Sᵀ = precision⁻¹, unchecked. A known ``precision`` saves a solve.

        ``of`` is the regression that S belongs to, all of it; it says by which kernel and bounds to search.
        """
        made = object.__new__(Ellipsoid)
        made.center, made.root, made.radius, made._precision = center, root, np.asarray(radius), precision
        if of is not None:
            made._bounds, made._kernel = of.bounds, of.kernel
        return made

    @classmethod
    def around(cls, ridge: Ridge, radius: Floats, rows: Rows = ALL) -> Ellipsoid:
        """The confidence ellipsoids {μ : ‖μ − μ_t‖_{Σ_t} ≤ radius} of some rows of a regression."""
        if rows is ALL:
            return cls.from_root(ridge.mean, ridge.root, radius, ridge.precision, ridge)
        precision = None if ridge.precision is None else ridge.precision[rows]
        made = cls.from_root(ridge.mean[rows], ridge.root[rows], radius, precision)
        made._kernel = ridge.kernel
        return made

    @property
    def dim(self) -> int:
        """The dimension d."""
        return self.center.shape[-1]

    @property
    def precision(self) -> Floats:
        """The precision matrix, (..., d, d); it is computed when first asked for."""
        if self._precision is None:
            inverse = np.linalg.inv(self.root)
            self._precision = np.swapaxes(inverse, -1, -2) @ inverse
        return self._precision

    def __getitem__(self, rows: Any) -> Ellipsoid:
        """A part of the batch."""
        known = None if self._precision is None else self._precision[rows]
        part = Ellipsoid.from_root(self.center[rows], self.root[rows], self.radius[rows], known)
        part._kernel = self._kernel
        return part

    def _stored(self) -> tuple[Index, Floats, Floats, Floats | None]:
        """Where the compiled kernel finds this batch: rows of arrays of centres, roots and, if known, precisions."""
        return count_to(len(self.center)), self.center, self.root, self._precision

    def support(self, directions: ArrayLike) -> Support:
        """The largest ⟨a, x⟩ and a point that attains it, for directions (..., K, d); for a zero one, the centre."""
        return self._support(self._read("directions", directions))

    def _support(self, directions: Floats) -> Support:
        along = directions @ self.root  # rows Sᵀa
        widths = np.sqrt(np.vecdot(along, along))
        step = self.radius[..., None] / np.where(widths > 0, widths, 1.0)
        points = self.center[..., None, :] + step[..., None] * np.matvec(self.root[..., None, :, :], along)
        return Support(np.matvec(directions, self.center) + self.radius[..., None] * widths, points)

    def argmax(self, directions: Floats) -> tuple[Bools, Floats]:
        """Which directions (B, K, d) have the largest support value, (B, K), and that value, (B,), for B ellipsoids."""
        index, best, ties = self.best(directions)
        return np.arange(directions.shape[1]) == index[:, None] if ties is None else ties, best

    def best(self, directions: Floats) -> tuple[Index, Floats, Bools | None]:
        """One direction of the largest support value, (B,), that value, (B,), and all of them, (B, K), if some tie."""
        if self._kernel is not None and (directions[0].size < LARGE or self.dim < _WORTH_BOUNDS):
            return self._best_compiled(directions)
        if directions[0].size >= LARGE and self.radius.any():
            known = self._bounds or WidthBounds()
            return best_of_many(directions, self.center, self.root, self.radius, TIE, known)
        if len(directions) == 1:
            return self._best_of_one(directions[0])
        index, best, ties = leading(*self._heights(directions))
        return index, best, None if np.count_nonzero(ties) == len(index) else ties

    def _best_compiled(self, directions: Floats) -> tuple[Index, Floats, Bools | None]:
        """Do the same, up to rounding, by the compiled kernel."""
        along = directions @ self.root if len(directions) > 1 else directions[0].dot(self.root[0])[None]
        index, best = np.empty(len(along), np.intp), np.empty(len(along))
        center, radius = np.ascontiguousarray(self.center), np.ascontiguousarray(self.radius)
        if not self._kernel.leading(one_set(directions), along, center, radius, TIE, index, best):
            return index, best, None
        return index, best, leading(*self._heights(directions))[2]

    def _best_of_one(self, directions: Floats) -> tuple[Index, Floats, Bools | None]:
        """Do the same, bit for bit, for a batch of one, as a live service has: batched calls take twice the time."""
        values, radius = directions.dot(self.center[0]), self.radius.item()
        half_widths = None
        if radius:
            along = directions.dot(self.root[0])
            half_widths = np.sqrt(np.vecdot(along, along))
            half_widths *= radius
            values += half_widths
        index = values.argmax(keepdims=True)
        k = index.item()
        best = values.item(k)
        least = best - TIE * ((0.0 if half_widths is None else half_widths.item(k)) + abs(best))
        values[k] = -np.inf
        if values.item(values.argmax()) < least:
            return index, np.array([best]), None
        values[k] = best
        return index, np.array([best]), (values >= least)[None]

    def distance(self, points: ArrayLike) -> Floats:
        """√((x−c)ᵀ precision (x−c)) / radius for points (..., K, d): at most 1 inside."""
        return self._distance(self._read("points", points))

    def _distance(self, points: Floats) -> Floats:
        offsets = points - self.center[..., None, :]
        if self._precision is None:
            inner = np.swapaxes(np.linalg.solve(self.root, np.swapaxes(offsets, -1, -2)), -1, -2)
            squares = np.vecdot(inner, inner)
        else:
            squares = np.maximum(np.vecdot(offsets @ self._precision, offsets), 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.sqrt(squares) / self.radius[..., None]

    def _heights(self, directions: Floats) -> tuple[Floats, Floats]:
        """Support values and half-widths (..., K) in directions (..., K, d), unchecked."""
        if not self.radius.any():  # points, for which no width is needed
            means = np.matvec(directions, self.center)
            return means, np.zeros(means.shape)
        along = directions @ self.root
        half_widths = np.vecdot(along, along)
        np.sqrt(half_widths, out=half_widths)
        half_widths *= self.radius[..., None]
        return np.matvec(directions, self.center) + half_widths, half_widths

    def _read(self, name: str, vectors: ArrayLike) -> Floats:
        array = np.asarray(vectors, dtype=float)
        batch = self.center.shape[:-1]
        if array.ndim < 2 or array.shape[-1] != self.dim or (batch and array.shape[:-2] != batch):
            raise ValueError(f"{name} must be {(*batch, 'K', self.dim)}, got {array.shape}".replace("'", ""))
        if not np.isfinite(array).all():
            raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
        return array

    def farthest(self) -> Support:
        """The largest Euclidean norm over the set and a point that attains it, as a support with K = 1."""
        axes = self.radius[..., None, None] * self.root
        x = maximise_in_ball(np.swapaxes(axes, -1, -2) @ axes, np.vecmat(self.center, axes))
        points = (self.center + np.matvec(axes, x))[..., None, :]
        return Support(np.linalg.norm(points, axis=-1), points)


def one_set(directions: Floats) -> Floats:
    """Directions (B, K, d) for the compiled kernel: (1, K, d) if all trials have the same ones."""
    return np.ascontiguousarray(directions if directions.strides[0] or not len(directions) else directions[:1])


def leading(values: Floats, half_widths: Floats) -> tuple[Index, Floats, Bools]:
    """The place of the largest of K support values, (B,), that value, and which equal it up to rounding, (B, K)."""
    index = values.argmax(axis=1)
    at = count_to(len(values)), index
    best = values[at]
    return index, best, values >= (best - TIE * (half_widths[at] + np.abs(best)))[:, None]


def _finite(name: str, value: ArrayLike) -> Floats:
    array = np.array(value, dtype=float)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite, got {array[~np.isfinite(array)][0]}")
    return array


def _check_shapes(center: Floats, precision: Floats, radius: Floats) -> None:
    batch, dim = center.shape[:-1], center.shape[-1:]
    if dim < (1,) or precision.shape != batch + dim + dim or radius.shape != batch:
        raise ValueError(
            f"center (..., d), precision (..., d, d) and radius (...) must fit together, "
            f"got {center.shape}, {precision.shape} and {radius.shape}"
        )
    uneven = np.abs(precision - np.swapaxes(precision, -1, -2))
    if uneven.max() > 1e-8 * np.abs(precision).max():
        raise ValueError(f"precision must be symmetric, but differs from its transpose by {uneven.max():g}")


class EllipsoidsOfRows(Ellipsoid):
    """`Ellipsoid.around` some rows, where each statistic is copied when it is first asked for.

    Use it before the regression learns again.
    """

    def __init__(self, ridge: Ridge, radius: Floats, rows: Index) -> None:
        self._ridge, self.radius, self._rows, self._kernel = ridge, radius, rows, ridge.kernel

    def __getattr__(self, name: str) -> Floats | None:
        if name not in ("center", "root", "_precision"):
            raise AttributeError(name)
        held: Floats | None = getattr(self._ridge, {"center": "mean", "_precision": "precision"}.get(name, name))
        setattr(self, name, None if held is None else held[self._rows])
        return self.__dict__[name]

    def __getitem__(self, rows: Any) -> Ellipsoid:
        return Ellipsoid.around(self._ridge, self.radius[rows], self._rows[rows])

    def _stored(self) -> tuple[Index, Floats, Floats, Floats | None]:
        return self._rows, self._ridge.mean, self._ridge.root, self._ridge.precision
