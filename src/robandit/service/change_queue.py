"""The queue of changes. Requests that come together run one after the other, are written together, and are answered
after that."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from robandit.service.live import Bandits
from robandit.service.refused import Refused
from robandit.service.stores.store import DamageError, Item, Store, append

log = logging.getLogger("robandit.service")

_STOPPING = "the service can't write and is stopping; ask again, with the same ids, when it is back"


class _Job(NamedTuple):
    """A request in the queue: what to run, and where its answer goes."""

    run: Callable[[list[Item]], Any]
    answer: asyncio.Future[Any]


class ChangeQueue:
    """Runs jobs in groups. A job adds what is to be written to the list that it is given."""

    def __init__(self, store: Store, bandits: Bandits) -> None:
        self._store, self._bandits = store, bandits
        self._jobs: list[_Job] = []
        self._wake = asyncio.Event()
        self.broken: str | None = None
        """The reason why nothing can be written any more."""

    async def ask(self, run: Callable[[list[Item]], Any]) -> Any:
        """Run a job, and return its result once all that it wrote is safe."""
        if self.broken is not None:
            raise Refused(503, _STOPPING)
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.append(_Job(run, answer))
        self._wake.set()
        return await answer

    async def work(self) -> None:
        """Serve the queue until something can't be written. From then on nothing is acknowledged."""
        while self.broken is None:
            await self._wake.wait()
            self._wake.clear()
            jobs, self._jobs = self._jobs, []
            await self._group(jobs)
        for job in self._jobs:  # they came meanwhile
            job.answer.set_exception(Refused(503, _STOPPING))

    async def _group(self, jobs: Sequence[_Job]) -> None:
        """Run these jobs one after the other, write all their events at once, then answer all."""
        results: list[Any] = []
        try:
            if self._store.shared:
                self._bandits.catch_up(await asyncio.to_thread(self._store.news))
            items = self._run(jobs, results)
            if items:
                await self._write(items)
            elif self._store.shared:
                await asyncio.to_thread(self._store.release)
        except Exception as error:  # a state that is half changed must not go on
            self.broken = str(error)
            log.critical("nothing is acknowledged any more, and the service stops", exc_info=error)
            results = [Refused(503, _STOPPING)] * len(jobs)
        self._bandits.written()
        for job, result in zip(jobs, results, strict=True):
            if not job.answer.done():
                job.answer.set_exception(result) if isinstance(result, Exception) else job.answer.set_result(result)

    def _run(self, jobs: Sequence[_Job], results: list[Any]) -> list[Item]:
        """Run jobs, add their results to ``results``, and return what is to be written."""
        items: list[Item] = []
        for job in jobs:
            try:
                results.append(job.run(items))
            except Refused as error:
                results.append(error)
            except DamageError as error:  # of one event, so that the others can still be served
                log.critical("a request needs what is damaged: %s", error)
                results.append(Refused(500, "what this needs is damaged; the service's log says where"))
        return items

    async def _write(self, items: Sequence[Item]) -> None:
        """Write and commit. Where putting is quick, a thread only commits: two busy threads slow each other down."""
        kept = self._bandits.snapshots()
        if self._store.shared or kept:
            await asyncio.to_thread(append, self._store, items, kept)
        else:
            self._store.put(items)
            await asyncio.to_thread(self._store.commit)
