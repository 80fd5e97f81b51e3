"""What operators do to a bandit: every change is an event, made once, and the state stays the fold of the log."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import check_fold, log_of, menu, working

from robandit.logs.evaluate import evaluate
from robandit.logs.evaluate.records import read
from robandit.policies import POLICIES
from robandit.service.files.export import as_parquet
from robandit.service.hub import Hub
from robandit.service.learning import classroom
from robandit.service.learning.student import Student
from robandit.service.refused import Refused
from robandit.service.serving import lessons
from robandit.service.stores.sqlite import SQLiteStore
from robandit.wire.changes import Change, ChangeMade, ChangeWaits, Ruling, ShadowChange
from robandit.wire.events import Changed, Closed, Decided, Rewarded, as_line
from robandit.wire.types import NEED_CORRUPTION, Action, BanditSettings, Choice, Feedback, RewardRange
from thinned import thinned

SETTINGS = BanditSettings(dim=3, noise_range=0.5)
SOURCES = ("web", "mail", None)


def choice(number: int) -> Choice:
    rows = menu(np.random.default_rng(number))
    actions = [Action(one["id"], one["features"]) for one in rows]
    return Choice(actions=actions, decision_id=f"d{number}", source=SOURCES[number % 3])


def traffic(hub: Hub, first: int, count: int, late: int = 3) -> list[Callable[[], Any]]:
    """Decisions, with rewards that come some decisions later; the last ones get none."""
    calls: list[Callable[[], Any]] = []
    for number in range(first, first + count):
        calls.append(partial(hub.decide, "shop", choice(number)))
        if number >= first + late:
            reward = round(float(np.random.default_rng(number).normal(0.0, 0.3)), 3)
            calls.append(partial(hub.reward, "shop", [Feedback(decision_id=f"d{number - late}", reward=reward)]))
    return calls


def store(path: Path) -> SQLiteStore:
    return SQLiteStore(path / "log.db", synchronous="OFF")


def refold(path: Path) -> dict[str, list[Any]]:
    """Fold the logs from their beginnings, without snapshots, and compare."""
    db = store(path)
    db._db.execute("DELETE FROM snapshots")
    return check_fold(db)


def made(found: Any) -> ChangeMade:
    assert isinstance(found, ChangeMade), found
    return found


@pytest.mark.no_cover
@pytest.mark.parametrize("policy", [None, "exp3p", "lin-ts", "multi-level-weighted-oful", "cobe"])
def test_exploration_changes_and_nothing_is_forgotten(tmp_path: Path, policy: str | None) -> None:
    """The same bandit with the new exploration from the beginning has learnt the same, and now decides the same."""
    hub = Hub(store(tmp_path))
    settings = SETTINGS if policy is None else BanditSettings(dim=3, noise_range=0.5, policy=policy, horizon=1000)
    found = working(
        hub,
        lambda: hub.create("shop", settings, 7),
        *traffic(hub, 0, 30),
        lambda: hub.change("shop", Change(version=1, exploration=0.4)),
        *traffic(hub, 30, 30),
    )
    learner = hub.bandits["shop"].learner
    assert made(found[58]).settings == {"exploration": 0.4} and learner.life.version == 2
    before, after = (
        [one for one in log_of(hub, "shop") if isinstance(one, Decided) and (one.round > 30) == later]
        for later in (False, True)
    )
    assert all(one.offered is None for one in before) and all(one.offered is not None for one in after)
    assert all(one.propensity >= 0.1 - 1e-12 for one in after) and len({one.propensity for one in after}) > 1
    assert hub.status("shop").settings.exploration == 0.4 and hub.status("shop").version == 2
    hub.stop()
    refold(tmp_path)


def test_windows_and_defaults_change(tmp_path: Path) -> None:
    now = [1000.0]
    hub = Hub(SQLiteStore(tmp_path / "log.db", clock=lambda: now[0]), ticks=lambda: now[0])

    async def later(seconds: float) -> None:
        now[0] += seconds

    def asked(name: str) -> Callable[[], Any]:
        return lambda: hub.reward("shop", [Feedback(decision_id=name, reward=0.1)])

    found = working(
        hub,
        lambda: hub.create("shop", BanditSettings(dim=3, noise_range=0.5, reward_window=1000.0), 7),
        lambda: hub.decide("shop", choice(0)),
        lambda: hub.decide("shop", choice(1)),
        lambda: later(50.0),
        hub.close_windows,
        lambda: hub.change("shop", Change(version=1, reward_window=10.0, default_reward=0.25)),
        hub.close_windows,  # both windows are over by now
        asked("d0"),
        lambda: hub.change("shop", Change(version=2, reward_window=100.0, default_reward=None)),
        lambda: hub.decide("shop", choice(2)),
        lambda: later(90.0),
        asked("d2"),
    )
    assert [found[7][0].status, found[11][0].status] == ["expired", "accepted"]
    log = list(log_of(hub, "shop"))
    kinds = [type(event) for event in log]
    assert kinds == [Decided, Decided, Changed, Closed, Closed, Changed, Decided, Rewarded]
    assert [event.reward for event in log if isinstance(event, Closed)] == [0.25, 0.25]
    hub.stop()
    refold(tmp_path)


OTHERS = sorted(set(POLICIES) - {"quorum"})


@pytest.mark.no_cover
@pytest.mark.filterwarnings("ignore::robandit.GuaranteeLapsed")
@pytest.mark.parametrize("policy", thinned(OTHERS, fast=OTHERS[::2]))
def test_another_policy_learns_the_log_and_acts(tmp_path: Path, policy: str) -> None:
    """It knows what it would know if it had followed all decisions, those that get their rewards later included."""
    hub = Hub(store(tmp_path))
    corruption = 3.0 if policy in NEED_CORRUPTION else None
    wanted = Change(version=1, policy=policy, corruption=corruption) if corruption else Change(version=1, policy=policy)
    found = working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        *traffic(hub, 0, 40),
        lambda: hub.change("shop", wanted),
        lambda: hub.reward("shop", [Feedback(decision_id="d38", reward=0.3)]),  # of the policy before
        *traffic(hub, 40, 20),
        lambda: hub.change("shop", Change(version=2, policy="quorum")),
        *traffic(hub, 60, 5),
        lambda: hub.change("shop", wanted),  # a retry that comes late
    )
    first = made(found[78])
    assert first.settings["policy"] == policy and first == found[-1] and found[79][0].status == "accepted"
    learner = hub.bandits["shop"].learner
    assert (learner.life.version, learner.settings.policy, learner.policy.rounds) == (3, "quorum", 65)
    assert sum(learner.levels.values()) == 5  # of the policy that acts now
    hub.stop()
    assert [one.round for one in refold(tmp_path)["shop"] if isinstance(one, Decided)] == list(range(1, 66))


@pytest.mark.no_cover
def test_a_policy_that_switched_back_knows_as_much_as_one_that_never_left(tmp_path: Path) -> None:
    """An oracle without any of this code: the estimate of a plain ridge regression on the log."""
    hub = Hub(store(tmp_path))
    plain = BanditSettings(dim=3, noise_range=0.5, policy="oful", parameter_bound=2.0)
    working(
        hub,
        lambda: hub.create("shop", plain, 7),
        *traffic(hub, 0, 60),
        lambda: hub.change("shop", Change(version=1, policy="lin-ts")),
        *traffic(hub, 60, 60),
        lambda: hub.change("shop", Change(version=2, policy="oful", radius_scale=0.5)),
        *traffic(hub, 120, 30),
    )
    log = list(log_of(hub, "shop"))
    features = {one.id: np.array(one.features) for one in log if isinstance(one, Decided)}
    told = [(features[one.id], one.reward) for one in log if isinstance(one, Rewarded)]
    gram = np.eye(3) / 4.0 + sum(np.outer(a, a) for a, _ in told)
    expected = np.linalg.solve(gram, sum(a * r for a, r in told))
    np.testing.assert_allclose(hub.status("shop").estimate, expected, rtol=1e-9)
    assert len(told) == 141 and hub.bandits["shop"].learner.policy.updates == 141
    hub.stop()
    refold(tmp_path)


def test_each_version_is_made_once(tmp_path: Path) -> None:
    """Of two changes to the same version one is refused; a retry gets the same answer, and changes nothing."""
    hub = Hub(store(tmp_path))
    one, other = Change(version=1, exploration=0.1), Change(version=1, reward_window=5.0)
    found = working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        lambda: hub.change("shop", one),
        lambda: hub.change("shop", other),
        lambda: hub.change("shop", one),
        lambda: hub.change("shop", Change(version=2, exploration=0.1)),  # which is so already, and is written down
        lambda: hub.change("shop", one),
        lambda: hub.change("shop", Change(version=9, exploration=0.1)),
        lambda: hub.change("nobody", one),
        lambda: hub.create("shop", SETTINGS, 7, ["exploration"]),  # as it was described at first
        lambda: hub.create("shop", BanditSettings(dim=3, exploration=0.1), None, ["exploration"]),
        lambda: hub.create("shop", BanditSettings(dim=3, exploration=0.2), None, ["exploration"]),
    )
    assert made(found[1]).version == 2 and found[3] == found[1] == found[5] and made(found[4]).version == 3
    assert [one.status for one in found if isinstance(one, Refused)] == [409, 409, 404, 409]
    assert "version 2, and this is about version 1" in str(found[2]) and found[8:10] == [False, False]
    hub.stop()
    assert len(refold(tmp_path)["shop"]) == 2


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (Change(version=1), "say what should change"),
        (Change(version=1, policy="quorum", policy_settings={"max_sources": 0}), "max_sources"),
        (Change(version=1, policy_settings={"nonsense": 1.0}), "nonsense"),
        (Change(version=1, policy="robust-weighted-oful"), "must be told `corruption`"),
        (Change(version=1, default_reward=7.0), "default_reward"),
        (Change(version=1, policy="greedy", radius_scale=0.5), "takes no radius_scale"),
    ],
)
def test_what_can_not_be_is_refused(tmp_path: Path, wanted: Change, why: str) -> None:
    hub = Hub(store(tmp_path))
    settings = BanditSettings(dim=3, rewards=RewardRange())
    _, found = working(hub, lambda: hub.create("shop", settings, 7), lambda: hub.change("shop", wanted))
    assert isinstance(found, Refused) and found.status == 422 and why in str(found)
    assert hub.bandits["shop"].learner.life.version == 1
    hub.stop()
    assert refold(tmp_path) == {"shop": []}


def test_an_archived_bandit_only_keeps_its_log(tmp_path: Path) -> None:
    """No window closes meanwhile: no reward can come. After it is taken back, rewards have an hour again."""
    now = [1000.0]
    hub = Hub(SQLiteStore(tmp_path / "log.db", clock=lambda: now[0]), ticks=lambda: now[0])
    settings = BanditSettings(dim=3, noise_range=0.5, reward_window=60.0, default_reward=0.0)

    async def later(seconds: float) -> None:
        now[0] += seconds

    found = working(
        hub,
        lambda: hub.create("shop", settings, 7),
        lambda: hub.decide("shop", choice(0)),
        lambda: hub.change("shop", Change(version=1, archived=True)),
        lambda: later(1e5),
        hub.close_windows,
        lambda: hub.decide("shop", choice(0)),
        lambda: hub.decide("shop", choice(1)),
        lambda: hub.reward("shop", [Feedback(decision_id="d0", reward=0.1)]),
        lambda: hub.change("shop", Change(version=2, exploration=0.1)),
        lambda: hub.change("shop", Change(version=2, archived=False)),
        lambda: later(30.0),
        lambda: hub.reward("shop", [Feedback(decision_id="d0", reward=0.1)]),
        lambda: hub.decide("shop", choice(0)),
    )
    assert [one.status for one in found if isinstance(one, Refused)] == [410] * 4
    assert 'PATCH /v1/bandits/shop with {"version": 2, "archived": false}' in str(found[5])
    assert found[11][0].status == "accepted" and found[12] == found[1]
    hub.stop()
    kinds = [type(event) for event in refold(tmp_path)["shop"]]
    assert kinds == [Decided, Changed, Changed, Rewarded]


@pytest.mark.no_cover
def test_an_operator_says_whom_to_believe(tmp_path: Path) -> None:
    """The ruling is a part of the state, and holds for every quorum that learns the log later."""
    hub = Hub(store(tmp_path))

    def ruling(version: int, what: str, source: str | None = "web") -> Callable[[], Any]:
        return lambda: hub.change("shop", Change(version=version, ruling=Ruling(source=source, ruling=what)))

    def seen() -> dict[str | None, str]:
        belief = hub.status("shop").belief
        assert belief is not None
        return {one.source: one.ruling for one in belief.sources}

    told: list[dict[str | None, str]] = []

    async def look() -> None:
        told.append(seen())

    working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        *traffic(hub, 0, 40),
        ruling(1, "quarantined"),
        look,
        *traffic(hub, 40, 20),
        lambda: hub.change("shop", Change(version=2, policy_settings={"max_sources": 5})),
        look,
        ruling(3, "trusted", "mail"),
        ruling(4, "released"),
        look,
    )
    assert told == [
        {"web": "quarantined", "mail": "", None: ""},
        {"web": "quarantined", "mail": "", None: ""},
        {"web": "", "mail": "trusted", None: ""},
    ]
    hub.stop()
    refold(tmp_path)


def test_a_ruling_needs_a_policy_that_can_follow_it(tmp_path: Path) -> None:
    hub = Hub(store(tmp_path))
    few = BanditSettings(dim=3, noise_range=0.5, policy_settings={"max_sources": 1})
    web = Ruling(source="web", ruling="trusted")
    found = working(
        hub,
        lambda: hub.create("shop", few, 7),
        *traffic(hub, 0, 10),
        lambda: hub.change("shop", Change(version=1, ruling=Ruling(source="new", ruling="trusted"))),
        lambda: hub.change("shop", Change(version=1, policy="oful")),
        lambda: hub.change("shop", Change(version=2, ruling=web)),
    )
    refusals = [one for one in found if isinstance(one, Refused)]
    assert [one.status for one in refusals] == [422, 422]
    assert "max_sources is 1" in str(refusals[0]) and "oful does not tell sources apart" in str(refusals[1])
    hub.stop()
    refold(tmp_path)


@pytest.mark.no_cover
def test_a_policy_learns_aside_while_the_old_one_acts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In another process, while decisions go on. A retry meanwhile says how far it is, and another change waits."""
    monkeypatch.setattr(lessons, "PATIENCE", 0.05)
    monkeypatch.setattr(lessons, "NEAR", 20)
    hub = Hub(store(tmp_path))
    wanted = Change(version=1, policy="oful")
    answers: list[Any] = []
    acting: list[str] = []

    async def switch() -> None:
        count = 300
        for _ in range(2000):
            answers.append(await hub.change("shop", wanted))
            if isinstance(answers[-1], ChangeMade):
                return
            acting.append(hub.bandits["shop"].settings.policy)
            for call in traffic(hub, count, 5):
                await call()
            count += 5

    found = working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        *traffic(hub, 0, 300),
        switch,
        *traffic(hub, 9000, 20),
    )
    assert not any(isinstance(one, Refused) for one in found)
    assert isinstance(answers[0], ChangeWaits) and answers[0].events >= 597 and acting[0] == "quorum"
    learner = hub.bandits["shop"].learner
    assert learner.settings.policy == "oful" and learner.policy.rounds > 325
    switched = next(one for one in log_of(hub, "shop") if isinstance(one, Changed))
    assert switched.settings["policy"] == "oful"
    assert hub._store.snapshot(1) is not None, "the switch comes with a snapshot, so that a start need not learn again"
    hub.stop()
    refold(tmp_path)


