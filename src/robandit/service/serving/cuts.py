"""Logs that are cut: their beginning is folded aside, that state is kept, and the events before it go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from robandit.service.clock import ServiceClock
from robandit.service.learning.classroom import Classroom
from robandit.service.learning.kept import Cutter, KeptState, read_kept
from robandit.service.learning.student import needs_refold
from robandit.service.refused import Gone, LogCut, Refused
from robandit.service.serving.change_queue import Queue
from robandit.service.serving.live import Bandits
from robandit.service.serving.live_bandit import LiveBandit
from robandit.service.stores.store import Beginning, Item
from robandit.wire.cuts import CutMade, CutWaits
from robandit.wire.events import Changed, Cut
from robandit.wire.types import BanditSettings

log = logging.getLogger("robandit.service")

PATIENCE = 2.0
"""Seconds after which a request is answered that its log is not cut yet."""
NEAR = 500
"""Number of events that are folded in a thread, and not in a process of its own."""
EVERY = 60.0
"""Seconds after which it is looked again whether the time of some log is over."""
SHARE = 0.05
"""Share of the time that a log is kept, by which it is cut at once: there is no cut for every event."""
_DAY = 86_400.0


@dataclass(frozen=True)
class _Plan:
    """What there is to fold."""

    kept: KeptState | None
    version: int
    """Version of the settings when the plan was made."""
    changes: dict[str, Changed]
    """All changes since the log begins, by id."""

    @property
    def begins(self) -> int:
        """Place after which the log begins."""
        return 0 if self.kept is None else self.kept.place


@dataclass(eq=False)
class _Work:
    """A log that is being cut."""

    keep_days: float
    room: Classroom[Cutter] | None = None
    task: asyncio.Task[None] = field(init=False)


class Cuts:
    """Cuts logs, one of each bandit at a time."""

    def __init__(self, bandits: Bandits, clock: ServiceClock, queue_of: Callable[[LiveBandit], Queue]) -> None:
        self._bandits, self._clock, self._queue_of = bandits, clock, queue_of
        self._running: dict[int, _Work] = {}
        self._alone = asyncio.Lock()  # one process at a time, whatever number of logs
        self._look = 0.0  # when it is looked next whether the time of some log is over

    async def cut(self, bandit: LiveBandit, keep_days: float) -> CutMade | CutWaits:
        """Cut a log, or say how far that is. Where nothing is old enough, nothing happens."""
        work = self._begin(bandit, keep_days)
        await asyncio.wait([work.task], timeout=PATIENCE)
        if work.task.cancelled():
            raise Refused(503, "the service stops, and the log is not cut; ask again, with the same request")
        if not work.task.done():
            return CutWaits(folded=0 if work.room is None else work.room.learnt, events=bandit.learner.place)
        self._running.pop(bandit.record.number, None)
        work.task.result()
        return cut_made(bandit.learner.life.cut) or CutMade()

    def _begin(self, bandit: LiveBandit, keep_days: float) -> _Work:
        """The work on a log, which begins now unless it began before."""
        there = self._running.get(bandit.record.number)
        if there is not None and there.keep_days == keep_days:
            return there
        if there is not None and not there.task.done():
            raise Refused(409, f"the log is being cut, and keeps {there.keep_days:g} days: wait until that is done")
        work = _Work(keep_days)
        work.task = asyncio.create_task(self._cut(bandit, self._clock() - keep_days * _DAY, work))
        self._running[bandit.record.number] = work
        return work

    async def retain(self) -> None:
        """Cut the logs whose time is over."""
        if self._clock() < self._look:
            return
        self._look = self._clock() + EVERY
        for bandit in list(self._bandits.values()):
            days = bandit.settings.retention_days
            if days is not None and await self._queue_of(bandit).ask(partial(self._is_due, bandit, days)):
                before = self._clock() - (1.0 - SHARE) * days * _DAY
                await self._cut(bandit, before, _Work(days))

    def _is_due(self, bandit: LiveBandit, days: float, items: list[Item]) -> bool:
        """Whether the oldest event of a log is too old. The one that says that the log was cut does not count."""
        life = bandit.learner.life
        if life.erased is not None or bandit.learner.place - life.begins <= (life.cut is not None):
            return False
        first = self._bandits.first_at(bandit)
        return first is not None and first < self._clock() - days * _DAY

    async def _cut(self, bandit: LiveBandit, before: float, work: _Work) -> None:
        """Fold the log up to a time, and let it begin there. If another process cuts it meanwhile, or a policy changes,
        begin again."""
        ask = self._queue_of(bandit).ask
        async with self._alone:
            while True:
                plan: _Plan = await ask(partial(self._plan, bandit))
                settings = msgspec.json.decode(bandit.record.settings, type=BanditSettings)
                make = partial(Cutter, settings, bandit.record.seed, plan.kept, plan.changes, before)
                work.room = Classroom(make, aside=bandit.learner.place - plan.begins > NEAR)
                try:
                    cutter = await work.room.teach(self._pages(bandit, plan, before, work.room))
                except LogCut:
                    continue
                body = await asyncio.to_thread(cutter.state)
                kept = msgspec.msgpack.decode(body, type=KeptState)
                if kept.place == plan.begins or await ask(partial(self._install, bandit, plan, kept, body)):
                    return

    def _plan(self, bandit: LiveBandit, items: list[Item]) -> _Plan:
        """What there is to fold now."""
        if bandit.learner.life.erased is not None:
            raise Gone(bandit.record.name)
        kept, version = read_kept(self._bandits.beginning(bandit)), bandit.learner.life.version
        since = 1 if kept is None else kept.version
        changes = [self._bandits.change_to(bandit, number) for number in range(since + 1, version + 1)]
        return _Plan(kept, version, {event.id: event for event in changes})

    async def _pages(
        self, bandit: LiveBandit, plan: _Plan, before: float, room: Classroom[Cutter]
    ) -> AsyncIterator[list[bytes]]:
        """The log up to a time, and a little more. Where nothing is that old, nothing."""
        after = plan.begins

        def page(items: list[Item]) -> list[bytes]:
            if bandit.learner.life.erased is not None:
                raise Gone(bandit.record.name)
            if bandit.learner.life.begins != plan.begins:
                raise LogCut(bandit.record.name)
            first = self._bandits.first_at(bandit)
            return [] if first is None or first >= before else self._bandits.page(bandit, after)

        while found := await self._queue_of(bandit).ask(page):
            yield found
            after += len(found)
            if room.learnt < after:
                return

    def _install(self, bandit: LiveBandit, plan: _Plan, kept: KeptState, body: bytes, items: list[Item]) -> bool:
        """Let a log begin with this state; whether it still fits."""
        life = bandit.learner.life
        if life.erased is not None:
            raise Gone(bandit.record.name)
        new = [self._bandits.change_to(bandit, number) for number in range(plan.version + 1, life.version + 1)]
        if life.begins != plan.begins or any(map(needs_refold, new)):
            return False
        number, open_ = bandit.record.number, kept.open
        at = self._clock.at_least(bandit.learner.clock)
        event = Cut(
            id=str(kept.place), at=at, place=kept.place, before=kept.at, decisions=kept.decisions, open=len(open_)
        )
        begins = Beginning(number, kept.place, msgspec.msgpack.encode(open_), body)
        self._bandits.begin(bandit, begins, event, items)
        log.warning("bandit %s: its log is cut, and begins after event %d", bandit.record.name, kept.place)
        return True

    def stop(self) -> None:
        """Give up what is not done yet. Whoever asks for it again begins again."""
        for work in self._running.values():
            if not work.task.done():  # this may be another thread than that of its loop
                work.task.get_loop().call_soon_threadsafe(work.task.cancel)


def cut_made(event: Cut | None) -> CutMade | None:
    """Where a log begins, as answers say it."""
    if event is None:
        return None
    return CutMade(
        events=event.place, decisions=event.decisions, kept_open=event.open, before=event.before, at=event.at
    )
