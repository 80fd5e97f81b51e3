"""Mistakes that newcomers make: each gets a sentence with the value and the remedy, and changes nothing."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

from robandit import OFUL, Bandit, Features, recommend

FEATURES = Features(
    action={"price": (0, 50), "colour": ["red", "blue"]},
    context={"age": (0, 99)},
    crosses=[("age", "price")],
    id="item",
)
SHIRT = {"item": "a", "price": 3, "colour": "red"}
SOCKS = {"item": "b", "price": 30, "colour": "blue"}
VISITOR = {"age": 30}


def offer(candidates: Any, context: Any = VISITOR, source: Any = None) -> Callable[[Bandit], object]:
    return lambda bandit: bandit.choose(candidates, context, source)


def reward(value: Any) -> Callable[[Bandit], object]:
    return lambda bandit: bandit.learn(bandit.pending[0], value)


def twice(bandit: Bandit) -> None:
    pick = bandit.choose([SHIRT, SOCKS], VISITOR)
    bandit.learn(pick, 1)
    bandit.learn(pick, 1)


IN_USE: dict[str, tuple[Callable[[Bandit], object], str]] = {
    "a reward of 73 %": (reward(73), "must lie in the declared range from 0 to 1, got 73; send what was meant, or"),
    "a reward that is not known": (reward(float("nan")), "got nan; a decision whose reward is not known gets none"),
    "no reward": (reward(None), "got None; a decision whose reward is not known gets none"),
    "a reward from a CSV": (reward("1"), "reward must be a number, got '1'; turn text into one by float()"),
    "two rewards": (reward([1, 0]), "reward must be one finite number, got [1, 0]"),
    "a second reward": (twice, "has had its reward, and has one only"),
    "a reward before its decision": (
        lambda b: b.learn("visit 7", 1),
        "no decision 'visit 7' here: choose comes before",
    ),
    "the reward first": (lambda b: b.learn(1, 2), "learn needs what choose gave, or its decision_id, and then the"),  # type: ignore[arg-type]
    "no candidates": (offer([]), "there are no candidates to choose from: pass at least one"),
    "one candidate without a list": (offer(SHIRT), "candidates must be a list, even of one: write [{'item': 'a'"),
    "text for candidates": (offer("abc"), "candidates must be dicts, a frame, a dict of columns or an array"),
    "ids where there are features": (offer(["a", "b"]), "must hold price, colour, got the id 'a' alone; pass dicts"),
    "an id twice": (offer([SHIRT, SOCKS, SHIRT]), "candidates 0 and 2 have the same id 'a': pass each candidate once"),
    "no id": (offer([{"price": 1, "colour": "red"}]), "a candidate has no column 'item'; there are colour, price"),
    "an id that is missing": (offer([SHIRT | {"item": None}]), "candidate 0 has no id, got None: give every candidate"),
    "a column of another name": (offer([{"item": "a", "prize": 3}]), "no column 'price'; did you mean 'prize'?"),
    "words for a number": (offer([SHIRT | {"price": "cheap"}]), "price must be a number, got 'cheap'; words need a"),
    "a missing value": (
        offer([SHIRT, SOCKS | {"price": None}]),
        "candidate 1: price is missing, and the features don't",
    ),
    "an infinite value": (offer([SHIRT | {"price": float("inf")}]), "price must be finite, got inf; send a number, or"),
    "a list for a label": (offer([SHIRT | {"colour": ["red"]}]), "colour must be a category, got ['red']"),
    "no context": (offer([SHIRT], None), "the context is not there: pass context={'age': …}"),
    "a context of another name": (offer([SHIRT], {"Age": 3}), "a context has no column 'age'; did you mean 'Age'?"),
    "a context for each": (offer([SHIRT], [VISITOR, VISITOR]), "must be one dict for all candidates, got 2"),
    "a number for a source": (
        offer([SHIRT], VISITOR, 0.5),
        "source must be one label, text or a whole number; got 0.5",
    ),
    "a sparse matrix": (offer(scipy.sparse.csr_array(np.eye(2))), "a sparse matrix is not read here"),
    "an explanation of an id": (lambda b: b.explain("a"), "explain needs what choose gave"),  # type: ignore[arg-type]
}
AT_FIRST: dict[str, tuple[Callable[[], object], str]] = {
    "positional arguments": (lambda: Bandit(FEATURES), "Bandit takes keywords only: Bandit(features=…, rewards=…)"),  # type: ignore[call-arg]
    "a mistyped setting": (lambda: Bandit(reward="clicks"), "Bandit has no setting 'reward'; did you mean 'rewards'?"),  # type: ignore[call-arg]
    "a mistyped kind": (lambda: Bandit(rewards="click"), "got 'click'; did you mean 'clicks'?"),
    "a range upside down": (lambda: Bandit(rewards=(5, 0)), "rewards must be (lowest, highest), got (5, 0)"),
    "no horizon": (lambda: Bandit(horizon=0), "horizon must be an integer >= 1, got 0"),
    "a path for features": (lambda: Bandit(features="f.json"), "got the text 'f.json': open a file with Features.load"),
    "a dict for features": (lambda: Bandit(features={"price": (0, 9)}), "got {'price': (0, 9)}; try Features(action="),
    "a mistyped policy": (lambda: Bandit(policy="ofull"), "there is no policy 'ofull'; did you mean 'oful'?"),
    "a policy of another size": (
        lambda: Bandit(features=FEATURES, policy=OFUL(dim=3, noise_range=1)),
        "policy has dim=3, and these features are 7",
    ),
    "a batch": (
        lambda: Bandit(features=FEATURES, policy=OFUL(dim=7, noise_range=1, trials=2)),
        "a bandit is a single trial, and this policy has trials=2",
    ),
    "dicts without features": (
        lambda: Bandit().choose([SHIRT]),
        "pass features=Features(action={'item': str, 'price': float, 'colour': str})",
    ),
    "a context without features": (
        lambda: Bandit().choose(["a"], VISITOR),
        "a context needs features that say what to",
    ),
    "long vectors": (
        lambda: OFUL(dim=2, noise_range=1).choose([[3, 4]]),
        "action 0 has 5; scale the features or raise action_bound",
    ),
    "labels for vectors": (
        lambda: OFUL(dim=2, noise_range=1).choose([["a", "b"]]),
        "turn text and labels into numbers",
    ),
    "one vector": (lambda: OFUL(dim=2, noise_range=1).choose([1, 0]), "must be (K, 2) with K >= 1, a row for each"),
    "a column that is not there": (lambda: Features.fit([SHIRT], action=["prise"]), "'prise'; did you mean 'price'?"),
    "a name for a list": (lambda: Features.fit([SHIRT], action="price"), "got the text 'price': write ['price']"),
    "a range of a column upside down": (lambda: Features(action={"price": (50, 0)}), "low must be below high, got 50"),
    "nothing on rewards": (lambda: recommend(dim=3), "say what rewards can be: rewards='clicks'"),
    "noise and rewards": (
        lambda: recommend(dim=3, rewards="clicks", noise_range=1),
        "noise_range follows from rewards: leave out noise_range=1",
    ),
}


@pytest.mark.parametrize("mistake", IN_USE)
def test_a_mistake_in_use_gets_a_sentence_and_changes_nothing(mistake: str, tmp_path: Path) -> None:
    bandit, (make, sentence) = Bandit(features=FEATURES, seed=1), IN_USE[mistake]
    bandit.choose([SHIRT, SOCKS], VISITOR)
    bandit.save(tmp_path / "before")
    with pytest.raises((ValueError, TypeError), match=re.escape(sentence)):
        make(bandit)
    bandit.save(tmp_path / "after")
    if mistake != "a second reward":  # the first of which is right
        assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


@pytest.mark.parametrize("mistake", AT_FIRST)
def test_a_mistake_at_first_gets_a_sentence(mistake: str) -> None:
    make, sentence = AT_FIRST[mistake]
    with pytest.raises((ValueError, TypeError), match=re.escape(sentence)):
        make()


def test_what_is_merely_unusual_is_counted() -> None:
    """Categories that nobody has seen, and numbers beyond their range, come every day."""
    bandit = Bandit(features=FEATURES, seed=1)
    bandit.choose([SHIRT | {"colour": "mauve"}, SOCKS | {"price": 500}], VISITOR)
    assert bandit.features.counts == {"colour": {"unseen": 1}, "price": {"clipped": 1}}
