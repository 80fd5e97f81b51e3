"""Alarms that operators acknowledge, and notices that webhooks take. Both are events of the log."""

from __future__ import annotations

import logging

from robandit.service.clock import ServiceClock
from robandit.service.learning.notices import NoticeBoard
from robandit.service.refused import Gone, Refused
from robandit.service.serving.live import Bandits
from robandit.service.serving.live_bandit import LiveBandit
from robandit.service.stores.store import Item
from robandit.wire.alarms import Acknowledgement, AcknowledgementMade
from robandit.wire.events import Acknowledged, Delivered

log = logging.getLogger("robandit.service")


class Alarms:
    """Writes down what was acknowledged, and which webhook took what."""

    def __init__(self, bandits: Bandits, clock: ServiceClock) -> None:
        self._bandits, self._clock = bandits, clock

    def acknowledge(
        self, bandit: LiveBandit, wanted: Acknowledgement, key: str | None, items: list[Item]
    ) -> AcknowledgementMade:
        """Acknowledge what is proved. What was acknowledged before, as a retry asks for, gets the same answer; and what
        is not what is proved now is refused, since nobody can have seen it."""
        board = self._board(bandit)
        known, proof = board.acknowledged, board.proof
        if known is not None and wanted.lower_bound <= known.lower_bound:
            return made(known)
        if proof is None:
            raise Refused(409, f"no corruption of bandit {bandit.record.name!r} is proved, so there is no alarm")
        if wanted.lower_bound != proof.lower_bound:
            raise Refused(409, f"what is proved now is {proof.lower_bound!r}, not {wanted.lower_bound!r}: look again")
        event = Acknowledged(
            id=str(bandit.learner.place + 1),
            at=self._clock.at_least(bandit.learner.clock),
            lower_bound=wanted.lower_bound,
            key=key,
            by=wanted.by,
            note=wanted.note,
        )
        self._bandits.put(bandit, event, items)
        log.warning("bandit %s: its alarm is acknowledged, with key %r", bandit.record.name, key)
        return made(event)

    def tell(self, bandit: LiveBandit, hook: str, notice: int, taken: bool, items: list[Item]) -> None:
        """Write down that a webhook took a notice, or that it was given up."""
        if any(one.number == notice for one in self._board(bandit).open(hook)):
            at = self._clock.at_least(bandit.learner.clock)
            event = Delivered(id=f"{hook}:{notice}", at=at, hook=hook, notice=notice, taken=taken)
            self._bandits.put(bandit, event, items)

    def _board(self, bandit: LiveBandit) -> NoticeBoard:
        """The notices of a bandit that is not deleted."""
        if bandit.learner.life.erased is not None:
            raise Gone(bandit.record.name)
        return bandit.learner.board


def made(event: Acknowledged) -> AcknowledgementMade:
    """An acknowledgement as it is shown."""
    return AcknowledgementMade(lower_bound=event.lower_bound, at=event.at, key=event.key, by=event.by, note=event.note)
