"""The bandits that are being served: how they are loaded, kept up to date, kept in snapshots, and closed in time."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Generator, Iterator, Sequence
from functools import partial
from itertools import islice
from time import perf_counter

import msgspec

from robandit.policies import POLICIES, Policy
from robandit.service.clock import GRACE, ServiceClock
from robandit.service.learning.learner import Learner
from robandit.service.learning.student import UnknownPolicyError, needs_refold
from robandit.service.refused import Refused
from robandit.service.requests.cost import SLICE
from robandit.service.requests.vectors import Vectors
from robandit.service.serving.leftovers import Leftovers
from robandit.service.serving.live_bandit import LiveBandit, StoreBusyError
from robandit.service.serving.loading import load
from robandit.service.stores.store import (
    KINDS,
    LANES,
    UNPLACED,
    Bandit,
    Beginning,
    DamageError,
    Held,
    Item,
    LogEntry,
    Snapshot,
    Store,
    StorePart,
    open_ids,
    read_tombstone,
)
from robandit.wire.events import Changed, Cut, Erased, Event, Forgot, decode
from robandit.wire.types import BanditSettings

log = logging.getLogger("robandit.service")

SNAPSHOT_EVERY = 20_000
"""Least number of events from one snapshot of a bandit to the next."""


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
        self.gone: dict[str, Erased] = {}
        """The last bandits of their names that were deleted."""
        self.leftovers = Leftovers()
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
        if (erased := read_tombstone(record)) is not None:
            self._bury(record.number, erased)
            return
        settings = msgspec.json.decode(record.settings, type=BanditSettings)
        if settings.policy not in POLICIES:
            self._set_aside(record, settings.policy)
            return
        try:
            learner, saved = load(record, settings, store)
        except UnknownPolicyError as error:
            self._set_aside(record, str(error))
            return
        if learner.life.erased is not None:
            self._bury(record.number, learner.life.erased)
            return
        held = self._clock.at_least(learner.clock) + min(GRACE, learner.settings.reward_window)
        self.add(LiveBandit(record, learner, Vectors(settings), saved, held=held))
        self.leftovers.cut(record.number, learner.life.begins)
        self._touch(self[record.name])

    def _bury(self, number: int, erased: Erased) -> None:
        """Remember a bandit that was deleted, until its events have gone too."""
        self._last = max(self._last, number)
        self.gone[erased.name] = erased
        self.leftovers.deleted(number)

    def _set_aside(self, record: Bandit, policy: str) -> None:
        """Keep a bandit in the store, and serve the others."""
        self._last = max(self._last, record.number)
        self._unserved[record.name] = (
            f"bandit {record.name!r} is not served: this version of robandit has no policy {policy!r}; create a bandit "
            "of another name. Its log stays in the store, and the version that wrote it still serves it"
        )
        log.error(self._unserved[record.name])

    def catch_up(self, news: Sequence[Item], store: Store, items: list[Item]) -> None:
        """Fold in what other processes have written to this store. Decisions without a place get theirs. Of a bandit
        that was deleted, some of it is gone."""
        for item in news:
            if isinstance(item, Bandit) and item.number not in self._numbers:  # its name may be that of a deleted one
                self._adopt(item, store)
        entries = [item for item in news if isinstance(item, LogEntry)]
        self.hear_all([one for one in entries if one.place != UNPLACED], store)
        for one in entries:
            bandit = self._numbers.get(one.bandit)
            if one.place == UNPLACED and bandit is not None and bandit.learner.life.erased is None:
                # Events with later times may have a place already, and time never goes back.
                at = max(one.event.at, bandit.learner.clock)
                self.put(bandit, msgspec.structs.replace(one.event, at=at), items)

    def hear_all(self, entries: Sequence[LogEntry], store: Store | StorePart) -> None:
        """Fold in what other processes have written about bandits that are known here; others' logs are read later.
        ``store`` is what they were read from: a look into another one could wait for a lock, or leave one open."""
        deleted = {one.bandit for one in entries if isinstance(one.event, Erased)}
        for entry in entries:
            if (bandit := self._numbers.get(entry.bandit)) and (
                entry.bandit not in deleted or isinstance(entry.event, Erased)
            ):
                self.hear(bandit, entry, store)

    def hear(self, bandit: LiveBandit, entry: LogEntry, store: Store | StorePart) -> None:
        """Fold in an event of the store, unless it is known here: there are two ways to hear of it."""
        if entry.place > bandit.learner.place + 1:
            self._reload(bandit, store)
        place = bandit.learner.place
        if entry.place > place + 1 and not isinstance(entry.event, Erased):  # before which there are gaps
            raise DamageError(f"bandit {bandit.record.name!r}: event {entry.place} comes after event {place}")
        if entry.place > place:
            self._take(bandit, entry, store)
            self._applied(bandit, entry.event)

    def _reload(self, bandit: LiveBandit, store: Store | StorePart) -> None:
        """Go on from the beginning of a log that was cut after what is known here: the events in between are gone."""
        beginning = store.beginning(bandit.record.number)
        if beginning is not None and beginning.place > bandit.learner.place:
            self._load_again(bandit, store)
            self.leftovers.cut(bandit.record.number, bandit.learner.life.begins)

    def _load_again(self, bandit: LiveBandit, store: Store | StorePart) -> None:
        """Take the state from the store: some of what it follows from is gone."""
        first = msgspec.json.decode(bandit.record.settings, type=BanditSettings)
        bandit.learner, bandit.saved = load(bandit.record, first, store)
        bandit.oldest, bandit.timed, bandit.seen = None, False, 0
        self._touch(bandit)

    def _take(self, bandit: LiveBandit, entry: LogEntry, store: Store | StorePart) -> None:
        """Fold in what another process wrote. Where a new policy acts, or something was forgotten, that process has
        kept a snapshot as well."""
        if isinstance(entry.event, Forgot) or needs_refold(entry.event):
            self._load_again(bandit, store)
        else:
            bandit.learner.apply(entry.event)

    # What happens to a bandit now and later.

    def put(self, bandit: LiveBandit, event: Event, items: list[Item], fresh: Policy | None = None) -> None:
        """Fold an event in, and have it written. From now on ``fresh`` acts, if there is one."""
        bandit.learner.apply(event, fresh)
        bandit.fresh[KINDS[type(event)], event.id] = event
        bandit.switched |= fresh is not None
        items.append(LogEntry(bandit.record.number, bandit.learner.place, event))
        self._applied(bandit, event)

    def after(self, bandit: LiveBandit, place: int) -> Iterator[Event]:
        """All events after a place, those that are being written too."""
        while page := self.page(bandit, place):
            yield from map(decode, page)
            place += len(page)
        written = bandit.learner.place - len(bandit.fresh)
        yield from islice(tuple(bandit.fresh.values()), place - written, None)

    def find(self, bandit: LiveBandit, id: str, *, final: bool) -> Event | None:  # noqa: A002
        """The decision of an id, or its reward or default, whether it is written or about to be."""
        number = bandit.record.number
        return bandit.fresh.get((int(final), id)) or self._readable(number).find(number, id, final=final)

    def page(self, bandit: LiveBandit, after: int) -> list[bytes]:
        """Some events after a place of a bandit's log, as far as it is written."""
        return self._readable(bandit.record.number).page(bandit.record.number, after)

    def copy_on(self, copying: Generator[None, None, None], items: list[Item]) -> bool:
        """Copy a little more of the store; whether there is more. Only the copy fails if that fails."""
        if self.busy:
            raise StoreBusyError
        try:
            return next(copying, True) is None
        except Exception as error:
            raise Refused(507, f"no copy was made: {error}") from error

    def _readable(self, number: int) -> Store:
        """The store of a bandit's lane, if it can be read now."""
        if self.busy:
            raise StoreBusyError
        return self._store.lane(number % LANES) if self._store.shared else self._store

    def written(self, items: Sequence[Item]) -> None:
        """Note that these can be found in the store."""
        for item in items:
            if isinstance(item, LogEntry) and item.bandit in self._numbers:
                self._numbers[item.bandit].fresh.pop((KINDS[type(item.event)], item.event.id), None)
            elif isinstance(item, Beginning) and item.bandit in self._numbers:
                self._numbers[item.bandit].begun = None

    def _applied(self, bandit: LiveBandit, event: Event) -> None:
        """Note that an event was folded in."""
        if isinstance(event, Erased):
            self._drop(bandit, event)
            return
        if isinstance(event, Cut):
            bandit.oldest = None
            self.leftovers.cut(bandit.record.number, event.place)
        if isinstance(event, Changed):  # windows may be shorter now, or open again
            bandit.timed = False
            if event.settings.get("archived") is False:
                bandit.held = self._clock() + min(GRACE, bandit.settings.reward_window)
        self._touch(bandit)

    def _drop(self, bandit: LiveBandit, event: Erased) -> None:
        """Serve a bandit no more."""
        if self.get(event.name) is bandit:
            del self[event.name]
        self._bury(bandit.record.number, event)

    def purge(self, number: int, items: list[Item]) -> None:
        """Let the next events go of a deleted bandit, or of a log that was cut."""
        self.leftovers.purge(number, self._numbers.get(number), partial(self._readable, number), items)
        if number not in self.leftovers and (bandit := self._numbers.get(number)) and bandit.learner.life.erased:
            del self._numbers[number]

    def carried(self, bandit: LiveBandit) -> list[str]:
        """The ids of the decisions that stay although the log was cut after them."""
        beginning = self.beginning(bandit)
        return [] if beginning is None else open_ids(beginning)

    def first_at(self, bandit: LiveBandit) -> float | None:
        """Time of the first event of a log, as far as it is written."""
        if bandit.oldest is None:
            found = self.page(bandit, bandit.learner.life.begins)
            bandit.oldest = decode(found[0]).at if found else None
        return bandit.oldest

    def beginning(self, bandit: LiveBandit) -> Beginning | None:
        """What a log begins with that was cut, whether it is written or about to be."""
        number = bandit.record.number
        if bandit.learner.life.begins == 0:
            return None
        return bandit.begun or self._readable(number).beginning(number)

    def begin(self, bandit: LiveBandit, kept: Beginning, event: Cut, items: list[Item]) -> None:
        """Let a log begin with a state that is kept. A snapshot of now comes with it, for a quick start."""
        bandit.begun, bandit.switched = kept, True
        items.append(kept)
        self.put(bandit, event, items)

    def replace(self, bandit: LiveBandit, learner: Learner, event: Forgot, items: list[Item]) -> None:
        """Go on with another state, from an event on. A snapshot comes with it, so that nobody finds the old one."""
        bandit.learner, bandit.switched, bandit.seen = learner, True, 0
        bandit.timed = False
        self.put(bandit, event, items)

    def held(self, bandit: LiveBandit, id: str) -> list[Held]:  # noqa: A002
        """Where the decision of an id and its reward are, as far as they are written."""
        return self._readable(bandit.record.number).held(bandit.record.number, id)

    def change_to(self, bandit: LiveBandit, version: int) -> Changed:
        """The change that made a version of the settings, since the log began."""
        number, kind = bandit.record.number, KINDS[Changed]
        found = bandit.fresh.get((kind, str(version))) or self._readable(number).change(number, version)
        if not isinstance(found, Changed):
            raise DamageError(f"bandit {bandit.record.name!r}: the change to version {version} is missing")
        return found

    def _touch(self, bandit: LiveBandit) -> None:
        self._changed.add(bandit)
        if not bandit.timed and bandit.learner.pending and not bandit.learner.life.archived:
            bandit.timed = True
            oldest = next(iter(bandit.learner.pending.values()))
            closes = max(oldest.at + bandit.settings.reward_window, bandit.held)
            heapq.heappush(self._timers, (closes, bandit.record.number))

    def close(self, bandit: LiveBandit, items: list[Item]) -> None:
        """Close the windows of a bandit that are over, or as many as one slice has time for; none while it is archived,
        since no reward can come."""
        if bandit.learner.life.archived:
            return
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
        while self._timers and self._timers[0][0] <= self._clock():
            bandit = self._numbers.get(heapq.heappop(self._timers)[1])
            if bandit is not None:  # and not deleted
                return bandit
        return None

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
            if one.learner.life.erased is None
            and (one.switched or one.learner.place - one.saved >= max(SNAPSHOT_EVERY, len(one.learner.pending)))
        ]

    def all_snapshots(self) -> list[Snapshot]:
        """Snapshots of all that have changed since the last one."""
        return [self._keep(bandit) for bandit in self.values() if bandit.learner.place > bandit.saved]

    def _keep(self, bandit: LiveBandit) -> Snapshot:
        bandit.saved, bandit.switched = bandit.learner.place, False
        return Snapshot(bandit.record.number, bandit.saved, bandit.learner.snapshot())
