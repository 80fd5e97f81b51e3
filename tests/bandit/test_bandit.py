"""Bandit: it plays as its policy does by hand, takes what people have, and learns each reward once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from shops import open_schema, products, rate, schema

import robandit
from robandit import OFUL, Bandit, Features
from robandit.bandit.bandit import WARM_UP
from robandit.features import Growing


def saved(bandit: Bandit, folder: Path) -> bytes:
    """All that a bandit knows."""
    bandit.save(folder / "bandit")
    return (folder / "bandit").read_bytes()


# The same as by hand.


@pytest.mark.no_cover
@pytest.mark.parametrize("given", [None, "oful", OFUL, robandit.MultiLevelWeightedOFUL])
def test_it_plays_as_its_policy_does_by_hand(given: Any) -> None:
    features = schema()
    bandit = Bandit(features=features, rewards=(10, 60), seed=3, policy=given, exploration=0.1)
    plain = type(bandit.policy).from_state(bandit.policy.state())
    rng, waiting = np.random.default_rng(0), []
    for _ in range(60):
        offered = products(rng, 6)
        pick = bandit.choose(offered, source="ads")
        decision = plain.choose(features.encode(offered), source="ads", propensity=True)
        assert (pick.id, pick.index) == (offered[decision.index]["item"], decision.index)
        assert pick.propensity == decision.propensity and pick.value == 10 + 50 * decision.value
        waiting.append((pick, decision))
        if len(waiting) == 5:  # late and shuffled, by object and by id
            for place in rng.permutation(5):
                reward = 10 + 50 * rate(offered[waiting[place][1].index])
                bandit.learn(waiting[place][0] if place % 2 else waiting[place][0].decision_id, reward)
                plain.update(waiting[place][1], (reward - 10) / 50)
            waiting = []
    assert np.array_equal(bandit.policy.estimate().center, plain.estimate().center)
    center = plain.estimate().center
    assert bandit.estimate() == {
        name: 50 * effect + 10 * (name == "(constant)") for name, effect in features.explain(center).items()
    }


def test_one_answer_for_every_kind_of_table() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        offered = products(rng, 5)
        columns = {name: [one[name] for one in offered] for name in offered[0]}
        tables: list[Any] = [offered, tuple(offered), columns, pd.DataFrame(offered), pl.DataFrame(offered)]
        kinds = [("item", "U9"), ("price", float), ("colour", "U9")]
        tables += [pa.table(columns), np.array([tuple(one.values()) for one in offered], dtype=kinds)]
        picks = [Bandit(features=schema(), seed=5).choose(table) for table in tables]
        assert {pick.id for pick in picks} == {offered[picks[0].index]["item"]}
        assert all(type(pick.id) is str and pick.value == picks[0].value for pick in picks)


def test_context_and_source_go_with_the_candidates() -> None:
    features = Features(
        action={"price": (0, 50)},
        context={"age": (0, 100)},
        source={"shop": ["a", "b"]},
        crosses=[("age", "price"), ("shop", "price")],
    )
    bandit = Bandit(features=features, seed=1)
    pick = bandit.choose([{"price": 1}, {"price": 40}], {"age": 20}, "b")
    assert pick.id == pick.index and pick.source == "b"
    assert np.array_equal(pick.rows, features.encode([{"price": 1}, {"price": 40}], {"age": 20}, "b"))


def test_a_frame_and_ids_of_numbers() -> None:
    frame = pd.DataFrame({"sku": [11, 12], "price": [1.0, 2.0]})
    pick = Bandit(features=Features(action={"price": (0, 9)}), id="sku", seed=1).choose(frame)
    assert pick.id in (11, 12) and type(pick.id) is int
    named = Bandit(features=Features(action={"price": (0, 9)}), seed=1)
    assert named.choose([{"id": ("a", 1), "price": 3}]).id == ("a", 1)


# Plain ids.


@pytest.mark.no_cover
def test_plain_ids_are_learnt_one_by_one() -> None:
    worth = {"a": 0.1, "b": 0.3, "c": 0.6, "d": 0.2}
    bandit, rng, chosen = Bandit(seed=4, fixed_sets=True), np.random.default_rng(0), []
    for t in range(600):
        pick = bandit.choose(["b", "a"] if t < 50 else [*worth])
        bandit.learn(pick, float(rng.random() < worth[pick.id]))
        chosen.append(pick.id)
    assert chosen[-100:].count("c") > 80
    estimate = bandit.estimate()
    assert list(estimate)[:4] == ["id=b", "id=a", "id=c", "id=d"] and len(estimate) == 65
    assert estimate["id=c"] + estimate["(constant)"] == pytest.approx(0.6, abs=0.1)


@pytest.mark.parametrize("column", [pd.Series, pl.Series, pd.Categorical, np.array, tuple])
def test_plain_ids_may_be_a_column(column: Any) -> None:
    ids = ["a", "b", "c"]
    assert Bandit(seed=4).choose(column(ids)).id == Bandit(seed=4).choose(ids).id


def test_more_ids_than_slots_share_them() -> None:
    column = Growing("id", slots=3)
    features = Features(action=[column], intercept=False)
    early = features.encode({"id": ["a", "b"]})
    assert np.array_equal(features.encode({"id": ["c", "a", "b"]})[1:], early)
    full = features.encode([{"id": name} for name in "abcdefgh"])
    assert features.names == ("id=a", "id=b", "id=c") and (np.count_nonzero(full, axis=1) == 1).all()
    assert np.array_equal(features.rows({"id": list("abcdefgh")}), full)
    assert np.array_equal(Features.from_json(features.to_json()).encode({"id": ["h", "b"]}), full[[7, 1]])


def test_frozen_labels_take_no_slots() -> None:
    features = Features(action=[Growing("id", slots=4), Growing("shop", slots=1)])
    features.encode([{"id": "a", "shop": "x"}])
    assert features.learning and not features.scaling
    features.freeze(labels=False)
    assert features.learning
    features.freeze()
    before = features.to_json()
    features.encode([{"id": "b", "shop": "y"}])
    assert not features.learning and features.to_json() == before


# Scales that are learnt online.


@pytest.mark.parametrize("centre", [None, "set"])
def test_what_was_learnt_in_other_scales_is_learnt_again(centre: str | None) -> None:
    """After the warm-up the policy is the one that learns everything in the final scales."""
    bandit, rng, log = Bandit(features=open_schema(centre=centre), seed=2), np.random.default_rng(0), []
    for t in range(WARM_UP):
        offered = products(rng, 4)
        pick = bandit.choose(offered)
        assert bandit.features.scaling
        if t % 3:
            bandit.learn(pick, float(rng.random() < 0.4))
            log.append((offered, pick.index, bandit.policy.updates))
    late = bandit.choose(products(rng, 4))
    assert not bandit.features.scaling and bandit.policy.updates == len(log)
    rng, again = np.random.default_rng(0), Bandit(features=bandit.features, seed=2).policy
    for t in range(WARM_UP):
        offered = products(rng, 4)
        if t % 3:
            place = log[t - 1 - t // 3][1]
            action = bandit.features.encode(offered)[place]
            again.update(robandit.Decision(round=t + 1, action=action), float(rng.random() < 0.4))
    assert np.array_equal(bandit.policy.estimate().center, again.estimate().center)
    for name in bandit.pending:
        bandit.learn(name, 0)
    assert bandit.policy.updates == WARM_UP + 1 and bandit.explain(late).id == late.id


def test_what_an_operator_ruled_holds_while_scales_are_learnt() -> None:
    bandit, rng = Bandit(features=open_schema(), sources=4, seed=1), np.random.default_rng(1)
    rulings = {3: {"a": "quarantine", "b": "trust"}, 50: {"b": "release"}}
    for round_ in range(110):
        pick = bandit.choose(products(rng, 3), source=str(rng.choice(["a", "b", "c"])))
        bandit.learn(pick, int(rng.integers(2)))
        for source, ruling in rulings.get(round_, {}).items():
            getattr(bandit.policy, ruling)(source)
    assert not bandit.features.scaling
    standings = {found.source: (found.ruling, found.weight > 0.0) for found in bandit.policy.standings()}
    assert standings == {"a": ("quarantined", False), "b": ("", True), "c": ("", True)}


def test_the_caller_s_features_stay_as_they_are() -> None:
    features = open_schema()
    before = features.to_json()
    bandit = Bandit(features=features, seed=1)
    bandit.choose(products(np.random.default_rng(0), 3))
    assert features.to_json() == before != bandit.features.to_json()


# What it says.


def test_an_explanation_adds_up() -> None:
    bandit, rng = Bandit(features=schema(), rewards=(-1, 4), seed=2), np.random.default_rng(0)
    for _ in range(200):
        offered = products(rng, 5)
        pick = bandit.choose(offered)
        bandit.learn(pick, rate(offered[pick.index]))
    told = bandit.explain(pick)
    expected = -1 + 5 * bandit.features.encode(offered) @ bandit.policy.estimate().center
    assert told.expected == pytest.approx(expected[pick.index])
    assert sum(told.contributions.values()) - 1 == pytest.approx(told.expected)
    others = [place for place in range(5) if place != pick.index]
    assert told.runner_up == offered[max(others, key=lambda place: expected[place])]["item"]
    assert sum(told.difference.values()) == pytest.approx(told.expected - (told.runner_up_expected or 0))
    sizes = [abs(value) for value in told.contributions.values()]
    assert sizes == sorted(sizes, reverse=True)
    assert f"beside {told.runner_up}" in str(told)
    alone = bandit.explain(bandit.choose(offered[:1]))
    assert alone.runner_up is None and alone.difference == {}


@pytest.mark.no_cover
def test_it_beats_uniform_play() -> None:
    bandit, rng, worth, uniform = Bandit(features=schema(), seed=1), np.random.default_rng(0), 0.0, 0.0
    for _ in range(1500):
        offered = products(rng, 8)
        rates = [rate(product) for product in offered]
        pick = bandit.choose(offered)
        bandit.learn(pick, float(rng.random() < rates[pick.index]))
        worth, uniform = worth + max(rates) - rates[pick.index], uniform + max(rates) - float(np.mean(rates))
    assert worth < uniform / 5


# Mistakes change nothing.


def test_mistakes_change_nothing(tmp_path: Path) -> None:
    for features in (schema(), open_schema(), None):
        bandit, offered = Bandit(features=features, seed=1), products(np.random.default_rng(0), 3)
        first = bandit.choose(offered if features else ["a", "b"])
        second = bandit.choose(offered if features else ["a", "b"])
        bandit.learn(second, 1)
        before = saved(bandit, tmp_path)
        wrong: list[Any] = [[], [{}], [offered[0], offered[0]], [{**offered[0], "price": "dear"}], "text", 7, None]
        for candidates in wrong:
            with pytest.raises((ValueError, TypeError)):
                bandit.choose(candidates)
        with pytest.raises(ValueError, match="source"):
            bandit.choose(offered if features else ["a"], source=0.5)  # type: ignore[arg-type]
        for decision, reward in ((second, 1), (first, 2), (first, float("nan")), ("x-9", 1), (7, 1), (first, None)):
            with pytest.raises((ValueError, TypeError)):
                bandit.learn(decision, reward)  # type: ignore[arg-type]
        assert saved(bandit, tmp_path) == before


def test_decisions_that_wait_too_long_are_forgotten() -> None:
    bandit = Bandit(seed=1, max_pending=3)
    picks = [bandit.choose(["a", "b"]) for _ in range(5)]
    assert bandit.pending == [pick.decision_id for pick in picks[2:]]
    with pytest.raises(ValueError, match="one of 2 that were forgotten, since more than max_pending=3 waited"):
        bandit.learn(picks[0], 1)


# The policy.


def test_a_policy_of_one_s_own() -> None:
    features = schema()
    made = OFUL(dim=features.dim, noise_range=1.0, radius_scale=0.2, seed=9)
    assert Bandit(features=features, policy=made).policy is made
    choice = robandit.recommend(dim=features.dim, rewards="clicks")
    bandit = Bandit(features=features, policy=choice, seed=4, exploration=0.1)
    assert bandit.policy.exploration == 0.1 and bandit.policy.seed == 4 and bandit.reason == choice.reason
    with pytest.raises(
        ValueError, match="exploration=0.1 is a setting of the policy, which you have made: pass it there"
    ):
        Bandit(features=features, policy=made, exploration=0.1)
    with pytest.raises(ValueError, match="policy has action_bound=0.5, and vectors are up to 1 long"):
        Bandit(features=features, policy=OFUL(dim=features.dim, noise_range=1.0, action_bound=0.5))
    with pytest.raises(ValueError, match="policy is for 3 features, and these are 6"):
        Bandit(features=features, policy=robandit.recommend(dim=3, rewards="clicks"))
    with pytest.raises(ValueError, match="policy must be a policy, its class or name, or what recommend gave; got 7"):
        Bandit(features=features, policy=7)


def test_a_policy_by_its_name_and_settings() -> None:
    """As the command line takes them, so that what was tried there needs no other words here."""
    features = schema()
    asked = Bandit(features=features, policy="oful,radius_scale=0.2", seed=9)
    beside = Bandit(
        features=features, policy=OFUL(dim=features.dim, seed=9, radius_scale=0.2, **asked.rewards.for_policy())
    )
    assert asked.policy.radius_scale == 0.2 and asked.reason == "You asked for OFUL."
    for seed in range(5):
        shelf = products(np.random.default_rng(seed), 6)
        one, other = asked.choose(shelf), beside.choose(shelf)
        assert one.id == other.id
        asked.learn(one, seed % 2)
        beside.learn(other, seed % 2)
    cautious = Bandit(features=features, policy="cw-oful,corruption=none,threshold=0.1")
    assert cautious.policy.corruption is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ofull,radius_scale=1", "there is no policy 'ofull'; did you mean 'oful'?"),
        ("oful,radius_scal=1", "policy 'oful' has no setting 'radius_scal'; did you mean 'radius_scale'?"),
        ("oful,radius_scale", "'radius_scale' in 'oful,radius_scale' should be KEY=VALUE"),
        ("oful,radius_scale=[1,2]", "radius_scale must be"),
        ("oful,exploration=0.5", "exploration=0.5 is a setting of the bandit: pass it there"),
    ],
)
def test_a_policy_that_can_t_be_read(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        Bandit(policy=text)


def test_a_policy_that_has_played_needs_features_whose_scales_are_known() -> None:
    features = open_schema()
    policy = OFUL(dim=features.dim, noise_range=1.0, seed=1)
    policy.skip_to(200)
    with pytest.raises(ValueError, match="policy has decided 200 rounds, and these features have yet to learn"):
        Bandit(features=features, policy=policy)
    features.encode(products(np.random.default_rng(1), 5))
    features.freeze()
    assert Bandit(features=features, policy=policy).choose(products(np.random.default_rng(1), 5)).index >= 0


def test_the_recommendation_is_told_how_many_sources_there_are() -> None:
    assert Bandit(seed=1, sources=50).policy.max_sources == 50
    assert Bandit(seed=1).policy.max_sources == 32 and "source=" in Bandit(seed=1).reason


def test_ids_that_make_no_sense() -> None:
    bandit = Bandit(features=Features(action={"price": (0, 9)}), seed=1)
    for ids, sentence in (
        ([float("nan"), 1], "candidate 0 has no id, got nan"),
        ([1, pd.NA], "candidate 1 has no id, got <NA>"),
        (["a", ["b"]], r"candidate 1: an id must be text or a number, got \['b'\]"),
        (["a", ""], "candidate 1 has no id, got ''"),
    ):
        with pytest.raises(ValueError, match=sentence):
            bandit.choose([{"id": id_, "price": 1} for id_ in ids])
    with pytest.raises(ValueError, match="a candidate has no column 'id'|candidate 1 has no 'id'"):
        bandit.choose([{"id": 1, "price": 1}, {"price": 2}])
