"""Reads everything that a store holds, folds every log again, and compares."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import msgspec

from robandit.policies import POLICIES
from robandit.service.learning.fold import fold
from robandit.service.learning.kept import first_learner, read_kept
from robandit.service.learning.learner import Learner
from robandit.service.learning.student import UnknownPolicyError
from robandit.service.stores.store import (
    KINDS,
    Bandit,
    Beginning,
    DamageError,
    Snapshot,
    Store,
    events,
    open_ids,
    read_tombstone,
)
from robandit.wire.events import Decided, Event
from robandit.wire.types import BanditSettings

_TRIES = 3
"""Times that a bandit is checked which changes meanwhile."""


class BanditCheck(NamedTuple):
    """What was found about a bandit."""

    name: str
    events: int
    """Number of events that are whole, from the first on that is there."""
    faults: list[str]
    """What is wrong."""


def check_bandits(store: Store) -> Iterator[BanditCheck]:
    """Check one bandit after the other: every event, both ways to it, the fold, and the snapshot."""
    for record in store.bandits():
        if read_tombstone(record) is not None:  # deleted, and its log with it
            continue
        yield _check_calmly(store, record)


def _check_calmly(store: Store, record: Bandit) -> BanditCheck:
    """Check a bandit, again if some of its log has gone meanwhile, by a service that runs."""
    for _ in range(_TRIES):
        faults: list[str] = []
        kept = _snapshot(store, record, faults)  # first: a service that runs may write the next one meanwhile
        try:
            beginning = store.beginning(record.number)
        except DamageError as error:
            return BanditCheck(record.name, 0, [*faults, str(error)])
        found = _check(store, record, beginning, kept, faults)
        if not found.faults or (store.beginning(record.number), _snapshot(store, record, [])) == (beginning, kept):
            break
    return found


def _check(
    store: Store, record: Bandit, beginning: Beginning | None, kept: Snapshot | None, faults: list[str]
) -> BanditCheck:
    """Fold a log from its beginning as far as it goes."""
    settings = msgspec.json.decode(record.settings, type=BanditSettings)
    begins = 0 if beginning is None else beginning.place
    if settings.policy not in POLICIES:  # of a version that had it
        return _read(store, record, begins, faults)
    try:
        learner = first_learner(settings, record.seed, beginning)
    except UnknownPolicyError:
        return _read(store, record, begins, faults)
    except DamageError as error:
        return BanditCheck(record.name, 0, [*faults, str(error)])
    faults += _open(store, record, beginning)
    try:
        for event in fold(learner, partial(events, store, record.number), lambda: read_kept(beginning)):
            faults += _event(store, record, learner, event)
            if kept is not None and kept.place == learner.place:
                faults += _compare(settings, record, kept, learner)
    except UnknownPolicyError:  # which a version had that changed to it
        return _read(store, record, begins, faults)
    except (DamageError, ValueError, KeyError) as error:
        faults.append(str(error) if isinstance(error, DamageError) else _unfit(learner.place, record, error))
    faults = faults or _ends(record, learner, kept, begins)
    return BanditCheck(record.name, learner.place - begins, faults)


def _ends(record: Bandit, learner: Learner, kept: Snapshot | None, begins: int) -> list[str]:
    """A log goes as far as it went, and begins where it says."""
    faults = []
    if kept is not None and kept.place > learner.place:
        faults.append(f"the log of bandit {record.name!r} ends at event {learner.place}, and had {kept.place}")
    if learner.life.begins != begins:
        faults.append(
            f"the log of bandit {record.name!r} was cut at event {learner.life.begins}, and the state that it begins "
            f"with is that of event {begins}"
        )
    return faults


def _open(store: Store, record: Bandit, beginning: Beginning | None) -> list[str]:
    """The decisions that were open where a log was cut must be there."""
    found = []
    for id in [] if beginning is None else open_ids(beginning):  # noqa: A001
        try:
            if not isinstance(store.find(record.number, id, final=False), Decided):
                found.append(f"decision {id!r} of bandit {record.name!r} was open when its log was cut, and is missing")
        except DamageError as error:
            found.append(str(error))
    return found


def _read(store: Store, record: Bandit, begins: int, faults: list[str]) -> BanditCheck:
    """Read a log that can't be folded."""
    count = 0
    try:
        for _ in events(store, record.number, begins):
            count += 1
    except DamageError as error:
        faults.append(str(error))
    return BanditCheck(record.name, count, faults)


def _snapshot(store: Store, record: Bandit, faults: list[str]) -> Snapshot | None:
    try:
        return store.snapshot(record.number)
    except DamageError as error:
        faults.append(f"{error}; the service does without it")
        return None


def _event(store: Store, record: Bandit, learner: Learner, event: Event) -> list[str]:
    """An event that was folded in must be found by its id, too."""
    kind = KINDS[type(event)]
    if kind > 1 or store.find(record.number, event.id, final=bool(kind)) == event:
        return []
    return [f"event {learner.place} of bandit {record.name!r} is not found by its id {event.id!r}"]


def _compare(settings: BanditSettings, record: Bandit, kept: Snapshot, learner: Learner) -> list[str]:
    """A snapshot is the fold of the log up to its place. One of another version is of no use, and no fault."""
    try:
        same = Learner.restore(settings, record.seed, kept.body).digest() == learner.digest()
    except (ValueError, KeyError, TypeError):
        return []
    return [] if same else [f"the snapshot of bandit {record.name!r} is not the fold of its first {kept.place} events"]


def _unfit(place: int, record: Bandit, error: Exception) -> str:
    return f"event {place} of bandit {record.name!r} does not fit the ones before it: {error!r}"
