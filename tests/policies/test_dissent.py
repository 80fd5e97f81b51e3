"""Which single rewards dissent, and what Quorum gains by it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import robandit
from robandit import attacks, environments
from robandit.lab.protocol import Scenario, simulate
from robandit.policies.dissent import Surprise
from thinned import longer


def judge(surprise: Surprise, distance: Any, rewards: Any, now: int, least: float = 0.04, seen: Any = True) -> Any:
    """What a batch says to rewards that all have the same number."""
    batch = len(surprise.spread)
    whole = (np.broadcast_to(x, batch).copy() for x in (distance, rewards, least, now, seen))
    return surprise.judge(*whole)


class SlowSurprise:
    """One trial by the definition."""

    def __init__(self) -> None:
        self.spread, self.repeats, self.number = 1.0, 0, 0
        self.latest: float | None = None

    def judge(self, z: float, reward: float, least: float) -> bool:
        self.number += 1
        self.repeats += reward == self.latest
        self.latest = reward
        if z > 5 * max(self.spread, least) and 10 * self.repeats <= self.number:
            return True
        pace = max(0.03, 0.3 / (1 + self.number / 10))
        self.spread *= math.exp(pace / 2 if z > 0.6745 * self.spread else -pace / 2)
        return False


ROUNDS = st.tuples(st.floats(0.0, 100.0), st.sampled_from([0.0, 0.5, 1.0, 2.0]), st.booleans())


@pytest.mark.no_cover
@settings(max_examples=100, deadline=None)
@given(st.lists(ROUNDS, max_size=60), st.sampled_from([0.04, 1.0]))
def test_it_judges_as_its_transcription(rounds: list[tuple[float, float, bool]], least: float) -> None:
    fast, slow = Surprise.new(1), SlowSurprise()
    for z, reward, seen in rounds:
        found = judge(fast, z, reward, slow.number + 1, least, seen)[0]
        assert found == (seen and slow.judge(z, reward, least))
        assert fast.spread[0] == pytest.approx(slow.spread, rel=1e-12) and fast.repeats[0] == slow.repeats


def dissent_after(start: int, rewards: Any) -> int:
    """How many rewards (rounds, B) dissent after so many, if all of them are far off from then on."""
    surprise = Surprise.new(rewards.shape[1])
    found = 0
    for t, row in enumerate(rewards, 1):
        dissent = judge(surprise, 1e9 if t > start else 0.5, row, t)
        found += int(dissent.sum())
    return found


@pytest.mark.parametrize("rate", [0.0, 0.02, 0.3, 0.5, 0.9, 1.0])
def test_two_valued_rewards_never_dissent(rate: float) -> None:
    clicks = np.random.default_rng(1).random((400, 200)) < rate
    assert dissent_after(40, clicks * 1.0) == 0


@pytest.mark.parametrize("zero", [0.6, 0.8, 0.99])
def test_amounts_that_are_mostly_zero_never_dissent(zero: float) -> None:
    rng = np.random.default_rng(2)
    amounts = np.where(rng.random((400, 200)) < zero, 0.0, rng.lognormal(size=(400, 200)))
    assert dissent_after(100, amounts) == 0


def test_amounts_that_do_not_repeat_dissent() -> None:
    amounts = np.random.default_rng(3).lognormal(size=(140, 200))
    assert dissent_after(100, amounts) == 40 * 200


@pytest.mark.no_cover
@pytest.mark.parametrize("scale", [0.06, 0.2, 1.0, 3.0, 10.0])
@pytest.mark.parametrize("far", [15.0, 100.0])
def test_wild_lies_are_told_apart_once_it_is_used_to_the_noise(scale: float, far: float) -> None:
    """Though 40 % lie, and the noise is not what was declared: after 800 rewards nearly nothing is misjudged."""
    rng, surprise, batch = np.random.default_rng(4), Surprise.new(200), 200
    lies, caught, wronged = 0, 0, 0
    for t in range(1, 1201):
        lie = rng.random(batch) < 0.4
        distance = scale * np.where(lie, far * (1.0 + rng.random(batch)), np.abs(rng.normal(size=batch)))
        dissent = judge(surprise, distance, rng.normal(size=batch), t)
        if t > 800:
            lies, caught, wronged = lies + lie.sum(), caught + dissent[lie].sum(), wronged + dissent[~lie].sum()
    assert caught >= 0.999 * lies and wronged <= 1e-4 * (400 * batch - lies)
    assert np.median(surprise.spread) == pytest.approx(scale, rel=0.1)


def arrays(surprise: Surprise) -> dict[str, Any]:
    return {name: array.copy() for name, array in surprise.arrays().items()}


def test_trials_that_see_nothing_do_not_change() -> None:
    rng, surprise = np.random.default_rng(5), Surprise.new(4)
    for t in range(1, 60):
        before, seen = arrays(surprise), rng.random(4) < 0.5
        distance, rewards = 10.0 ** rng.uniform(-2.0, 2.0, 4), rng.integers(20, size=4) / 20
        assert not judge(surprise, distance, rewards, t, seen=seen)[~seen].any()
        for name, array in arrays(surprise).items():
            assert np.array_equal(array[~seen], before[name][~seen], equal_nan=True), name


def test_a_batch_judges_as_its_trials_do() -> None:
    """Bit for bit, for batches of all small sizes, with gaps."""
    for batch in range(1, 12):
        rng, whole = np.random.default_rng([6, batch]), Surprise.new(batch)
        singles = [Surprise.new(1) for _ in range(batch)]
        for t in range(1, 80):
            distance, seen = 10.0 ** rng.uniform(-2.0, 2.0, batch), rng.random(batch) < 0.8
            rewards = rng.integers(20, size=batch) / 20
            together = judge(whole, distance, rewards, t, seen=seen)
            for i, single in enumerate(singles):
                assert together[i] == judge(single, distance[i], rewards[i], t, seen=seen[i])[0]
        for name, array in whole.arrays().items():
            alone = np.concatenate([single.arrays()[name] for single in singles])
            assert np.array_equal(array, alone, equal_nan=True), name


# ------------------------------------------------------------------------------------ behaviour


def scattered(policy: Any, rounds: int, trials: int, seed: int) -> Any:
    """The regret of each trial when a quarter of the rewards, anywhere, are the opposite of the truth."""
    rng, regret = np.random.default_rng(seed), np.zeros(trials)
    parameter = rng.normal(size=(trials, 5))
    parameter /= np.linalg.norm(parameter, axis=1, keepdims=True)
    for _ in range(rounds):
        actions = rng.normal(size=(trials, 10, 5))
        actions /= np.maximum(1.0, np.linalg.norm(actions, axis=2, keepdims=True))
        decision, means = policy.choose(actions, sigma=0.03), np.matvec(actions, parameter)
        played = means[np.arange(trials), decision.index]
        regret += means.max(axis=1) - played
        lies = rng.random(trials) < 0.25
        policy.update(decision, np.where(lies, -played, played) + 0.03 * rng.normal(size=trials))
    return regret


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", longer(0, 1, 2))
def test_scattered_lies_cost_at_most_half_of_what_they_cost_oful(seed: int) -> None:
    make: Any = {"quorum": robandit.Quorum, "oful": partial(robandit.OFUL, radius_scale=0.1)}
    regret = {
        name: scattered(policy(dim=5, noise_range=0.5, seed=1, trials=40), 1000, 40, seed).mean()
        for name, policy in make.items()
    }
    assert regret["quorum"] <= 0.5 * regret["oful"]


@pytest.mark.no_cover
def test_no_trial_is_stuck_in_the_papers_attack() -> None:
    scenario = Scenario(environments.Paper(), attacks.Flip(rounds=90), range(40))
    trace = simulate(policy=robandit.Quorum, scenarios=[scenario], rounds=3000, seed=2, at=np.array([3000]))
    assert trace.regret[-1].max() <= 2.0 * np.median(trace.regret[-1])
