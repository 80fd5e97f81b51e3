"""Damage is noticed, wherever it is; stores of older versions get their checksums; `robandit check` tells."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import numpy as np
import pytest
from power import Op, Shim, disks_after, put
from served import check_fold, log_of, offer, working

from robandit.cli import main
from robandit.policies import Quorum, votes
from robandit.service.hub import Hub
from robandit.service.refused import Refused
from robandit.service.stores.sql import checksum
from robandit.service.stores.sqlite import SQLiteStore, read_only
from robandit.service.stores.store import DamageError, Snapshot, StoreError, append
from robandit.wire.events import encode
from robandit.wire.types import BanditSettings, Feedback

BEFORE = Path(__file__).parent / "stores_before"


def shop(path: Path, rounds: int = 40) -> Hub:
    """A store with two bandits, of which one has a snapshot in the middle of its log."""
    hub = Hub(SQLiteStore(path))
    calls: list[Callable[[], Any]] = []
    for name in ("shop", "other"):
        calls.append(partial(hub.create, name, BanditSettings(dim=3, noise_range=0.5), 7))
        for i in range(rounds):
            calls.append(partial(hub.decide, name, offer(f"d{i}")))
            if i % 2:
                calls.append(partial(hub.reward, name, [Feedback(decision_id=f"d{i}", reward=0.1)]))

    async def keep() -> None:
        append(hub._store, [], hub.bandits.all_snapshots())

    working(hub, *calls[:40], keep, *calls[40:])
    return hub


def all_of(hub: Hub) -> Any:
    """All that a service could answer about its logs: in order, by id, and as a state."""
    found = {}
    for name, bandit in hub.bandits.items():
        log = list(log_of(hub, name))
        by_id = [
            hub._store.find(bandit.record.number, event.id, final=final) for event in log for final in (False, True)
        ]
        found[name] = [encode(event) for event in log], by_id, bandit.learner.digest(), bandit.record
    return found


def serve(path: Path) -> Any:
    hub = Hub(SQLiteStore(path, synchronous="OFF"))
    try:
        return all_of(hub)
    finally:
        hub._store.close()


def flipped(whole: bytes, bit: int) -> bytes:
    damaged = bytearray(whole)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def fates(path: Path, bits: Sequence[int], caplog: pytest.LogCaptureFixture) -> list[str]:
    """What becomes of a service whose file has one of these bits flipped: "noticed", "unharmed" or "wrong"."""
    truth, whole, found = serve(path), path.read_bytes(), []
    for bit in bits:
        caplog.clear()
        path.write_bytes(flipped(whole, bit))
        try:
            same = serve(path) == truth
            found.append("noticed" if "of no use" in caplog.text and same else "unharmed" if same else "wrong")
        except StoreError:
            found.append("noticed")
        for beside in ("-wal", "-shm", "-journal"):
            Path(f"{path}{beside}").unlink(missing_ok=True)
    path.write_bytes(whole)
    return found


def test_no_flipped_bit_is_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A service refuses, or says what it does without, or answers as before: the bit was in a part that is not used."""
    hub = shop(tmp_path / "log.db")
    hub.stop()
    size, rng = 8 * (tmp_path / "log.db").stat().st_size, random.Random(1)
    found = fates(tmp_path / "log.db", [rng.randrange(size) for _ in range(150)], caplog)
    assert found.count("wrong") == 0 and found.count("noticed") > 75


@pytest.mark.slow
def test_no_flipped_bit_of_many_is_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hub = shop(tmp_path / "log.db")
    hub.stop()
    size, rng = 8 * (tmp_path / "log.db").stat().st_size, random.Random(2)
    bits = [*range(0, 8 * 4096, 3), *(rng.randrange(size) for _ in range(5000))]  # the first page has the tables
    found = fates(tmp_path / "log.db", bits, caplog)
    counts = {fate: found.count(fate) for fate in ("noticed", "unharmed", "wrong")}
    print(f"{len(bits)} flipped bits: {counts}", flush=True)
    assert counts["wrong"] == 0 and counts["noticed"] > 3000


