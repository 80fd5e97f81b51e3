"""One bandit in memory: what it learns live is what its log folds to."""

import numpy as np
import pytest
from wary import Wary

from robandit.monitor.monitor import CorruptionMonitor
from robandit.policies import POLICIES
from robandit.service.learning.learner import Asked, Learner
from robandit.wire.events import Event, Rewarded
from robandit.wire.types import BanditSettings


def test_sources_reach_the_policy_live_and_in_the_fold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "wary", Wary)
    settings = BanditSettings(dim=2, noise_range=0.5, policy="wary", horizon=100)
    live, log, rng = Learner(settings, seed=1), list[Event](), np.random.default_rng(0)
    for t, source in enumerate(["ads", "web", None, "mail", "ads", None, "mail"]):
        features = rng.uniform(-0.5, 0.5, (3, 2))
        made = live.decide(
            id=str(t), now=float(t), actions=["a", "b", "c"], features=features, sigma=None, source=source
        )
        late = Rewarded(id=str(t - 1 if t % 2 else t), at=float(t), reward=0.5)
        log += [made, late] if t % 2 == 0 else [made]
        for event in log[live.place :]:
            live.apply(event)
    again = Learner(settings, seed=1)
    for event in log[:6]:
        again.apply(event)
    restored = Learner.restore(settings, 1, again.snapshot())
    for event in log[6:]:
        again.apply(event)
        restored.apply(event)
    assert live.digest() == again.digest() == restored.digest()
    assert live.policy.state()["sources"] == [["ads", None]]
    assert isinstance(live.policy, Wary) and live.policy.stats.counts.tolist() == [[2, 1, 1]]


def test_decisions_of_any_round_are_learnt_and_watched_in_the_order_of_the_log() -> None:
    """Those who decide at the same time have rounds of their own, on states that may be old."""
    settings = BanditSettings(dim=2, noise_range=0.5, policy="lin-ts")
    live, rng = Learner(settings, seed=1), np.random.default_rng(0)
    menus = {round_: rng.uniform(-0.5, 0.5, (3, 2)) for round_ in (7, 3, 900)}
    before = live.digest()
    made = [live.decide_in(one, Asked("abc", menus[one], str(one)), 1.0) for one in menus]
    assert live.digest() == before and [(one.round, one.made_on) for one in made] == [(7, 0), (3, 0), (900, 0)]
    log: list[Event] = [*made, *(Rewarded(id=str(one), at=2.0, reward=0.1 * one) for one in (900, 3))]
    for event in log:
        live.apply(event)
    assert live.monitor.rounds == 0  # it waits for the first
    live.apply(Rewarded(id="7", at=2.0, reward=0.5))
    assert live.monitor.rounds == 3 and live.decisions == 3 and live.policy.rounds == 900
    assert live.recent[0][0] == 3  # its number in the log
    watched = CorruptionMonitor(**settings.for_monitor())
    for one, reward in zip(made, (0.5, 0.3, 90.0), strict=True):
        watched.observe(one.features, reward)
    state, wanted = live.monitor.state(), watched.state()
    assert all(np.array_equal(state["arrays"][name], wanted["arrays"][name]) for name in wanted["arrays"])
