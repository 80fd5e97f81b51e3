"""A policy that learns from the decisions of another one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from robandit.policies import POLICIES
from robandit.policies.base import Policy
from robandit.policies.follow import follow


def made(name: str, seed: int, trials: int | None = None) -> Policy[Any]:
    kind: Any = POLICIES[name]
    known = {"corruption": 2.0, "horizon": 100}
    more = {one: value for one, value in known.items() if one in kind.__dataclass_fields__}
    return kind(dim=3, noise_range=0.5, seed=seed, trials=trials, **more)


@pytest.mark.no_cover
@pytest.mark.parametrize("trials", [None, 2])
@pytest.mark.parametrize("name", POLICIES)
def test_it_learns_and_its_rounds_are_those_of_the_other(name: str, trials: int | None) -> None:
    """And the same twice is the same, bit for bit. Without levels it is what `update` does."""
    rng = np.random.default_rng(3)
    other, first, second = made("oful", 1, trials), made(name, 2, trials), made(name, 2, trials)
    plain = made(name, 2, trials)
    for _ in range(12):
        actions = rng.uniform(-0.5, 0.5, (4, 3))
        decision = other.choose(actions, sigma=0.3)
        reward = rng.uniform(-0.5, 0.5, trials) if trials else float(rng.uniform(-0.5, 0.5))
        for one in (first, second):
            follow(one, decision, reward)
        if not plain.levels:
            plain.update(decision, reward)
    assert first.rounds == 12 and np.all(first.updates == 12)
    for name_, array in first.state()["arrays"].items():
        assert np.array_equal(array, second.state()["arrays"][name_], equal_nan=True)
        if not plain.levels:
            assert np.array_equal(array, plain.state()["arrays"][name_], equal_nan=True)