@pytest.mark.no_cover
def test_the_process_learns_what_this_one_would(tmp_path: Path) -> None:
    hub = Hub(store(tmp_path))
    working(hub, lambda: hub.create("shop", SETTINGS, 7), *traffic(hub, 0, 200))
    settings = BanditSettings(dim=3, noise_range=0.5, policy="multi-level-weighted-oful")

    async def pages() -> Any:
        yield hub._store.page(1, 0)[:250]
        yield hub._store.page(1, 250)

    found = asyncio.run(classroom.Classroom(partial(Student, settings, 7)).teach(pages()))
    here = Student(settings, 7)
    for event in log_of(hub, "shop"):
        here.apply(event)
    assert found.state() == here.state() and found.place == 397
    hub.stop()


@pytest.mark.no_cover
def test_nobody_waits_for_a_policy_that_learns(tmp_path: Path) -> None:
    """The loop of a service goes round without a step of more than 50 ms, in processor time."""
    hub = Hub(store(tmp_path))
    steps: list[float] = []

    async def watched() -> None:
        task = asyncio.create_task(hub.change("shop", Change(version=1, policy="weighted-oful")))
        while not task.done():
            begin = time.process_time()
            await asyncio.sleep(0)
            steps.append(time.process_time() - begin)
            await asyncio.sleep(0.001)
        await task

    working(hub, lambda: hub.create("shop", SETTINGS, 7), *traffic(hub, 0, 1500), watched)
    assert len(steps) > 100 and max(steps) < 0.05
    hub.stop()


