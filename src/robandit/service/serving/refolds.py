"""Logs that are folded aside from their beginnings, to be cut, or to forget some of what they hold."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass
from functools import partial

import msgspec

from robandit.service.learning.classroom import Classroom
from robandit.service.learning.kept import Folder, KeptState, read_kept
from robandit.service.learning.student import needs_refold
from robandit.service.refused import Gone, LogCut
from robandit.service.serving.change_queue import Queue
from robandit.service.serving.live import Bandits
from robandit.service.serving.live_bandit import LiveBandit
from robandit.service.stores.store import Item
from robandit.wire.events import Changed
from robandit.wire.types import BanditSettings

NEAR = 500
"""Number of events that are folded in a thread, and not in a process of its own."""


@dataclass(frozen=True)
class FoldPlan:
    """What there is to fold."""

    bandit: LiveBandit
    kept: KeptState | None
    version: int
    """Version of the settings when the plan was made."""
    edition: tuple[int, int]
    """What had gone of the log by then."""
    changes: dict[str, Changed]
    """All changes since the log begins, by id."""

    @property
    def begins(self) -> int:
        """Place after which the log begins."""
        return self.edition[0]

    def room(self, *, before: float = float("inf"), without: Collection[str] = ()) -> Classroom[Folder]:
        """Where to fold: aside, unless the log is short."""
        record = self.bandit.record
        settings = msgspec.json.decode(record.settings, type=BanditSettings)
        make = partial(Folder, settings, record.seed, self.kept, self.changes, before=before, without=without)
        return Classroom(make, aside=self.bandit.learner.place - self.begins > NEAR)

    def fits(self, bandits: Bandits) -> bool:
        """Whether what follows from it is still right: nothing else has gone, and no other policy acts or watches."""
        life = self.bandit.learner.life
        if life.erased is not None:
            raise Gone(self.bandit.record.name)
        new = [bandits.change_to(self.bandit, number) for number in range(self.version + 1, life.version + 1)]
        return life.edition == self.edition and not any(map(needs_refold, new))


def plan_for(bandits: Bandits, bandit: LiveBandit, items: list[Item]) -> FoldPlan:
    """What there is to fold now."""
    life = bandit.learner.life
    if life.erased is not None:
        raise Gone(bandit.record.name)
    kept = read_kept(bandits.beginning(bandit))
    since = 1 if kept is None else kept.version
    changes = [bandits.change_to(bandit, number) for number in range(since + 1, life.version + 1)]
    return FoldPlan(bandit, kept, life.version, life.edition, {event.id: event for event in changes})


async def pages_for(
    plan: FoldPlan, read: Callable[[int], list[bytes]], queue: Queue, room: Classroom[Folder]
) -> AsyncIterator[list[bytes]]:
    """The log from its beginning, as ``read`` has it after each place, until the folder takes no more."""
    after, bandit = plan.begins, plan.bandit

    def page(items: list[Item]) -> list[bytes]:
        if bandit.learner.life.erased is not None:
            raise Gone(bandit.record.name)
        if bandit.learner.life.edition != plan.edition:
            raise LogCut(bandit.record.name)
        return read(after)

    while found := await queue.ask(page):
        yield found
        after += len(found)
        if room.learnt < after:
            return
