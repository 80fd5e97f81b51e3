"""What a quorum believes of its sources, as the service keeps it and shows it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from served import Server, check_fold

from robandit.policies import Quorum
from robandit.service.learning import trust
from robandit.service.learning.belief import MOST, belief
from robandit.service.learning.labels import LONGEST
from robandit.service.learning.learner import Learner
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Bandit, Item, LogEntry, append
from robandit.wire.events import Event, Rewarded
from robandit.wire.types import BanditSettings, Status
from thinned import thinned

SETTINGS = BanditSettings(dim=3, policy="quorum", noise_range=0.5)
LIE = "<img src=x onerror='window.hacked = 1'>"
TURNS = 120  # the visit from which the partner lies


def visits(number: int, sources: list[str], liar: str = "", settings: BanditSettings = SETTINGS) -> list[Event]:
    """The log of so many visits from sources by turns, of which one lies from some visit on."""
    learner, log, rng = Learner(settings, 1), list[Event](), np.random.default_rng(0)
    for t in range(number):
        source = sources[t % len(sources)]
        features = rng.uniform(-0.5, 0.5, (5, 3))
        made = learner.decide(
            id=str(t), now=float(t), actions=list("abcde"), features=features, sigma=None, source=source
        )
        rate = 0.5 + float(features[made.index] @ [0.5, -0.5, 0.5])
        rate = 1.0 - rate if source == liar and t >= TURNS else rate
        log += [made, Rewarded(id=str(t), at=float(t), reward=float(rng.random() < rate))]
        for event in log[-2:]:
            learner.apply(event)
    return log


def folded(log: list[Event], settings: BanditSettings = SETTINGS) -> Learner:
    learner = Learner(settings, 1)
    for event in log:
        learner.apply(event)
    return learner


@pytest.fixture(scope="module")
def log() -> list[Event]:
    return visits(700, ["mail", "search", "partner", "app"], liar="partner")


@pytest.mark.no_cover
def test_a_doubted_source_is_named_first_with_when_and_how_far(log: list[Event]) -> None:
    learner = folded(log)
    found = belief(learner)
    assert found is not None and isinstance(learner.policy, Quorum)
    first, *others = found.sources
    (standing,) = [one for one in learner.policy.standings() if one.source == "partner"]
    assert (found.doubted, found.more, found.learnt, len(others)) == (1, 0, 700, 3)
    assert (first.source, first.weight, first.since, first.rewards) == standing[:1] + standing[2:5]
    assert first.since is not None and first.since > TURNS and first.weight < 0.5
    assert first.at == first.since - 1.0  # visit 0 gave reward 1
    assert all(one.since is None and one.at is None and one.weight > 0.9 for one in others)
    places = [learnt for learnt, _ in found.moments]
    assert len(first.curve) == len(places) and places == sorted(set(places))
    before = [weight for weight, place in zip(first.curve, places, strict=True) if place < TURNS]
    assert set(before) == {1.0} and first.curve[places.index(first.since)] < 0.5
    assert first.curve[-1] == pytest.approx(first.weight, abs=0.01)


@pytest.mark.no_cover
def test_the_history_is_the_fold_of_the_log(log: list[Event], tmp_path: Path) -> None:
    """From the beginning, from a snapshot in between, and in a store."""
    whole, half = folded(log), folded(log[:600])
    restored = Learner.restore(SETTINGS, 1, half.snapshot())
    for event in log[600:]:
        restored.apply(event)
    assert restored.digest() == whole.digest() and belief(restored) == belief(whole)
    store = SQLiteStore(tmp_path / "log.db")
    append(store, [Bandit(1, "shop", msgspec.json.encode(SETTINGS), 1, 0.0)])
    append(store, list[Item](LogEntry(1, place, event) for place, event in enumerate(log, 1)))
    check_fold(store)


def test_a_snapshot_from_before_is_done_without(log: list[Event]) -> None:
    plain = msgspec.msgpack.decode(folded(log[:200]).snapshot())
    del plain["trust"]
    with pytest.raises(KeyError, match="trust"):
        Learner.restore(SETTINGS, 1, msgspec.msgpack.encode(plain))


def test_a_long_history_is_thinned_and_loses_no_doubt(log: list[Event], monkeypatch: pytest.MonkeyPatch) -> None:
    """Against the slow way: keep the weights of every vote, and take the least of each stretch."""
    monkeypatch.setattr(trust, "MOST", 4)
    learner, votes = Learner(SETTINGS, 1), list[tuple[int, list[float]]]()
    assert isinstance(learner.policy, Quorum)
    for event in log:
        before = learner.policy.stats.votes.item()
        learner.apply(event)
        if learner.policy.stats.votes.item() > before:
            votes.append((learner.rewards, learner.policy.stats.trust[0].tolist()))
    assert learner.trust is not None and len(votes) > 16
    starts = [learnt for learnt, _ in learner.trust.moments]
    assert len(starts) <= 4 and starts[0] == votes[0][0]
    for slot in range(4):
        stretches = zip(starts, [*starts[1:], 10**9], strict=True)
        least = [min(weights[slot] for learnt, weights in votes if a <= learnt < b) for a, b in stretches]
        assert learner.trust.curve(slot) == pytest.approx(least, abs=0.5 / 255)
    assert min(learner.trust.curve(2)) < 0.1  # the partner's


def test_other_policies_have_none() -> None:
    learner = Learner(BanditSettings(dim=2, policy="oful"), 1)
    assert learner.trust is None and belief(learner) is None


# ------------------------------------------------------------------------------------ what outsiders choose


def test_labels_are_cut_and_harmless() -> None:
    labels = [LIE, "x" * 128, "safe\u202eliam", "two\nlines\x00", "é" * 128, ""]
    found = belief(folded(visits(60, labels)))
    assert found is not None
    shown = {one.source or "" for one in found.sources}
    assert shown == {LIE, f"{'x' * 63}…", "safe�liam", "two�lines�", f"{'é' * 63}…", ""}
    assert max(map(len, shown)) <= LONGEST


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("most", "number"), thinned([(32, 10_000), (32, 1000), (90, 400)], fast=[(32, 1000), (90, 400)])
)
def test_many_sources_are_a_short_answer(most: int, number: int) -> None:
    settings, known = msgspec.structs.replace(SETTINGS, policy_settings={"max_sources": most}), most + 1
    learner = folded(visits(number, [f"{k} {'x' * 120}" for k in range(number)], settings=settings), settings)
    found = belief(learner)
    assert found is not None
    assert len(found.sources) == min(known, MOST) and len(found.sources) + found.more == known
    (pool,) = [one for one in found.sources if one.pooled]
    assert pool.source is None and pool.rewards == number - most
    assert len(msgspec.json.encode(found)) < 100_000 and len(found.moments) <= trust.MOST


def test_over_http(tmp_path: Path) -> None:
    """Status, metrics and a restart; labels of outsiders are in no metric."""
    server = Server(tmp_path / "log.db")
    try:
        settings = {"dim": 2, "noise_range": 0.5, "seed": 1}
        assert server.ask("PUT", "/v1/bandits/shop", settings | {"policy": "quorum"})[0] == 201
        assert server.ask("PUT", "/v1/bandits/plain", settings | {"policy": "oful"})[1]["belief"] is None
        for t in range(12):
            actions = [{"id": "a", "features": [0.5, 0.1]}, {"id": "b", "features": [0.1, 0.5]}]
            body = {"actions": actions, "decision_id": str(t), "source": LIE if t % 2 else None}
            assert server.ask("POST", "/v1/bandits/shop/decisions", body)[0] == 200
            server.ask("POST", "/v1/bandits/shop/rewards", {"decision_id": str(t), "reward": 0.5})
        seen = server.ask("GET", "/v1/bandits/shop")[1]
        assert [one["source"] for one in seen["belief"]["sources"]] == [None, LIE]
        assert msgspec.convert(seen, Status).belief is not None
        metrics = server.ask("GET", "/metrics")[1]
        assert 'robandit_doubted_sources{bandit="shop"} 0\n' in metrics and "img" not in metrics
        again: Any = None
        server.kill()
        server = Server(tmp_path / "log.db")
        again = server.ask("GET", "/v1/bandits/shop")[1]
        assert json.dumps(again["belief"]) == json.dumps(seen["belief"])
    finally:
        server.kill()
