"""LinTS: Thompson sampling from a Gaussian pseudo-posterior."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import TIE, Ellipsoid
from robandit.geometry.regions import Region, optimise
from robandit.policies import radius
from robandit.policies.base import Search
from robandit.policies.confidence import OneRadius

_DRAWS = 1024  # parameters from which a propensity is estimated


@dataclass(kw_only=True, eq=False)
class Sampling(OneRadius):
    """Plays argmax ⟨a, θ⟩ for θ ~ N(μ_t, radius² Σ_t⁻¹).

    A propensity has no closed form: it is the share of 1024 draws in which the action is best, the draw that is played
    being one of them. Weights 1/propensity are unbiased then but for (1 − p)¹⁰²⁴.
    """

    def _start(self) -> None:
        super()._start()
        self._normal = self._own_stream(self.dim, key=1, normal=True)
        self._others = self._own_stream(_DRAWS - 1, self.dim, key=2, normal=True)

    def _search(self, actions: Floats | Region, level: Ints) -> Search:
        drawn = np.matvec(self._ridge.root, self._normal.at(self._round + 1))
        theta = self._ridge.mean + self._radii()[:, None] * drawn
        point = Ellipsoid.from_root(theta, self._ridge.root, np.zeros(self._batch))
        return Search(optimise(actions, point), self._never, self._zeros)

    def _chances(self, actions: Floats, search: Search | None = None) -> Floats:
        mine, others = self._normal.at(self._round + 1), self._others.at(self._round + 1)
        drawn = np.concatenate([mine[:, None, :], others], axis=1)  # (B, draws, d)
        chances = np.empty(actions.shape[:2])
        for b, width in enumerate(self._radii()):  # one by one: K · draws numbers each
            values = actions[b] @ (self._ridge.mean[b] + width * (drawn[b] @ self._ridge.root[b].T)).T
            best = values.max(axis=0)
            winners = values >= best - TIE * np.abs(best)
            chances[b] = (winners / winners.sum(axis=0)).mean(axis=1)
        return chances


@dataclass(kw_only=True, eq=False)
class LinTS(Sampling):
    """Thompson sampling with the ridge posterior N(μ_t, v_t² Σ_t⁻¹), v_t = R√(9d log(t/δ)) (Agrawal and Goyal 2013).

    Assumes clean rewards. Regret Õ(d^{3/2}√T) with probability 1 − δ; no guarantee under corruption.
    """

    def _theory(self) -> Floats:
        return radius.lin_ts(self._setting, self._updates + 1)