def test_every_flipped_bit_of_a_row_is_noticed(tmp_path: Path) -> None:
    """A hundred bits of events, settings and a snapshot, wherever they lie, and a row that is gone."""
    shop(tmp_path / "log.db")._store.close()
    store = SQLiteStore(tmp_path / "log.db")
    rng, noticed = random.Random(3), 0
    reads: dict[str, tuple[str, str, Callable[[], Any]]] = {
        "events": ("body", "bandit = 1 AND place = 17", lambda: store.page(1, 0)),
        "bandits": ("settings", "number = 2", store.bandits),
        "snapshots": ("body", "bandit = 1", lambda: store.snapshot(1)),
    }
    for turn in range(102):
        table, (column, where, read) = list(reads.items())[turn % 3]
        ((body,),) = store._rows(f"SELECT {column} FROM {table} WHERE {where}")
        read()
        store._db.execute(
            f"UPDATE {table} SET {column} = ? WHERE {where}", (flipped(body, rng.randrange(8 * len(body))),)
        )
        with pytest.raises(
            DamageError, match=r"log\.db.*(event 17 of bandit 'shop'|'other'|snapshot of bandit 'shop')"
        ):
            read()
        noticed += 1
        store._db.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (body,))
    assert noticed == 102
    store._db.execute("DELETE FROM events WHERE bandit = 2 AND place = 5")
    with pytest.raises(DamageError, match="event 5 of bandit 'other' is damaged or missing"):
        store.page(2, 0)
    store.close()


@pytest.mark.parametrize("size", [0, 1, 100])
def test_a_checksum_notices_every_burst(size: int) -> None:
    """Up to 32 changed bits in a row, and a value that moves from one column to another."""
    rng, body = random.Random(size), random.Random(4).randbytes(size + 5)
    for width in range(1, 33):
        start = rng.randrange(8 * len(body) - width + 1)
        burst = (1 << (width - 1) | 1 | rng.getrandbits(width)) << start
        other = (int.from_bytes(body) ^ burst).to_bytes(len(body))
        assert checksum(1, 2, 0, "id", other) != checksum(1, 2, 0, "id", body)
    assert checksum(1, "ab", "c") != checksum(1, "a", "bc")


