"""Several decisions at a time are those that would have been made one after the other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from test_follow import made

from robandit.policies import POLICIES, Decision
from robandit.policies.base import Policy
from robandit.policies.several import OnOffer, choose_each, goes_together

FIELDS = "round", "index", "sigma", "value", "level", "source", "explored", "certified", "propensity", "info"


def exploring(name: str) -> Policy[Any]:
    state = made(name, 5).state()
    return POLICIES[name].from_state(state | {"config": state["config"] | {"exploration": 0.3}})


def check_same(one: Decision, other: Decision) -> None:
    for field in FIELDS:
        mine, theirs = getattr(one, field), getattr(other, field)
        assert type(mine) is type(theirs) and mine == theirs, field
    assert np.array_equal(one.action, other.action)


@pytest.mark.parametrize("name", POLICIES)
def test_they_are_the_same_bit_for_bit(name: str) -> None:
    """With ties, exploration, sources and σ, for sets of one size and of several."""
    rng, single, several = np.random.default_rng(2), exploring(name), exploring(name)
    for turn in range(12):
        sizes = [4] * 5 if turn % 3 else [4, 2, 4]
        sigma = None if turn % 2 else 0.4
        offers = [
            OnOffer(rng.uniform(-0.5, 0.5, (size, 3)).round(turn % 4), sigma, ("ads", None)[place % 2])
            for place, size in enumerate(sizes)
        ]
        alone = [single.choose(one.actions, one.sigma, source=one.source, propensity=True) for one in offers]
        for one, other in zip(alone, choose_each(several, offers), strict=True):
            check_same(one, other)
        for decision in alone:
            reward = rng.normal(0.0, 0.2)
            single.update(decision, reward)
            several.update(decision, reward)


@pytest.mark.parametrize("name", ["quorum", "exp3p"])
def test_where_one_is_refused_nothing_has_changed(name: str) -> None:
    policy, untouched = made(name, 1), made(name, 1)
    good = np.eye(3)[:2]
    with pytest.raises(ValueError, match="norm"):
        choose_each(policy, [OnOffer(good), OnOffer(2.0 * good), OnOffer(good)])
    assert policy.rounds == 0
    check_same(policy.choose(good, propensity=True), untouched.choose(good, propensity=True))


def test_which_policies_go_together() -> None:
    found = {name for name in POLICIES if goes_together(made(name, 1))}
    assert {"quorum", "oful", "cw-oful", "greedy"} <= found
    assert not found & {"multi-level-weighted-oful", "lin-ts", "exp3p", "save"} and "quorum" in found
    assert not goes_together(made("oful", 1, 2))
