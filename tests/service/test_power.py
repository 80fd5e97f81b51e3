"""What the service acknowledged survives a power cut, a failing disk and a full one."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import apsw
import pytest
from power import FailOn, Op, Shim, Watch, disk_after, disks_after, put

from robandit.service.stores.sqlite import SQLiteStore
from robandit.service.stores.store import Bandit, LogEntry, Snapshot, StoreError, events
from robandit.service.stores.store import append as commit
from robandit.wire.events import Decided, Event, Rewarded
from thinned import longer

pytestmark = pytest.mark.no_cover  # other tests run these lines, and more quickly

FILE = "log.db"
CUTS = int(os.environ.get("ROBANDIT_CUTS", "14400"))
CHECKPOINT = 12
"""Pages; SQLite's own 1000 would need a far longer log for as many checkpoints."""

NO_BANDIT = -1


class History(NamedTuple):
    """What was done to the disk, and what had been acknowledged at each point."""

    ops: list[Op]
    events: list[Event]
    acknowledged: list[tuple[int, int]]
    """How many operations were done, and events appended, each time that a transaction had been acknowledged."""

    def bounds(self, cut: int) -> tuple[int, int]:
        """The number of events that must be there after a cut, and the number with one more transaction."""
        done = sum(ops <= cut for ops, _ in self.acknowledged)
        sizes = [NO_BANDIT, *(events for _, events in self.acknowledged)]
        return sizes[done], sizes[min(done + 1, len(sizes) - 1)]


def groups(rng: random.Random, number: int) -> Iterator[list[Event]]:
    """Events to append, 1 to 6 at once."""
    open_: list[str] = []
    made = 0
    for _ in range(number):
        group: list[Event] = []
        for _ in range(rng.randint(1, 6)):
            if open_ and rng.random() < 0.45:
                group.append(Rewarded(id=open_.pop(rng.randrange(len(open_))), at=float(made), reward=rng.random()))
            else:
                made += 1
                group.append(_decided(rng, made))
                open_.append(group[-1].id)
        yield group


def _decided(rng: random.Random, round_: int) -> Decided:
    return Decided(
        id=f"{rng.getrandbits(64):x}",
        round=round_,
        at=float(round_),
        actions=["a", "b"],
        index=rng.randrange(2),
        features=[rng.random()],
        sigma=1.0,
        level=0,
        propensity=1.0,
    )


def entries(group: Sequence[Event], after: int) -> list[LogEntry]:
    return [LogEntry(1, after + i, event) for i, event in enumerate(group, 1)]


@contextlib.contextmanager
def opened(path: Path, name: str, watch: Watch, synchronous: str = "FULL") -> Iterator[SQLiteStore]:
    """A store on a watched disk."""
    shim = Shim(name, watch)
    try:
        store = SQLiteStore(path, vfs=name, synchronous=synchronous)
        store._db.wal_autocheckpoint(CHECKPOINT)
        try:
            yield store
        finally:
            with contextlib.suppress(apsw.Error):
                store.close()
    finally:
        shim.unregister()


def record(folder: Path, synchronous: str, commits: int = 200) -> History:
    """Write a log and close it, so that some cuts fall into the end."""
    history = History([], [], [])
    with opened(folder / FILE, f"record-{synchronous}", history.ops.append, synchronous) as store:
        write(store, history, commits, commit)
    return history


def write(
    store: SQLiteStore, history: History, commits: int, append: Callable[[SQLiteStore, list[LogEntry]], None]
) -> None:
    """Write a bandit and its events."""
    rng = random.Random(7)
    commit(store, [Bandit(1, "shop", b"{}", 1, 0.0)])
    history.acknowledged.append((len(history.ops), 0))
    for group in groups(rng, commits):
        append(store, entries(group, len(history.events)))
        history.events.extend(group)
        history.acknowledged.append((len(history.ops), len(history.events)))
        if rng.random() < 0.05:
            with contextlib.suppress(StoreError):  # a service can do without
                commit(store, [], [Snapshot(1, len(history.events), rng.randbytes(rng.randrange(10_000)))])


def insist(store: SQLiteStore, new: list[LogEntry]) -> None:
    """Append, and once more if that fails, unless the events are there: then only a checkpoint after them failed."""
    try:
        commit(store, new)
    except StoreError:
        there = list(events(store, 1, after=new[0].place - 1))
        assert there in ([], [entry.event for entry in new])
        if not there:
            commit(store, new)


def read(folder: Path) -> list[Event] | None:
    """What a restart finds; None if it does not find the bandit. The store must be sound and take more."""
    store = SQLiteStore(folder / FILE, synchronous="OFF")  # only for speed: no power is cut here
    try:
        assert store._db.pragma("integrity_check") == "ok"
        found = list(events(store, 1))
        places = store._db.execute("SELECT place FROM events ORDER BY place")
        assert [place for (place,) in places] == [*range(1, len(found) + 1)]
        assert (store.snapshot(1) or Snapshot(1, 0, b"")).place <= len(found)
        commit(store, entries([_decided(random.Random(1), 0)], len(found)))
        return found if store.bandits() else None
    finally:
        store.close()


