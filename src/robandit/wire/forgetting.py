"""Decisions that are to be forgotten, such as those about a person."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from robandit.wire.types import Id


def _about(text: str) -> Meta:
    return Meta(description=text)


MOST_FORGOTTEN = 1000
"""Largest number of ids in a request."""


class ForgetWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be forgotten."""

    decision_ids: Annotated[
        list[Id], Meta(min_length=1, max_length=MOST_FORGOTTEN, description="Ids of decisions, or of rows of history.")
    ]


class ForgetMade(msgspec.Struct, frozen=True, kw_only=True):
    """What was forgotten. The state is now one that has never known it."""

    decisions: Annotated[int, _about("Number of decisions, and of rows of history, that have gone just now.")]
    unknown: Annotated[
        list[str], _about("Ids that the log does not have. What was cut from it stays in what was learnt, as numbers.")
    ]
    cut: Annotated[
        list[str],
        _about(
            "Ids of decisions that stay: the log was cut after them, while they were open. The next cut takes them."
        ),
    ]


class ForgetWaits(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing is forgotten yet, since the log is folded first. Ask again with the same request."""

    folded: Annotated[int, _about("Number of events that are folded.")]
    events: Annotated[int, _about("Number of events in the log.")]
