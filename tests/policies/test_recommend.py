"""The recommendation, by the evidence that comes with the package."""

import json
from importlib.resources import files
from typing import Any

import numpy as np
import pandas as pd
import pytest

import robandit
from robandit import Features
from robandit.experiments.arena.race import CONTENDERS
from robandit.experiments.arena.worlds import ENVIRONMENTS
from robandit.policies.history import residual
from robandit.policies.recommend import evidence, recommend

PROBLEM: dict[str, Any] = {"dim": 5, "noise_range": 0.5}


def rows(world: str) -> list[dict[str, Any]]:
    return evidence()["worlds"][world]


def test_the_evidence_is_a_whole_arena() -> None:
    held = json.loads(files("robandit.policies").joinpath("evidence.json").read_text(encoding="utf-8"))
    assert set(held["worlds"]) == set(ENVIRONMENTS)
    assert held["attacks"] == len(robandit.attacks.ON_ALL_TRAFFIC) - 1
    assert held["trials"] >= 200
    for world in held["worlds"]:
        assert {row["label"] for row in rows(world)} == set(CONTENDERS)
        means = [row["attacked"][0] for row in rows(world)]
        assert means == sorted(means)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("known", "world"),
    [
        ({"noise_range": 0.5, "sigma": 0.05}, "fresh sets"),
        ({"noise_range": 0.5, "sigma": 0.05, "fixed_sets": True}, "fixed after 100 rounds"),
        ({"noise_range": 0.5, "sigma": 0.15, "fixed_sets": True}, "varying noise"),
        ({"noise_range": 0.5, "sigma": 0.15, "sources": 1}, "varying noise"),
        ({"noise_range": 0.5}, "varying noise"),
        ({"noise_range": 0.5, "sources": 2}, "noise from ten sources"),
        ({"rewards": "clicks"}, "clicks"),
        ({"rewards": (0, 55), "sigma": 6.0}, "clicks"),
        ({"rewards": (0, 55), "sigma": 5.0}, "fresh sets"),
        ({"rewards": "clicks", "fixed_sets": True}, "clicks on one set"),
        ({"rewards": "clicks", "sources": 3, "fixed_sets": True}, "clicks from ten sources"),
        ({"rewards": (10, 60), "sigma": 0.0, "sources": 3}, "noise from ten sources"),
    ],
)
def test_the_answer_is_quorum_and_the_reason_from_the_nearest_world(known: dict[str, Any], world: str) -> None:
    choice = recommend(dim=5, **known)
    told_nothing = [row for row in rows(world) if not row["told"]]
    ours = next(row for row in told_nothing if row["label"] == "Quorum")
    first, second = told_nothing[:2]
    rival = second if first is ours else first
    for said in (f"“{world}”", ours["where"], f"{ours['attacked'][0]:.2f}", f"{ours['price'][0]:.2f}", rival["label"]):
        assert said in choice.reason
    assert f"number {told_nothing.index(ours) + 1} of {len(told_nothing)}" in choice.reason
    assert ("source=" in choice.reason) == ("sources" not in known)
    policy = choice.make(seed=3)
    assert isinstance(policy, robandit.Quorum)
    policy.update(policy.choose([[0.1] * 5, [0.2] * 5]), 0.1)


def test_where_another_policy_was_ahead_the_reason_says_so() -> None:
    choice = recommend(dim=5, rewards="clicks", fixed_sets=True)
    assert "number 12 of 18" in choice.reason and "the first is Robust LinTS with 1.67" in choice.reason


@pytest.mark.parametrize("rewards", [{"rewards": "clicks"}, {"rewards": (0, 55), "sigma": 1.0}, {"noise_range": 0.5}])
def test_the_settings_are_those_of_the_problem(rewards: Any) -> None:
    policy = recommend(dim=5, parameter_bound=2.0, **rewards).make(seed=3)
    assert policy.parameter_bound == 2.0 and policy.noise_range == rewards.get("noise_range", 1.0)
    assert "noise_range" in rewards or policy.reach >= 1.0  # so that no share of the range is clipped


@pytest.mark.parametrize(("sources", "told_apart"), [(None, 32), (0, 32), (4, 32), (33, 33), (500, 500)])
def test_all_sources_that_are_told_are_told_apart(sources: int | None, told_apart: int) -> None:
    assert recommend(**PROBLEM, sources=sources).make().max_sources == told_apart  # type: ignore[attr-defined]


def visits(number: int, noise: float | None) -> pd.DataFrame:
    """A history of clicks, or of rewards 10 … 30 with this noise."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"price": rng.uniform(0, 50, number), "shop": rng.choice(["a", "b", "c"], number)})
    worth = 0.6 - 0.01 * frame["price"]
    frame["reward"] = rng.random(number) < worth if noise is None else 20 + 10 * worth + rng.normal(0, noise, number)
    return frame


def test_a_history_says_most_of_it() -> None:
    clicks = recommend(history=visits(500, None), reward="reward", source="shop")
    assert "clicks from ten sources" in clicks.reason and clicks.settings["dim"] == 2  # the price and a constant
    assert "“clicks”" in recommend(history=visits(500, None), reward="reward", source="shop", sources=1).reason
    quiet = recommend(history=visits(500, 0.1), reward="reward", rewards=(0, 40))
    assert "fresh sets" in quiet.reason and quiet.settings["noise_range"] == 1.0
    loud = recommend(history=visits(500, 3.0), reward="reward", features=Features(action={"price": (0, 50)}))
    assert "“clicks”" in loud.reason and loud.settings["dim"] == 2


def test_the_noise_of_a_history_is_what_a_linear_model_leaves() -> None:
    rng = np.random.default_rng(1)
    rows = np.column_stack([rng.normal(size=(4000, 3)), np.zeros(4000), np.ones(4000)])
    assert residual(rows, rows @ [1.0, -2.0, 0.5, 0.0, 3.0] + rng.normal(0, 0.3, 4000)) == pytest.approx(0.3, rel=0.05)
    assert residual(rows[:3], rng.normal(size=3)) is None


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, r"name the column of the rewards: reward='…'; there are price, reward, shop"),
        ({"reward": "click"}, "no column 'click'"),
        ({"reward": "reward", "rewards": (0, 5)}, r"reward must lie in the declared range from 0 to 5, got 19.6"),
    ],
)
def test_a_history_that_makes_no_sense(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        recommend(history=visits(50, 1.0), **given)


def test_a_history_without_rewards_or_spread() -> None:
    frame = visits(20, None)
    with pytest.raises(ValueError, match="reward is 7 in all rows: declare the range"):
        recommend(history=frame.assign(reward=7.0), reward="reward")
    with pytest.raises(ValueError, match="row 3: reward is missing; leave out rows without a reward"):
        recommend(history=frame.assign(reward=[0.0] * 3 + [None] * 17), reward="reward")


@pytest.mark.parametrize("wrong", [{"dim": 0}, {"sources": -1}, {"noise_range": -1.0}, {"sigma": -0.1}])
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        recommend(**PROBLEM | wrong)
