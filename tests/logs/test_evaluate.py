"""Off-policy evaluation: estimators beside textbook formulas, coverage in simulations, and what is refused."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from logged import DIM, MU, Floats, menus
from scipy.stats import binom

import observed
from robandit.logs.evaluate.estimators import (
    bernstein,
    by_decision,
    doubly_robust,
    effective_size,
    importance,
    interval,
    ips,
    lower_bound,
    mean_weight,
    predict,
    snips,
)
from robandit.policies import OFUL, Greedy, Policy

pytestmark = pytest.mark.no_cover  # other tests run these lines, and more quickly

ACTIONS, NOISE = 4, 0.5

# ------------------------------------------------------------------------------------ beside the textbook


def test_estimators_are_the_textbook_formulas() -> None:
    rng = np.random.default_rng(1)
    w, r, taken, expected = rng.exponential(size=50), rng.normal(size=50), rng.normal(size=50), rng.normal(size=50)
    assert ips(w, r).mean() == pytest.approx(sum(a * b for a, b in zip(w, r, strict=True)) / 50)
    value = float(np.average(r, weights=w))
    assert snips(w, r).mean() == pytest.approx(value)
    error = np.sqrt(np.sum(w**2 * (r - value) ** 2)) / w.sum()  # the delta method's
    assert snips(w, r).std() / 50**0.5 == pytest.approx(error)
    dr = [e + a * (b - f) for a, b, f, e in zip(w, r, taken, expected, strict=True)]
    assert doubly_robust(w, r, taken, expected).tolist() == pytest.approx(dr)
    value, low, high = interval(r, 0.95)
    assert (high - low) / 2 == pytest.approx(1.959964 * r.std(ddof=1) / 50**0.5) and value == pytest.approx(r.mean())


def test_effective_size() -> None:
    assert effective_size(np.ones(7)) == pytest.approx(7)
    assert effective_size(np.array([0.0, 3.0, 0.0])) == pytest.approx(1)
    assert effective_size(np.zeros(3)) == 0.0
    assert effective_size(np.array([1e200, 1e200])) == pytest.approx(2)


def test_a_reward_model_knows_the_past_only() -> None:
    rng = np.random.default_rng(2)
    counts = rng.integers(1, 5, 120)
    starts = np.concatenate([[0], np.cumsum(counts)])
    offered, rewards = rng.normal(size=(starts[-1], 3)), rng.normal(size=120)
    index = np.array([rng.integers(count) for count in counts])
    found = predict(offered, starts, index, rewards, 20)
    assert not found[: starts[20]].any()
    taken = np.concatenate([offered, np.ones((len(offered), 1))], axis=1)[starts[:-1] + index]
    for t in range(20, 120):
        rows, near = slice(starts[t], starts[t + 1]), []
        for begin in range(t - 2, t + 1):  # where its block may begin
            gram = np.eye(4) + taken[:begin].T @ taken[:begin]
            model = np.linalg.inv(gram) @ taken[:begin].T @ rewards[:begin]
            near.append(np.abs(found[rows] - offered[rows] @ model[:3] - model[3]).max())
        assert observed.note("reward model beside the normal equations", min(near)) < 1e-12
    sums = [found[a:b].sum() for a, b in itertools.pairwise(starts)]
    np.testing.assert_allclose(by_decision(found, starts), sums, atol=1e-12)


def test_estimates_are_unbiased_over_all_that_could_have_happened() -> None:
    """Two actions, five rounds, a logging policy that learns: IPS and DR have the value as their exact mean. A reward
    model that has seen the decision which it is for has not."""
    rng, rounds = np.random.default_rng(3), 5
    offered, means = rng.normal(size=(2 * rounds, 2)), rng.uniform(0.0, 1.0, (rounds, 2))
    starts, target = np.arange(0, 2 * rounds + 1, 2), np.tile([0.2, 0.8], rounds)
    truth = (target.reshape(rounds, 2) * means).sum(axis=1).mean()
    mean = dict.fromkeys(("chance", "ips", "dr", "peeking"), 0.0)
    for path in itertools.product((0, 1), repeat=rounds):
        index, chance, logged, seen = np.array(path), 1.0, [], [0.0, 0.0]
        for t, action in enumerate(path):  # it leans to what has paid
            p = 1.0 / (1.0 + np.exp(seen[0] - seen[1]))
            logged.append(p if action else 1.0 - p)
            chance *= logged[-1]
            seen[action] += means[t, action]
        rewards = means[np.arange(rounds), index]
        weights = importance(target[starts[:-1] + index], np.array(logged))
        fitted = predict(offered, starts, index, rewards, 0)
        peeking = predict(
            np.tile(offered, (2, 1)), np.arange(0, 4 * rounds + 1, 2), np.tile(index, 2), np.tile(rewards, 2), 5
        )
        mean["chance"] += chance
        mean["ips"] += chance * ips(weights, rewards).mean()
        for name, model in (("dr", fitted), ("peeking", peeking[2 * rounds :])):
            expected = by_decision(target * model, starts)
            mean[name] += chance * doubly_robust(weights, rewards, model[starts[:-1] + index], expected).mean()
    assert mean["chance"] == pytest.approx(1.0)
    assert observed.note("bias of IPS over all paths", mean["ips"] - truth) < 1e-14
    assert observed.note("bias of DR over all paths", mean["dr"] - truth) < 1e-14
    assert abs(mean["peeking"] - truth) > 1e-3


# ------------------------------------------------------------------------------------ coverage


class Logs(NamedTuple):
    """Many logs at once, of n decisions each."""

    offered: Floats  # (B, n, K, d)
    index: Any  # (B, n)
    propensity: Floats
    rewards: Floats


def curved(actions: Floats) -> Floats:
    """Means that no linear model has."""
    return np.sin(4.0 * actions[..., 0]) * 0.4 + actions[..., 1] ** 2


def linear(actions: Floats) -> Floats:
    return actions @ MU


def gather(logs: int, rounds: int, means: Callable[[Floats], Floats], seed: int = 11, noise: float = NOISE) -> Logs:
    """OFUL learns and explores, in as many worlds as there are logs."""
    policy = OFUL(dim=DIM, trials=logs, seed=seed, noise_range=NOISE, radius_scale=0.3, exploration=0.2)
    rng = np.random.default_rng(seed)
    offered = menus(rng, logs * rounds, ACTIONS).reshape(logs, rounds, ACTIONS, DIM)
    index, propensity, rewards = np.empty((logs, rounds), int), np.empty((logs, rounds)), np.empty((logs, rounds))
    for t in range(rounds):
        made = policy.choose(offered[:, t], propensity=True)
        rewards[:, t] = means(made.action) + rng.uniform(-noise, noise, logs)
        index[:, t], propensity[:, t] = made.index, made.propensity
        policy.update(made, rewards[:, t])
    return Logs(offered, index, propensity, rewards)


def softmax(actions: Floats) -> Floats:
    """A fixed target (…, K): fond of the third feature."""
    power = np.exp(6.0 * actions[..., 2])
    return power / power.sum(axis=-1, keepdims=True)


def estimates(logs: Logs, b: int, chances: Floats, cut: int) -> dict[str, tuple[Floats, Floats]]:
    """The terms of each estimator in one log from ``cut`` on, and the weights; chances (n − cut, K)."""
    rounds = len(logs.index[b])
    starts = np.arange(0, ACTIONS * rounds + 1, ACTIONS)
    fitted = predict(logs.offered[b].reshape(-1, DIM), starts, logs.index[b], logs.rewards[b], cut).reshape(-1, ACTIONS)
    rows, index, rewards = np.arange(rounds - cut), logs.index[b, cut:], logs.rewards[b, cut:]
    weights = importance(chances[rows, index], logs.propensity[b, cut:])
    expected = (chances * fitted[cut:]).sum(axis=1)
    dr = doubly_robust(weights, rewards, fitted[cut:][rows, index], expected)
    return {"IPS": (ips(weights, rewards), weights), "SNIPS": (snips(weights, rewards), weights), "DR": (dr, weights)}


def cover(truth: Floats, found: list[dict[str, tuple[Floats, Floats]]], name: str) -> dict[str, float]:
    """Check coverage at 95 % and bias against truth (B,); gives the mean widths."""
    widths = {}
    low, high = binom.interval(0.9995, len(truth), 0.95)
    for how in found[0]:
        made = np.array([interval(one[how][0], 0.95) for one in found])
        hits = int(((made[:, 1] <= truth) & (truth <= made[:, 2])).sum())
        observed.surplus(f"coverage of {how}, {name}, %", 100 * hits / len(truth))
        assert low <= hits <= high, (how, hits)
        error = made[:, 0] - truth
        observed.note(f"bias of {how}, {name}, in standard errors", error.mean() / (error.std() / len(error) ** 0.5))
        assert abs(error.mean()) < 4.0 * error.std() / len(error) ** 0.5, (how, error.mean())
        widths[how] = float((made[:, 2] - made[:, 1]).mean())
        observed.surplus(f"width of {how}, {name}", widths[how])
    return widths


def value(means: Callable[[Floats], Floats], chances: Callable[[Floats], Floats], number: int = 200_000) -> float:
    """The target's value by simulation, on contexts that no log has."""
    fresh = menus(np.random.default_rng(99), number, ACTIONS)
    return float((chances(fresh) * means(fresh)).sum(axis=1).mean())


