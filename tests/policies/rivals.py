"""Slow, plain transcriptions of the rival policies: the oracle that the fast ones are tested against.

Written from their definitions alone, one trial at a time, without looking at the package. What a policy draws is given
from outside: the level, base or candidate of a round is an argument. d, R, A, B, λ, δ and s are as in the definitions:
dimension, noise range, action bound, parameter bound, regularization, confidence and the scale of all radii.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import mpmath
import numpy as np
from scipy import optimize
from transcriptions import (
    Array,
    Ellipsoid,
    OneEllipsoidPolicy,
    Ridge,
    SlowPolicy,
    SlowRobustWeightedOFUL,
    bernstein_radius,
)


def width(Sigma: Array, action: Array) -> float:
    """sqrt(a^T Sigma^-1 a)."""
    return math.sqrt(float(action @ np.linalg.solve(Sigma, action)))


class WidthWeighted(OneEllipsoidPolicy):
    """Optimism over one ellipsoid, with weights 1 / sigma_bar^2 that depend on the action's width."""

    horizon: int
    corruption: float | None

    def sigma_bar(self, action: Array, sigma: float) -> float:
        """The standard deviation by which this round is weighted, before Sigma takes it in."""
        raise NotImplementedError

    def update(self, action: Array, reward: float, sigma: float) -> None:
        """Sigma += a a^T / sigma_bar^2, b += r a / sigma_bar^2."""
        self.whole.add(action, self.clip(reward), self.sigma_bar(action, sigma))
        self.t += 1

    def reward_corruption(self) -> float:
        """C in units of reward: the paper's C divides by R + 1. Unknown, it is sqrt(T)."""
        return math.sqrt(self.horizon) if self.corruption is None else (self.noise_range + 1) * self.corruption


@dataclass(kw_only=True)
class SlowCWOFUL(WidthWeighted):
    """CW-OFUL (He, Zhou, Zhang, Gu 2022)."""

    horizon: int
    corruption: float | None
    threshold: float | None = None

    def base(self) -> float:
        """R sqrt(d) + sqrt(lambda) B."""
        return self.noise_range * math.sqrt(self.dim) + self.bias()

    def noise_radius(self) -> float:
        """R sqrt(d L) with L = log((1 + T A^2 / lambda) / delta)."""
        log = math.log((1 + self.horizon * self.action_bound**2 / self.lam) / self.delta)
        return self.noise_range * math.sqrt(self.dim * log)

    def weight(self, action: Array) -> float:
        """min{1, alpha / width}, alpha = (R sqrt(d) + sqrt(lambda) B) / C."""
        known, wide = self.reward_corruption(), width(self.whole.Sigma, action)
        if self.threshold is not None:
            return min(1.0, self.threshold / wide)
        return 1.0 if known * wide == 0 else min(1.0, self.base() / known / wide)

    def sigma_bar(self, action: Array, sigma: float) -> float:
        """1 / sqrt(weight); the declared sigma plays no part."""
        return 1 / math.sqrt(self.weight(action))

    def theory_radius(self) -> float:
        """R sqrt(d L) + alpha C + sqrt(lambda) B; unknown, 2 R sqrt(d L) + 2 sqrt(lambda) B."""
        if self.corruption is None:
            return 2 * self.noise_radius() + 2 * self.bias()
        return self.noise_radius() + (self.base() if self.corruption > 0 else 0.0) + self.bias()


@dataclass(kw_only=True)
class SlowVarianceAwareCWOFUL(WidthWeighted):
    """CW-OFUL with weights by the variance too."""

    horizon: int
    corruption: float | None

    def floor(self) -> float:
        """sigma_min: R / sqrt(T) unless given."""
        return self.noise_range / math.sqrt(self.horizon) if self.sigma_floor is None else self.sigma_floor

    def sigma_bar(self, action: Array, sigma: float) -> float:
        """sigma_bar^2 = max{sigma^2, sigma_min^2, (R + C) / sqrt(d) * width}."""
        share = (self.noise_range + self.reward_corruption()) / math.sqrt(self.dim)
        return math.sqrt(max(sigma**2, self.floor() ** 2, share * width(self.whole.Sigma, action)))

    def theory_radius(self) -> float:
        """8 sqrt(d log(1 + t A^2 / (f^2 d lambda)) log) + (4 R log + C) sqrt(d) / (R + C) + bias, f the floor."""
        log, known, root = math.log(4 * self.t**2 / self.delta), self.reward_corruption(), math.sqrt(self.dim)
        noise = self.noise_range * root / (self.noise_range + known)
        stochastic = bernstein_radius(self.dim, self.t, self.lam, self.action_bound / self.floor(), noise, log)
        return stochastic + known * root / (self.noise_range + known) + self.bias()


