"""The policies against plain transcriptions of the paper, and what the paper says of their randomness."""

import json
import pickle
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import transcriptions as slow
from scipy import stats

import robandit
from robandit.geometry.regions import Region
from robandit.policies import Policy
from thinned import longer, thinned, untraced

DIM, ACTIONS, NOISE = 4, 6, 0.5
NEAR_TIE = 1e-9  # the transcription and the policy may break a tie as close as this differently


class World:
    """Random decision sets, σ on both sides of the floor, noise, and lies in some of the rounds."""

    def __init__(self, seed: int, dim: int = DIM) -> None:
        self.rng = np.random.default_rng(seed)
        self.parameter = self.rng.normal(size=dim)
        self.parameter /= np.linalg.norm(self.parameter)
        self.fixed = self.actions()

    def actions(self) -> Any:
        actions = self.rng.normal(size=(ACTIONS, len(self.parameter)))
        return actions / np.maximum(1.0, np.linalg.norm(actions, axis=1, keepdims=True))

    def round(self, t: int) -> tuple[Any, float]:
        return (self.fixed if t % 3 == 0 else self.actions()), float(self.rng.uniform(0.0, 1.5))

    def reward(self, action: Any, sigma: float, lies: float) -> float:
        mean = float(action @ self.parameter)
        noise = float(np.clip(self.rng.normal() * min(sigma, 0.3), -NOISE, NOISE))
        return (-3.0 if self.rng.random() < lies else 1.0) * mean + noise  # −3: some exceed the clipping bound


ONE_ELLIPSOID: dict[str, tuple[type[Policy], type, dict[str, Any]]] = {
    "OFUL": (robandit.OFUL, slow.SlowOFUL, {}),
    "OFUL, scaled": (robandit.OFUL, slow.SlowOFUL, {"radius_scale": 0.2, "delta": 0.01, "regularization": 0.3}),
    "OFUL, fixed": (robandit.OFUL, slow.SlowOFUL, {"radius": 0.7}),
    "WeightedOFUL": (robandit.WeightedOFUL, slow.SlowWeightedOFUL, {"radius_scale": 0.01}),
    "WeightedOFUL, theory": (robandit.WeightedOFUL, slow.SlowWeightedOFUL, {"parameter_bound": 2.0}),
    "WeightedOFUL, floor": (robandit.WeightedOFUL, slow.SlowWeightedOFUL, {"radius_scale": 0.01, "sigma_floor": 0.6}),
    "Robust": (robandit.RobustWeightedOFUL, slow.SlowRobustWeightedOFUL, {"corruption": 20.0}),
    "Robust, scaled": (
        robandit.RobustWeightedOFUL,
        slow.SlowRobustWeightedOFUL,
        {"corruption": 5.0, "radius_scale": 0.01, "action_bound": 1.5},
    ),
    "Robust, floor": (
        robandit.RobustWeightedOFUL,
        slow.SlowRobustWeightedOFUL,
        {"corruption": 5.0, "radius_scale": 0.005, "sigma_floor": 0.2},
    ),
    "Greedy": (robandit.Greedy, slow.SlowGreedy, {}),
}


@pytest.mark.no_cover
@pytest.mark.parametrize("rounds", longer(1000, 3000))
@pytest.mark.parametrize("name", ONE_ELLIPSOID)
def test_one_ellipsoid_policies_play_as_transcribed(name: str, rounds: int) -> None:
    kind, transcription, settings = ONE_ELLIPSOID[name]
    policy = kind(dim=DIM, noise_range=NOISE, seed=1, **settings)
    reference = transcription(dim=DIM, noise_range=NOISE, **settings)
    world, played = World(seed=11), set()
    for t in range(rounds):
        actions, sigma = world.round(t)
        values = reference.values(actions)
        decision = policy.choose(actions, sigma=sigma)
        assert values[decision.index] >= values.max() - NEAR_TIE * (1.0 + abs(values.max())), f"round {t}"
        assert decision.value == pytest.approx(values.max(), rel=1e-9, abs=1e-9)
        reward = world.reward(decision.action, sigma, lies=0.1)
        policy.update(decision, reward)
        reference.update(decision.action, reward, sigma)
        played.add(decision.index)
    assert played == set(range(ACTIONS))
    assert policy.estimate().center == pytest.approx(reference.whole.mu, rel=1e-9, abs=1e-12)


MULTI_LEVEL: dict[str, dict[str, Any]] = {
    "theory": {},
    "scale 0.03": {"radius_scale": 0.03},
    "scale 0.01": {"radius_scale": 0.01, "delta": 0.2},
    "scale 0.003": {"radius_scale": 0.003},
    "scale 0.001, cascading": {"radius_scale": 0.001, "regularization": 0.5},
    "floor": {"radius_scale": 0.005, "sigma_floor": 0.15},
}


@pytest.mark.parametrize("name", thinned(MULTI_LEVEL, fast=["scale 0.01", "scale 0.001, cascading", "floor"]))
@pytest.mark.no_cover
def test_multi_level_plays_as_transcribed(name: str) -> None:
    check_multi_level(MULTI_LEVEL[name], rounds=120, lies=75, seed=21)


