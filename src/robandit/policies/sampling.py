"""Draws from a Gaussian pseudo-posterior, for policies by Thompson sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from robandit.arrays import Floats
from robandit.geometry.ellipsoid import TIE, Ellipsoid
from robandit.geometry.regions import Optimum, Region, optimise

if TYPE_CHECKING:
    from robandit.policies.base import Policy

_DRAWS = 1024  # parameters from which a propensity is estimated


class Posterior:
    """θ ~ N(μ, radius² Σ⁻¹) around a policy's ellipsoid, drawn from the policy's own streams.

    A propensity has no closed form. It is estimated as the share of 1024 draws, the one that is played included, in
    which the action is best. Weights 1/propensity are unbiased then but for (1 − p)¹⁰²⁴.
    """

    def __init__(self, policy: Policy) -> None:
        self._played = policy.own_stream(policy.dim, key=1, normal=True)
        self._others = policy.own_stream(_DRAWS - 1, policy.dim, key=2, normal=True)

    def best(self, actions: Floats | Region, around: Ellipsoid, round_: int) -> Optimum:
        """The best action under the parameter that this round draws."""
        drawn = np.matvec(around.root, self._played.at(round_))
        theta = around.center + around.radius[:, None] * drawn
        return optimise(actions, Ellipsoid.from_root(theta, around.root, np.zeros(len(theta))))

    def chances(self, actions: Floats, around: Ellipsoid, round_: int) -> Floats:
        """The share of draws (B, K) in which each action is best."""
        played, others = self._played.at(round_), self._others.at(round_)
        drawn = np.concatenate([played[:, None, :], others], axis=1)  # (B, draws, d)
        chances = np.empty(actions.shape[:2])
        for b, width in enumerate(around.radius):  # one by one: K · draws numbers each
            values = actions[b] @ (around.center[b] + width * (drawn[b] @ around.root[b].T)).T
            best = values.max(axis=0)
            winners = values >= best - TIE * np.abs(best)
            chances[b] = (winners / winners.sum(axis=0)).mean(axis=1)
        return chances