@dataclass(kw_only=True)
class SlowDiscountedLinUCB(OneEllipsoidPolicy):
    """D-LinUCB (Russac, Vernade, Cappe 2019): every round summed anew over all rewards, the newest with weight 1."""

    discount: float

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rows: list[tuple[Array, float]] = []

    def summed(self, discount: float) -> Array:
        """sum_s discount^(t - s) a_s a_s^T + lambda I."""
        ages = range(len(self.rows) - 1, -1, -1)
        parts = [discount**age * np.outer(a, a) for age, (a, _) in zip(ages, self.rows, strict=True)]
        return np.sum([self.lam * np.eye(self.dim), *parts], axis=0)

    def center(self) -> Array:
        """V^-1 sum_s gamma^(t - s) r_s a_s."""
        ages = range(len(self.rows) - 1, -1, -1)
        b = sum((self.discount**age * r * a for age, (a, r) in zip(ages, self.rows, strict=True)), np.zeros(self.dim))
        return np.linalg.solve(self.summed(self.discount), b)

    def values(self, actions: Array) -> Array:
        """<a, mu> + beta sqrt(a^T V^-1 V~ V^-1 a)."""
        V, squared = self.summed(self.discount), self.summed(self.discount**2)
        pulled = np.linalg.solve(V, actions.T).T
        widths = np.array([math.sqrt(float(v @ squared @ v)) for v in pulled])
        return actions @ self.center() + self.current_radius() * widths

    def theory_radius(self) -> float:
        """sqrt(lambda) B + R sqrt(2 log(1 / delta) + d log(1 + A^2 (1 - gamma^2n) / (lambda d (1 - gamma^2))))."""
        squares = sum(self.discount ** (2 * age) for age in range(len(self.rows)))
        growth = math.log(1 + self.action_bound**2 * squares / (self.lam * self.dim))
        return self.noise_range * math.sqrt(2 * math.log(1 / self.delta) + self.dim * growth) + self.bias()

    def update(self, action: Array, reward: float, sigma: float) -> None:
        """Remember the reward."""
        self.rows.append((action, self.clip(reward)))
        self.t += 1


# ------------------------------------------------------------------------------------ Thompson sampling


class Posterior(OneEllipsoidPolicy):
    """A policy that plays by one draw of theta from N(mu, v^2 Sigma^-1)."""

    def v(self) -> float:
        """The scale of the draw."""
        raise NotImplementedError

    def sample(self, rng: np.random.Generator, count: int) -> Array:
        """Draws of theta, (count, d)."""
        return rng.multivariate_normal(self.whole.mu, self.v() ** 2 * np.linalg.inv(self.whole.Sigma), size=count)


class SlowLinTS(Posterior):
    """LinTS: plain ridge, v_t = s R sqrt(9 d log(t / delta))."""

    def v(self) -> float:
        """The scale of the draw."""
        return self.radius_scale * self.noise_range * math.sqrt(9 * self.dim * math.log(self.t / self.delta))

    def weight_sigma(self, sigma: float) -> float:
        """No weighting."""
        return 1.0


@dataclass(kw_only=True)
class SlowRobustLinTS(SlowCWOFUL, Posterior):
    """LinTS with the weights of CW-OFUL, and its radius for v."""

    def v(self) -> float:
        """CW-OFUL's radius, scaled."""
        return self.current_radius()


# ------------------------------------------------------------------------------------ EXP3 over candidates


