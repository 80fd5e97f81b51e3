"""The rival policies against plain transcriptions of their definitions, and what those say of their behaviour."""

import copy
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import rivals as slow
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from test_policies import ACTIONS, DIM, NEAR_TIE, NOISE, World
from transcriptions import Ridge

import robandit
from robandit.policies import Policy
from robandit.policies.stochastic_corral import log_barrier_step
from thinned import longer, thinned

HORIZON = 4000


class Stream(World):
    """The world of the other policies' tests, with actions as long as `bound`."""

    def __init__(self, seed: int, bound: float = 1.0) -> None:
        self.bound = bound
        super().__init__(seed)

    def actions(self) -> Any:
        return self.bound * super().actions()


def both(name: str, settings: dict[str, Any], **more: Any) -> tuple[Any, Any]:
    """A policy and its transcription."""
    kind, transcription = getattr(robandit, name), getattr(slow, f"Slow{name}")
    shared = {"dim": DIM, "noise_range": NOISE, **settings}
    return kind(**shared, seed=1, **more), transcription(**shared)


def check(decision: Any, values: Any, t: int, rel: float = 1e-9) -> None:
    """The decision is optimal by these values (K,), and says so."""
    assert values[decision.index] >= values.max() - NEAR_TIE * (1.0 + abs(values.max())), f"round {t}"
    assert decision.value == pytest.approx(values.max(), rel=rel, abs=1e-9), f"round {t}"


# ------------------------------------------------------------------------------------ one ellipsoid

ONE_ELLIPSOID: dict[str, tuple[str, dict[str, Any]]] = {
    "CW known": ("CWOFUL", {"corruption": 20.0}),
    "CW clean": ("CWOFUL", {"corruption": 0.0, "radius_scale": 0.05}),
    "CW unknown": ("CWOFUL", {"corruption": None, "radius_scale": 0.1, "parameter_bound": 2.0}),
    "CW unknown, theory": ("CWOFUL", {"corruption": None, "delta": 0.2, "action_bound": 1.5}),
    "CW with a threshold": ("CWOFUL", {"corruption": None, "threshold": 0.2, "radius": 0.6}),
    "CW scaled": ("CWOFUL", {"corruption": 5.0, "radius_scale": 0.02, "regularization": 0.3, "action_bound": 0.8}),
    "CW fixed": ("CWOFUL", {"corruption": 100.0, "radius": 0.7, "radius_scale": 3.0}),
    "VA known": ("VarianceAwareCWOFUL", {"corruption": 20.0}),
    "VA clean": ("VarianceAwareCWOFUL", {"corruption": 0.0, "radius_scale": 0.01, "delta": 0.01}),
    "VA unknown": ("VarianceAwareCWOFUL", {"corruption": None, "radius_scale": 0.003, "action_bound": 1.5}),
    "VA floor": ("VarianceAwareCWOFUL", {"corruption": 1.0, "radius_scale": 0.02, "sigma_floor": 0.6}),
    "VA bound": (
        "VarianceAwareCWOFUL",
        {"corruption": 3.0, "radius_scale": 0.01, "parameter_bound": 3.0, "mean_bound": 2.0},
    ),
    "GAda known": ("GAdaOFUL", {"corruption": 20.0}),
    "GAda clean": ("GAdaOFUL", {"corruption": 0.0, "radius_scale": 0.003}),
    "GAda unknown": ("GAdaOFUL", {"corruption": None, "radius_scale": 0.001, "action_bound": 1.5, "delta": 0.2}),
    "GAda floor": ("GAdaOFUL", {"corruption": 1.0, "radius_scale": 0.002, "sigma_floor": 0.6, "regularization": 0.2}),
    "GAda fixed": ("GAdaOFUL", {"corruption": 5.0, "radius": 0.9, "parameter_bound": 2.0}),
}


def play_both(policy: Any, reference: Any, world: World, rounds: int) -> set[int]:
    """Check every choice of a policy against its transcription. Returns the actions that were played."""
    played = set()
    for t in range(rounds):
        actions, sigma = world.round(t)
        decision = policy.choose(actions, sigma=sigma)
        check(decision, reference.values(actions), t)
        reward = world.reward(decision.action, sigma, lies=0.1)
        policy.update(decision, reward)
        reference.update(decision.action, reward, sigma)
        played.add(decision.index)
    assert policy.estimate().radius == pytest.approx(reference.current_radius(), rel=1e-12)
    return played


