"""Kernels that solve the equations in one variable behind intersections and trust regions."""

from __future__ import annotations

import numpy as np

from robandit.arrays import Bools, Floats

_ITERATIONS = 100  # far more than any root needs: Newton's method takes about six, bisection sixty
_CONVERGED = 1e-11  # |q₁ − q₂| at the root; the dual is flat there, so its error is about the square of this
_NEGLIGIBLE = 1e-17  # share of one ellipsoid in the blend that no longer counts


class Blend:
    """E_ρ in the frame's coordinates, as {(1−τ)‖y‖² + τ‖z‖² ≤ 1} with log ρ = log τ/(1−τ) from −∞ to ∞."""

    def __init__(self, scale: Floats, shift: Floats, log_rho: Floats) -> None:
        one, two = _shares(log_rho)
        self.scale = scale
        self.precision = one[..., None] + two[..., None] * scale**2
        self.y = two[..., None] * scale * shift / self.precision  # the centre
        self.z = -one[..., None] * shift / self.precision
        slack = 1.0 - one * two * (shift**2 / self.precision).sum(axis=-1)
        self.slack = np.maximum(slack, 0.0)  # radius²; negative only if the intersection is empty

    def values(self, g: Floats) -> Floats:
        """Support values relative to the first centre."""
        return np.vecdot(g, self.y) + np.sqrt(self.slack * (g**2 / self.precision).sum(axis=-1))

    def maximiser(self, g: Floats) -> tuple[Floats, Floats]:
        """The point at which ⟨g, y⟩ is largest, in both coordinates."""
        step = np.sqrt(self.slack / (g**2 / self.precision).sum(axis=-1))[..., None] * g / self.precision
        return self.y + step, self.z + self.scale * step


def _shares(log_rho: Floats) -> tuple[Floats, Floats]:
    """1 − τ and τ, without cancellation at either end."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(log_rho)), 1.0 / (1.0 + np.exp(-log_rho))


def dual(scale: Floats, shift: Floats, g: Floats) -> tuple[Floats, Bools]:
    """The log ρ at which E_ρ touches the intersection's maximum in direction g, and whether the intersection is empty.

    It is −∞ or ∞ if the maximiser over one ellipsoid lies in the other; in between, `_balance` finds it. Shapes: scale
    and shift (n, 1, d), g (n, k, d), the results (n, k).
    """
    across = g / scale
    z = scale * g / np.sqrt(np.vecdot(g, g))[..., None] - shift
    y = (across / np.sqrt(np.vecdot(across, across))[..., None] + shift) / scale
    log_rho = np.where(np.vecdot(z, z) <= 1.0, -np.inf, np.where(np.vecdot(y, y) <= 1.0, np.inf, 0.0))
    empty = np.zeros(log_rho.shape, dtype=bool)
    i, j = between = np.nonzero(log_rho == 0.0)
    if i.size:
        with np.errstate(all="ignore"):
            rho, empty[between] = _balance(scale[i, 0], shift[i, 0], g[i, j])
        log_rho[between] = np.log(rho)
    return log_rho, empty


def _balance(scale: Floats, shift: Floats, g: Floats) -> tuple[Floats, Bools]:
    """The ρ at which the maximiser of ⟨g, y⟩ over E_ρ has ‖y‖ = ‖z‖, or some ρ at which E_ρ is empty; all (m, d).

    ‖y‖² − ‖z‖² has the sign of the dual's derivative, so it rises through zero. Newton's method finds the zero in the
    variable ρ/(ρ + ρ₀), which stays useful at both ends; where it leaves the bracket, bisection of log ρ steps in.
    """
    d2, pull, load, reach = scale * scale, scale * shift, shift * shift, g * g
    tilt = reach * d2
    rho = start = reach.sum(axis=1) / tilt.sum(axis=1)  # ρ₀
    low, high = _NEGLIGIBLE / d2.max(axis=1), 1.0 / _NEGLIGIBLE / d2.min(axis=1)
    for _ in range(_ITERATIONS):
        wide = rho[:, None]
        inverse = 1.0 / (1.0 + wide * d2)
        slack, width = 1.0 + rho - rho * np.vecdot(load, inverse), np.vecdot(reach, inverse)
        step = np.sqrt(slack / width)  # NaN where E_ρ is empty
        y = (wide * pull + step[:, None] * g) * inverse
        z = scale * y - shift
        gap = np.vecdot(y, y) - np.vecdot(z, z)
        moving = np.abs(gap) > _CONVERGED  # not where it is NaN
        if not moving.any():
            break
        twice, dz = inverse * inverse, scale * z
        growth = (1.0 - np.vecdot(load, twice)) / slack + np.vecdot(tilt, twice) / width  # 2 d log step / dρ
        slope = np.vecdot(y - dz, ((step * growth)[:, None] * g - 2.0 * dz) * inverse)  # of the gap
        below = gap < 0.0
        low, high = np.where(below, rho, low), np.where(below, high, rho)
        move = gap / slope * (start / (start + rho))
        newton = (rho - move) / (1.0 + move / start)
        rho = np.where(moving, np.where((newton > low) & (newton < high), newton, np.sqrt(low * high)), rho)
    return rho, slack < 0.0


def secular(c: Floats, p: Floats) -> Floats:
    """The ρ ≥ 0 with Σ_i (c_i/(ρ + p_i))² = 1, or 0 if the sum is below 1 there: c and p ≥ 0 (n, d) to (n,).

    1/√sum is concave in ρ, so Newton's method climbs to the root from the left without overshooting.
    """
    rho = np.maximum((np.abs(c) - p).max(axis=-1), 0.0)
    active = np.ones(rho.shape, dtype=bool)
    for _ in range(_ITERATIONS):
        pole = rho[..., None] + p
        x = np.divide(c, pole, out=np.zeros_like(c), where=pole > 0)
        square = np.vecdot(x, x)
        curvature = (np.divide(x**2, pole, out=np.zeros_like(c), where=pole > 0)).sum(axis=-1)
        active &= square > 1.0
        if not active.any():
            break
        step = np.divide(square * (np.sqrt(square) - 1.0), curvature, out=np.zeros_like(rho), where=active)
        active &= rho + step > rho
        rho = rho + step
    return rho


def maximise_in_ball(quadratic: Floats, linear: Floats) -> Floats:
    """A maximiser of xᵀQx + 2⟨p, x⟩ over ‖x‖ ≤ 1, for Q ⪰ 0 (..., d, d) and p (..., d): the trust-region problem."""
    values, vectors = np.linalg.eigh(quadratic)
    return np.matvec(vectors, maximise_diagonal(values, np.vecmat(linear, vectors)))


def maximise_diagonal(values: Floats, c: Floats) -> Floats:
    """`maximise_in_ball` for Q = diag(values), with the values in rising order.

    x = (νI − Q)⁻¹c with ν ≥ λ_max solves it. In the hard case, where ν = λ_max leaves ‖x‖ < 1, the rest goes along
    the leading axis.
    """
    gap = values[..., -1:] - values
    above = secular(c, gap)  # ν − λ_max
    pole = above[..., None] + gap
    x = np.divide(c, pole, out=np.zeros_like(c), where=pole > 0)
    square = np.vecdot(x, x)
    hard = above == 0.0
    x[..., -1] = np.where(hard, np.sqrt(np.maximum(1.0 - square, 0.0)), x[..., -1])
    return x / np.where(hard, 1.0, np.sqrt(square))[..., None]
