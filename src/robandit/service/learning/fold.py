"""A state from its log, and from the middle of it on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TypeAlias

from robandit.policies import Policy
from robandit.service.learning.learner import Learner
from robandit.service.learning.student import Student, learns_with, needs_refold
from robandit.wire.events import Changed, Event

Read: TypeAlias = Callable[[int], Iterator[Event]]
"""Reads a log after a place."""


def fold(learner: Learner, read: Read) -> Iterator[Event]:
    """Fold in what a learner has not seen of its log, and yield every event once it is folded in."""
    for event in read(learner.place):
        step(learner, event, read)
        yield event


def step(learner: Learner, event: Event, read: Read) -> None:
    """Fold in the next event of a log. One after which another policy acts takes as long as all before it."""
    learner.apply(event, _refolded(learner, event, read) if needs_refold(event) else None)


def _refolded(learner: Learner, event: Event, read: Read) -> Policy:
    """The policy that acts after an event, and has learnt all that comes before."""
    assert isinstance(event, Changed)
    student = Student(learns_with(learner.settings, event), learner.seed)
    for one in islice(read(0), learner.place):
        student.apply(one)
    return student.policy
