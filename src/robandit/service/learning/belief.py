"""What can be seen of a quorum's sources. Outsiders may choose their labels and their number; neither gets far."""

from __future__ import annotations

from robandit.policies.quorum import Quorum, SourceStanding
from robandit.service.learning.labels import label
from robandit.service.learning.learner import Learner
from robandit.service.learning.trust import TrustHistory
from robandit.wire.types import Belief, SourceBelief

MOST = 40
"""Largest number of sources that are shown."""


def belief(learner: Learner) -> Belief | None:
    """How far each source is believed; None where the policy is no quorum."""
    policy, trust = learner.policy, learner.trust
    if trust is None or not isinstance(policy, Quorum):
        return None
    slots = [(policy.slots.most if one.pooled else slot, one) for slot, one in enumerate(policy.standings())]
    slots.sort(key=lambda pair: (pair[1].since is None, -pair[1].rewards))
    return Belief(
        doubted=doubted(learner),
        sources=[_shown(one, slot, trust) for slot, one in slots[:MOST]],
        more=max(0, len(slots) - MOST),
        learnt=int(policy.t.item()) - 1,
        moments=[(learnt, round(at, 1)) for learnt, at in trust.moments],
    )


def doubted(learner: Learner) -> int:
    """How many sources are doubted: 0 where the policy is no quorum."""
    return 0 if learner.trust is None else len(learner.trust.since)


def _shown(standing: SourceStanding, slot: int, trust: TrustHistory) -> SourceBelief:
    since = trust.since.get(slot)
    return SourceBelief(
        source=None if standing.source is None else label(str(standing.source)),
        pooled=standing.pooled,
        weight=min(1.0, standing.weight),
        since=standing.since,
        at=None if since is None else since.at,
        rewards=standing.rewards,
        ruling=standing.ruling,
        curve=[round(weight, 2) for weight in trust.curve(slot).tolist()],
    )