@pytest.mark.no_cover
@pytest.mark.parametrize("case", ONE_ELLIPSOID)
def test_one_ellipsoid_policies_play_as_transcribed(case: str) -> None:
    name, settings = ONE_ELLIPSOID[case]
    policy, reference = both(name, {"horizon": HORIZON, **settings})
    played = play_both(policy, reference, Stream(11, settings.get("action_bound", 1.0)), 800)
    assert played == set(range(ACTIONS))
    center = reference.theta if name == "GAdaOFUL" else reference.whole.mu
    assert policy.estimate().center == pytest.approx(center, rel=1e-8, abs=1e-11)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "settings",
    longer(
        {"discount": 0.5, "radius_scale": 0.3, "parameter_bound": 2.0, "action_bound": 1.5, "delta": 0.2},
        {"discount": 0.99},
        {"discount": 0.995, "radius_scale": 0.05},
        {"discount": 0.9, "radius": 0.7, "regularization": 0.3},
    ),
    ids=str,
)
def test_discounted_lin_ucb_plays_as_transcribed(settings: dict[str, Any]) -> None:
    policy, reference = both("DiscountedLinUCB", settings)
    assert len(play_both(policy, reference, Stream(13, settings.get("action_bound", 1.0)), 250)) > 1
    assert policy.estimate().center == pytest.approx(reference.center(), rel=1e-8, abs=1e-11)


def test_discounted_lin_ucb_forgets_lies_and_stays_bounded() -> None:
    action = np.array([[1.0, 0.0, 0.0]])
    policy = robandit.DiscountedLinUCB(dim=3, noise_range=NOISE, discount=0.99, seed=1)
    for reward in [-1.0] * 500 + [0.5] * 1000:
        policy.update(policy.choose(action), reward)
    assert policy.estimate().center[0] == pytest.approx(0.5, abs=0.02)
    assert np.linalg.eigvalsh(policy.stats.precision[0]) == pytest.approx([1.0, 1.0, 101.0], rel=1e-3)


def test_a_trial_without_a_reward_forgets_nothing() -> None:
    policy = robandit.DiscountedLinUCB(dim=3, noise_range=NOISE, trials=2, seed=1)
    for t in range(20):
        decision = policy.choose(np.eye(3))
        before = {name: array[1].copy() for name, array in policy.state()["arrays"].items()}
        policy.update(decision, [0.3, 0.3], mask=[True, t < 10])
        if t >= 10:
            assert all(np.array_equal(array[1], before[name]) for name, array in policy.state()["arrays"].items())


@pytest.mark.no_cover
@pytest.mark.parametrize("name", ["CWOFUL", "VarianceAwareCWOFUL", "GAdaOFUL"])
def test_corruption_per_trial(name: str) -> None:
    amounts, shared = (0.0, 5.0, 80.0), {"horizon": HORIZON, "radius_scale": 0.05}
    batch, _ = both(name, {**shared, "corruption": 0.0})
    batch = type(batch)(dim=DIM, noise_range=NOISE, **shared, corruption=amounts, trials=3, seed=1)
    references = [both(name, {**shared, "corruption": amount})[1] for amount in amounts]
    world = World(seed=12)
    for t in range(150):
        actions, sigma = world.round(t)
        decision = batch.choose(actions, sigma=sigma)
        rewards = [world.reward(action, sigma, lies=0.1) for action in decision.action]
        for i, reference in enumerate(references):
            assert decision.value[i] == pytest.approx(reference.values(actions).max(), rel=1e-9)
            reference.update(decision.action[i], rewards[i], sigma)
        batch.update(decision, rewards)


@pytest.mark.no_cover
def test_cw_oful_without_corruption_plays_exactly_as_oful() -> None:
    shared: dict[str, Any] = {"dim": DIM, "noise_range": NOISE, "radius": 0.8, "seed": 3}
    clean, plain = robandit.CWOFUL(**shared, horizon=HORIZON, corruption=0.0), robandit.OFUL(**shared)
    wary = robandit.CWOFUL(**shared, horizon=HORIZON, corruption=30.0)
    world, differs = World(seed=4), 0
    for t in range(1000):
        actions, sigma = world.round(t)
        decision, other = clean.choose(actions, sigma=sigma), plain.choose(actions, sigma=sigma)
        assert (decision.index, decision.value) == (other.index, other.value), f"round {t}"
        differs += wary.choose(actions, sigma=sigma).index != decision.index
        reward = world.reward(decision.action, sigma, lies=0.1)
        for policy in (clean, plain, wary):
            policy.update(decision, reward)
    assert differs > 20  # the weights matter where there is corruption


# ------------------------------------------------------------------------------------ GAdaOFUL's estimate


