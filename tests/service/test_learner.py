"""One bandit in memory: what it learns live is what its log folds to."""

import numpy as np
import pytest
from wary import Wary

from robandit.policies import POLICIES
from robandit.service.learner import Learner
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
