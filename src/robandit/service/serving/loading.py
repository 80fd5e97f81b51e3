"""How the state of a bandit is loaded from a store."""

from __future__ import annotations

import logging
from functools import partial

from robandit.service.learning.fold import fold
from robandit.service.learning.kept import first_learner, read_kept
from robandit.service.learning.learner import Learner
from robandit.service.learning.student import UnknownPolicyError
from robandit.service.stores.store import (
    Bandit,
    Beginning,
    DamageError,
    Store,
    StorePart,
    events,
    read_tombstone,
)
from robandit.wire.events import Forgot
from robandit.wire.types import BanditSettings

log = logging.getLogger("robandit.service")


_TRIES = 5
"""Times that a log is folded in which something is wrong, while another process changes it."""


def load(record: Bandit, settings: BanditSettings, store: Store | StorePart) -> tuple[Learner, int]:
    """A bandit's state, and the place from which it was folded. Another process may delete the bandit at this moment,
    cut its log, or forget some of it."""
    quick, tries = True, _TRIES
    while True:
        beginning, last = store.beginning(record.number), store.ends(record.number)
        learner = _restored(record, settings, store, beginning, quick=quick)
        saved, sound = learner.place, True
        try:
            read = partial(events, store, record.number)
            for event in fold(learner, read, lambda kept=beginning: read_kept(kept)):  # type: ignore[misc]
                if isinstance(event, Forgot):  # what it forgot may be in the snapshot, or was there a moment ago
                    sound &= not quick and last is not None and learner.place <= last[1]
            if sound:
                return learner, saved
            quick = False
        except UnknownPolicyError:
            raise
        except (DamageError, ValueError):  # half of it may be from before, and half from after
            erased = next((read_tombstone(one) for one in store.bandits() if one.number == record.number), None)
            if erased is not None:
                learner.life.erased = erased
                return learner, saved
            tries -= 1
            if tries == 0 or (store.beginning(record.number), store.ends(record.number)) == (beginning, last):
                raise


def _restored(
    record: Bandit, settings: BanditSettings, store: Store | StorePart, beginning: Beginning | None, *, quick: bool
) -> Learner:
    """A bandit's state as its last snapshot has it, if that is ``quick``, or the one that its log begins with."""
    begins = 0 if beginning is None else beginning.place
    try:
        if quick and (kept := store.snapshot(record.number)) is not None and kept.place >= begins:
            return Learner.restore(settings, record.seed, kept.body)
    except (DamageError, ValueError, KeyError, TypeError) as error:
        log.warning("bandit %s: its snapshot is of no use (%r); its whole log is folded", record.name, error)
    return first_learner(settings, record.seed, beginning)