@dataclass(kw_only=True)
class SlowRobustBandit(SlowPolicy):
    """RobustBandit (Ding, Hsieh, Sharpnack 2022). Candidates are numbered from 1."""

    horizon: int
    epoch: int | None = None
    restart: bool = True

    def __post_init__(self) -> None:
        """The candidates in units of reward, EXP3's rate and its weights."""
        super().__post_init__()
        self.reach = self.mean_bound + self.noise_range
        m = max(0, math.ceil(math.log2(2 * self.horizon * self.reach)))
        self.candidates = [0.0, *(2.0**j for j in range(m + 1))]
        self.length = 1 if not self.restart else self.epoch or math.ceil(self.dim * math.sqrt(self.horizon))
        count, epochs = len(self.candidates), math.ceil(self.horizon / self.length)
        self.rate = min(1.0, math.sqrt(count * math.log(count) / ((math.e - 1) * epochs)))
        self.w = [1.0] * count
        self.widths: list[float] = []  # of the rounds since the last restart, each before its update
        self.gains: list[float] = []  # of the epoch's rounds
        self.epochs = 0

    def probabilities(self) -> Array:
        """p_j = (1 - alpha) w_j / sum(w) + alpha / |J|."""
        return (1 - self.rate) * np.array(self.w) / sum(self.w) + self.rate / len(self.w)

    def current_radius(self, level: int) -> float:
        """s (R sqrt(d log((1 + tau A^2 / lambda) / delta)) + sqrt(lambda) B + gamma C')."""
        tau = len(self.widths) + 1
        log = math.log((1 + tau * self.action_bound**2 / self.lam) / self.delta)
        gamma = math.sqrt(sum(wide**2 for wide in self.widths))
        bonus = self.noise_range * math.sqrt(self.dim * log) + self.bias() + gamma * self.candidates[level - 1]
        return self.radius_scale * bonus

    def values(self, actions: Array, level: int) -> Array:
        """LinUCB with candidate `level`."""
        return self.whole.ellipsoid(self.current_radius(level)).support(actions)

    def update(self, action: Array, reward: float, sigma: float, level: int) -> None:
        """A ridge step; at the end of an epoch, EXP3's step and the restart."""
        self.widths.append(width(self.whole.Sigma, action))
        self.whole.add(action, self.clip(reward), 1.0)
        self.gains.append((self.clip(reward) + self.reach) / (2 * self.reach))
        if len(self.gains) == self.length:
            self.end_epoch(level)
        self.t += 1

    def end_epoch(self, level: int) -> None:
        """w_j *= exp(alpha x / (p_j |J|)) for the epoch's candidate j; then everything anew."""
        gain, chance = sum(self.gains) / len(self.gains), self.probabilities()[level - 1]
        self.w[level - 1] *= math.exp(self.rate * gain / (chance * len(self.w)))
        self.gains = []
        self.epochs += 1
        if self.restart:
            self.whole, self.widths = Ridge(self.dim, self.lam), []


# ------------------------------------------------------------------------------------ masters


def settings_of(policy: SlowPolicy) -> dict[str, Any]:
    """The constants that a master hands to its bases."""
    return {item.name: getattr(policy, item.name) for item in fields(SlowPolicy) if item.init}


@dataclass(kw_only=True)
class Master(SlowPolicy):
    """A master over Robust weighted OFULs at C = 0, 1, 2, 4, ...; each learns only from the rounds it plays."""

    horizon: int
    base_corruptions: Sequence[float] | None = None

    def __post_init__(self) -> None:
        """The bases, numbered from 1 (entry i - 1)."""
        super().__post_init__()
        self.reach = self.mean_bound + self.noise_range
        powers = range(math.ceil(math.log2(2 * self.horizon)) + 1)
        amounts = self.base_corruptions or [0.0, *(2.0**j for j in powers)]
        self.bases = [SlowRobustWeightedOFUL(**settings_of(self), corruption=C) for C in amounts]
        self.M = len(self.bases)

    def values(self, actions: Array, level: int) -> Array:
        """The optimistic values of base `level`."""
        return self.bases[level - 1].values(actions)


