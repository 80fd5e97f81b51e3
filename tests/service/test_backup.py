"""Backups under load and at rest, what is refused, and stores of every earlier format restored."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import http.client
import importlib.util
import json
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import msgspec
import numpy as np
import pytest
from served import SHOP, Customer, Server, check_fold, check_nothing_lost, offer, working
from starlette.requests import Request

from robandit.cli import main
from robandit.policies import quorum
from robandit.service.files.copies import back_up_file
from robandit.service.hub import Hub
from robandit.service.learning.fold import fold
from robandit.service.learning.learner import Learner
from robandit.service.refused import Refused
from robandit.service.serving import live
from robandit.service.stores import sqlite_copy
from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import FORMAT, Snapshot, append, events
from robandit.service.web import backup
from robandit.service.web.keys import Keys, new_key
from robandit.wire.types import BanditSettings, Feedback
from thinned import untraced

HERE = Path(__file__).parent
BEFORE = HERE / "stores_before"


def digests(path: Path) -> dict[str, str]:
    """The fingerprint of every bandit's state."""
    hub = Hub(SQLiteStore(path))
    found = {name: bandit.learner.digest() for name, bandit in hub.bandits.items()}
    hub._store.close()
    return found


def shop(path: Path, number: int = 60) -> Hub:
    """A store with a bandit, some decisions and some rewards."""
    hub = Hub(SQLiteStore(path))
    calls: list[Callable[[], Any]] = [lambda: hub.create("shop", BanditSettings(dim=3, noise_range=0.5), 7)]
    calls += [partial(hub.decide, "shop", offer(f"d{i}")) for i in range(number)]
    calls += [partial(hub.reward, "shop", [Feedback(decision_id=f"d{i}", reward=0.1)]) for i in range(0, number, 2)]
    working(hub, *calls)
    hub._store.close()
    return Hub(SQLiteStore(path))  # since a hub belongs to one event loop


# ------------------------------------------------------------------------------------ while a service runs


@pytest.mark.no_cover
def test_a_backup_under_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each is a beginning of the log that holds what was acknowledged before it began; restored, it folds the same."""
    server = Server(tmp_path / "log.db")
    assert server.ask("PUT", "/v1/bandits/shop", SHOP)[0] == 201
    over = threading.Event()
    customers = [Customer(server.ask, number, over) for number in range(4)]
    for customer in customers:
        customer.start()
    known: list[list[str]] = []
    for number in range(3):
        time.sleep(0.4)
        known.append([name for customer in customers for name in list(customer.decisions)])
        assert main(["backup", f"http://127.0.0.1:{server.port}", str(tmp_path / f"{number}.db")]) == 0
        assert "every checksum is right" in capsys.readouterr().out
    over.set()
    for customer in customers:
        customer.join(60)
    server.kill()
    whole = [repr(event) for event in check_fold(SQLiteStore(tmp_path / "log.db"))["shop"]]
    for number, names in enumerate(known):
        target = tmp_path / "elsewhere" / f"{number}.db"
        target.parent.mkdir(exist_ok=True)
        assert main(["restore", str(tmp_path / f"{number}.db"), str(target)]) == 0
        assert main(["check", str(target)]) == 0
        log = check_fold(SQLiteStore(target))["shop"]
        assert [repr(event) for event in log] == whole[: len(log)]
        assert set(names) <= {event.id for event in log} and len(names) > 0
    check_nothing_lost(SQLiteStore(tmp_path / "log.db"), customers)


def test_what_is_written_meanwhile_is_in_the_copy_or_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One page at a time, with a decision between every two steps: some come to pages that are copied already."""
    monkeypatch.setattr(sqlite_copy, "_AT_ONCE", 1)
    monkeypatch.setattr(live, "SNAPSHOT_EVERY", 20)
    hub, copied = shop(tmp_path / "log.db", 200), False
    made: list[str] = []

    async def copy() -> None:
        nonlocal copied
        await hub.backup(tmp_path / "copy.db")
        copied = True

    async def use() -> None:
        going = asyncio.create_task(copy())
        while not copied:
            made.append((await hub.decide("shop", offer(f"new{len(made)}"))).decision_id)
        await going

    working(hub, use)
    assert len(made) > 10
    hub._store.close()
    assert sqlite_copy.verify(tmp_path / "copy.db").format == FORMAT
    log, whole = (check_fold(SQLiteStore(tmp_path / name))["shop"] for name in ("copy.db", "log.db"))
    assert log == whole[: len(log)] and 300 < len(log) <= len(whole)
    assert len(log) > 305  # some of what came meanwhile is there