def follow(rounds: int, outliers: float, seed: int) -> tuple[Any, Any, Any, Ridge]:
    """GAdaOFUL, its transcription and the world after a stream, and ridge regression with the same weights."""
    unclipped = {"horizon": HORIZON, "corruption": 0.0, "radius": 0.3, "mean_bound": 1e3}
    policy, reference = both("GAdaOFUL", unclipped)
    world, ridge = World(seed), Ridge(DIM, 1.0)
    for _ in range(rounds):
        actions, sigma = world.actions(), float(world.rng.uniform(0.1, 0.5))
        decision = policy.choose(actions, sigma=sigma)
        reward = world.reward(decision.action, sigma, lies=0.0)
        if world.rng.random() < outliers:
            reward = 60.0
        ridge.add(decision.action, reward, reference.sigma_bar(decision.action, sigma))
        policy.update(decision, reward)
        reference.update(decision.action, reward, sigma)
    return policy, reference, world, ridge


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_one_newton_step_a_round_stays_close_to_the_full_estimator(seed: int) -> None:
    policy, reference, world, _ = follow(600, outliers=0.0, seed=seed)
    apart = np.linalg.norm(policy.estimate().center - reference.minimiser())
    assert apart < 2e-3  # measured over eight seeds: at most 5e-4
    assert apart < 0.1 * np.linalg.norm(reference.minimiser() - world.parameter)


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_outliers_move_gadaoful_far_less_than_ridge_with_its_weights(seed: int) -> None:
    policy, _, world, ridge = follow(600, outliers=0.05, seed=seed)
    ours, plain = (np.linalg.norm(found - world.parameter) for found in (policy.estimate().center, ridge.mu))
    assert ours < 0.2 * plain  # measured over eight seeds: 0.3 to 0.45 beside 3 to 7


# ------------------------------------------------------------------------------------ Thompson sampling

SAMPLERS: dict[str, tuple[str, dict[str, Any]]] = {
    "LinTS": ("LinTS", {}),
    "LinTS, scaled": ("LinTS", {"radius_scale": 0.1, "delta": 0.01, "regularization": 0.3}),
    "robust": ("RobustLinTS", {"horizon": HORIZON, "corruption": 20.0, "radius_scale": 0.3}),
    "robust, clean": ("RobustLinTS", {"horizon": HORIZON, "corruption": 0.0, "radius_scale": 0.2}),
    "robust, unknown": ("RobustLinTS", {"horizon": HORIZON, "corruption": None, "radius_scale": 0.1}),
}


def taught(case: str, rounds: int, trials: int) -> tuple[Any, Any, World]:
    """Many trials of a sampler that are all taught the same rounds, their transcription, and the world."""
    name, settings = SAMPLERS[case]
    policy, reference = both(name, settings, trials=trials)
    world = World(seed=7)
    for t in range(rounds):
        actions, sigma = world.round(t)
        decision = policy.choose(actions, sigma=sigma)
        action = actions[decision.index[0]]
        reward = world.reward(action, sigma, lies=0.1)
        policy.update(replace(decision, action=np.tile(action, (trials, 1))), np.full(trials, reward))
        reference.update(action, reward, sigma)
    return policy, reference, world


@pytest.mark.no_cover
@pytest.mark.parametrize("case", SAMPLERS)
def test_samplers_learn_as_transcribed(case: str) -> None:
    policy, reference, _ = taught(case, rounds=600, trials=2)
    held = policy.estimate()
    assert held.center[1] == pytest.approx(reference.whole.mu, rel=1e-9, abs=1e-11)
    assert held.precision[1] == pytest.approx(reference.whole.Sigma, rel=1e-9, abs=1e-9)


@pytest.mark.no_cover
@pytest.mark.parametrize("case", SAMPLERS)
@pytest.mark.parametrize("rounds", longer(30, 0))
def test_samplers_draw_from_their_posterior(case: str, rounds: int) -> None:
    policy, reference, world = taught(case, rounds, trials=4000)
    scale = reference.v()
    for action in world.actions():  # offered alone, an action's value is <a, theta>, which is normal
        spread = stats.norm(action @ reference.whole.mu, scale * slow.width(reference.whole.Sigma, action))
        assert stats.kstest(policy.choose(action[None]).value, spread.cdf).pvalue > 1e-4  # 60 such tests in all
        wrong = stats.norm(spread.mean(), spread.std() / 2)
        assert stats.kstest(policy.choose(action[None]).value, wrong.cdf).pvalue < 1e-9  # the test can fail


