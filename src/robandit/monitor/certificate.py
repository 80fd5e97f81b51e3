"""What a monitor proves, as values and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, log10
from typing import NamedTuple

import numpy as np

from robandit.arrays import Floats

TRACE = 0.01
"""The share of the corruption below which a group is not listed."""


class Group(NamedTuple):
    """A group of rounds and what a certificate says of it."""

    name: str
    """The rounds, such as `17–32`, or the source."""
    placed: float
    """The corruption that the cheapest explanation of the feedback places here: neither a proof nor an accusation."""


def list_groups(names: Sequence[str], placed: Floats) -> tuple[Group, ...]:
    """The groups in which an explanation places corruption, of G groups: placed (G,)."""
    told = np.flatnonzero(placed > TRACE * placed.sum()).tolist()
    return tuple(Group(names[i], float(placed[i])) for i in told)


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What is proved of the corruption in a stream, with probability at least 1 − ``delta``, under its assumptions."""

    lower_bound: float
    """Σ|c_t| is at least this, in units of reward."""
    delta: float
    """The probability with which the bound may be wrong, over all looks."""
    rounds: int
    """The number of rounds observed."""
    altered: int
    """At least this many rewards were altered. It is above 1 only where ``reward_range`` tells more."""
    alarm: int | None
    """The round of the first look that proved any corruption."""
    since: int | None
    """The first round in which the cheapest explanation places corruption: an attribution, not a proof."""
    groups: tuple[Group, ...]
    """The blocks of rounds in which the cheapest explanation places corruption."""
    sources: tuple[Group, ...]
    """The sources on which it places corruption, the most corrupted first. Innocents may be among them."""
    suspect: str | None = None
    """The one source without which all others agree, if blaming anybody else costs clearly more."""
    misspecification: float = 0.0
    """ζ: the bound assumes that honest means are linear in the features to within this."""
    estimated: bool = False
    """Whether ζ was estimated from rewards. The bound then carries no confidence, and nobody is named."""
    parameter_bound: float | None = None
    """B: the bound assumes that ‖μ*‖ is at most this; None if it needs no such bound."""
    rests_on_bound: bool = False
    """Whether nothing at all would be proved without B."""
    beyond: int = 0
    """The number of rewards that were outside ``reward_range``."""

    @property
    def sentence(self) -> str:
        """The certificate in plain words: first what it assumes, then what follows."""
        sure = f"{100.0 * (1.0 - self.delta):.4g} %"
        if self.lower_bound <= 0.0:
            return f"No corruption is proved in {self.rounds:,} rounds, at {sure} confidence; it may still be there."
        if self.rests_on_bound:
            return (
                f"These {self.rounds:,} rewards contradict your parameter bound of {self.parameter_bound:g}: with "
                f"{sure} confidence it is too small, or rewards were altered. Without the bound nothing is proved."
            )
        amount = f"altered by {in_words(self.lower_bound)} or more in all"
        least = f", and at least {self.altered:,} of them were altered" if self.altered > 1 else ""
        outside = f" {self.beyond:,} of them were outside the range of honest rewards." if self.beyond else ""
        then = "then" if self.estimated else f"then with {sure} confidence"
        return (
            f"If honest rewards are {self._linear()} in the features, {then} these {self.rounds:,} rewards were "
            f"{amount}{least}.{outside} {self._who()}"
        )

    def _linear(self) -> str:
        return f"linear to within {self.misspecification:g}" if self.misspecification else "exactly linear"

    def _who(self) -> str:
        if self.suspect is not None:
            return (
                f"All sources but {self.suspect} agree with each other, and only without it. Whether {self.suspect} "
                "lies, is honestly different, or is honest while all others lie alike, these data can't tell."
            )
        when = f" It is explained most cheaply by rounds from {self.since:,} on." if (self.since or 1) > 1 else ""
        return f"Fraud, drift and groups that honestly differ would all look like this; the data don't say which.{when}"


def in_words(value: float) -> str:
    """An amount with three digits or more, and never with an exponent.

    >>> [in_words(value) for value in (3456.7, 12.34, 0.05678)]
    ['3,457', '12.3', '0.0568']
    """
    decimals = 2 - floor(log10(value)) if value > 0.0 else 0
    return f"{value:,.{min(15, max(0, decimals))}f}"