@pytest.mark.slow
@pytest.mark.parametrize("name", MULTI_LEVEL)
def test_multi_level_plays_as_transcribed_for_long(name: str) -> None:
    check_multi_level(MULTI_LEVEL[name], rounds=3000, lies=150, seed=22)


def check_multi_level(settings: dict[str, Any], rounds: int, lies: int, seed: int) -> None:
    policy = robandit.MultiLevelWeightedOFUL(dim=DIM, noise_range=NOISE, horizon=4000, seed=seed, **settings)
    reference = slow.SlowMultiLevelWeightedOFUL(dim=DIM, noise_range=NOISE, horizon=4000, **settings)
    world, cascades = World(seed), 0
    for t in range(rounds):
        actions, sigma = world.round(t)
        decision = policy.choose(actions, sigma=sigma)
        values, used, empty = reference.values(actions, decision.level)
        assert (decision.level + decision.info.cascade, decision.info.empty) == (used, empty), f"round {t}"
        assert values[decision.index] >= values.max() - NEAR_TIE * (1.0 + abs(values.max())), f"round {t}"
        assert decision.value == pytest.approx(values.max(), rel=1e-8, abs=1e-8)
        reward = world.reward(decision.action, sigma, lies=0.5 if t < lies else 0.0)
        policy.update(decision, reward)
        reference.update(decision.action, reward, sigma, decision.level)
        cascades += decision.info.cascade > 0
    if settings.get("radius_scale") == 0.001:
        assert cascades > rounds / 10, "this test is meant to see the cascade at work"


@pytest.mark.no_cover
def test_robust_weighted_and_plain_choose_alike_at_the_same_radius_and_floor() -> None:
    shared: dict[str, Any] = {"dim": DIM, "noise_range": NOISE, "radius": 0.8, "seed": 3}
    policies = [
        robandit.RobustWeightedOFUL(**shared, corruption=9.0, sigma_floor=1.0),
        robandit.WeightedOFUL(**shared, sigma_floor=1.0),
        robandit.OFUL(**shared),  # weight 1, as σ stays below the others' floor
    ]
    world = World(seed=4)
    for t in range(1000):
        actions, sigma = world.round(t)
        decisions = [policy.choose(actions, sigma=min(sigma, 1.0)) for policy in policies]
        assert len({decision.index for decision in decisions}) == 1, f"round {t}"
        reward = world.reward(decisions[0].action, sigma, lies=0.1)
        for policy, decision in zip(policies, decisions, strict=True):
            policy.update(decision, reward)


@pytest.mark.no_cover
def test_greedy_is_the_limit_of_a_vanishing_radius() -> None:
    greedy = robandit.Greedy(dim=DIM, noise_range=NOISE, seed=3)
    limit = robandit.OFUL(dim=DIM, noise_range=NOISE, seed=3, radius_scale=1e-12)
    wide = robandit.OFUL(dim=DIM, noise_range=NOISE, seed=3)
    world, differs = World(seed=5), 0
    for t in range(1000):
        actions, sigma = world.round(t)
        decision = greedy.choose(actions)
        assert t == 0 or limit.choose(actions).index == decision.index, f"round {t}"  # at first Greedy ties
        differs += wide.choose(actions).index != decision.index
        reward = world.reward(decision.action, sigma, lies=0.1)
        for policy in (greedy, limit, wide):
            policy.update(decision, reward)
    assert differs > 50


def test_level_frequencies() -> None:
    horizon, trials, rounds = 1000, 50, 4000
    policy = robandit.MultiLevelWeightedOFUL(dim=1, noise_range=0.5, horizon=horizon, trials=trials, seed=8)
    counts = np.zeros(policy.levels + 1)
    for t in range(rounds):
        np.add.at(counts, policy.draw_level(policy._stream.at(t)[:, 0]), 1)
    assert policy.levels == 11
    chances = np.concatenate([[0.0], 0.5 ** np.arange(1, 12)])
    chances[1] = 0.5 + 2.0**-11  # line 11: what is left goes to level 1
    assert policy.level_probabilities() == pytest.approx(chances[1:], abs=0.0)
    rare = 8  # levels from here on are pooled
    seen = [*counts[1:rare], counts[rare:].sum()]
    expected = np.array([*chances[1:rare], chances[rare:].sum()]) * trials * rounds
    assert stats.chisquare(seen, expected).pvalue > 0.001
    assert stats.chisquare(seen, np.roll(expected, 1)).pvalue < 1e-9  # the test can fail


def test_level_draws_are_uncorrelated_between_rounds_and_trials() -> None:
    policy = robandit.MultiLevelWeightedOFUL(dim=1, noise_range=0.5, horizon=1000, trials=40, seed=8)
    high = np.array([policy.draw_level(policy._stream.at(t)[:, 0]) > 1 for t in range(3000)], dtype=float) - 0.5
    assert abs((high[1:] * high[:-1]).mean()) < 4 * 0.25 / np.sqrt(high[1:].size)
    assert abs((high[:, 1:] * high[:, :-1]).mean()) < 4 * 0.25 / np.sqrt(high[:, 1:].size)


