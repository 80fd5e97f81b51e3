"""Every confidence radius. Equations are cited by their labels in the paper's source."""

from __future__ import annotations

from collections.abc import Callable
from math import log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robandit.ridge import Floats

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


def _bernstein(setting: Setting, t: ArrayLike, noise_bound: float, delta: float) -> Floats:
    """Lemma Bernstein(bandit) for the rows a/σ̄, whose noise has variance ≤ 1: L = A/σ̄_min, R → noise_bound.

    Without its √λ‖μ*‖ term. At the paper's floor tL²/(dλ) is tA²/((R+1)²λ).
    """
    d, lam = setting.dim, setting.regularization
    t = np.asarray(t, dtype=float)
    growth = np.log1p(t * (setting.action_bound / setting.sigma_floor) ** 2 / (d * lam))
    confidence = np.log(4.0 * t**2 / delta)
    return 8.0 * np.sqrt(d * growth * confidence) + 4.0 * noise_bound * confidence


def _bias(setting: Setting) -> float:
    return sqrt(setting.regularization) * setting.parameter_bound  # √λ B


def _unit(setting: Setting) -> float:
    """What one unit of corruption, (R + 1) in reward, weighs after division by σ̄: √d at the paper's floor."""
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


def oful(setting: Setting, log_det: Floats) -> Floats:
    """OFUL's radius (Abbasi-Yadkori et al. 2011, Theorem 2), from log det Σ_t."""
    start = setting.dim * log(setting.regularization)  # log det(λI)
    return setting.noise_range * np.sqrt(log_det + (2.0 * log(1.0 / setting.delta) - start)) + _bias(setting)


def weighted_oful(setting: Setting, t: ArrayLike) -> Floats:
    """Weighted OFUL's radius (Zhou, Gu and Szepesvári 2021), whose floor is R/√d by default."""
    noise_bound = setting.noise_range / setting.sigma_floor
    return _bernstein(setting, t, noise_bound, setting.delta) + _bias(setting)


class Table:
    """A radius as a function of t ≥ 1, times a scale, looked up rather than computed afresh each round.

    One chunk of t is kept. Trials that are further apart than that, through masks, have theirs computed.
    """

    def __init__(self, radius: Callable[[Floats], Floats], scale: float = 1.0) -> None:
        self._radius, self._scale = radius, scale
        self._number, self._chunk = -1, np.empty(0)

    def __call__(self, t: NDArray[np.int64]) -> Floats:
        number = t // _CHUNK
        if (number != number[0]).any():
            return self._scale * self._radius(t.astype(float))
        if number[0] != self._number:
            self._number = int(number[0])
            chunk = np.arange(self._number * _CHUNK, (self._number + 1) * _CHUNK, dtype=float)
            self._chunk = self._scale * self._radius(np.maximum(chunk, 1.0))
        return self._chunk[t % _CHUNK]
