"""Checks that every store must pass, ours or a user's. Each raises AssertionError if it fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from threading import Thread
from time import time
from typing import TypeAlias

import msgspec

from robandit.service.stores.store import (
    LANES,
    PAGE,
    UNPLACED,
    Bandit,
    Beginning,
    DamageError,
    Held,
    Item,
    LogEntry,
    Purge,
    Rewrite,
    Snapshot,
    Store,
    StoreError,
    StorePart,
    append,
    events,
    open_ids,
    read_tombstone,
)
from robandit.wire.events import Blank, Changed, Closed, Cut, Decided, Erased, Event, Proved, Rewarded

MakeStore: TypeAlias = Callable[[], Store]
STRANGE = "\x00 ' \\ % ? ü"  # an id may hold any character


def check_store(make: MakeStore) -> None:
    """Run every check. ``make`` opens one and the same store each time, and finds it empty the first time."""
    for number, check in enumerate(STORE_CHECKS, start=1):
        _write(make, [Bandit(number, f"bandit-{number}", b'{"dim": 2}', 2**63 - number, 0.1 * number)])
        try:
            check(make, number)
        except DamageError as error:
            raise AssertionError(f"an event is lost, changed or out of order: {error}") from error


def check_read_back(make: MakeStore, bandit: int) -> None:
    """What was committed is there when the store is opened again: all of it, in its order, bit for bit."""
    log: list[Event] = [_decided(f"d{i}") for i in range(1, PAGE + 2)]
    log += [Rewarded(id="d1", at=1 / 3, reward=-0.0), Closed(id="d2", at=2.0)]
    log += [Proved(id="1", at=3.0, round=1, lower_bound=2.0, since=None, sentence=STRANGE)]
    _write(make, _entries(bandit, log[:5]))
    _write(make, _entries(bandit, log[5:], after=5))
    with closing(make()) as store:
        assert [*map(repr, events(store, bandit))] == [*map(repr, log)], "an event is lost, changed or out of order"
        assert list(events(store, bandit, after=PAGE)) == log[PAGE:], "the log can't be read from its middle on"
        assert store.bandits()[-1][2:] == (b'{"dim": 2}', 2**63 - bandit, 0.1 * bandit), "a bandit is lost or changed"


def check_once(make: MakeStore, bandit: int) -> None:
    """A decision, and its reward or default, is written once: a second one is refused, and its whole group with it."""
    first: list[Event] = [_decided(STRANGE), Rewarded(id=STRANGE, at=1.0, reward=1.0)]
    _write(make, _entries(bandit, first))
    with closing(make()) as store:
        assert [store.find(bandit, STRANGE, final=final) for final in (False, True)] == first, "an id is not found"
        others = store.find(bandit, "new", final=False), store.find(bandit - 1, STRANGE, final=True)
        assert others == (None, None), "an event is found under another id or in another log"
    for again in (first[0], Rewarded(id=STRANGE, at=2.0, reward=0.0), Closed(id=STRANGE, at=2.0)):
        assert _refuses(make, _entries(bandit, [_decided("new"), again], after=2)), f"{again} can be written again"
    assert _refuses(make, _entries(bandit, [_decided("new")], after=1)), "two events can have the same place"
    assert _refuses(make, [Bandit(1000, f"bandit-{bandit}", b"{}", 1, 0.0)]), "two bandits can have the same name"
    with closing(make()) as store:
        assert list(events(store, bandit)) == first, "a part of a refused group is there"


def check_uncommitted(make: MakeStore, bandit: int) -> None:
    """What was put and not committed is there whole, or not at all. What can't be written is refused."""
    with closing(make()) as store:
        store.news()
        store.put(_entries(bandit, [_decided("a"), _decided("b")]))
    with closing(make()) as store:
        assert len(list(events(store, bandit))) in (0, 2), "a part of a group is there that was not committed"
    assert _refuses(lambda: store, _entries(bandit, [_decided("c")], after=2)), "a closed store acknowledges a write"


def check_snapshot(make: MakeStore, bandit: int) -> None:
    """The last snapshot of a bandit is kept."""
    for place in (1, 3):
        _write(make, [], [Snapshot(bandit, place, b"\xff\x00")])
    with closing(make()) as store:
        kept = store.snapshot(bandit - 1), store.snapshot(bandit)
        assert kept == (None, Snapshot(bandit, 3, b"\xff\x00")), "the last snapshot is not kept"


