"""Kernels that solve the equations in one variable behind intersections and trust regions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robandit.arrays import Bools, Floats

ITERATIONS = 100  # far more than any root needs: Newton's method takes about six, bisection sixty
CONVERGED = 1e-11  # |q₁ − q₂| at the root; the dual is flat there, so its error is about the square of this
LEAP = 8.0  # largest factor between one ρ and the next: too far out, nothing but rounding is left of the slope


class Blend:
    """E_ρ in the frame's coordinates, as {(1−τ)‖y‖² + τ‖z‖² ≤ 1} with log ρ = log τ/(1−τ) from −∞ to ∞."""

    def __init__(self, scale: Floats, shift: Floats, log_rho: Floats) -> None:
        one, two = _shares(log_rho)
        self.precision = one[..., None] + two[..., None] * scale**2
        self.y = two[..., None] * scale * shift / self.precision  # the centre
        slack = 1.0 - one * two * (shift**2 / self.precision).sum(axis=-1)
        self.slack = np.maximum(slack, 0.0)  # radius²; negative only if the intersection is empty

    def values(self, g: Floats) -> Floats:
        """Support values relative to the first centre."""
        return np.vecdot(g, self.y) + np.sqrt(self.slack * (g**2 / self.precision).sum(axis=-1))


def _shares(log_rho: Floats) -> tuple[Floats, Floats]:
    """1 − τ and τ, without cancellation at either end."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(log_rho)), 1.0 / (1.0 + np.exp(-log_rho))


class Peak(NamedTuple):
    """Where a linear function is largest over the intersection of two ellipsoids, in the frame's coordinates."""

    y: Floats  # (n, d)
    z: Floats  # (n, d)
    log_rho: Floats  # (n,): the E_ρ that touches there; −∞ or ∞ if one ellipsoid does
    empty: Bools  # (n,): whether the intersection is empty


def peak(scale: Floats, shift: Floats, g: Floats, least: Floats | None = None, log_rho: Floats | None = None) -> Peak:
    """Where ⟨g, y⟩ is largest subject to ‖y‖ ≤ 1 and ‖scale·y − shift‖ ≤ 1: all (n, d), each row on its own.

    If the maximiser over one ellipsoid lies in the other, that is it; otherwise `_balance` finds it, starting at
    ``log_rho`` (n,). Where the largest ⟨g, y⟩ is below ``least`` (n,), it may stop at an upper bound that is below it.
    """
    y1, across = g / np.sqrt(np.vecdot(g, g))[:, None], g / scale
    z2 = across / np.sqrt(np.vecdot(across, across))[:, None]
    z1, y2 = scale * y1 - shift, (z2 + shift) / scale
    out1, out2 = np.vecdot(z1, z1) - 1.0, np.vecdot(y2, y2) - 1.0
    first = out1 <= 0.0
    ends = first | (out2 <= 0.0)
    least = np.full(len(g), -np.inf) if least is None else least
    rho = np.ones(len(g)) if log_rho is None else np.exp(np.where(np.isfinite(log_rho), log_rho, 0.0))
    with np.errstate(all="ignore"):
        if not ends.any():
            return _balance(scale, shift, g, (out1, out2, least, rho))
        wide = first[:, None]
        found = Peak(np.where(wide, y1, y2), np.where(wide, z1, z2), np.where(first, -np.inf, np.inf), ~ends)
        rest = np.flatnonzero(~ends)
        if rest.size:
            rows = out1[rest], out2[rest], least[rest], rho[rest]
            for into, what in zip(found, _balance(scale[rest], shift[rest], g[rest], rows), strict=True):
                into[rest] = what
        return found


def _balance(scale: Floats, shift: Floats, g: Floats, rows: tuple[Floats, Floats, Floats, Floats]) -> Peak:
    """The maximiser over the E_ρ at which it has q₁ = q₂, or over one that shows that ⟨g, y⟩ stays below ``least``.

    ``rows`` are out1, out2, least and the ρ to start at; the gap q₁ − q₂ goes from −out1 at ρ = 0 to out2 at ρ = ∞.
    """
    out1, out2, least, rho = rows
    d2, pull, load, reach, pace = scale * scale, scale * shift, shift * shift, g * g, scale * g
    tilt, low, high = reach * d2, np.zeros(len(g)), np.full(len(g), np.inf)
    for _ in range(ITERATIONS):
        inverse = 1.0 / (1.0 + rho[:, None] * d2)
        slack, width = 1.0 + rho - rho * np.vecdot(load, inverse), np.vecdot(reach, inverse)
        step = np.sqrt(slack / width)  # NaN where E_ρ is empty
        y = (rho[:, None] * pull + step[:, None] * g) * inverse
        z = (step[:, None] * pace - shift) * inverse
        gap = np.vecdot(y, y) - np.vecdot(z, z)
        moving = (np.abs(gap) > CONVERGED) & (np.vecdot(g, y) >= least)  # not where they are NaN
        if not moving.any():
            break
        twice, dz = inverse * inverse, scale * z
        growth = (1.0 - np.vecdot(load, twice)) / slack + np.vecdot(tilt, twice) / width  # 2 d log step / dρ
        slope = np.vecdot(y - dz, ((step * growth)[:, None] * g - 2.0 * dz) * inverse)  # of the gap
        below = gap < 0.0
        low, high = np.where(below, rho, low), np.where(below, high, rho)
        newton = rho * np.exp(-_log_step(gap, slope * rho, 1.5 * out1, out2))
        wanted = np.where((newton > low) & (newton < high), newton, np.sqrt(low * high))
        rho = np.where(moving, np.minimum(np.maximum(wanted, rho / LEAP), rho * LEAP), rho)
    return Peak(y, z, np.log(rho), slack < 0.0)


def _log_step(gap: Floats, slope: Floats, under: Floats, over: Floats) -> Floats:
    """Newton's step in log ρ towards a gap of 0, given its slope in log ρ.

    The gap rises from −under to over, about as fast as ρ at first and as 1/ρ at last. So
    log((gap + under)/(over − gap)) is nearly linear in log ρ, and a few steps lead to the root from anywhere. Since the
    gap may fall a little at first, ``under`` should leave a margin.
    """
    up, down = gap + under, over - gap
    return np.log(up / down * (over / under)) * up * down / (slope * (under + over))


def secular(c: Floats, p: Floats) -> Floats:
    """The ρ ≥ 0 with Σ_i (c_i/(ρ + p_i))² = 1, or 0 if the sum is below 1 there: c and p ≥ 0 (n, d) to (n,).

    1/√sum is concave in ρ, so Newton's method climbs to the root from the left without overshooting.
    """
    rho = np.maximum((np.abs(c) - p).max(axis=-1), 0.0)
    active = np.ones(rho.shape, dtype=bool)
    for _ in range(ITERATIONS):
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
