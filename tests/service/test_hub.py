"""The hub: windows, ids that come again, monitors, snapshots, and a store that fails."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from served import check_fold, log_of, menu, offer, working

from robandit.cli import main
from robandit.monitor.certificate import Certificate
from robandit.monitor.monitor import CorruptionMonitor
from robandit.policies import POLICIES
from robandit.service.files.check import check_bandits
from robandit.service.hub import Hub
from robandit.service.learning.looker import Looker, look
from robandit.service.refused import Refused
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Snapshot, StoreError, append
from robandit.wire.events import Closed, Decided, Proved, Rewarded
from robandit.wire.types import Action, BanditSettings, Choice, Feedback


@pytest.mark.parametrize("default", [0.0, None])
def test_windows_close(tmp_path: Path, default: float | None) -> None:
    """Windows go by real time. A default counts once; late rewards are refused."""
    now = [1000.0]
    hub = Hub(SQLiteStore(tmp_path / "log.db", clock=lambda: now[0]), ticks=lambda: now[0])
    settings = BanditSettings(dim=3, noise_range=0.5, reward_window=60.0, default_reward=default)

    async def later(seconds: float) -> None:
        now[0] += seconds

    found = working(
        hub,
        lambda: hub.create("shop", settings, 7),
        lambda: hub.decide("shop", offer("one")),
        lambda: later(5.0),
        lambda: hub.decide("shop", offer("two")),
        lambda: later(50.0),
        lambda: hub.reward("shop", [Feedback(decision_id="two", reward=0.2)]),
        lambda: later(10.0),
        hub.close_windows,
        lambda: hub.reward("shop", [Feedback(decision_id="one", reward=0.2)]),
    )
    assert [one.status for one in found[5]] == ["accepted"] and [one.status for one in found[8]] == ["expired"]
    log = list(log_of(hub, "shop"))
    assert [type(event) for event in log] == [Decided, Decided, Rewarded, Closed]
    assert [event.at for event in log] == sorted(event.at for event in log)
    learner = hub.bandits["shop"].learner
    assert (learner.rewards, learner.defaults, learner.lost) == (1, default is not None, default is None)
    assert learner.policy.updates == 1 + (default is not None)
    hub.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def test_ids_that_come_again(tmp_path: Path) -> None:
    """Ids come again within a batch, after the window, and in another bandit."""
    now = [1000.0]
    hub = Hub(SQLiteStore(tmp_path / "log.db", clock=lambda: now[0]), ticks=lambda: now[0])
    settings = BanditSettings(dim=3, noise_range=0.5, reward_window=60.0)

    def rewards(name: str, *values: float, bandit: str = "shop") -> Callable[[], Any]:
        return lambda: hub.reward(bandit, [Feedback(decision_id=name, reward=value) for value in values])

    async def later(seconds: float) -> None:
        now[0] += seconds

    found = working(
        hub,
        lambda: hub.create("shop", settings, 7),
        lambda: hub.create("Shop", settings, 7),
        lambda: hub.decide("shop", offer("one")),
        lambda: hub.decide("shop", offer("two")),
        rewards("one", 0.1, 0.1, 0.2),
        rewards("one", 0.1, bandit="Shop"),
        lambda: hub.decide("Shop", offer("one")),
        rewards("one", 0.2, bandit="Shop"),
        lambda: later(1e6),
        rewards("two", 0.1, 0.1),
        lambda: hub.decide("shop", offer("two")),  # a retry that comes late is one still
        lambda: later(-2e6),
        rewards("two", 0.1),
    )
    statuses = [[one.status for one in found[i]] for i in (4, 5, 7, 9, 12)]
    assert statuses == [["accepted", "duplicate", "conflict"], ["unknown"], ["accepted"], ["expired"] * 2, ["expired"]]
    assert found[10] == found[3] and found[6].round == 1
    hub.stop()
    logs = check_fold(SQLiteStore(tmp_path / "log.db"))
    assert [len(logs[name]) for name in ("shop", "Shop")] == [4, 2]


def test_the_monitor_reads_decisions_in_their_order(tmp_path: Path) -> None:
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    names = [f"d{i}" for i in range(6)]
    calls: list[Callable[[], Any]] = [lambda: hub.create("shop", BanditSettings(dim=3, noise_range=0.5), 7)]
    calls += [partial(hub.decide, "shop", offer(name)) for name in names]
    for name in ("d2", "d1", "d4", "d0"):
        calls.append(partial(hub.reward, "shop", [Feedback(decision_id=name, reward=0.1)]))
    working(hub, *calls)
    learner = hub.bandits["shop"].learner
    assert learner.monitor.rounds == 3  # d3 is still open
    expected = [event.features for event in log_of(hub, "shop") if isinstance(event, Decided)][:3]
    gram = learner.monitor.state()["arrays"]["past_gram"][0, 0]
    assert gram == pytest.approx(sum(np.outer(one, one) / 0.25 for one in expected))
    hub.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def test_one_missing_reward_keeps_the_monitor_waiting_for_an_hour(tmp_path: Path) -> None:
    """Not for a day, with the default settings. What is missing must not enter by its value, so the monitor waits."""
    now = [1e9]
    hub = Hub(SQLiteStore(tmp_path / "log.db", clock=lambda: now[0]), ticks=lambda: now[0])
    seen = []

    async def wait(seconds: float) -> None:
        now[0] += seconds
        await hub.close_windows()
        seen.append(hub.bandits["shop"].learner.monitor.rounds)

    names = [f"d{i}" for i in range(5)]
    calls: list[Callable[[], Any]] = [lambda: hub.create("shop", BanditSettings(dim=3, noise_range=0.5), 7)]
    calls += [partial(hub.decide, "shop", offer(name)) for name in names]
    calls += [partial(hub.reward, "shop", [Feedback(decision_id=name, reward=0.1)]) for name in names[1:]]
    working(hub, *calls, partial(wait, 3599.0), partial(wait, 1.0))
    assert seen == [0, 5]
    hub.stop()


@pytest.mark.no_cover
def test_a_proof_of_corruption_is_in_the_log(tmp_path: Path) -> None:
    """It is found on a copy, written down, and there after a restart. Looking changes nothing else."""
    hub, rng = Hub(SQLiteStore(tmp_path / "log.db")), np.random.default_rng(5)
    settings = BanditSettings(dim=3, noise_range=0.5, noise=0.05)
    calls: list[Callable[[], Any]] = [lambda: hub.create("shop", settings, 7)]
    answers: dict[str, Any] = {}

    async def visit(t: int) -> None:
        shown = Choice(actions=[Action(one["id"], one["features"]) for one in menu(rng)], decision_id=f"v{t}")
        answers[f"v{t}"] = await hub.decide("shop", shown)
        features = np.frombuffer(hub.bandits["shop"].learner.pending[f"v{t}"].features)
        mean = float(features @ [0.6, 0.3, 0.5]) + rng.normal(0.0, 0.05)
        await hub.reward("shop", [Feedback(decision_id=f"v{t}", reward=-mean if 150 <= t < 200 else mean)])

    calls += [partial(visit, t) for t in range(300)]
    before: list[str] = []

    async def remember() -> None:
        before.append(hub.bandits["shop"].learner.monitor.state()["arrays"]["by_time"].tobytes().hex())

    working(hub, *calls, remember, hub.look, remember)
    assert before[0] == before[1]
    found = hub.status("shop").certificate
    assert found.lower_bound > 1.0 and found.alarm == 300 and "were altered by" in found.sentence
    assert 'robandit_corruption_proved{bandit="shop"}' in "\n".join(hub.metrics(hub.bandits))
    hub.stop()
    log = check_fold(SQLiteStore(tmp_path / "log.db"))["shop"]
    assert isinstance(log[-1], Proved) and log[-1].lower_bound == found.lower_bound

    def see_more(state: dict[str, Any]) -> Certificate | None:  # as another machine or version might
        seen = look(state)
        return seen and replace(seen, lower_bound=99.0)

    again = Hub(SQLiteStore(tmp_path / "log.db"), look=see_more)
    assert again.status("shop").certificate == found
    working(again, again.look)
    assert again.status("shop").certificate.lower_bound == 99.0 and again.broken is None
    again.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


@pytest.mark.parametrize("body", [b"", b"nonsense", msgspec.msgpack.encode({"place": 3})])
def test_a_snapshot_of_no_use_is_done_without(body: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A snapshot may be of another version; the log is the truth."""
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    calls = [partial(hub.decide, "shop", offer(f"d{i}")) for i in range(5)]
    working(hub, lambda: hub.create("shop", BanditSettings(dim=3, noise_range=0.5), 7), *calls)
    digest = hub.bandits["shop"].learner.digest()
    append(hub._store, [], [Snapshot(1, 5, body)])
    hub._store.close()
    again = Hub(SQLiteStore(tmp_path / "log.db"))
    assert again.bandits["shop"].learner.digest() == digest and "of no use" in caplog.text
    again.stop()
    check_fold(SQLiteStore(tmp_path / "log.db"))