@dataclass(kw_only=True)
class SlowExp3P(Master):
    """EXP3.P over the bases; n = T."""

    def __post_init__(self) -> None:
        """b, eta and gamma."""
        super().__post_init__()
        n, M = self.horizon, self.M
        self.bonus = math.sqrt(math.log(M / self.delta) / (n * M))
        self.eta = 0.95 * math.sqrt(math.log(M) / (n * M))
        self.gamma = min(1.0, 1.05 * math.sqrt(M * math.log(M) / n))
        self.G: Array = np.zeros(M)

    def probabilities(self) -> Array:
        """p = (1 - gamma) softmax(eta G) + gamma / M."""
        exponentials = np.exp(self.eta * (self.G - self.G.max()))
        return (1 - self.gamma) * exponentials / exponentials.sum() + self.gamma / self.M

    def update(self, action: Array, reward: float, sigma: float, level: int) -> None:
        """G_j += (g 1{j = i} + b) / p_j for all j."""
        p, gain = self.probabilities(), (self.clip(reward) + self.reach) / (2 * self.reach)
        self.G = self.G + [((gain if j == level - 1 else 0.0) + self.bonus) / p[j] for j in range(self.M)]
        self.bases[level - 1].update(action, reward, sigma)


def log_barrier(p: Array, eta: Array, loss: Array) -> Array:
    """1 / (1/p_j + eta_j (loss_j - shift)), with the shift at which they sum to one (losses >= 0)."""

    def stepped(shift: float) -> Array:
        return 1 / (1 / p + eta * (loss - shift))

    last = float(np.min((1 / p - 1) / eta + loss))  # where one of them is 1
    return stepped(optimize.brentq(lambda shift: stepped(shift).sum() - 1, -1.0, last, xtol=1e-300, rtol=1e-15))


def exact_log_barrier(p: Array, eta: Array, loss: Array) -> Array:
    """The same by bisection with 60 digits."""
    with mpmath.workdps(60):
        rows = [tuple(map(mpmath.mpf, row)) for row in zip(p, eta, loss, strict=True)]

        def stepped(shift: mpmath.mpf) -> list[mpmath.mpf]:
            return [1 / (1 / chance + rate * (cost - shift)) for chance, rate, cost in rows]

        low = min(cost - (len(rows) - 1 / chance) / rate for chance, rate, cost in rows)  # where none exceeds 1 / M
        high = min(cost - (1 - 1 / chance) / rate for chance, rate, cost in rows)  # where one of them is 1
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if sum(stepped(middle)) < 1 else (low, middle)
        return np.array([float(chance) for chance in stepped(low)])


@dataclass(kw_only=True)
class SlowStochasticCorral(Master):
    """Stochastic CORRAL: levels 1 ... M are the first steps, M + 1 ... 2 M the second ones.

    It keeps every past policy of each base, where the package keeps a sample of them.
    """

    def __post_init__(self) -> None:
        """The master's constants at the start."""
        super().__post_init__()
        n, M = max(2, math.ceil(self.horizon / 2)), self.M
        self.gamma, self.beta = 1 / n, math.exp(1 / math.log(n))
        self.p: Array = np.full(M, 1 / M)
        self.eta: Array = np.full(M, math.sqrt(M / self.horizon))
        self.rho: Array = np.full(M, 2.0 * M)
        self.past: list[list[Ellipsoid]] = [[] for _ in range(M)]
        self.raised = 0

    def probabilities(self) -> Array:
        """p bar = (1 - gamma) p + gamma / M."""
        return (1 - self.gamma) * self.p + self.gamma / self.M

    def past_values(self, actions: Array, level: int) -> Array:
        """The optimistic values of each past policy of base level - M: (policies, K)."""
        past = self.past[level - self.M - 1]
        directions = np.linalg.solve(np.array([policy.shape for policy in past]), actions.T)  # (policies, d, K)
        widths = np.sqrt(np.sum(actions.T * directions, axis=1))
        means = np.array([policy.centre for policy in past]) @ actions.T
        return means + np.array([[policy.radius] for policy in past]) * widths

    def update(self, action: Array, reward: float, sigma: float, level: int) -> None:
        """In a first step the base learns, in a second one the master."""
        if level > self.M:
            return self.learn(level - self.M - 1, (self.reach - self.clip(reward)) / (2 * self.reach))
        base = self.bases[level - 1]
        self.past[level - 1].append(base.whole.ellipsoid(base.current_radius()))
        base.update(action, reward, sigma)
        return None

    def learn(self, i: int, loss: float) -> None:
        """The log-barrier step, and CORRAL's rule for bases that have become rare."""
        losses: Array = np.zeros(self.M)
        losses[i] = loss / self.probabilities()[i]
        self.p = log_barrier(self.p, self.eta, losses)
        for j, chance in enumerate(self.probabilities()):
            if 1 / chance > self.rho[j]:
                self.rho[j] = 2 / chance
                self.eta[j] *= self.beta
                self.raised += 1


