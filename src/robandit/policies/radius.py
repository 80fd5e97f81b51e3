"""Every confidence radius. Equations are cited by their labels in the paper's source."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial
from math import inf, log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from robandit.arrays import Floats, Ints

_CHUNK = 4096  # values of t tabulated at a time: it takes about as long as a round


class Setting(NamedTuple):
    """The constants that the radii share."""

    dim: int  # d
    noise_range: float  # R
    action_bound: float  # A
    parameter_bound: float  # B
    delta: float  # δ
    regularization: float  # λ
    sigma_floor: float = 1.0  # the least σ̄; (R + 1)/√d in the paper


def _bernstein(setting: Setting, t: ArrayLike, noise_bound: ArrayLike, delta: float) -> Floats:
    """The noise's share of a radius: auxiliary lemma "Bernstein(bandit)" (Theorem 4.1 of Zhou et al. 2021).

    It is for the rows a/σ̄, whose noise has variance ≤ 1, so L = A/σ̄_min and R is ``noise_bound``; its √λ‖μ*‖ term is
    `_bias`. At the paper's floor tL²/(dλ) is tA²/((R+1)²λ).
    """
    d, lam = setting.dim, setting.regularization
    t = np.asarray(t, dtype=float)
    growth = np.log1p(t * (setting.action_bound / setting.sigma_floor) ** 2 / (d * lam))
    confidence = np.log(4.0 * t**2 / delta)
    return 8.0 * np.sqrt(d * growth * confidence) + 4.0 * np.asarray(noise_bound) * confidence


def _bias(setting: Setting) -> float:
    return sqrt(setting.regularization) * setting.parameter_bound  # √λ B


def _unit(setting: Setting) -> float:
    """One unit of corruption, R + 1 in reward, divided by the least σ̄: √d at the paper's floor.

    Times C it is the corruption's share of a radius: lemma "Bernstein with corruptions(bandit)".
    """
    return (setting.noise_range + 1.0) / setting.sigma_floor


def alpha(setting: Setting, t: ArrayLike, corruption: ArrayLike) -> Floats:
    """α_t of Robust weighted OFUL, eq. (eq:def:alpha). The noise bound R/σ̄ is rounded up to (R+1)/σ̄ as there."""
    unit = _unit(setting)
    return _bernstein(setting, t, unit, setting.delta) + np.asarray(corruption) * unit + _bias(setting)


def beta(setting: Setting, t: ArrayLike, level: ArrayLike) -> Floats:
    """β_{t,ℓ} of the global ellipsoid, eq. (def:beta): α_t at corruption 2^ℓ."""
    return alpha(setting, t, np.exp2(level))


def gamma(setting: Setting, t: ArrayLike, level: ArrayLike, horizon: int) -> Floats:
    """γ_{t,ℓ} of a level's ellipsoid, eq. (def:gamma), whose log(8t²T/δ) is log(4t²/δ′) with δ′ = δ/(2T)."""
    unit = _unit(setting)
    spread = _bernstein(setting, t, unit, setting.delta / (2.0 * horizon))
    return spread + level_corruption(setting, level) * unit + _bias(setting)


def level_corruption(setting: Setting, level: ArrayLike) -> Floats:
    """C̄_ℓ = log(2ℓ²/δ) + 3, below eq. (def:gamma)."""
    return np.log(2.0 * np.asarray(level, dtype=float) ** 2 / setting.delta) + 3.0


def weighted_oful(setting: Setting, t: ArrayLike) -> Floats:
    """Weighted OFUL's radius (Zhou, Gu and Szepesvári 2021), whose floor is R/√d by default."""
    noise_bound = setting.noise_range / setting.sigma_floor
    return _bernstein(setting, t, noise_bound, setting.delta) + _bias(setting)


def discounted(setting: Setting, discount: float, t: ArrayLike) -> Floats:
    """D-LinUCB's radius (Russac et al. 2019, β_t in Theorem 1) after t − 1 rewards, discounted by γ."""
    left = 1.0 - discount ** (2.0 * (np.asarray(t, dtype=float) - 1.0))  # (1 − γ²) Σ γ²ⁿ
    seen = setting.action_bound**2 * left / (setting.regularization * setting.dim * (1.0 - discount**2))
    inner = 2.0 * log(1.0 / setting.delta) + setting.dim * np.log1p(seen)
    return setting.noise_range * np.sqrt(inner) + _bias(setting)


