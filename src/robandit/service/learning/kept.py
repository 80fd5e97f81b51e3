"""What a log begins with that was cut: the state at that place, and what else the fold needs of the events before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

import msgspec

from robandit.service.learning.learner import Learner
from robandit.service.learning.student import Student, changed, learns_with, needs_refold, rule
from robandit.service.stores.store import Beginning, DamageError
from robandit.wire.events import Blank, Changed, Closed, Decided, Event, Imported, Rewarded
from robandit.wire.types import BanditSettings


class KeptState(msgspec.Struct, frozen=True, array_like=True):
    """The state at the place where a log was cut. Every later release must be able to read it."""

    place: int
    at: float
    """Time of the event at that place."""
    decisions: int
    version: int
    """Version of the settings."""
    settings: bytes
    """The settings as JSON."""
    learner: bytes
    """The state, as `Learner.snapshot` writes it."""
    open: list[str]
    """The ids of the decisions whose reward was not final, the oldest first."""
    students: dict[str, bytes]
    """Policies that have learnt the log up to here and act, or watch, after a change that comes later; by its id."""

    def restore(self, seed: int) -> Learner:
        """The state, which goes on bit for bit where the policies' `numerics` are the same."""
        settings = msgspec.json.decode(self.settings, type=BanditSettings)
        return Learner.restore(settings, seed, self.learner, begins=True)


Begin: TypeAlias = Callable[[], KeptState | None]
"""Reads what a log begins with; None if it is whole."""


def whole() -> None:
    """A `Begin` of a log that was not cut."""


def read_kept(found: Beginning | None) -> KeptState | None:
    """What a store has kept."""
    try:
        return None if found is None else msgspec.msgpack.decode(found.body, type=KeptState)
    except msgspec.MsgspecError as error:
        raise _unreadable(found.bandit, error) from None  # type: ignore[union-attr]


def first_learner(settings: BanditSettings, seed: int, found: Beginning | None) -> Learner:
    """The state that a log begins with: that of a new bandit, unless the log was cut."""
    kept = read_kept(found)
    if found is None or kept is None:
        return Learner(settings, seed)
    try:
        return kept.restore(seed)
    except (ValueError, KeyError, TypeError) as error:
        raise _unreadable(found.bandit, error) from None


def _unreadable(bandit: int, error: Exception) -> DamageError:
    return DamageError(
        f"this robandit can't read the state that the log of bandit number {bandit} begins with ({error!r}): "
        "use the release that cut it, or restore a backup of before"
    )


def first_student(settings: BanditSettings, seed: int, kept: KeptState | None, change: str | None = None) -> Student:
    """A policy that is to learn a log from its beginning on. That of a ``change`` may have learnt what was cut."""
    student = Student(settings, seed)
    if kept is not None and change in kept.students:
        student.load(kept.students[change])
    elif kept is not None:
        learner = kept.restore(seed)
        for event in learner.life.changes:  # what operators have said of sources
            rule(student.policy, event)
        student.come_in(kept.place, learner.decisions, learner.policy.rounds, learner.pending)
    return student


class Folder:
    """Folds a log up to a time, without some events, and keeps all that it takes to go on. It is a `Pupil`."""

    def __init__(
        self,
        settings: BanditSettings,
        seed: int,
        kept: KeptState | None,
        changes: Mapping[str, Changed],
        *,
        before: float = float("inf"),
        without: Collection[str] = (),
    ) -> None:
        """``settings`` are the first ones, and ``changes`` all that come after ``kept``, by id. Of decisions and rows
        of history ``without`` has the ids that it leaves out."""
        self.learner = Learner(settings, seed) if kept is None else kept.restore(seed)
        self._before, self._over, self._without = before, False, frozenset(without)
        now, self._students = self.learner.settings, dict[str, Student]()
        for name, event in changes.items():
            if needs_refold(event):
                self._students[name] = first_student(learns_with(now, event), seed, kept, name)
            now = changed(now, event)
        self._loaded: bytes | None = None

    @property
    def place(self) -> int:
        """Place of the last event before the time."""
        return self.learner.place

    def apply(self, event: Event) -> None:
        """Fold in the next event; from the first on that is not before the time, or that is a change which was
        not known, none."""
        if event.id in self._without and isinstance(event, Decided | Imported | Rewarded | Closed):
            event = Blank(id=str(self.place + 1), at=event.at)
        unplanned = needs_refold(event) and event.id not in self._students
        self._over = self._over or event.at >= self._before or unplanned
        if self._over:
            return
        student = self._students.pop(event.id, None) if needs_refold(event) else None
        for one in self._students.values():
            one.apply(event)
        self.learner.apply(event, None if student is None else student.policy)

    def state(self) -> bytes:
        """What is to be kept, as `read_kept` reads it."""
        if self._loaded is not None:
            return self._loaded
        learner = self.learner
        students = {name: one.state() for name, one in self._students.items()}
        settings = msgspec.json.encode(learner.settings)
        facts = learner.place, learner.clock, learner.decisions, learner.life.version
        return msgspec.msgpack.encode(KeptState(*facts, settings, learner.snapshot(), list(learner.pending), students))

    def load(self, data: bytes) -> None:
        """Take what another `Folder` keeps, only to hand it on."""
        self._loaded = data