def check_fixed(logs: int, rounds: int) -> None:
    for means in (linear, curved):
        gathered = gather(logs, rounds, means)
        found = [estimates(gathered, b, softmax(gathered.offered[b]), 0) for b in range(logs)]
        cover(np.full(logs, value(means, softmax)), found, f"{means.__name__}, fixed")
        # On the contexts of the log itself intervals are too wide, never too short.
        own = np.array([(softmax(x) * means(x)).sum(axis=1).mean() for x in gathered.offered])
        for how in found[0]:
            made = np.array([interval(one[how][0], 0.95) for one in found])
            assert ((made[:, 1] <= own) & (own <= made[:, 2])).sum() >= binom.ppf(2.5e-4, logs, 0.95)


def check_trained(logs: int, rounds: int, seed: int = 12) -> None:
    """Greedy learns from the first half of each log, and is evaluated on the second."""
    gathered, cut = gather(logs, rounds, linear, seed), rounds // 2
    rows = np.arange(logs)[:, None], np.arange(cut)[None], gathered.index[:, :cut]
    policy: Policy = Greedy(dim=DIM, noise_range=NOISE, trials=logs, seed=1)
    policy.warm_start(gathered.offered[rows], gathered.rewards[:, :cut])
    chances = np.stack([policy.propensities(gathered.offered[:, t]) for t in range(cut, rounds)], axis=1)
    found = [estimates(gathered, b, chances[b], cut) for b in range(logs)]
    fresh = menus(np.random.default_rng(98), 20_000, ACTIONS)
    truth = []
    for center in policy.estimate().center:
        best = np.argmax(fresh @ center, axis=1)
        truth.append(float((fresh[np.arange(len(fresh)), best] @ MU).mean()))
    cover(np.array(truth), found, "linear, trained")