# Radii of the rivals. In these, corruption is Σ|c_t| in units of reward.


def _self_normalised(setting: Setting, t: ArrayLike) -> Floats:
    """R√(d log((1 + tA²/λ)/δ)), the noise of unit-weighted or less-than-unit-weighted regression."""
    growth = 1.0 + np.asarray(t, dtype=float) * setting.action_bound**2 / setting.regularization
    return setting.noise_range * np.sqrt(setting.dim * np.log(growth / setting.delta))


def cw_threshold(setting: Setting, corruption: ArrayLike) -> Floats:
    """α = (R√d + √λB)/C of CW-OFUL (He et al. 2022): wider actions count less; ∞ where there is no corruption."""
    spent = np.asarray(corruption, dtype=float)
    reach = setting.noise_range * sqrt(setting.dim) + _bias(setting)
    return np.where(spent > 0.0, reach / np.where(spent > 0.0, spent, 1.0), inf)


def cw_oful(setting: Setting, horizon: int, corruption: ArrayLike) -> Floats:
    """CW-OFUL's radius for a known C, R√(d log((1 + TA²/λ)/δ)) + αC + √λB; αC is R√d + √λB unless C = 0."""
    lies = (np.asarray(corruption) > 0.0) * (setting.noise_range * sqrt(setting.dim) + _bias(setting))
    return _self_normalised(setting, horizon) + lies + _bias(setting)


def cw_oful_unknown(setting: Setting, horizon: int) -> Floats:
    """CW-OFUL's radius for an unknown C, with C̄ = √T in the threshold: it holds as long as C ≤ √T.

    Then αC is at most R√d + √λB, which the noise and the bias exceed: twice their sum covers all three.
    """
    return 2.0 * _self_normalised(setting, horizon) + 2.0 * _bias(setting)


def variance_aware_cw_oful(setting: Setting, t: ArrayLike, corruption: ArrayLike) -> Floats:
    """The radius of our variance-aware CW-OFUL, derived in docs/ideas/rivals.md.

    As ‖a‖_{Σ⁻¹}/σ̄² ≤ √d/(R + C), neither one reward's noise nor all lies together weigh much.
    """
    spent = np.asarray(corruption, dtype=float)
    most = sqrt(setting.dim) / (setting.noise_range + spent)  # of ‖a‖_{Σ⁻¹}/σ̄²
    return _bernstein(setting, t, setting.noise_range * most, setting.delta) + spent * most + _bias(setting)


def robust_bandit(setting: Setting, t: ArrayLike, gamma: Floats, corruption: Floats) -> Floats:
    """β_t + γ_t C′ of RobustBandit (Ding et al. 2022), γ_t² = Σ_s ‖X_s‖² in the norm of its own round."""
    return _self_normalised(setting, t) + _bias(setting) + gamma * corruption


def lin_ts(setting: Setting, t: ArrayLike) -> Floats:
    """v_t = R√(9d log(t/δ)), by which LinTS's posterior is stretched (Agrawal and Goyal 2013)."""
    return setting.noise_range * np.sqrt(9.0 * setting.dim * np.log(np.asarray(t, dtype=float) / setting.delta))


def save(setting: Setting, level: Floats, updates: Floats, layers: int, variance: Floats) -> Floats:
    """β̂ of layer ℓ of SAVE (Zhao et al. 2023) after k updates in all, given V, the layer's variance so far."""
    r, bound, share = setting.noise_range, setting.parameter_bound, np.exp2(-level)
    k = np.maximum(updates, 1.0)
    log_k, log_next = (np.log(4.0 * n**2 * layers / setting.delta) for n in (k, k + 1.0))
    inner = 8.0 * variance + 6.0 * r**2 * log_next + 16.0 * (share * bound) ** 2
    noise = 16.0 * share * np.sqrt(inner * log_k) + 6.0 * share * r * log_k
    return np.where(updates > 0.0, noise, 0.0) + 2.0 * share * bound