@pytest.mark.no_cover
@pytest.mark.parametrize("case", thinned(SAMPLERS, fast=["LinTS, scaled", "robust", "robust, unknown"]))
def test_samplers_play_each_action_as_often_as_its_chance_to_be_best(case: str) -> None:
    trials, rng = 4000, np.random.default_rng(5)
    policy, reference, world = taught(case, rounds=30, trials=trials)

    mu, thetas = reference.whole.mu, reference.sample(rng, 400_000)

    def chances(thetas: Any, actions: Any) -> Any:
        return np.bincount((thetas @ actions.T).argmax(axis=1), minlength=ACTIONS) / len(thetas)

    offered = (world.actions() for _ in range(200))
    actions = next(a for a in offered if chances(thetas[:5000], a).min() > 0.005)
    right, half = chances(thetas, actions), chances((mu + thetas) / 2, actions)
    counts = np.bincount(policy.choose(actions).index, minlength=ACTIONS)
    assert stats.chisquare(counts, right * trials).pvalue > 1e-3
    half = (half + 1e-6) / (half + 1e-6).sum()
    assert stats.chisquare(counts, half * trials).pvalue < 1e-3  # the test can fail


@pytest.mark.parametrize("case", SAMPLERS)
def test_samplers_estimate_their_propensities(case: str) -> None:
    policy, reference, world = taught(case, rounds=30, trials=20)
    actions = world.actions()
    best = (reference.sample(np.random.default_rng(6), 400_000) @ actions.T).argmax(axis=1)
    exact = np.bincount(best, minlength=ACTIONS) / len(best)
    estimated = policy.propensities(actions)
    assert estimated.sum(axis=1) == pytest.approx(np.ones(20), abs=1e-12)
    errors = (estimated - exact) / np.sqrt((exact * (1 - exact) + 1 / 1024) / 1024)  # from 1024 draws
    assert (abs(errors) < 6.0).all() and abs(errors.mean(axis=0)).max() < 5.0 / math.sqrt(20)
    assert np.ptp(estimated, axis=0).max() > 0  # each trial has draws of its own


# ------------------------------------------------------------------------------------ candidates, masters, COBE


def play(policy: Any, reference: Any, rounds: int, world: World, pay: Any = None) -> list[int]:
    """Play against a transcription with levels. `pay` makes the reward from the level, if given. Returns the levels."""
    levels = []
    for t in range(rounds):
        actions, sigma = world.round(t)
        decision = policy.choose(actions, sigma=sigma)
        assert abs(policy.probabilities() - reference.probabilities()).max() < 1e-10, f"round {t}"
        check(decision, reference.values(actions, decision.level), t)
        reward = world.reward(decision.action, sigma, lies=0.1) if pay is None else pay(decision.level)
        policy.update(decision, reward)
        reference.update(decision.action, reward, sigma, decision.level)
        levels.append(decision.level)
    return levels


ROBUST_BANDIT: dict[str, tuple[int, dict[str, Any]]] = {
    "theory": (4, {}),
    "scaled": (4, {"radius_scale": 0.05, "parameter_bound": 2.0}),
    "short epochs": (142, {"radius_scale": 0.01, "epoch": 7, "regularization": 0.3}),
    "epochs of one": (1000, {"radius_scale": 0.01, "epoch": 1, "delta": 0.2}),
    "no restart": (1000, {"radius_scale": 0.02, "restart": False, "action_bound": 1.5}),
    "no restart, theory": (1000, {"restart": False, "epoch": 1, "mean_bound": 2.0}),
}


@pytest.mark.parametrize("case", ROBUST_BANDIT)
def test_robust_bandit_plays_as_transcribed(case: str) -> None:
    epochs, settings = ROBUST_BANDIT[case]
    policy, reference = both("RobustBandit", {"horizon": 3500, **settings})
    levels = play(policy, reference, 1000, Stream(13, settings.get("action_bound", 1.0)))
    assert reference.epochs == epochs
    assert policy.levels == len(reference.candidates) == (17 if "mean_bound" in settings else 16)
    changes = np.flatnonzero(np.diff(levels)) + 1
    assert len(changes) and (changes % reference.length == 0).all()  # a candidate is kept for its epoch
    assert len(set(levels)) > min(epochs, 8) / 2
    if reference.rate < 1.0:  # with few epochs EXP3 only explores
        assert np.ptp(reference.probabilities()) > 1e-3 * reference.probabilities().max()


DRAWERS: dict[str, dict[str, Any]] = {
    "RobustBandit": {"horizon": 200, "epoch": 2},
    "Exp3P": {"horizon": 200, "base_corruptions": (0.0, 1.0, 9.0)},
    "StochasticCorral": {"horizon": 200, "base_corruptions": (0.0, 1.0, 9.0)},
    "COBE": {"horizon": 200, "radius_scale": 1e-4},
}