def test_intervals_cover_a_fixed_policy() -> None:
    check_fixed(logs=150, rounds=600)


def test_intervals_cover_a_trained_policy() -> None:
    check_trained(logs=150, rounds=600)


@pytest.mark.slow
def test_intervals_cover_in_many_logs() -> None:
    check_fixed(logs=1000, rounds=2000)
    check_trained(logs=1000, rounds=2000)


def test_a_model_that_is_right_makes_dr_narrow() -> None:
    gathered = gather(100, 800, linear, noise=0.1)
    found = [estimates(gathered, b, softmax(gathered.offered[b]), 0) for b in range(100)]
    widths = cover(np.full(100, value(linear, softmax)), found, "little noise")
    assert widths["DR"] < 0.6 * widths["IPS"]


def test_shifted_rewards_hurt_ips_and_not_dr() -> None:
    gathered = gather(60, 600, linear)
    shifted = gathered._replace(rewards=gathered.rewards + 3.0)
    found = [estimates(shifted, b, softmax(shifted.offered[b]), 0) for b in range(60)]
    widths = cover(np.full(60, value(linear, softmax) + 3.0), found, "shifted")
    assert widths["DR"] < 0.5 * widths["IPS"] and widths["SNIPS"] < 0.5 * widths["IPS"]


