"""The bounds of the paper's theorems as numbers, and watchers that check its lemmas in every round of a run."""

from __future__ import annotations

from math import sqrt

import numpy as np
from numpy.typing import ArrayLike

from robandit.arrays import Bools, Floats, Index, Ints
from robandit.lab.attacks import Plot
from robandit.lab.environments import Offer
from robandit.policies import Decision, MultiLevelWeightedOFUL, Policy, radius
from robandit.policies.radius import Setting

ROUNDING = 1e-9
"""A lemma is violated only if its left side is larger than the right by more than this."""


# The numbers, for one trial or for a batch of them.


def robust_level(corruption: ArrayLike) -> Ints:
    """ℓ* = max{2, ⌈log₂ C⌉}, eq. (robustlayer), without rounding errors.

    >>> robust_level([0, 3, 16, 16.000001]).tolist()
    [2, 2, 4, 5]
    """
    mantissa, exponent = np.frexp(np.asarray(corruption, dtype=float))  # C = mantissa · 2^exponent, mantissa ≥ ½
    return np.maximum(2, exponent - (mantissa == 0.5)).astype(np.int64)


def highest_level(horizon: int) -> int:
    """ℓ_max = ⌈log₂ 2T⌉, Algorithm 2 (label alg:1), line 1."""
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

    The proof's second inequality lacks the 2 of 2 α_t ‖a_t‖: the optimistic μ and μ* are both α_t away from μ_t.
    Eq. (eq:reg:part2) has R where the floor of σ̄ asks for R + 1.
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
    argument gives 2^ℓ* + 1 ≤ 1.25 · 2^ℓ*, so the 8dι of eq. (I1:6.40) becomes 10dι. The 32 is large enough already.
    """
    d_iota, level = setting.dim * growth(setting, horizon), robust_level(corruption)
    variance = np.asarray(sigma_max, dtype=float) ** 2 + setting.sigma_floor**2
    low = np.exp2(level) * (10.0 + 32.0 * radius.beta(setting, horizon, level) ** 2 * variance) * d_iota
    count, gamma = _above(setting, horizon, level, power=2)
    return (low + 8.0 * d_iota * (count + gamma * variance)) / np.asarray(smallest_gap, dtype=float)


def _above(setting: Setting, horizon: int, level: Ints, power: int) -> tuple[Ints, Floats]:
    """The number of levels above each of these, and Σ γ^power_{T,ℓ} over them."""
    levels = np.arange(1, highest_level(horizon) + 1)
    gamma = radius.gamma(setting, horizon, levels, horizon) ** power
    sums = np.append(np.cumsum(gamma[::-1])[::-1], 0.0)  # at index ℓ: the sum over the levels above ℓ
    return np.maximum(len(levels) - level, 0), sums[np.minimum(level, len(levels))]


# The watchers, for `simulate`. They keep their findings in arrays (B,). A ratio above 1 is a breach.


class RunTotals:
    """The quantities of a run that the bounds depend on, added up over its rounds."""

    def __init__(self, size: int) -> None:
        self.sigma_squares = np.zeros(size)
        """Σσ_t² of the actions played."""
        self.sigma_max = np.zeros(size)
        """The largest σ_t of the actions played."""
        self.ceiling = np.zeros(size)
        """The most that any policy could have lost: the sum of best mean minus worst mean, at most 2T."""

    def add(self, offer: Offer, decision: Decision) -> None:
        """Add a round."""
        self.sigma_squares += decision.sigma**2
        np.maximum(self.sigma_max, decision.sigma, out=self.sigma_max)
        self.ceiling += offer.menu.best - offer.means.min(axis=1)


class OneRadiusWatcher:
    """Measures how close μ* comes to the edge of a policy's ellipsoid. ``shrink`` multiplies the radius here."""

    def __init__(self, size: int, shrink: float = 1.0) -> None:
        self._shrink = shrink
        self.totals = RunTotals(size)
        self.ratio = np.zeros(size)
        """The largest ‖μ_t − μ*‖_{Σ_t} / radius."""

    def __call__(self, policy: Policy, offer: Offer, plot: Plot, decision: Decision) -> None:
        away = policy.estimate().distance(offer.menu.parameter[:, None, :])[:, 0]
        self.ratio = np.maximum(self.ratio, away / self._shrink)
        self.totals.add(offer, decision)


class Lemma:
    """A lemma about single rounds, and its record in each trial."""

    def __init__(self, size: int) -> None:
        self.checks, self.violations = np.zeros(size, np.int64), np.zeros(size, np.int64)
        """The number of rounds in which it was checked, and in which it was violated."""
        self.ratio = np.zeros(size)
        """The largest left side over right side."""

    def check(self, rows: Index, left: Floats, right: Floats) -> None:
        """Record a round of these trials."""
        self.checks[rows] += 1
        self.violations[rows] += ~(left <= right + ROUNDING)
        self.ratio[rows] = np.maximum(self.ratio[rows], left / np.maximum(right, ROUNDING))


