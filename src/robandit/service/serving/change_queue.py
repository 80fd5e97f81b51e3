"""The queue of changes. A job runs at once; what it wrote goes to the disk with the others of its time, and its answer
goes out after that."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from operator import attrgetter
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

from robandit.service.meters import Histogram
from robandit.service.refused import Refused
from robandit.service.serving.live import Bandits
from robandit.service.serving.live_bandit import StoreBusyError
from robandit.service.stores.store import DamageError, Item, Store, append

log = logging.getLogger("robandit.service")

_STOPPING = "the service can't write now; ask again, with the same ids, when it is back"

GATHER = 0.002
"""Seconds after which a group is written even if requests keep coming."""

_MOST_ALIKE = 64
"""Most jobs that run together: others' turn comes after them."""

Run: TypeAlias = Callable[[list[Item]], Any]
"""What a job does. It adds what is to be written to the list that it is given, and returns its result."""
Done: TypeAlias = Callable[[Any], None]
"""What is told the result of a job, or the exception that it ended with, once all that it wrote is safe."""


class Together(NamedTuple):
    """How a job runs with others that have the same key and come before any other job."""

    key: object
    run: Callable[[list[Any], list[Item]], list[Any]]
    """Gives the results for the values of such jobs, of which some may be a `Refused`."""
    value: Any


class Job(NamedTuple):
    """A request in the queue: what to run, and where its answer goes."""

    run: Run
    done: Done
    together: Together | None = None

    @property
    def key(self) -> object:
        """The same for jobs that can run together."""
        return self if self.together is None else self.together.key


def damaged(error: DamageError) -> Refused:
    """The answer to a request that needs what is damaged. The service's log says what that is."""
    log.critical("a request needs what is damaged: %s", error)
    return Refused(500, "what this needs is damaged; the service's log says where")


def alike(jobs: Sequence[Job]) -> list[list[Job]]:
    """These jobs in their order, neighbours that can run together in one list."""
    return [list(some) for _, some in groupby(jobs, attrgetter("key"))]


@dataclass(slots=True)
class JobGroup:
    """Jobs that have run and are written together: what they wrote, and their answers."""

    items: list[Item] = field(default_factory=list)
    answers: list[tuple[Done, Any]] = field(default_factory=list)

    def run(self, job: Job) -> None:
        """Run a job. One that needs the store while that is busy raises `StoreBusyError`, and has changed nothing."""
        try:
            result = job.run(self.items)
        except Refused as error:
            result = error
        except DamageError as error:  # of one event, so that the others can still be served
            result = damaged(error)
        self.answers.append((job.done, result))

    def run_alike(self, jobs: Sequence[Job]) -> None:
        """Run jobs that can run together, or a single one. `StoreBusyError` is raised as by `run`."""
        if len(jobs) == 1 or jobs[0].together is None:
            for job in jobs:
                self.run(job)
            return
        values = [job.together.value for job in jobs if job.together is not None]
        results = jobs[0].together.run(values, self.items)
        self.answers += zip((job.done for job in jobs), results, strict=True)

    def answer(self) -> None:
        """Give all answers."""
        for done, result in self.answers:
            done(result)

    def refuse(self) -> None:
        """Answer that nothing was written."""
        for done, _ in self.answers:
            done(Refused(503, _STOPPING))


class Queue(ABC):
    """What the queues of all stores have in common."""

    def __init__(self, bandits: Bandits) -> None:
        self._bandits = bandits
        self._wake = asyncio.Event()
        self.broken: str | None = None
        """The reason why nothing can be written any more."""
        self.commits = Histogram()
        """How long it took to make each group safe."""

    @property
    @abstractmethod
    def waiting(self) -> int:
        """Number of jobs that are not being written yet."""

    async def ask(self, run: Run) -> Any:
        """Run a job, and return its result once all that it wrote is safe."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.submit(run, partial(_settle, answer))
        return await answer

    def submit(self, run: Run, done: Done, together: Together | None = None) -> None:
        """Run a job, and tell ``done`` its result once all that it wrote is safe."""
        if self.broken is not None:
            done(Refused(503, _STOPPING))
            return
        self._take(Job(run, done, together))
        self._wake.set()

    def stop(self, why: str) -> None:
        """Acknowledge nothing from now on."""
        self.broken = self.broken or why
        self._wake.set()

    @abstractmethod
    def _take(self, job: Job) -> None:
        """Run a job now or soon."""

    @abstractmethod
    async def work(self) -> None:
        """Serve the queue until something can't be written. From then on nothing is acknowledged."""

    @abstractmethod
    def finish(self) -> None:
        """Write what is open, and wait for what is being written: nothing more comes."""

    def _break(self, error: Exception) -> None:
        """Acknowledge nothing from now on: what is half written or half changed must not go on."""
        log.critical("nothing is acknowledged any more, and the service stops", exc_info=error)
        self.stop(str(error))


