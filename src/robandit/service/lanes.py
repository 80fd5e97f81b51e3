"""The queues of a store: one, or where other processes share the store, one for each of its lanes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from robandit.service.change_queue import ChangeQueue, Queue
from robandit.service.live import Bandits, LiveBandit
from robandit.service.meters import Histogram
from robandit.service.shared_queue import SharedQueue
from robandit.service.stores.store import LANES, Store


class Lanes:
    """Knows which queue a bandit's changes go through. When one queue breaks, all stop."""

    def __init__(self, store: Store, bandits: Bandits) -> None:
        self.all: Sequence[Queue] = [ChangeQueue(store, bandits)]
        if store.shared:
            self.all = [SharedQueue(partial(store.lane, number), bandits) for number in range(LANES)]
        self.main = self.all[0]
        """The queue for what concerns no bandit, or one that is not known yet."""

    @property
    def broken(self) -> str | None:
        """The reason why nothing can be written any more."""
        return next((queue.broken for queue in self.all if queue.broken is not None), None)

    @property
    def waiting(self) -> int:
        """Number of jobs that are not being written yet."""
        return sum(queue.waiting for queue in self.all)

    @property
    def commits(self) -> Histogram:
        """How long it took to make each group safe."""
        return Histogram.sum(queue.commits for queue in self.all)

    def of(self, bandit: LiveBandit) -> Queue:
        """The queue of a bandit."""
        return self.all[bandit.record.number % len(self.all)]

    async def work(self) -> None:
        """Serve all queues until one breaks."""
        tasks = [asyncio.create_task(queue.work()) for queue in self.all]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for queue in self.all:
                queue.stop(self.broken or "another queue has stopped")
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def finish(self) -> None:
        """Write what is open, and wait for what is being written."""
        for queue in self.all:
            queue.finish()
