"""What a GPU plays, what it refuses, and that its numbers are the policies' own. None of this needs PyTorch."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robandit import CWOFUL, OFUL, Greedy, MultiLevelWeightedOFUL, Quorum, RobustWeightedOFUL, WeightedOFUL, cli
from robandit.errors import ConfigError
from robandit.lab import attacks, environments
from robandit.lab.gpu import quorum
from robandit.lab.gpu.plan import LEVERAGE, Plan, PolicyNumbers, plan
from robandit.lab.gpu.quorum import QuorumNumbers, most_lanes, spans, vote_rounds
from robandit.lab.gpu.worlds import WorldNumbers
from robandit.lab.plan import Run
from robandit.lab.protocol import REALISED, Scenario, simulate
from robandit.policies import quorum as policy_file
from robandit.policies import radius

PAPER = environments.Paper(dim=4, actions=5)


def planned(make: Any, environment: Any = PAPER, attack: Any = None) -> Plan:
    return plan(make, Scenario(environment, attack or attacks.NoAttack(), [0]), rounds=50, seed=1)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"policies": ["lin-ts"]}, "LinTS runs on the CPU: leave out --device"),
        ({"policies": [{"name": "oful", "exploration": 0.1}]}, "OFUL with exploration runs on the CPU"),
        ({"policies": [{"name": "quorum", "exploration": 0.1}]}, "Quorum with exploration runs on the CPU"),
        ({"environments": ["drift"]}, "an environment with drift="),
        ({"environments": ["delayed"]}, "an environment with mean_delay=10.0"),
        ({"environments": ["per-action-noise"]}, "an environment with per_action=True"),
        ({"environments": [{"name": "paper", "dim": 33}]}, "more than 32 features, actions or sources"),
        ({"environments": [{"name": "clicks", "sources": 33}]}, "more than 32 features, actions or sources"),
        (
            {"environments": [{"name": "clicks", "sources": 5}], "attacks": [{"name": "source-promote", "first": 7}]},
            "first must be below the number of sources, 5, got 7",
        ),
        ({"attacks": ["ace"]}, "the attack ACE runs on the CPU"),
        ({"environments": [{"name": "clicks", "sources": 5}], "attacks": ["framing"]}, "the attack Framing runs on"),
        ({"monitor": True}, "a monitor runs on the CPU"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"precision": "float64"}, "precision is float32 on cuda and float64 on the CPU"),
        (
            {"policies": [{"name": "robust-weighted-oful", "corruption": "realised"}], "attacks": ["oracle-target"]},
            "the realised corruption of OracleTarget depends on the policy; give a number",
        ),
    ],
)
def test_what_a_gpu_can_not_play_is_refused_before_the_run(config: dict[str, Any], why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        Run.read({"policies": ["oful"], "device": "cuda"} | config)


def test_device_and_precision_are_in_the_configuration() -> None:
    run = Run.read({"policies": ["oful"], "device": "cuda"})
    assert (run.plain()["device"], run.plain()["precision"]) == ("cuda", "float32")
    assert Run.read(run.plain()) == run
    assert "device" not in Run.read({"policies": ["oful"]}).plain()  # so that results of older versions are known again


def test_radii_are_those_of_the_policy() -> None:
    found = planned(partial(WeightedOFUL, radius_scale=0.1))
    policy = WeightedOFUL(dim=4, noise_range=0.5, radius_scale=0.1, trials=1, seed=0)
    assert found.radii[1:] == pytest.approx([float(policy.radii(np.array([t]))[0]) for t in range(1, 51)], rel=1e-12)


def test_the_radius_of_oful_is_that_of_the_policy() -> None:
    learner = planned(partial(OFUL, radius_scale=0.3, regularization=2.0)).learner
    policy = OFUL(dim=4, noise_range=0.5, radius_scale=0.3, regularization=2.0, trials=1, seed=0)
    for growth in (0.0, 3.7):
        log_det = np.array([4 * np.log(2.0) + growth])
        ours = learner.slope * (growth + learner.inside) ** 0.5 + learner.bias
        assert ours == pytest.approx(policy.radii(log_det)[0], rel=1e-12)


@pytest.mark.parametrize("kind", [RobustWeightedOFUL, CWOFUL])
def test_a_realised_corruption_adds_what_the_policy_would_add(kind: Any) -> None:
    found = planned(partial(kind, corruption=REALISED, radius_scale=0.2), attack=attacks.Flip(rounds=5))
    assert found.by_corruption is not None
    more, threshold = found.by_corruption(np.array([0.0, 3.0, 7.5]))
    told = [planned(partial(kind, corruption=c, radius_scale=0.2)) for c in (0.0, 3.0, 7.5)]
    assert found.radii[7] + more == pytest.approx([one.radii[7] for one in told], rel=1e-12)
    assert threshold == pytest.approx([one.threshold for one in told], rel=1e-12)


def test_weights_and_rounds_are_those_of_the_scenario() -> None:
    found = planned(CWOFUL, attack=attacks.Flip(rounds=7))
    assert found.policy_kind.weights == LEVERAGE
    setting = CWOFUL(dim=4, noise_range=0.5, horizon=50, trials=1, seed=0).constants(0.05)
    assert found.threshold == pytest.approx(float(radius.cw_threshold(setting, 14 * 1.5)))  # labelled C = 2k, R + 1
    assert found.when.tolist() == [0] + 7 * [1] + 43 * [0]
    assert planned(Greedy, environments.Paper(dim=4).facing(attacks.Flip(rounds=7))).fresh == 7
    assert planned(Greedy, environments.Fresh()).fresh == 50


def test_a_round_with_lies_names_the_first_source_that_lies() -> None:
    world, attack = (
        environments.Clicks(sources=5),
        attacks.SourcePromote(liars=2, first=3, begin=2, move_every=3, end=8),
    )
    found = planned(Greedy, world, attack)
    assert (found.world_kind.sources, found.world_kind.liars, found.world_kind.leans) == (5, 2, 0)
    assert found.when.tolist()[:10] == [0, 0, 4, 4, 1, 1, 1, 3, 3, 0]  # sources 3 and 4, then 0 and 1, then 2 and 3
    assert not found.when[9:].any()
    alone = planned(Greedy, environments.Clicks(), attack)  # without sources everybody lies
    assert (alone.world_kind.sources, alone.world_kind.liars) == (0, 0)
    assert alone.when.tolist()[:10] == [0, 0, *(7 * [1]), 0]
    assert planned(Greedy, environments.Clicks(sources=3, zeta=0.1)).world_kind.leans == 3


def test_kernels_find_the_numbers_in_this_order() -> None:
    """Their places are written beside the kernels, which can't be imported without Triton."""
    folder = Path(sys.modules["robandit.lab.gpu"].__path__[0]) / "kernels"
    files = {"world.py": WorldNumbers._fields, "ellipsoid.py": PolicyNumbers._fields}
    files["quorum.py"] = QuorumNumbers._fields
    for file, fields in files.items():
        lines = (folder / file).read_text(encoding="utf-8").splitlines()
        for place, name in enumerate(fields):
            assert f"{name.upper()} = tl.constexpr({place})" in lines
    assert f"ENDS = tl.constexpr({len(WorldNumbers._fields)})" in (folder / "world.py").read_text(encoding="utf-8")


