"""What operators have done to a bandit: a part of its state, and so of the fold."""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from robandit.wire.events import Changed, Cut, Erased

CHANGES = 100
"""Number of changes that are remembered, so that a request for one that comes again gets its answer."""


class Versions:
    """The version of a bandit's settings, and whether it is in service."""

    def __init__(self) -> None:
        self.version = 1
        """One more than there were changes."""
        self.changes: deque[Changed] = deque(maxlen=CHANGES)
        """The last changes."""
        self.archived = False
        """Whether it makes no decisions and takes no rewards."""
        self.erased: Erased | None = None
        """The event that deleted it, after which there is none."""
        self.imported = 0
        """Number of rewards from outside that were learnt."""
        self.others = 0
        """Number of rounds that other policies have decided than the one that acts."""
        self.cut: Cut | None = None
        """Where the log was cut last."""
        self.forgotten = 0
        """How often decisions were forgotten."""

    @property
    def edition(self) -> tuple[int, int]:
        """What changes whenever something of the log goes: whoever learns it begins again then."""
        return self.begins, self.forgotten

    @property
    def begins(self) -> int:
        """Place after which the log begins: 0 unless it was cut."""
        return 0 if self.cut is None else self.cut.place

    def changed(self, event: Changed) -> None:
        """Note a change."""
        self.version += 1
        self.changes.append(event)
        self.archived = event.settings.get("archived", self.archived)

    def plain(self) -> list[Any]:
        """All of it as plain data."""
        gone = [self.cut, self.forgotten] if any(self.edition) else []
        return [self.version, list(self.changes), self.archived, self.others, self.imported, *gone]

    def restore(self, plain: list[Any]) -> None:
        """Go on from what `plain` gave."""
        self.version, changes, self.archived, self.others, self.imported, *gone = plain
        self.changes.extend(msgspec.convert(changes, list[Changed]))
        self.cut, self.forgotten = msgspec.convert(gone or [None, 0], tuple[Cut | None, int])