@pytest.mark.parametrize("trials", longer(5000, 20_000))
@pytest.mark.parametrize("exploration", [0.0, 0.2])
@pytest.mark.no_cover
def test_propensities_match_the_frequencies_of_repeated_draws(exploration: float, trials: int) -> None:
    world = World(seed=6)
    teacher = robandit.MultiLevelWeightedOFUL(
        dim=DIM, noise_range=NOISE, horizon=4000, radius_scale=0.02, seed=5, exploration=exploration
    )
    for t in range(100):
        actions, sigma = world.round(t)
        decision = teacher.choose(actions, sigma)
        teacher.update(decision, world.reward(decision.action, sigma, lies=0.5 if t < 100 else 0.0))
    offered = (world.actions() for _ in range(100))
    actions = next(a for a in offered if (teacher.propensities(a) > 0.01).sum() >= 2)  # where chance decides
    chances = teacher.propensities(actions)
    assert chances.sum() == pytest.approx(1.0, abs=1e-12)
    assert (chances >= exploration / ACTIONS * (1 - 1e-12)).all()
    pupil = repeated(teacher, trials)
    counts = np.bincount(pupil.choose(actions).index, minlength=ACTIONS)
    assert counts[chances == 0].sum() == 0
    assert stats.chisquare(counts[chances > 0], chances[chances > 0] * trials).pvalue > 0.001


def repeated(policy: robandit.MultiLevelWeightedOFUL, trials: int) -> robandit.MultiLevelWeightedOFUL:
    """Many trials that have all learnt what one policy has learnt, and differ in their draws."""
    state = policy.state()
    state["config"] |= {"trials": trials, "seed": 77}
    state["arrays"] = {name: np.repeat(array, trials, axis=0) for name, array in state["arrays"].items()}
    return robandit.MultiLevelWeightedOFUL.from_state(state)


@pytest.mark.parametrize("trials", longer(5000, 30_000))
@pytest.mark.no_cover
def test_ties_between_actions_are_uniform(trials: int) -> None:
    policy = robandit.OFUL(dim=2, noise_range=0.5, trials=trials, seed=9)
    counts = np.bincount(policy.choose([[0.6, 0.8], [1.0, 0.0], [0.1, 0.1]]).index, minlength=3)
    assert counts[2] == 0  # the shorter action has the smaller optimistic value
    assert stats.chisquare(counts[:2]).pvalue > 0.001
    assert policy.propensities([[0.6, 0.8], [1.0, 0.0], [0.1, 0.1]])[0].tolist() == [0.5, 0.5, 0.0]


def test_a_policy_past_its_horizon_goes_on_and_says_so() -> None:
    policy = robandit.MultiLevelWeightedOFUL(dim=2, noise_range=0.5, horizon=2, seed=1)
    actions = [[1.0, 0.0], [0.0, 1.0]]
    for _ in range(2):
        policy.update(policy.choose(actions), 0.1)
    with pytest.warns(robandit.GuaranteeLapsed, match="horizon of 2 rounds is over"):
        policy.update(policy.choose(actions), 0.1)
    policy.update(policy.choose(actions), 0.1)  # and says it once


@pytest.mark.parametrize("horizon", [1, 2, 3, 1000, 1024, 1025])
def test_number_of_levels(horizon: int) -> None:
    policy = robandit.MultiLevelWeightedOFUL(dim=2, noise_range=0.5, horizon=horizon)
    assert policy.levels == int(np.ceil(np.log2(2 * horizon)))  # line 1
    assert policy.level_probabilities().sum() == 1.0


def test_candidates_are_the_sets_of_line_8() -> None:
    policy = robandit.MultiLevelWeightedOFUL(dim=2, noise_range=0.5, horizon=100, seed=2)
    reference = slow.SlowMultiLevelWeightedOFUL(dim=2, noise_range=0.5, horizon=100)
    for t in range(50):
        decision = policy.choose([[1.0, 0.0], [0.0, 1.0]], sigma=0.9)
        policy.update(decision, 0.3 * (t % 2))
        reference.update(decision.action, 0.3 * (t % 2), 0.9, decision.level)
    for level in range(1, policy.levels + 1):
        candidate = policy.candidate(level)
        for ours, theirs in zip((candidate.first, candidate.second), reference.ellipsoids(level), strict=True):
            assert ours.center == pytest.approx(theirs.centre)
            assert ours.radius == pytest.approx(theirs.radius, rel=1e-12)
            assert ours.precision == pytest.approx(theirs.shape)
    widest = policy.estimate()
    assert widest.radius == pytest.approx(reference.ellipsoids(policy.levels)[0].radius)
    with pytest.raises(ValueError, match="level must lie in 1 … 8, got 9"):
        policy.candidate(9)