class ChangeQueue(Queue):
    """The queue of a store that is ours alone: while one group is being written, jobs run into the next.

    A job that needs to read the store waits until the write is over. Those that can run together wait for each other,
    until the group is written or another job comes. All others run when they come, so what they wrote is in the order
    in which it changed the states.
    """

    def __init__(self, store: Store, bandits: Bandits) -> None:
        super().__init__(bandits)
        self._store = store
        self._open = JobGroup()
        self._waiting: list[Job] = []  # for the store
        self._alike: list[Job] = []  # that can run together
        self._thread = ThreadPoolExecutor(1, "commit")
        self._writing: Future[None] | None = None

    @property
    def waiting(self) -> int:
        return len(self._open.answers) + len(self._alike) + len(self._waiting)

    def _take(self, job: Job) -> None:
        """Run a job now, unless it can run with others that come."""
        if job.together is not None:
            self._alike.append(job)
            if len(self._alike) >= _MOST_ALIKE:
                self._run_alike()
            return
        self._run_alike()
        try:
            self._open.run(job)
        except StoreBusyError:
            self._waiting.append(job)
        except Exception as error:
            self._open.answers.append((job.done, None))
            self._break(error)

    def _run_alike(self) -> None:
        """Run the jobs that waited for others like them."""
        jobs, self._alike = self._alike, []
        for some in alike(jobs):
            try:
                self._open.run_alike(some)
            except StoreBusyError:
                self._waiting += some
            except Exception as error:
                self._open.answers += [(job.done, None) for job in some]
                self._break(error)

    async def work(self) -> None:
        """Write what has run, until something can't be written. From then on nothing is acknowledged."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            await self._gather()
            self._run_alike()
            if self.broken is not None:
                break
            group, self._open = self._open, JobGroup()
            try:
                await self._write(group.items)
            except Exception as error:
                self._break(error)
                group.refuse()
                break
            group.answer()
            waiting, self._waiting = self._waiting, []
            for job in waiting:
                self._take(job)
            if self._open.answers or self._alike:
                self._wake.set()
        self._open.answers += [(job.done, None) for job in self._waiting]
        self._open.refuse()

    async def _gather(self) -> None:
        """Let requests in for as long as they keep coming, and a moment at most: one commit serves all."""
        end, before = perf_counter() + GATHER, 0
        while len(self._open.answers) + len(self._alike) > before and perf_counter() < end:
            before = len(self._open.answers) + len(self._alike)
            await asyncio.sleep(0)

    async def _write(self, items: Sequence[Item]) -> None:
        """Write and commit. Where putting is quick, a thread only commits: two busy threads slow each other down."""
        if not items:
            return
        kept, start = self._bandits.snapshots(items), perf_counter()
        if not kept:
            self._store.put(items)
        work = partial(append, self._store, items, kept) if kept else self._store.commit
        self._bandits.busy = True
        self._writing = self._thread.submit(work)
        await asyncio.shield(asyncio.wrap_future(self._writing))
        self.commits.add(perf_counter() - start)
        self._bandits.busy = False
        self._bandits.written(items)

    def finish(self) -> None:
        """Wait for the group that is being written, and write the one that is open: nothing more comes."""
        self._thread.shutdown()
        try:
            if self._writing is not None:
                self._writing.result()
            if self.broken is None and self._open.items:
                append(self._store, self._open.items)
        except Exception as error:
            self._break(error)


def _settle(answer: asyncio.Future[Any], result: Any) -> None:
    """Give a waiting task the result of its job."""
    if not answer.done():
        answer.set_exception(result) if isinstance(result, Exception) else answer.set_result(result)
