"""One truth: what a kernel draws and does is replayed by the CPU's policies, attacks and ledger, choice for choice."""

from __future__ import annotations

from functools import partial
from typing import Any

import interpreted  # noqa: F401  before the kernels are imported
import numpy as np
import pytest
from gpu_replay import Rounds, replayed
from scipy import stats

from robandit import CWOFUL, OFUL, Greedy, MultiLevelWeightedOFUL, RobustWeightedOFUL, WeightedOFUL
from robandit.lab import attacks, environments
from robandit.lab.gpu.kernels import cascade
from robandit.lab.gpu.launch import Device, play
from robandit.lab.gpu.plan import plan
from robandit.lab.protocol import LABELLED, REALISED, Scenario

pytestmark = pytest.mark.gpu
SMALL: dict[str, Any] = {"dim": 4, "actions": 5}
with_settings: Any = partial

CASES: dict[str, tuple[Any, Any, Any]] = {
    "fresh sets, then one that stays": (
        with_settings(WeightedOFUL, radius_scale=0.02),
        environments.Paper(**SMALL),
        attacks.Flip(rounds=15),
    ),
    "one set": (partial(OFUL, radius_scale=0.3), environments.Paper(**SMALL), attacks.NoAttack()),
    "OFUL on fresh sets, a fixed radius": (
        with_settings(OFUL, radius=0.4),
        environments.Fresh(**SMALL),
        attacks.Periodic(every=3, budget=4.0),
    ),
    "two-point noise, random flips": (
        Greedy,
        environments.Heteroscedastic(**SMALL, parameter="random"),
        attacks.RandomFlips(probability=0.4, budget=3.0),
    ),
    "a labelled corruption": (
        with_settings(RobustWeightedOFUL, radius_scale=0.02, corruption=LABELLED),
        environments.Fresh(**SMALL, sigma_high=0.5),
        attacks.Late(begin=10, budget=5.0),
    ),
    "a realised corruption": (
        with_settings(RobustWeightedOFUL, radius_scale=0.02, corruption=REALISED),
        environments.Paper(**SMALL),
        attacks.Flip(rounds=8),
    ),
    "CW-OFUL, told each trial's corruption": (
        with_settings(CWOFUL, radius_scale=0.1, corruption=REALISED),
        environments.Paper(**SMALL),
        attacks.SuppressBest(budget=4.0),
    ),
    "CW-OFUL, unknown corruption": (
        with_settings(CWOFUL, radius_scale=0.1),
        environments.Fresh(**SMALL, longest=0.9, shortest=0.3),
        attacks.OracleTarget(budget=6.0),
    ),
    "a hidden σ, a target": (
        with_settings(WeightedOFUL, radius_scale=0.02, clip_rewards=False),
        environments.Fresh(**SMALL, hide_sigma=True, sigma_high=0.4),
        attacks.OracleTarget(target=2, budget=3.0),
    ),
    "clicks and click fraud": (
        with_settings(OFUL, radius_scale=0.2),
        environments.Clicks(dim=4, actions=5),
        attacks.ClickFraud(share=0.4, owned=2, budget=5.0),
    ),
    "clicks for Greedy, in bursts": (
        Greedy,
        environments.Bernoulli(**SMALL),
        attacks.Bursts(period=8, length=3, budget=None),
    ),
}
LEVELS: dict[str, tuple[Any, Any, Any]] = {
    "no lies": (
        with_settings(MultiLevelWeightedOFUL, radius_scale=0.01),
        environments.Paper(**SMALL),
        attacks.NoAttack(),
    ),
    "lies at first, and empty sets": (
        with_settings(MultiLevelWeightedOFUL, radius_scale=0.002),
        environments.Paper(**SMALL),
        attacks.Flip(rounds=10),
    ),
    "lies on fresh sets": (
        with_settings(MultiLevelWeightedOFUL, radius_scale=0.002),
        environments.Fresh(**SMALL),
        attacks.SuppressBest(budget=4.0),
    ),
    "lies, and hardly a set that is not empty": (
        with_settings(MultiLevelWeightedOFUL, radius_scale=1e-4),
        environments.Paper(**SMALL),
        attacks.Flip(rounds=6),
    ),
    "lies, and sizes that four does not divide": (
        with_settings(MultiLevelWeightedOFUL, radius_scale=0.002),
        environments.Paper(dim=5, actions=18),
        attacks.Flip(rounds=8),
    ),
    "lies, and the paper's sizes": (
        with_settings(MultiLevelWeightedOFUL, radius_scale=0.004),
        environments.Paper(),
        attacks.Flip(rounds=3),
    ),
}


@pytest.mark.parametrize("name", LEVELS)
def test_levels_intersections_and_the_cascade_are_those_of_the_cpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    kernel: Any = vars(cascade)["best_first"]

    def counted(*given: Any) -> Any:
        searched.append(1)
        return kernel(*given)

    monkeypatch.setattr(cascade, "best_first", counted)
    make, environment, attack = LEVELS[name]
    found = replayed(make, Scenario(environment, attack, range(2)), rounds=20)
    print(f"{name}: {found}, {len(searched)} searches")
    assert bool(searched) == name.startswith("lies")  # where bounds don't decide
    assert found.climbed > 0 or "empty" not in name
    assert found.behind < 1e-4
    assert found.changed <= 0.05
    assert found.reward < 1e-5
    assert found.columns < 1e-4


@pytest.mark.parametrize("name", CASES)
def test_the_cpu_would_have_done_the_same(name: str) -> None:
    make, environment, attack = CASES[name]
    found = replayed(make, Scenario(environment, attack, range(3, 5)), rounds=30)
    print(f"{name}: {found}")
    assert found.behind < 1e-5  # where float32 chose another action, the two were as good as tied
    assert found.changed <= 0.05
    assert found.reward < 1e-5
    assert found.columns < 1e-4


def test_worlds_have_the_distributions_of_the_lab() -> None:
    environment = environments.Fresh(**SMALL, noise_range=5.0, sigma_low=0.1, sigma_high=0.4)
    what = plan(Greedy, Scenario(environment, attacks.NoAttack(), [0]), 40, seed=1, record=True)
    device = Device.find()
    batch = play(what, range(7, 10), 40, 1, np.array([40]), device).record.cpu().numpy().astype(float)
    alone = play(what, range(8, 9), 40, 1, np.array([40]), device).record.cpu().numpy().astype(float)
    assert np.array_equal(batch[1:2], alone)  # a trial's world does not depend on the batch
    seen = Rounds.read(batch, what)
    entries = seen.actions.ravel()
    assert len(np.unique(entries)) > 0.999 * entries.size  # nothing is drawn twice
    assert stats.kstest(entries * 2.0, stats.uniform(-1.0, 2.0).cdf).pvalue > 1e-3  # ±1/√4
    assert stats.kstest(seen.sigma.ravel(), stats.uniform(0.1, 0.3).cdf).pvalue > 1e-3
    assert stats.kstest((seen.noise[:, :, 0] / seen.sigma).ravel(), stats.norm.cdf).pvalue > 1e-3
    assert stats.kstest(seen.coin.ravel(), stats.uniform.cdf).pvalue > 1e-3
    neighbours = np.corrcoef(seen.actions[:, 1:].ravel(), seen.actions[:, :-1].ravel())[0, 1]
    assert abs(neighbours) < 4.0 / entries.size**0.5