@dataclass(kw_only=True)
class SlowCOBE(SlowPolicy):
    """COBE (Wei, Dann, Zimmert 2022) over CW-OFUL. Bases are numbered from 1."""

    horizon: int

    def __post_init__(self) -> None:
        """Epoch 1."""
        super().__post_init__()
        self.reach = self.mean_bound + self.noise_range
        self.c_max = 2 * self.reach
        self.I = max(1, math.ceil(math.log2(self.c_max * self.horizon)))
        self.log = math.log(self.horizon / self.delta)
        self.start(k=1)

    def start(self, k: int) -> None:
        """Begin epoch k with everything anew."""
        self.k, self.t = k, 0  # t counts the epoch's updates
        self.numbers = range(k, self.I + 1)
        self.alpha = {i: 2.0 ** (k - i - 1) for i in self.numbers if i > k}
        self.alpha[k] = 1 - sum(self.alpha.values())
        self.theta = {i: 1.25 * self.alpha[i] * 2.0**i + 21 * self.c_max * self.log for i in self.numbers}
        self.bases = {i: self.base(self.theta[i]) for i in self.numbers}
        self.N, self.S = dict.fromkeys(self.numbers, 0), dict.fromkeys(self.numbers, 0.0)

    def base(self, corruption: float) -> SlowCWOFUL:
        """A CW-OFUL that is told this corruption, in units of reward."""
        corruption /= self.noise_range + 1
        return SlowCWOFUL(**settings_of(self), horizon=self.horizon, corruption=corruption)

    def probabilities(self) -> Array:
        """alpha_1 ... alpha_I."""
        return np.array([self.alpha.get(i, 0.0) for i in range(1, self.I + 1)])

    def values(self, actions: Array, level: int) -> Array:
        """The optimistic values of base `level`."""
        return self.bases[level].values(actions)

    def bound(self, n: int, theta: float) -> float:
        """2 beta_w sqrt(2 d iota n) + 4 d iota beta_w theta / (R sqrt(d) + sqrt(lambda) B)."""
        iota = math.log(1 + self.horizon * self.action_bound**2 / (self.dim * self.lam))
        any_base = self.bases[self.I]
        beta = self.radius_scale * (any_base.noise_radius() + any_base.base() + self.bias())
        first = 2 * beta * math.sqrt(2 * self.dim * iota * n)
        return first + 4 * self.dim * iota * beta * theta / any_base.base()

    def outdone(self, i: int, j: int) -> bool:
        """Whether base j has earned more than base i could miss if its corruption were as low as it assumes."""
        spread = self.reach * math.sqrt(self.t * self.log / self.alpha[j])
        spread += (self.reach * self.log + self.theta[j]) / self.alpha[j]
        most = (self.S[i] + self.bound(self.N[i], self.theta[i])) / self.alpha[i]
        return most < self.S[j] / self.alpha[j] - 8 * self.radius_scale * spread

    def update(self, action: Array, reward: float, sigma: float, level: int) -> None:
        """The base learns; the epoch ends when some base is outdone by a later one."""
        if level < self.k:
            return
        self.bases[level].update(action, reward, sigma)
        self.N[level] += 1
        self.S[level] += self.clip(reward)
        self.t += 1
        if any(self.outdone(i, j) for i in self.numbers for j in self.numbers if i < j):
            self.start(self.k + 1)


