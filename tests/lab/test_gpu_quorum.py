"""Quorum's kernels against the policy: whole runs, choice for choice, and single votes of states that runs lead to."""

from __future__ import annotations

from functools import partial
from typing import Any

import interpreted  # noqa: F401  before the kernels are imported
import numpy as np
import pytest
from gpu_replay import replayed
from gpu_votes import State, by_kernel, by_policy, random_state, run_state

from robandit import Quorum
from robandit.lab import attacks, environments
from robandit.lab.protocol import Scenario
from robandit.policies import groups, quorum
from robandit.policies.groups import RoundGroups

pytestmark = pytest.mark.gpu
SMALL: dict[str, Any] = {"dim": 4, "actions": 5}
with_settings: Any = partial
CASES: dict[str, tuple[Any, Any, Any]] = {
    "turns at first, then one set that stays": (
        Quorum,
        environments.Paper(**SMALL, fresh_rounds=20),
        attacks.Flip(rounds=30),
    ),
    "turns on fresh sets, late": (
        with_settings(Quorum, regularization=2.0, width=1.0),
        environments.Fresh(**SMALL),
        attacks.Late(begin=20, budget=None),
    ),
    "a hidden σ, a target, more actions than features": (
        Quorum,
        environments.Fresh(dim=5, actions=18, hide_sigma=True, sigma_high=0.4),
        attacks.OracleTarget(target=2, budget=5.0),
    ),
    "clicks, a tolerance, no width": (
        with_settings(Quorum, tolerance=0.05, width=0.0),
        environments.Clicks(**SMALL),
        attacks.ClickFraud(share=0.4, owned=2, budget=None),
    ),
    "clicks of sources, of which one promotes": (
        Quorum,
        environments.Clicks(**SMALL, sources=4),
        attacks.SourcePromote(liars=1),
    ),
    "turns of sources that take turns, more than are told apart": (
        with_settings(Quorum, max_sources=2),
        environments.Paper(**SMALL, sources=4, skew=1.0, zeta=0.1, fresh_rounds=20),
        attacks.SourceSuppress(liars=2, begin=10, move_every=20),
    ),
}


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """How often spells begin and groups merge, where few rounds are enough for that."""
    monkeypatch.setattr(quorum, "_STRETCHES", 5)
    monkeypatch.setattr(quorum, "_OFTEN", 20)
    monkeypatch.setattr(quorum, "_SOON", 2)
    monkeypatch.setattr(groups, "_SHORTEST", 4)
    counted, turn, merge = {"turns": 0, "merges": 0}, RoundGroups.turn, RoundGroups.merge

    def turning(self: RoundGroups, *given: Any) -> None:
        before = self.now.sum()
        turn(self, *given)
        counted["turns"] += int(self.now.sum() - before)

    def merging(self: RoundGroups, trials: Any) -> Any:
        counted["merges"] += len(trials)
        return merge(self, trials)

    monkeypatch.setattr(RoundGroups, "turn", turning)
    monkeypatch.setattr(RoundGroups, "merge", merging)
    return counted


@pytest.mark.parametrize("name", CASES)
def test_the_cpu_would_have_done_the_same(name: str, seen: dict[str, int]) -> None:
    make, environment, attack = CASES[name]
    found = replayed(make, Scenario(environment, attack, range(3, 5)), rounds=60)
    print(f"{name}: {found}, {seen}")
    assert bool(seen["turns"]) == name.startswith("turns")
    assert seen["merges"] > 0 or "sources" in name
    assert found.behind < 1e-5  # where float32 chose another action, the two were as good as tied
    assert found.changed <= 0.05
    assert found.counts == 0  # votes, doubted sources, rewards that are not believed
    assert found.reward < 1e-5
    assert found.columns < 1e-4


def agree(state: State) -> None:
    ours, theirs = by_kernel(state), by_policy(state)
    for name, values in theirs.items():
        tolerance = 1e-4 if name in ("root", "mean") else 1e-7  # what rounds go on with is in single precision
        assert ours[name] == pytest.approx(values, abs=tolerance, rel=1e-5), name


@pytest.mark.parametrize("attack", ["flip", "late", "none"])
def test_a_vote_is_that_of_the_policy(attack: str) -> None:
    made = {"flip": attacks.Flip(rounds=60), "late": attacks.Late(begin=150, budget=None), "none": attacks.NoAttack()}
    for rounds in (90, 230):
        agree(run_state(environments.Fresh(dim=5, actions=6), made[attack], rounds))


def test_a_vote_of_sources_is_that_of_the_policy() -> None:
    world = environments.Fresh(dim=5, actions=6, sources=3, zeta=0.1)
    for attack in (attacks.SourceFlip(liars=1), attacks.SourceSuppress(liars=1, begin=60)):
        agree(run_state(world, attack, 170))


@pytest.mark.parametrize("sources", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_vote_of_liars_of_many_kinds_is_that_of_the_policy(seed: int, sources: int) -> None:
    state = random_state(seed, sources)
    agree(state)
    assert 0.0 < np.mean(by_policy(state)["weight"] == 1.0) < 1.0