def test_a_warm_start_equals_learning_round_by_round() -> None:
    rng = np.random.default_rng(1)
    actions, rewards, sigma = rng.uniform(-0.5, 0.5, (30, 3)), rng.normal(size=30), rng.uniform(0, 1, 30)
    for make in (robandit.OFUL, partial(robandit.MultiLevelWeightedOFUL, horizon=100)):
        warm, slowly, given = (make(dim=3, noise_range=0.5, seed=4) for _ in range(3))
        warm.warm_start(actions, rewards, sigma)
        decisions = [slowly.choose(actions[i : i + 1], sigma[i]) for i in range(30)]
        for decision, reward in zip(decisions, rewards, strict=True):
            slowly.update(decision, float(reward))
        assert robandit.checks.same_state(warm, slowly)
        given.warm_start(actions, rewards, sigma, level=[decision.level for decision in decisions])
        assert robandit.checks.same_state(warm, given)


def test_a_warm_start_of_a_batch() -> None:
    rng = np.random.default_rng(1)
    actions, rewards = rng.uniform(-0.5, 0.5, (2, 30, 3)), rng.normal(size=(2, 30))
    batch = robandit.WeightedOFUL(dim=3, noise_range=0.5, seed=4, trials=2)
    batch.warm_start(actions, rewards, sigma=0.3)
    single = robandit.WeightedOFUL(dim=3, noise_range=0.5, seed=(4, 1))
    single.warm_start(actions[1], rewards[1], sigma=0.3)
    assert np.array_equal(batch.estimate().center[1], single.estimate().center)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.ones((2, 3)) * 0.1, [0.1]), "one for each of the 2 actions"),
        ((np.ones((2, 3)) * 0.1, [0.1, np.nan]), "rewards must be finite, got nan"),
        ((np.ones((2, 3)) * 0.1, [0.1, 0.1], 0.1, [1, 2, 3]), "level must be one for each of the 2 actions"),
        ((np.ones((2, 3)), [0.1, 0.1]), "norm <= action_bound"),
        ((robandit.Ball(3), [0.1]), "logged actions as an array"),
        ((np.ones((2, 3)) * 0.1, [0.1, 0.1], 0.1, [1, 99]), "must lie in 1 … 8, got"),
        ((np.ones((2, 3)) * 0.1, [0.1, 0.1], 0.1, [1.5, 1.0]), "level must be an integer"),
    ],
)
def test_a_bad_warm_start_changes_nothing(arguments: Any, message: str) -> None:
    policy = robandit.MultiLevelWeightedOFUL(dim=3, noise_range=0.5, horizon=100, seed=1)
    before = robandit.MultiLevelWeightedOFUL.from_state(policy.state())
    with pytest.raises(ValueError, match=message):
        policy.warm_start(*arguments)
    assert robandit.checks.same_state(policy, before)


def test_order_of_feedback_matters_only_by_rounding() -> None:
    rng = np.random.default_rng(3)
    in_order, shuffled = (
        robandit.MultiLevelWeightedOFUL(dim=5, noise_range=0.5, horizon=1000, seed=2) for _ in range(2)
    )
    decisions = [in_order.choose(rng.uniform(-0.4, 0.4, (7, 5))) for _ in range(200)]
    rewards = rng.uniform(-1, 1, 200)
    for i in range(200):
        in_order.update(decisions[i], rewards[i])
    for i in rng.permutation(200):
        shuffled.update(decisions[i], rewards[i])
    assert shuffled.estimate().center == pytest.approx(in_order.estimate().center, rel=1e-11)


def test_sigma_may_come_with_the_reward_and_defaults_to_the_noise_range() -> None:
    def estimate(sigma: float | None, late: float | None) -> Any:
        policy = robandit.WeightedOFUL(dim=2, noise_range=3.0, seed=1)
        policy.update(policy.choose([[0.6, 0.8]], sigma), 0.5, late)
        return policy.estimate().center

    assert np.array_equal(estimate(0.1, 2.5), estimate(2.5, None))
    assert np.array_equal(estimate(None, None), estimate(3.0, None))
    assert not np.array_equal(estimate(None, None), estimate(2.5, None))


def test_sigma_per_action() -> None:
    policy = robandit.WeightedOFUL(dim=2, noise_range=3.0, seed=1, trials=2)
    sigma = np.array([[2.2, 2.3, 2.4], [2.5, 2.6, 2.7]])
    decision = policy.choose(np.full((2, 3, 2), 0.5), sigma)
    assert decision.sigma.tolist() == [sigma[0, decision.index[0]], sigma[1, decision.index[1]]]
    assert policy.choose(np.full((2, 3, 2), 0.5), [2.1, 2.2]).sigma.tolist() == [2.1, 2.2]


def test_rewards_are_clipped_unless_asked_otherwise() -> None:
    def estimate(reward: float, **settings: Any) -> Any:
        policy = robandit.OFUL(dim=1, noise_range=0.5, seed=1, **settings)
        policy.update(policy.choose([[1.0]]), reward)
        return float(policy.estimate().center[0])

    assert estimate(9.0) == estimate(1.5) == 0.75
    assert estimate(-9.0, mean_bound=3.0) == -1.75
    assert estimate(9.0, clip_rewards=False) == 4.5


