"""Logged propensities are the frequencies of actions. It is a test that wrong propensities fail."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from logged import BASE, DIM, MU, Floats, menus
from scipy.stats import norm

import observed
from robandit.policies import POLICIES
from robandit.service.learning.learner import Learner
from robandit.wire.events import Rewarded
from robandit.wire.types import BanditSettings

EDGES = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 1.0])
ACTIONS = 5
_ENOUGH = 20.0  # variance of a count from which it is about normal

CASES: dict[str, dict[str, Any]] = {
    "multi-level-weighted-oful": {"radius_scale": 0.02},  # its levels disagree
    "stochastic-corral": {"radius_scale": 0.1},
    "cobe": {"radius_scale": 0.002},
    "exp3p": {"radius_scale": 0.1},
    "lin-ts": {"radius_scale": 0.1},
    "robust-lin-ts": {"radius_scale": 0.1, "corruption": 5.0},
    "oful": {"radius_scale": 0.3, "exploration": 0.1},
    "greedy": {"exploration": 0.1},
    "quorum": {"exploration": 0.1},
}


def played(name: str, rounds: int, trials: int, seed: int = 5) -> Iterator[tuple[Floats, Any]]:
    """The chances (B, K) of each action, as they stood before, and what was chosen. The first two actions are one."""
    settings = {"dim": DIM, "noise_range": 0.5, "horizon": 10 * rounds, **CASES[name]}
    made = POLICIES[name]
    known = {key: value for key, value in settings.items() if key in made.__dataclass_fields__}
    policy, rng = made(**known, trials=trials, seed=seed), np.random.default_rng(seed)
    for _ in range(rounds):
        offer = menus(rng, trials, ACTIONS)
        offer[:, 1] = offer[:, 0]
        chances = policy.propensities(offer)
        decision = policy.choose(offer, propensity=True)
        np.testing.assert_array_equal(decision.propensity, chances[np.arange(trials), decision.index])
        yield chances, decision.index
        policy.update(decision, decision.action @ MU + rng.uniform(-0.5, 0.5, trials))


def scores(chances: Floats, index: Any) -> Floats:
    """How far counts are from what chances (n, K) say, in standard deviations: of each action, and of the actions
    whose chance is in each bucket. Each is a sum of martingale differences with a variance that is known."""
    chosen = np.eye(chances.shape[1])[index]
    kind = np.digitize(chances, EDGES[1:-1])
    masks = [np.arange(chances.shape[1])[None] == k for k in range(chances.shape[1])]
    masks += [kind == k for k in range(len(EDGES) - 1)]
    found = []
    for mask in masks:
        hit, mean = (chosen * mask).sum(axis=1), (chances * mask).sum(axis=1)
        variance = (mean * (1.0 - mean)).sum()
        if variance > _ENOUGH:
            found.append((hit - mean).sum() / variance**0.5)
    return np.array(found)


def calibrated(chances: Floats, index: Any, error: float = 1e-3) -> bool:
    """Whether all scores are within what chance allows, but for an ``error`` over all of them."""
    found = scores(chances, index)
    assert len(found) >= 2  # there was something to test
    return bool(np.abs(found).max() < norm.isf(error / (2 * len(found))))


def check(name: str, rounds: int, trials: int) -> None:
    rows = list(played(name, rounds, trials))
    chances, index = (np.concatenate(column) for column in zip(*rows, strict=True))
    np.testing.assert_allclose(chances.sum(axis=1), 1.0, atol=1e-9)
    observed.note(f"calibration of {name}, largest |z|", float(np.abs(scores(chances, index)).max()))
    assert calibrated(chances, index)
    best = (chances == chances.max(axis=1, keepdims=True)).astype(float)
    assert not calibrated(best / best.sum(axis=1, keepdims=True) * 0.99 + 0.01 / ACTIONS, index)  # nearly greedy
    share = CASES[name].get("exploration", 0.0)
    if share:
        without = (chances - share / ACTIONS) / (1.0 - share)
        assert not calibrated(0.99 * without + 0.01 / ACTIONS, index)  # as if it explored a tenth as much


@pytest.mark.no_cover
@pytest.mark.parametrize("name", [name for name in CASES if name != "robust-lin-ts"])
def test_propensities_are_frequencies(name: str) -> None:
    check(name, rounds=60, trials=40 if name == "lin-ts" else 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_propensities_are_frequencies_of_1e5_decisions(name: str) -> None:
    check(name, rounds=500, trials=200)


def by_learner(rounds: int, **settings: Any) -> tuple[Floats, Any, Floats]:
    """Chances, choices and logged propensities of the service's own learner."""
    learner, rng = Learner(BanditSettings(**BASE | settings), 3), np.random.default_rng(3)
    chances, index, logged = np.empty((rounds, 4)), np.empty(rounds, int), np.empty(rounds)
    for t in range(rounds):
        (offer,) = menus(rng, 1, 4)
        chances[t] = learner.policy.propensities(offer)
        made = learner.decide(id=str(t), now=0.0, actions=list("abcd"), features=offer, sigma=None, source=None)
        learner.apply(made)
        index[t], logged[t] = made.index, made.propensity
        reward = float(np.array(made.features) @ MU + rng.uniform(-0.5, 0.5))
        learner.apply(Rewarded(id=made.id, at=0.0, reward=reward))
    return chances, index, logged


def check_learner(rounds: int, **settings: Any) -> None:
    chances, index, logged = by_learner(rounds, **settings)
    np.testing.assert_array_equal(logged, chances[np.arange(rounds), index])
    assert calibrated(chances, index)
    # The log alone: where all have a chance, 1[A = k]/p has mean 1 for every k.
    excess = np.eye(4)[index] / logged[:, None] - 1.0
    z = excess.sum(axis=0) / np.sqrt(np.square(excess).sum(axis=0))
    observed.note(f"1/propensity of {settings.get('policy')}, largest |z|", float(np.abs(z).max()))
    assert np.abs(z).max() < norm.isf(1e-3 / 8)


@pytest.mark.no_cover
def test_what_the_service_logs_are_frequencies() -> None:
    check_learner(1500, policy="oful", exploration=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["oful", "lin-ts", "quorum"])
def test_what_the_service_logs_are_frequencies_of_1e5_decisions(policy: str) -> None:
    check_learner(100_000, policy=policy, exploration=0.1, radius_scale=0.05)
