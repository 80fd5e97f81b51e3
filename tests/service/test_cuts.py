"""Logs that are cut: what is kept goes on bit for bit, what is open stays, and what is gone is gone."""

from __future__ import annotations

import asyncio
import gzip
import importlib.util
import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from served import check_fold, log_of
from test_life import SETTINGS, choice

from robandit.cli import main
from robandit.logs.evaluate.records import read
from robandit.service.files.check import check_bandits
from robandit.service.files.export import as_parquet
from robandit.service.hub import Hub
from robandit.service.learning.learner import Learner
from robandit.service.refused import Refused
from robandit.service.serving import leftovers
from robandit.service.stores import sqlite_copy
from robandit.service.stores.sqlite import SQLiteStore, read_only
from robandit.service.stores.store import DamageError
from robandit.wire.changes import Change, ChangeMade, Ruling, ShadowChange
from robandit.wire.cuts import CutMade, CutWaits
from robandit.wire.events import Changed, Cut, Decided, Imported, Rewarded, as_line
from robandit.wire.imports import HistoryRow
from robandit.wire.types import BanditSettings, Feedback
from thinned import longer

DAY = 86_400.0
BEFORE = Path(__file__).parent / "stores_before"


class Shop:
    """A hub with a clock of its own. A day passes with every visit."""

    def __init__(self, path: Path, settings: BanditSettings = SETTINGS) -> None:
        path.mkdir(exist_ok=True)
        self.path, self.now, self.visits = path, [1000.0], 0
        self.loop = asyncio.new_event_loop()
        self._open()
        self.do(lambda: self.hub.create("shop", settings, 7))

    def _open(self) -> None:
        store = SQLiteStore(self.path / "log.db", synchronous="OFF", clock=lambda: self.now[0])
        self.hub = Hub(store, ticks=lambda: self.now[0])
        self.work = self.loop.create_task(self.hub.work())

    def do(self, *calls: Callable[[], Any]) -> list[Any]:
        """The results of these calls, made one after the other."""

        async def all_() -> list[Any]:
            found = []
            for call in calls:
                try:
                    found.append(await call())
                except Refused as error:
                    found.append(error)
            return found

        return self.loop.run_until_complete(all_())

    def stop(self) -> None:
        self.work.cancel()
        self.loop.run_until_complete(asyncio.gather(self.work, return_exceptions=True))
        self.hub.stop()

    def visit(self, count: int, late: int = 3) -> None:
        """Decisions, one a day, whose rewards come some days later."""
        calls: list[Callable[[], Any]] = []
        for number in range(self.visits, self.visits + count):
            calls += [self._tomorrow, partial(self.decide, number)]
            if number >= late:
                reward = round(float(np.random.default_rng(number).normal(0.0, 0.3)), 3)
                calls.append(partial(self.reward, number - late, reward))
        self.visits += count
        assert not [one for one in self.do(*calls) if isinstance(one, Refused)]

    async def _tomorrow(self) -> None:
        self.now[0] += DAY

    def decide(self, number: int) -> Any:
        return self.hub.decide("shop", choice(number))

    def reward(self, number: int, reward: float = 0.1) -> Any:
        return self.hub.reward("shop", [Feedback(decision_id=f"d{number}", reward=reward)])

    def cut(self, keep_days: float) -> CutMade:
        found: Any = None
        while found is None or isinstance(found, CutWaits):
            (found,) = self.do(lambda: self.hub.cut("shop", keep_days))
        assert isinstance(found, CutMade), found
        return found

    def change(self, **asked: Any) -> ChangeMade:
        version = self.hub.bandits["shop"].learner.life.version
        (found,) = self.do(lambda: self.hub.change("shop", Change(version=version, **asked)))
        assert isinstance(found, ChangeMade), found
        return found

    def restart(self) -> None:
        digest = self.learner.digest()
        self.stop()
        self._open()
        assert self.learner.digest() == digest

    @property
    def learner(self) -> Learner:
        return self.hub.bandits["shop"].learner

    def log(self) -> list[Any]:
        return list(log_of(self.hub, "shop"))

    def rows(self) -> list[tuple[int, int, str]]:
        return self.hub._store._rows("SELECT place, kind, id FROM events ORDER BY place")  # type: ignore[attr-defined]

    def end(self) -> None:
        """Refold all that is left, without snapshots, and check the file."""
        self.stop()
        self.loop.close()
        db = SQLiteStore(self.path / "log.db", synchronous="OFF")
        assert [one.faults for one in check_bandits(db)] == [[]]
        db._db.execute("DELETE FROM snapshots")
        check_fold(db)