def test_what_is_clipped_is_counted_and_part_of_the_state() -> None:
    policy = robandit.OFUL(dim=1, noise_range=0.5, trials=2)
    for rewards, mask in (([9.0, 1.5], None), ([-9.0, -1.51], None), ([9.0, 9.0], [True, False]), ([0.1, 0.2], None)):
        policy.update(policy.choose([[1.0]]), rewards, mask=mask)
    assert np.asarray(policy.clipped).tolist() == [3, 1]
    state = policy.state()
    assert np.array_equal(robandit.OFUL.from_state(state).clipped, policy.clipped)
    del state["arrays"]["clipped"]  # as before they were counted
    assert np.asarray(robandit.OFUL.from_state(state).clipped).tolist() == [0, 0]
    one, free = robandit.OFUL(dim=1, noise_range=0.5), robandit.OFUL(dim=1, noise_range=0.5, clip_rewards=False)
    for single in (one, free):
        single.update(single.choose([[1.0]]), 9.0)
    assert (one.clipped, free.clipped) == (1, 0)


@pytest.mark.parametrize("trials", longer(5000, 20_000))
@pytest.mark.no_cover
def test_exploration_plays_uniformly_at_its_rate(trials: int) -> None:
    policy = robandit.Greedy(dim=2, noise_range=0.5, trials=trials, seed=3, exploration=0.25)
    policy.update(policy.choose([[1.0, 0.0]]), np.full(trials, 1.0))
    decision = policy.choose([[1.0, 0.0], [0.0, 0.5], [-1.0, 0.0]], propensity=True)
    assert abs(decision.explored.mean() - 0.25) < 4 * np.sqrt(0.25 * 0.75 / trials)
    assert stats.chisquare(np.bincount(decision.index[decision.explored], minlength=3)).pvalue > 0.001
    assert (decision.index[~decision.explored] == 0).all()
    assert set(decision.propensity.round(12)) == {round(0.75 + 0.25 / 3, 12), round(0.25 / 3, 12)}
    with pytest.raises(ValueError, match="exploration needs a finite decision set"):
        policy.choose(robandit.Ball(2))


REGIONS: dict[str, Region] = {
    "ball": robandit.Ball(3),
    "box": robandit.Box([-0.5, -0.5, 0.0], [0.5, 0.5, 0.5]),
    "ellipsoid": robandit.Ellipsoid([0.1, 0.0, 0.0], np.diag([1.5, 2.0, 3.0]), 1.0),
}


@pytest.mark.parametrize("region", untraced(REGIONS, but=["ball"]))
@pytest.mark.parametrize("kind", [robandit.OFUL, robandit.MultiLevelWeightedOFUL])
def test_infinite_decision_sets(kind: Any, region: str) -> None:
    horizon = {"horizon": 500} if kind is robandit.MultiLevelWeightedOFUL else {}
    scale = 0.01 if horizon else 0.2
    shared: dict[str, Any] = {"dim": 3, "noise_range": 0.5, "radius_scale": scale, **horizon}
    batch, single = kind(**shared, seed=1, trials=3), kind(**shared, seed=(1, 2))
    parameter = np.array([0.6, -0.5, 0.4])
    best = float(REGIONS[region].support(parameter[None]).values[0])
    for t in range(40 if region == "ellipsoid" else 250):
        decision, one = batch.choose(REGIONS[region]), single.choose(REGIONS[region])
        assert decision.index.tolist() == [-1, -1, -1]
        assert np.array_equal(decision.action[2], one.action) and decision.certified[2] == one.certified
        rewards = decision.action @ parameter + 0.05 * np.sin(t + np.arange(3))
        batch.update(decision, rewards)
        single.update(one, float(rewards[2]))
    assert (decision.action @ parameter > 0.8 * best).all()
    with pytest.raises(ValueError, match="propensities need a finite decision set"):
        batch.propensities(REGIONS[region])


def test_polytope_is_the_set_of_its_vertices() -> None:
    vertices = [[0.5, 0.5], [-0.5, 0.5], [0.0, -0.9]]
    one, other = (robandit.OFUL(dim=2, noise_range=0.5, seed=5) for _ in range(2))
    for t in range(50):
        a, b = one.choose(robandit.Polytope(vertices)), other.choose(vertices)
        assert a.index == b.index and a.certified
        one.update(a, 0.1 * (t % 4))
        other.update(b, 0.1 * (t % 4))


