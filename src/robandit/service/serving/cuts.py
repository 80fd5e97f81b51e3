"""Logs that are cut: their beginning is folded aside, that state is kept, and the events before it go."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import msgspec

from robandit.service.clock import ServiceClock
from robandit.service.learning.classroom import Classroom
from robandit.service.learning.kept import Folder, KeptState
from robandit.service.refused import LogCut, Refused
from robandit.service.serving.change_queue import Queue
from robandit.service.serving.live import Bandits
from robandit.service.serving.live_bandit import LiveBandit
from robandit.service.serving.refolds import FoldPlan, pages_for, plan_for
from robandit.service.stores.store import Beginning, Item
from robandit.wire.cuts import CutMade, CutWaits
from robandit.wire.events import Cut

log = logging.getLogger("robandit.service")

PATIENCE = 2.0
"""Seconds after which a request is answered that its log is not cut yet."""
EVERY = 60.0
"""Seconds after which it is looked again whether the time of some log is over."""
SHARE = 0.05
"""Share of the time that a log is kept, by which it is cut at once: there is no cut for every event."""
_DAY = 86_400.0


@dataclass(eq=False)
class CutInWork:
    """A log that is being cut."""

    keep_days: float
    room: Classroom[Folder] | None = None
    task: asyncio.Task[None] = field(init=False)


class Cuts:
    """Cuts logs, one of each bandit at a time."""

    def __init__(self, bandits: Bandits, clock: ServiceClock, queue_of: Callable[[LiveBandit], Queue]) -> None:
        self._bandits, self._clock, self._queue_of = bandits, clock, queue_of
        self._running: dict[int, CutInWork] = {}
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

    def _begin(self, bandit: LiveBandit, keep_days: float) -> CutInWork:
        """The work on a log, which begins now unless it began before."""
        there = self._running.get(bandit.record.number)
        if there is not None and there.keep_days == keep_days:
            return there
        if there is not None and not there.task.done():
            raise Refused(409, f"the log is being cut, and keeps {there.keep_days:g} days: wait until that is done")
        work = CutInWork(keep_days)
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
                await self._cut(bandit, before, CutInWork(days))

    def _is_due(self, bandit: LiveBandit, days: float, items: list[Item]) -> bool:
        """Whether the oldest event of a log is too old. The one that says that the log was cut does not count."""
        life = bandit.learner.life
        if life.erased is not None or bandit.learner.place - life.begins <= (life.cut is not None):
            return False
        first = self._bandits.first_at(bandit)
        return first is not None and first < self._clock() - days * _DAY

    async def _cut(self, bandit: LiveBandit, before: float, work: CutInWork) -> None:
        """Fold the log up to a time, and let it begin there. If another process cuts it meanwhile, or a policy changes,
        begin again."""
        ask = self._queue_of(bandit).ask
        async with self._alone:
            while True:
                plan: FoldPlan = await ask(partial(plan_for, self._bandits, bandit))
                work.room = plan.room(before=before)
                pages = pages_for(plan, partial(self._page, bandit, before), self._queue_of(bandit), work.room)
                try:
                    folder = await work.room.teach(pages)
                except LogCut:
                    continue
                body = await asyncio.to_thread(folder.state)
                kept = msgspec.msgpack.decode(body, type=KeptState)
                if kept.place == plan.begins or await ask(partial(self._install, bandit, plan, kept, body)):
                    return

    def _page(self, bandit: LiveBandit, before: float, after: int) -> list[bytes]:
        """The next events; none where nothing is so old."""
        first = self._bandits.first_at(bandit)
        return [] if first is None or first >= before else self._bandits.page(bandit, after)

    def _install(self, bandit: LiveBandit, plan: FoldPlan, kept: KeptState, body: bytes, items: list[Item]) -> bool:
        """Let a log begin with this state; whether it still fits."""
        if not plan.fits(self._bandits):
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
