"""Policies that watch: they learn from all feedback, never act, and are scored as they would be by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import check_fold, log_of, menu, working
from test_life import choice, store, traffic

from robandit import OFUL
from robandit.service.hub import Hub
from robandit.service.refused import Refused
from robandit.wire.changes import Change, ShadowChange
from robandit.wire.events import Decided, Event, Rewarded
from robandit.wire.shadows import ShadowReport
from robandit.wire.types import Action, BanditSettings, Choice, Feedback, RewardRange

SETTINGS = BanditSettings(dim=3, noise_range=0.5, exploration=0.3)


def shadow(version: int, name: str = "plain", **more: Any) -> Change:
    return Change(version=version, shadow=ShadowChange(name=name, **{"policy": "oful", "radius_scale": 0.5, **more}))


def by_hand(log: list[Event], first: int) -> tuple[np.ndarray, ...]:
    """π/p, π, rewards and terms of the doubly robust estimate, from a policy that is played by hand."""
    policy = OFUL(dim=3, noise_range=0.5, radius_scale=0.5, parameter_bound=1.0, seed=7)
    seen: dict[str, Any] = {}
    rows = []
    for event in log:
        if isinstance(event, Decided):
            seen[event.id] = event, None
            if event.round >= first and event.offered is not None:
                offered = np.frombuffer(event.offered).reshape(-1, 3)
                chances, means = policy.propensities(offered), offered @ policy.estimate().center
                seen[event.id] = event, (chances[event.index], chances @ means, means[event.index])
        elif isinstance(event, Rewarded):
            made, thought = seen[event.id]
            if thought is not None:
                chance, expected, taken = thought
                weight = chance / made.propensity
                rows.append((weight, chance, event.reward, expected + weight * (event.reward - taken)))
            policy.warm_start([made.features], [event.reward], made.sigma)
    return tuple(np.array(rows).T)


@pytest.mark.no_cover
def test_it_is_scored_as_by_hand(tmp_path: Path) -> None:
    """From a policy of the library and NumPy alone."""
    hub = Hub(store(tmp_path))
    working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        *traffic(hub, 0, 50),
        lambda: hub.change("shop", shadow(1)),
        *traffic(hub, 50, 80),
    )
    (found,) = hub.status("shop").shadows
    w, chance, r, x = by_hand(list(log_of(hub, "shop")), 51)
    n = len(w)
    assert isinstance(found, ShadowReport) and (found.name, found.policy, found.decisions) == ("plain", "oful", n)
    assert n == 77 and found.agreement == pytest.approx(chance.mean())
    theta = w @ r / w.sum()
    for said, terms in (
        (found.logged, r),
        (found.ips, w * r),
        (found.snips, theta + w * (r - theta) / w.mean()),
        (found.dr, x),
    ):
        assert said is not None and said.value == pytest.approx(terms.mean(), abs=1e-12)
        assert said.half_width == pytest.approx(1.959964 * terms.std(ddof=1) / n**0.5, rel=1e-5)
    hub.stop()
    check_fold(store(tmp_path))


def test_the_policy_that_acts_does_not_notice(tmp_path: Path) -> None:
    """The same decisions, with the same chances, as without a shadow."""
    hub = Hub(store(tmp_path))
    plain = BanditSettings(dim=3, noise_range=0.5)

    def rewarded(name: str, number: int) -> Any:
        return lambda: hub.reward(name, [Feedback(decision_id=f"d{number}", reward=0.1 * (number % 3))])

    calls: list[Any] = []
    for number in range(40):
        for name in ("alone", "watched"):
            calls.append(lambda name=name, number=number: hub.decide(name, choice(number)))
            calls.append(rewarded(name, number))
    found = working(
        hub,
        lambda: hub.create("alone", plain, 7),
        lambda: hub.create("watched", plain, 7),
        lambda: hub.change("watched", shadow(1)),
        *calls,
    )
    answers = found[3:]
    assert answers[0::4] == answers[2::4] and len(hub.status("watched").shadows) == 1
    logs = {name: [one for one in log_of(hub, name) if isinstance(one, Decided)] for name in ("alone", "watched")}
    assert all(one.offered is None for one in logs["alone"]) and all(one.offered for one in logs["watched"])
    hub.stop()
    check_fold(store(tmp_path))


@pytest.mark.no_cover
def test_it_tells_what_the_other_would_earn(tmp_path: Path) -> None:
    """Uniform play is logged; what a greedy shadow would earn is known here, and within its intervals."""
    hub = Hub(store(tmp_path))
    settings = BanditSettings(dim=3, rewards=RewardRange(low=-1.0, high=3.0), noise_range=0.5, exploration=1.0)
    parameter = np.array([1.0, -0.5, 0.3])
    rng, means, best = np.random.default_rng(5), [], []

    async def play() -> None:
        for number in range(1500):
            rows = menu(rng, 5)
            asked = Choice(actions=[Action(one["id"], one["features"]) for one in rows], decision_id=f"p{number}")
            worth = np.array([one["features"] for one in rows]) @ parameter
            chosen = await hub.decide("shop", asked)
            reward = 1.0 + float(worth[chosen.index]) + rng.uniform(-0.3, 0.3)
            means.append(1.0 + worth.mean())
            best.append(1.0 + worth.max())
            await hub.reward("shop", [Feedback(decision_id=f"p{number}", reward=reward)])

    working(
        hub,
        lambda: hub.create("shop", settings, 7),
        lambda: hub.change("shop", shadow(1, policy="greedy", radius_scale=None)),
        play,
    )
    (found,) = hub.status("shop").shadows
    assert found.logged and found.ips and found.snips and found.dr and found.agreement
    assert abs(found.logged.value - np.mean(means)) < 2 * found.logged.half_width < 0.1
    for said in (found.ips, found.snips, found.dr):  # it knows the best after some rounds
        assert abs(said.value - np.mean(best)) < 2 * said.half_width and said.value > found.logged.value + 0.2
    assert found.dr.half_width < 0.9 * found.ips.half_width and 0.15 < found.agreement < 0.25
    hub.stop()
    check_fold(store(tmp_path))


@pytest.mark.filterwarnings("ignore::robandit.GuaranteeLapsed")
def test_it_lives_through_all_other_changes(tmp_path: Path) -> None:
    """One that came late knows what one knows that came early; removing one leaves the other."""
    hub = Hub(store(tmp_path))
    removed = ShadowChange(name="early", remove=True)

    async def compare() -> None:
        early, late = (hub.bandits["shop"].learner.shadows[name] for name in ("early", "late"))
        arrays = late.policy.state()["arrays"]
        assert all(np.array_equal(one, arrays[name]) for name, one in early.policy.state()["arrays"].items())
        assert early.sums.n > late.sums.n > 0

    found = working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        *traffic(hub, 0, 20),
        lambda: hub.change("shop", shadow(1, "early", policy="multi-level-weighted-oful", radius_scale=None)),
        *traffic(hub, 20, 20),
        lambda: hub.change("shop", Change(version=2, policy="lin-ts", exploration=0.2)),
        *traffic(hub, 40, 20),
        lambda: hub.change("shop", shadow(3, "late", policy="multi-level-weighted-oful", radius_scale=None)),
        *traffic(hub, 60, 20),
        compare,
        lambda: hub.change("shop", shadow(4, "third")),
        lambda: hub.change("shop", Change(version=4, shadow=removed)),
        lambda: hub.change("shop", Change(version=5, shadow=removed)),
        lambda: hub.change("shop", Change(version=5, policy="oful", shadow=ShadowChange(name="x"))),
        lambda: hub.change("shop", shadow(5, "late")),  # which begins to watch again
    )
    assert not any(isinstance(one, Refused) for one in found[:-5])
    assert [getattr(one, "status", 200) for one in found[-5:]] == [422, 200, 404, 422, 200]
    assert [(one.name, one.decisions) for one in hub.status("shop").shadows] == [("late", 0)]
    hub.stop()
    check_fold(store(tmp_path))


def test_the_cost_of_all_is_limited(tmp_path: Path) -> None:
    hub = Hub(store(tmp_path))

    def many(count: int) -> Choice:
        rows = np.random.default_rng(1).uniform(-0.05, 0.05, (count, 40))
        return Choice(actions=[Action(str(number), row) for number, row in enumerate(rows.tolist())])

    settings = BanditSettings(dim=40, policy="lin-ts")
    found = working(
        hub,
        lambda: hub.create("shop", settings, 7),
        lambda: hub.decide("shop", many(600)),
        lambda: hub.change("shop", shadow(1, policy="multi-level-weighted-oful", radius_scale=None)),
        lambda: hub.decide("shop", many(600)),
        lambda: hub.decide("shop", many(100)),
    )
    assert found[1].round == 1 and found[4].round == 2
    assert isinstance(found[3], Refused) and found[3].status == 413 and "policies that watch" in str(found[3])
    hub.stop()