BAD_SETTINGS: list[tuple[str, dict[str, Any]]] = [
    ("dim must be an integer >= 1, got 0", {"dim": 0}),
    ("dim must be an integer >= 1, got 2.0", {"dim": 2.0}),
    ("dim must be an integer >= 1, got True", {"dim": True}),
    ("noise_range must be a number > 0 .*, got 0", {"noise_range": 0}),
    ("noise_range must be a number > 0 .*, got nan", {"noise_range": float("nan")}),
    ("noise_range must be a number > 0 .*, got 'big'", {"noise_range": "big"}),
    ("action_bound must be a number > 0 .*, got -1", {"action_bound": -1}),
    ("parameter_bound must be a number > 0 .*, got inf", {"parameter_bound": float("inf")}),
    ("mean_bound must be a number > 0 .*, got 0", {"mean_bound": 0}),
    ("regularization must be a number > 0 .*, got -1", {"regularization": -1}),
    ("delta must be a number > 0 .*, got 0", {"delta": 0}),
    ("delta must be below 1, got 1", {"delta": 1}),
    ("radius_scale must be a number > 0 .*, got 0", {"radius_scale": 0}),
    ("radius, if not 0, must be a number > 0 .*, got -1", {"radius": -1}),
    ("sigma_floor, if not 0, must be a number > 0 .*, got -1", {"sigma_floor": -1}),
    ("corruption, if not 0, must be a number > 0 .*, got -1", {"corruption": -1}),
    ("exploration must be a number from 0 to 1, got 1.5", {"exploration": 1.5}),
    ("sigma_floor must be > 0, got 0", {"sigma_floor": 0}),
    ("parameter_bound must be a number > 0 .*, got 1e", {"parameter_bound": 1e200}),
    ("clip_rewards must be True or False, got 'no'", {"clip_rewards": "no"}),
    ("trials must be an integer >= 1, got 0", {"trials": 0}),
    ("trials must be an integer >= 1, got 2.5", {"trials": 2.5}),
    ("trials must be trial numbers, at least one", {"trials": []}),
    ("trials must be an integer >= 0, got -1", {"trials": [-1]}),
    ("seed must be an integer >= 0, got -1", {"seed": -1}),
    (r"seed must be an integer or \(seed, trial\), got \(1, 2, 3\)", {"seed": (1, 2, 3)}),
    (r"seed \(1, 2\) names a trial", {"seed": (1, 2), "trials": 3}),
]


@pytest.mark.parametrize(("message", "settings"), BAD_SETTINGS, ids=[str(s) for _, s in BAD_SETTINGS])
def test_bad_settings_are_refused_by_name_and_value(message: str, settings: dict[str, Any]) -> None:
    good: dict[str, Any] = {"dim": 2, "noise_range": 0.5, "corruption": 1.0}
    with pytest.raises(ValueError, match=message):
        robandit.RobustWeightedOFUL(**good | settings)


def test_other_bad_settings() -> None:
    with pytest.raises(ValueError, match="horizon must be an integer >= 1, got 0"):
        robandit.MultiLevelWeightedOFUL(dim=2, noise_range=0.5, horizon=0)
    with pytest.raises(TypeError, match="radius"):
        robandit.MultiLevelWeightedOFUL(dim=2, noise_range=0.5, horizon=9, radius=1.0)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        robandit.OFUL(2, 0.5)  # type: ignore[call-arg]


def test_zero_sigma_where_it_matters() -> None:
    policy = robandit.WeightedOFUL(dim=2, noise_range=0.5, sigma_floor=0.0, seed=1, radius=1.0)
    decision = policy.choose([[1.0, 0.0]], sigma=0.0)
    before = policy.state()
    with pytest.raises(ValueError, match="sigma must be > 0 .* where sigma_floor is 0, got 0"):
        policy.update(decision, 0.1)
    assert np.array_equal(policy.state()["arrays"]["mean"], before["arrays"]["mean"])
    floored = robandit.WeightedOFUL(dim=2, noise_range=0.5, seed=1)
    floored.update(floored.choose([[1.0, 0.0]], sigma=0.0), 0.1)  # the floor makes 0 harmless


def test_bad_input_to_a_batch() -> None:
    policy = robandit.OFUL(dim=2, noise_range=0.5, trials=3, seed=1)
    good = policy.choose(np.full((3, 4, 2), 0.1))
    for call, message in (
        (lambda: policy.choose(np.full((2, 4, 2), 0.1)), r"actions must be \(3, K, 2\) or \(K, 2\)"),
        (
            lambda: policy.choose(np.full((3, 4, 2), 0.1), np.ones((3, 5))),
            r"sigma must be one number, \(3,\) or \(3, 4\)",
        ),
        (lambda: policy.choose(robandit.Ball(2), np.ones((3, 5))), r"sigma must be one number, \(3,\), got"),
        (lambda: policy.update(good, [0.1, 0.2]), r"reward must have shape \(3,\), got \(2,\)"),
        (lambda: policy.update(good, [0.1, np.nan, 0.2]), "reward must be finite, got nan"),
        (lambda: policy.update(good, [0.1, 0.1, 0.2], mask=[1, 0, 1]), "mask must be 3 booleans"),
        (lambda: policy.update(replace(good, action=[[0.1, 0.2]]), [0.1] * 3), "not one of this policy's"),
        (lambda: policy.choose(robandit.Ball(3)), "the decision set has dimension 3, the policy 2"),
        (lambda: policy.choose(robandit.Ball(2, radius=1.5)), "but the set reaches 1.5"),
        (lambda: policy.choose(robandit.Ellipsoid(np.zeros((3, 2)), np.stack([np.eye(2)] * 3), [0.1] * 3)), "single"),
    ):
        with pytest.raises(ValueError, match=message):
            call()


