"""Multi-level weighted OFUL: the paper's algorithm for an unknown amount of corruption.

The file follows the pseudo-code of Algorithm 2 (label alg:1). SlowMultiLevelWeightedOFUL in
tests/policies/transcriptions.py is the same with nothing but loops and solves, and must make the same choices.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import Bools, Floats, Index, Ints
from robandit.geometry.ellipsoid import Ellipsoid, EllipsoidsOfRows
from robandit.geometry.intersection import Intersection
from robandit.geometry.regions import Optimum, Region, optimise
from robandit.geometry.ridge import Ridge
from robandit.inputs import integer
from robandit.policies import radius
from robandit.policies.base import Policy
from robandit.policies.decision import Search
from robandit.policies.parts import FieldArrays, Levels, SigmaBar


class GuaranteeLapsed(UserWarning):
    """The policy goes on, but its theorem no longer covers what it does."""


class CascadeInfo(NamedTuple):
    """What Multi-level weighted OFUL reports about a choice."""

    empty: Any
    """Whether the confidence set of the level that was drawn was empty."""
    cascade: Any
    """How many levels up the first set was that is not empty. If all are empty, the global ellipsoid counts as one more
    level."""


@dataclass(kw_only=True)
class LevelStatistics(FieldArrays):
    """The statistics from all rounds, and those of each level from its own rounds."""

    ridge: Ridge
    """Σ_t, μ_t: row b is trial b."""
    level: Ridge
    """Σ_{t,ℓ}, μ_{t,ℓ}: `Levels` says which row."""


@dataclass(kw_only=True, eq=False)
class MultiLevelWeightedOFUL(Policy[LevelStatistics]):
    """One confidence set for each corruption 2^ℓ; a level drawn each round chooses: Algorithm 2 (label alg:1).

    Assumes no knowledge of the corruption C, which must be committed before the action is drawn (a *weak*
    adversary). Regret Õ(C²d√(Σσ_t²) + C²R√(dT)) with probability 1 − 3δ (theorem thm:regret), for the default λ and
    floor, ``radius_scale`` 1 and no exploration; ``mean_bound`` must be at most 1 and rewards clipped, since ℓ_max
    levels cover C ≤ 2T only.

    >>> policy = MultiLevelWeightedOFUL(dim=2, horizon=1000, noise_range=0.5, seed=1)
    >>> decision = policy.choose([[1.0, 0.0], [0.0, 1.0]], sigma=0.1)
    >>> 1 <= decision.level <= policy.levels
    True
    >>> policy.update(decision, reward=0.3)
    """

    horizon: int
    delta: float = 0.05
    radius_scale: float = 1.0
    sigma_floor: float | None = None

    cost = 3.0

    # What it keeps.

    @cached_property
    def levels(self) -> int:
        """ℓ_max = ⌈log₂ 2T⌉."""
        return (2 * self.horizon - 1).bit_length()  # Algorithm 2 (alg:1), line 1

    def start(self) -> LevelStatistics:
        self.sigma_bar = SigmaBar(self.sigma_floor, default=(self.noise_range + 1.0) / self.dim**0.5)
        self.sigma_floor = self.sigma_bar.floor
        self._lapsed = False
        setting = self.constants(self.delta, self.sigma_floor)
        self._beta = radius.beta_by_level(setting, self.levels, self.radius_scale)
        self._gamma = radius.gamma_by_level(setting, self.levels, self.horizon, self.radius_scale)
        self.layout = Levels(self.levels, self.batch)
        # Directions that separated the two ellipsoids of a level before. They save work and never change a result.
        self._separators = np.zeros((self.layout.size, self.dim))
        self._separable = np.zeros(self.layout.size + self.batch, dtype=bool)  # past the last level, there are none
        self._cascaded = False  # whether there are any
        # Σ_{t,ℓ} itself is kept as well, since every round asks for a ‖·‖_{Σ_{t,ℓ}}.
        level = self.new_ridge(rows=self.layout.size, keep_precision=True)  # line 2: Σ_{1,ℓ} = λI, b_{1,ℓ} = 0
        return LevelStatistics(ridge=self.new_ridge(), level=level)  # line 3: Σ_1 = λI, b_1 = 0

    # How it chooses. Line 5: `choose` is given the decision set D_t.

    def beta(self, level: Ints, trial: Index) -> Floats:
        """β_{t,ℓ} of eq. (def:beta), the radius of the global ellipsoid; past the last level it is the last one's."""
        return self._beta(self.t[trial], np.minimum(level, self.levels))  # line 7

    def gamma(self, level: Ints, trial: Index) -> Floats:
        """γ_{t,ℓ} of eq. (def:gamma), the radius of the level's own ellipsoid."""
        return self._gamma(self.t[trial], level)  # line 7

    def confidence(self, level: Ints, trial: Index | None = None) -> Intersection:
        """`C′_{t,ℓ} = {μ : ‖μ − μ_t‖_{Σ_t} ≤ β_{t,ℓ}} ∩ {μ : ‖μ − μ_{t,ℓ}‖_{Σ_{t,ℓ}} ≤ γ_{t,ℓ}}` before the cascade."""
        trial = self.rows if trial is None else trial
        rows = self.layout.rows(level, trial)
        own = EllipsoidsOfRows(self.stats.level, self.gamma(level, trial), rows)
        return Intersection(self._global(level, trial), own)  # line 8

    def _global(self, level: Ints, trial: Index) -> Ellipsoid:
        radii = self.beta(level, trial)
        if trial is self.rows:
            return Ellipsoid.around(self.stats.ridge, radii)
        return EllipsoidsOfRows(self.stats.ridge, radii, trial)

    def best_in_cascade(self, actions: Floats | Region, level: Ints, trial: Index) -> tuple[Optimum, Ints]:
        """The best actions under C_{t,ℓ}, and the level used: one further up wherever C′_{t,ℓ} is empty.

        Where all levels are empty, the global ellipsoid with the widest radius is left; the paper's line 9 does not
        say. Only the levels that are drawn are looked at, and their successors only when they are empty.
        """
        used = self._skip_empty(level.copy(), trial)
        found = self._best(actions, used, trial)
        at = np.flatnonzero(found.values == -np.inf)
        while at.size:
            self._remember_empty(used[at], trial[at])
            used[at] = self._skip_empty(used[at] + 1, trial[at])  # line 9: C_{t,ℓ} = C_{t,ℓ+1} where C′_{t,ℓ} is empty
            part = actions[at] if isinstance(actions, np.ndarray) else actions
            _replace_rows(found, at, self._best(part, used[at], trial[at]))
            at = at[found.values[at] == -np.inf]
        return found, used

    def _best(self, actions: Floats | Region, level: Ints, trial: Index) -> Optimum:
        """The best actions under C′_{t,ℓ}; past the last level, under the global ellipsoid alone."""
        if not self._cascaded or level.max(initial=0) <= self.levels:
            return optimise(actions, self.confidence(level, trial))
        found, rest = optimise(actions, self._global(level, trial)), np.flatnonzero(level <= self.levels)
        if isinstance(actions, np.ndarray):
            found = found._replace(maximisers=found.mask(actions.shape[1]), certified=found.certified.copy(), only=None)
        if rest.size:
            part = actions[rest] if isinstance(actions, np.ndarray) else actions
            _replace_rows(found, rest, optimise(part, self.confidence(level[rest], trial[rest])))
        return found

    def _skip_empty(self, level: Ints, trial: Index) -> Ints:
        """The first level from here on that is not `_known_empty`."""
        at = np.flatnonzero(self._separable[self.layout.rows(level, trial)]) if self._cascaded else self.rows[:0]
        if at.size:
            ladder = np.arange(1, self.levels + 2)
            empty = ladder < level[at, None]  # (m, levels + 1)
            i, j = above = np.nonzero(~empty)
            empty[above] = self._known_empty(ladder[j], trial[at[i]])
            level[at] = ladder[empty.argmin(axis=1)]
        return level

    def _known_empty(self, level: Ints, trial: Index) -> Bools:
        """Whether a separating direction of an earlier round proves that C′_{t,ℓ} is empty."""
        rows = self.layout.rows(level, trial)
        empty = self._separable[rows]
        at = np.flatnonzero(empty)
        if at.size:
            empty[at] = self.confidence(level[at], trial[at]).separated(self._separators[rows[at]])
        return empty

    def _remember_empty(self, level: Ints, trial: Index) -> None:
        """Keep the directions that separate the two ellipsoids of these levels: they will often do so again."""
        if level.size:
            rows = self.layout.rows(level, trial)
            self._separators[rows], self._separable[rows] = self.confidence(level, trial).separators(), True
            self._cascaded = True

    def draw_level(self, uniform: Floats) -> Ints:
        """f(t) = ℓ with probability 2^−ℓ for 1 < ℓ ≤ ℓ_max, and 1 otherwise."""
        # u ∈ [2^−ℓ, 2^(1−ℓ)) has probability 2^−ℓ; what is left below 2^−ℓmax goes to level 1.
        level = 1 - np.frexp(uniform)[1].astype(np.int64)
        return np.where(level > self.levels, 1, level)  # line 11

    def search(self, actions: Floats | Region, level: Ints) -> Search:
        """argmax_{a ∈ D_t} max_{μ ∈ C_{t,f(t)}} ⟨μ, a⟩."""
        self._warn_past_horizon()
        found, used = self.best_in_cascade(actions, level, self.rows)  # line 12; `update` brings r_t and σ_t
        return Search(found, CascadeInfo(used > level, used - level))

    # How it learns.

    def weights(self, sigma: Floats) -> Floats:
        """1/σ̄_t² with σ̄_t = max{floor, σ_t}; the default floor is the paper's (R + 1)/√d."""
        return self.sigma_bar(sigma) ** -2.0  # line 13

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        """Σ ← Σ + a_t a_tᵀ/σ̄_t², b ← b + r_t a_t/σ̄_t², μ ← Σ⁻¹ b."""
        self.stats.ridge.update(actions, rewards, weights)  # line 14
        own = self.layout.rows(level, self.rows)  # line 16: the rows of levels other than f(t) stay as they are
        self.stats.level.update(actions, rewards, weights, own)  # lines 18 and 19

    # What it tells.

    def estimate(self) -> Ellipsoid:
        """The global ellipsoid with the radius β_{t,ℓmax}, which covers every corruption up to 2T."""
        return self.copied(self._global(np.full(self.batch, self.levels), self.rows))

    def candidate(self, level: int) -> Intersection:
        """C′_{t,ℓ}, the confidence set of one level before the cascade."""
        if integer("level", level, least=1) > self.levels:
            raise ValueError(f"level must lie in 1 … {self.levels}, got {level}")
        return self.copied(self.confidence(np.full(self.batch, level)))

    def level_probabilities(self) -> Floats:
        """P(f(t) = ℓ) for ℓ = 1 … ℓ_max."""
        chances: Floats = 0.5 ** np.arange(1.0, self.levels + 1.0)
        chances[0] += 0.5**self.levels
        return chances

    def chances(self, actions: Floats, search: Search | None = None) -> Floats:
        level, trial = np.repeat(np.arange(1, self.levels + 1), self.batch), np.tile(self.rows, self.levels)
        shares = np.zeros((self.levels + 1, *actions.shape[:2]))  # of every level, and of the global ellipsoid
        flat = shares.reshape(-1, actions.shape[1])
        known = self._known_empty(level, trial)
        if not known.all():
            flat[: len(level)][~known] = self._shares(actions, level[~known], trial[~known])
        empty = ~flat[: len(level)].any(axis=1)
        if empty.any():
            self._remember_empty(level[empty & ~known], trial[empty & ~known])
            shares[-1] = self._shares(actions, self.no_level + self.levels + 1, self.rows)
            for row in np.flatnonzero(empty)[::-1]:
                flat[row] = flat[row + self.batch]  # the cascade, from the top down
        return np.tensordot(self.level_probabilities(), shares[:-1], axes=1)

    def _shares(self, actions: Floats, level: Ints, trial: Index) -> Floats:
        """The probability of each action under C′_{t,ℓ}, before the cascade: all are 0 where it is empty."""
        found = self._best(actions[trial], level, trial).mask(actions.shape[1])
        return found / np.maximum(np.add.reduce(found, axis=1, keepdims=True, dtype=float), 1.0)

    def _warn_past_horizon(self) -> None:
        if self.rounds >= self.horizon and not self._lapsed:
            self._lapsed = True
            warnings.warn(
                f"the horizon of {self.horizon} rounds is over: the policy goes on without its guarantee",
                GuaranteeLapsed,
                stacklevel=4,
            )


def _replace_rows(whole: Optimum, rows: Index, part: Optimum) -> None:
    """Write the optima of some rows over what was found for them before."""
    whole.values[rows], whole.certified[rows] = part.values, part.certified
    if whole.maximisers is not None:
        whole.maximisers[rows] = part.mask(whole.maximisers.shape[1])
    if whole.points is not None:
        whole.points[rows] = part.points
