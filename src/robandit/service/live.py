"""The bandits that are being served: how they are loaded, kept up to date, kept in snapshots, and closed in time."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import msgspec

from robandit.policies import POLICIES
from robandit.service.clock import GRACE, ServiceClock
from robandit.service.cost import SLICE
from robandit.service.learner import Learner
from robandit.service.refused import Refused
from robandit.service.stores.store import (
    KINDS,
    LANES,
    UNPLACED,
    Bandit,
    DamageError,
    Item,
    LogEntry,
    Snapshot,
    Store,
    events,
)
from robandit.service.vectors import Vectors
from robandit.wire.events import Event
from robandit.wire.types import BanditSettings

log = logging.getLogger("robandit.service")

SNAPSHOT_EVERY = 20_000
"""Least number of events from one snapshot of a bandit to the next."""


class StoreBusyError(Exception):
    """The store is writing, and can be read after that."""


@dataclass(eq=False)
class LiveBandit:
    """A bandit that is being served: its record in the store, and its state."""

    record: Bandit
    settings: BanditSettings
    learner: Learner
    vectors: Vectors
    saved: int = 0
    """Place of the last snapshot."""
    seen: int = 0
    """Number of rounds that the monitor had at the last look."""
    fresh: dict[tuple[int, str], Event] = field(default_factory=dict)
    """Events that are being written, by kind and id."""
    held: float = 0.0
    """Time before which no window closes."""
    timed: bool = False
    """Whether `Bandits.due` will come to it."""
    rounds: Iterator[int] = field(default_factory=lambda: iter(()))
    """Rounds that are reserved for decisions of this process on a state that may be old."""
    reserved: int = 0
    """How many rounds were reserved last."""


class Bandits(dict[str, LiveBandit]):
    """All bandits by name. Nothing here takes time for a bandit that nothing happens to."""

    def __init__(self, store: Store, clock: ServiceClock) -> None:
        super().__init__()
        self._store, self._clock = store, clock
        self._numbers: dict[int, LiveBandit] = {}
        self._last = 0  # the largest number of a bandit
        self._unserved: dict[str, str] = {}  # why bandits of the store are not served, by name
        self._changed: set[LiveBandit] = set()  # since the monitors were last looked at
        self.busy = False
        """Whether a thread is writing, so that the store can't be read."""
        self._timers: list[tuple[float, int]] = []  # a heap: when a bandit's oldest window closes, and its number
        for record in store.bandits():
            self._adopt(record, store)

    def named(self, name: str) -> LiveBandit:
        """The bandit of a name; a request for another is refused."""
        if name not in self:
            raise self.unknown(name)
        return self[name]

    def check_served(self, name: str) -> None:
        """Refuse a request for a bandit that is in the store and can't be served."""
        if name in self._unserved:
            raise Refused(409, self._unserved[name])

    def unknown(self, name: str) -> Refused:
        """The refusal of a request for a bandit that is not served."""
        if name in self._unserved:
            return Refused(409, self._unserved[name])
        return Refused(404, f"there is no bandit {name!r}; create it with PUT /v1/bandits/{name}")

    def add(self, bandit: LiveBandit) -> None:
        """Serve a bandit from now on."""
        self._last = max(self._last, bandit.record.number)
        self[bandit.record.name] = self._numbers[bandit.record.number] = bandit

    def next_number(self) -> int:
        """The number of the next bandit."""
        return self._last + 1

    def _adopt(self, record: Bandit, store: Store) -> None:
        """Serve a bandit of the store: take its last snapshot and fold in the log since."""
        settings = msgspec.json.decode(record.settings, type=BanditSettings)
        if settings.policy not in POLICIES:
            self._set_aside(record, settings.policy)
            return
        learner = Learner(settings, record.seed)
        try:
            if (kept := store.snapshot(record.number)) is not None:
                learner = Learner.restore(settings, record.seed, kept.body)
        except (DamageError, ValueError, KeyError, TypeError) as error:
            log.warning("bandit %s: its snapshot is of no use (%r); its whole log is folded", record.name, error)
        saved = learner.place
        for event in events(store, record.number, learner.place):
            learner.apply(event)
        held = self._clock.at_least(learner.clock) + min(GRACE, settings.reward_window)
        self.add(LiveBandit(record, settings, learner, Vectors(settings), saved, held=held))
        self._touch(self[record.name])

    def _set_aside(self, record: Bandit, policy: str) -> None:
        """Keep a bandit in the store, and serve the others."""
        self._last = max(self._last, record.number)
        self._unserved[record.name] = (
            f"bandit {record.name!r} is not served: this version of robandit has no policy {policy!r}; create a bandit "
            "of another name. Its log stays in the store, and the version that wrote it still serves it"
        )
        log.error(self._unserved[record.name])

    def catch_up(self, news: Sequence[Item], store: Store, items: list[Item]) -> None:
        """Fold in what other processes have written to this store. Decisions without a place get theirs."""
        for item in news:
            if isinstance(item, Bandit):
                if item.name not in self:
                    self._adopt(item, store)
            elif bandit := self._numbers.get(item.bandit):
                if item.place == UNPLACED:
                    # Events with later times may have a place already, and time never goes back.
                    at = max(item.event.at, bandit.learner.clock)
                    self.put(bandit, msgspec.structs.replace(item.event, at=at), items)
                else:
                    self.hear(bandit, item)

    def hear_all(self, entries: Sequence[LogEntry]) -> None:
        """Fold in what other processes have written about bandits that are known here; others' logs are read later."""
        for entry in entries:
            if bandit := self._numbers.get(entry.bandit):
                self.hear(bandit, entry)

    def hear(self, bandit: LiveBandit, entry: LogEntry) -> None:
        """Fold in an event of the store, unless it is known here: there are two ways to hear of it."""
        place = bandit.learner.place
        if entry.place > place + 1:
            raise DamageError(f"bandit {bandit.record.name!r}: event {entry.place} comes after event {place}")
        if entry.place == place + 1:
            bandit.learner.apply(entry.event)
            self._touch(bandit)

    # What happens to a bandit now and later.

    def put(self, bandit: LiveBandit, event: Event, items: list[Item]) -> None:
        """Fold an event in, and have it written."""
        bandit.learner.apply(event)
        bandit.fresh[KINDS[type(event)], event.id] = event
        items.append(LogEntry(bandit.record.number, bandit.learner.place, event))
        self._touch(bandit)

    def find(self, bandit: LiveBandit, id: str, *, final: bool) -> Event | None:  # noqa: A002
        """The decision of an id, or its reward or default, whether it is written or about to be."""
        return bandit.fresh.get((int(final), id)) or self._readable(bandit).find(bandit.record.number, id, final=final)

    def page(self, bandit: LiveBandit, after: int) -> list[bytes]:
        """Some events after a place of a bandit's log, as far as it is written."""
        return self._readable(bandit).page(bandit.record.number, after)

    def copy_on(self, copying: Generator[None, None, None], items: list[Item]) -> bool:
        """Copy a little more of the store; whether there is more. Only the copy fails if that fails."""
        if self.busy:
            raise StoreBusyError
        try:
            return next(copying, True) is None
        except Exception as error:
            raise Refused(507, f"no copy was made: {error}") from error

    def _readable(self, bandit: LiveBandit) -> Store:
        if self.busy:
            raise StoreBusyError
        return self._store.lane(bandit.record.number % LANES) if self._store.shared else self._store

    def written(self, items: Sequence[Item]) -> None:
        """Note that these can be found in the store."""
        for item in items:
            if isinstance(item, LogEntry):
                self._numbers[item.bandit].fresh.pop((KINDS[type(item.event)], item.event.id), None)

    def _touch(self, bandit: LiveBandit) -> None:
        self._changed.add(bandit)
        if not bandit.timed and bandit.learner.pending:
            bandit.timed = True
            oldest = next(iter(bandit.learner.pending.values()))
            closes = max(oldest.at + bandit.settings.reward_window, bandit.held)
            heapq.heappush(self._timers, (closes, bandit.record.number))

    def close(self, bandit: LiveBandit, items: list[Item]) -> None:
        """Close the windows of a bandit that are over, or as many as one slice has time for."""
        now, end = self._clock(), perf_counter() + SLICE
        while now >= bandit.held and (found := bandit.learner.due(now, 20)):
            for event in found:
                self.put(bandit, event, items)
            if perf_counter() >= end:
                break

    def close_late(self, bandit: LiveBandit, id: str, items: list[Item]) -> None:  # noqa: A002
        """Close the window of one pending decision if it is over: `close` may have had no time for it."""
        if (now := self._clock()) >= bandit.held and bandit.learner.is_over(id, now):
            self.put(bandit, bandit.learner.closing(id, now), items)

    def due(self) -> LiveBandit | None:
        """The next bandit that has windows that are over, once; `close_due` closes them."""
        if not self._timers or self._timers[0][0] > self._clock():
            return None
        return self._numbers[heapq.heappop(self._timers)[1]]

    def close_due(self, bandit: LiveBandit, items: list[Item]) -> None:
        """Close windows of a bandit that was due. If there are more, it is due again."""
        bandit.timed = False
        self.close(bandit, items)
        self._touch(bandit)

    def changed(self) -> list[LiveBandit]:
        """Bandits that have changed since this was last asked."""
        found, self._changed = list(self._changed), set()
        return found

    # Snapshots. No promise depends on them.

    def snapshots(self, items: Sequence[Item]) -> list[Snapshot]:
        """Snapshots of those that these items, the last so far, change, and that have changed much since the last one.
        Large ones are rarer."""
        changed = {item.bandit for item in items if isinstance(item, LogEntry)}
        return [
            self._keep(one)
            for one in map(self._numbers.__getitem__, sorted(changed))
            if one.learner.place - one.saved >= max(SNAPSHOT_EVERY, len(one.learner.pending))
        ]

    def all_snapshots(self) -> list[Snapshot]:
        """Snapshots of all that have changed since the last one."""
        return [self._keep(bandit) for bandit in self.values() if bandit.learner.place > bandit.saved]

    def _keep(self, bandit: LiveBandit) -> Snapshot:
        bandit.saved = bandit.learner.place
        return Snapshot(bandit.record.number, bandit.saved, bandit.learner.snapshot())