SLOW = msgspec.structs.replace(SETTINGS, reward_window=1e9)
EXPLORES = msgspec.structs.replace(SLOW, exploration=0.2)


def bare(learner: Learner) -> Any:
    """A state, but for how many events its log has had and where it was cut."""
    plain = msgspec.msgpack.decode(learner.snapshot())
    _, life = plain.pop("life", [None, [1, [], False, 0, 0]])
    return plain | {"place": 0, "clock": 0.0, "life": [life[0], life[2:5]], "shadows": plain.get("shadows", [])}


@pytest.mark.parametrize("policy", longer("quorum", "multi-level-weighted-oful", "lin-ts", "exp3p"))
@pytest.mark.filterwarnings("ignore::robandit.GuaranteeLapsed")
@pytest.mark.no_cover
def test_all_goes_on_bit_for_bit(tmp_path: Path, policy: str) -> None:
    """Beside a twin whose log is never cut, with operators at work before and after the cuts."""
    settings = msgspec.structs.replace(SLOW, policy=policy, horizon=100)
    shops = [Shop(tmp_path / name, settings) for name in ("cut", "whole")]
    other = "oful" if policy != "oful" else "cw-oful"
    row = HistoryRow(id="h1", features=[0.1, 0.2, 0.3], reward=0.2)
    for step in range(6):
        for shop in shops:
            shop.visit(20)
            if step == 1:
                shop.do(lambda shop=shop: shop.hub.learn_history("shop", [row]))  # type: ignore[misc]
                shop.change(shadow=ShadowChange(name="plain", policy="greedy"))
                shop.change(exploration=0.2)
                shop.change(policy=other)
        if step in (1, 3, 4):
            shops[0].cut(10)  # the first time before these changes: what they learn of goes
        shops[0].restart()
        assert bare(shops[0].learner) == bare(shops[1].learner)
    found = shops[0].cut(5)
    assert found.events > 200 and found.kept_open == 3 and found == shops[0].hub.status("shop").cut
    for shop in shops:
        shop.visit(10)
        shop.end()
    assert bare(shops[0].learner) == bare(shops[1].learner)


def test_what_is_open_stays_and_what_is_final_goes(tmp_path: Path) -> None:
    shop = Shop(tmp_path, EXPLORES)
    shop.visit(30)
    first, _ = shop.do(partial(shop.decide, 0), partial(shop.decide, 26))
    last = shop.rows()[-1][0]
    shop.now[0] += 1.0
    found = shop.cut(0)
    assert found == CutMade(events=last, decisions=30, kept_open=3, before=shop.now[0] - 1.0, at=shop.now[0])
    shop.do(shop.hub.purge)
    assert [row[1:] for row in shop.rows()] == [(0, "d27"), (0, "d28"), (0, "d29"), (6, str(last))]
    answers = shop.do(
        partial(shop.decide, 27),
        partial(shop.reward, 27),
        partial(shop.reward, 27),
        partial(shop.reward, 0),
        partial(shop.decide, 0),
        partial(shop.reward, 0),
    )
    assert answers[0].round == 28, "a decision that is open is repeated"
    statuses = [one[0].status for one in (answers[1], answers[2], answers[3], answers[5])]
    assert statuses == ["accepted", "duplicate", "unknown", "accepted"]
    assert answers[4].round == 31 and first.round == 1, "an id that has gone is a new one"
    log: list[Any] = []

    async def whole() -> None:
        async for page in shop.hub.log("shop"):
            log.extend(page)

    shop.do(whole)
    tags = [msgspec.json.decode(as_line(line))["type"] for line in log]
    assert tags == ["D", "D", "D", "K", "R", "D", "R"]
    shop.restart()
    shop.end()
    assert [bytes(line) for line in read_only(tmp_path / "log.db", "shop")] == log
    decided = read(tmp_path / "log.db")
    assert decided.outcomes == {"rewarded": 2, "pending": 2}