def test_configuration_is_frozen() -> None:
    policy = robandit.OFUL(dim=2, noise_range=0.5)
    with pytest.raises(AttributeError, match="noise_range is fixed once a policy is made"):
        policy.noise_range = 0.1


def test_repr_shows_the_settings() -> None:
    text = repr(robandit.RobustWeightedOFUL(dim=2, noise_range=0.5, corruption=7, seed=3))
    assert text.startswith("RobustWeightedOFUL(dim=2, noise_range=0.5,") and "corruption=7.0" in text


def test_a_state_is_refused_by_another_policy_or_if_it_is_broken() -> None:
    state = robandit.OFUL(dim=2, noise_range=0.5, seed=1, trials=[4, 2]).state()
    json.dumps(state["config"])
    with pytest.raises(ValueError, match="not a state of Greedy in format 1, but of OFUL in format 1"):
        robandit.Greedy.from_state(state)
    broken = {**state, "arrays": {**state["arrays"], "mean": np.zeros((2, 3))}}
    with pytest.raises(ValueError, match=r"array 'mean' should be float64 of shape \(2, 2\)"):
        robandit.OFUL.from_state(broken)
    missing = {**state, "arrays": {k: v for k, v in state["arrays"].items() if k != "root"}}
    with pytest.raises(ValueError, match=r"arrays should be .*'root'.*, but are"):
        robandit.OFUL.from_state(missing)
    for broken in (
        {**state, "arrays": {**state["arrays"], "mean": np.full((2, 2), np.nan)}},
        {**state, "arrays": {**state["arrays"], "updates": np.array([-1, 0])}},
        {**state, "config": {**state["config"], "colour": "red"}},
        {key: value for key, value in state.items() if key != "round"},
        {**state, "round": -1},
    ):
        with pytest.raises(ValueError, match="impossible numbers|is broken|round must be"):
            robandit.OFUL.from_state(broken)


def test_numpy_settings_make_a_state_of_plain_json() -> None:
    make: Any = robandit.MultiLevelWeightedOFUL
    policy = make(
        dim=np.int64(2),
        noise_range=np.float32(0.5),
        horizon=np.int32(9),
        trials=np.array([3, 4]),
        seed=np.int64(1),
        clip_rewards=np.True_,
    )
    policy.update(replace(policy.choose([[0.6, 0.8]]), round=np.int64(1)), [0.1, 0.2])
    state = policy.state()
    restored = json.loads(json.dumps({key: value for key, value in state.items() if key != "arrays"}))
    again = robandit.MultiLevelWeightedOFUL.from_state({**restored, "arrays": state["arrays"]})
    assert robandit.checks.same_state(policy, again)


def test_a_masked_trial_needs_no_sigma() -> None:
    policy = robandit.WeightedOFUL(dim=2, noise_range=0.5, trials=2, seed=1)
    decision = policy.choose([[0.6, 0.8]])
    policy.update(decision, [0.3, np.nan], sigma=[0.4, np.nan], mask=[True, False])
    assert policy.state()["arrays"]["updates"].tolist() == [1, 0]


def test_memory_order_does_not_change_a_bit() -> None:
    rng = np.random.default_rng(2)
    one, other = (robandit.OFUL(dim=7, noise_range=0.5, seed=1, trials=3) for _ in range(2))
    for _ in range(50):
        actions = rng.uniform(-0.3, 0.3, (3, 9, 7))
        a, b = one.choose(actions), other.choose(np.asfortranarray(actions))
        assert np.array_equal(a.value, b.value) and np.array_equal(a.index, b.index)
        one.update(a, a.action[:, 0])
        other.update(b, b.action[:, 0])
    assert robandit.checks.same_state(one, other)


def test_single_precision_unit_vectors_are_short_enough() -> None:
    actions = np.random.default_rng(0).normal(size=(50, 30)).astype(np.float32)
    actions /= np.linalg.norm(actions, axis=1, keepdims=True)
    robandit.OFUL(dim=30, noise_range=0.5).choose(actions)


@pytest.mark.parametrize("reward", [np.ma.masked, "0.5", 1j, None], ids=["masked", "text", "complex", "none"])
def test_rewards_that_are_no_numbers(reward: Any) -> None:
    policy = robandit.OFUL(dim=1, noise_range=0.5)
    with pytest.raises(ValueError, match="reward must be real numbers, got"):
        policy.update(policy.choose([[1.0]]), reward)


