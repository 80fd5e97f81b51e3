"""The queues of a store: one, or where other processes share the store, one for each of its lanes, and one for
decisions on a state that may be old."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from robandit.service.meters import Histogram
from robandit.service.serving.change_queue import ChangeQueue, Queue
from robandit.service.serving.live import Bandits
from robandit.service.serving.live_bandit import LiveBandit
from robandit.service.serving.shared_queue import SharedQueue
from robandit.service.serving.stale_queue import StaleQueue
from robandit.service.stores.store import LANES, Store


class Lanes:
    """Knows which queue a bandit's changes go through. When one queue breaks, all stop."""

    def __init__(self, store: Store, bandits: Bandits, staleness: float | None) -> None:
        part = store.join(stale=staleness is not None)
        self.all: Sequence[Queue] = [ChangeQueue(store, bandits)]
        self.stale: StaleQueue | None = None
        """The queue of decisions on a state that may be old, if that is wanted."""
        if store.shared:
            shared = [SharedQueue(partial(store.lane, number), bandits) for number in range(LANES)]
            self.all = shared
            if part is not None and staleness is not None:
                self.stale = StaleQueue(part, staleness, bandits, shared)
        self._every = [*self.all, *([self.stale] if self.stale else [])]
        self.main = self.all[0]
        """The queue for what concerns no bandit, or one that is not known yet."""

    @property
    def broken(self) -> str | None:
        """The reason why nothing can be written any more."""
        return next((queue.broken for queue in self._every if queue.broken is not None), None)

    @property
    def waiting(self) -> int:
        """Number of jobs that are not being written yet."""
        return sum(queue.waiting for queue in self._every)

    @property
    def commits(self) -> Histogram:
        """How long it took to make each group safe."""
        return Histogram.sum(queue.commits for queue in self._every)

    def of(self, bandit: LiveBandit) -> Queue:
        """The queue of a bandit."""
        return self.of_number(bandit.record.number)

    def of_number(self, number: int) -> Queue:
        """The queue of the bandit with this number."""
        return self.all[number % len(self.all)]

    async def work(self) -> None:
        """Serve all queues until one breaks."""
        tasks = [asyncio.create_task(queue.work()) for queue in self._every]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for queue in self._every:
                queue.stop(self.broken or "another queue has stopped")
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    def finish(self) -> None:
        """Write what is open, and wait for what is being written."""
        for queue in self._every:
            queue.finish()