# ------------------------------------------------------------------------------------ SAVE and GAdaOFUL


class Layer:
    """One layer of SAVE: its rounds (w, action, reward), and the ridge regression from 2^-2l I on them."""

    def __init__(self, dim: int, number: int) -> None:
        """Without rounds."""
        self.number, self.dim = number, dim
        self.Sigma: Array = 4.0**-number * np.eye(dim)
        self.b: Array = np.zeros(dim)
        self.rounds: list[tuple[float, Array, float]] = []

    def theta(self) -> Array:
        """Sigma^-1 b."""
        return np.linalg.solve(self.Sigma, self.b)

    def widths(self, actions: Array) -> Array:
        """sqrt(a^T Sigma^-1 a) for each row a."""
        return np.sqrt(np.sum(actions * np.linalg.solve(self.Sigma, actions.T).T, axis=1))

    def add(self, action: Array, reward: float) -> None:
        """Sigma += w^2 a a^T, b += w^2 r a with w = min{1, 2^-l / width}."""
        w = min(1.0, 2.0**-self.number / width(self.Sigma, action))
        self.Sigma = self.Sigma + w**2 * np.outer(action, action)
        self.b = self.b + w**2 * reward * action
        self.rounds.append((w, action, reward))

    def residuals(self) -> float:
        """Sum over its rounds of w^2 (r - <theta, a>)^2, with the theta of now."""
        theta = self.theta()
        return sum(w**2 * (reward - float(theta @ action)) ** 2 for w, action, reward in self.rounds)


@dataclass(kw_only=True)
class SlowSAVE(SlowPolicy):
    """SAVE (Zhao, He, Zhou, Zhang, Gu 2023). Layers are numbered from 1; L + 1 means that nothing is left to learn."""

    horizon: int

    def __post_init__(self) -> None:
        """Layers 1 ... L."""
        super().__post_init__()
        self.finest = 1 / (self.noise_range * self.horizon**1.5)  # alpha
        self.L = max(1, math.ceil(math.log2(1 / self.finest)))
        self.layers = {number: Layer(self.dim, number) for number in range(1, self.L + 1)}

    def by_residuals(self, number: int) -> bool:
        """Whether this layer's variance is estimated from its residuals."""
        return 2.0**number >= 64 * math.sqrt(math.log(4 * self.t**2 * self.L / self.delta))  # t = k + 1

    def beta(self, number: int) -> float:
        """The radius of a layer after k = t - 1 updates of all layers together."""
        k, R, unit = self.t - 1, self.noise_range, 2.0**-number
        if k == 0:
            return self.radius_scale * 2 * unit * self.parameter_bound
        layer, log = self.layers[number], math.log(4 * k**2 * self.L / self.delta)
        V = layer.residuals() if self.by_residuals(number) else R**2 * len(layer.rounds)
        next_log = math.log(4 * (k + 1) ** 2 * self.L / self.delta)
        inside = 8 * V + 6 * R**2 * next_log + 16 * unit**2 * self.parameter_bound**2
        radius = 16 * unit * math.sqrt(inside * log) + 6 * unit * R * log + 2 * unit * self.parameter_bound
        return self.radius_scale * radius

    def values(self, actions: Array) -> tuple[Array, int, int]:
        """Optimistic values (-inf where an action may not be played), the level, and how many were eliminated."""
        alive = np.ones(len(actions), dtype=bool)
        for number, layer in self.layers.items():
            means, widths, unit, beta = actions @ layer.theta(), layer.widths(actions), 2.0**-number, self.beta(number)
            if (widths[alive] <= self.finest).all():
                return np.where(alive, means + beta * widths, -np.inf), self.L + 1, int((~alive).sum())
            if (widths[alive] > unit).any():
                eligible = alive & (widths > unit)
                return np.where(eligible, means + beta * widths, -np.inf), number, int((~alive).sum())
            alive = alive & (means >= means[alive].max() - 2 * unit * beta)
        raise AssertionError("2^-L <= alpha, so the last layer plays")

    def update(self, action: Array, reward: float, sigma: float, level: int) -> None:
        """Layer `level` learns; past the last one, the round only counts."""
        if level <= self.L:
            self.layers[level].add(action, self.clip(reward))
        self.t += 1