class Watcher:
    """Checks the lemmas of the paper's section 7 on Multi-level weighted OFUL at scale 1.

    ``corruption`` is the true C (B,) of eq. (def:corruption), or a bound on it. ``shrink`` multiplies every radius
    here, and none of the policy's. Rewards must arrive at once, and decision sets must be finite.
    """

    def __init__(self, setting: Setting, horizon: int, corruption: Floats, shrink: float = 1.0) -> None:
        self.lowest = robust_level(corruption)
        """ℓ*, (B,)."""
        if self.lowest.max() > highest_level(horizon):
            raise ValueError(f"corruption must be at most 2T = {2 * horizon}, got {corruption.max():g}")
        size = len(corruption)
        self._setting, self._horizon, self._shrink, self._rows = setting, horizon, shrink, np.arange(size)
        self._precision = np.tile(
            setting.regularization * np.eye(setting.dim), (size, 1, 1)
        )  # Σ_t, independent of the policy's
        self._changed = self.lowest  # the level that changed last; at first ℓ*, where γ_{1,ℓ} is least
        self._spent = np.zeros((size, highest_level(horizon)))  # Corruption_{t,ℓ}, eq. (def:sbcorruption)
        self.totals = RunTotals(size)
        self.beta, self.gamma = np.zeros(size), np.zeros(size)
        """The largest ‖μ_t − μ*‖_{Σ_t} / β_{t,ℓ} and ‖μ_{t,ℓ} − μ*‖_{Σ_{t,ℓ}} / γ_{t,ℓ} over ℓ ≥ ℓ*."""
        self.corruption = np.zeros(size)
        """The largest Corruption_{t,ℓ} / C̄_ℓ over ℓ ≥ ℓ*."""
        self.low, self.high = Lemma(size), Lemma(size)
        """Lemma sec6:error:ell, for rounds with f(t) ≤ ℓ*, and sec6:error:ell2, for the others, while E_1 holds."""

    @property
    def held(self) -> Bools:
        """Whether E_1, eq. (sec6:event:glsb), has held so far in each trial."""
        return (self.beta <= 1.0) & (self.gamma <= 1.0)

    def __call__(self, policy: Policy, offer: Offer, plot: Plot, decision: Decision) -> None:
        assert isinstance(policy, MultiLevelWeightedOFUL) and isinstance(plot.actions, np.ndarray)
        self._measure(policy, offer)
        self._count_corruption(plot, decision)
        regret = offer.menu.best - offer.mean_of(decision.index, decision.action)
        held, above = self.held, decision.level > self.lowest
        self._check_low(policy, plot.actions, offer.round, decision, regret, np.flatnonzero(held & ~above))
        self._check_high(policy, offer.round, decision, regret, np.flatnonzero(held & above))
        self.totals.add(offer, decision)
        weight = np.maximum(decision.sigma, self._setting.sigma_floor) ** -2.0
        self._precision += np.einsum("bi,bj->bij", weight[:, None] * decision.action, decision.action)
        self._changed = decision.level

    def _measure(self, policy: MultiLevelWeightedOFUL, offer: Offer) -> None:
        """Measure the two distances of E_1.

        β_{t,ℓ} is least at ℓ*. γ_{t,ℓ} grows with t, so only the level that changed last can have a larger ratio.
        """
        t, truth = offer.round, offer.menu.parameter
        away = _norm(policy.stats.ridge.mean - truth, self._precision) / self._beta(t, self.lowest)
        self.beta = np.maximum(self.beta, away)
        level, rows = self._changed, policy.layout.rows(self._changed, self._rows)
        assert policy.stats.level.precision is not None
        away = _norm(policy.stats.level.mean[rows] - truth, policy.stats.level.precision[rows]) / self._gamma(t, level)
        self.gamma = np.maximum(self.gamma, np.where(level >= self.lowest, away, 0.0))

    def _count_corruption(self, plot: Plot, decision: Decision) -> None:
        """Add the round's corruption to its level."""
        if plot.lies is None:
            return
        level = decision.level
        self._spent[self._rows, level - 1] += np.abs(plot.lies).max(axis=1) / (self._setting.noise_range + 1.0)
        share = self._spent[self._rows, level - 1] / radius.level_corruption(self._setting, level)
        self.corruption = np.maximum(self.corruption, np.where(level >= self.lowest, share, 0.0))

    def _check_low(
        self, policy: MultiLevelWeightedOFUL, actions: Floats, t: int, decision: Decision, regret: Floats, rows: Index
    ) -> None:
        """Lemma sec6:error:ell: regret ≤ 2β_{t,ℓ*} (‖a_t‖ + ‖a_{t,ℓ*}‖) in Σ_t⁻¹, with the shortest a_{t,ℓ*}."""
        if not rows.size:
            return
        offered, level = actions[rows], self.lowest[rows]
        along = offered @ policy.stats.ridge.root[rows]
        lengths = np.sqrt(np.vecdot(along, along))  # ‖a‖_{Σ_t⁻¹}, (n, K)
        best = policy.best_in_cascade(offered, level, rows)[0].maximisers
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