def test_a_log_is_evaluated_as_far_as_the_bandit_explored(tmp_path: Path) -> None:
    """As NDJSON and as Parquet; decisions of the time without exploration are counted and left out."""
    hub = Hub(store(tmp_path))

    async def parquet() -> None:
        found = await as_parquet("shop", lambda: hub.log("shop"), never)
        assert found is not None
        found.seek(0)
        (tmp_path / "log.parquet").write_bytes(found.read())
        found.close()

    async def never() -> bool:
        return False

    working(
        hub,
        lambda: hub.create("shop", SETTINGS, 7),
        *traffic(hub, 0, 40),
        lambda: hub.change("shop", Change(version=1, exploration=0.3)),
        *traffic(hub, 40, 60),
        lambda: hub.change("shop", Change(version=2, exploration=0.0)),
        lambda: hub.change("shop", Change(version=3, shadow=ShadowChange(name="watcher", policy="oful"))),
        *traffic(hub, 100, 20),  # which say what was on offer, for the policy that watches
        parquet,
    )
    lines = hub._store.page(1, 0)
    (tmp_path / "log.ndjson").write_bytes(b"\n".join(map(as_line, lines)) + b"\n")
    plain, packed = (read(tmp_path / name) for name in ("log.ndjson", "log.parquet"))
    for log in (plain, packed):
        assert (len(log), log.left_out, log.outcomes) == (60, 60, {"rewarded": 57, "pending": 3})
        found = evaluate(log, ["uniform"], train=0.4)
        assert any("60 more decisions don't say what was on offer" in note for note in found.notes)
    assert np.array_equal(plain.reward, packed.reward, equal_nan=True)
    hub.stop()
