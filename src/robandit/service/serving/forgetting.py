"""Decisions that are forgotten: a state is folded that has never known them, and they go from the log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter

import msgspec

from robandit.service.clock import ServiceClock
from robandit.service.learning.classroom import Classroom
from robandit.service.learning.kept import Folder, KeptState
from robandit.service.refused import LogCut, Refused
from robandit.service.requests.cost import SLICE
from robandit.service.serving.change_queue import Queue
from robandit.service.serving.live import Bandits
from robandit.service.serving.live_bandit import LiveBandit
from robandit.service.serving.refolds import FoldPlan, pages_for, plan_for
from robandit.service.stores.store import Held, Item, Rewrite
from robandit.wire.events import Blank, Forgot
from robandit.wire.forgetting import ForgetMade, ForgetWaits

log = logging.getLogger("robandit.service")

PATIENCE = 2.0
"""Seconds after which a request is answered that it is not carried out yet."""


@dataclass(eq=False)
class ForgetInWork:
    """Decisions that are being forgotten."""

    ids: tuple[str, ...]
    room: Classroom[Folder] | None = None
    task: asyncio.Task[ForgetMade] = field(init=False)


@dataclass(frozen=True)
class _There:
    """Where the events of some ids are."""

    events: list[Held]
    """Decisions, rows of history, rewards and defaults that can go."""
    unknown: list[str]
    """Ids that the log does not know."""
    cut: list[str]
    """Ids of decisions that stay since the log was cut after them, while they were open."""

    @property
    def ids(self) -> frozenset[str]:
        """The ids that can go."""
        return frozenset(one.id for one in self.events)


class Forgetting:
    """Forgets decisions, in one bandit for one request at a time."""

    def __init__(self, bandits: Bandits, clock: ServiceClock, queue_of: Callable[[LiveBandit], Queue]) -> None:
        self._bandits, self._clock, self._queue_of = bandits, clock, queue_of
        self._running: dict[int, ForgetInWork] = {}
        self._alone = asyncio.Lock()  # one process at a time, whatever number of bandits

    async def forget(self, bandit: LiveBandit, ids: Sequence[str]) -> ForgetMade | ForgetWaits:
        """Forget decisions, or say how far that is."""
        work = self._begin(bandit, tuple(dict.fromkeys(ids)))
        await asyncio.wait([work.task], timeout=PATIENCE)
        if work.task.cancelled():
            raise Refused(503, "the service stops, and nothing is forgotten; ask again, with the same request")
        if not work.task.done():
            return ForgetWaits(folded=0 if work.room is None else work.room.learnt, events=bandit.learner.place)
        self._running.pop(bandit.record.number, None)
        return work.task.result()

    def _begin(self, bandit: LiveBandit, ids: tuple[str, ...]) -> ForgetInWork:
        """The work on a request, which begins now unless it began before."""
        there = self._running.get(bandit.record.number)
        if there is not None and there.ids == ids:
            return there
        if there is not None and not there.task.done():
            raise Refused(409, "other decisions of this bandit are being forgotten: wait until that is done")
        work = ForgetInWork(ids)
        work.task = asyncio.create_task(self._forget(bandit, work))
        self._running[bandit.record.number] = work
        return work

    async def _forget(self, bandit: LiveBandit, work: ForgetInWork) -> ForgetMade:
        async with self._alone:
            while True:
                try:
                    return await self._once(bandit, work)
                except LogCut:  # or another policy acts by now
                    continue

    async def _once(self, bandit: LiveBandit, work: ForgetInWork) -> ForgetMade:
        """Fold a state without these decisions, and let it be the bandit's."""
        ask, there = self._queue_of(bandit).ask, None
        while there is None:
            there = await ask(partial(self._find, bandit, work.ids))
        if not there.events:
            return ForgetMade(decisions=0, unknown=there.unknown, cut=there.cut)
        plan: FoldPlan = await ask(partial(plan_for, self._bandits, bandit))
        work.room = plan.room(without=there.ids)
        pages = pages_for(plan, partial(self._bandits.page, bandit), self._queue_of(bandit), work.room)
        body = await asyncio.to_thread((await work.room.teach(pages)).state)
        folder = await asyncio.to_thread(_go_on, plan, msgspec.msgpack.decode(body, type=KeptState), there.ids)
        done: ForgetMade | None = None
        while done is None:
            done = await ask(partial(self._finish, bandit, work.ids, plan, folder, there.ids))
        return done

    def _find(self, bandit: LiveBandit, ids: Sequence[str], items: list[Item]) -> _There | None:
        """Where the events of these ids are; None while some are being written."""
        if any((kind, one) in bandit.fresh for one in ids for kind in (0, 1)):
            return None
        events, unknown, cut = list[Held](), list[str](), list[str]()
        for one in ids:
            held = self._bandits.held(bandit, one)
            if not held:
                unknown.append(one)
            elif held[0].place <= bandit.learner.life.begins:
                cut.append(one)
            else:
                events += held
        return _There(events, unknown, cut)

    def _finish(
        self,
        bandit: LiveBandit,
        ids: Sequence[str],
        plan: FoldPlan,
        folder: Folder,
        without: frozenset[str],
        items: list[Item],
    ) -> ForgetMade | None:
        """Fold what is new in the log, for one slice; once all is folded, let the state be the bandit's."""
        if not plan.fits(self._bandits):
            raise LogCut(bandit.record.name)
        end = perf_counter() + SLICE
        for event in self._bandits.after(bandit, folder.place):
            folder.apply(event)
            if perf_counter() >= end:
                break
        there = self._find(bandit, ids, items)
        if there is None or folder.place < bandit.learner.place:
            return None
        if there.ids != without:
            raise LogCut(bandit.record.name)
        return self._install(bandit, folder, there, items)

    def _install(self, bandit: LiveBandit, folder: Folder, there: _There, items: list[Item]) -> ForgetMade:
        """Let a state be the bandit's, and its events go."""
        number, at = bandit.record.number, self._clock.at_least(bandit.learner.clock)
        for one in there.events:
            event = self._bandits.find(bandit, one.id, final=bool(one.kind))
            assert event is not None
            items.append(Rewrite(number, one.place, Blank(id=str(one.place), at=event.at)))
        decisions = sum(one.kind == 0 for one in there.events)
        event = Forgot(id=str(bandit.learner.life.forgotten + 1), at=at, decisions=decisions)
        self._bandits.replace(bandit, folder.learner, event, items)
        log.warning("bandit %s: %d decisions are forgotten", bandit.record.name, decisions)
        return ForgetMade(decisions=decisions, unknown=there.unknown, cut=there.cut)

    def stop(self) -> None:
        """Give up what is not done yet. Whoever asks for it again begins again."""
        for work in self._running.values():
            if not work.task.done():  # this may be another thread than that of its loop
                work.task.get_loop().call_soon_threadsafe(work.task.cancel)


def _go_on(plan: FoldPlan, kept: KeptState, without: frozenset[str]) -> Folder:
    """Go on in this process from what was folded in another."""
    later = {name: event for name, event in plan.changes.items() if name in kept.students}
    return Folder(plan.bandit.settings, plan.bandit.record.seed, kept, later, without=without)
