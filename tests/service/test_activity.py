"""What was chosen and earned over time, against the slow way: the whole log, gone through event by event."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from served import SHOP, Server, check_fold, log_of, working
from test_belief import LIE
from test_life import choice, store, traffic

from robandit.rewards import Rewards
from robandit.service.hub import Hub
from robandit.service.learning import tallies
from robandit.service.learning.history import SCALES
from robandit.service.learning.interval import FEW, interval
from robandit.service.learning.learner import Learner
from robandit.service.learning.tallies import MOST, OTHERS, Tally
from robandit.service.learning.uniform import UniformSums, uniform_weight
from robandit.service.refused import Refused
from robandit.wire.activity import ActivityReport
from robandit.wire.changes import Change
from robandit.wire.events import Decided, Event, Rewarded
from robandit.wire.types import BanditSettings

Named = list[tuple[str | None, float, bool, float]]  # name, time, whether it is a reward, and that


def happenings(seed: int, names: int, count: int, every: float) -> Named:
    """Decisions and rewards of names, some of which stop coming."""
    rng, found, at = np.random.default_rng(seed), Named(), 1e6
    for _ in range(count):
        at += float(rng.exponential(every))
        name = None if rng.random() < 0.1 else f"n{rng.integers(names)}"
        found.append((name, at, bool(rng.random() < 0.5), float(rng.normal())))
    return found


def played(events: Named) -> Tally:
    """A tally of what happened. A reward is for the last decision of its name."""
    tally, numbers = Tally(), dict[str | None, int]()
    for name, at, is_reward, value in events:
        if is_reward:
            tally.rewarded(numbers.get(name, OTHERS), at, value)
        else:
            numbers[name] = tally.decided(name, at)
    return tally


@pytest.mark.parametrize(("names", "count", "every"), [(4, 3000, 0.7), (4, 2000, 90.0), (MOST, 500, 5000.0)])
def test_a_tally_counts_like_a_list(names: int, count: int, every: float) -> None:
    """Few names, by the second, the minute and the hour; long pauses too."""
    events = happenings(1, names - 1, count, every)
    tally, now = played(events), events[-1][1] + 3.0
    began = {name: at for name, at, is_reward, _ in reversed(events) if not is_reward}
    for scale, (width, most) in SCALES.items():
        first = now - now % width - (most - 1) * width
        sums: Any = defaultdict(lambda: [0, 0, 0.0, 0.0])
        for name, at, is_reward, value in events:
            if at >= first:
                known = name in began and at >= began[name]  # a reward before its first decision is nobody's
                cell = sums[at - at % width, name if known else "others"]
                tallies.add(cell, [0, 1, value, value * value] if is_reward else [1, 0, 0.0, 0.0])
        names_of = {one.number: name for name, one in tally.names.items()} | {OTHERS: "others"}
        found = {(start, names_of[k]): cell for start, cells in tally.over(scale, now) for k, cell in cells.items()}
        assert set(found) == set(sums)
        for key, cell in found.items():
            assert cell == pytest.approx(sums[key])
    assert tally.others[0] == 0


def test_names_without_end_take_no_more_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that come later count with the others until an old one has not come for a day; nothing is lost."""
    monkeypatch.setattr(tallies, "MOST", 8)
    events = happenings(2, 300, 4000, 60.0)
    tally = played(events)
    assert len(tally.names) == 8 == len(tally._numbers)
    alive = [one.sums for one in tally.names.values()]
    assert sum(one[0] for one in alive) + tally.others[0] == sum(not is_reward for _, _, is_reward, _ in events)
    assert sum(one[1] for one in alive) + tally.others[1] == sum(is_reward for _, _, is_reward, _ in events)
    now = events[-1][1]
    assert len(list(tally.over("hours", now))) <= 168 and max(one.number for one in tally.names.values()) > 8
    late = now + tallies.IDLE + 1.0
    assert tally.decided("new", late) not in (OTHERS, 1) and "new" in tally.names
    again = Tally()
    again.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(tally.plain())))
    for one in (tally, again):
        one.decided("n1", late + 7200.0)
    assert msgspec.msgpack.encode(again.plain()) == msgspec.msgpack.encode(tally.plain())


@pytest.mark.no_cover
def test_the_worst_names_take_a_bounded_space() -> None:
    """All that fit, in every second for two hours, and one in every hour of a week before that."""
    tally = Tally()
    for hour in range(168):
        for name in range(MOST + 5):
            tally.decided(str(name), 3600.0 * hour)
    for second in range(7200):
        for name in range(MOST + 5):
            tally.rewarded(tally.decided(str(name), 604_800.0 + second), 604_800.0 + second, 0.1)
    size = len(msgspec.msgpack.encode(tally.plain()))
    assert 300_000 < size < 420_000


