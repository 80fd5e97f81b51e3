"""The worlds of fraud: their digests, and that they are what they say."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from robandit import OFUL, Decision
from robandit.arrays import Floats
from robandit.experiments.fraud import development, held_out
from robandit.experiments.fraud.playing import BLIND, SOURCES, TOLD, prepare, regret, uniform_regret
from robandit.experiments.fraud.scenario import NOBODY, FraudScenario, digest_of
from robandit.experiments.fraud.scoring import best_in_hindsight, geometric, material, parts
from robandit.experiments.fraud.shop import Shop, Visit, digest_of_draws
from thinned import untraced

SETS = {"development": development, "held out": held_out}
MAKE = partial(OFUL, radius_scale=0.1)


# The held-out set was written and committed before any policy was judged on it: these digests must never change.
@pytest.mark.parametrize(
    ("module", "table", "draws"),
    [
        (
            development,
            "c7954b3e76eab0dfce2e1fabd91081ef6ff91f14059aad0463c6945b51829b54",
            "0451b5db8e15e5a94027b8d6a36a598d420e7b329102760636047756801c72d6",
        ),
        (
            held_out,
            "36907e1137bbc91bac02d1b93436c2e4d62aa4fc1e1ab9f1e5ab83f2dfd23df4",
            "7d8fcb65513c55c0362528728de9745d4e9f04595cd540be8857d80687d9c113",
        ),
    ],
    ids=SETS,
)
def test_the_worlds_are_those_that_were_committed(module: Any, table: str, draws: str) -> None:
    assert (digest_of(module.SCENARIOS), digest_of_draws(module.SCENARIOS)) == (table, draws)


@pytest.mark.parametrize("module", SETS.values(), ids=SETS)
def test_the_scenarios_cover_what_they_should(module: Any) -> None:
    scenarios: list[FraudScenario] = module.SCENARIOS
    assert {one.lie for one in scenarios} == {NOBODY, *module.FAMILY.lies}
    assert {one.habit for one in scenarios} == {"never", *module.FAMILY.habits}
    for sourced in (True, False):
        some = [one for one in scenarios if one.has_sources == sourced]
        assert {(one.clicks, one.sets) for one in some} == {
            (c, s) for c in (0, 1) for s in ("fresh", "alternating", "fixed")
        }
        assert {one.told_kind for one in some} == {"right", "wrong", "none"}
    for one in scenarios:
        share = sum(one.shares[liar] for liar in one.liars)
        assert 0.1 - 1e-5 <= share + one.bots <= 0.45 + 1e-5 if one.lie != NOBODY else share == one.bots == 0.0


def test_the_two_sets_have_no_lie_habit_or_seed_in_common() -> None:
    assert not development.FAMILY.lies.keys() & held_out.FAMILY.lies.keys()
    assert not development.FAMILY.habits.keys() & held_out.FAMILY.habits.keys()
    assert not {one.number for one in development.SCENARIOS} & {one.number for one in held_out.SCENARIOS}
    assert len(held_out.FAMILY.lies) >= 10


def _short(scenario: FraudScenario, rounds: int = 120) -> FraudScenario:
    return replace(scenario, rounds=rounds)


EACH_LIE = [
    next(one for one in module.SCENARIOS if one.lie == lie and one.clicks == clicks)
    for module in SETS.values()
    for lie in module.FAMILY.lies
    for clicks in (True, False)
]
CLICKS = [one for one in EACH_LIE if one.clicks]


@pytest.mark.parametrize(
    "scenario", untraced(EACH_LIE, but=CLICKS), ids=lambda one: f"{one.lie}-{'clicks' if one.clicks else 'measured'}"
)
def test_lies_are_rewards_and_a_trial_does_not_depend_on_its_batch(
    scenario: FraudScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewards: list[Floats] = []
    learn = OFUL.update

    def update(policy: OFUL, decision: Decision, reward: Floats, **more: Any) -> None:
        rewards.append(reward)
        learn(policy, decision, reward, **more)

    monkeypatch.setattr(OFUL, "update", update)
    few, more = (regret(_short(scenario), MAKE, BLIND, trials) for trials in (1, 3))
    np.testing.assert_array_equal(few, more[:1])
    told = np.concatenate(rewards)
    assert set(told.tolist()) <= {0.0, 1.0} if scenario.clicks else np.abs(told).max() <= 2.5


def _slowly(scenario: FraudScenario, trials: int) -> Floats:
    """OFUL's regret where nobody lies, one trial at a time and without `Visit`."""
    lost = np.zeros(trials)
    for trial in range(trials):
        shop = Shop(scenario, [trial])
        policy = MAKE(dim=scenario.dim, noise_range=0.5, seed=(scenario.number, trial))
        for t in range(scenario.rounds):
            places, source = shop.places(t)[0], int(shop.sources(t)[0])
            decision = policy.choose(shop.actions[0, places], scenario.told)
            place = places[decision.index]
            mean = shop.means[0, place]
            bias = float(shop.leans[0, source] @ shop.actions[0, place])
            assert abs(bias) <= scenario.zeta + 1e-12
            policy.update(decision, shop.answer(t, np.array([mean + bias]))[0])
            lost[trial] += shop.means[0, places].max() - mean
    return lost


