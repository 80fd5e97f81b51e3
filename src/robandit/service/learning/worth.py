"""What a bandit has learnt of each feature, in units of reward, and how sure that is."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import Floats
from robandit.features import Features
from robandit.features.layout import CONSTANT
from robandit.service.learning.learner import Learner
from robandit.wire.types import Effect

_FEW = 100  # rewards from which their spread is not measured


class Worth(NamedTuple):
    """The estimate of each feature as the policy sees it, in units of reward, (d,) each."""

    estimate: Floats
    standard_error: Floats
    uncertainty: Floats
    """Half-width of the policy's own set, at its scale of the radius."""

    def named(self, features: Features, low: float) -> list[Effect]:
        """The same by name, in units of the columns. ``low`` is the reward that counts as nothing."""
        effects, errors = features.explain(self.estimate), features.explain(self.standard_error)
        return [
            Effect(name=name, effect=effect + low * (name == CONSTANT), standard_error=errors[name])
            for name, effect in effects.items()
        ]


def worth(learner: Learner, span: Floats | None = None) -> Worth:
    """What the policy's estimate says, in units of reward.

    The errors are of the shortest parameter that says the same, by the projection ``span`` (d, d), if there is one.
    """
    held: Any = learner.policy.estimate()
    width = 1.0 if learner.declared is None else learner.declared.width
    told = held.root if span is None else span @ held.root
    errors = _noise(learner) * np.linalg.norm(told, axis=1)
    return Worth(width * held.center, width * errors, width * held.radius * np.linalg.norm(held.root, axis=1))


def _noise(learner: Learner) -> float:
    """What the roots of the diagonal of Σ⁻¹ are multiplied by to give standard errors.

    The estimate is Σ⁻¹ Σ_t w_t r_t a_t with w_t ≤ w(σ_t), whose covariance is at most max_t w(σ_t) σ_t² Σ⁻¹. That
    grows with σ, so the largest σ will do: the declared one. Where weights don't depend on σ, the spread of the last
    rewards is as good, if it is less. It includes what differs from action to action, so it is rather too large.
    """
    policy, sigma = learner.policy, learner.largest_sigma
    weight = policy.weight(sigma)
    if weight == policy.weight(0.5 * sigma) and len(learner.recent) >= _FEW:
        rewards = np.array([reward for _, reward in learner.recent])
        sigma = min(sigma, float(rewards.std()) / (1.0 if learner.declared is None else learner.declared.width))
    return sigma * weight**0.5
