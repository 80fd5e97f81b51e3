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
from robandit.policies.recommend import RADIUS, RIDGE, THRESHOLD, evidence, recommend

# In the arena since the evidence was made; the next full race brings them in.
NEW_WORLDS = {
    "short parameter",
    "clicks",
    "clicks on one set",
    "clicks from ten sources",
    "noise from ten sources",
}
NEW_POLICIES = {"Discounted LinUCB 0.99", "Discounted LinUCB 0.995", "OFUL told the liars", "Quorum"}
NEW_POLICIES |= {"Quorum told the liars"}
PROBLEM: dict[str, Any] = {"dim": 5, "horizon": 3000, "noise_range": 0.5}


def rows(world: str) -> list[dict[str, Any]]:
    return evidence()["worlds"][world]


def test_the_evidence_is_a_whole_arena() -> None:
    held = json.loads(files("robandit.policies").joinpath("evidence.json").read_text(encoding="utf-8"))
    assert set(held["worlds"]) == set(ENVIRONMENTS) - NEW_WORLDS
    assert held["attacks"] == len(robandit.attacks.ON_ALL_TRAFFIC) - 1
    assert held["trials"] >= 200
    for world in held["worlds"]:
        assert {row["label"] for row in rows(world)} == set(CONTENDERS) - NEW_POLICIES
        means = [row["attacked"][0] for row in rows(world)]
        assert means == sorted(means)


@pytest.mark.parametrize(
    ("sigma", "fixed", "world"),
    [
        (0.05, False, "fresh sets"),
        (0.05, True, "fixed after 100 rounds"),
        (0.15, True, "varying noise"),
        (None, False, "varying noise"),
        (0.5, False, "varying noise"),
    ],
)
def test_the_first_of_the_nearest_world_that_is_not_told(sigma: float | None, fixed: bool, world: str) -> None:
    choice = recommend(**PROBLEM, sigma=sigma, fixed_sets=fixed)
    first = next(row for row in rows(world) if not row["told"])
    assert robandit.policies.POLICIES[first["settings"]["name"]] is choice.policy
    assert world in choice.reason and first["label"] in choice.reason and first["where"] in choice.reason
    policy = choice.make(seed=3)
    policy.update(policy.choose([[0.1] * 5, [0.2] * 5]), 0.1)
    for name, value in first["settings"].items():
        assert name == "name" or getattr(policy, name) == value


@pytest.mark.parametrize("rewards", ["clicks", (0, 55), robandit.Rewards(highest_mean=0.2)])
def test_clicks_and_rewards_as_noisy_get_a_practical_radius(rewards: Any) -> None:
    choice = recommend(dim=5, horizon=3000, rewards=rewards, sources=2, typical_norm=0.5)
    policy = choice.make(seed=3)
    assert isinstance(policy, robandit.CWOFUL) and "benchmarks/clicks.py" in choice.reason
    assert (policy.threshold, policy.radius, policy.regularization) == (THRESHOLD, RADIUS, RIDGE * 0.25)
    assert policy.reach >= 1.0  # so that no share of the range is clipped
    assert recommend(dim=5, horizon=3000, rewards=rewards).make(seed=3).regularization == 1.0


@pytest.mark.parametrize("rewards", [{"rewards": "clicks"}, {"rewards": (0, 55), "sigma": 1.0}, {"noise_range": 0.5}])
def test_three_sources_vote(rewards: Any) -> None:
    choice = recommend(dim=5, horizon=3000, sources=3, parameter_bound=2.0, **rewards)
    policy = choice.make(seed=3)
    assert isinstance(policy, robandit.Quorum) and "3 sources can outvote one" in choice.reason
    assert policy.parameter_bound == 2.0 and policy.noise_range == rewards.get("noise_range", 1.0)


@pytest.mark.parametrize(("sigma", "policy"), [(None, "CWOFUL"), (6.0, "CWOFUL"), (5.0, "Sceptic"), (0.0, "Sceptic")])
def test_rewards_of_little_noise_go_by_the_arena(sigma: float | None, policy: str) -> None:
    """A standard deviation of up to a tenth of the range is little."""
    choice = recommend(dim=5, horizon=3000, rewards=(10, 60), sigma=sigma, parameter_bound=2.0)
    assert choice.policy.__name__ == policy and choice.settings["noise_range"] == 1.0
    assert choice.make(seed=1).parameter_bound == 2.0


def visits(number: int, noise: float | None) -> pd.DataFrame:
    """A history of clicks, or of rewards 10 … 30 with this noise."""
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"price": rng.uniform(0, 50, number), "shop": rng.choice(["a", "b", "c"], number)})
    worth = 0.6 - 0.01 * frame["price"]
    frame["reward"] = rng.random(number) < worth if noise is None else 20 + 10 * worth + rng.normal(0, noise, number)
    return frame


def test_a_history_says_most_of_it() -> None:
    assert recommend(history=visits(500, None), reward="reward", source="shop").policy is robandit.Quorum
    clicks = recommend(history=visits(500, None), reward="reward", source="shop", sources=1)
    assert clicks.policy is robandit.CWOFUL
    assert clicks.settings["dim"] == 2 and clicks.settings["horizon"] == 500  # the price and a constant
    rows = Features.fit(visits(500, None), reward="reward", source="shop").rows(visits(500, None))
    assert clicks.settings["regularization"] == pytest.approx(RIDGE * np.mean(np.sum(rows**2, axis=1)))
    quiet = recommend(history=visits(500, 0.1), reward="reward", horizon=9, rewards=(0, 40))
    assert quiet.policy is robandit.Sceptic
    loud = recommend(history=visits(500, 3.0), reward="reward", features=Features(action={"price": (0, 50)}))
    assert loud.policy is robandit.CWOFUL and loud.settings["dim"] == 2


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


@pytest.mark.parametrize("wrong", [{"dim": 0}, {"horizon": 0}, {"noise_range": -1.0}, {"sigma": -0.1}])
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        recommend(**PROBLEM | wrong)
