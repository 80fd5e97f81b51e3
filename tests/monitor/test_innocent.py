"""Honest feedback that a monitor once called corrupt, one test for each way in which it came to that.

The data are made up after real ones: surveys whose groups differ, a day's cycle, affiliates with different audiences.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
from monitor_oracles import Array
from test_monitor import flips, watching

from robandit import CorruptionMonitor, joint_certificate
from robandit.service.learning.learner import Learner
from robandit.service.learning.looker import look
from robandit.wire.types import BanditSettings
from thinned import longer


def sphere(rng: np.random.Generator, rounds: int, dim: int) -> Array:
    points = rng.normal(size=(rounds, dim))
    return np.asarray(points / np.linalg.norm(points, axis=1, keepdims=True))


def proved(actions: Array, rewards: Array, source: Any = None, **settings: Any) -> float:
    monitor = CorruptionMonitor(dim=actions.shape[1], sources=0 if source is None else 8, **settings)
    monitor.observe_log(actions, rewards, source=source)
    return float(monitor.lower_bounds()[0])


# 1. Nobody declared how long μ* is.


@pytest.mark.no_cover
def test_revenue_of_any_size_is_honest() -> None:
    rng = np.random.default_rng(1)
    actions = rng.uniform(0.0, 1.0, (2000, 3))
    rewards = actions @ [30.0, 40.0, 20.0] + rng.uniform(-50.0, 50.0, 2000)
    assert proved(actions, rewards, noise=50.0) == 0.0
    assert proved(actions, rewards, noise=50.0, parameter_bound=1.0) > 1e4  # which was the default
    monitor = CorruptionMonitor(dim=3, noise=50.0, parameter_bound=1.0)
    monitor.observe_log(actions, rewards)
    found = monitor.certificate()
    assert found.rests_on_bound and "contradict your parameter bound of 1" in found.sentence


@pytest.mark.no_cover
def test_many_campaigns_make_a_long_parameter() -> None:
    rng = np.random.default_rng(2)
    rates = rng.uniform(0.2, 0.5, 20)  # ‖μ*‖ = 1.6
    campaign = rng.integers(0, 20, 40_000)
    clicks = (rng.random(40_000) < rates[campaign]).astype(float)
    assert proved(np.eye(20)[campaign], clicks, noise=0.5) == 0.0
    assert proved(np.eye(20)[campaign], clicks, noise=0.5, parameter_bound=1.0) > 500.0


def test_what_contradicts_itself_does_not_rest_on_the_bound() -> None:
    found = watching(flips(400, 100, 200), parameter_bound=1.0).certificate()
    free = watching(flips(400, 100, 200)).certificate()
    assert not found.rests_on_bound and "parameter bound" not in found.sentence
    assert 0.9 * found.lower_bound < free.lower_bound <= found.lower_bound * (1 + 1e-6)


# 2. Without an intercept 0/1 features force honest clicks to be none where all features are 0.


def test_an_intercept_reconciles_honest_affiliates() -> None:
    rng = np.random.default_rng(3)
    affiliate = rng.integers(0, 4, 20_000)
    features = (rng.random((20_000, 2)) < np.array([0.2, 0.4, 0.6, 0.8])[affiliate][:, None]).astype(float)
    clicks = (rng.random(20_000) < 1.0 / (1.0 + np.exp(1.0 - features @ [0.5, 0.7]))).astype(float)
    names = affiliate.astype(str)
    assert proved(features, clicks, names, noise=0.5) > 5.0  # audit adds the constant column by itself
    assert proved(np.column_stack([features, np.ones(20_000)]), clicks, names, noise=0.5) == 0.0


# 3. The linear model is slightly wrong.


def strange(what: str, seed: int, lies: float = 0.0) -> tuple[Array, Array, Any, float]:
    """Honest rewards that are linear to within 0.1, with their sources; and how much is altered, if somebody lies."""
    rng = np.random.default_rng(seed)
    actions, mu, source = sphere(rng, 10_000, 5), np.full(5, 0.2**0.5), rng.integers(0, 4, 10_000)
    way = np.sign(actions[:, 0])
    mean = actions @ mu
    if what == "sources":
        mean = mean + 0.1 * np.array([1.0, -1.0, 1.0, -1.0])[source] * way
    elif what == "daily":
        mean = mean + 0.1 * np.sin(2.0 * np.pi * np.arange(10_000) / 1000.0) * way
    else:
        angle = np.linspace(0.0, np.radians(5.0), 10_000)
        other = np.array([1.0, -1.0, 0.0, 0.0, 0.0]) / 2.0**0.5
        mean = np.cos(angle) * mean + np.sin(angle) * (actions @ other)
    altered = np.where((source == 3) & (rng.random(10_000) < lies), -2.0 * mean, 0.0)
    return actions, np.asarray(mean + altered + 0.05 * rng.normal(size=10_000)), source, float(np.abs(altered).sum())


@pytest.mark.parametrize("what", ["sources", "daily", "drift"])
@pytest.mark.parametrize("seeds", longer(1, 3))
@pytest.mark.no_cover
def test_what_is_linear_to_within_zeta_is_honest(what: str, seeds: int) -> None:
    for seed in range(seeds):
        actions, rewards, source, _ = strange(what, seed)
        assert proved(actions, rewards, source, noise=0.05) > 1.0
        assert proved(actions, rewards, source, noise=0.05, misspecification=0.1) == 0.0
        actions, rewards, source, altered = strange(what, seed, lies=0.8)
        assert altered > proved(actions, rewards, source, noise=0.05, misspecification=0.1) > 0.2 * altered


# 4. Innocents were named. tests/monitor/test_attribution.py has more.


@pytest.mark.no_cover
@pytest.mark.parametrize("share", longer(0.7, 0.9))
def test_who_lies_in_most_of_the_traffic_incriminates_nobody(share: float) -> None:
    rng = np.random.default_rng(5)
    actions, mu = sphere(rng, 4000, 3), np.array([0.6, 0.3, 0.5])
    source = np.where(rng.random(4000) < share, "liar", rng.choice(["a", "b", "c"], 4000))
    means = actions @ mu
    rewards = np.where(source == "liar", -means, means) + 0.05 * rng.normal(size=4000)
    monitor = CorruptionMonitor(dim=3, noise=0.05, sources=8)
    monitor.observe_log(actions, rewards, source=source)
    found = monitor.certificate()
    assert found.lower_bound > 100.0 and found.suspect is None
    assert not any(f" {name} " in found.sentence.split("features, then")[1] for name in ("a", "b", "c", "liar"))


# 5. Numbers.


def test_features_of_very_different_sizes_are_honest() -> None:
    for seed in range(4):
        rng = np.random.default_rng(seed)
        x = rng.uniform(0.0, 100.0, 1000)
        powers = np.stack([x**k for k in range(1, 6)], axis=1)
        mu = 1e-8 * np.array([1.0, 1e-2, 1e-4, 1e-6, 1e-8])
        rewards = powers @ mu + 0.5 * rng.choice([-1.0, 1.0], 1000)
        assert proved(powers, rewards, noise=0.5, parameter_bound=1.1e-8) == 0.0
        assert proved(powers, rewards, noise=0.5) == 0.0


def test_one_stream_does_not_count_twice() -> None:
    monitor = watching(flips(300, 50, 90), delta=0.01)
    for others in ([monitor], [copy.deepcopy(monitor)], [CorruptionMonitor.from_state(monitor.state())]):
        with pytest.raises(ValueError, match="watched the same rounds"):
            joint_certificate([monitor, *others])


@pytest.mark.no_cover
def test_a_small_shard_takes_nothing_away() -> None:
    stream = flips(400, 0, 200)
    halves = [watching(part, delta=0.02) for part in (stream.part(0, 200), stream.part(200, 400))]
    together = joint_certificate(halves).lower_bound
    small = watching(flips(10, seed=1), delta=0.005)
    assert together > 50.0 and joint_certificate([*halves, small]).lower_bound > 0.95 * together
    assert joint_certificate([*halves, watching(flips(0), delta=0.005)]).lower_bound > 0.95 * together


def test_no_number_is_no_source() -> None:
    monitor = CorruptionMonitor(dim=1, noise=1.0, sources=3)
    with pytest.raises(ValueError, match="source must be text or a number, got nan"):
        monitor.observe([1.0], 0.0, source=float("nan"))
    with pytest.raises(ValueError, match="source must be text or a number, got nan"):
        monitor.observe_log([[1.0], [1.0]], [0.0, 0.0], source=np.array([1.0, np.nan]))
    assert monitor.rounds == 0


# 6. The service's policy clips what exceeds its bounds; the monitor called that fraud.


def test_rewards_beyond_the_bounds_of_the_policy_are_no_fraud() -> None:
    rng = np.random.default_rng(6)
    learner = Learner(BanditSettings(dim=2, policy="oful", noise_range=10.0), seed=1)
    for _ in range(50):
        learner.monitor.observe(rng.uniform(0.5, 0.7, 2), float(rng.uniform(40.0, 50.0)))
    assert learner.monitor.certificate().lower_bound == 0.0


@pytest.mark.parametrize("policy", ["oful", "quorum"])
def test_the_service_calls_no_honest_rewards_fraud_whatever_the_bounds_of_its_policy(policy: str) -> None:
    rng, mu = np.random.default_rng(8), np.array([3.0, 2.0, 44.0])  # honest rewards from 40 to 50, mean_bound 1
    learner = Learner(BanditSettings(dim=3, policy=policy, noise_range=10.0, sources=3), seed=1)
    for t in range(600):
        action = np.array([*rng.uniform(-0.5, 0.5, 2), 1.0])
        reward = float(np.clip(action @ mu + rng.uniform(-1.0, 3.0), 40.0, 50.0))
        learner.monitor.observe(action, reward, source=f"s{t % 3}")
        if t in (20, 100, 599):
            found = look(learner.monitor.state())
            assert found is not None
            assert (found.lower_bound, found.altered, found.beyond, found.suspect) == (0.0, 0, 0, None)


def test_rewards_that_were_once_in_single_precision_are_within_their_range() -> None:
    monitor = CorruptionMonitor(dim=1, reward_range=(0.0, 0.3))
    for reward in (float(np.float32(0.3)), 0.1 + 0.2):
        monitor.observe([1.0], reward)
    assert monitor.certificate().lower_bound == 0.0 and monitor.certificate().beyond == 0
    monitor.observe([1.0], 0.31)
    assert monitor.certificate().beyond == 1


@pytest.mark.parametrize("apart", [1e-6, 1e-5, 1e-4])
def test_columns_that_are_nearly_the_same_prove_nothing_without_a_bound(apart: float) -> None:
    rng = np.random.default_rng(1)
    x, who = rng.uniform(-1, 1, 3000), rng.integers(0, 4, 3000)
    y = x + apart * (rng.uniform(-1, 1, 3000) * (1 + who) / 2 + (who - 1.5) / 3)
    rewards = 0.2 * (y - x) / apart + 0.002 * rng.choice([-1.0, 1.0], 3000)
    monitor = CorruptionMonitor(dim=3, noise=0.002, sources=5)
    monitor.observe_log(np.column_stack([x, y, np.ones(3000)]), rewards, source=who)
    assert monitor.certificate().lower_bound == 0.0
