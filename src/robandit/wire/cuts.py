"""How long a log is kept, and what became of the rest."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


def _about(text: str) -> Meta:
    return Meta(description=text)


class CutWanted(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a log is to be cut."""

    keep_days: Annotated[float, Meta(ge=0, le=100_000, description="Events that are younger than so many days stay.")]


class CutMade(msgspec.Struct, frozen=True, kw_only=True):
    """Where a log begins. What came before taught the policy, and is gone: no other policy can learn it."""

    events: Annotated[int, _about("Number of events before the beginning, all in all; 0 if the log is whole.")] = 0
    decisions: Annotated[int, _about("Number of decisions among them.")] = 0
    kept_open: Annotated[
        int, _about("Number of these decisions that stay, since their reward had not come by the last event before.")
    ] = 0
    before: Annotated[float | None, _about("Time of the last event before it, in seconds since 1970.")] = None
    at: Annotated[float | None, _about("Time at which the log was cut, in seconds since 1970.")] = None


class CutWaits(msgspec.Struct, frozen=True, kw_only=True):
    """A log that is not cut yet, since its beginning is folded first. Ask again with the same request."""

    folded: Annotated[int, _about("Number of events that are folded.")]
    events: Annotated[int, _about("Number of events in the log.")]