def check_deleted(make: MakeStore, bandit: int) -> None:
    """A bandit that is deleted leaves a tombstone and a free name; its events go when they are asked to."""
    erased = Erased(id="erased", at=2.0, name=f"bandit-{bandit}", version=2)
    _write(make, _entries(bandit, [_decided("a"), _decided("b"), _decided("c")]), [Snapshot(bandit, 3, b"x")])
    again = Bandit(bandit + 100, f"bandit-{bandit}", b'{"dim": 2}', 7, 0.5)
    short = Bandit(bandit + 101, "short", b"{}", 7, 0.5)
    gone = LogEntry(short.number, 1, msgspec.structs.replace(erased, name="short"))
    _write(make, [LogEntry(bandit, 4, erased), again, short, gone, *_entries(again.number, [_decided("a")])])
    with closing(make()) as store:
        known = {one.number: one for one in store.bandits()}
        assert read_tombstone(known[bandit]) == erased and read_tombstone(known[short.number]), (
            "a bandit is still there"
        )
        assert known[again.number] == again and known[bandit].name != again.name, "the name is not free"
        assert store.snapshot(bandit) is None, "a deleted bandit has a snapshot"
        assert store.ends(bandit) == (1, 4), "the ends of a log are not found"
    _write(make, [Purge(bandit, 1, 2)])
    _write(make, [Purge(bandit, 3, 3)])
    with closing(make()) as store:
        assert store.ends(bandit) == (4, 4) and store.find(bandit, "a", final=False) is None, "events have not gone"
        assert store.ends(again.number) == (1, 1) and store.ends(10_000) is None, "other events have gone"


def check_beginning(make: MakeStore, bandit: int) -> None:
    """A log that was cut keeps what it begins with, the decisions that were open, and all that comes after."""
    log: list[Event] = [_decided("a"), _decided("b"), Rewarded(id="a", at=1.0, reward=1.0), _decided("c")]
    cut = Cut(id="3", at=2.0, place=3, before=1.0, decisions=2, open=1)
    kept = Beginning(bandit, 3, msgspec.msgpack.encode([STRANGE, "b"]), b"\xff\x00")
    _write(make, _entries(bandit, log))
    _write(make, [kept._replace(body=b""), LogEntry(bandit, 5, cut), kept])
    with closing(make()) as store:
        there = store.before(bandit, 4, 2)
        assert there == [Held(3, 1, "a"), Held(2, 0, "b")], "what a log holds before a place is not found"
    _write(make, [Purge(bandit, 1, 3, keep=(2,))])
    with closing(make()) as store:
        assert store.beginning(bandit) == kept and open_ids(kept) == [STRANGE, "b"], "what a log begins with is lost"
        assert store.beginning(bandit - 1) is None, "a log that is whole begins with something"
        assert list(events(store, bandit, after=3)) == [log[3], cut], "a log can't be read from where it was cut"
        assert store.find(bandit, "b", final=False) == log[1], "a decision that was open has gone"
        assert store.find(bandit, "a", final=True) is None, "events have not gone"
    changed = Changed(id="2", at=3.0, asked={}, settings={})
    _write(make, [LogEntry(bandit, 6, changed)])
    with closing(make()) as store:
        assert store.change(bandit, 2) == changed and store.change(bandit, 3) is None, "a change is not found"
    _write(make, [LogEntry(bandit, 7, Erased(id="erased", at=4.0, name=f"bandit-{bandit}", version=2))])
    with closing(make()) as store:
        assert store.beginning(bandit) is None, "a deleted bandit has what its log begins with"


def check_rewritten(make: MakeStore, bandit: int) -> None:
    """An event may take the place of another. What was there is not found any more, and its id is free."""
    log: list[Event] = [_decided(STRANGE), _decided("b"), Rewarded(id=STRANGE, at=1.0, reward=1.0)]
    _write(make, _entries(bandit, log))
    with closing(make()) as store:
        assert store.held(bandit, STRANGE) == [Held(1, 0, STRANGE), Held(3, 1, STRANGE)], "an id's events aren't found"
        assert store.held(bandit, "new") == [], "an id is found that nobody used"
    blanks = [Blank(id=str(place), at=0.5) for place in (1, 3)]
    _write(make, [Rewrite(bandit, place, blank) for place, blank in zip((1, 3), blanks, strict=True)])
    with closing(make()) as store:
        assert list(events(store, bandit)) == [blanks[0], log[1], blanks[1]], "an event is not rewritten, or another is"
        assert store.held(bandit, STRANGE) == [], "what was rewritten is found"
    _write(make, _entries(bandit, [_decided(STRANGE)], after=3))