def test_looks_in_another_process(caplog: pytest.LogCaptureFixture) -> None:
    """Looks there see the same. If the process dies, one look is missed."""
    monitor, rng = CorruptionMonitor(dim=2, noise=0.05), np.random.default_rng(1)
    for t in range(200):
        shown = rng.uniform(-0.7, 0.7, 2)
        monitor.observe(shown, float(shown @ [0.6, 0.3]) * (-1 if t < 50 else 1))
    looker = Looker()
    found = looker(monitor.state())
    assert found == look(monitor.state()) and found is not None and found.lower_bound > 1.0
    looker.process.kill()
    looker.process.join()
    assert looker(monitor.state()) is None and "died" in caplog.text
    assert looker(monitor.state()) == found
    looker.stop()
    looker.process.join(20)
    assert looker.process.exitcode == 0


def test_two_who_look_at_once_get_their_own_answers() -> None:
    """A hub that was thrown away may still wait when the next one asks: a proof must not be of another bandit."""
    honest, cheated, rng = (
        CorruptionMonitor(dim=2, noise=0.05),
        CorruptionMonitor(dim=2, noise=0.05),
        np.random.default_rng(1),
    )
    for t in range(200):
        shown = rng.uniform(-0.7, 0.7, 2)
        for monitor, sign in ((honest, 1), (cheated, -1 if t < 50 else 1)):
            monitor.observe(shown, float(shown @ [0.6, 0.3]) * sign)
    looker, wanted = Looker(), [look(monitor.state()) for monitor in (honest, cheated)]
    looker(honest.state())
    with ThreadPoolExecutor(2) as pool:
        asked = [pool.submit(looker, (honest, cheated)[i % 2].state()) for i in range(12)]
        assert [one.result(60) for one in asked] == wanted * 6  # that process is nice, and waits for other tests
    looker.stop()


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.no_cover
def test_every_policy_can_serve(policy: str, tmp_path: Path) -> None:
    """The state of every policy is the fold of its log, from the middle as from the beginning."""
    more: dict[str, Any] = {"corruption": 2.0} if policy in ("robust-weighted-oful", "robust-lin-ts") else {}
    settings = BanditSettings(dim=2, policy=policy, noise_range=0.5, horizon=200, **more)
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    calls: list[Callable[[], Any]] = [lambda: hub.create("shop", settings, 7)]
    for i in range(12):
        calls.append(partial(hub.decide, "shop", offer(f"d{i}", 2)))
        if i % 3:
            calls.append(partial(hub.reward, "shop", [Feedback(decision_id=f"d{i}", reward=0.1 * i)]))
    found = working(hub, *calls)
    assert not [one for one in found if isinstance(one, Exception)]
    append(hub._store, [], [Snapshot(1, 0, b"")])  # which a crash may have left behind; the next replaces it
    hub.stop()
    log = check_fold(SQLiteStore(tmp_path / "log.db"))["shop"]
    assert len(log) == 20


