"""The queue of changes to a store that other processes share."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from robandit.service.change_queue import Group, Job, Queue
from robandit.service.live import Bandits
from robandit.service.stores.store import Item, Store, append


class SharedQueue(Queue):
    """Runs jobs in groups. Each group first hears what other processes have written, and holds them off until its own
    is safe. So every job runs on the newest state."""

    def __init__(self, store: Store, bandits: Bandits) -> None:
        super().__init__(store, bandits)
        self._jobs: list[Job] = []

    def _take(self, job: Job) -> None:
        self._jobs.append(job)

    async def work(self) -> None:
        """Serve the queue until something can't be written. From then on nothing is acknowledged."""
        while self.broken is None:
            await self._wake.wait()
            self._wake.clear()
            jobs, self._jobs = self._jobs, []
            group = Group()
            try:
                await self._serve(jobs, group)
            except Exception as error:  # a state that is half changed must not go on
                self._break(error)
                group.answers = [(job.done, None) for job in jobs]
                group.refuse()
            else:
                group.answer()
        Group(answers=[(job.done, None) for job in self._jobs]).refuse()  # they came meanwhile

    async def _serve(self, jobs: Sequence[Job], group: Group) -> None:
        """Run these jobs one after the other, and write all their events at once."""
        self._bandits.catch_up(await asyncio.to_thread(self._store.news))
        for job in jobs:
            group.run(job)
        await asyncio.to_thread(self._write, group.items)
        self._bandits.written(group.items)

    def _write(self, items: Sequence[Item]) -> None:
        if items:
            append(self._store, items, self._bandits.snapshots(items))
        else:
            self._store.release()

    def finish(self) -> None:
        """Nothing is open between groups."""