@pytest.mark.no_cover
@pytest.mark.parametrize("name", DRAWERS)
def test_levels_are_drawn_by_their_probabilities(name: str) -> None:
    trials = 2000
    policy = getattr(robandit, name)(dim=1, noise_range=NOISE, trials=trials, seed=2, **DRAWERS[name])
    for _ in range(100):
        decision = policy.choose([[1.0]])
        policy.update(decision, np.where(np.isin(decision.level, (3, 6)), 1.5, -1.5))
    expected = policy.probabilities().sum(axis=0)
    counts = np.bincount(policy.choose([[1.0]]).level, minlength=len(expected) + 1)[1:]
    often = expected > 5
    seen, due = [*counts[often], counts[~often].sum()], [*expected[often], expected[~often].sum()]
    keep = len(due) if due[-1] > 1 else -1  # the rare ones are pooled
    assert stats.chisquare(seen[:keep], due[:keep], sum_check=False).pvalue > 1e-3
    assert stats.chisquare(counts).pvalue < 1e-3  # the test can fail


@pytest.mark.no_cover
@pytest.mark.parametrize("rounds", [20, 21])
@pytest.mark.parametrize("name", DRAWERS)
def test_propensities_are_those_of_the_next_choice(name: str, rounds: int) -> None:
    trials, world = 1500, World(seed=26)
    scale = {"radius_scale": 0.02, **DRAWERS[name]}
    policy = getattr(robandit, name)(dim=DIM, noise_range=NOISE, trials=trials, seed=3, **scale)
    for _ in range(rounds):
        decision = policy.choose(world.actions())
        policy.update(decision, decision.action @ world.parameter + world.rng.uniform(-NOISE, NOISE, trials))
    actions = world.actions()
    chances = policy.propensities(actions)
    assert chances.sum(axis=1) == pytest.approx(np.ones(trials), abs=1e-12)
    index = policy.choose(actions).index
    assert (chances[np.arange(trials), index] > 0).all()
    excess = np.bincount(index, minlength=ACTIONS) - chances.sum(axis=0)
    assert (abs(excess) <= 4.0 * np.sqrt((chances * (1 - chances)).sum(axis=0)) + 1e-9).all()


MASTERS: dict[str, dict[str, Any]] = {
    "theory": {},
    "scaled": {"radius_scale": 0.01, "delta": 0.2, "action_bound": 1.5},
    "floor": {"radius_scale": 0.005, "sigma_floor": 0.2, "parameter_bound": 2.0},
    "two bases": {"radius_scale": 0.01, "regularization": 0.3, "base_corruptions": (3.0, 50.0)},
}


@pytest.mark.no_cover
@pytest.mark.parametrize("case", MASTERS)
def test_exp3p_plays_as_transcribed(case: str) -> None:
    settings = MASTERS[case]
    policy, reference = both("Exp3P", {"horizon": 1000, **settings})
    levels = play(policy, reference, 800, Stream(14, settings.get("action_bound", 1.0)))
    assert policy.bases == reference.M == (2 if case == "two bases" else 13)
    assert set(levels) == set(range(1, reference.M + 1))


def test_exp3p_follows_the_rewards() -> None:
    policy, reference = both("Exp3P", {"horizon": 1000, "radius_scale": 0.01, "base_corruptions": (0.0, 1.0, 9.0)})
    play(policy, reference, 900, World(15), pay=lambda level: [-9.0, 0.3, 0.2][level - 1])
    assert reference.probabilities().argmax() == 1 and np.ptp(reference.probabilities()) > 0.2


def play_corral(policy: Any, reference: Any, rounds: int, world: World, pay: Any = None) -> list[int]:
    """Play Stochastic CORRAL; returns, for each second step, which of the base's past policies was played (or −1)."""
    drawn, step, M = [], 1, reference.M
    for t in range(rounds):
        actions, sigma = world.round(t)
        decision = policy.choose(actions, sigma=sigma)
        assert abs(policy.probabilities() - reference.probabilities()).max() < 1e-10, f"round {t}"
        if t % 2 == 0:
            check(decision, reference.values(actions, decision.level), t)
            step = decision.level
        else:
            assert decision.level == M + step
            drawn.append(which(decision.value, reference.past_values(actions, decision.level), t))
            check(decision, reference.past_values(actions, decision.level)[drawn[-1]], t)
        reward = world.reward(decision.action, sigma, lies=0.1) if pay is None else pay(decision.level)
        policy.update(decision, reward)
        reference.update(decision.action, reward, sigma, decision.level)
    return drawn


def which(value: float, past: Any, t: int) -> int:
    """The past policy (n, K) whose optimistic value this is."""
    away = abs(past.max(axis=1) - value)
    assert away.min() <= 1e-9 * (1.0 + abs(value)), f"round {t}: no past policy has value {value}"
    return int(away.argmin())


@pytest.mark.parametrize("case", MASTERS)
def test_stochastic_corral_plays_as_transcribed(case: str) -> None:
    settings = MASTERS[case]
    policy, reference = both("StochasticCorral", {"horizon": 1000, **settings})
    drawn = play_corral(policy, reference, 700, Stream(16, settings.get("action_bound", 1.0)))
    assert policy.bases == reference.M == (2 if case == "two bases" else 13)
    assert policy.levels == 2 * reference.M
    assert all(reference.past) and len(set(drawn)) > 8


