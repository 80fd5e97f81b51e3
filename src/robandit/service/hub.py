"""A service without HTTP: takes requests to bandits, their events to the store, and the answers back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from robandit.monitor.certificate import Certificate
from robandit.service.clock import ServiceClock, ticks
from robandit.service.learning.looker import look
from robandit.service.refused import Gone, LogCut, Refused, check_rewards
from robandit.service.requests.cost import check_decisions
from robandit.service.serving import activity, reports
from robandit.service.serving.alarms import Alarms
from robandit.service.serving.change_queue import Done, Queue
from robandit.service.serving.changes import Changes
from robandit.service.serving.cuts import Cuts
from robandit.service.serving.forgetting import Forgetting
from robandit.service.serving.imports import Imports, told
from robandit.service.serving.lanes import Lanes
from robandit.service.serving.lessons import Lessons
from robandit.service.serving.life import LifeCycle
from robandit.service.serving.live import Bandits
from robandit.service.serving.live_bandit import LiveBandit
from robandit.service.stores.store import DamageError, Item, Store, StoreError, append
from robandit.wire.activity import ActivityReport
from robandit.wire.alarms import Acknowledgement, AcknowledgementMade
from robandit.wire.changes import Change, ChangeMade, ChangeWaits, Deleted
from robandit.wire.cuts import CutMade, CutWaits
from robandit.wire.events import Erased, pack
from robandit.wire.forgetting import ForgetMade, ForgetWaits
from robandit.wire.imports import HistoryRow, ImportDone
from robandit.wire.types import (
    Answered,
    BanditSettings,
    Choice,
    ChoiceBlock,
    Chosen,
    Feedback,
    NamedChoice,
    Outcome,
    Status,
)

T = TypeVar("T")
R = TypeVar("R")
log = logging.getLogger("robandit.service")

_AT_ONCE = 20  # of many decisions, or rows, on a state that may be old
_LOOKS = 1.1  # factor by which the monitor's rounds grow from look to look


class Hub:
    """The bandits of a store, their time, and the queue through which every change goes."""

    def __init__(
        self,
        store: Store,
        *,
        look: Callable[[dict[str, Any]], Certificate | None] = look,
        ticks: Callable[[], float] = ticks,
        staleness: float | None = None,
    ) -> None:
        """Load all bandits. With ``staleness`` decisions are made on a state that is so many seconds old at most."""
        if found := store.faults():
            raise DamageError(f"the store is damaged: {found[0]}; restore it from a backup")
        self._store, self._look, self.clock = store, look, ServiceClock(store.now, ticks)
        self.bandits = Bandits(store, self.clock)
        self._changes = Changes(self.bandits, self.clock)
        self._lanes = Lanes(store, self.bandits, staleness)
        self._life = LifeCycle(self.bandits, self.clock)
        self._imports = Imports(self.bandits, self.clock)
        self._alarms = Alarms(self.bandits, self.clock)
        self._lessons = Lessons(self._life, self.bandits, self._lanes.of)
        self._cuts = Cuts(self.bandits, self.clock, self._lanes.of)
        self._forgetting = Forgetting(self.bandits, self.clock, self._lanes.of)
        self._ask, self.work = self._lanes.main.ask, self._lanes.work
        self._placed = False
        store.release()

    @property
    def broken(self) -> str | None:
        """The reason why nothing can be written any more."""
        return self._lanes.broken

    # Requests that change something.

    async def create(
        self, name: str, settings: BanditSettings, seed: int | None, given: Iterable[str] | None = None
    ) -> bool:
        """Create a bandit, or confirm that it is there as described; return whether it is new.

        ``given`` are the settings that describe it; by default all do. The others may differ: an older release may have
        chosen them.
        """
        described = settings.__struct_fields__ if given is None else tuple(given)
        if name in self.bandits:  # unless another process has deleted it
            await self.catch_up(name)
        return await self._ask(partial(self._changes.create, name, settings, seed, described))

    async def _on(self, name: str, call: Callable[[LiveBandit], Awaitable[R]]) -> R:
        """Do this with the bandit of a name. If another process has deleted that, there may be a new one."""
        await self._know(name)
        try:
            return await call(self.bandits.named(name))
        except Gone:
            await self._know(name)
            return await call(self.bandits.named(name))

    async def decide(self, name: str, choice: Choice | ChoiceBlock) -> Chosen:
        """Choose an action; with a known ``decision_id``, repeat the answer."""

        async def decide(bandit: LiveBandit) -> Chosen:
            queue, make = self._deciding(bandit)
            found: Chosen = await queue.ask(partial(make, choice))
            return found

        return await self._on(name, decide)

    def decide_soon(self, name: str, choice: Choice | ChoiceBlock, done: Done) -> None:
        """Choose an action as `decide` does, and tell ``done`` the answer or the error."""

        def heard(result: Any) -> None:
            if isinstance(result, Gone):
                self._decide_later(name, choice, done)
            else:
                done(result)

        if name in self.bandits:
            bandit = self.bandits[name]
            queue, decide = self._deciding(bandit)
            together = None if queue is self._lanes.stale else self._changes.together(bandit, choice)
            queue.submit(partial(decide, choice), heard, together)
        else:
            self._decide_later(name, choice, done)

    def _decide_later(self, name: str, choice: Choice | ChoiceBlock, done: Done) -> None:
        """Choose an action once all bandits are known: another process may have created this one."""
        self._lanes.main.submit(lambda items: None, lambda heard: self._decide_heard(name, choice, done, heard))

    def _deciding(self, bandit: LiveBandit) -> tuple[Queue, Callable[..., Any]]:
        """The queue for decisions of a bandit, and what makes one there."""
        if self._lanes.stale is not None:
            return self._lanes.stale, partial(self._changes.draw, bandit)
        return self._lanes.of(bandit), partial(self._changes.decide, bandit)

    def _decide_heard(self, name: str, choice: Choice | ChoiceBlock, done: Done, heard: Exception | None) -> None:
        """Choose an action, now that all bandits are known."""
        if heard is None and name in self.bandits:
            self.decide_soon(name, choice, done)
        else:
            done(heard or self.bandits.unknown(name))

    async def decide_many(self, name: str, choices: Sequence[NamedChoice]) -> list[Answered]:
        """Make many decisions, each as `decide` does. Other requests come in between."""
        check_decisions(choices)
        if self._lanes.stale is None:
            return await self._on(name, lambda bandit: self._in_slices(bandit, self._changes.decide_some, choices))
        found: list[Answered] = []
        while len(found) < len(choices):
            some = choices[len(found) : len(found) + _AT_ONCE]
            found += await asyncio.gather(*(self._answered(name, one) for one in some))
        return found

    async def _answered(self, name: str, choice: NamedChoice) -> Answered:
        """What becomes of one of many decisions."""
        try:
            return Answered(decision_id=choice.decision_id, chosen=await self.decide(name, choice))
        except Refused as error:
            if error.status == 503 or name not in self.bandits:
                raise
            return Answered(decision_id=choice.decision_id, status=error.status, error=str(error))

    async def reward(self, name: str, given: Sequence[Feedback]) -> list[Outcome]:
        """Take rewards in, and say what became of each. Other requests come in between those of a large batch."""

        async def reward(bandit: LiveBandit) -> list[Outcome]:
            check_rewards(bandit.learner.declared, given)
            return await self._in_slices(bandit, self._changes.reward, given)

        return await self._on(name, reward)

    async def _in_slices(
        self, bandit: LiveBandit, do: Callable[[LiveBandit, Sequence[T], list[Item]], list[R]], given: Sequence[T]
    ) -> list[R]:
        """Do this with all that is given, as many at a time as it takes."""
        found: list[R] = []
        while len(found) < len(given):
            found += await self._lanes.of(bandit).ask(partial(do, bandit, given[len(found) :]))
        return found

    async def change(self, name: str, wanted: Change) -> ChangeMade | ChangeWaits:
        """Change the settings of a bandit; the same request again gets the same answer."""
        return await self._on(name, lambda bandit: self._lessons.change(bandit, wanted))

    async def learn_history(self, name: str, rows: Sequence[HistoryRow]) -> ImportDone:
        """Learn from rewards from outside, each once. Other requests come in between."""

        async def learn(bandit: LiveBandit) -> ImportDone:
            ready, found, stale = await self._imports.read(bandit, rows), list[str](), self._lanes.stale
            if stale is None:
                return told(ready, await self._in_slices(bandit, self._imports.learn, ready))
            while len(found) < len(ready):
                some = ready[len(found) : len(found) + _AT_ONCE]
                new = await stale.ask(partial(self._imports.claim, bandit, some))
                heard = await self._in_slices(bandit, self._imports.learn, some)  # which knows those that are new
                found += ["imported" if is_new else what for is_new, what in zip(new, heard, strict=True)]
            return told(ready, found)

        return await self._on(name, learn)

    async def acknowledge(self, name: str, wanted: Acknowledgement, key: str | None = None) -> AcknowledgementMade:
        """Acknowledge what is proved of a bandit, by the key of a name."""

        async def acknowledge(bandit: LiveBandit) -> AcknowledgementMade:
            ask = self._lanes.of(bandit).ask
            found: AcknowledgementMade = await ask(partial(self._alarms.acknowledge, bandit, wanted, key))
            return found

        return await self._on(name, acknowledge)

    async def delete(self, name: str, version: int) -> Deleted:
        """Delete an archived bandit and its log; the same request again gets the same answer."""

        async def delete(bandit: LiveBandit) -> Erased:
            found: Erased = await self._lanes.of(bandit).ask(partial(self._life.delete, bandit, version))
            return found

        try:
            event = await self._on(name, delete)
        except Refused as error:
            known = self.bandits.gone.get(name)
            if error.status == 503 or known is None or known.version != version:
                raise
            event = known  # a retry; somebody may have made another bandit of this name meanwhile
        return Deleted(name=name, version=event.version, at=event.at)

    async def cut(self, name: str, keep_days: float) -> CutMade | CutWaits:
        """Cut a log, so that it keeps the events of so many days."""
        return await self._on(name, lambda bandit: self._cuts.cut(bandit, keep_days))

    async def forget(self, name: str, ids: Sequence[str]) -> ForgetMade | ForgetWaits:
        """Forget decisions, such as those about a person: the state is one then that has never known them."""
        return await self._on(name, lambda bandit: self._forgetting.forget(bandit, ids))

    async def retain(self) -> None:
        """Cut the logs whose time is over."""
        if await self.watches():
            await self._cuts.retain()

    async def purge(self) -> None:
        """Let the events of deleted bandits go, and those of logs that were cut, some at a time."""
        while (number := self.bandits.leftovers.next()) is not None:
            await self._lanes.of_number(number).ask(partial(self.bandits.purge, number))

    async def close_windows(self) -> None:
        """Apply defaults where rewards did not come in time."""
        while (bandit := self.bandits.due()) is not None:
            await self._lanes.of(bandit).ask(partial(self.bandits.close_due, bandit))

    async def place(self) -> None:
        """Give their places to decisions that were made on a state that may be old. Where none are made now, do so
        once, for those of earlier processes."""
        if self._lanes.stale is not None:
            await self._lanes.stale.place()
        elif not self._placed:
            self._placed = True
            await self.catch_up()

    async def look(self) -> None:
        """Look at copies of the monitors that have seen a tenth more than last time, and write down what is new."""
        if not await self.watches():
            return
        for bandit in self.bandits.changed():
            rounds = bandit.learner.monitor.rounds
            if rounds > _LOOKS * bandit.seen:
                bandit.seen = rounds
                found = await asyncio.to_thread(self._look, bandit.learner.monitor.state())
                if found is not None:
                    await self._lanes.of(bandit).ask(partial(self._changes.prove, bandit, found))

    async def watches(self) -> bool:
        """Whether this process is the one that looks after all bandits, of those that share the store."""
        return bool(await self._ask(lambda items: self._store.lane(0).watches()))

    async def told(self, bandit: LiveBandit, hook: str, notice: int, *, taken: bool) -> None:
        """Write down that a webhook took a notice, or that it was given up."""
        await self._lanes.of(bandit).ask(partial(self._alarms.tell, bandit, hook, notice, taken))

    # Requests that read.

    async def catch_up(self, name: str | None = None) -> None:
        """Hear what other processes have written about a bandit, or about all, so that whoever reads here sees what was
        acknowledged there."""
        if not self._store.shared:
            return
        if name is not None:
            await self._know(name)
            await self._lanes.of(self.bandits.named(name)).ask(lambda items: None)
            await self._know(name)  # which may be a new one by now
        else:
            await asyncio.gather(*(queue.ask(lambda items: None) for queue in self._lanes.all))

    async def _know(self, name: str) -> None:
        """Hear of a bandit that another process may have created."""
        if name not in self.bandits and self._store.shared:
            await self._ask(lambda items: None)

    def status(self, name: str) -> Status:
        """How a bandit is doing."""
        return reports.status(self.bandits.named(name), self.clock())

    def activity(self, name: str, scale: str) -> ActivityReport:
        """What a bandit chose, and what that earned, in a range of time."""
        return activity.activity(self.bandits.named(name), self.clock(), scale)

    def metrics(self, names: Iterable[str]) -> Iterator[str]:
        """The lines that Prometheus reads about these bandits."""
        return reports.metrics(self.bandits[name] for name in names)

    def gauges(self) -> Iterator[str]:
        """The lines that Prometheus reads about the hub itself."""
        return reports.gauges(len(self.bandits), self._lanes)

    def log(self, name: str, begins: int | None = None) -> AsyncIterator[list[bytes]]:
        """A bandit's log so far, some events at a time, as `pack` writes them. Where it was cut, the decisions come
        first that were open then. If it begins after another place than ``begins``, or is cut meanwhile, this breaks
        off."""
        bandit = self.bandits.named(name)
        return self._pages(bandit, bandit.learner.life.begins if begins is None else begins)

    def begins(self, name: str) -> int:
        """The place after which a log begins."""
        return self.bandits.named(name).learner.life.begins

    async def _pages(self, bandit: LiveBandit, begins: int) -> AsyncIterator[list[bytes]]:
        last = bandit.learner.place
        ask = self._lanes.of(bandit).ask
        await ask(lambda items: None)  # which is answered when all of that is written
        open_: list[str] = await ask(partial(self._read, bandit, begins, partial(self.bandits.carried, bandit)))
        for place in range(0, len(open_), _AT_ONCE):
            some = open_[place : place + _AT_ONCE]
            yield await ask(partial(self._read, bandit, begins, partial(self._decisions, bandit, some)))
        after = begins
        while after < last:
            page: list[bytes] = await ask(
                partial(self._read, bandit, begins, partial(self.bandits.page, bandit, after))
            )
            yield page[: last - after]
            after += len(page)

    def _read(self, bandit: LiveBandit, begins: int, read: Callable[[], T], items: list[Item]) -> T:
        """Read some of a log that begins after a place."""
        if bandit.learner.life.erased is not None:
            raise self.bandits.unknown(bandit.record.name)
        if bandit.learner.life.begins != begins:
            raise LogCut(bandit.record.name)
        return read()

    def _decisions(self, bandit: LiveBandit, ids: Sequence[str]) -> list[bytes]:
        """Decisions that stay although the log was cut after them."""
        found = [self.bandits.find(bandit, id, final=False) for id in ids]  # noqa: A001
        return [pack(event) for event in found if event is not None]

    async def backup(self, path: Path) -> None:
        """Copy the whole store into a new file, while requests are served in between."""
        if self._store.shared:
            raise Refused(501, "this store is a database with tools of its own: pg_dump --schema=robandit")
        with closing(self._store.copy(path)) as copying:
            while await self._ask(partial(self.bandits.copy_on, copying)):
                pass

    def stop(self) -> None:
        """Keep snapshots of all bandits, for a quick start, and close the store."""
        self._lessons.stop()
        self._cuts.stop()
        self._forgetting.stop()
        self._lanes.finish()
        if self.broken is None and (kept := self.bandits.all_snapshots()):
            try:
                append(self._store, [], kept)
            except StoreError as error:
                log.error("no snapshots were kept; the next start takes longer: %s", error)
        self._store.close()
