"""Alarms that are acknowledged, and what operators are told: all of it is the fold of the log."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from served import Server, check_fold, working
from test_belief import LIE, SETTINGS, folded, visits
from test_life import choice, refold, store, traffic

from robandit.monitor.certificate import Certificate
from robandit.policies import Quorum
from robandit.service.hub import Hub
from robandit.service.learning import notices
from robandit.service.learning.learner import Learner
from robandit.service.learning.notices import Notice, assumes
from robandit.service.refused import Refused
from robandit.service.web.keys import new_key
from robandit.wire.alarms import Acknowledgement
from robandit.wire.changes import Change, Ruling
from robandit.wire.events import Acknowledged, Decided, Delivered, Event, Proved
from robandit.wire.types import BanditSettings, RewardRange

SHOP = BanditSettings(dim=3, noise_range=0.5)


def proof(bound: float, blamed: str | None = None) -> Certificate:
    return Certificate(
        lower_bound=bound,
        delta=0.05,
        rounds=40,
        altered=1,
        alarm=40,
        since=7,
        groups=(),
        sources=(),
        suspect=blamed,
    )


def prove(hub: Hub, bound: float, blamed: str | None = None) -> Callable[[], Any]:
    """Let the monitor prove so much."""

    async def prove() -> None:
        bandit = hub.bandits["shop"]
        await hub._lanes.of(bandit).ask(partial(hub._changes.prove, bandit, proof(bound, blamed)))

    return prove


def acknowledge(hub: Hub, bound: float, **more: Any) -> Callable[[], Any]:
    return lambda: hub.acknowledge("shop", Acknowledgement(lower_bound=bound, **more), "ops")


def kinds(hub: Hub) -> list[str]:
    return [one.kind for one in hub.bandits["shop"].learner.board.kept]


def test_an_alarm_is_acknowledged_and_goes_up_again(tmp_path: Path) -> None:
    """Once; if more is proved, it goes up again, and that is news."""
    hub, seen = Hub(store(tmp_path)), list[Any]()

    async def look() -> None:
        seen.extend([hub.status("shop").certificate, kinds(hub)])

    found = working(
        hub,
        lambda: hub.create("shop", SHOP, 7),
        *traffic(hub, 0, 5),
        acknowledge(hub, 1.0),
        prove(hub, 5.25, blamed=LIE),
        prove(hub, 6.5),
        acknowledge(hub, 5.25),
        acknowledge(hub, 6.5, by="Ada", note=LIE),
        acknowledge(hub, 6.5, by="Bob", note="late"),
        acknowledge(hub, 5.25),
        look,
        prove(hub, 6.5),
        prove(hub, 7.0),
    )
    no, _, _, old, made, again, older = found[-10:-3]
    assert isinstance(no, Refused) and no.status == 409 and "no alarm" in str(no)
    assert isinstance(old, Refused) and old.status == 409 and "proved now is 6.5, not 5.25" in str(old)
    assert (made.lower_bound, made.key, made.by, made.note) == (6.5, "ops", "Ada", LIE)
    assert made == again == older  # a retry, or somebody who was slower
    status, told = seen
    assert not status.up and status.lower_bound == 6.5 and status.acknowledged == made
    assert told == ["corruption.proved"]  # the second proof came while the alarm was up
    assert hub.status("shop").certificate.up and kinds(hub) == ["corruption.proved"] * 2
    first, second = hub.bandits["shop"].learner.board.kept
    assert (first.number, second.number) == (1, 2) and first.data["blamed"] == LIE and second.data["blamed"] is None
    assert first.data["lower_bound"] == 5.25 and first.data["assumes"] == assumes(SHOP) and first.data["rounds"] == 40
    hub.stop()
    log = refold(tmp_path)["shop"]
    assert [type(one) for one in log if isinstance(one, Proved | Acknowledged)] == [
        Proved,
        Proved,
        Acknowledged,
        Proved,
    ]
    again_hub = Hub(store(tmp_path))
    assert again_hub.status("shop").certificate.acknowledged == made and again_hub.status("shop").certificate.up
    again_hub.stop()


def test_an_archived_bandit_can_be_acknowledged_and_a_deleted_one_not(tmp_path: Path) -> None:
    hub = Hub(store(tmp_path))
    found = working(
        hub,
        lambda: hub.create("shop", SHOP, 7),
        prove(hub, 2.0),
        lambda: hub.change("shop", Change(version=1, archived=True)),
        acknowledge(hub, 2.0),
        lambda: hub.delete("shop", 2),
        acknowledge(hub, 2.0),
    )
    assert found[3].key == "ops" and isinstance(found[5], Refused) and found[5].status == 404
    hub.stop()


def test_what_a_proof_assumes() -> None:
    said = assumes(BanditSettings(dim=2, rewards=RewardRange(low=-1.0, high=3.0), intercept=True))
    assert said == "the mean reward is linear in the features and rewards lie from -1 to 3"
    said = assumes(BanditSettings(dim=2, noise_range=0.5))
    assert said == "the mean reward is linear in the features, without a constant, and noise has sub-Gaussian scale 0.5"


# ------------------------------------------------------------------------------------ sources


@pytest.fixture(scope="module")
def log() -> list[Event]:
    """A log in which the partner is doubted."""
    return visits(700, ["mail", "search", LIE, "app"], liar=LIE)


def transitions(log: list[Event]) -> list[tuple[str, str | None]]:
    """The slow way: who is doubted after each event."""
    learner, before, found = Learner(SETTINGS, 1), dict[Any, Any](), list[tuple[str, str | None]]()
    for event in log:
        learner.apply(event)
        assert isinstance(learner.policy, Quorum)
        if not isinstance(event, Decided):
            now = {one.source: one.since for one in learner.policy.standings()}
            for name, since in now.items():
                if (since is None) != (before.get(name) is None):
                    found.append(("source.believed" if since is None else "source.doubted", name))
            before = now
    return found


@pytest.mark.no_cover
def test_sources_that_are_doubted_and_believed_again_are_news(log: list[Event]) -> None:
    """Each time, and no other time; from a snapshot in the middle, too."""
    learner = folded(log)
    told = [(one.kind, one.data["source"]) for one in learner.board.kept]
    assert told == transitions(log) and ("source.doubted", LIE) in told
    for place in (100, 600, 1000):
        half = Learner.restore(SETTINGS, 1, folded(log[:place]).snapshot())
        for event in log[place:]:
            half.apply(event)
        assert half.digest() == learner.digest() and list(half.board.kept) == list(learner.board.kept)


def test_what_operators_say_of_a_source_is_news(tmp_path: Path) -> None:
    hub = Hub(store(tmp_path))

    def ruling(version: int, said: str) -> Callable[[], Any]:
        return lambda: hub.change("shop", Change(version=version, ruling=Ruling(source="web", ruling=said)))

    working(
        hub,
        lambda: hub.create("shop", SHOP, 7),
        *traffic(hub, 0, 60),
        ruling(1, "quarantined"),
        ruling(2, "released"),
        ruling(3, "quarantined"),
        lambda: hub.change("shop", Change(version=4, policy="oful")),
        lambda: hub.change("shop", Change(version=5, policy="quorum")),
    )
    board = hub.bandits["shop"].learner.board
    web = [(one.kind, one.data["ruling"]) for one in board.kept if one.data["source"] == "web"]
    assert web[0] == ("source.doubted", "quarantined") and web[1][0] == "source.believed"
    assert web[2] == ("source.doubted", "quarantined") and len(web) in (3, 4)
    hub.stop()
    refold(tmp_path)


def test_notices_are_kept_until_they_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To each webhook once, the last hundred, after a restart as well."""
    monkeypatch.setattr(notices, "MOST", 3)
    hub = Hub(store(tmp_path))
    calls, seen = list[Callable[[], Any]](), list[Any]()
    for bound in (1.0, 2.0, 3.0, 4.0, 5.0):
        calls += [prove(hub, bound), acknowledge(hub, bound)]

    async def look() -> None:
        seen.extend(one.number for one in hub.bandits["shop"].learner.board.open("pager"))

    def tell(hook: str, notice: int) -> Callable[[], Any]:
        async def tell() -> None:
            bandit = hub.bandits["shop"]
            await hub._lanes.of(bandit).ask(partial(hub._alarms.tell, bandit, hook, notice, True))

        return tell

    told_now = tell("pager", 4), tell("pager", 4), tell("chat", 3), tell("pager", 1), tell("pager", 9)
    working(hub, lambda: hub.create("shop", SHOP, 7), lambda: hub.decide("shop", choice(0)), *calls, look, *told_now)
    board = hub.bandits["shop"].learner.board
    assert board.count == 5 and seen == [3, 4, 5]
    assert [one.number for one in board.open("pager")] == [3, 5] and [one.number for one in board.open("chat")] == [
        4,
        5,
    ]
    hub.stop()
    told = [one for one in check_fold(store(tmp_path))["shop"] if isinstance(one, Delivered)]
    assert [(one.hook, one.notice) for one in told] == [("pager", 4), ("chat", 3)]