def test_a_bandit_whose_policy_is_gone_keeps_no_other_from_being_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As of a store that an older version wrote, which had a policy that this one has not."""
    path, settings = tmp_path / "log.db", BanditSettings(dim=3, noise_range=0.5, policy="oful")
    monkeypatch.setitem(POLICIES, "sceptic", POLICIES["oful"])
    hub = Hub(SQLiteStore(path))
    calls = [lambda: hub.create("shop", settings, 7)]
    calls += [lambda: hub.create("old", msgspec.structs.replace(settings, policy="sceptic"), 7)]
    working(hub, *calls, *(partial(hub.decide, name, offer("one")) for name in ("old", "shop")))
    hub.stop()
    monkeypatch.delitem(POLICIES, "sceptic")
    hub = Hub(SQLiteStore(path))
    sentence = "bandit 'old' is not served: this version of robandit has no policy 'sceptic'"
    assert sentence in caplog.text and list(hub.bandits) == ["shop"]
    reward = [Feedback(decision_id="one", reward=0.1)]
    *refused, new, _, _, _ = working(
        hub,
        lambda: hub.decide("old", offer("two")),
        lambda: hub.reward("old", reward),
        lambda: hub.create("old", settings, 7),
        lambda: hub.create("new", settings, 7),
        lambda: hub.reward("shop", reward),
        *(partial(hub.decide, name, offer("two")) for name in ("new", "shop")),
    )
    assert [(one.status, sentence in str(one)) for one in refused] == [(409, True)] * 3 and new is True
    with pytest.raises(Refused, match="create a bandit of another name"):
        hub.status("old")
    hub.stop()
    found = list(check_bandits(SQLiteStore(path)))
    assert [(one.name, one.events, one.faults) for one in found] == [("shop", 3, []), ("old", 1, []), ("new", 1, [])]


def test_a_file_has_no_old_states(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One process alone serves it, always on the newest state."""
    with closing(SQLiteStore(tmp_path / "log.db")) as store, pytest.raises(StoreError, match="need a PostgreSQL"):
        Hub(store, staleness=0.1)
    for given in ("49", "60001", "nan"):
        assert main(["serve", "--store", str(tmp_path / "log.db"), "--staleness", given]) == 2
        assert f"must lie between 50 and 60000 ms, got {given}" in capsys.readouterr().err


