"""Rewards from outside, which a bandit learns from without having decided."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from robandit.wire.types import Id, Label, Positive, Propensity, Record, Reward, Vector


def _about(text: str) -> Meta:
    return Meta(description=text)


class HistoryRow(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """An action that somebody has taken, and its reward."""

    id: Annotated[Id, _about("Its id, by which it counts once. A decision of this bandit can't have the same.")]
    features: Annotated[
        Vector | Record, _about("The action's features: numbers, or where the bandit has `features`, also a record.")
    ]
    reward: Reward
    context: Annotated[Record, _about("What belongs to the decision and not to the action, by column.")] | None = None
    sigma: Annotated[Positive, _about("Standard deviation of the reward; by default, `noise_range`.")] | None = None
    source: Annotated[Label, _about("Where the traffic came from.")] | None = None
    propensity: Annotated[Propensity, _about("Probability with which the action was chosen.")] | None = None


MOST_ROWS = 5000
"""Largest number of rows in a request."""
History = Annotated[list[HistoryRow], Meta(min_length=1, max_length=MOST_ROWS)]


class ImportDone(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the rows of a request. None of them counts twice."""

    imported: Annotated[int, _about("Number of rows that were learnt.")]
    duplicates: Annotated[int, _about("Number of rows that had been learnt before.")]
    conflicts: Annotated[list[str], _about("Ids that belong to something else already; those rows were not learnt.")]
