"""What the paper's theorems say in numbers, and watchers that hold a run against its lemmas, round by round."""

from __future__ import annotations

from math import lgamma, sqrt

import numpy as np
from numpy.typing import ArrayLike

from robandit.arrays import Bools, Floats, Index, Ints
from robandit.lab.attacks import Plot
from robandit.lab.environments import Offer
from robandit.policies import Decision, MultiLevelWeightedOFUL, Policy, radius
from robandit.policies.radius import Setting

ROUNDING = 1e-9
"""A side of a lemma that is larger by no more than this is not larger."""


# The numbers. Every one is for a batch of trials, or for one.


def robust_level(corruption: ArrayLike) -> Ints:
    """ℓ* = max{2, ⌈log₂ C⌉}, eq. (robustlayer), without rounding.

    >>> robust_level([0, 3, 16, 16.000001]).tolist()
    [2, 2, 4, 5]
    """
    mantissa, exponent = np.frexp(np.asarray(corruption, dtype=float))  # C = mantissa · 2^exponent, mantissa ≥ ½
    return np.maximum(2, exponent - (mantissa == 0.5)).astype(np.int64)


def highest_level(horizon: int) -> int:
    """ℓ_max = ⌈log₂ 2T⌉, line 1 of Algorithm alg:1."""
    return (2 * horizon - 1).bit_length()


def growth(setting: Setting, horizon: int) -> float:
    """ι of eq. (I3:4.15): by lemma lemma:summation11 Σ_t min{1, ‖a_t/σ̄_t‖²} ≤ 2dι, with L = A/σ̄_min.

    At the paper's floor it is log(1 + TA²/((R+1)²λ)).
    """
    longest = setting.action_bound / setting.sigma_floor
    return float(np.log1p(horizon * longest**2 / (setting.dim * setting.regularization)))


def spread(setting: Setting, horizon: int, sigma_squares: ArrayLike) -> Floats:
    """S̄ = √((R+1)²T/d + Σσ_t²) of eq. (I3:4.17), which is at least √Σσ̄_t²."""
    return np.sqrt(setting.sigma_floor**2 * horizon + np.asarray(sigma_squares, dtype=float))


def known_bound(setting: Setting, horizon: int, corruption: ArrayLike, sigma_squares: ArrayLike) -> Floats:
    """Theorem thm:alg:1 with its constants: 4dι + 2 α_T S̄ √(2dι).

    The proof's second inequality lacks the 2 of 2 α_t ‖a_t‖ (the optimistic μ and μ* are both α_t away from μ_t), and
    eq. (eq:reg:part2) has R where the floor of σ̄ asks for R + 1.
    """
    d_iota = setting.dim * growth(setting, horizon)
    alpha = radius.alpha(setting, horizon, corruption)
    return 4.0 * d_iota + 2.0 * alpha * spread(setting, horizon, sigma_squares) * sqrt(2.0 * d_iota)


def multi_level_bound(setting: Setting, horizon: int, corruption: ArrayLike, sigma_squares: ArrayLike) -> Floats:
    """Theorem thm:regret with its constants, for the mean over level draws while E_1 holds.

    4·2^ℓ* [4dι + β_{T,ℓ*} S̄ √(2dι)], eqs. (I1:4.12), (I3:4.15), (I3:4.17), and for every ℓ > ℓ*
    4dι + 2 γ_{T,ℓ} S̄ √(2dι), eq. (I2:6.33).
    """
    d_iota, level = setting.dim * growth(setting, horizon), robust_level(corruption)
    root = spread(setting, horizon, sigma_squares) * sqrt(2.0 * d_iota)
    low = 4.0 * np.exp2(level) * (4.0 * d_iota + radius.beta(setting, horizon, level) * root)
    count, gamma = _above(setting, horizon, level, power=1)
    return low + 4.0 * d_iota * count + 2.0 * gamma * root


def gap_bound(
    setting: Setting, horizon: int, corruption: ArrayLike, sigma_max: ArrayLike, smallest_gap: ArrayLike
) -> Floats:
    """Theorem thm:gap dependent regret with its constants, for the mean over level draws while E_1 holds.

    (1/Δ) times: 2^ℓ* [10dι + 32 β²_{T,ℓ*} V dι], eqs. (I3:4.32)–(I1:6.42), and for every ℓ > ℓ*
    4 [2dι + 2 γ²_{T,ℓ} V dι], eqs. (I2:6.44)–(I4:6.50), where V = max σ_t² + (R+1)²/d. Eq. (I3:4.32) has 2^ℓ* where its
    argument gives 2^ℓ* + 1 ≤ 1.25 · 2^ℓ*, so that the 8dι of eq. (I1:6.40) becomes 10dι; the 32 has room for it.
    """
    d_iota, level = setting.dim * growth(setting, horizon), robust_level(corruption)
    variance = np.asarray(sigma_max, dtype=float) ** 2 + setting.sigma_floor**2
    low = np.exp2(level) * (10.0 + 32.0 * radius.beta(setting, horizon, level) ** 2 * variance) * d_iota
    count, gamma = _above(setting, horizon, level, power=2)
    return (low + 8.0 * d_iota * (count + gamma * variance)) / np.asarray(smallest_gap, dtype=float)


