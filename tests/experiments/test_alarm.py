"""The monitor in the proving ground: in simulations, in result tables, and on trial."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import integrate, stats
from tables import result

import robandit
from robandit import attacks, environments
from robandit.cli import main
from robandit.errors import ConfigError
from robandit.experiments.arena import alarm
from robandit.lab.attacks import ON_ALL_TRAFFIC
from robandit.lab.environments import ENVIRONMENTS
from robandit.lab.plan import Run
from robandit.lab.protocol import Scenario, simulate
from robandit.lab.results import tabulate
from robandit.lab.summary import Case, Proof, proofs
from robandit.monitor.monitor import CorruptionMonitor

FRESH = environments.Fresh(dim=4, actions=6, parameter="random")
FLIPS = attacks.Flip(rounds=40)


@pytest.mark.no_cover
def test_the_monitor_sees_what_the_policy_saw() -> None:
    """A run with a monitor proves what one proves that is fed by hand, and changes nothing else."""
    seen: list[tuple[Any, Any]] = []

    class Spy(CorruptionMonitor):
        def observe(self, action: Any, reward: Any, sigma: Any = None, source: Any = None, mask: Any = None) -> None:
            seen.append((np.array(action), np.array(reward)))
            super().observe(action, reward, sigma, source, mask)

    run = partial(simulate, policy=robandit.OFUL, scenarios=[Scenario(FRESH, FLIPS, range(3))], rounds=300, seed=4)
    with_one, without = run(monitor=Spy), run()
    for name in ("regret", "c_play", "lies", "updates"):
        assert np.array_equal(getattr(with_one, name), getattr(without, name))
    assert np.isnan(without.proved).all() and (with_one.proved[-1] > 0.0).all()
    by_hand = CorruptionMonitor(dim=4, noise=0.05, reward_range=(-1.5, 1.5), trials=3)
    for action, reward in seen:
        by_hand.observe(action, reward)
    assert by_hand.lower_bounds() == pytest.approx(with_one.proved[-1], rel=0.05)  # which also looked before
    assert (np.diff(with_one.proved, axis=0) >= 0.0).all()
    assert (with_one.lies[-1] == 40).all()


class Bent(environments.Fresh):
    """A world whose means need not be quite linear."""

    @property
    def misspecification(self) -> float:
        return 0.2


@pytest.mark.no_cover
def test_the_monitor_is_told_how_linear_a_world_is() -> None:
    run = partial(simulate, policy=robandit.OFUL, rounds=300, seed=4, monitor=True)
    straight, bent = (
        run(scenarios=[Scenario(make(dim=4, actions=6, parameter="random"), FLIPS, range(3))]).proved[-1]
        for make in (environments.Fresh, Bent)
    )
    assert (bent < straight).all() and straight.min() > 0.0


@pytest.mark.no_cover
def test_a_monitor_does_not_depend_on_the_batch() -> None:
    """Trials of two environments with different noise prove the same, bit for bit, alone and together."""
    loud = environments.PerActionNoise(dim=4, actions=6)
    run = partial(simulate, policy=robandit.OFUL, rounds=70, seed=5, monitor=True)
    together = run(scenarios=[Scenario(FRESH, FLIPS, range(3)), Scenario(loud, FLIPS, range(2))])
    alone = [run(scenarios=[Scenario(FRESH, FLIPS, [i])]) for i in range(3)]
    alone += [run(scenarios=[Scenario(loud, FLIPS, [i])]) for i in range(2)]
    assert np.array_equal(together.proved, np.concatenate([trace.proved for trace in alone], axis=1))
    assert (together.proved[-1, :3] > 0.0).any()


@pytest.mark.no_cover
def test_lost_rewards_are_not_observed() -> None:
    lossy = environments.Delayed(dim=4, actions=6, lost=0.5)
    trace = simulate(
        policy=robandit.OFUL,
        scenarios=[Scenario(lossy, attacks.NoAttack(), range(20))],
        rounds=300,
        seed=6,
        monitor=True,
    )
    assert not trace.proved.any()


@pytest.mark.no_cover
@pytest.mark.parametrize("name", [name for name in ENVIRONMENTS if name != "replay"])
def test_the_noise_scale_of_every_environment_holds(name: str) -> None:
    """E exp(θε) ≤ exp(θ²s²/2), for every noise that it may draw."""
    world = ENVIRONMENTS[name]()
    scale = world.noise_scale
    kind, bound = getattr(world, "noise", "gaussian"), world.noise_range
    for theta in np.array([-20.0, -3.0, -0.5, 0.5, 3.0, 20.0]) / scale:
        most = theta**2 * scale**2 / 2
        if kind == "bernoulli":
            log_mgfs = [
                math.log(p * math.exp(theta * (1 - p)) + (1 - p) * math.exp(-theta * p)) for p in (0.1, 0.5, 0.8)
            ]
        elif kind == "two-point":
            log_mgfs = [math.log(math.cosh(theta * sigma)) for sigma in (world.sigma_low, world.sigma_high)]  # type: ignore[attr-defined]
        else:
            normal = stats.norm(scale=world.sigma_high)  # type: ignore[attr-defined]
            inside, _ = integrate.quad(lambda x: math.exp(theta * x) * normal.pdf(x), -bound, bound, epsabs=0)  # noqa: B023
            ends = 2.0 * normal.sf(bound) * math.cosh(theta * bound)
            log_mgfs = [math.log(inside + ends)]
        assert max(log_mgfs) <= most * (1.0 + 1e-9)


def test_results_say_what_was_proved() -> None:
    config = {"policies": ["oful"], "environments": ["fresh"], "attacks": ["none"], "rounds": 20, "trials": 2}
    for monitor, empty in ((False, True), (True, False), (0.5, False)):
        run = Run.read({**config, "monitor": monitor})
        assert Run.read(run.plain()) == run
        (task,) = run.tasks(2)
        table = tabulate(task, task.run())
        assert (table["proved"].null_count == len(table)) == empty
        assert bool(proofs(table)) != empty
    for wrong in ("yes", -1.0, 0, [0.1]):
        with pytest.raises(ConfigError, match="monitor"):
            Run.read({**config, "monitor": wrong})


def test_proofs() -> None:
    """Alarms at the end, wrong ones at any checkpoint, means over trials."""
    base = {"policy": "p", "environment": "e", "attack": "a", "strength": "weak", "C": 1.0, "regret": 0.0, "c_sup": 0.0}
    amounts = {0: [(1, 0.5, 0.6), (2, 2.0, 0.6)], 1: [(0, 0.0, 0.0), (4, 4.0, 0.0)]}  # lies, Σ|c|, proved
    rows = [
        {**base, "trial": trial, "round": t, "lies": lies, "c_play": played, "proved": proved}
        for trial, path in amounts.items()
        for t, (lies, played, proved) in enumerate(path, 1)
    ]
    assert proofs(result(rows)) == {Case("e", "a", "weak", 1.0): {"p": Proof(2, 1, 1, 3.0, 3.0, 0.3)}}


def test_the_study_covers_the_zoo() -> None:
    configs = alarm.configs(rounds=1000, trials=150, seed=1)
    level = Run.read(configs["level"])
    assert level.size // level.rounds >= 1200
    for name in ("truth", "zoo"):
        assert {attack["name"] for attack in configs[name]["attacks"]} == set(ON_ALL_TRAFFIC) - {"none"}


def test_the_trial(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one, from the command line; its tables and its picture."""
    for name, value in {"POWER_ROUNDS": 30, "NOISY_ROUNDS": 30, "BUDGETS": (3.0, 10.0), "FLIPS": (5, 15)}.items():
        monkeypatch.setattr(alarm, name, value)
    assert (
        main(["arena", "alarm", "--trials", "1", "--rounds", "30", "--workers", "1", "--out", str(tmp_path / "a")]) == 0
    )
    text = (tmp_path / "a" / "alarm.md").read_text(encoding="utf-8")
    assert text.strip() in capsys.readouterr().out
    for name in alarm.INNOCENT:
        assert f"| {name} |" in text
    assert (tmp_path / "a" / "alarm.png").stat().st_size > 10_000


def test_a_breach_is_a_breach() -> None:
    assert alarm.breached(alarm.Share(20, 100)) and not alarm.breached(alarm.Share(8, 100))
    assert not alarm.breached(alarm.Share(0, 0))
    assert str(alarm.Share(0, 100)) == "0 of 100 (0 to 3.6 %)"


@pytest.mark.no_cover
def test_the_level_test_can_fail() -> None:
    """Half of ρ, clean noise of ±R and s = R at d = 20: innocent streams are accused, and it shows."""
    world = environments.Fresh(noise="two-point", sigma_low=0.5, sigma_high=0.5)
    half = partial(CorruptionMonitor, radius_scale=0.5)
    run = partial(simulate, policy=robandit.OFUL, rounds=600, seed=2, at=np.array([100, 300, 600]))
    few, many = ([Scenario(world, attacks.NoAttack(), range(trials))] for trials in (16, 40))
    accused = int((run(scenarios=few, monitor=half).proved[-1] > 0.0).sum())
    assert alarm.breached(alarm.Share(accused, 16))
    assert not run(scenarios=many, monitor=True).proved.any()
