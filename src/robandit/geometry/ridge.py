"""Weighted ridge regression, kept as a square root of the inverse precision."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import ALL, Floats, Index, Rows, count_to
from robandit.geometry.kernel import load_kernel
from robandit.geometry.large_sets import WidthBounds


class Ridge:
    """The statistics of ``n`` independent weighted ridge regressions.

    Row i minimises λ‖μ‖² + Σ_t w_t (⟨a_t, μ⟩ − r_t)² (eq. global:mu, with w = 1/σ̄²). It is held as

    * ``root`` S (n, d, d), with S Sᵀ = Σ⁻¹ and Σ = λI + Σ_t w_t a_t a_tᵀ; not triangular,
    * ``mean`` μ (n, d),
    * ``log_det`` log det Σ (n,),
    * ``precision`` Σ itself (n, d, d), only if ‖·‖_Σ is needed every round; ``None`` otherwise.

    >>> import numpy as np
    >>> ridge = Ridge(rows=1, dim=2, regularization=1.0)
    >>> ridge.update(np.array([[1.0, 0.0]]), np.array([0.5]), np.array([3.0]))
    >>> ridge.mean[0].round(6).tolist()  # 3 * 0.5 / (1 + 3)
    [0.375, 0.0]
    """

    def __init__(
        self,
        *,
        rows: int,
        dim: int,
        regularization: float | Floats,
        keep_precision: bool = False,
        kernel: str = "numpy",
    ) -> None:
        self.kernel = load_kernel(kernel)
        self._lambda: Floats = np.broadcast_to(regularization, rows)  # one for all rows, or (n,)
        self.root: Floats = np.zeros((rows, dim, dim))
        self.mean: Floats = np.empty((rows, dim))
        self.log_det: Floats = np.empty(rows)
        self.precision: Floats | None = np.empty((rows, dim, dim)) if keep_precision else None
        self.bounds = WidthBounds()  # no part of the statistics: it only saves work
        self.reset(ALL)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All statistics by name."""
        held: dict[str, NDArray[Any]] = {"root": self.root, "mean": self.mean, "log_det": self.log_det}
        return held if self.precision is None else {**held, "precision": self.precision}

    def along(self, actions: Floats, rows: Rows = ALL) -> Floats:
        """Sᵀa of one action (m, d) for each of the rows, (m, d)."""
        return np.vecmat(actions, self.root[rows])

    def widths(self, actions: Floats, rows: Rows = ALL) -> Floats:
        """‖a‖_{Σ⁻¹} of one action (m, d) for each of the rows, (m,)."""
        v = self.along(actions, rows)
        return np.sqrt(np.vecdot(v, v))

    def reset(self, rows: Rows) -> None:
        """Return these rows to the state before any observation."""
        dim, lam = self.mean.shape[1], self._lambda[rows]
        self.bounds.forget()
        self.root[rows] = self.mean[rows] = 0.0
        self.root.reshape(-1, dim * dim)[rows, :: dim + 1] = 1.0 / np.sqrt(lam)[:, None]  # the diagonal of I/√λ
        self.log_det[rows] = dim * np.log(lam)
        if self.precision is not None:
            self.precision[rows] = np.eye(dim) * lam[:, None, None]

    def update(
        self, actions: Floats, rewards: Floats, weights: Floats, rows: Rows = ALL, along: Floats | None = None
    ) -> None:
        """Fold one observation into each of the distinct ``rows``: actions (m, d), rewards and weights (m,).

        Potter's square-root update. It keeps widths ‖Sᵀa‖ accurate when one arm is replayed for a million
        rounds, where updating Σ⁻¹ itself loses them. A weight of zero changes nothing. A known `along` saves time.
        """
        if not isinstance(rows, slice):
            self.bounds.forget()
        if self.kernel is not None:
            self._update_compiled(actions, rewards, weights, rows)
        elif len(weights) == 1:
            row = 0 if isinstance(rows, slice) else int(rows[0])
            v = None if along is None else along[0]
            self._update_one(row, actions[0], rewards.item(), weights.item(), v)
        else:
            self._update_many(actions, rewards, weights, rows, along)

    def _update_many(self, actions: Floats, rewards: Floats, weights: Floats, rows: Rows, along: Floats | None) -> None:
        root, mean = self.root[rows], self.mean[rows]  # views for a slice, copies for an index
        v = np.vecmat(actions, root) if along is None else along  # Sᵀa (m, d)
        gain = np.matvec(root, v)  # Σ⁻¹a (m, d)
        c = 1.0 + weights * np.vecdot(v, v)
        residual = rewards - np.vecdot(actions, mean)
        root -= np.einsum("mi,mj->mij", (weights / (c + np.sqrt(c)))[:, None] * gain, v)
        share = weights / c
        mean += (share * residual)[:, None] * gain
        self.bounds.shrink(gain, share)
        if not isinstance(rows, slice):
            self.root[rows], self.mean[rows] = root, mean
        self.log_det[rows] += np.log(c)
        if self.precision is not None:
            self.precision[rows] += np.einsum("mi,mj->mij", weights[:, None] * actions, actions)

    def refit(self, rows: Index, precision: Floats, target: Floats) -> None:
        """Make these rows (m,) the regressions with Σ = ``precision`` (m, d, d) and Σ μ = ``target`` (m, d)."""
        lower = np.linalg.cholesky(precision)
        root = np.linalg.inv(np.swapaxes(lower, -1, -2))
        self.bounds.forget()
        self.root[rows] = root
        self.mean[rows] = np.matvec(root, np.vecmat(target, root))
        self.log_det[rows] = 2.0 * np.log(np.diagonal(lower, axis1=-2, axis2=-1)).sum(axis=-1)
        if self.precision is not None:
            self.precision[rows] = precision

    def _update_compiled(self, actions: Floats, rewards: Floats, weights: Floats, rows: Rows) -> None:
        """Do the same, up to rounding, by the compiled kernel."""
        kept = self.root[:0] if self.precision is None else self.precision
        gain, share = np.empty(actions.shape), np.empty(len(weights))
        seen = np.ascontiguousarray(actions), np.ascontiguousarray(rewards), np.ascontiguousarray(weights)
        every = count_to(len(self.mean)) if isinstance(rows, slice) else rows
        self.kernel.update(self.root, self.mean, self.log_det, kept, every, *seen, gain, share)
        if self.bounds.kept:
            self.bounds.shrink(gain, share)

    def _update_one(self, row: int, action: Floats, reward: float, weight: float, along: Floats | None) -> None:
        """Do the same, bit for bit, for one row, as a live service has: batched calls would take twice the time."""
        root, mean = self.root[row], self.mean[row]
        v = action.dot(root) if along is None else along
        gain = root.dot(v)
        c = 1.0 + weight * float(v.dot(v))
        residual = reward - float(action.dot(mean))
        root -= (weight / (c + sqrt(c)) * gain)[:, None].dot(v[None])  # the outer product, at half the time
        mean += weight / c * residual * gain
        if self.bounds.kept:
            self.bounds.shrink(gain[None], np.array([weight / c]))
        self.log_det[row] += np.log(c)
        if self.precision is not None:
            self.precision[row] += (weight * action)[:, None] * action