def test_nothing_that_old(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    assert shop.cut(0) == CutMade() and shop.log() == []
    shop.visit(5)
    assert shop.cut(30) == CutMade() and shop.cut(30) == CutMade()
    first = shop.cut(2)
    assert first.events > 0 and shop.cut(2) == first and shop.cut(30) == first
    assert shop.hub.status("shop").cut == first
    assert sum(isinstance(one, Cut) for one in shop.log()) == 1
    shop.end()


@pytest.mark.no_cover
def test_a_new_policy_learns_what_is_left_and_says_so(tmp_path: Path) -> None:
    """An oracle without this code: a ridge regression on the rewards of decisions that are left."""
    shop = Shop(tmp_path, msgspec.structs.replace(SLOW, policy="lin-ts"))
    shop.visit(40)
    found = shop.cut(20)
    made = shop.change(policy="oful", radius_scale=0.5)
    assert made.learnt_after == found.events > 0
    assert shop.do(lambda: shop.hub.change("shop", Change(version=1, policy="oful", radius_scale=0.5))) == [made]
    shop.visit(10)
    log = shop.log()
    opened = [shop.hub.bandits.find(shop.hub.bandits["shop"], name, final=False) for name in _ids(40)]
    features = {one.id: np.array(one.features) for one in [*opened, *log] if isinstance(one, Decided)}
    told = [(features[one.id], one.reward) for one in log if isinstance(one, Rewarded)]
    gram = np.eye(3) + sum(np.outer(a, a) for a, _ in told)
    np.testing.assert_allclose(
        shop.hub.status("shop").estimate, np.linalg.solve(gram, sum(a * r for a, r in told)), rtol=1e-9
    )
    assert shop.learner.policy.rounds == 50
    shop.restart()
    again = shop.cut(5)  # after the change
    assert again.events > found.events
    shop.restart()
    shop.end()


def _ids(count: int) -> list[str]:
    return [f"d{number}" for number in range(count)]


@pytest.mark.no_cover
def test_a_ruling_outlives_the_cut(tmp_path: Path) -> None:
    shop = Shop(tmp_path, SLOW)
    shop.visit(20)
    shop.change(ruling=Ruling(source="mail", ruling="quarantined"))
    shop.visit(20)
    shop.cut(2)
    shop.change(policy="oful")
    shop.change(policy="quorum")
    shop.visit(10)
    belief = shop.hub.status("shop").belief
    assert belief is not None and {one.source: one.ruling for one in belief.sources}["mail"] == "quarantined"
    shop.end()


def test_retention(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Off by default; from then on nothing is older for long, and what is younger stays."""
    monkeypatch.setattr(leftovers, "PURGE", 7)
    shop = Shop(tmp_path, SLOW)
    for _ in range(5):
        shop.visit(10)
        shop.do(shop.hub.retain, shop.hub.purge)
    assert shop.learner.life.cut is None and shop.log()[0].at == 1000.0 + DAY
    assert shop.change(retention_days=20).settings == {"retention_days": 20.0}
    ages = []
    for _ in range(40):
        shop.visit(1)
        shop.do(shop.hub.retain, shop.hub.purge)
        ages.append((shop.now[0] - shop.log()[0].at) / DAY)
    assert max(ages) <= 20.0 and min(ages) >= 18.0
    assert len(shop.rows()) <= 3 * 20 + 8  # decisions, rewards and cuts
    assert sum(isinstance(one, Cut) for one in shop.log()) > 5
    shop.change(retention_days=None)
    shop.visit(10)
    shop.do(shop.hub.retain, shop.hub.purge)
    assert (shop.now[0] - shop.log()[0].at) / DAY > 21.0
    shop.change(archived=True, retention_days=1)
    shop.now[0] += 100 * DAY
    shop.do(shop.hub.retain, shop.hub.purge)
    shop.now[0] += 100 * DAY
    before = shop.learner.place
    shop.do(shop.hub.retain, shop.hub.retain)
    assert shop.learner.place == before, "that a log was cut is no event that goes for its own sake"
    shop.end()


@pytest.mark.no_cover
def test_the_file_shrinks(tmp_path: Path) -> None:
    """Where events go, whether their log was cut or their bandit deleted."""
    shop = Shop(tmp_path, SLOW)
    rows = [HistoryRow(id=f"h{number}" + "x" * 100, features=[0.1, 0.2, 0.3], reward=0.1) for number in range(4000)]
    shop.do(lambda: shop.hub.create("other", SETTINGS, 8))
    shop.do(*(partial(shop.hub.learn_history, name, rows) for name in ("shop", "other")))
    shop.now[0] += DAY

    def size() -> int:
        shop.hub._store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()  # type: ignore[attr-defined]
        return (tmp_path / "log.db").stat().st_size

    whole = size()
    shop.cut(0)
    shop.do(shop.hub.purge)
    half = size()
    shop.do(lambda: shop.hub.change("other", Change(version=1, archived=True)), lambda: shop.hub.delete("other", 2))
    shop.do(shop.hub.purge)
    assert whole > 2_000_000 and half < 0.6 * whole and size() < 0.1 * whole
    shop.end()


def test_an_older_file_shrinks_once_it_was_told_to(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "log.db"
    path.write_bytes(gzip.decompress((BEFORE / "store_3.db.gz").read_bytes()))
    db = SQLiteStore(path)
    assert db._db.pragma("auto_vacuum") == 0
    db.close()
    assert main(["shrink", str(path)]) == 0 and "bytes, and has" in capsys.readouterr().out
    db = SQLiteStore(path)
    assert db._db.pragma("auto_vacuum") == 2
    db.close()
    assert main(["shrink", str(tmp_path / "nothing.db")]) == 1


@pytest.mark.no_cover
def test_what_goes_holds_nobody_up_and_is_gone_after_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "PURGE", 10)
    shop = Shop(tmp_path, SLOW)
    shop.visit(100)
    shop.cut(10)

    async def some() -> None:
        task = asyncio.create_task(shop.hub.purge())
        for _ in range(8):
            await asyncio.sleep(0)
        task.cancel()

    shop.do(some)
    count = len(shop.rows())
    assert count > 40
    shop.restart()
    assert shop.hub.bandits.leftovers.next() == 1
    shop.do(shop.hub.purge)
    assert len(shop.rows()) < 40 and shop.hub.bandits.leftovers.next() is None
    shop.end()


def test_whoever_reads_meanwhile_is_told(tmp_path: Path) -> None:
    shop = Shop(tmp_path, EXPLORES)
    shop.visit(40)

    async def cut_while_read() -> Any:
        pages = shop.hub.log("shop")
        await shop.hub.cut("shop", 10)
        return [page async for page in pages]

    async def cut_between() -> Any:
        begins = shop.hub.begins("shop")
        await shop.hub.cut("shop", 5)
        return [page async for page in shop.hub.log("shop", begins)]

    for found in shop.do(cut_while_read, cut_between):
        assert isinstance(found, Refused) and found.status == 409 and "was cut while it was read" in str(found)

    async def parquet() -> None:
        async def never() -> bool:
            return False

        found = await as_parquet("shop", lambda: shop.hub.log("shop"), never)
        assert found is not None
        found.seek(0)
        (tmp_path / "log.parquet").write_bytes(found.read())
        found.close()

    shop.do(parquet)
    shop.end()
    assert read(tmp_path / "log.parquet").outcomes == read(tmp_path / "log.db").outcomes


@pytest.mark.no_cover
def test_a_policy_that_learns_meanwhile_begins_again(tmp_path: Path) -> None:
    shop = Shop(tmp_path, SLOW)
    shop.visit(700)

    async def both() -> Any:
        change = asyncio.create_task(shop.hub.change("shop", Change(version=1, policy="oful")))
        await asyncio.sleep(0.05)
        cut = await shop.hub.cut("shop", 300)
        made = await change
        while not isinstance(made, ChangeMade):
            made = await shop.hub.change("shop", Change(version=1, policy="oful"))
        return cut, made

    ((cut, made),) = shop.do(both)
    while not isinstance(cut, CutMade):
        (cut,) = shop.do(lambda: shop.hub.cut("shop", 300))
    assert cut.events > 0 and made.learnt_after in (0, cut.events)
    shop.restart()
    shop.end()


@pytest.mark.no_cover
def test_a_change_made_meanwhile_has_learnt_what_goes(tmp_path: Path) -> None:
    """The cut is planned before the change, and installed after it."""
    shop, twin = Shop(tmp_path / "a", SLOW), Shop(tmp_path / "b", SLOW)
    for one in (shop, twin):
        one.visit(40)
    twin.change(policy="oful")
    event = next(one for one in twin.log() if isinstance(one, Changed))

    async def cut() -> Any:
        asked = asyncio.create_task(shop.hub.cut("shop", 20))
        await asyncio.sleep(0)
        await shop.hub.change("shop", Change(version=1, policy="oful"))
        return await asked

    shop.do(cut)
    for one in (shop, twin):
        one.visit(10)
    assert event.settings["policy"] == "oful"
    learnt = next(one for one in shop.log() if isinstance(one, Changed)).learnt_after
    if learnt is msgspec.UNSET:
        assert bare(shop.learner) == bare(twin.learner)
    shop.end()
    twin.end()


def test_damage_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the state that is kept, where it is missing, and in a decision that was open."""
    path = tmp_path / "log.db"

    def broken(sql: str) -> str:
        shop = Shop(tmp_path, SLOW)
        shop.visit(20)
        shop.cut(5)
        shop.do(shop.hub.purge)
        shop.stop()
        shop.loop.close()
        db = SQLiteStore(path)
        db._db.execute(sql)
        db.close()
        assert main(["check", str(path)]) == 1
        said = capsys.readouterr().err
        try:
            Hub(SQLiteStore(path)).stop()
        except DamageError as error:
            said += f" and no start: {error}"
        for one in tmp_path.iterdir():
            one.unlink()
        return said

    said = broken("UPDATE beginnings SET body = CAST(substr(body, 1, 100) || x'00' || substr(body, 102) AS BLOB)")
    assert said.count("the state that the log of bandit 'shop' begins with is damaged") == 2
    said = broken("DELETE FROM beginnings")
    assert "event 1 of bandit 'shop' is damaged or missing" in said
    said = broken("DELETE FROM events WHERE kind = 0 AND place < (SELECT place FROM beginnings)")
    assert "was open when its log was cut, and is missing" in said


def test_imported_rows_go_too(tmp_path: Path) -> None:
    shop = Shop(tmp_path, SLOW)
    rows = [HistoryRow(id=f"h{number}", features=[0.1, 0.2, 0.3], reward=0.1) for number in range(10)]
    shop.do(lambda: shop.hub.learn_history("shop", rows))
    shop.now[0] += DAY
    assert shop.cut(0).decisions == 0
    (found,) = shop.do(lambda: shop.hub.learn_history("shop", rows[:1]))
    shop.do(shop.hub.purge)
    (after,) = shop.do(lambda: shop.hub.learn_history("shop", rows[1:2]))
    assert found.imported + found.duplicates == 1 and after.imported == 1, "a row that has gone is a new one"
    assert [type(one) for one in shop.log()][-1] is Imported
    shop.end()


def test_a_store_whose_logs_were_cut_folds_the_same(tmp_path: Path) -> None:
    """The state that is kept is all that there is of what has gone: this and every later release must read it."""
    told: dict[str, Any] = json.loads((BEFORE / "store_cut.json").read_text(encoding="utf-8"))
    spec = importlib.util.spec_from_file_location("make_cut", BEFORE / "make_cut.py")
    assert spec and spec.loader
    made_by = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made_by)
    path = tmp_path / "log.db"
    path.write_bytes(gzip.decompress((BEFORE / "store_cut.db.gz").read_bytes()))
    db = SQLiteStore(path)
    db._db.execute("DELETE FROM snapshots")
    db.close()
    assert main(["check", str(path)]) == 0
    hub = Hub(SQLiteStore(path, clock=lambda: told["now"]), ticks=lambda: 0.0)
    for name, said in told["bandits"].items():
        found = made_by.told(hub, name)
        assert (found["counts"], found["pending"]) == (said["counts"], said["pending"])
        np.testing.assert_allclose(found["estimate"], said["estimate"], rtol=1e-9, atol=1e-12)
    for name, answers in asyncio.run(made_by.go_on(hub)).items():
        for found, expected in zip(answers, told["bandits"][name]["next"], strict=True):
            assert (found[:2], found[3]) == (expected[:2], expected[3])
            assert found[2] == pytest.approx(expected[2], rel=1e-9)
    hub._store.close()


@pytest.mark.no_cover
def test_a_backup_while_the_file_shrinks_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "PURGE", 20)
    monkeypatch.setattr(sqlite_copy, "_AT_ONCE", 4)
    shop = Shop(tmp_path, EXPLORES)
    rows = [HistoryRow(id=f"h{number}" + "x" * 100, features=[0.1, 0.2, 0.3], reward=0.1) for number in range(1500)]
    shop.do(lambda: shop.hub.learn_history("shop", rows))
    shop.visit(20)
    shop.cut(5)

    async def both() -> None:
        await asyncio.gather(shop.hub.backup(tmp_path / "copy.db"), shop.hub.purge())

    shop.do(both)
    assert shop.hub.bandits.leftovers.next() is None
    shop.end()
    assert main(["check", str(tmp_path / "copy.db")]) == 0
    assert sqlite_copy.verify(tmp_path / "copy.db").bandits == 1


@pytest.mark.no_cover
def test_nobody_waits_for_a_log_that_is_cut(tmp_path: Path) -> None:
    """The loop of a service goes round without a step of more than 50 ms, in processor time."""
    shop = Shop(tmp_path, EXPLORES)
    shop.visit(2000)
    steps: list[float] = []

    async def cut_and_purge() -> None:
        while isinstance(await shop.hub.cut("shop", 10), CutWaits):
            pass
        await shop.hub.purge()

    async def watched() -> None:
        task = asyncio.create_task(cut_and_purge())
        while not task.done():
            begin = time.thread_time()
            await asyncio.sleep(0)
            steps.append(time.thread_time() - begin)
            await asyncio.sleep(0.001)
        await task

    shop.do(watched)
    assert len(steps) > 100 and max(steps) < 0.05
    assert len(shop.rows()) < 40
    shop.end()