def _above(setting: Setting, horizon: int, level: Ints, power: int) -> tuple[Ints, Floats]:
    """How many levels there are above each of these, and Σ γ^power_{T,ℓ} over them."""
    levels = np.arange(1, highest_level(horizon) + 1)
    gamma = radius.gamma(setting, horizon, levels, horizon) ** power
    sums = np.append(np.cumsum(gamma[::-1])[::-1], 0.0)  # at place ℓ: over the levels above ℓ
    return np.maximum(len(levels) - level, 0), sums[np.minimum(level, len(levels))]


def clopper_pearson(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a probability from so many successes.

    >>> [round(end, 4) for end in clopper_pearson(80, 80)]
    [0.9549, 1.0]
    """
    tail = (1.0 - level) / 2.0
    return _lower_end(successes, trials, tail), 1.0 - _lower_end(trials - successes, trials, tail)


def _lower_end(successes: int, trials: int, tail: float) -> float:
    """The p at which so many successes or more have the probability ``tail``, by bisection."""
    if successes == 0:
        return 0.0
    k = np.arange(successes, trials + 1)
    ways = lgamma(trials + 1) - np.array([lgamma(i + 1) + lgamma(trials - i + 1) for i in k.tolist()])
    low, high = 0.0, 1.0
    for _ in range(50):
        p = (low + high) / 2.0
        chance = np.exp(ways + k * np.log(p) + (trials - k) * np.log1p(-p)).sum()
        low, high = (p, high) if chance < tail else (low, p)
    return (low + high) / 2.0


# The watchers, for `simulate`. What they find is in arrays (B,). A ratio above 1 is a breach.


class Tally:
    """What the bounds need to know of a run, added up over its rounds."""

    def __init__(self, size: int) -> None:
        self.sigma_squares = np.zeros(size)
        """Σσ_t² of the actions played."""
        self.sigma_max = np.zeros(size)
        self.ceiling = np.zeros(size)
        """The most that any policy could have lost: Σ_t of the best less the worst mean, at most 2T."""

    def add(self, offer: Offer, decision: Decision) -> None:
        self.sigma_squares += decision.sigma**2
        np.maximum(self.sigma_max, decision.sigma, out=self.sigma_max)
        self.ceiling += offer.menu.best - offer.means.min(axis=1)


class OneRadiusWatcher:
    """How close μ* comes to the edge of a policy's one ellipsoid."""

    def __init__(self, size: int, shrink: float = 1.0) -> None:
        self._shrink = shrink
        self.tally = Tally(size)
        self.ratio = np.zeros(size)
        """The largest ‖μ_t − μ*‖_{Σ_t} / radius."""

    def __call__(self, policy: Policy, offer: Offer, plot: Plot, decision: Decision) -> None:
        away = policy.estimate().distance(offer.menu.parameter[:, None, :])[:, 0]
        self.ratio = np.maximum(self.ratio, away / self._shrink)
        self.tally.add(offer, decision)


class Lemma:
    """A lemma about single rounds: in how many it was checked and violated, and the largest left / right."""

    def __init__(self, size: int) -> None:
        self.checks, self.violations = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self.ratio = np.zeros(size)

    def check(self, rows: Index, left: Floats, right: Floats) -> None:
        """Enter a round of these trials."""
        self.checks[rows] += 1
        self.violations[rows] += ~(left <= right + ROUNDING)
        self.ratio[rows] = np.maximum(self.ratio[rows], left / np.maximum(right, ROUNDING))


class Watcher:
    """Holds Multi-level weighted OFUL at scale 1 against the lemmas of the paper's section 6.

    ``corruption`` is the true C (B,) of eq. (def:corruption), or a bound on it. ``shrink`` multiplies every radius
    here, and none of the policy's. Rewards must arrive at once, and decision sets be finite.
    """

    def __init__(self, setting: Setting, horizon: int, corruption: Floats, shrink: float = 1.0) -> None:
        self.lowest = robust_level(corruption)
        """ℓ*, (B,)."""
        if self.lowest.max() > highest_level(horizon):
            raise ValueError(f"corruption must be at most 2T = {2 * horizon}, got {corruption.max():g}")
        size = len(corruption)
        self._setting, self._horizon, self._shrink, self._rows = setting, horizon, shrink, np.arange(size)
        self._precision = np.tile(setting.regularization * np.eye(setting.dim), (size, 1, 1))  # Σ_t, kept by itself
        self._changed = self.lowest  # the level that changed last; before, γ_{1,ℓ} is least at ℓ*
        self._spent = np.zeros((size, highest_level(horizon)))  # Corruption_{t,ℓ}, eq. (def:sbcorruption)
        self.tally = Tally(size)
        self.beta, self.gamma = np.zeros(size), np.zeros(size)
        """The largest ‖μ_t − μ*‖_{Σ_t} / β_{t,ℓ} and ‖μ_{t,ℓ} − μ*‖_{Σ_{t,ℓ}} / γ_{t,ℓ} over ℓ ≥ ℓ*."""
        self.corruption = np.zeros(size)
        """The largest Corruption_{t,ℓ} / C̄_ℓ over ℓ ≥ ℓ*."""
        self.low, self.high = Lemma(size), Lemma(size)
        """Lemmas sec6:error:ell, of rounds with f(t) ≤ ℓ*, and sec6:error:ell2, of the others, while E_1 holds."""

    @property
    def held(self) -> Bools:
        """In which trials E_1, eq. (sec6:event:glsb), has held so far."""
        return (self.beta <= 1.0) & (self.gamma <= 1.0)

    def __call__(self, policy: Policy, offer: Offer, plot: Plot, decision: Decision) -> None:
        assert isinstance(policy, MultiLevelWeightedOFUL) and isinstance(plot.actions, np.ndarray)
        self._measure(policy, offer)
        self._count_corruption(plot, decision)
        regret = offer.menu.best - offer.mean_of(decision.index, decision.action)
        held, above = self.held, decision.level > self.lowest
        self._check_low(policy, plot.actions, offer.round, decision, regret, np.flatnonzero(held & ~above))
        self._check_high(policy, offer.round, decision, regret, np.flatnonzero(held & above))
        self.tally.add(offer, decision)
        weight = np.maximum(decision.sigma, self._setting.sigma_floor) ** -2.0
        self._precision += np.einsum("bi,bj->bij", weight[:, None] * decision.action, decision.action)
        self._changed = decision.level

    def _measure(self, policy: MultiLevelWeightedOFUL, offer: Offer) -> None:
        """The two distances of E_1. β_{t,ℓ} is least at ℓ*. Of the levels' ratios only that of the level that changed
        last can have grown, since γ_{t,ℓ} grows with t."""
        t, truth = offer.round, offer.menu.parameter
        away = _norm(policy.stats.ridge.mean - truth, self._precision) / self._beta(t, self.lowest)
        self.beta = np.maximum(self.beta, away)
        level, rows = self._changed, policy.layout.rows(self._changed, self._rows)
        assert policy.stats.level.precision is not None
        away = _norm(policy.stats.level.mean[rows] - truth, policy.stats.level.precision[rows]) / self._gamma(t, level)
        self.gamma = np.maximum(self.gamma, np.where(level >= self.lowest, away, 0.0))

    def _count_corruption(self, plot: Plot, decision: Decision) -> None:
        if plot.lies is None:
            return
        level = decision.level
        self._spent[self._rows, level - 1] += np.abs(plot.lies).max(axis=1) / (self._setting.noise_range + 1.0)
        share = self._spent[self._rows, level - 1] / radius.level_corruption(self._setting, level)
        self.corruption = np.maximum(self.corruption, np.where(level >= self.lowest, share, 0.0))

    def _check_low(
        self, policy: MultiLevelWeightedOFUL, actions: Floats, t: int, decision: Decision, regret: Floats, rows: Index
    ) -> None:
        """Lemma sec6:error:ell: regret ≤ 2β_{t,ℓ*} (‖a_t‖ + ‖a_{t,ℓ*}‖) in Σ_t⁻¹. Of several a_{t,ℓ*}, the shortest."""
        if not rows.size:
            return
        offered, level = actions[rows], self.lowest[rows]
        along = offered @ policy.stats.ridge.root[rows]
        lengths = np.sqrt(np.vecdot(along, along))  # ‖a‖_{Σ_t⁻¹}, (n, K)
        best = policy.cascade(offered, level, rows)[0].maximisers
        assert best is not None
        other = np.where(best, lengths, np.inf).min(axis=1)
        played = lengths[np.arange(rows.size), decision.index[rows]]
        self.low.check(rows, regret[rows], 2.0 * self._beta(t, level) * (played + other))

    def _check_high(
        self, policy: MultiLevelWeightedOFUL, t: int, decision: Decision, regret: Floats, rows: Index
    ) -> None:
        """Lemma sec6:error:ell2: regret ≤ 2γ_{t,ℓ} ‖a_t‖ in Σ_{t,ℓ}⁻¹."""
        if not rows.size:
            return
        level = decision.level[rows]
        along = np.vecmat(decision.action[rows], policy.stats.level.root[policy.layout.rows(level, rows)])
        self.high.check(rows, regret[rows], 2.0 * self._gamma(t, level) * np.sqrt(np.vecdot(along, along)))

    def _beta(self, t: int, level: Ints) -> Floats:
        return self._shrink * radius.beta(self._setting, t, level)

    def _gamma(self, t: int, level: Ints) -> Floats:
        return self._shrink * radius.gamma(self._setting, t, level, self._horizon)


def _norm(vectors: Floats, precision: Floats) -> Floats:
    """‖x‖_Σ for x (B, d)."""
    return np.sqrt(np.maximum(np.vecdot(vectors, np.matvec(precision, vectors)), 0.0))