def test_a_copy_that_fails_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = shop(tmp_path / "log.db")
    monkeypatch.setattr(sqlite_copy, "disk_usage", lambda path: SimpleNamespace(free=10**4))
    refused, chosen = working(hub, lambda: hub.backup(tmp_path / "copy.db"), lambda: hub.decide("shop", offer("new")))
    assert refused.status == 507 and "twice as many free" in str(refused) and chosen.round == 61
    assert not (tmp_path / "copy.db").exists() and hub.broken is None
    hub.stop()


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, dict[str, str]]]:
    """A service with keys, and the keys by name."""
    folder, secrets, entries = tmp_path_factory.mktemp("keyed"), {}, []
    for name, role, bandits in (("me", "admin", None), ("some", "admin", ["shop"]), ("eyes", "read", None)):
        secrets[name], entry = new_key(name, role, bandits)
        entries.append(entry)
    (folder / "keys.json").write_text(json.dumps(entries))
    server = Server(folder / "log.db", "--keys", str(folder / "keys.json"))
    server.ask("PUT", "/v1/bandits/shop", SHOP, secrets["me"])
    yield server, secrets
    server.kill()


def test_who_may_have_a_backup(
    keyed: tuple[Server, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """An admin for all bandits. The key comes from a file or the environment, and is shown nowhere."""
    server, secrets = keyed
    assert [server.ask("GET", "/v1/backup", key=secrets.get(name))[0] for name in ("", "eyes", "some")] == [
        401,
        403,
        403,
    ]
    url, out = f"http://127.0.0.1:{server.port}/", tmp_path / "copy.db"
    monkeypatch.setenv("ROBANDIT_KEY", secrets["eyes"])
    assert main(["backup", url, str(out)]) == 1
    told = capsys.readouterr().err
    assert "403: this needs a key for 'admin'" in told and secrets["eyes"] not in told and not out.exists()
    (tmp_path / "key").write_text(f"{secrets['me']}\n")
    assert main(["backup", url, str(out), "--key-file", str(tmp_path / "key")]) == 0
    assert out.stat().st_mode & 0o777 == 0o600
    assert sqlite_copy.verify(out).bandits == 1


def test_a_backup_that_does_not_arrive_whole(
    keyed: tuple[Server, dict[str, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One cut off and one with a changed byte get no name."""
    server, secrets = keyed
    monkeypatch.setenv("ROBANDIT_KEY", secrets["me"])
    read = http.client.HTTPResponse.read
    for spoil in (lambda data: data[:-100], lambda data: data[:5000] + bytes([data[5000] ^ 1]) + data[5001:]):

        def spoilt(answer: Any, amount: int | None = None, spoil: Any = spoil) -> bytes:
            data = read(answer, amount)
            return bytes(spoil(data)) if len(data) > 5000 else data

        monkeypatch.setattr(http.client.HTTPResponse, "read", spoilt)
        assert main(["backup", f"http://127.0.0.1:{server.port}", str(tmp_path / "copy.db")]) == 1
        assert "did not arrive whole" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_one_backup_at_a_time(tmp_path: Path) -> None:
    hub = shop(tmp_path / "log.db", 200)
    backups = backup.Backups(hub, Keys([]))
    request = Request({"type": "http", "headers": []})

    async def two() -> list[Any]:
        work = asyncio.create_task(hub.work())
        found = await asyncio.gather(*(backups.answer(request) for _ in range(2)), return_exceptions=True)
        found.append(await backups.answer(request))
        work.cancel()
        return found

    first, second, third = asyncio.run(two())
    assert first.status_code == third.status_code == 200 and isinstance(second, Refused) and second.status == 409
    for one in (first, third):
        one._file.close()
    hub.stop()


def test_a_service_that_ends_meanwhile(tmp_path: Path) -> None:
    """Killed, or asked to stop: there is a whole backup, or none, and the store is as it was."""
    path = tmp_path / "log.db"
    shop(path).stop()
    with closing(SQLiteStore(path)) as store:
        append(store, [], [Snapshot(99 + i, 1, bytes(5_000_000)) for i in range(8)])  # so that a backup takes a while
    before, codes = digests(path), []
    for number, (pause, kill) in enumerate([(0.0, True), (0.05, True), (0.1, False), (0.2, True)]):
        server, out = Server(path), tmp_path / f"{number}.db"
        command = ["backup", f"http://127.0.0.1:{server.port}", str(out)]
        asking = threading.Thread(target=lambda command=command: codes.append(main(command)))
        asking.start()
        time.sleep(pause)
        if kill:
            server.kill()
        else:
            assert server.stop()
        asking.join(60)
        assert codes[number] == (0 if out.exists() else 1)
        if out.exists():
            assert sqlite_copy.verify(out).events == 90
        assert digests(path) == before
    assert {one.name for one in tmp_path.iterdir()} <= {"log.db", *(f"{number}.db" for number in range(4))}


# ------------------------------------------------------------------------------------ at rest


def test_a_store_at_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Copied with what a killed service left in its write-ahead log, and refused while a service has it open."""
    hub = shop(tmp_path / "log.db")
    assert main(["backup", str(tmp_path / "log.db"), str(tmp_path / "copy.db")]) == 1
    assert "is open in a running service; ask that for the backup" in capsys.readouterr().err
    working(hub, lambda: hub.decide("shop", offer("last")))
    for name in ("log.db", "log.db-wal"):  # as after kill -9
        (tmp_path / "killed").mkdir(exist_ok=True)
        shutil.copy(tmp_path / name, tmp_path / "killed" / name)
    assert (tmp_path / "killed" / "log.db-wal").stat().st_size > 0
    digest = hub.bandits["shop"].learner.digest()
    hub.stop()
    for source in (tmp_path / "log.db", tmp_path / "killed" / "log.db"):
        copy, again = source.with_name("copy.db"), source.with_name("again.db")
        assert main(["backup", str(source), str(copy)]) == 0
        assert "1 bandits, 91 events" in capsys.readouterr().out
        assert main(["restore", str(copy), str(again)]) == 0
        assert digests(again) == {"shop": digest}


def test_nothing_is_replaced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither a file, nor the main file of a write-ahead log that is there; and nothing is left behind."""
    shop(tmp_path / "log.db").stop()
    assert main(["backup", str(tmp_path / "log.db"), str(tmp_path / "copy.db")]) == 0
    (tmp_path / "new.db-wal").write_bytes(b"of somebody else")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for command in (
        ["backup", "log.db", "copy.db"],
        ["restore", "copy.db", "log.db"],
        ["restore", "copy.db", "new.db"],
    ):
        assert main([command[0], *(str(tmp_path / name) for name in command[1:])]) == 2
        assert "is not replaced" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ("UPDATE events SET crc = crc + 1 WHERE place = 30", "a row of events, which begins [1, 30]"),
        ("UPDATE bandits SET seed = '8'", "a row of bandits"),
        ("DELETE FROM events WHERE place = 31", "event 31 of bandit 'shop' is damaged or missing"),
        (f"PRAGMA user_version = {FORMAT + 1}", f"of a newer robandit (its format is {FORMAT + 1}"),
    ],
)
def test_a_damaged_backup_is_not_restored(
    change: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shop(tmp_path / "log.db")._store.close()
    with closing(apsw.Connection(str(tmp_path / "log.db"))) as db:
        db.execute(change)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert main(["restore", str(tmp_path / "log.db"), str(tmp_path / "new.db")]) == 1
    assert word in capsys.readouterr().err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_can_not_be_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "letter.db").write_text("this is a letter, and not a database " * 100)
    for source, code, word in (
        (tmp_path / "none.db", 1, "there is no"),
        (tmp_path / "letter.db", 1, "can't read"),
        ("postgresql://me@here/shop", 2, "pg_dump"),
        ("http://127.0.0.1:9/", 1, "refused"),
    ):
        assert main(["backup", str(source), str(tmp_path / "copy.db")]) == code
        assert word in capsys.readouterr().err
    assert main(["restore", str(tmp_path / "letter.db"), str(tmp_path / "new.db")]) == 1
    assert main(["restore", str(tmp_path / "letter.db"), "postgresql://me@here/shop"]) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["letter.db"]


# ------------------------------------------------------------------------------------ every earlier format


def earlier(folder: Path) -> dict[str, Path]:
    """Stores that earlier releases wrote, by name, unpacked into a folder."""
    found = {}
    for name, packed in (
        ("first", BEFORE / "store_0.sql"),
        ("without checksums", BEFORE / "store_1.db.gz"),
        ("with records", HERE / "old" / "log.db.gz"),
        ("before changes", BEFORE / "store_2.db.gz"),
        ("before this", BEFORE / "store_3.db.gz"),
    ):
        found[name] = folder / f"{name}.db"
        if packed.suffix == ".sql":
            with closing(apsw.Connection(str(found[name]))) as db:
                db.execute(packed.read_text(encoding="utf-8"))
        else:
            found[name].write_bytes(gzip.decompress(packed.read_bytes()))
    return found


def version(path: Path) -> int:
    with closing(apsw.Connection(str(path))) as db:
        return int(db.pragma("user_version"))


@pytest.mark.parametrize(
    "name",
    untraced(
        ["first", "without checksums", "with records", "before changes", "before this"], but=["first", "before this"]
    ),
)
def test_a_backup_of_an_earlier_format(name: str, tmp_path: Path) -> None:
    """A backup keeps the format; restored, it has the present one, and the same events and states."""
    path = earlier(tmp_path)[name]
    was, bodies = version(path), events_of(path)
    assert was == {"before this": 2, "before changes": 1}.get(name, 0) < FORMAT
    copy, new = tmp_path / "copy.db", tmp_path / "new.db"
    assert back_up_file(path, copy).format == was and version(path) == was and events_of(copy) == bodies
    assert main(["restore", str(copy), str(new)]) == 0 and main(["check", str(new)]) == 0
    assert version(new) == FORMAT and events_of(new) == bodies and version(copy) == was
    SQLiteStore(path).close()  # opened where it is, it is taken over as well
    assert digests(path) == digests(new) and version(path) == FORMAT


def events_of(path: Path) -> list[Any]:
    with closing(apsw.Connection(str(path))) as db:
        return db.execute("SELECT bandit, place, kind, id, body FROM events ORDER BY bandit, place").fetchall()


@pytest.mark.no_cover
@pytest.mark.parametrize(("number", "kind"), [(2, "before changes"), (3, "before this")])
def test_the_formats_before_this_one_fold_the_same(
    number: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the snapshots in the middle of their logs, and from the beginning: all that they showed, and what they would
    have decided next. Quorum votes as often as it did then; by its schedule of now, the same log teaches it otherwise.
    """
    for constant, then in {"_OFTEN": 20, "_SOON": 2, "_LATE": 100}.items():
        monkeypatch.setattr(quorum, constant, then)
    told: dict[str, Any] = json.loads((BEFORE / f"store_{number}.json").read_text(encoding="utf-8"))
    spec = importlib.util.spec_from_file_location(f"make_{number}", BEFORE / f"make_{number}.py")
    assert spec and spec.loader
    made_by = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made_by)
    path = tmp_path / "new.db"
    assert main(["restore", str(earlier(tmp_path)[kind]), str(path)]) == 0
    hub = Hub(SQLiteStore(path, clock=lambda: told["now"]), ticks=lambda: 0.0)
    assert set(hub.bandits) == set(told["bandits"])
    for name, said in told["bandits"].items():
        bandit, status = hub.bandits[name], hub.status(name)
        lines = hub._store.page(bandit.record.number, 0)
        assert hashlib.sha256(b"\n".join(lines)).hexdigest() == said["log"]
        first = msgspec.json.decode(bandit.record.settings, type=BanditSettings)
        fresh = Learner(first, bandit.record.seed)
        for _ in fold(fresh, partial(events, hub._store, bandit.record.number)):
            pass
        assert fresh.digest() == bandit.learner.digest()
        counts = [fresh.place, status.rounds, status.rewards, status.defaults, status.lost, fresh.monitor.rounds]
        assert counts == said["counts"] and list(fresh.pending) == said["pending"] and fresh.clock == said["clock"]
        assert [list(one) for one in status.recent] == said["recent"]
        np.testing.assert_allclose(status.estimate, said["estimate"], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(status.uncertainty, said["uncertainty"], rtol=1e-9)
    asked = [
        partial(hub.decide, name, made_by.offer(name, number))
        for name in told["bandits"]
        for number in range(made_by.DECISIONS + made_by.NEXT)
    ]
    answers = iter([made_by.plain(one) for one in working(hub, *asked)])
    for said in told["bandits"].values():
        for expected in (*said["answers"], *said["next"]):
            found = next(answers)
            assert (found[:2], found[3]) == (expected[:2], expected[3])
            assert found[2] == pytest.approx(expected[2], rel=1e-9)
    hub._store.close()
