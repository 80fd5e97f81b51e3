"""Multi-level weighted OFUL: the paper's algorithm for an unknown amount of corruption."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import ALL, Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.intersection import Intersection
from robandit.geometry.regions import Optimum, Region, optimise
from robandit.geometry.ridge import Ridge
from robandit.inputs import integer
from robandit.policies import radius
from robandit.policies.base import Search
from robandit.policies.confidence import Levelled, Weighted

Index: TypeAlias = NDArray[np.intp]


class GuaranteeLapsed(UserWarning):
    """The policy goes on, but its theorem no longer covers what it does."""


@dataclass(kw_only=True, eq=False)
class MultiLevelWeightedOFUL(Weighted, Levelled):
    """A cascade of confidence sets for every corruption 2^ℓ, one drawn each round (the paper's Algorithm alg:1).

    Assumes no knowledge of the corruption C, which must be committed before the action is drawn (a *weak*
    adversary). Regret Õ(C²d√(Σσ_t²) + C²R√(dT)) with probability 1 − 3δ (theorem thm:regret), for which ``mean_bound``
    must be at most 1 and rewards clipped: ℓ_max levels cover C ≤ 2T only.

    >>> policy = MultiLevelWeightedOFUL(dim=2, horizon=1000, noise_range=0.5, seed=1)
    >>> decision = policy.choose([[1.0, 0.0], [0.0, 1.0]], sigma=0.1)
    >>> 1 <= decision.level <= policy.levels
    True
    >>> policy.update(decision, reward=0.3)
    """

    horizon: int
    """T, the number of rounds that the guarantee is for."""

    cost = 3.0

    def _start(self) -> None:
        super()._start()
        self.horizon = integer("horizon", self.horizon, least=1)
        self._lapsed = False
        self._all = Ridge(rows=self._batch, dim=self.dim, regularization=self._lambda)  # from all rounds
        # Row (ℓ − 1)·B + b is level ℓ of trial b. Its Σ_ℓ is kept, too: every round asks for a ‖·‖_{Σ_ℓ}.
        self._level = Ridge(
            rows=self.levels * self._batch, dim=self.dim, regularization=self._lambda, keep_precision=True
        )
        self._tabulate()

    def _tabulate(self) -> None:
        """Split the radii, times the scale, into what depends on t and what depends on ℓ: at ℓ = 1, and beyond that."""
        setting, scale, level = self._setting, self.radius_scale, np.arange(self.levels + 1)
        level[0] = 1  # there is no level 0
        beta, gamma = radius.beta(setting, 1, level), radius.gamma(setting, 1, level, self.horizon)
        self._beta_t = radius.Table(partial(radius.beta, setting, level=1), scale)
        self._gamma_t = radius.Table(partial(radius.gamma, setting, level=1, horizon=self.horizon), scale)
        self._beta_level, self._gamma_level = scale * (beta - beta[1]), scale * (gamma - gamma[1])

    @property
    def levels(self) -> int:
        """ℓ_max = ⌈log₂ 2T⌉ (line 1)."""
        return (2 * self.horizon - 1).bit_length()

    def estimate(self) -> Ellipsoid:
        """The global ellipsoid with the radius β_{t,ℓmax}, which covers every corruption up to 2T."""
        held = self._global(self._rows, np.full(self._batch, self.levels))[self._rows]  # a copy
        return held[0] if self._single else held

    def candidate(self, level: int) -> Intersection:
        """C′_{t,ℓ} of line 8, the confidence set of one level before the cascade."""
        if integer("level", level, least=1) > self.levels:
            raise ValueError(f"level must lie in 1 … {self.levels}, got {level}")
        held = self._candidate(self._rows, np.full(self._batch, level))[self._rows]  # a copy
        return held[0] if self._single else held

    def level_probabilities(self) -> Floats:
        """P(f(t) = ℓ) for ℓ = 1 … ℓ_max (line 11)."""
        chances: Floats = 0.5 ** np.arange(1.0, self.levels + 1.0)
        chances[0] += 0.5**self.levels
        return chances

    def _draw_level(self, uniform: Floats) -> Ints:
        # u ∈ [2^−ℓ, 2^(1−ℓ)) has probability 2^−ℓ; what is left below 2^−ℓmax goes to level 1 (line 11).
        level = 1 - np.frexp(uniform)[1].astype(np.int64)
        return np.where(level > self.levels, 1, level)

    def _search(self, actions: Floats | Region, level: Ints) -> Search:
        if self._round >= self.horizon and not self._lapsed:
            self._lapsed = True
            warnings.warn(
                f"the horizon of {self.horizon} rounds is over: the policy goes on without its guarantee",
                GuaranteeLapsed,
                stacklevel=3,
            )
        return self._cascade(actions, self._rows, level)

    def _cascade(self, actions: Floats | Region, trial: Index, level: Ints) -> Search:
        """The optimistic actions of C_{t,ℓ} (lines 6–12), climbing a level wherever C′_{t,ℓ} is empty."""
        found = optimise(actions, self._candidate(trial, level))
        used, at = level.copy(), np.flatnonzero(found.values == -np.inf)
        while at.size:
            used[at] += 1
            top = used[at] > self.levels  # all levels were empty: the widest global ellipsoid is left
            for rows, confidence in ((at[~top], self._candidate), (at[top], self._global)):
                if rows.size:
                    part = actions[rows] if isinstance(actions, np.ndarray) else actions
                    _write(found, rows, optimise(part, confidence(trial[rows], used[rows])))
            at = at[found.values[at] == -np.inf]
        return Search(found, used > level, used - level)

    def _candidate(self, trial: Index, level: Ints) -> Intersection:
        rows = (level - 1) * self._batch + trial
        return Intersection(self._global(trial, level), Ellipsoid.around(self._level, self._gamma(trial, level), rows))

    def _global(self, trial: Index, level: Ints) -> Ellipsoid:
        rows = ALL if trial is self._rows else trial
        return Ellipsoid.around(self._all, self._beta(trial, level), rows)

    def _beta(self, trial: Index, level: Ints) -> Floats:
        return self._beta_t(self._updates[trial] + 1) + self._beta_level[np.minimum(level, self.levels)]

    def _gamma(self, trial: Index, level: Ints) -> Floats:
        return self._gamma_t(self._updates[trial] + 1) + self._gamma_level[np.minimum(level, self.levels)]

    def _chances(self, actions: Floats, search: Search | None = None) -> Floats:
        levels, trial = np.arange(1, self.levels + 1), np.tile(self._rows, self.levels)  # all levels in one batch
        offered = np.broadcast_to(actions, (self.levels, *actions.shape)).reshape(-1, *actions.shape[1:])
        found = self._cascade(offered, trial, np.repeat(levels, self._batch)).optimum.maximisers
        assert found is not None
        shares = (found / found.sum(axis=1, keepdims=True)).reshape(self.levels, *actions.shape[:2])
        return np.tensordot(self.level_probabilities(), shares, axes=1)

    def _learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        self._all.update(actions, rewards, weights)  # line 14
        self._level.update(actions, rewards, weights, (level - 1) * self._batch + self._rows)  # lines 15–19

    def _arrays(self) -> dict[str, NDArray[Any]]:
        levels = {f"level_{name}": array for name, array in self._level.arrays().items()}
        return self._all.arrays() | levels


def _write(whole: Optimum, rows: Index, part: Optimum) -> None:
    for into, what in zip(whole, part, strict=True):
        if into is not None:
            into[rows] = what
