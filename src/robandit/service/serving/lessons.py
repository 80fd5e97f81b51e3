"""Changes for which a policy has to learn the log first: it does so aside, and the old one acts until then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from robandit.service.learning.classroom import Classroom
from robandit.service.learning.kept import first_student
from robandit.service.learning.student import Student
from robandit.service.refused import Gone, LogCut, Refused
from robandit.service.serving.change_queue import Queue
from robandit.service.serving.life import LifeCycle
from robandit.service.serving.live import Bandits
from robandit.service.serving.live_bandit import LiveBandit
from robandit.service.serving.refolds import FoldPlan, plan_for
from robandit.service.stores.store import Item
from robandit.wire.changes import Change, ChangeMade, ChangeWaits
from robandit.wire.events import Changed
from robandit.wire.types import BanditSettings

log = logging.getLogger("robandit.service")

PATIENCE = 2.0
"""Seconds after which a request is answered that its change is not made yet."""
NEAR = 500
"""Number of events that a policy may learn in the service's own process, a few at a time."""

SEATS = 2
"""Number of policies that learn in processes of their own at a time. A change of every bandit must not fill the
machine's memory with them."""


@dataclass(eq=False)
class Lesson:
    """A policy that learns a log, for a change."""

    wanted: Change
    room: Classroom[Student] | None = None
    task: asyncio.Task[Changed] = field(init=False)

    @property
    def learnt(self) -> int:
        """Place of the last event learnt so far."""
        return 0 if self.room is None else self.room.learnt


class Lessons:
    """Makes changes. Of each bandit, one policy at a time learns the log."""

    def __init__(self, life: LifeCycle, bandits: Bandits, queue_of: Callable[[LiveBandit], Queue]) -> None:
        self._life, self._bandits, self._queue_of = life, bandits, queue_of
        self._running: dict[int, Lesson] = {}
        self._seats = asyncio.Semaphore(SEATS)

    async def change(self, bandit: LiveBandit, wanted: Change) -> ChangeMade | ChangeWaits:
        """Make a change, or repeat the answer, or say how far the policy is that learns for it."""
        found = await self._queue_of(bandit).ask(partial(self._life.change, bandit, wanted))
        if isinstance(found, Changed):
            return _made(found)
        lesson = self._lesson(bandit, wanted, found)
        await asyncio.wait([lesson.task], timeout=PATIENCE)
        if lesson.task.cancelled():
            raise Refused(503, "the service stops, and the change is not made; ask again, with the same request")
        if lesson.task.done():
            self._running.pop(bandit.record.number, None)
            return _made(lesson.task.result())
        return ChangeWaits(learnt=lesson.learnt, events=bandit.learner.place)

    def _lesson(self, bandit: LiveBandit, wanted: Change, settings: BanditSettings) -> Lesson:
        """The lesson for a change, which begins now unless it began before."""
        there = self._running.get(bandit.record.number)
        if there is not None and there.wanted == wanted:
            return there
        if there is not None and not there.task.done():
            raise Refused(409, "another policy is learning the log, for another change: wait until that is made")
        lesson = Lesson(wanted)
        lesson.task = asyncio.create_task(self._learn(bandit, wanted, settings, lesson))
        lesson.task.add_done_callback(partial(_over, bandit.record.name))
        self._running[bandit.record.number] = lesson
        return lesson

    async def _learn(self, bandit: LiveBandit, wanted: Change, settings: BanditSettings, lesson: Lesson) -> Changed:
        """Learn the log and make the change. Where the log is cut meanwhile, begin again: what was learnt of the part
        that is gone could not be learnt again."""
        while True:
            with suppress(LogCut):
                return await self._learn_once(bandit, wanted, settings, lesson)

    async def _learn_once(
        self, bandit: LiveBandit, wanted: Change, settings: BanditSettings, lesson: Lesson
    ) -> Changed:
        ask = self._queue_of(bandit).ask
        plan: FoldPlan = await ask(partial(plan_for, self._bandits, bandit))
        lesson.room = Classroom(partial(first_student, settings, bandit.record.seed, plan.kept))
        async with self._seats if bandit.learner.place - plan.begins > NEAR else nullcontext():
            student = await lesson.room.teach(self._pages(bandit, plan))
        finish = partial(self._life.finish, bandit, wanted, student, plan.edition)
        found: Changed | None = None
        while found is None:
            found = await ask(finish)
        return found

    async def _pages(self, bandit: LiveBandit, plan: FoldPlan) -> AsyncIterator[list[bytes]]:
        """The log, up to a few events that it may grow by meanwhile."""
        ask, after = self._queue_of(bandit).ask, plan.begins

        def page(items: list[Item]) -> list[bytes]:
            if bandit.learner.life.erased is not None:
                raise Gone(bandit.record.name)
            if bandit.learner.life.edition != plan.edition:
                raise LogCut(bandit.record.name)
            return self._bandits.page(bandit, after)

        while bandit.learner.place - after > NEAR:
            found: list[bytes] = await ask(page)
            yield found
            after += len(found)

    def stop(self) -> None:
        """Give up what is not made yet. Whoever asks for it again begins again."""
        for lesson in self._running.values():
            if not lesson.task.done():  # this may be another thread than that of its loop
                lesson.task.get_loop().call_soon_threadsafe(lesson.task.cancel)


def _made(event: Changed) -> ChangeMade:
    after = 0 if event.learnt_after is msgspec.UNSET else event.learnt_after
    return ChangeMade(version=int(event.id), at=event.at, settings=event.settings, learnt_after=after)


def _over(name: str, task: asyncio.Task[Any]) -> None:
    """Log why a change was not made; whoever asks for it hears it, too."""
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("bandit %s: a policy has not learnt its log", name, exc_info=error)
