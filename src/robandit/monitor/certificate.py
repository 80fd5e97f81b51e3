"""What a monitor proves, as values and in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from robandit.arrays import Floats

TRACE = 0.01
"""The share of the corruption below which no group is named."""


class Group(NamedTuple):
    """A group of rounds and what a certificate says of it."""

    name: str
    """The rounds, such as `17–32`, or the source."""
    placed: float
    """The corruption that the cheapest explanation of the feedback places here: an attribution, not a proof."""
    voice: float
    """How much the group matters in the proof, from 0 to 1."""


def name_groups(names: Sequence[str], placed: Floats, voice: Floats) -> tuple[Group, ...]:
    """The groups that carry a bound or that it places corruption in, of G groups: placed and voice (G,)."""
    told = (voice > TRACE) | (placed > TRACE * placed.sum())
    return tuple(Group(names[i], float(placed[i]), float(min(1.0, voice[i]))) for i in np.flatnonzero(told).tolist())


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What is proved of the corruption in a stream, with probability at least 1 − ``delta``."""

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
    """The blocks of rounds that carry the proof, or in which corruption is placed."""
    sources: tuple[Group, ...]
    """The sources that carry a proof of their own, or on which it places corruption; the most corrupted first."""

    @property
    def sentence(self) -> str:
        """The certificate in plain words."""
        sure = f"{100.0 * (1.0 - self.delta):.4g} %"
        if self.lower_bound <= 0.0:
            return f"No corruption is proved in {self.rounds:,} rounds, at {sure} confidence; it may still be there."
        amount = f"by {self.lower_bound:.3g} or more in all over {self.rounds:,} rewards"
        text = f"With {sure} confidence the feedback was corrupted, {amount}"
        text += f", of which at least {self.altered:,} were altered." if self.altered > 1 else "."
        blamed = [f"source {group.name}" for group in self.sources[:3] if group.placed > TRACE * self.lower_bound]
        if self.since is not None:
            blamed.append(f"rounds from {self.since:,} on")
        if blamed:
            text += f" The cheapest explanation, which is no proof, blames {' and '.join(blamed)}."
        return text
