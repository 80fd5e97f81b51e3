"""Rewards from outside: read and checked all at once, learnt a few at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from robandit.service.clock import ServiceClock
from robandit.service.refused import Refused
from robandit.service.serving.changes import check_active, for_a_slice
from robandit.service.serving.live import Bandits
from robandit.service.serving.live_bandit import LiveBandit
from robandit.service.stores.store import UNPLACED, Item, LogEntry
from robandit.wire.events import Imported
from robandit.wire.imports import HistoryRow, ImportDone
from robandit.wire.types import Action, Choice

_AT_ONCE = 20  # rows that are encoded before others have their turn
_SLACK = 1e-6  # by how much a norm may exceed its bound through rounding


class _Ready(NamedTuple):
    """A row with its vector."""

    row: HistoryRow
    features: list[float]


class UnwrittenRows(NamedTuple):
    """Rows that are not written yet: their bandit, and their ids."""

    bandit: LiveBandit
    ids: list[str]


class Imports:
    """Takes history in. Every row is an event of the log, which the policies learn and the monitor does not see."""

    def __init__(self, bandits: Bandits, clock: ServiceClock) -> None:
        self._bandits, self._clock = bandits, clock

    async def read(self, bandit: LiveBandit, rows: Sequence[HistoryRow]) -> list[_Ready]:
        """Make vectors of all rows. One that can't be used refuses them all, before any is learnt."""
        found: list[_Ready] = []
        for row in rows:
            if len(found) % _AT_ONCE == 0:
                await asyncio.sleep(0)
            found.append(_Ready(row, _vector(bandit, row)))
        return found

    def learn(self, bandit: LiveBandit, rows: Sequence[_Ready], items: list[Item]) -> list[str]:
        """Learn rows, as many as one slice has time for, and say what became of each."""
        check_active(bandit)

        def one(ready: _Ready) -> str:
            known = self._bandits.find(bandit, ready.row.id, final=False)
            event = self._event(bandit, ready)
            if known is None:
                self._bandits.put(bandit, event, items)
                return "imported"
            same = isinstance(known, Imported) and (known.features, known.reward) == (event.features, event.reward)
            return "duplicate" if same else "conflict"

        return for_a_slice(rows, one)

    def claim(self, bandit: LiveBandit, rows: Sequence[_Ready], items: list[Item]) -> UnwrittenRows:
        """Have rows written without a place, before `learn` looks: then no decision on a state that may be old can take
        their ids in between. Those whose ids are taken already are not written."""
        check_active(bandit)
        items += [LogEntry(bandit.record.number, UNPLACED, self._event(bandit, ready)) for ready in rows]
        return UnwrittenRows(bandit, [ready.row.id for ready in rows])

    def _event(self, bandit: LiveBandit, ready: _Ready) -> Imported:
        row, usual = ready.row, bandit.learner.usual_sigma
        return Imported(
            id=row.id,
            at=self._clock.at_least(bandit.learner.clock),
            features=ready.features,
            reward=row.reward,
            sigma=usual if row.sigma is None else row.sigma,
            source=row.source,
            propensity=row.propensity,
        )


def told(rows: Sequence[_Ready], outcomes: Sequence[str]) -> ImportDone:
    """What became of all rows."""
    conflicts = [ready.row.id for ready, what in zip(rows, outcomes, strict=True) if what == "conflict"]
    return ImportDone(imported=outcomes.count("imported"), duplicates=outcomes.count("duplicate"), conflicts=conflicts)


def _vector(bandit: LiveBandit, row: HistoryRow) -> list[float]:
    """The vector of a row's action, which the policy can learn from."""
    settings, learner = bandit.settings, bandit.learner
    try:
        if learner.declared is not None:
            learner.declared.check(row.reward, "its reward")
        if isinstance(row.features, list):
            found = np.array(row.features)
            if found.shape != (settings.dim,):
                raise ValueError(f"it has {found.size} features, and should have {settings.dim}")
        elif settings.centred:
            raise ValueError("this bandit centres whole sets, so a single record is not enough: send vectors")
        else:
            choice = Choice(actions=[Action(row.id, row.features)], source=row.source, context=row.context)
            found = bandit.vectors(choice)[0][0]
        norm = float(np.linalg.norm(found))
        if not norm <= settings.action_bound * (1.0 + _SLACK):
            raise ValueError(f"its features have the norm {norm:.6g}, beyond action_bound = {settings.action_bound:g}")
    except (ValueError, Refused) as error:
        raise Refused(422, f"row {row.id!r}: {error}") from None
    plain: list[float] = found.tolist()
    return plain
