"""The queue of decisions on a state that may be old. They hold nobody off, and wait for nobody."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Sequence
from time import monotonic, perf_counter
from typing import Any

from robandit.service.refused import Refused
from robandit.service.serving.change_queue import Job, JobGroup, damaged
from robandit.service.serving.changes import NoRoundsError, UnwrittenDecision, chosen
from robandit.service.serving.imports import UnwrittenRows
from robandit.service.serving.live import Bandits
from robandit.service.serving.live_bandit import LiveBandit
from robandit.service.serving.shared_queue import GroupQueue, SharedQueue
from robandit.service.stores.store import LANES, DamageError, LogEntry, StoreError, StorePart, View
from robandit.wire.events import Decided, Imported

log = logging.getLogger("robandit.service")

LEAST, MOST = 0.05, 60.0
"""Seconds that a state may be old: the least and the most that can be asked for."""
_TRIES = 3  # times that a group is decided before it is refused, if it is always written too late
_TURN = 0.05  # seconds after which other requests have their turn
PLACE_AFTER = 500
"""Decisions in a lane after which they are given their places, if nobody does it before."""
_FEWEST, _LARGEST = 32, 1024  # rounds reserved for a bandit at a time; each time twice as many


class StaleQueue(GroupQueue):
    """Decides on a state that is ``staleness`` seconds old at most, and adds the decisions to a part of the log.

    A group first looks at what others have written, unless the last look was a moment ago. Then all are decided, and
    written by one statement, which the store refuses if it comes more than ``staleness`` after that look. Every
    decision says which state it was made on, and that state is safe before the decision is: `SharedQueue.settled`.
    """

    def __init__(self, part: StorePart, staleness: float, bandits: Bandits, lanes: Sequence[SharedQueue]) -> None:
        super().__init__(bandits)
        self._part, self._staleness, self._lanes = part, staleness, lanes
        self._heard, self._until = part.heard, 0.0  # what the last look heard; when decisions on it are too late
        self._seen = float("-inf")  # when that look began, by `monotonic`
        self._unplaced = Counter[int]()  # decisions of this process in each lane since it last had them placed

    async def _serve(self, jobs: Sequence[Job], group: JobGroup) -> None:
        """Decide these jobs, or some of them, and put the others back."""
        for _ in range(_TRIES):
            await self._look()
            done, rest, lacking = self._run(jobs)
            written = await self._write(done)
            if written is not None:
                break
        else:
            self._refuse(jobs, group)
            return
        await self._answer(done, written, group)
        if lacking:
            await self._reserve(lacking)
        if rest:
            self._jobs[:0] = rest
            self._wake.set()

    async def _look(self) -> None:
        """Hear what others have written, unless half of the time that the last look is good for is left."""
        if monotonic() < self._seen + 0.5 * self._staleness:
            return
        seen = monotonic()
        heard = [max(mine, lane.heard) for mine, lane in zip(self._heard, self._lanes, strict=True)]
        view: View = await self._aside(self._part.look, heard)
        self._bandits.hear_all(view.entries, self._part)
        self._heard, self._seen, self._until = view.heard, seen, view.at + self._staleness

    def _run(self, jobs: Sequence[Job]) -> tuple[JobGroup, list[Job], Counter[LiveBandit]]:
        """Decide one after the other while there is time to write them. Return them, the jobs that are left, and how
        many rounds each bandit lacks for those."""
        group, rest, lacking = JobGroup(), list[Job](), Counter[LiveBandit]()
        end = min(self._seen + 0.75 * self._staleness, monotonic() + _TURN)
        for job in jobs:
            if group.answers and monotonic() > end:
                rest.append(job)
                continue
            try:
                group.run(job)
            except NoRoundsError as error:
                lacking[error.bandit] += 1
                rest.append(job)
        return group, rest, lacking

    async def _write(self, group: JobGroup) -> set[tuple[int, str]] | None:
        """Write the decisions of a group. Return which of them are new, or None if it was too late for all."""
        entries = [item for item in group.items if isinstance(item, LogEntry)]
        if not entries:
            return set()
        for lane in {entry.bandit % LANES for entry in entries}:
            await self._lanes[lane].settled.wait()
            if self._lanes[lane].broken is not None:
                raise StoreError("the state that these decisions were made on is not safe")
        start = perf_counter()
        written: set[tuple[int, str]] | None = await self._aside(self._part.add, entries, self._until)
        self.commits.add(perf_counter() - start)
        if written is None:
            self._seen = float("-inf")  # look again
        return written

    async def _answer(self, done: JobGroup, written: set[tuple[int, str]], group: JobGroup) -> None:
        """Answer with the decisions that are new, and where an id was taken with the one that it belongs to."""
        for told, result in done.answers:
            answer = result
            if isinstance(result, UnwrittenDecision):
                if _is_new(result.bandit, result.event.id, written):
                    answer = chosen(result.event)
                    self._place_soon(result.bandit)
                else:
                    answer = await self._repeat(result)
            elif isinstance(result, UnwrittenRows):
                answer = [_is_new(result.bandit, id, written) for id in result.ids]  # noqa: A001
            group.answers.append((told, answer))

    async def _repeat(self, drawn: UnwrittenDecision) -> Any:
        """The answer to a request whose id was taken."""
        number = drawn.bandit.record.number
        try:
            known = await self._aside(lambda: self._part.find(number, drawn.event.id, final=False))
            if not isinstance(known, Decided | Imported):  # its bandit was deleted a moment ago
                return Refused(503, f"decision {drawn.event.id!r} was known, and is gone: ask again")
            return drawn.repeat(known)
        except Refused as error:
            return error
        except DamageError as error:
            return damaged(error)

    def _place_soon(self, bandit: LiveBandit) -> None:
        """Have the decisions of a lane placed, once there are many."""
        lane = bandit.record.number % LANES
        self._unplaced[lane] += 1
        if self._unplaced[lane] >= PLACE_AFTER:
            self._unplaced[lane] = 0
            self._lanes[lane].submit(lambda items: None, lambda result: None)

    async def place(self) -> None:
        """Have all decisions placed, whoever made them."""
        lanes: set[int] = await self._aside(self._part.unplaced)
        await asyncio.gather(*(self._lanes[lane].ask(lambda items: None) for lane in lanes))

    async def _reserve(self, lacking: Counter[LiveBandit]) -> None:
        """Reserve rounds for bandits that have none left, the more the more they have needed."""
        wanted = {}
        for bandit, count in lacking.items():
            bandit.reserved = max(count, min(max(2 * bandit.reserved, _FEWEST), _LARGEST))
            wanted[bandit.record.number] = bandit.learner.policy.rounds, bandit.reserved
        found: dict[int, range] = await self._aside(self._part.reserve, wanted)
        for bandit in lacking:
            bandit.rounds = iter(found[bandit.record.number])

    def _refuse(self, jobs: Sequence[Job], group: JobGroup) -> None:
        """Decide nothing, since nothing could be written in time."""
        log.error("%d decisions were refused: none could be written in time on a state that is not too old", len(jobs))
        why = Refused(
            503, f"no state was at most {1000 * self._staleness:g} ms old when the decision was to be written"
        )
        group.answers += [(job.done, why) for job in jobs]


def _is_new(bandit: LiveBandit, id: str, written: set[tuple[int, str]]) -> bool:  # noqa: A002
    """Whether an id is among those that were written. A second one of it in the group is not new."""
    key = bandit.record.number, id
    new = key in written
    written.discard(key)
    return new
