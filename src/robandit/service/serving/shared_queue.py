"""Queues of a store that other processes share. They run jobs in groups, and wait for the store in a thread."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

from robandit.service.serving.change_queue import Job, JobGroup, Queue, alike
from robandit.service.serving.live import Bandits
from robandit.service.stores.store import Item, Store, append


class GroupQueue(Queue):
    """Collects jobs while a group of them is being served. That may put some back, which come first next time."""

    def __init__(self, bandits: Bandits) -> None:
        super().__init__(bandits)
        self._jobs = list[Job]()
        self._thread = ThreadPoolExecutor(1, "store")  # its own: it waits for locks that other queues' threads may hold

    @property
    def waiting(self) -> int:
        return len(self._jobs)

    def _take(self, job: Job) -> None:
        self._jobs.append(job)

    async def work(self) -> None:
        """Serve the queue until something can't be written. From then on nothing is acknowledged."""
        while self.broken is None:
            await self._wake.wait()
            self._wake.clear()
            jobs, self._jobs = self._jobs, []
            group = JobGroup()
            try:
                if jobs:
                    await self._serve(jobs, group)
            except Exception as error:  # a state that is half changed must not go on
                self._break(error)
                JobGroup(answers=[(job.done, None) for job in jobs]).refuse()
            else:
                group.answer()
        JobGroup(answers=[(job.done, None) for job in self._jobs]).refuse()  # they came meanwhile

    @abstractmethod
    async def _serve(self, jobs: Sequence[Job], group: JobGroup) -> None:
        """Run these jobs and write what they did, and leave their answers in the group."""

    async def _aside(self, do: Callable[..., Any], *values: Any) -> Any:
        """Do something in the thread of this queue."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, do, *values)

    def finish(self) -> None:
        self._thread.shutdown()


class SharedQueue(GroupQueue):
    """The queue of changes to one lane. Each group first hears what other processes have written, and holds them off
    until its own is safe. So every job runs on the newest state."""

    def __init__(self, open_lane: Callable[[], Store], bandits: Bandits) -> None:
        super().__init__(bandits)
        self._open_lane = open_lane
        self.heard = 0
        """Number of the last event of this lane that is folded in, as far as this queue knows."""
        self.settled = asyncio.Event()
        """Set while all that is folded in is safe."""
        self.settled.set()

    async def _serve(self, jobs: Sequence[Job], group: JobGroup) -> None:
        """Run these jobs one after the other, and write all their events at once."""
        store: Store = await self._aside(self._open_lane)
        news: list[Item] = await self._aside(store.news)
        self.settled.clear()
        try:
            self._bandits.catch_up(news, store, group.items)
            for some in alike(jobs):
                group.run_alike(some)
            if group.items:
                start = perf_counter()
                await self._aside(append, store, group.items, self._bandits.snapshots(group.items))
                self.commits.add(perf_counter() - start)
                self._bandits.written(group.items)
            else:
                await self._aside(store.release)
            self.heard = store.heard
        finally:
            self.settled.set()