def check_exclusive(make: MakeStore, bandit: int) -> None:
    """One process at a time writes and watches. Those that share a store hear what the others wrote, once."""
    with closing(make()) as store:
        assert abs(store.now() - time()) < 3600.0, "`now` is not the time in seconds since 1970"
        if not store.shared:
            assert store.watches() and _refuses(make, []), "a store that is not shared can be opened twice"
            return
        with closing(make()) as other:
            assert (store.watches(), other.watches()) == (True, False), "not exactly one process looks at the monitors"
            assert store.news() == [], "there is news, and nobody has written"
            heard: list[list[Item]] = []
            waiting = Thread(target=lambda: heard.append(other.news()), daemon=True)
            waiting.start()
            waiting.join(0.3)
            assert not heard, "two processes can write at the same time"
            group = _entries(bandit, [_decided("a"), _decided("b")])
            append(store, group)
            waiting.join(10.0)
            assert heard == [group], "a process does not hear what another wrote"
            other.release()
            assert store.news() == [], "a process hears what it wrote itself"


def check_part(make: MakeStore, bandit: int) -> None:
    """Decisions of a part are kept once, found at once, and get their places later, in the order in which they came."""
    with closing(make()) as store:
        if not store.shared:
            assert _raises(lambda: store.join(stale=True)), "a store that is not shared has parts"
            return
        with closing(make()) as other, closing(make()) as third:
            parts = [one.join(stale=True) for one in (store, other)]
            assert parts[0] is not None and parts[1] is not None, "a shared store has no parts"
            _check_added(parts[0], parts[1], bandit)
            _check_placed(store, parts[1], bandit)
            assert _raises(lambda: third.join(stale=False)), "processes may decide in different ways"


def _check_added(part: StorePart, other: StorePart, bandit: int) -> None:
    """Each id belongs to one decision, whoever adds it, and nothing is kept that comes too late."""
    now = part.look(part.heard).at
    assert abs(now - time()) < 3600.0, "the time of a look is not in seconds since 1970"
    first, second = (LogEntry(bandit, UNPLACED, _decided(name)) for name in ("b", STRANGE))
    again = first._replace(event=_decided("b", at=7.0))
    assert part.add([first, again], now + 60.0) == {(bandit, "b")}, "an id can be used twice in a group"
    assert other.add([again, second], now + 60.0) == {(bandit, STRANGE)}, "an id can be used twice"
    assert part.add([first], now + 60.0) == set(), "what is known is not the same as what is too late"
    assert part.add([LogEntry(bandit, UNPLACED, _decided("late"))], now - 60.0) is None, "what is too late is kept"
    assert other.find(bandit, "b", final=False) == first.event, "a decision is not found before it has a place"
    assert other.find(bandit, "late", final=False) is None, "what is too late is kept"
    assert other.look(other.heard).entries == [], "a decision without a place is heard of"
    assert other.unplaced() == {bandit % LANES}, "it is not known where there are decisions without a place"


def _check_placed(store: Store, part: StorePart, bandit: int) -> None:
    """The next to hold the others off places what is there, once, and parts hear of it. Rounds are given once."""
    unplaced = [item for item in store.news() if isinstance(item, LogEntry)]
    assert [(one.place, one.event.id) for one in unplaced] == [(UNPLACED, "b"), (UNPLACED, STRANGE)], "out of order"
    placed = _entries(bandit, [one.event for one in unplaced])
    append(store, placed)
    assert list(events(store, bandit)) == [one.event for one in placed], "a decision has no place, or not its own"
    assert store.news() == [] and part.unplaced() == set(), "a decision is placed twice"
    store.release()
    view = part.look(part.heard)
    assert view.entries == placed, "a part does not hear what has a place"
    assert part.look(view.heard).entries == [], "a part hears twice of an event"
    assert part.add(unplaced, view.at + 60.0) == set(), "an id that has a place can be used again"
    given = [part.reserve({bandit: (after, count)})[bandit] for after, count in ((5, 2), (0, 3), (20, 1))]
    assert given == [range(6, 8), range(8, 11), range(21, 22)], "a round is given twice, or one that has passed"


STORE_CHECKS = (
    *(check_read_back, check_once, check_uncommitted, check_snapshot, check_deleted),
    *(check_beginning, check_rewritten),
    *(check_exclusive, check_part),
)


def _decided(id: str, at: float = 0.1) -> Decided:  # noqa: A002
    return Decided(
        id=id, round=1, at=at, actions=["a"], index=0, features=[1 / 3, -0.0], sigma=0.5, level=0, propensity=1.0
    )


def _entries(bandit: int, log: Sequence[Event], after: int = 0) -> list[LogEntry]:
    return [LogEntry(bandit, place, event) for place, event in enumerate(log, start=after + 1)]


def _write(make: MakeStore, items: Sequence[Item], snapshots: Sequence[Snapshot] = ()) -> None:
    with closing(make()) as store:
        store.news()
        append(store, items, snapshots)


def _refuses(make: MakeStore, items: Sequence[Item]) -> bool:
    return _raises(lambda: _write(make, items))


def _raises(call: Callable[[], object]) -> bool:
    with suppress(StoreError):
        call()
        return False
    return True