# ------------------------------------------------------------------------------------ intervals


@pytest.mark.no_cover
@pytest.mark.parametrize(("low", "high", "rate"), [(0.0, 1.0, 0.02), (0.0, 1.0, 0.4), (-5.0, 15.0, 0.9)])
@pytest.mark.parametrize("count", [5, 40, 400])
def test_intervals_hold_the_truth(low: float, high: float, rate: float, count: int) -> None:
    """In at least 95 of 100 cases, of clicks and of rewards that vary less, however few there are."""
    declared, rng = Rewards(low=low, high=high), np.random.default_rng(3)
    for spread in (1.0, 0.3):
        truth = low + (high - low) * (0.5 + spread * (rate - 0.5))
        held = 0
        for _ in range(2000):
            shares = 0.5 + spread * ((rng.random(count) < rate) - 0.5)
            rewards = low + (high - low) * shares
            found = interval(count, float(rewards.sum()), float((rewards**2).sum()), declared)
            assert found is not None and found.low is not None and found.high is not None
            assert low <= found.low <= found.mean + 1e-9 and found.mean - 1e-9 <= found.high <= high
            held += found.low <= truth <= found.high
        assert held / 2000 >= 0.95


def test_intervals_are_about_as_short_as_can_be() -> None:
    """Of many clicks they are 1.4 times as wide as the usual ones, which hold less often where there are few."""
    found = interval(10_000, 3000.0, 3000.0, Rewards(low=0.0, high=1.0))
    assert found is not None and found.low is not None and found.high is not None
    usual = 2 * 1.96 * (0.3 * 0.7 / 10_000) ** 0.5
    assert 1.3 < (found.high - found.low) / usual < 1.45
    none = interval(10, 0.0, 0.0, Rewards(low=0.0, high=1.0))
    assert none is not None and none.low == 0.0 and none.high == pytest.approx(1.0 - 0.025**0.1, abs=1e-6)  # exact


def test_nothing_is_said_of_few_rewards_of_any_range() -> None:
    few, many = (interval(n, 0.0, float(n), None) for n in (FEW - 1, 400))
    assert few is not None and few.low is None and few.high is None
    assert many is not None and many.high == pytest.approx(1.96 / 399**0.5, rel=1e-4)
    assert interval(0, 0.0, 0.0, None) is None


# ------------------------------------------------------------------------------------ beside uniform play


def test_uniform_play_is_estimated_as_by_hand() -> None:
    rng = np.random.default_rng(4)
    p = rng.choice([0.0125, 0.9625], 500, p=[0.0375, 0.9625])
    r = rng.normal(0.3, 0.2, 500)
    sums = UniformSums()
    for chance, reward in zip(p, r, strict=True):
        sums.add(uniform_weight(4, float(chance), 0.05), float(reward))
    w, found = 1.0 / (4.0 * p), sums.report()
    theta = w @ r / w.sum()
    own = w * (r - theta) / w.mean()
    assert found.decisions == 500 and found.effective == pytest.approx(w.sum() ** 2 / (w**2).sum())
    for said, terms in (
        (found.logged, r),
        (found.ips, w * r),
        (found.snips, theta + own),
        (found.gain, r - theta - own),
    ):
        assert said is not None and said.value == pytest.approx(terms.mean())
        assert said.half_width == pytest.approx(1.959964 * terms.std(ddof=1) / 500**0.5, rel=1e-6)


def test_decisions_without_exploration_say_nothing() -> None:
    assert uniform_weight(4, 1.0, 0.0) == 0.0 and uniform_weight(4, 1.0, 0.05) == 0.0
    assert uniform_weight(4, 0.001, 0.05) == 0.0  # nor those that another process made before it explored
    assert uniform_weight(4, 0.0125, 0.05) == 20.0 and uniform_weight(1, 1.0, 0.05) == 1.0
    assert UniformSums().report().gain is None


@pytest.mark.no_cover
def test_the_truth_lies_in_the_intervals() -> None:
    """A policy that mostly plays the best of four actions, whose rates are known: over 300 logs."""
    rng, rates, held, better = np.random.default_rng(5), np.array([0.4, 0.2, 0.1, 0.1]), 0, 0
    chances = np.array([0.85, 0.05, 0.05, 0.05])
    for _ in range(300):
        sums = UniformSums()
        played = rng.choice(4, 3000, p=chances)
        for k, luck in zip(played, rng.random(3000), strict=True):
            sums.add(uniform_weight(4, float(chances[k]), 0.2), float(luck < rates[k]))
        found = sums.report()
        assert found.snips is not None and found.gain is not None
        held += abs(found.snips.value - 0.2) <= found.snips.half_width
        better += abs(found.gain.value - (float(chances @ rates) - 0.2)) <= found.gain.half_width
    assert held > 0.92 * 300 and better > 0.92 * 300


