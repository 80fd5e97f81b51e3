"""Rejection replay: unbiased where propensities are right, whatever they are; and the same log for the estimators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tables_to_replay import made_up

from robandit import Greedy
from robandit.lab.environments.decision_sets import DecisionSets, ReplayColumns, read_sets
from robandit.logs.evaluate import UNIFORM, evaluate
from robandit.logs.rejection import as_log, rejection_replay


def logged(decisions: int, chances: Any, seed: int = 1) -> tuple[DecisionSets, DecisionSets]:
    """Full feedback, and a log of it in which the action at each place was taken with these chances."""
    table = made_up(decisions)
    full = read_sets(table, ReplayColumns(features=["x0", "x1"]))
    taken = np.random.default_rng(seed).choice(4, decisions, p=chances)
    rows, reward, p = 4 * np.arange(decisions) + taken, np.full(4 * decisions, np.nan), np.full(4 * decisions, np.nan)
    reward[rows], p[rows] = full.rewards[rows], np.asarray(chances)[taken]
    columns = ReplayColumns(features=["x0", "x1"], propensity="p")
    return full, read_sets(table | {"reward": reward, "p": p}, columns)


@pytest.mark.no_cover
@pytest.mark.parametrize("chances", [[0.25] * 4, [0.1, 0.2, 0.3, 0.4]])
def test_a_policy_that_plays_at_random_earns_what_uniform_play_does(chances: list[float]) -> None:
    full, log = logged(2000, chances)
    policy = Greedy(dim=3, noise_range=1.0, exploration=1.0, trials=8, seed=2)
    found = rejection_replay(log, policy, seed=3)
    assert abs(found.rewards.mean() - full.rewards.mean()) < 5 * (0.25 / found.kept.sum()) ** 0.5 + 0.02
    expected = 2000 * 0.25 * min(chances) * 4  # one in K agrees, and of those (least p)/p are kept
    assert abs(found.kept.mean() - expected) < 5 * (expected / 8) ** 0.5 + 10


@pytest.mark.no_cover
def test_a_policy_that_learns_beats_what_was_done() -> None:
    full, log = logged(2000, [0.25] * 4)
    found = rejection_replay(log, Greedy(dim=3, noise_range=1.0, exploration=0.1, trials=4, seed=2), seed=3)
    best = full.value(full.vectors @ np.array([1.0, -0.5, 0.0]))
    assert full.rewards.mean() + 0.1 < found.rewards.mean() < best + 0.05
    (row,) = [one for one in evaluate(as_log(log), [UNIFORM]).rows if one.estimator == "IPS"]
    assert row.value.low < full.rewards.mean() < row.value.high


def test_the_same_seed_keeps_the_same_rounds() -> None:
    _, log = logged(200, [0.25] * 4)
    first, again = (
        rejection_replay(log, Greedy(dim=3, noise_range=1.0, trials=3, seed=2), seed=3).kept.tolist() for _ in range(2)
    )
    assert first == again and len(set(first)) > 1


BAD: list[tuple[dict[str, Any], str]] = [
    ({"reward": [1.0, 1.0, None, 0.0]}, "one action of each set has a reward; the decision of row 0 has 2"),
    ({"reward": [None, None, None, 0.0]}, "the decision of row 0 has 0"),
    ({"p": [0.0, None, None, 0.5]}, "p must be above 0 and at most 1"),
]


@pytest.mark.parametrize(("bad", "message"), BAD)
def test_logs_that_can_not_be(bad: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"round": [1, 1, 2, 2], "x": [1.0, 2.0, 3.0, 4.0]}
    good |= {"reward": [1.0, None, None, 0.0], "p": [0.5, None, None, 0.5]}
    columns = ReplayColumns(features=["x"], propensity="p")
    assert len(read_sets(good, columns)) == 2
    with pytest.raises(ValueError, match=message):
        read_sets(good | bad, columns)
