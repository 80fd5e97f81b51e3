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

from robandit.arrays import ALL, Floats, Index, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.intersection import Intersection
from robandit.geometry.regions import Optimum, Region, optimise
from robandit.geometry.ridge import Ridge
from robandit.inputs import integer
from robandit.policies import radius
from robandit.policies.base import Policy
from robandit.policies.decision import Search
from robandit.policies.parts import FieldArrays, Levels, SigmaBar, split_ties


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
        """C′_{t,ℓ} = {μ : ‖μ − μ_t‖_{Σ_t} ≤ β_{t,ℓ}} ∩ {μ : ‖μ − μ_{t,ℓ}‖_{Σ_{t,ℓ}} ≤ γ_{t,ℓ}}, before the cascade."""
        trial = self.rows if trial is None else trial
        rows = self.layout.rows(level, trial)
        own = Ellipsoid.around(self.stats.level, self.gamma(level, trial), rows)
        return Intersection(self._global(level, trial), own)  # line 8

    def _global(self, level: Ints, trial: Index) -> Ellipsoid:
        rows = ALL if trial is self.rows else trial  # views where all trials are asked for, copies elsewhere
        return Ellipsoid.around(self.stats.ridge, self.beta(level, trial), rows)

    def best_in_cascade(self, actions: Floats | Region, level: Ints, trial: Index) -> tuple[Optimum, Ints]:
        """The best actions under C_{t,ℓ}, and the level used: one further up wherever C′_{t,ℓ} is empty.

        Where all levels are empty, the global ellipsoid with the widest radius is left; the paper's line 9 does not
        say. Only the levels that are drawn are looked at, and their successors only when they are empty.
        """
        found = optimise(actions, self.confidence(level, trial))
        used, at = level.copy(), np.flatnonzero(found.values == -np.inf)
        while at.size:
            used[at] += 1  # line 9: C_{t,ℓ} = C_{t,ℓ+1} where C′_{t,ℓ} is empty
            top = used[at] > self.levels
            for rows, confidence in ((at[~top], self.confidence), (at[top], self._global)):
                if rows.size:
                    part = actions[rows] if isinstance(actions, np.ndarray) else actions
                    _replace_rows(found, rows, optimise(part, confidence(used[rows], trial[rows])))
            at = at[found.values[at] == -np.inf]
        return found, used

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
        levels, trial = np.arange(1, self.levels + 1), np.tile(self.rows, self.levels)  # all levels in one batch
        offered = np.broadcast_to(actions, (self.levels, *actions.shape)).reshape(-1, *actions.shape[1:])
        found = self.best_in_cascade(offered, np.repeat(levels, self.batch), trial)[0].maximisers
        assert found is not None
        shares = split_ties(found).reshape(self.levels, *actions.shape[:2])
        return np.tensordot(self.level_probabilities(), shares, axes=1)

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