def gadaoful(setting: Setting, horizon: int, corruption: ArrayLike) -> tuple[float, Floats]:
    """τ₀ and β of GAdaOFUL: AdaOFUL's radius (Li and Sun 2023) and, for lies, C times the most that one can weigh."""
    d, spent = setting.dim, np.asarray(corruption, dtype=float)
    reach = setting.action_bound * setting.parameter_bound
    growth = (setting.action_bound / setting.sigma_floor) ** 2 / (d * setting.regularization)
    kappa, confidence = d * log(1.0 + horizon * growth), log(2.0 * horizon**2 / setting.delta)
    tau = max(sqrt(2.0 * kappa), 2.0 * sqrt(d)) / sqrt(confidence)
    noise = 32.0 * (kappa / tau + sqrt(kappa * confidence) + tau * confidence)
    return tau, noise + 5.0 * _bias(setting) + spent * sqrt(d) / (reach + spent)


class Table:
    """A radius as a function of t ≥ 1, times a scale, looked up in a chunk of 4096 values that is kept.

    Where masks have driven trials into different chunks, it is computed directly.
    """

    def __init__(self, radius: Callable[[Floats], Floats], scale: float = 1.0) -> None:
        self._radius, self._scale = radius, scale
        self._number, self._chunk = -1, np.empty(0)

    def __call__(self, t: Ints) -> Floats:
        first, last = t.item(t.argmin()), t.item(t.argmax())  # found faster than extremes
        number = first // _CHUNK
        if last // _CHUNK != number:
            return self._scale * self._radius(t.astype(float))
        if number != self._number:
            self._number = int(number)
            chunk = np.arange(number * _CHUNK, (number + 1) * _CHUNK, dtype=float)
            self._chunk = self._scale * self._radius(np.maximum(chunk, 1.0))
        return self._chunk[t % _CHUNK]


class OFULRadius:
    """OFUL's radius (Abbasi-Yadkori et al. 2011, Theorem 2), as a function of log det Σ_t, (B,)."""

    def __init__(self, setting: Setting) -> None:
        start = setting.dim * log(setting.regularization)  # log det(λI)
        self._more = 2.0 * log(1.0 / setting.delta) - start
        self._noise_range, self._bias = setting.noise_range, _bias(setting)

    def __call__(self, log_det: Floats) -> Floats:
        if len(log_det) == 1:  # plain numbers give the same bits in half the time
            return np.array([self._noise_range * sqrt(log_det.item() + self._more) + self._bias])
        return self._noise_range * np.sqrt(log_det + self._more) + self._bias


class Alpha:
    """α_t of Robust weighted OFUL as a function of t, eq. (eq:def:alpha).

    C adds a constant to α_t, so only the part for C = 0 is tabulated. C is one number, or one for each trial.
    """

    def __init__(self, setting: Setting, corruption: ArrayLike) -> None:
        self._setting, self._corruption = setting, corruption
        self._clean = Table(partial(alpha, setting, corruption=0.0))

    @cached_property  # since it divides by the floor, which may be 0 where a fixed radius is used instead
    def _extra(self) -> Floats:
        return alpha(self._setting, 1, self._corruption) - alpha(self._setting, 1, 0.0)

    def __call__(self, t: Ints) -> Floats:
        return self._clean(t) + self._extra


class ByLevel:
    """A radius r(t) + step(ℓ), times a scale: what depends on t is tabulated, what depends on ℓ is an array."""

    def __init__(self, radius: Callable[[Floats], Floats], steps: Floats, scale: float) -> None:
        self._table, self._steps = Table(radius, scale), scale * steps

    def __call__(self, t: Ints, level: Ints) -> Floats:
        """The radius at these t and levels; ``level`` counts the places in ``steps`` from 0 on."""
        return self._table(t) + self._steps[level]


def beta_by_level(setting: Setting, levels: int, scale: float) -> ByLevel:
    """β_{t,ℓ}, times a scale, for ℓ = 1 … levels: ℓ adds a constant."""
    every = beta(setting, 1, _from_one_to(levels))
    return ByLevel(partial(beta, setting, level=1), every - every[1], scale)


def gamma_by_level(setting: Setting, levels: int, horizon: int, scale: float) -> ByLevel:
    """γ_{t,ℓ}, times a scale, for ℓ = 1 … levels: ℓ adds a constant."""
    every = gamma(setting, 1, _from_one_to(levels), horizon)
    return ByLevel(partial(gamma, setting, level=1, horizon=horizon), every - every[1], scale)


def _from_one_to(levels: int) -> Ints:
    """Every level at its own place; at place 0, which is no level, stands 1."""
    return np.maximum(np.arange(levels + 1), 1)