def test_a_full_disk_stops_it(tmp_path: Path) -> None:
    """What can't be written is not acknowledged, nor is anything after it. What was acknowledged is there."""
    store = SQLiteStore(tmp_path / "log.db")
    store._db.pragma("max_page_count", 40)
    hub = Hub(store)
    calls = [partial(hub.decide, "shop", offer(f"d{i}")) for i in range(2000)]
    found = working(hub, lambda: hub.create("shop", BanditSettings(dim=3, noise_range=0.5), 7), *calls)[1:]
    refused = [one for one in found if isinstance(one, Refused)]
    assert refused and all(one.status == 503 for one in refused) and hub.broken is not None
    answered = [one for one in found if not isinstance(one, Refused)]
    assert found == answered + refused
    hub.stop()
    log = check_fold(SQLiteStore(tmp_path / "log.db"))["shop"]
    assert [event.id for event in log] == [one.decision_id for one in answered]


def test_nobody_waits_for_a_service_that_can_not_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits who asks while the service finds that out, either."""
    hub = Hub(SQLiteStore(tmp_path / "log.db"))

    def fail() -> None:
        time.sleep(0.3)
        raise StoreError("the disk is gone")

    async def two_ask() -> Sequence[Any]:
        work = asyncio.create_task(hub.work())
        await hub.create("shop", BanditSettings(dim=3, noise_range=0.5), 7)
        monkeypatch.setattr(hub._store, "commit", fail)
        first = asyncio.create_task(hub.decide("shop", offer("first")))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(hub.decide("shop", offer("second")))
        found = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), 10.0)
        await work
        return found

    found = asyncio.run(two_ask())
    assert [one.status for one in found] == [503, 503] and hub.broken == "the disk is gone"
    hub._store.close()