def test_a_board_forgets_what_is_too_old() -> None:
    board = notices.NoticeBoard()
    for number in range(1, 251):
        board._add(float(number), "source.doubted", {})
        board.hear(Delivered(id=f"pager:{number}", at=0.0, hook="pager", notice=number, taken=True))
    assert len(board.kept) == notices.MOST and board.told["pager"] == list(range(151, 251))
    again = notices.NoticeBoard()
    again.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(board.plain())), None)
    assert list(again.kept) == list(board.kept) and isinstance(again.kept[0], Notice) and again.open("pager") == []


# ------------------------------------------------------------------------------------ over HTTP


def test_only_an_admin_acknowledges(tmp_path: Path) -> None:
    names = ("decide", "reward", "read", "admin")
    secrets, entries = zip(*(new_key(f"my-{role}", role) for role in names), strict=True)
    (tmp_path / "keys.json").write_text(json.dumps(entries), encoding="utf-8")
    first = Hub(store(tmp_path))
    working(first, lambda: first.create("shop", SHOP, 7), prove(first, 2.5))
    first.stop()
    server = Server(tmp_path / "log.db", "--keys", str(tmp_path / "keys.json"))
    try:
        path, body = "/v1/bandits/shop/acknowledgements", {"lower_bound": 2.5, "note": LIE}
        assert [server.ask("POST", path, body, key)[0] for key in secrets] == [403, 403, 403, 200]
        assert server.ask("POST", path, body)[0] == 401
        shown = server.ask("GET", "/v1/bandits/shop", key=secrets[2])[1]["certificate"]
        assert shown["acknowledged"]["key"] == "my-admin" and not shown["up"] and shown["acknowledged"]["note"] == LIE
        bad: tuple[dict[str, Any], ...] = (
            {"lower_bound": 0},
            {"lower_bound": 2.5, "note": "x" * 1001},
            {"lower_bound": 2.5, "key": "me"},
            {},
        )
        assert [server.ask("POST", path, one, secrets[3])[0] for one in bad] == [422] * 4
        metrics = server.ask("GET", "/metrics", key=secrets[2])[1]
        assert 'robandit_alarm_up{bandit="shop"} 0\n' in metrics
        assert 'robandit_corruption_proved{bandit="shop"} 2.5\n' in metrics
    finally:
        server.kill()