def check(history: History, files: dict[str, bytes], cut: int, folder: Path) -> bool:
    """Whether all that was acknowledged is there. What is there must be whole transactions, and the first ones."""
    found = read(put(files, folder))
    surely, at_most = history.bounds(cut)
    size = NO_BANDIT if found is None else len(found)
    assert size <= at_most
    assert size in {NO_BANDIT, *(events for _, events in history.acknowledged)}
    assert (found or []) == history.events[: max(size, 0)]
    return size >= surely


def losses(history: History, number: int, folder: Path, seed: int = 0) -> int:
    """The number of cuts, spread evenly over all operations, in which something acknowledged was lost."""
    cuts = [round(i * len(history.ops) / (number - 1)) for i in range(number)]
    disks = disks_after(history.ops, cuts, random.Random(seed))
    return sum(not check(history, files, cut, folder) for cut, files in disks)


# ------------------------------------------------------------------------------------ power cuts


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> History:
    return record(tmp_path_factory.mktemp("full"), "FULL")


def test_the_recording_has_checkpoints_and_fresh_starts_of_the_log(full: History) -> None:
    kinds = [(op.kind, op.file) for op in full.ops]
    assert kinds.count(("sync", FILE)) > 30
    headers = [op for op in full.ops if op.file == f"{FILE}-wal" and op.kind == "write" and len(op.data) == 32]
    assert len(headers) > 30


def test_the_disk_without_a_cut_is_what_the_files_hold(tmp_path: Path) -> None:
    history = record(tmp_path, "FULL", commits=20)
    left = disk_after(history.ops, len(history.ops), random.Random(0))
    assert left[FILE] == (tmp_path / FILE).read_bytes()


@pytest.mark.parametrize("apart", longer(4, 2))
def test_no_power_cut_loses_what_was_acknowledged(full: History, tmp_path: Path, apart: int) -> None:
    """There is one cut after so many operations; of those below, after each."""
    assert losses(full, len(full.ops) // apart + 1, tmp_path / "disk") == 0


@pytest.mark.slow
def test_no_power_cut_of_many_loses_what_was_acknowledged(full: History, tmp_path: Path) -> None:
    """Again and again after each operation, each time with other luck. ROBANDIT_CUTS says how many at least."""
    cuts = lost = seed = 0
    while cuts < CUTS:
        seed += 1
        lost += losses(full, len(full.ops) + 1, tmp_path / "disk", seed)
        cuts += len(full.ops) + 1
    print(f"{cuts} power cuts: {lost} lost something that was acknowledged", flush=True)
    assert lost == 0


def test_a_cut_loses_some_where_the_log_is_not_synced(tmp_path: Path) -> None:
    """The tests above can fail. What is there is sound even so."""
    assert losses(record(tmp_path, "NORMAL"), 300, tmp_path / "disk") > 50


def test_a_cut_is_noticed_where_the_disk_lies_about_the_main_file(full: History, tmp_path: Path) -> None:
    """The tests can fail at checkpoints too: here no sync of the main file does anything."""
    lie = Op("write", FILE)
    ops = [lie if op.kind == "sync" and op.file == FILE else op for op in full.ops]
    with pytest.raises((AssertionError, StoreError, apsw.Error)):
        assert losses(full._replace(ops=ops), 300, tmp_path / "disk") == 0


# ------------------------------------------------------------------------------------ failing disks


def append_until_it_fails(folder: Path, name: str, watch: FailOn) -> tuple[list[Event], list[Event]]:
    """The events acknowledged, those of the append that raised, and the files as a kill would leave them."""
    sure: list[Event] = []
    with opened(folder / FILE, name, watch) as store:
        commit(store, [Bandit(1, "shop", b"{}", 1, 0.0)])
        for group in groups(random.Random(3), 60):
            try:
                commit(store, entries(group, len(sure)))
            except StoreError:
                shutil.copytree(folder, folder / "killed", ignore=shutil.ignore_patterns("killed"))
                return sure, group
            sure.extend(group)
    raise AssertionError("nothing failed")


FAULTS = [("sync", apsw.IOError, n) for n in range(11, 51)] + [("write", apsw.FullError, n) for n in range(40, 280, 6)]


@pytest.mark.parametrize("forever", [False, True])
@pytest.mark.parametrize(("kind", "error", "nth"), FAULTS)
def test_a_failing_or_full_disk_is_an_error_and_loses_nothing(
    tmp_path: Path, kind: str, error: type[apsw.Error], nth: int, forever: bool
) -> None:
    watch = FailOn(kind, nth, error, forever=forever)
    sure, doubtful = append_until_it_fails(tmp_path, f"{kind}-{nth}", watch)
    for folder in (tmp_path / "killed", tmp_path):
        assert read(folder) in (sure, sure + doubtful)


@pytest.mark.parametrize(
    ("kind", "error", "nth"),
    [fault if i % 20 == 1 else pytest.param(*fault, marks=pytest.mark.slow) for i, fault in enumerate(FAULTS)],
)
def test_a_store_goes_on_once_the_disk_does(tmp_path: Path, kind: str, error: type[apsw.Error], nth: int) -> None:
    """An append that raised is written by the first or a second call, never twice or in part; and no cut loses it."""
    watch = FailOn(kind, nth, error, forever=False)
    history = History(watch.ops, [], [])
    with opened(tmp_path / FILE, f"again-{kind}-{nth}", watch) as store:
        write(store, history, 40, insist)
    assert watch.seen > nth
    assert losses(history, len(history.ops) + 1, tmp_path / "disk") == 0
    assert read(tmp_path) == history.events
