"""The recommendation, by the evidence that comes with the package."""

import json
from importlib.resources import files
from typing import Any

import pytest

import robandit
from robandit.experiments.arena.race import CONTENDERS, ENVIRONMENTS
from robandit.policies.recommend import evidence, recommend

PROBLEM: dict[str, Any] = {"dim": 5, "horizon": 3000, "noise_range": 0.5}


def rows(world: str) -> list[dict[str, Any]]:
    return evidence()["worlds"][world]


def test_the_evidence_is_a_whole_arena() -> None:
    held = json.loads(files("robandit.policies").joinpath("evidence.json").read_text(encoding="utf-8"))
    assert set(held["worlds"]) == set(ENVIRONMENTS)
    assert held["attacks"] == len(robandit.attacks.ON_ALL_TRAFFIC) - 1
    assert held["trials"] >= 200
    for world in ENVIRONMENTS:
        assert {row["label"] for row in rows(world)} == set(CONTENDERS)
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


@pytest.mark.parametrize("wrong", [{"dim": 0}, {"horizon": 0}, {"noise_range": -1.0}, {"sigma": -0.1}])
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        recommend(**PROBLEM | wrong)