@pytest.mark.no_cover
def test_corral_raises_the_rate_of_bases_that_become_rare() -> None:
    policy, reference = both(
        "StochasticCorral", {"horizon": 3000, "radius_scale": 0.01, "base_corruptions": (0.0, 1.0, 9.0)}
    )
    good = {"now": 1}

    def pay(level: int) -> float:
        return 1.2 if (level - 1) % 3 == good["now"] else -1.2

    world, raised = World(17), []
    for good["now"] in (1, 2, 0):  # a base that was bad becomes good, and comes back
        play_corral(policy, reference, 500, world, pay)
        raised.append(reference.raised)
    assert raised[0] >= 1 and raised[2] > raised[0]
    assert (reference.eta > math.sqrt(3 / 3000)).sum() >= 2


def alike(capacity: int, steps: int, trials: int) -> tuple[Any, Any, Any]:
    """Trials of a CORRAL whose first base alone learns, the same in all; their transcription; and a decision set."""
    shared: dict[str, Any] = {"horizon": 1000, "radius_scale": 0.01, "base_corruptions": (2.0, 5.0)}
    _, reference = both("StochasticCorral", shared)
    policy = robandit.StochasticCorral(dim=DIM, noise_range=NOISE, **shared, snapshots=capacity, trials=trials, seed=4)
    world = World(seed=18)
    for t in range(2 * steps - 1):
        actions, sigma = world.round(t)
        decision = policy.choose(actions, sigma=sigma)
        if t % 2 == 0:
            action, reward = actions[reference.values(actions, 1).argmax()], world.rng.uniform(-1.0, 1.0)
            told = replace(decision, action=np.tile(action, (trials, 1)), level=np.ones(trials, dtype=int))
            policy.update(told, np.full(trials, reward))
            reference.update(action, reward, sigma, 1)
    return policy, reference, world.actions()


@pytest.mark.no_cover
@pytest.mark.parametrize("capacity", [3, 40])
def test_corral_draws_every_past_policy_equally_often(capacity: int) -> None:
    steps, trials = 20, 2000
    policy, reference, actions = alike(capacity, steps, trials)
    past, decision = reference.past_values(actions, 3), policy.choose(actions)
    drawn = [which(value, past, 0) for value in decision.value[decision.level == 3]]
    counts = np.bincount(drawn, minlength=steps)
    assert len(drawn) > 0.4 * trials and len(counts) == steps
    assert stats.chisquare(counts).pvalue > 1e-3
    again = [policy.choose(actions) for _ in range(120)][1::2]  # every other one is a second step
    held = {which(decision.value[0], past, 0) for decision in again if decision.level[0] == 3}
    assert len(held) == 3 if capacity == 3 else len(held) > 10


SHARES = st.lists(st.floats(-9.0, 0.0), min_size=2, max_size=6)


@pytest.mark.no_cover
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_the_log_barrier_step_is_exact_and_sums_to_one(data: st.DataObject) -> None:
    p = 10.0 ** np.array(data.draw(SHARES))
    p /= p.sum()
    size = len(p)
    eta = 10.0 ** np.array(data.draw(st.lists(st.floats(-4.0, 1.0), min_size=size, max_size=size)))
    loss, played = np.zeros(size), data.draw(st.integers(0, size - 1))
    loss[played] = data.draw(st.floats(0.0, 1.0)) / p[played]
    found = log_barrier_step(p[None], eta[None], loss[None])[0]
    assert found.sum() == pytest.approx(1.0, abs=1e-12)
    assert (found > 0).all()
    assert found == pytest.approx(slow.exact_log_barrier(p, eta, loss), rel=1e-11)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
