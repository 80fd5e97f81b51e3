"""Learning from decisions that another policy made."""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from robandit.policies.base import Policy
from robandit.policies.decision import Decision


def follow(policy: Policy[Any], decision: Decision, reward: ArrayLike) -> None:
    """Learn from a decision of another policy, as if this one had drawn the level of that round.

    The level of another policy means nothing here. All else is as in `Policy.update`.
    """
    level = policy._logged_level(decision.round - policy.rounds - 1)
    policy._fold(*policy._read.feedback(decision, reward, None, None, level))
    policy.skip_to(decision.round)
