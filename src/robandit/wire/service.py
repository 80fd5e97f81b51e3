"""How the service itself does."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


def _about(text: str) -> Meta:
    return Meta(description=text)


class Minute(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that were answered in a minute."""

    start: Annotated[float, _about("Beginning of the minute, in seconds since 1970.")]
    requests: int
    refused: Annotated[int, _about("Those answered 4xx.")]
    failed: Annotated[int, _about("Those answered 5xx.")]
    decisions: Annotated[int, _about("Requests for a decision.")]
    half: Annotated[float | None, _about("Seconds within which half of the decisions were answered, about.")]
    nearly_all: Annotated[float | None, _about("Seconds within which 99 of 100 were answered, about.")]


class ServiceReport(msgspec.Struct, frozen=True, kw_only=True):
    """How this process has done in the last two hours, or since its start. It is no part of the log."""

    now: Annotated[float, _about("This machine's time, in seconds since 1970.")]
    started: Annotated[float, _about("When this process was started, in seconds since 1970.")]
    minutes: Annotated[list[Minute], _about("The minutes in which something was asked.")]
