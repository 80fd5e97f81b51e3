"""robandit's policies as learners of coba (https://coba-docs.readthedocs.io), in coba's own experiments.

Install it with `pip install robandit coba` and run it: it compares two of our policies with coba's LinUCB and with
random play, in coba's linear environments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import Any

import coba
import numpy as np
from coba.encodings import InteractionsEncoder
from coba.primitives import is_batch

import robandit


class RobanditLearner(coba.Learner):
    """A learner that plays any policy of robandit. Its propensities are exact, so its logs serve off-policy estimates.

    ``features`` are written as coba does: "a" for the features of an action, "xa" for their products with the
    context's, 1 for a constant. The rest are the policy's settings; ``dim`` follows from the first actions. The norm of
    an action's encoded features must not exceed ``action_bound``.
    """

    def __init__(
        self, policy: type[robandit.Policy], *, features: Sequence[str | int] = ("a",), **settings: Any
    ) -> None:
        self._kind, self._features, self._settings = policy, tuple(features), settings
        self._encoder = InteractionsEncoder(list(features))
        self._policy: robandit.Policy | None = None

    @property
    def params(self) -> Mapping[str, Any]:
        return {"family": self._kind.__name__, "features": list(self._features), **self._settings}

    def predict(self, context: Any, actions: Sequence[Any]) -> tuple[Any, float, dict[str, Any]]:
        """Choose an action; return it, its probability, and what `learn` needs besides."""
        shown = self._show(context, actions)
        decision = self._ready(shown).choose(shown, propensity=True)
        return actions[decision.index], decision.propensity, {"decision": decision}

    def learn(
        self,
        context: Any,
        action: Any,
        reward: float,
        probability: float,
        decision: robandit.Decision | None = None,
    ) -> None:
        """Learn from its own choice or, without a decision, from someone else's that coba logged."""
        if decision is not None and self._policy is not None:
            self._policy.update(decision, reward)
        else:
            shown = self._show(context, [action])
            self._ready(shown).warm_start(shown, [reward])

    def score(self, context: Any, actions: Sequence[Any], action: Any) -> float:
        """The probability with which it would choose this action."""
        shown = self._show(context, actions)
        return float(self._ready(shown).propensities(shown)[list(actions).index(action)])

    def _show(self, context: Any, actions: Sequence[Any]) -> np.ndarray:
        """The features (K, d) of all actions."""
        if is_batch(actions) or is_batch(context):
            raise coba.CobaException("one interaction at a time, please")  # coba then does just that
        return np.array([self._encoder.encode(x=context or [], a=action) for action in actions], dtype=float)

    def _ready(self, shown: np.ndarray) -> robandit.Policy:
        """The policy, which is made when the first actions come."""
        if self._policy is None:
            self._policy = self._kind(dim=shown.shape[1], **self._settings)
        return self._policy


def main(interactions: int = 1000) -> None:
    """Print the mean reward of each learner."""
    environments = coba.Environments.from_linear_synthetic(
        interactions, n_actions=10, n_context_features=0, n_action_features=5, seed=[1, 2, 3]
    )
    # Rewards are a constant + ⟨a, w⟩ with |a_i| ≤ 1 and no noise: hence the 1, the bound √6 and a small noise_range.
    ours: dict[str, Any] = {"features": [1, "a"], "noise_range": 0.1, "action_bound": sqrt(6.0), "seed": 1}
    learners = [
        RobanditLearner(robandit.OFUL, **ours),
        RobanditLearner(robandit.MultiLevelWeightedOFUL, **ours, horizon=interactions, radius_scale=0.01),
        coba.LinUCBLearner(features=[1, "a"]),
        coba.RandomLearner(),
    ]
    result = coba.Experiment(environments, learners).run(quiet=True)
    names = dict(zip(*result.learners[["learner_id", "family"]], strict=True))
    print(f"mean reward of {interactions} interactions in each of {len(environments)} environments")
    for number, name in names.items():
        rewards = result.where(learner_id=number).interactions["reward"]
        print(f"{name:24s} {np.mean(rewards):.3f}")


if __name__ == "__main__":
    main()