@dataclass(kw_only=True)
class SlowGAdaOFUL(WidthWeighted):
    """GAdaOFUL: pseudo-Huber loss, one Newton step a round. H is `whole.Sigma`; its b is not used."""

    horizon: int
    corruption: float | None

    def __post_init__(self) -> None:
        """theta = 0, and the constants kappa, l_T and tau_0."""
        super().__post_init__()
        self.theta: Array = np.zeros(self.dim)
        self.floor = self.noise_range / math.sqrt(self.horizon) if self.sigma_floor is None else self.sigma_floor
        growth = self.horizon * self.action_bound**2 / (self.dim * self.lam * self.floor**2)
        self.kappa = self.dim * math.log(1 + growth)
        self.log = math.log(2 * self.horizon**2 / self.delta)
        self.tau0 = max(math.sqrt(2 * self.kappa), 2 * math.sqrt(self.dim)) / math.sqrt(self.log)
        self.rounds: list[tuple[Array, float, float, float]] = []  # action, reward, sigma_bar, tau

    def theory_radius(self) -> float:
        """32 (kappa / tau_0 + sqrt(kappa l_T) + tau_0 l_T) + 5 sqrt(lambda) B + C sqrt(d) / (A B + C)."""
        noise = 32 * (self.kappa / self.tau0 + math.sqrt(self.kappa * self.log) + self.tau0 * self.log)
        known, largest = self.reward_corruption(), self.action_bound * self.parameter_bound
        return noise + 5 * self.bias() + known * math.sqrt(self.dim) / (largest + known)

    def values(self, actions: Array) -> Array:
        """<a, theta> + radius ||a||_{H^-1}."""
        return Ellipsoid(self.theta, self.whole.Sigma, self.current_radius()).support(actions)

    def sigma_bar(self, action: Array, sigma: float) -> float:
        """max{sigma, sigma_min, w, sqrt((A B + C) / sqrt(d) * w)}, w the width in H."""
        wide = width(self.whole.Sigma, action)
        share = (self.action_bound * self.parameter_bound + self.reward_corruption()) / math.sqrt(self.dim)
        return max(sigma, self.floor, wide, math.sqrt(share * wide))

    def update(self, action: Array, reward: float, sigma: float) -> None:
        """One Newton step on this round's pseudo-Huber loss."""
        wide, scale = width(self.whole.Sigma, action), self.sigma_bar(action, sigma)
        u, z = wide / scale, (self.clip(reward) - float(action @ self.theta)) / scale
        tau = self.tau0 * math.sqrt(1 + u**2) / u if u > 0 else math.inf
        psi = z if math.isinf(tau) else z * tau / math.sqrt(tau**2 + z**2)
        self.whole.add(action, self.clip(reward), scale)
        self.theta = self.theta + np.linalg.solve(self.whole.Sigma, action) * psi / scale
        self.rounds.append((action, self.clip(reward), scale, tau))
        self.t += 1

    def minimiser(self) -> Array:
        """The full M-estimator: argmin of lambda/2 |theta|^2 + sum tau^2 (sqrt(1 + z^2 / tau^2) - 1)."""
        actions = np.array([row[0] for row in self.rounds])
        rewards, scales, taus = np.array([row[1:] for row in self.rounds]).T

        def loss(theta: Array) -> tuple[float, Array]:
            z = (rewards - actions @ theta) / scales
            bend = np.sqrt(1 + (z / taus) ** 2)
            slope = self.lam * theta - actions.T @ (z / bend / scales)
            return float(self.lam / 2 * theta @ theta + np.sum(taus**2 * (bend - 1))), slope

        found = optimize.minimize(loss, np.zeros(self.dim), jac=True, method="BFGS", options={"gtol": 1e-8})
        return found.x
