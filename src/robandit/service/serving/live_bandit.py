"""A bandit that is being served."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from robandit.service.learning.learner import Learner
from robandit.service.requests.vectors import Vectors
from robandit.service.stores.store import Bandit, Beginning
from robandit.wire.events import Event
from robandit.wire.types import BanditSettings


class StoreBusyError(Exception):
    """The store is writing, and can be read after that."""


@dataclass(eq=False)
class LiveBandit:
    """A bandit that is being served: its record in the store, and its state."""

    record: Bandit
    learner: Learner
    vectors: Vectors
    saved: int = 0
    """Place of the last snapshot."""
    seen: int = 0
    """Number of rounds that the monitor had at the last look."""
    fresh: dict[tuple[int, str], Event] = field(default_factory=dict)
    """Events that are being written, by kind and id."""
    held: float = 0.0
    """Time before which no window closes."""
    timed: bool = False
    """Whether `Bandits.due` will come to it."""
    begun: Beginning | None = None
    """What its log begins with, while that is being written."""
    switched: bool = False
    """Whether another policy acts since the last snapshot. It is kept with the change: to learn a log takes long."""

    @property
    def settings(self) -> BanditSettings:
        """Its settings of now."""
        return self.learner.settings

    oldest: float | None = None
    """Time of the first event of its log, if that is known."""
    rounds: Iterator[int] = field(default_factory=lambda: iter(()))
    """Rounds that are reserved for decisions of this process on a state that may be old."""
    reserved: int = 0
    """How many rounds were reserved last."""