def test_the_rows_of_a_quorum_s_memory_are_those_of_the_kernels() -> None:
    folder = Path(sys.modules["robandit.lab.gpu"].__path__[0])
    lines = (folder / "kernels" / "groups.py").read_text(encoding="utf-8").splitlines()
    rows = {"WHOLES": quorum._WHOLES, "STANDINGS": quorum._STANDINGS, "SINGLES": quorum._SINGLES}
    rows |= {"REALS": quorum._REALS, "SPREAD": quorum._SPREAD, "NOISE": quorum._NOISE}
    assert all(f"{name} = tl.constexpr({place})" in lines for name, place in rows.items())


def test_a_gpu_machine_needs_no_pyarrow_and_no_joblib() -> None:
    code = "import robandit.lab.gpu.launch, sys; print(*{'pyarrow', 'joblib', 'torch', 'scipy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


def test_radii_of_levels_are_those_of_the_policy() -> None:
    found = planned(partial(MultiLevelWeightedOFUL, radius_scale=0.01))
    policy = MultiLevelWeightedOFUL(dim=4, noise_range=0.5, horizon=50, radius_scale=0.01, trials=1, seed=0)
    assert found.levels is not None and found.policy_kind.levels == policy.levels == 7
    for t, level in ((1, 1), (20, 3), (50, 7)):
        object.__setattr__(policy, "_updates", np.array([t - 1]))
        wanted = [radius(np.array([level]), np.array([0]))[0] for radius in (policy.beta, policy.gamma)]
        ours = found.radii[t] + found.levels.steps[0, level], found.levels.gammas[t] + found.levels.steps[1, level]
        assert ours == pytest.approx(wanted, rel=1e-12)


def test_trials_vote_when_the_policy_does() -> None:
    at = np.arange(1, 131)
    scenario = Scenario(environments.Fresh(dim=3, actions=4), attacks.NoAttack(), [0])
    told = simulate(policy=Quorum, scenarios=[scenario], rounds=130, seed=1, at=at).info["votes"][:, 0]
    assert vote_rounds(130) == (1 + np.flatnonzero(np.diff(told))).tolist()  # told before the round's own vote
    between = [late - early for early, late in pairwise(vote_rounds(10_000))]
    assert (min(between), max(between)) == (policy_file._SOON, policy_file._LATE)


@pytest.mark.parametrize("fresh", [0, 1, 7, 8, 50])
def test_launches_play_every_round_once_and_stop_where_sets_stay(fresh: int) -> None:
    found = spans(50, fresh)
    assert [t for begin, end, _ in found for t in range(begin, end + 1)] == list(range(1, 51))
    assert [end for _, end, votes in found if votes] == vote_rounds(50)
    assert not any(begin <= fresh < end for begin, end, _ in found)


def test_a_quorum_has_the_numbers_of_the_policy() -> None:
    found = planned(partial(Quorum, width=1.2, tolerance=0.1, regularization=2.0)).quorum
    assert found is not None
    assert found.numbers == QuorumNumbers(range=0.5, width=1.2, lam=2.0, tolerance=0.1)
    assert planned(Quorum).learner.floor == pytest.approx(0.02)  # 4 % of R


def test_a_quorum_with_many_sources_plays_fewer_trials_at_a_time() -> None:
    few, many = (planned(Quorum, environments.Fresh(dim=20, sources=sources)).quorum for sources in (1, 32))
    assert few is not None and many is not None
    assert (few.kind.places, many.kind.places) == (28, 152)
    assert most_lanes(few, 1 << 17) == 1 << 17
    assert 10_000 < most_lanes(many, 1 << 17) < 1 << 17


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cli.main(["simulate", "--policy", "greedy", "--rounds", "2", "--device", "cuda", "--out", "run.npz"]) == 2
    said = capsys.readouterr().err
    assert "device cuda needs PyTorch with Triton" in said and ".[gpu]" in said
    assert not Path("run.npz").exists()