@pytest.mark.parametrize("clicks", [True, False])
def test_regret_is_that_of_a_plain_loop_where_nobody_lies(clicks: bool) -> None:
    honest = [one for one in development.SCENARIOS if one.lie == NOBODY and one.clicks == clicks and one.has_sources]
    scenario = _short(max(honest, key=lambda one: one.zeta))
    for view in (BLIND, SOURCES, TOLD):
        np.testing.assert_allclose(regret(scenario, MAKE, view, 2), _slowly(scenario, 2), rtol=1e-9)


def test_who_is_told_learns_from_honest_visitors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    always = next(one for one in development.SCENARIOS if one.habit == "always" and one.dim <= 8)
    scenario, kept = _short(always, 200), []
    monkeypatch.setattr(OFUL, "update", lambda policy, decision, reward, mask: kept.append((decision.source, mask)))
    regret(scenario, MAKE, TOLD, 4)
    for source, mask in kept:
        np.testing.assert_array_equal(mask, ~np.isin(source, scenario.liars))
    shares = np.bincount(np.concatenate([source for source, _ in kept]), minlength=len(scenario.shares)) / 800
    np.testing.assert_allclose(shares, scenario.shares, atol=0.08)


def test_silent_sources_send_nobody_at_first() -> None:
    scenario = next(one for one in held_out.SCENARIOS if one.habit == "after silence")
    traffic = held_out.FAMILY.habits["after silence"].traffic
    assert traffic is not None
    early, late = (traffic(scenario, progress) for progress in (0.1, 0.9))
    assert early[list(scenario.liars)].sum() == 0.0 < late[list(scenario.liars)].sum()
    shop = Shop(scenario, range(50))
    assert not np.isin([shop.sources(t, early) for t in range(50)], scenario.liars).any()


def test_uniform_play_costs_what_a_uniform_player_loses() -> None:
    scenario = _short(development.SCENARIOS[0], 400)
    lazy = prepare(partial(OFUL, exploration=1.0), scenario, 64)
    shop, lost = Shop(scenario, range(64)), np.zeros(64)
    for t in range(scenario.rounds):
        places = shop.places(t)
        index = lazy.choose(shop.actions[shop.rows[:, None], places]).index
        visit = Visit(shop, t, places, shop.sources(t), index, np.zeros(64))
        lost += visit.means.max(axis=1) - visit.mean
    assert uniform_regret(scenario, 64).mean() == pytest.approx(lost.mean(), rel=0.03)


def test_scores() -> None:
    regrets = {"ours": np.array([[2.0, 4.0], [1.0, 1.0]]), "theirs": np.array([[1.0, 1.0], [0.0, 0.0]])}
    means = material(regrets, np.array([[20.0, 40.0], [300.0, 500.0]]))
    assert means["ours"].tolist() == [3.0, 4.0] and means["theirs"].tolist() == [1.0, 4.0]  # 1 % of 400
    assert geometric(means["ours"], means["theirs"]).value == pytest.approx(3.0**0.5)
    assert best_in_hindsight({"a": np.array([1.0, 5.0]), "b": np.array([2.0, 3.0])}, ["a", "b"]).tolist() == [1.0, 3.0]
    places = [place for part in parts(held_out.SCENARIOS) for place in part.places]
    assert sorted(places) == list(range(len(held_out.SCENARIOS)))
    with pytest.raises(ValueError, match="view must be one of blind, sources, told who lies, got 'all'"):
        regret(development.SCENARIOS[0], MAKE, "all")
