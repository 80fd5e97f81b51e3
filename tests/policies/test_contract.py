"""Every policy through the public checks, with ordinary settings and with awkward ones."""

from collections.abc import Callable
from typing import Any

import pytest

import robandit
from robandit.lab.checks import POLICY_CHECKS, MakePolicy
from robandit.policies import Policy

POLICIES: dict[str, MakePolicy] = {
    "OFUL": lambda **kw: robandit.OFUL(noise_range=0.5, **kw),
    "OFUL, fixed radius": lambda **kw: robandit.OFUL(noise_range=0.5, radius=0.3, **kw),
    "OFUL, exploring": lambda **kw: robandit.OFUL(noise_range=0.5, exploration=0.3, **kw),
    "WeightedOFUL": lambda **kw: robandit.WeightedOFUL(noise_range=0.5, radius_scale=0.01, **kw),
    "RobustWeightedOFUL": lambda **kw: robandit.RobustWeightedOFUL(noise_range=0.5, corruption=3, **kw),
    "Greedy": lambda **kw: robandit.Greedy(noise_range=0.5, **kw),
    "MultiLevelWeightedOFUL": lambda **kw: robandit.MultiLevelWeightedOFUL(noise_range=0.5, horizon=1000, **kw),
    "MultiLevelWeightedOFUL, cascading": lambda **kw: robandit.MultiLevelWeightedOFUL(
        noise_range=0.5, horizon=1000, radius_scale=0.002, exploration=0.1, **kw
    ),
    "CWOFUL": lambda **kw: robandit.CWOFUL(noise_range=0.5, horizon=1000, corruption=3, radius_scale=0.2, **kw),
    "CWOFUL, clean": lambda **kw: robandit.CWOFUL(noise_range=0.5, horizon=1000, corruption=0, **kw),
    "CWOFUL, unknown": lambda **kw: robandit.CWOFUL(noise_range=0.5, horizon=1000, corruption=None, **kw),
    "VarianceAwareCWOFUL": lambda **kw: robandit.VarianceAwareCWOFUL(
        noise_range=0.5, horizon=1000, corruption=3, radius_scale=0.02, **kw
    ),
    "RobustBandit": lambda **kw: robandit.RobustBandit(noise_range=0.5, horizon=1000, epoch=7, radius_scale=0.1, **kw),
    "RobustBandit, no restarts": lambda **kw: robandit.RobustBandit(
        noise_range=0.5, horizon=1000, restart=False, radius_scale=0.1, **kw
    ),
    "StochasticCorral": lambda **kw: robandit.StochasticCorral(
        noise_range=0.5, horizon=1000, radius_scale=0.01, snapshots=3, **kw
    ),
    "Exp3P": lambda **kw: robandit.Exp3P(noise_range=0.5, horizon=1000, radius_scale=0.01, **kw),
    "COBE": lambda **kw: robandit.COBE(noise_range=0.5, horizon=1000, radius_scale=0.1, **kw),
    "SAVE": lambda **kw: robandit.SAVE(noise_range=0.5, horizon=1000, radius_scale=0.05, **kw),
    "LinTS": lambda **kw: robandit.LinTS(noise_range=0.5, radius_scale=0.2, **kw),
    "RobustLinTS": lambda **kw: robandit.RobustLinTS(
        noise_range=0.5, horizon=1000, corruption=3, radius_scale=0.2, exploration=0.1, **kw
    ),
    "Quorum": lambda **kw: robandit.Quorum(noise_range=0.5, **kw),
    "Quorum, few sources": lambda **kw: robandit.Quorum(noise_range=0.5, max_sources=2, exploration=0.1, **kw),
    "DiscountedLinUCB": lambda **kw: robandit.DiscountedLinUCB(noise_range=0.5, discount=0.9, radius_scale=0.2, **kw),
    "GAdaOFUL": lambda **kw: robandit.GAdaOFUL(noise_range=0.5, horizon=1000, corruption=3, radius_scale=0.01, **kw),
}


TRACED = ("RobustBandit, no restarts",)
"""Those that reach lines which no other test does; the others need not be traced."""
NAMES = [name if name in TRACED else pytest.param(name, marks=pytest.mark.no_cover) for name in POLICIES]


def test_every_policy_is_here() -> None:
    names = {name for name in robandit.__all__ if _is_policy(getattr(robandit, name))}
    assert names == {name.split(",")[0] for name in POLICIES}


def _is_policy(thing: Any) -> bool:
    return isinstance(thing, type) and issubclass(thing, Policy) and thing is not Policy


@pytest.mark.parametrize("check", POLICY_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", NAMES)
def test_policy(name: str, check: Callable[[MakePolicy], None]) -> None:
    check(POLICIES[name])