def test_one_damaged_event_is_an_error_and_the_rest_is_served(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    shop(tmp_path / "log.db").stop()
    damage(tmp_path / "log.db", "UPDATE events SET id = 'd1!' WHERE bandit = 1 AND place = 3")
    hub = Hub(SQLiteStore(tmp_path / "log.db"))
    late = [Feedback(decision_id=name, reward=0.1) for name in ("d1!", "d3")]
    found = working(
        hub, *(partial(hub.reward, "shop", [one]) for one in late), lambda: hub.decide("shop", offer("new"))
    )
    assert found[0].status == 500 and "damaged" in str(found[0]) and "event 3 of bandit 'shop'" in caplog.text
    assert [one.status for one in found[1]] == ["duplicate"] and found[2].round == 41 and hub.broken is None
    hub.stop()


def damage(path: Path, change: str) -> None:
    db = apsw.Connection(str(path))
    db.execute(change)
    assert db.changes() == 1
    db.close()


# ------------------------------------------------------------------------------------ robandit check

WRONG_CRC = "UPDATE {} SET crc = crc + 1 WHERE bandit = 1 AND place = {}"
DAMAGES = [
    (WRONG_CRC.format("events", 30), "event 30 of bandit 'shop' is damaged or missing"),
    ("DELETE FROM events WHERE bandit = 2 AND place = 59", "event 59 of bandit 'other' is damaged or missing"),
    ("UPDATE bandits SET seed = '8' WHERE number = 2", "the settings of bandit 'other' are damaged"),
    ("UPDATE snapshots SET place = place - 1 WHERE bandit = 1", "the snapshot of bandit 'shop' is damaged"),
    ("PRAGMA user_version = 9; UPDATE snapshots SET crc = 1 WHERE bandit = 1", "of a newer robandit"),
]


@pytest.mark.parametrize(("change", "word"), DAMAGES)
def test_check_tells_what_is_damaged(
    change: str, word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "log.db"
    shop(path)._store.close()
    assert main(["check", str(path)]) == 0
    assert capsys.readouterr().out == "shop: 60 events, whole\nother: 60 events, whole\nNothing is damaged.\n"
    damage(path, change)
    assert main(["check", str(path)]) == 1
    assert word in capsys.readouterr().err


def test_check_compares_the_fold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A snapshot of another state is noticed, though its checksum is right; so is a log that has lost its end."""
    path = tmp_path / "log.db"
    hub = shop(path)
    other = hub.bandits["other"].learner.snapshot()
    append(hub._store, [], [Snapshot(1, 60, other)])
    hub._store.close()
    assert main(["check", str(path)]) == 1
    assert "the snapshot of bandit 'shop' is not the fold of its first 60 events" in capsys.readouterr().err
    damage(path, "DELETE FROM events WHERE bandit = 1 AND place = 60")
    assert main(["check", str(path)]) == 1
    assert "the log of bandit 'shop' ends at event 59, and had 60" in capsys.readouterr().err


def test_check_wants_a_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(tmp_path / "log.db")]) == 1
    assert "there is no" in capsys.readouterr().err and not (tmp_path / "log.db").exists()


# ------------------------------------------------------------------------------------ older stores


def before(path: Path) -> Path:
    """A store that the version before checksums has written: commit 95351fc, with two bandits and their snapshots."""
    db = apsw.Connection(str(path))
    db.pragma("journal_mode", "WAL")
    db.execute((BEFORE / "store_0.sql").read_text(encoding="utf-8"))
    db.close()
    return path


def check_same(path: Path) -> None:
    """The fold is the one that the older version had, from the snapshot as from the beginning."""
    logs = check_fold(SQLiteStore(path))
    hub = Hub(SQLiteStore(path))
    for name, expected in json.loads((BEFORE / "store_0.json").read_text(encoding="utf-8")).items():
        if name == "shop":  # of the policy that was the default then, and is gone
            with pytest.raises(Refused, match="bandit 'shop' is not served: this version of robandit has no policy"):
                hub.bandits.named(name)
            continue
        learner, status = hub.bandits[name].learner, hub.status(name)
        found = [learner.policy.rounds, learner.place, learner.rewards, learner.defaults, list(learner.pending)]
        assert found == [expected[key] for key in ("rounds", "place", "rewards", "defaults", "pending")]
        assert (learner.monitor.rounds, learner.clock, len(logs[name])) == (
            expected["monitor"],
            expected["clock"],
            expected["place"],
        )
        np.testing.assert_allclose(status.estimate, expected["estimate"], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(status.uncertainty, expected["uncertainty"], rtol=1e-9)
    hub.stop()


def test_an_older_store_gets_its_checksums(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = before(tmp_path / "log.db")
    old = list(read_only(path, "shop"))  # it can be read as it is
    check_same(path)
    assert list(read_only(path, "shop")) == old and len(old) == 21
    assert main(["check", str(path)]) == 0
    damage(path, WRONG_CRC.format("events", 7))
    with pytest.raises(DamageError, match="event 7 of bandit 'shop'"):
        list(read_only(path, "shop"))


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE events SET id = 'x' WHERE bandit = 1 AND place = 3",
        "UPDATE events SET body = x'00' WHERE bandit = 1 AND place = 3",
    ],
)
def test_a_damaged_older_store_is_left_alone(change: str, tmp_path: Path) -> None:
    path = before(tmp_path / "log.db")
    damage(path, change)
    whole = path.read_bytes()
    with pytest.raises(DamageError, match="event 3 of bandit number 1 is damaged"):
        SQLiteStore(path)
    assert path.read_bytes() == whole


@pytest.mark.no_cover
def test_no_power_cut_harms_a_store_that_gets_its_checksums(tmp_path: Path) -> None:
    """There is one cut after each operation."""
    path = before(tmp_path / "log.db")
    ops = [Op("create", "log.db"), Op("write", "log.db", 0, path.read_bytes()), Op("sync", "log.db")]
    start = len(ops)
    shim = Shim("migrate", ops.append)
    SQLiteStore(path, vfs="migrate").close()
    shim.unregister()
    cuts = range(start, len(ops) + 1)
    for _, files in disks_after(ops, cuts, random.Random(5)):
        shutil.rmtree(tmp_path / "disk", ignore_errors=True)
        check_same(put(files, tmp_path / "disk") / "log.db")
    assert len(cuts) > 20


def test_a_release_with_other_last_places_finds_no_damage(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It folds the logs again, if it says so by its `numerics`; otherwise snapshots would seem to be wrong."""
    path, settings = tmp_path / "log.db", BanditSettings(policy="quorum", dim=3, noise_range=0.5)
    hub, calls = Hub(SQLiteStore(path)), list[Callable[[], Any]]()
    for i in range(40):
        calls.append(partial(hub.decide, "shop", offer(f"d{i}")))
        calls.append(partial(hub.reward, "shop", [Feedback(decision_id=f"d{i}", reward=0.1 * (-1) ** i)]))
    working(hub, partial(hub.create, "shop", settings, 7), *calls)
    before = hub.bandits["shop"].learner.digest()
    hub.stop()
    monkeypatch.setattr(votes, "_FAINT", 1.1e-3)
    assert main(["check", str(path)]) == 1 and "is not the fold of its first" in capsys.readouterr().err
    monkeypatch.setattr(Quorum, "numerics", Quorum.numerics + 1)
    assert main(["check", str(path)]) == 0 and "Nothing is damaged" in capsys.readouterr().out
    again = Hub(SQLiteStore(path))
    assert again.bandits["shop"].learner.digest() != before and "has numerics" in caplog.text
    again.stop()
    check_fold(SQLiteStore(path))
    assert main(["check", str(path)]) == 0
