"""What was chosen and what it earned, by action and by source, over time."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from robandit.wire.shadows import Estimate

RANGES = ("seconds", "minutes", "hours")
"""Ranges of time: two minutes by the second, two hours by the minute, a week by the hour."""


def _about(text: str) -> Meta:
    return Meta(description=text)


class MeanInterval(msgspec.Struct, frozen=True, kw_only=True):
    """A mean and its 95 % interval. It is for one look at one mean: of twenty, one may lie outside."""

    mean: float
    low: Annotated[float | None, _about("Lower end; null where there are too few rewards to say.")]
    high: Annotated[float | None, _about("Upper end; null where there are too few rewards to say.")]


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What was decided and earned by one action, or for visitors of one source."""

    name: Annotated[
        str | None,
        _about("The action's id, or the source's label, cut to 64 characters; null for visitors without a source."),
    ]
    others: Annotated[bool, _about("Whether it stands for all that are not told apart; its name is null.")]
    decisions: Annotated[int, _about("Number of decisions since the bandit was made.")]
    rewards: Annotated[int, _about("Number of rewards since then, defaults included.")]
    recent: Annotated[
        MeanInterval | None, _about("Mean of the rewards in this range of time; null if there were none.")
    ]
    made: Annotated[list[int], _about("Number of decisions in each stretch of time.")]
    earned: Annotated[
        list[tuple[int, float]], _about("Number of rewards that became final in each stretch of time, and their sum.")
    ]


class UniformReport(msgspec.Struct, frozen=True, kw_only=True):
    """The bandit beside uniform play, on the decisions made while it explored that got a reward."""

    decisions: Annotated[int, _about("Number of these decisions.")]
    effective: Annotated[float, _about("Number of decisions of uniform play that would tell as much.")]
    logged: Annotated[Estimate | None, _about("What the bandit has earned.")]
    ips: Annotated[Estimate | None, _about("What uniform play would have earned, by inverse propensity scoring.")]
    snips: Annotated[Estimate | None, _about("The same, self-normalised.")]
    gain: Annotated[Estimate | None, _about("What the bandit has earned beyond `snips`, with an interval of its own.")]


class ActivityReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen and what it earned in a range of time. All of it is the fold of the log."""

    range: Annotated[str, Meta(extra_json_schema={"enum": [*RANGES]})]
    width: Annotated[float, _about("Seconds that a stretch of time takes.")]
    now: Annotated[float, _about("The service's time, in seconds since 1970.")]
    starts: Annotated[list[float], _about("Beginnings of the stretches in which something happened.")]
    actions: Annotated[list[Activity], _about("Actions: those with the most decisions in this range first.")]
    sources: Annotated[list[Activity], _about("Sources of traffic, in the same order.")]
    uniform: UniformReport
