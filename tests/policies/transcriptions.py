"""Slow, plain transcriptions of five policies: the oracle that the fast package is tested against.

Written from the paper alone, one trial at a time, without looking at the package. "Alg. 1" is the paper's
Robust weighted OFUL (label alg:2), "Alg. 2" its Multi-level weighted OFUL (label alg:1); line numbers are theirs.
The paper's slips are resolved as docs/evidence/reproduction.md says ("slip n").
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating[Any]]
Flags = NDArray[np.bool_]

LOG_ODDS_LIMIT = 60.0  # tau is searched in [1e-26, 1 - 1e-26]; the end points are added exactly
BISECTIONS = 48  # 120 / 2**48 is 4e-13, and the value errs by its square


# ---------------------------------------------------------------- one ellipsoid, and two that intersect


@dataclass(frozen=True)
class Ellipsoid:
    """The set {mu : ||mu - centre||_shape <= radius}."""

    centre: Array
    shape: Array
    radius: float

    def ratio(self, points: Array) -> Array:
        """q(mu) / radius^2 for each row mu, q the squared distance: at most 1 inside."""
        away = points - self.centre
        distances: Array = np.sum((away @ self.shape) * away, axis=1)
        return distances / self.radius**2

    def support(self, actions: Array) -> Array:
        """max over the ellipsoid of <a, mu> = <a, centre> + radius ||a||_{shape^-1}, for each row a."""
        directions = np.linalg.solve(self.shape, actions.T).T
        values: Array = actions @ self.centre + self.radius * np.sqrt(np.sum(actions * directions, axis=1))
        return values


def blend(first: Ellipsoid, second: Ellipsoid, log_odds: Array) -> tuple[Array, Array, Array]:
    """The quadratic Q_tau = (1 - tau) q1 / radius1^2 + tau q2 / radius2^2, for each tau = expit(log_odds).

    Returns its matrix, its minimiser c and its minimum g(tau), stacked over tau.
    """
    share1, share2 = 1.0 / (1.0 + np.exp(log_odds)), 1.0 / (1.0 + np.exp(-log_odds))  # 1 - tau, tau
    weight1, weight2 = share1[:, None] / first.radius**2, share2[:, None] / second.radius**2
    matrix = weight1[:, :, None] * first.shape + weight2[:, :, None] * second.shape
    target = weight1 * (first.shape @ first.centre) + weight2 * (second.shape @ second.centre)
    centre = np.linalg.solve(matrix, target[:, :, None])[:, :, 0]
    return matrix, centre, share1 * first.ratio(centre) + share2 * second.ratio(centre)


def bisect(goes_right: Callable[[Array], Flags], count: int) -> Array:
    """Bisect `count` monotone conditions side by side over the log-odds of tau."""
    low: Array = np.full(count, -LOG_ODDS_LIMIT)
    high: Array = np.full(count, LOG_ODDS_LIMIT)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        right = goes_right(middle)
        low, high = np.where(right, middle, low), np.where(right, high, middle)
    return (low + high) / 2


def intersection_gap(first: Ellipsoid, second: Ellipsoid) -> float:
    """min over mu of max(q1 / radius1^2, q2 / radius2^2): the intersection is empty when this exceeds 1.

    By the minimax theorem it is max over tau of the concave g(tau), with g'(tau) = (ratio2 - ratio1)(c_tau).
    """

    def rising(log_odds: Array) -> Flags:
        _, centre, _ = blend(first, second, log_odds)
        return second.ratio(centre) > first.ratio(centre)

    _, _, smallest = blend(first, second, bisect(rising, 1))
    return float(smallest[0])


def blended_support(actions: Array, first: Ellipsoid, second: Ellipsoid, log_odds: Array) -> tuple[Array, Array]:
    """max over {Q_tau <= 1} of <a, mu> and the mu that attains it, for each row a with its own tau."""
    matrix, centre, smallest = blend(first, second, log_odds)
    direction = np.linalg.solve(matrix, actions[:, :, None])[:, :, 0]
    width = np.sqrt(np.sum(actions * direction, axis=1))  # ||a||_{matrix^-1}
    reach = np.sqrt(np.maximum(1.0 - smallest, 0.0))
    step = np.divide(reach, width, out=np.zeros_like(width), where=width > 0)  # a = 0 stays at the centre
    return np.sum(actions * centre, axis=1) + reach * width, centre + step[:, None] * direction


def intersection_support(actions: Array, first: Ellipsoid, second: Ellipsoid) -> Array:
    """max over the (non-empty) intersection of <a, mu>, exactly (slip 5), for each row a.

    Lagrange duality: it is min over tau in [0, 1] of the support function of {Q_tau <= 1}. That function
    is strictly unimodal in tau, and falls exactly where its maximiser violates the second ellipsoid more.
    """

    def falling(log_odds: Array) -> Flags:
        _, best = blended_support(actions, first, second, log_odds)
        return second.ratio(best) > first.ratio(best)

    inside, _ = blended_support(actions, first, second, bisect(falling, len(actions)))
    return np.minimum(inside, np.minimum(first.support(actions), second.support(actions)))


# ------------------------------------------------------------------------------------- shared by all


def bernstein_radius(dim: int, t: int, regularization: float, feature: float, noise: float, log: float) -> float:
    """beta_t of Lemma Bernstein(bandit) with sigma = 1, L = feature, R = noise, log = log(4 t^2 / delta)."""
    growth = math.log((dim * regularization + t * feature**2) / (dim * regularization))
    return 8.0 * math.sqrt(dim * growth * log) + 4.0 * noise * log


class Ridge:
    """Weighted ridge regression: Sigma = lambda I + sum a a^T / sigma^2 and b = sum r a / sigma^2."""

    def __init__(self, dim: int, regularization: float) -> None:
        """Alg. 1 line 1; Alg. 2 lines 2 and 3."""
        self.Sigma: Array = regularization * np.eye(dim)
        self.b: Array = np.zeros(dim)

    @property
    def mu(self) -> Array:
        """mu = Sigma^-1 b."""
        return np.linalg.solve(self.Sigma, self.b)

    def add(self, action: Array, reward: float, sigma: float) -> None:
        """Alg. 1 line 7; Alg. 2 lines 14 and 18."""
        self.Sigma = self.Sigma + np.outer(action, action) / sigma**2
        self.b = self.b + reward * action / sigma**2

    def ellipsoid(self, radius: float) -> Ellipsoid:
        """{mu : ||mu - mu_t||_{Sigma_t} <= radius}: eq:def:ct with its norm restored (slip 1)."""
        return Ellipsoid(self.mu, self.Sigma, radius)


@dataclass(kw_only=True)
class SlowPolicy:
    """The constants every policy shares, the round counter and the global regression."""

    dim: int  # d
    noise_range: float  # R
    action_bound: float = 1.0  # A
    parameter_bound: float = 1.0  # B
    delta: float = 0.05
    regularization: float | None = None  # lambda, 1 / B^2 unless given (slip 10)
    radius_scale: float = 1.0
    radius: float | None = None
    sigma_floor: float | None = None
    mean_bound: float = 1.0
    t: int = field(default=1, init=False)  # the round about to be played: updates so far + 1

    def __post_init__(self) -> None:
        """Start the global regression."""
        self.lam = 1.0 / self.parameter_bound**2 if self.regularization is None else self.regularization
        self.whole = Ridge(self.dim, self.lam)

    def clip(self, reward: float) -> float:
        """Slip 6: no honest reward is beyond the mean bound plus R."""
        bound = self.mean_bound + self.noise_range
        return min(max(reward, -bound), bound)

    def bias(self) -> float:
        """sqrt(lambda) B, the last term of every radius."""
        return math.sqrt(self.lam) * self.parameter_bound


class OneEllipsoidPolicy(SlowPolicy):
    """Optimism over one confidence ellipsoid. A policy names its theory radius and its weights."""

    def theory_radius(self) -> float:
        """The radius at round t as the theory prints it."""
        raise NotImplementedError

    def weight_sigma(self, sigma: float) -> float:
        """The standard deviation by which a round is weighted."""
        raise NotImplementedError

    def current_radius(self) -> float:
        """The scaled theory radius, or the fixed one where it was given."""
        return self.radius_scale * self.theory_radius() if self.radius is None else self.radius

    def values(self, actions: Array) -> Array:
        """max over mu in C_t of <a, mu> for each row a of `actions`."""
        return self.whole.ellipsoid(self.current_radius()).support(actions)

    def choose(self, actions: Array) -> int:
        """Alg. 1 line 5, with the objective <a, mu> restored (slip 1)."""
        return int(np.argmax(self.values(actions)))

    def update(self, action: Array, reward: float, sigma: float) -> None:
        """Alg. 1 lines 6 and 7."""
        self.whole.add(action, self.clip(reward), self.weight_sigma(sigma))
        self.t += 1


# -------------------------------------------------------------------------------------- the policies


class SlowOFUL(OneEllipsoidPolicy):
    """OFUL (Abbasi-Yadkori et al. 2011): every round has weight 1."""

    def theory_radius(self) -> float:
        """R sqrt(2 log(det(Sigma)^{1/2} det(lambda I)^{-1/2} / delta)) + sqrt(lambda) B."""
        log_det = np.linalg.slogdet(self.whole.Sigma)[1]
        log = log_det / 2 - self.dim * math.log(self.lam) / 2 - math.log(self.delta)
        return self.noise_range * math.sqrt(2 * log) + self.bias()

    def weight_sigma(self, sigma: float) -> float:
        """No weighting."""
        return 1.0


class SlowGreedy(SlowOFUL):
    """Greedy (Bogunovic et al. 2021): the ridge estimate, with no bonus."""

    def values(self, actions: Array) -> Array:
        """<a, mu_hat> for each row a."""
        return actions @ self.whole.mu


class SlowWeightedOFUL(OneEllipsoidPolicy):
    """Weighted OFUL (Zhou, Gu, Szepesvari 2021)."""

    def floor(self) -> float:
        """sigma_min: R / sqrt(d)."""
        return self.noise_range / math.sqrt(self.dim) if self.sigma_floor is None else self.sigma_floor

    def weight_sigma(self, sigma: float) -> float:
        """max{R / sqrt(d), sigma}."""
        return max(self.floor(), sigma)

    def theory_radius(self) -> float:
        """8 sqrt(d log(1 + t A^2/(f^2 d lambda)) log) + 4 (R/f) log + sqrt(lambda) B, f the floor."""
        log = math.log(4 * self.t**2 / self.delta)
        feature, noise = self.action_bound / self.floor(), self.noise_range / self.floor()
        return bernstein_radius(self.dim, self.t, self.lam, feature, noise, log) + self.bias()


class CorruptionAware(SlowPolicy):
    """What Alg. 2 and Alg. 1 share: the floor and the three radii alpha, beta and gamma."""

    def floor(self) -> float:
        """(R + 1) / sqrt(d), unless given."""
        return (self.noise_range + 1) / math.sqrt(self.dim) if self.sigma_floor is None else self.sigma_floor

    def weight_sigma(self, sigma: float) -> float:
        """Alg. 1 line 6; Alg. 2 line 13."""
        return max(self.floor(), sigma)

    def robust_radius(self, corruption: float, log: float) -> float:
        """eq:def:alpha, def:beta, def:gamma: at the default floor, (R + 1) / floor is sqrt(d)."""
        feature, noise = self.action_bound / self.floor(), (self.noise_range + 1) / self.floor()
        stochastic = bernstein_radius(self.dim, self.t, self.lam, feature, noise, log)
        return stochastic + corruption * noise + self.bias()


@dataclass(kw_only=True)
class SlowRobustWeightedOFUL(CorruptionAware, OneEllipsoidPolicy):
    """Algorithm 1 of the paper: the corruption level C is known."""

    corruption: float  # C

    def theory_radius(self) -> float:
        """alpha_t, eq:def:alpha."""
        return self.robust_radius(self.corruption, math.log(4 * self.t**2 / self.delta))


@dataclass(kw_only=True)
class SlowMultiLevelWeightedOFUL(CorruptionAware):
    """Algorithm 2 of the paper: the corruption level is not known. Levels are numbered from 1."""

    horizon: int  # T

    def __post_init__(self) -> None:
        """Lines 1 to 3."""
        super().__post_init__()
        if self.radius is not None:
            raise ValueError("a fixed radius is for policies with one ellipsoid")
        self.l_max = math.ceil(math.log2(2 * self.horizon))
        self.levels = {level: Ridge(self.dim, self.lam) for level in range(1, self.l_max + 1)}

    def beta(self, level: int) -> float:
        """beta_{t,l}, def:beta."""
        return self.radius_scale * self.robust_radius(2.0**level, math.log(4 * self.t**2 / self.delta))

    def gamma(self, level: int) -> float:
        """gamma_{t,l}, def:gamma."""
        cbar = math.log(2 * level**2 / self.delta) + 3  # Cbar_l (slip 7)
        log = math.log(8 * self.t**2 * self.horizon / self.delta)  # the text's 8 t^2 T (slip 3)
        return self.radius_scale * self.robust_radius(cbar, log)

    def ellipsoids(self, level: int) -> tuple[Ellipsoid, Ellipsoid]:
        """The two ellipsoids whose intersection is C'_{t,l}, line 8."""
        return self.whole.ellipsoid(self.beta(level)), self.levels[level].ellipsoid(self.gamma(level))

    def level_probabilities(self) -> Array:
        """Line 11: P(f(t) = l) for l = 1, ..., l_max (so entry l - 1)."""
        others = [2.0**-level for level in range(2, self.l_max + 1)]
        return np.array([1.0 - sum(others), *others])

    def values(self, actions: Array, level: int) -> tuple[Array, int, bool]:
        """max over C_{t,level} of <a, mu> for each row a; the level used; whether C'_{t,level} was empty.

        Line 9: an empty C'_{t,l} hands over to level l + 1. If l_max is empty too (slip 4), the global
        ellipsoid with beta_{t,l_max} serves, and the level used is l_max + 1.
        """
        for used in range(level, self.l_max + 1):
            first, second = self.ellipsoids(used)
            if intersection_gap(first, second) <= 1:
                return intersection_support(actions, first, second), used, used > level
        return self.whole.ellipsoid(self.beta(self.l_max)).support(actions), self.l_max + 1, True

    def choose(self, actions: Array, level: int) -> tuple[int, int]:
        """Line 12 with f(t) = level: the index of the action, and the level whose set was used."""
        values, used, _ = self.values(actions, level)
        return int(np.argmax(values)), used

    def update(self, action: Array, reward: float, sigma: float, level: int) -> None:
        """Lines 13 to 19; `level` is the drawn f(t), whichever set the cascade used."""
        self.whole.add(action, self.clip(reward), self.weight_sigma(sigma))
        self.levels[level].add(action, self.clip(reward), self.weight_sigma(sigma))
        self.t += 1
