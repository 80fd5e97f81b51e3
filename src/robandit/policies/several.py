"""Several decisions at a time, between whose choices no reward comes: one search serves all of their sets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from robandit.arrays import Bools, Floats, Index, Ints, count_to
from robandit.geometry.large_sets import LARGE
from robandit.policies.base import _EXPLORE, _TIE, _UNIFORM, Policy
from robandit.policies.decision import Decision, Search, check_norms
from robandit.policies.parts import one_of, split_ties
from robandit.policies.quorum import Quorum
from robandit.policies.sources import Source


class OnOffer(NamedTuple):
    """What a policy chooses from."""

    actions: Floats
    """(K, d)."""
    sigma: Sequence[float] | float | None = None
    """As `choose` takes it."""
    source: Source = None


def choose_each(policy: Policy, offers: Sequence[OnOffer]) -> list[Decision]:
    """What `choose` gives for each of these, one after the other, bit for bit, with propensities.

    Small sets of one size that say no σ per action take a quarter of the time together, if the policy `goes_together`.
    If one is refused, nothing has changed.
    """
    if len(offers) > 1 and _alike(policy, offers) and goes_together(policy):
        return _together(policy, offers)
    before = policy.rounds
    try:
        return [policy.choose(one.actions, one.sigma, source=one.source, propensity=True) for one in offers]
    except BaseException:
        policy._clock.round = before
        raise


def goes_together(policy: Policy) -> bool:
    """Whether one search can serve many small sets: rounds between rewards share an ellipsoid and draw nothing else."""
    kind = type(policy)
    plain = kind.chances is Policy.chances and kind.search in (Policy.search, Quorum.search)
    return plain and not policy.levels and policy._single and policy.kernel == "numpy"


def _alike(policy: Policy, offers: Sequence[OnOffer]) -> bool:
    """Whether all sets are small and of one size, and share their σ."""
    actions, sigma, _ = offers[0]
    shape = len(actions), policy.dim
    small = 0 < actions.size < LARGE and (sigma is None or isinstance(sigma, float))
    return small and all(one.actions.shape == shape and one.sigma == sigma for one in offers)


def _together(policy: Policy, offers: Sequence[OnOffer]) -> list[Decision]:
    """The same by one search."""
    sets, clock = np.stack([one.actions for one in offers]), policy._clock
    check_norms(sets, policy.action_bound)
    sigma = policy._read.sigma(offers[0].sigma, sets[:1]).item()
    sources = [_label(policy, one.source) for one in offers]
    level: Ints = np.zeros(len(sets), np.int64)
    search = policy.search(sets, level)
    index, explored, chances = _pick(policy, sets, search)
    info = search.info._make(column.item() for column in search.info) if search.info else search.info
    columns = index, search.optimum.values, explored, chances
    found, clock.round = clock.round, clock.round + len(sets)
    return [
        Decision(
            round=round_,
            action=action,
            index=place,
            sigma=sigma,
            value=value,
            source=source,
            explored=drawn,
            propensity=chance,
            info=info,
        )
        for round_, (action, source, place, value, drawn, chance) in enumerate(
            zip(sets[count_to(len(sets)), index], sources, *(column.tolist() for column in columns), strict=True),
            start=found + 1,
        )
    ]


def _pick(policy: Policy, sets: Floats, search: Search) -> tuple[Index, Bools, Floats]:
    """Which action to play in each of the next rounds, whether it was drawn to explore, and its probability, (n,)."""
    number, actions, optimum = *sets.shape[:2], search.optimum
    draws = np.concatenate([policy._stream.at(policy.rounds + place) for place in range(1, number + 1)])
    mask = optimum.mask(actions)
    best = one_of(mask, draws[:, _TIE]) if optimum.only is None else optimum.only
    explored = draws[:, _EXPLORE] < policy.exploration
    index: Index = np.where(explored, (draws[:, _UNIFORM] * actions).astype(np.intp), best)
    chances = (1.0 - policy.exploration) * split_ties(mask)[count_to(number), index] + policy.exploration / actions
    return index, explored, np.minimum(chances, 1.0)


def _label(policy: Policy, source: Source) -> Source:
    """The label of a source as a single decision has it."""
    read = None if source is None else policy._read.source(source)
    return None if read is None else read.item()