# ------------------------------------------------------------------------------------ in the service


def by_hand(log: list[Event]) -> dict[str, dict[str | None, list[float]]]:
    """Decisions, rewards and their sum, of each action and source of a log."""
    found: Any = {"actions": defaultdict(lambda: [0, 0, 0.0]), "sources": defaultdict(lambda: [0, 0, 0.0])}
    made = {one.id: one for one in log if isinstance(one, Decided)}
    for event in log:
        if isinstance(event, Decided | Rewarded):
            one = made[event.id]
            for kind, name in (("actions", one.actions[one.index]), ("sources", one.source)):
                more = [1, 0, 0.0] if isinstance(event, Decided) else [0, 1, event.reward]
                tallies.add(found[kind][name], more)
    return found


@pytest.mark.no_cover
def test_it_is_the_fold_of_the_log(tmp_path: Path) -> None:
    """After a change of the policy, with rewards that come late, and from a snapshot in the middle."""
    hub = Hub(store(tmp_path))
    settings = BanditSettings(dim=3, noise_range=0.5, exploration=0.3)
    working(
        hub,
        lambda: hub.create("shop", settings, 7),
        *traffic(hub, 0, 60),
        lambda: hub.change("shop", Change(version=1, policy="oful")),
        *traffic(hub, 60, 60),
    )
    log, found = list(log_of(hub, "shop")), hub.activity("shop", "hours")
    expected = by_hand(log)
    for kind, listed in (("actions", found.actions), ("sources", found.sources)):
        assert {one.name for one in listed} == set(expected[kind]) and not any(one.others for one in listed)
        for one in listed:
            sums = expected[kind][one.name]
            assert [one.decisions, one.rewards] == sums[:2] and sum(one.made) == one.decisions
            assert sum(total for _, total in one.earned) == pytest.approx(sums[2])
            assert one.recent is not None and one.recent.mean == pytest.approx(sums[2] / sums[1])
        assert [sum(one.made) for one in listed] == sorted((sum(one.made) for one in listed), reverse=True)
    assert found.uniform.decisions == 114 and found.uniform.gain is not None
    assert len(found.starts) == len(found.actions[0].made)
    before = msgspec.json.encode(msgspec.structs.replace(found, now=0.0))
    hub.stop()
    check_fold(store(tmp_path))
    again = Hub(store(tmp_path))
    after = msgspec.json.encode(msgspec.structs.replace(again.activity("shop", "hours"), now=0.0))
    assert after == before
    again.stop()


def test_a_snapshot_from_before_is_done_without(tmp_path: Path) -> None:
    """A store of an earlier release folds its logs once."""
    learner = Learner(BanditSettings(dim=3, noise_range=0.5), 1)
    for name in ("tallies", "board"):
        plain = msgspec.msgpack.decode(learner.snapshot())
        del plain[name]
        with pytest.raises(KeyError, match=name):
            Learner.restore(learner.settings, 1, msgspec.msgpack.encode(plain))


def test_unknown_bandits_have_no_activity(tmp_path: Path) -> None:
    hub = Hub(store(tmp_path))
    with pytest.raises(Refused):
        hub.activity("shop", "hours")
    working(hub, lambda: hub.create("shop", BanditSettings(dim=3), 7), lambda: hub.decide("shop", choice(0)))
    assert [one.decisions for one in hub.activity("shop", "seconds").actions] == [1]
    hub.stop()


def test_over_http(tmp_path: Path) -> None:
    server = Server(tmp_path / "log.db")
    try:
        server.ask("PUT", "/v1/bandits/shop", SHOP)
        body = {"actions": [{"id": "x" * 100, "features": [0.1, 0.2, 0.3]}], "decision_id": "d", "source": LIE}
        assert server.ask("POST", "/v1/bandits/shop/decisions", body)[0] == 200
        server.ask("POST", "/v1/bandits/shop/rewards", {"decision_id": "d", "reward": 0.25})
        status, plain = server.ask("GET", "/v1/bandits/shop/activity?range=seconds")
        found = msgspec.convert(plain, ActivityReport)
        assert status == 200 and found.range == "seconds" and found.width == 1.0
        assert [one.name for one in found.actions] == [f"{'x' * 63}…"] and [one.name for one in found.sources] == [LIE]
        assert sum(n for n, _ in found.actions[0].earned) == 1
        assert server.ask("GET", "/v1/bandits/shop/activity")[1]["range"] == "minutes"
        assert server.ask("GET", "/v1/bandits/shop/activity?range=days")[0] == 422
        assert server.ask("GET", "/v1/bandits/nobody/activity")[0] == 404
    finally:
        server.kill()
