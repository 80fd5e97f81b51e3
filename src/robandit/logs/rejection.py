"""Rejection replay: a policy plays a log, and the rounds in which it agrees with what was done are its own.

Li, Chu, Langford and Wang 2011: if the log's actions were drawn uniformly, the rounds that are kept are distributed as
if the policy had played them. Where they were drawn with other probabilities p, a round in which both agree is kept
with probability (least p)/p, which makes up for it.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import NamedTuple

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.lab.environments.decision_sets import DecisionSets, shuffles
from robandit.logs.evaluate.records import DecisionLog
from robandit.policies import Policy
from robandit.streams import ENVIRONMENT, Draws


class Rejection(NamedTuple):
    """What a policy earned in the rounds that were kept, in each shuffle of the log."""

    rewards: Floats
    """The mean reward of the rounds kept, (trials,)."""
    kept: Ints
    """The number of rounds kept, (trials,)."""


def rejection_replay(log: DecisionSets, policy: Policy, *, seed: int = 1) -> Rejection:
    """Let a policy, made for a batch of trials, learn and earn on shuffles of a log, one for each trial."""
    assert log.propensity is not None
    trials = policy.batch
    draw = Draws(seed=seed, trials=range(trials), who=ENVIRONMENT)
    played, coin = shuffles(log.sizes, draw), draw.uniform()
    taken = np.flatnonzero(np.isfinite(log.rewards))
    least, total, kept = log.propensity.min(), np.zeros(trials), np.zeros(trials, np.int64)
    for t, decisions in enumerate(islice(played, len(log))):
        rows = log.starts[decisions][:, None] + np.arange(log.sizes[decisions[0]])
        decision = policy.choose(log.vectors[rows])
        agree = log.starts[decisions] + decision.index == taken[decisions]
        keep = agree & (coin.at(t) * log.propensity[decisions] < least)
        reward = np.where(keep, log.rewards[taken[decisions]], 0.0)
        policy.update(decision, reward, mask=keep)
        total, kept = total + reward, kept + keep
    return Rejection(total / np.maximum(kept, 1), kept)


def as_log(sets: DecisionSets, sigma: float = 0.5) -> DecisionLog:
    """The same log as `robandit.logs.evaluate.evaluate` takes it."""
    assert sets.propensity is not None
    taken = np.flatnonzero(np.isfinite(sets.rewards))
    return DecisionLog(
        offered=sets.vectors,
        starts=sets.starts,
        index=taken - sets.starts[:-1],
        propensity=sets.propensity,
        sigma=np.full(len(sets), sigma),
        reward=sets.rewards[taken],
        outcomes=Counter({"rewarded": len(sets), "default": 0, "pending": 0, "lost": 0}),
    )
