"""What a request may cost. All bandits share one process, and the dearest legal request must not hold the others up."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any, NamedTuple

from robandit.policies import POLICIES, Quorum
from robandit.policies.parts import GrowingStatistics
from robandit.service.refused import Refused
from robandit.wire.types import MOST_ACTIONS, BanditSettings, Choice

MOST_NS = 30e6
"""Largest cost of a decision: nanoseconds on the machine where the costs below were measured."""
MOST_NUMBERS = 8_000_000
"""Largest number of floats in the state of a bandit, which a snapshot has to hold."""
MOST_VALUES = 25_000
"""Largest number of values in the records of a decision, of which each takes a microsecond at worst."""
MOST_VOTE_NS = 50e6
"""Largest cost of a vote of Quorum, which may come with any reward."""
SLICE = 0.01
"""Seconds that rewards of one request, or windows of one bandit, are folded in for; then others have their turn."""


class DecisionCost(NamedTuple):
    """Nanoseconds of a decision: ``cube`` · d³ + K · (``action`` + ``square`` · d²), measured as the worst of several
    states and sets: random rows, rows that are equal, opposite, zero, on a circle, or equal but for rounding."""

    cube: float
    action: float
    square: float


_LIGHT = DecisionCost(0.0, 100.0, 0.6)
_COSTS = {
    "lin-ts": DecisionCost(0.5, 30_000.0, 5.0),
    "robust-lin-ts": DecisionCost(0.5, 30_000.0, 5.0),
    "exp3p": DecisionCost(0.5, 5500.0, 15.0),
    "cobe": DecisionCost(0.5, 5500.0, 20.0),
    "stochastic-corral": DecisionCost(0.6, 8500.0, 50.0),
    "multi-level-weighted-oful": DecisionCost(9.0, 13_000.0, 80.0),
}


_VOTE = 0.5  # nanoseconds times d³ for each group of Quorum that changes between two votes


@lru_cache(maxsize=1024)
def most_actions(policy: str, dim: int) -> int:
    """Number of actions that a decision of this policy may be between."""
    cost = _COSTS.get(policy, _LIGHT)
    return int((MOST_NS - cost.cube * dim**3) / (cost.action + cost.square * dim**2))


def check_creation(settings: BanditSettings) -> None:
    """Refuse a bandit that could not decide within the limit, or whose state is too large."""
    policy, dim = settings.policy, settings.dim
    numbers = _copies(settings) * dim**2
    if numbers > MOST_NUMBERS:
        raise Refused(
            422,
            f"{policy} with {dim} features keeps {numbers:,} numbers, and up to {MOST_NUMBERS:,} are allowed: "
            "take fewer features, or another policy",
        )
    if most_actions(policy, dim) < 2:
        raise Refused(422, f"{policy} takes too long with {dim} features: take fewer, or another policy")
    if policy == "quorum":
        _check_vote(dim, _told_apart(settings))


def most_sources(dim: int) -> int:
    """Number of sources that a quorum can tell apart with so many features: at least one, at most its default."""
    return max(1, min(Quorum.max_sources, int(MOST_VOTE_NS / (2 * _VOTE * dim**3)) - 2))


def _check_vote(dim: int, sources: int) -> None:
    """Refuse a quorum whose votes could take too long. Two groups of each source change in between."""
    cost = _VOTE * 2 * (sources + 2) * dim**3
    if cost > MOST_VOTE_NS:
        raise Refused(
            422,
            f"quorum with {dim} features and {sources} sources may take {cost / 1e6:.0f} ms for a vote, and up to "
            f"{MOST_VOTE_NS / 1e6:.0f} are allowed: take fewer features, a smaller max_sources, or another policy",
        )


MOST_SHADOWS = 2
"""Largest number of policies that watch a bandit."""


def check_shadows(all_: Sequence[BanditSettings]) -> None:
    """Refuse policies that together, the acting one first, could not decide or learn within the limits."""
    if len(all_) > 1 + MOST_SHADOWS:
        raise Refused(422, f"up to {MOST_SHADOWS} policies may watch a bandit: remove one first")
    for one in all_:
        check_creation(one)
    if sum(_copies(one) * one.dim**2 for one in all_) > MOST_NUMBERS:
        raise Refused(422, f"these policies together keep more than {MOST_NUMBERS:,} numbers: let fewer watch")
    if sum(_VOTE * 2 * (_told_apart(one) + 2) * one.dim**3 for one in all_ if one.policy == "quorum") > MOST_VOTE_NS:
        raise Refused(422, "these quorums together may take too long for a vote: let fewer watch, or tell fewer apart")
    if _most_together(all_) < 2:
        raise Refused(422, f"these policies together take too long with {all_[0].dim} features: let fewer watch")


def _most_together(all_: Sequence[BanditSettings]) -> int:
    """Number of actions that a decision may be between where all of these look at them."""
    costs, dim = [_COSTS.get(one.policy, _LIGHT) for one in all_], all_[0].dim
    fixed = sum(cost.cube for cost in costs) * dim**3
    return int((MOST_NS - fixed) / sum(cost.action + cost.square * dim**2 for cost in costs))


def check_watched(all_: Sequence[BanditSettings], count: int) -> None:
    """Refuse a decision between more actions than the policies that act and watch manage in time."""
    if count > (most := _most_together(all_)):
        raise Refused(
            413,
            f"with the policies that watch, a decision may be between up to {most:,} actions, and this is between "
            f"{count:,}: send those that are likely to win, or let fewer watch",
        )


def check_decision(settings: BanditSettings, count: int) -> None:
    """Refuse a decision between more actions than the policy manages in time."""
    most = most_actions(settings.policy, settings.dim)
    if count > most:
        raise Refused(
            413,
            f"{settings.policy} with {settings.dim} features may choose between up to {most:,} actions at a time, and "
            f"these are {count:,}: send those that are likely to win, or take another policy",
        )


def check_decisions(choices: Sequence[Choice]) -> None:
    """Refuse many decisions between too many actions in all."""
    count = sum(len(choice.actions) for choice in choices)
    if count > MOST_ACTIONS:
        raise Refused(
            413,
            f"the decisions of a request may be between up to {MOST_ACTIONS:,} actions in all, and these are "
            f"{count:,}: send fewer decisions at a time",
        )


def check_records(count: int, columns: int) -> None:
    """Refuse a decision between so many records that reading them would take too long."""
    if count * columns > MOST_VALUES:
        raise Refused(
            413,
            f"{count:,} actions of {columns} columns have {count * columns:,} values, and up to {MOST_VALUES:,} are "
            "read at a time: send those that are likely to win",
        )


def _copies(settings: BanditSettings) -> int:
    """Number of d × d matrices in the state of a bandit."""
    needed = settings.corruption is not None
    return _matrices(settings.policy, settings.horizon, settings.sources, needed, _told_apart(settings))


def _told_apart(settings: BanditSettings) -> int:
    """Number of sources that a quorum tells apart."""
    return int((settings.policy_settings or {}).get("max_sources", Quorum.max_sources))


@cache
def _matrices(policy: str, horizon: int, sources: int, corruption: bool, told: int) -> int:
    dim = 16
    known = 1.0 if corruption else None
    settings = BanditSettings(dim=dim, policy=policy, horizon=horizon, sources=sources, corruption=known)
    own: dict[str, Any] = {"max_sources": told} if policy == "quorum" else {}
    made = POLICIES[policy](**{**settings.for_policy(), **own}, seed=0)
    if isinstance(made.stats, GrowingStatistics):
        made.stats.make_room(None)
    state = made.state()["arrays"]
    return round(sum(array.size for array in state.values()) / dim**2 + 0.5)
