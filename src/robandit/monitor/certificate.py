"""What a monitor proves, as values and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

TRACE = 0.01
"""The share of the corruption below which no group is named."""


class Group(NamedTuple):
    """Some rounds and what a certificate says of them."""

    name: str
    """Which rounds, such as `17–32`, or the source."""
    placed: float
    """How much corruption the cheapest explanation of the feedback places here: an attribution, and no proof."""
    voice: float
    """How much they matter in the proof, from 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """What is proved of the corruption in a stream, with probability at least 1 − ``delta``."""

    lower_bound: float
    """Σ|c_t| is at least this, in units of reward."""
    delta: float
    rounds: int
    """How many rounds have been observed."""
    altered: int
    """At least so many rewards were altered: more than none only if ``reward_range`` or an alarm says so."""
    alarm: int | None
    """The round at the first look that proved any corruption."""
    since: int | None
    """The first round of the corruption as the cheapest explanation places it: an attribution, and no proof."""
    groups: tuple[Group, ...]
    """The blocks of rounds that carry the proof, or have corruption placed in them."""
    sources: tuple[Group, ...]
    """The same for sources, where they alone prove something; the most corrupted first."""

    @property
    def sentence(self) -> str:
        """All of it in plain words."""
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