def test_greedy_learns_on_a_ball_from_nothing() -> None:
    policy = robandit.Greedy(dim=2, noise_range=0.5)
    for _ in range(20):
        decision = policy.choose(robandit.Ball(2))
        policy.update(decision, float(decision.action @ [0.6, 0.5]))
    assert float(decision.action @ [0.6, 0.5]) > 0.5


def test_policies_can_be_pickled_by_those_who_trust_the_pickle() -> None:
    for make in (robandit.OFUL, robandit.Quorum, partial(robandit.MultiLevelWeightedOFUL, horizon=9)):
        policy = make(dim=2, noise_range=0.5, seed=1, trials=3)
        policy.update(policy.choose([[0.6, 0.8]]), [0.1, 0.2, 0.3])
        copied = pickle.loads(pickle.dumps(policy))
        assert robandit.checks.same_state(policy, copied)
        for each in (policy, copied):
            each.update(each.choose([[0.6, 0.8]]), [0.3, 0.1, 0.2])
        assert robandit.checks.same_state(policy, copied)


def test_unseeded_policies_differ_and_can_be_repeated() -> None:
    one, other = (robandit.OFUL(dim=2, noise_range=0.5) for _ in range(2))
    assert one.seed != other.seed
    ties = [[0.6, 0.8], [1.0, 0.0]]
    again = robandit.OFUL(dim=2, noise_range=0.5, seed=one.seed)
    assert [one.choose(ties).index for _ in range(64)] == [again.choose(ties).index for _ in range(64)]


def test_rounds_and_levels_are_visible() -> None:
    policy = robandit.MultiLevelWeightedOFUL(dim=2, noise_range=0.5, horizon=100, seed=1)
    decisions = [policy.choose([[1.0, 0.0], [0.0, 1.0]]) for _ in range(64)]
    assert all(b.round == a.round + 1 for a, b in pairwise(decisions))
    assert {1, 2, 3} <= {decision.level for decision in decisions}


@pytest.mark.parametrize("kind", [robandit.OFUL, robandit.MultiLevelWeightedOFUL])
def test_what_a_policy_hands_out_is_a_copy(kind: Any) -> None:
    settings = {"horizon": 9} if kind is robandit.MultiLevelWeightedOFUL else {}
    policy = kind(dim=2, noise_range=0.5, seed=1, trials=2, **settings)
    policy.update(policy.choose([[0.6, 0.8]]), [0.4, 0.5])
    before = kind.from_state(policy.state())
    policy.estimate().center[:] = 9.0
    policy.estimate().root[:] = 9.0
    policy.state()["arrays"]["mean"][:] = 9.0
    if settings:
        policy.candidate(1).first.center[:] = 9.0
    assert robandit.checks.same_state(policy, before)


def test_a_set_that_cannot_change_is_checked_once_and_any_other_always() -> None:
    policy = robandit.OFUL(dim=2, noise_range=0.5, seed=1)
    actions = np.array([[1.0, 0.0], [0.0, 1.0]])
    actions.flags.writeable = False
    first = policy.choose(actions)
    assert policy.choose(actions).index in (0, 1) and first.index in (0, 1)
    actions.flags.writeable = True
    actions[0, 0] = np.nan
    with pytest.raises(ValueError, match="actions must be finite"):
        policy.choose(actions)
    owner = np.array([[1.0, 0.0], [0.0, 1.0]])
    view = owner[:]
    view.flags.writeable = False
    policy.choose(view)
    owner[0, 0] = np.nan  # through the back door
    with pytest.raises(ValueError, match="actions must be finite"):
        policy.choose(view)


oful: Any = robandit.OFUL  # as callers without a type checker see them
robust: Any = robandit.RobustWeightedOFUL


@pytest.mark.parametrize(
    ("error", "message", "call"),
    [
        (TypeError, r"OFUL takes keywords only: OFUL\(dim=…, noise_range=…\)", lambda: oful(3, 0.5)),
        (TypeError, "OFUL has no setting 'dims'; did you mean 'dim'", lambda: oful(dims=3, noise_range=0.5)),
        (TypeError, "update needs the Decision that choose gave, .* got 0", lambda: plain_oful().update(0, 1.0)),
        (
            ValueError,
            "level must lie in 1 … 5, got 0: is this decision another policy's",
            lambda: robandit.MultiLevelWeightedOFUL(dim=2, noise_range=0.5, horizon=9).update(
                plain_oful().choose([[1.0, 0.0]]), 1.0
            ),
        ),
        (
            ValueError,
            "the decision's action has shape",
            lambda: robandit.OFUL(dim=3, noise_range=0.5).update(plain_oful().choose([[1.0, 0.0]]), 1.0),
        ),
        (
            ValueError,
            "RobustWeightedOFUL must be told corruption, got None; MultiLevelWeightedOFUL need not be",
            lambda: robust(dim=2, noise_range=0.5, corruption=None),
        ),
    ],
)
def test_mistakes_get_a_sentence(error: type[Exception], message: str, call: Any) -> None:
    with pytest.raises(error, match=message):
        call()


def plain_oful() -> Any:
    return robandit.OFUL(dim=2, noise_range=0.5, seed=1)
