"""The sum that μ makes least, and the dual values below its minimum: arrays in, arrays out."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robandit.arrays import TINY, Bools, Floats, Index

_JITTER = 1e-14  # added to the diagonal of a matrix that is scaled to have ones there
_ROUNDING = 1e-12  # amount by which a reported value is rounded down, relative to its summands
_FAINT, _NOTHING = 1e-6, 1e-13  # eigenvalues of a gram with ones on its diagonal: too weak to use; none at all
_BALANCINGS = 3  # how often Σ Aᵀu is taken away again; each time leaves the rounding of the one before


class Cones(NamedTuple):
    """Σ_g max_k [(‖y_gk − A_gk μ‖ − ρ_gk)/κ_gk]₊, for each of P problems with G groups, and K cones for each group."""

    matrix: Floats  # A (P, G, K, d, d)
    target: Floats  # y (P, G, K, d)
    radius: Floats  # ρ (P, G, K)
    slope: Floats  # κ (P, G, K)

    def residual(self, parameter: Floats) -> Floats:
        """y − Aμ, (P, G, K, d)."""
        return self.target - np.matvec(self.matrix, parameter[:, None, None])

    def terms(self, parameter: Floats) -> Floats:
        """The summands at μ (P, d), (P, G)."""
        most: Floats = ((norm(self.residual(parameter)) - self.radius) / self.slope).max(axis=2)
        return np.maximum(most, 0.0)

    def beside(self, other: Cones) -> Cones:
        """These cones and others of the same groups."""
        return Cones(*(np.concatenate(pair, axis=2) for pair in zip(self, other, strict=True)))

    def of(self, rows: Index) -> Cones:
        """Some of the problems."""
        return Cones(*(array[rows] for array in self))

    def dual(self, multipliers: Floats, bound: float | None) -> Floats:
        """Σ ⟨u, y⟩ − ρ‖u‖ − B‖Σ Aᵀu‖ at u (P, G, K, d) with Σ_k κ‖u‖ ≤ 1: below the minimum, whatever u is.

        Without a bound B, u is first brought to Σ Aᵀu = 0.
        """
        if bound is None:
            multipliers, slack = self._balanced(multipliers)
        else:
            slack = bound * norm(np.vecmat(multipliers, self.matrix).sum(axis=(1, 2)))
        gained = np.vecdot(multipliers, self.target)
        paid = self.radius * norm(multipliers)
        return (gained - paid - _ROUNDING * (np.abs(gained) + paid)).sum(axis=(1, 2)) - slack

    def _balanced(self, multipliers: Floats) -> tuple[Floats, Floats]:
        """Multipliers with Σ Aᵀu = 0 and Σ_k κ‖u‖ ≤ 1, and what their rounding may cost, (P,).

        Rounding leaves Σ Aᵀu = Σ Aᵀv with tiny v. The sum at μ exceeds any dual value once Σ ‖Aμ‖/κ is above
        (1 + K) Σ (‖y‖ + ρ)/κ, and for all other μ, ⟨Σ Aᵀv, μ⟩ is at most that times max κ‖v‖.
        """
        even, number = self.slope**-2.0, self.slope.shape[2]
        square = np.einsum("pgk,pgkij,pgkil->pjl", even, self.matrix, self.matrix, optimize=True)
        for _ in range(_BALANCINGS):
            multipliers = multipliers - self._pull(multipliers, square, even)
        most = (norm(multipliers) * self.slope).sum(axis=2).max(axis=1)
        multipliers = multipliers / np.maximum(1.0, most)[:, None, None, None]
        left = (norm(self._pull(multipliers, square, even)) * self.slope).max(axis=(1, 2))
        far = (1.0 + number) * ((norm(self.target) + self.radius) / self.slope).sum(axis=(1, 2))
        return multipliers, 2.0 * far * left

    def _pull(self, multipliers: Floats, square: Floats, even: Floats) -> Floats:
        """v with Σ Aᵀv = Σ Aᵀu and about the least max κ‖v‖, (P, G, K, d)."""
        pulled = solve(square, np.vecmat(multipliers, self.matrix).sum(axis=(1, 2)))
        return even[..., None] * np.matvec(self.matrix, pulled[:, None, None])


def has_faint(gram: Floats) -> Bools:
    """Whether some direction has hardly any features, but not none, for each of P sums V (P, d, d).

    A μ that is huge in such a direction explains much, and rounding hides it. Without a bound on μ nothing can be
    proved then. A direction that has none at all (two columns that are the same) does no harm. Columns that differ by
    less than 3·10⁻⁷ of their size look the same here; `audit`, which has the rows, tells them apart.
    """
    scale = 1.0 / np.sqrt(np.maximum(np.diagonal(gram, axis1=1, axis2=2), TINY))
    values = np.linalg.eigvalsh(gram * scale[:, :, None] * scale[:, None])
    faint: Bools = np.logical_or.reduce((values > _NOTHING) & (values < _FAINT), axis=1)
    return faint


def solve(matrix: Floats, right: Floats) -> Floats:
    """Solve Mx = y for positive definite M (P, d, d), which rounding may have made nearly singular, or indefinite."""
    scale = 1.0 / np.sqrt(np.maximum(np.abs(np.diagonal(matrix, axis1=1, axis2=2)), TINY))
    even = matrix * scale[:, :, None] * scale[:, None] + _JITTER * np.eye(matrix.shape[1])
    return scale * np.linalg.solve(even, (scale * right)[..., None])[..., 0]


def norm(vectors: Floats) -> Floats:
    """The Euclidean norms along the last axis."""
    return np.sqrt(np.vecdot(vectors, vectors))
