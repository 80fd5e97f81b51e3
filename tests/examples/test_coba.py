"""Our policies play in coba's evaluator as they do outside it."""

from __future__ import annotations

import importlib.util
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robandit

coba = pytest.importorskip("coba")

EXAMPLE = Path(__file__).parents[2] / "examples" / "coba_learner.py"
SETTINGS: dict[str, Any] = {"noise_range": 0.1, "action_bound": sqrt(6.0), "seed": 5, "exploration": 0.2}
OURS = [
    (robandit.OFUL, {}),
    (robandit.MultiLevelWeightedOFUL, {"horizon": 40, "radius_scale": 0.01}),
]


@pytest.fixture(scope="module")
def example() -> Any:
    spec = importlib.util.spec_from_file_location("coba_learner", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def environment(context_features: int = 0) -> Any:
    return coba.Environments.from_linear_synthetic(
        40, n_actions=4, n_context_features=context_features, n_action_features=5, seed=2
    )


def evaluated(learner: Any, environments: Any) -> list[dict[str, Any]]:
    """Every interaction as coba's evaluator saw it; an experiment's result would be rounded."""
    record = ["context", "actions", "action", "reward", "probability"]
    return list(coba.SequentialCB(record=record).evaluate(environments[0], learner))


@pytest.mark.parametrize(("kind", "settings"), OURS)
def test_decisions_and_propensities_are_those_of_the_bare_policy(example: Any, kind: Any, settings: Any) -> None:
    rows = evaluated(example.RobanditLearner(kind, features=[1, "a"], **SETTINGS, **settings), environment())
    bare = kind(dim=6, **SETTINGS, **settings)
    assert len(rows) == 40
    for row in rows:
        shown = np.array([[1.0, *action] for action in row["actions"]])
        decision = bare.choose(shown, propensity=True)
        assert list(row["actions"][decision.index]) == list(row["action"])
        assert row["probability"] == decision.propensity
        bare.update(decision, row["reward"])


def test_features_may_be_crossed_with_the_context(example: Any) -> None:
    learner = example.RobanditLearner(robandit.OFUL, features=["a", "xa"], noise_range=0.1, action_bound=5.0, seed=1)
    rows = evaluated(learner, environment(context_features=2))
    bare = robandit.OFUL(dim=15, noise_range=0.1, action_bound=5.0, seed=1)
    for row in rows:
        shown = np.array([[*a, *np.outer(row["context"], a).ravel()] for a in row["actions"]])
        decision = bare.choose(shown)
        assert list(row["actions"][decision.index]) == list(row["action"])
        bare.update(decision, row["reward"])


def test_scores_are_a_distribution_and_interactions_may_come_in_batches(example: Any) -> None:
    learner = example.RobanditLearner(robandit.OFUL, features=[1, "a"], **SETTINGS)
    assert len(evaluated(learner, environment().batch(8))) == 40
    actions = [[0.1, 0.2, 0.3, 0.4, 0.5], [0.5, 0.4, 0.3, 0.2, 0.1], [0.0, 0.0, 0.0, 0.0, 0.0]]
    scores = [learner.score(None, actions, action) for action in actions]
    assert sum(scores) == pytest.approx(1.0)
    assert min(scores) == pytest.approx(0.2 / 3)


def test_what_others_chose_is_learnt_as_a_warm_start(example: Any) -> None:
    actions, rewards = [[0.3, 0.1], [0.2, 0.7]], [0.4, 0.9]
    learner = example.RobanditLearner(robandit.OFUL, noise_range=0.1, seed=1)
    for action, reward in zip(actions, rewards, strict=True):
        learner.learn(None, action, reward, 0.5)
    bare = robandit.OFUL(dim=2, noise_range=0.1, seed=1)
    bare.warm_start(actions, rewards)
    assert learner.score(None, actions, actions[0]) == bare.propensities(actions)[0]


@pytest.mark.no_cover
def test_the_example_runs(example: Any, capsys: pytest.CaptureFixture[str]) -> None:
    example.main(interactions=100)
    lines = capsys.readouterr().out.splitlines()[1:]
    rewards = {line.split()[0]: float(line.split()[1]) for line in lines}
    assert rewards.keys() == {"OFUL", "MultiLevelWeightedOFUL", "LinUCB", "Random"}
    assert min(rewards["OFUL"], rewards["MultiLevelWeightedOFUL"]) > rewards["Random"] + 0.1
