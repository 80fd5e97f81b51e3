"""What a policy that watches would have earned."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


def _about(text: str) -> Meta:
    return Meta(description=text)


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """An estimated mean reward; the true one is within ± half of the width in 95 % of all cases, if n is large."""

    value: float
    half_width: float


class ShadowReport(msgspec.Struct, frozen=True, kw_only=True):
    """How a shadow does beside the policy that acts, on the decisions since it began to watch that got a reward."""

    name: str
    policy: str
    decisions: Annotated[int, _about("Number of these decisions.")]
    agreement: Annotated[float, _about("Mean probability with which it would have chosen what was chosen.")] | None
    logged: Annotated[Estimate, _about("What the policy that acts has earned.")] | None
    ips: Annotated[Estimate, _about("What it would have earned, by inverse propensity scoring.")] | None
    snips: Annotated[Estimate, _about("The same, self-normalised.")] | None
    dr: Annotated[Estimate, _about("The same, doubly robust.")] | None
