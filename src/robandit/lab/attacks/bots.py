"""Bots that visit in place of people, as sellers buy them: in a window, or spread over time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Bools, Floats, Index
from robandit.inputs import as_floats, integer, share
from robandit.lab.attacks.base import Attack
from robandit.lab.environments import Environment, Offer
from robandit.streams import Draws

GOALS = ("promote", "suppress")
TIMES = ("spread", "opening", "middle")
_MIDDLE = 0.4  # of the run is over when the fraud in its middle begins
_GOLDEN = (5.0**0.5 - 1.0) / 2.0  # whose multiples are spread evenly between whole numbers
_TIED = 1e-9


@dataclass(kw_only=True)
class Bots(Attack):
    """In some rounds the visitor is a bot, which promotes a seller's actions or suppresses the best.

    To promote, it clicks the actions that have most of one feature, or least if people like it, and nothing else. Each
    trial has its own feature, drawn from those in which the actions of the first set differ. To suppress, it never
    clicks the best action, and is honest about the others.
    """

    strength = "weak"

    goal: str = "promote"
    """What the bots are for: `promote` or `suppress`."""
    when: str = "spread"
    """When they come: `spread` evenly over all rounds, in an `opening` window, or in one in the `middle`."""
    share: float = 0.2
    """Share of the rounds in which the visitor is a bot."""
    rounds: int = 1000
    """Number of rounds of a trial, of which a window is a share."""
    source: int | None = None
    """Number of the source under whose name the bots come. By default they come under any name, as people do."""
    feature: int | None = None
    """Place of the feature by which actions are promoted. By default each trial draws one."""
    click: float = 1.0
    """Reward reported when a bot clicks."""
    no_click: float = 0.0
    """Reward reported when a bot does not click."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, known in (("goal", GOALS), ("when", TIMES)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name} must be one of {', '.join(known)}, got {getattr(self, name)!r}")
        share("share", self.share)
        integer("rounds", self.rounds, least=1)
        for name in ("feature", "source"):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), least=0)
        for name in ("click", "no_click"):
            if not np.isfinite(as_floats(name, getattr(self, name))).all():
                raise ValueError(f"{name} must be finite, got {getattr(self, name)!r}")

    def start(self, draw: Draws, environment: Environment) -> None:
        if self.feature is not None and self.feature >= environment.dim:
            raise ValueError(f"feature must be below d = {environment.dim}, got {self.feature}")
        if self.source is not None and self.source >= len(environment.shares):
            raise ValueError(
                f"source must be below the number of sources, {len(environment.shares)}, got {self.source}"
            )
        self._taste = draw.uniform(environment.dim).at(0)
        self._chosen: tuple[Index, Floats] | None = None

    def corrupt(self, offer: Offer) -> Floats | None:
        if self._chosen is None:
            self._chosen = self._choose(offer)
        if not self.is_bot(offer.round):
            return None
        return (self._promoted(offer) if self.goal == "promote" else self._suppressed(offer)) - offer.rewards

    def owns(self, offer: Offer) -> Bools:
        return np.full(len(offer.means), self.is_bot(offer.round))

    def is_bot(self, round_: int) -> bool:
        """Whether the visitor of this round is a bot: the environment must know, to name the source."""
        if self.when == "spread":
            return round_ * _GOLDEN % 1.0 < self.share
        begin = round(_MIDDLE * self.rounds) if self.when == "middle" else 0
        return begin < round_ <= begin + round(self.share * self.rounds)

    def _choose(self, offer: Offer) -> tuple[Index, Floats]:
        """The feature that each trial promotes, and 1 if it wants much of it or −1 if little, (B,) each."""
        assert isinstance(offer.actions, np.ndarray)
        differs = np.ptp(offer.actions, axis=1) > _TIED
        drawn = np.argmax(self._taste * differs, axis=1)
        feature = drawn if self.feature is None else np.full(len(drawn), self.feature)
        liked = offer.menu.parameter[np.arange(len(drawn)), feature]
        return feature, np.where(liked > 0.0, -1.0, 1.0)

    def _promoted(self, offer: Offer) -> Floats:
        """What a seller's bots report of each action, (B, K)."""
        assert self._chosen is not None and isinstance(offer.actions, np.ndarray)
        feature, sign = self._chosen
        values = sign[:, None] * np.take_along_axis(offer.actions, feature[:, None, None], axis=2)[:, :, 0]
        return np.where(values >= values.max(axis=1, keepdims=True) - _TIED, self.click, self.no_click)

    def _suppressed(self, offer: Offer) -> Floats:
        """What a rival's bots report of each action, (B, K)."""
        return np.where(offer.means >= offer.menu.best[:, None] - _TIED, self.no_click, offer.rewards)