@pytest.mark.no_cover
def test_the_log_barrier_step_of_a_batch(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p = 10.0 ** rng.uniform(-9, 0, (50, 5))
    p /= p.sum(axis=1, keepdims=True)
    eta, loss = 10.0 ** rng.uniform(-3, 0, p.shape), rng.uniform(0, 1, p.shape) / p * (rng.random(p.shape) < 0.3)
    found = log_barrier_step(p, eta, loss)
    assert found.sum(axis=1) == pytest.approx(np.ones(50), abs=1e-12)
    assert found[0] == pytest.approx(slow.exact_log_barrier(p[0], eta[0], loss[0]), rel=1e-11)
    assert np.array_equal(found[:1], log_barrier_step(p[:1], eta[:1], loss[:1]))


@pytest.mark.no_cover
def test_the_two_transcriptions_of_the_log_barrier_step_agree() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        p, eta = rng.dirichlet(np.full(4, 0.3)) + 1e-6, 10.0 ** rng.uniform(-3, 0, 4)
        p, loss = p / p.sum(), np.zeros(4)
        loss[0] = rng.random() / p[0]
        assert slow.log_barrier(p, eta, loss) == pytest.approx(slow.exact_log_barrier(p, eta, loss), rel=1e-9)


@pytest.mark.no_cover
@pytest.mark.parametrize("name", ["Exp3P", "StochasticCorral"])
def test_a_master_gives_the_good_base_more_and_more_of_the_rounds(name: str) -> None:
    rounds, trials = 2000, 24
    policy = getattr(robandit, name)(
        dim=3,
        noise_range=NOISE,
        horizon=rounds,
        radius_scale=0.01,
        base_corruptions=(0.0, 1e6),
        trials=trials,
        seed=6,
    )
    rng, actions = np.random.default_rng(7), np.concatenate([np.eye(3), -np.eye(3)])
    good = np.empty((rounds, trials))
    for t in range(rounds):
        decision = policy.choose(actions)
        good[t] = np.isin(decision.level, (1, 3))
        means = decision.action @ [0.9, -0.1, 0.1]
        policy.update(decision, means + rng.uniform(-NOISE, NOISE, trials))
    fifth = rounds // 5
    gain = good[-fifth:].mean(axis=0) - good[:fifth].mean(axis=0)
    margin = stats.t.ppf(0.9995, trials - 1) * gain.std(ddof=1) / math.sqrt(trials)
    assert gain.mean() - margin > 0.1
    assert good[-fifth:].mean() > 0.75


COBES: dict[str, dict[str, Any]] = {
    "theory": {},
    "scaled": {"radius_scale": 0.05, "delta": 0.2, "action_bound": 1.5},
    "restarting": {"radius_scale": 1e-4, "regularization": 0.3},
    "bound": {"radius_scale": 1e-4, "parameter_bound": 2.0, "mean_bound": 2.0},
}


@pytest.mark.no_cover
@pytest.mark.parametrize("case", COBES)
def test_cobe_plays_as_transcribed(case: str) -> None:
    settings = COBES[case]
    policy, reference = both("COBE", {"horizon": 2000, **settings})
    play(policy, reference, 700, Stream(19, settings.get("action_bound", 1.0)))
    assert policy.levels == reference.I == (14 if "mean_bound" in settings else 13)
    assert (reference.k > 1) == (settings.get("radius_scale") == 1e-4)


@pytest.mark.no_cover
def test_cobe_gives_up_bases_that_are_outdone() -> None:
    policy, reference = both("COBE", {"horizon": 200, "radius_scale": 0.002})
    world, epochs = World(20), [1]
    for _ in range(40):
        play(policy, reference, 20, world, pay=lambda level: -1.0 if level <= min(reference.k, 5) else 1.0)
        epochs.append(reference.k)
    assert reference.k >= 4 and (np.diff(epochs) >= 0).all()
    assert len(set(epochs)) > 3


def ends_epoch(cobe: Any, decision: Any, reward: float) -> bool:
    """Whether this reward would end the epoch of a COBE, ours or transcribed; it is left as it is."""
    if isinstance(cobe, slow.SlowCOBE):
        transcribed = copy.deepcopy(cobe)
        transcribed.update(decision.action, reward, decision.sigma, decision.level)
        return transcribed.k > cobe.k
    probe = robandit.COBE.from_state(cobe.state())
    probe.update(decision, reward)
    return not np.array_equal(probe.probabilities(), cobe.probabilities())


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "settings",
    [{"radius_scale": 1e-4}, {"radius_scale": 1.5e-4, "action_bound": 2.0, "regularization": 0.2, "mean_bound": 1.7}],
    ids=["plain", "other bounds"],
)
def test_cobe_ends_an_epoch_at_the_very_reward_that_the_test_says(settings: dict[str, Any]) -> None:
    policy, reference = both("COBE", {"horizon": 2000, **settings})
    decision, rng, ended, t = policy.choose(World(23).actions(), sigma=0.3), np.random.default_rng(24), 0, 0
    while ended < 6:
        t += 1
        level = reference.k + t % 3 * (1 + ended % 2)  # bases k, k + 1 and k + 2, or k, k + 2 and k + 4
        told = replace(decision, action=World(t).actions()[0], level=level)
        low, high = -reference.reach, reference.reach
        if ends_epoch(reference, told, high) and not ends_epoch(reference, told, low):
            while high - low > 1e-12:
                middle = (low + high) / 2
                low, high = (low, middle) if ends_epoch(reference, told, middle) else (middle, high)
            assert ends_epoch(policy, told, high + 1e-8)
            assert not ends_epoch(policy, told, low - 1e-8)
            ended += 1
            reward = reference.reach
        else:
            reward = rng.uniform(-1.0, 0.0) if t % 3 == 0 else rng.uniform(0.0, 0.4)
        policy.update(told, reward)
        reference.update(told.action, reward, told.sigma, level)


