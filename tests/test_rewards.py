"""Rewards, declared once: what follows from a declaration, and what is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from robandit import OFUL, CorruptionMonitor
from robandit.rewards import Rewards, sub_gaussian

ENDS = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e6)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(ends=ENDS, place=st.floats(0.0, 1.0))
def test_shares_go_there_and_back(ends: tuple[float, float], place: float) -> None:
    declared = Rewards.read(ends)
    reward = min(max(declared.reward(place), declared.low), declared.high)
    assert 0.0 <= declared.share(declared.check(reward)) <= 1.0
    assert math.isclose(declared.reward(declared.share(reward)), reward, rel_tol=1e-9, abs_tol=1e-9 * declared.width)


@given(ends=ENDS, cap=st.none() | st.floats(0.01, 0.99))
def test_a_declaration_goes_through_json(ends: tuple[float, float], cap: float | None) -> None:
    low, high = ends
    declared = Rewards(low=low, high=high, highest_mean=None if cap is None else low + cap * (high - low))
    assert Rewards.read(json.loads(json.dumps(declared.to_json()))) == declared
    assert Rewards.read(declared) is declared


def test_clicks_are_zero_or_one() -> None:
    assert Rewards.read("clicks") == Rewards() == Rewards.read((0, 1))
    assert (Rewards().noise, Rewards().sigma, Rewards().cap) == (0.5, 0.5, 1.0)


@pytest.mark.parametrize("p", [0.003, 0.05, 0.2, 0.49])
def test_the_scale_bounds_every_moment_of_a_coin(p: float) -> None:
    """E exp(x (r − p)) ≤ exp(x² s²/2) for all coins up to the cap, and no smaller s would do."""
    scale = sub_gaussian(1.0, p)
    x = np.linspace(-40.0, 40.0, 4001)
    for rate in np.linspace(1e-4, p, 50):
        moments = np.log(rate * np.exp(x * (1.0 - rate)) + (1.0 - rate) * np.exp(-x * rate))
        assert (moments <= 0.5 * (x * scale) ** 2 + 1e-12).all()
    moments = np.log(p * np.exp(x * (1.0 - p)) + (1.0 - p) * np.exp(-x * p))
    assert (moments > 0.5 * (x * 0.999 * scale) ** 2 + 1e-12).any()


def test_policies_and_monitors_take_what_follows() -> None:
    declared = Rewards(low=10, high=60, highest_mean=12.5)
    assert declared.noise == CorruptionMonitor(dim=1, **declared.for_monitor()).noise_scale
    policy = OFUL(dim=1, **declared.for_policy())
    assert policy.reach >= 1.0  # so that no share of the range is clipped
    assert declared.sigma == pytest.approx(math.sqrt(0.05 * 0.95))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("click", "got 'click'; did you mean 'clicks'?"),
        ((1, 0), r"rewards must be \(lowest, highest\), got \(1, 0\)"),
        ((0, math.inf), "rewards must be"),
        (5, "rewards must be"),
        ({"low": 0, "hihg": 1}, "Rewards has no setting 'hihg'; did you mean 'high'?"),
        ({"highest_mean": 1.5}, "highest_mean, as a share of the range, must be below 1, got 1.5"),
    ],
)
def test_declarations_that_make_no_sense(given: Any, sentence: str) -> None:
    with pytest.raises((ValueError, TypeError), match=sentence):
        Rewards.read(given)


@pytest.mark.parametrize(("reward", "shown"), [(60, "60"), (-0.001, "-0.001"), (math.nan, "nan"), ("1", "'1'")])
def test_a_reward_out_of_range_is_named(reward: Any, shown: str) -> None:
    with pytest.raises(ValueError, match=f"reward must .*{shown}"):
        Rewards.read((0, 55)).check(reward)
    assert Rewards.read((0, 55)).check(np.int64(55)) == 55.0
