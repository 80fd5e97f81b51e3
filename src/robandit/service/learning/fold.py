"""A state from its log, and from the middle of it on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

from robandit.policies import Policy
from robandit.service.learning.kept import Begin, first_student, whole
from robandit.service.learning.learner import Learner
from robandit.service.learning.student import learns_with, needs_refold
from robandit.wire.events import Changed, Event

Read: TypeAlias = Callable[[int], Iterator[Event]]
"""Reads a log after a place."""


def fold(learner: Learner, read: Read, begin: Begin = whole) -> Iterator[Event]:
    """Fold in what a learner has not seen of its log, and yield every event once it is folded in."""
    for event in read(learner.place):
        step(learner, event, read, begin)
        yield event


def step(learner: Learner, event: Event, read: Read, begin: Begin = whole) -> None:
    """Fold in the next event of a log. One after which another policy acts takes as long as all before it."""
    learner.apply(event, _refolded(learner, event, read, begin) if needs_refold(event) else None)


def _refolded(learner: Learner, event: Event, read: Read, begin: Begin) -> Policy:
    """The policy that acts after an event, and has learnt all that comes before, as far as it is there."""
    assert isinstance(event, Changed)
    student = first_student(learns_with(learner.settings, event), learner.seed, begin(), event.id)
    for one in islice(read(student.place), learner.place - student.place):
        student.apply(one)
    return student.policy