def test_cobe_ignores_late_feedback_of_bases_it_gave_up() -> None:
    policy, reference = both("COBE", {"horizon": 2000, "radius_scale": 1e-4})
    world = World(21)
    while (late := policy.choose(world.actions(), sigma=0.3)).level != 1:
        pass
    while reference.k == 1:
        play(policy, reference, 1, world, pay=lambda level: -1.0 if level == 1 else 1.0)
    policy.update(late, 1.0)
    play(policy, reference, 50, world)


# ------------------------------------------------------------------------------------ SAVE


SAVES: dict[str, tuple[float, dict[str, Any]]] = {
    "theory": (1.0, {}),
    "scaled": (1.0, {"radius_scale": 0.002, "delta": 0.2}),
    "short": (1e-5, {"horizon": 1000, "radius_scale": 1e-3, "regularization": 0.3, "mean_bound": 2.0}),
    "deep": (1e-9, {"horizon": 10**5, "radius_scale": 0.001, "parameter_bound": 2.0}),
    "deep, theory": (1e-9, {"horizon": 10**5, "delta": 0.01}),
    "deep, small noise": (1e-9, {"horizon": 10**5, "noise_range": 0.1, "radius_scale": 1e-4, "action_bound": 1.5}),
}


def play_save(policy: Any, reference: Any, world: World, lengths: Any) -> tuple[list[int], int, int]:
    """Play SAVE. Returns the levels, how often actions were eliminated, and how often residuals made the radius."""
    levels, eliminated, residual = [], 0, 0
    for t, length in enumerate(lengths):
        actions, sigma = world.round(t)
        actions = length * actions
        decision = policy.choose(actions, sigma=sigma)
        values, level, gone = reference.values(actions)
        assert decision.level == level, f"round {t}"
        check(decision, values, t, rel=1e-8)
        reward = world.reward(decision.action, sigma, lies=0.1)
        policy.update(decision, reward)
        reference.update(decision.action, reward, sigma, level)
        levels.append(level)
        eliminated += gone > 0
        residual += level <= reference.L and reference.by_residuals(level) and len(reference.layers[level].rounds) > 1
    return levels, eliminated, residual


@pytest.mark.no_cover
@pytest.mark.parametrize("case", thinned(SAVES, fast=["theory", "scaled", "short", "deep"]))
def test_save_plays_as_transcribed(case: str) -> None:
    smallest, settings = SAVES[case]
    policy, reference = both("SAVE", {"horizon": 3000, **settings})
    world = Stream(22, settings.get("action_bound", 1.0))
    lengths = smallest ** world.rng.uniform(0.0, 1.0, size=700)  # short actions reach deep layers
    levels, eliminated, residual = play_save(policy, reference, world, lengths)
    assert policy.levels == reference.L + 1
    assert max(levels) > 1
    if settings.get("radius_scale", 1.0) < 0.005:
        assert eliminated > 20
    if smallest < 1.0:
        assert reference.L + 1 in levels
    if smallest < 1e-5:
        assert residual > 100


def test_save_uses_residuals_in_layer_eight_until_the_logarithm_forbids_it() -> None:
    policy, reference = both("SAVE", {"horizon": 3000})
    levels, _, residual = play_save(policy, reference, World(25), [2.0**-14.5] * 150)
    assert levels.count(8) > 100 and 40 < residual < 120


def test_save_caps_the_weight_of_late_feedback() -> None:
    policy, reference = both("SAVE", {"horizon": 3000, "radius_scale": 0.01})
    world = World(27)
    late = policy.choose(world.actions(), sigma=0.3)
    for _ in range(40):  # by then its width is below 2^-1, and the weight would exceed 1
        policy.update(late, 0.5)
        reference.update(late.action, 0.5, 0.3, late.level)
    assert late.level == 1 and slow.width(reference.layers[1].Sigma, late.action) < 0.4
    play_save(policy, reference, world, [1.0] * 100)


def test_save_refuses_infinite_sets() -> None:
    policy = robandit.SAVE(dim=2, noise_range=NOISE, horizon=100)
    with pytest.raises(ValueError, match="finite"):
        policy.choose(robandit.Ball(2))


def test_every_rival_is_exported() -> None:
    names = [item.removeprefix("Slow") for item in vars(slow) if item.startswith("Slow")]
    own = [name for name in names if getattr(slow, f"Slow{name}").__module__ == "rivals"]
    assert len(own) == 11
    assert all(issubclass(getattr(robandit, name), Policy) for name in own)