# ------------------------------------------------------------------------------------ for every n


def test_the_inequality_behind_the_bound() -> None:
    y = np.concatenate([np.linspace(-1.0, 3.0, 4001), np.geomspace(3.0, 1e4, 100)])
    for rate in np.geomspace(1e-6, 0.95, 40):
        psi = -np.log1p(-rate) - rate
        assert (np.exp(rate * y - psi * y**2) <= 1.0 + rate * y + 1e-12).all()


def test_the_bound_is_the_formula() -> None:
    x = np.random.default_rng(4).exponential(size=40)
    spread = sum((x[t] - min(1.0, x[:t].mean() if t else 0.5)) ** 2 for t in range(40))
    rates = [0.95 / 2**j for j in range(20)]
    excess = min((np.log(20 / 0.025) + (-np.log(1 - rate) - rate) * spread) / rate for rate in rates)
    assert lower_bound(x, 0.025) == pytest.approx(x.mean() - excess / 40)


def test_the_bound_holds_at_all_times() -> None:
    """Heavy weights, looked at often: no more wrong logs than are allowed."""
    rng, wrong, looks = np.random.default_rng(5), 0, np.unique(np.geomspace(5, 2000, 25).astype(int))
    for _ in range(300):
        weights = np.where(rng.random(2000) < 0.02, 50.0, 0.0)
        terms = weights * (rng.random(2000) < 0.7)
        wrong += any(lower_bound(terms[:n], 0.05) > 0.7 for n in looks)
    assert wrong <= binom.isf(1e-3, 300, 0.05)
    observed.surplus("wrong of 300 bounds at 5 %", wrong)


def test_the_interval_for_every_n_covers_and_closes_in() -> None:
    gathered, truth = gather(60, 800, linear), value(linear, softmax)
    reach, wrong, widths = (-2.0, 2.0), 0, []
    for b in range(60):
        _, weights = estimates(gathered, b, softmax(gathered.offered[b]), 0)["IPS"]
        made = bernstein(weights, gathered.rewards[b], reach, 0.95)
        wrong += not made.low <= truth <= made.high
        widths.append(made.high - made.low)
        assert reach[0] <= made.low <= made.value <= made.high <= reach[1]
    assert wrong <= binom.isf(1e-3, 60, 0.05)
    observed.surplus("width for every n, fixed", float(np.mean(widths)))
    assert np.mean(widths) < 1.5
    assert json.dumps(made._asdict())


# ------------------------------------------------------------------------------------ are the propensities right?


def greedy_weights(rng: np.random.Generator, number: int, wrong: float = 1.0) -> Floats:
    """Weights of a greedy target that seldom differs from the logging policy, which explores a tenth of the time."""
    chance, actions = 0.1, 5
    same = rng.random(number) < 0.95
    likely = rng.random(number) < 1.0 - chance + chance / actions
    taken = np.where(same, likely, rng.random(number) < chance / actions)
    propensity = np.where(same, 1.0 - chance + chance / actions, chance / actions)
    return np.asarray(np.where(taken, 1.0 / (wrong * propensity), 0.0))


def test_right_propensities_are_not_doubted_and_wrong_ones_are() -> None:
    rng, most = np.random.default_rng(5), 5 / 0.1
    old = new = 0
    for _ in range(400):
        weights = greedy_weights(rng, 750)
        error = weights.std(ddof=1) / len(weights) ** 0.5
        old += abs(weights.mean() - 1.0) > 4.0 * error
        low, high = mean_weight(weights, most, 0.002)
        new += not low <= 1.0 <= high
    assert old > 40 and new <= 2  # large weights are rare, and a log without one looks wrong by its own spread
    for wrong in (0.7, 1.4):
        low, high = mean_weight(greedy_weights(rng, 20_000, wrong), most / wrong, 0.002)
        assert not low <= 1.0 <= high
