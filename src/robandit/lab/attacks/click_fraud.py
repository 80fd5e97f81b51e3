"""Bots that click for an advertiser."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats
from robandit.inputs import as_floats, integer, share
from robandit.lab.attacks.base import Attack
from robandit.lab.environments import Environment, Offer
from robandit.streams import Draws


@dataclass(kw_only=True)
class ClickFraud(Attack):
    """A share of the rounds are bots, which always reward one advertiser's actions and never its rivals'."""

    strength = "weak"

    budget: float | None = 100.0
    share: float = 0.1
    """Of the rounds."""
    owned: int = 1
    """How many actions are the advertiser's: the first ones of each set."""
    click: float = 1.0
    """The reward of an action that a bot clicks on,"""
    no_click: float = 0.0
    """and of one that it leaves alone."""

    def __post_init__(self) -> None:
        super().__post_init__()
        share("share", self.share)
        integer("owned", self.owned, least=1)
        for name in ("click", "no_click"):
            if not np.isfinite(as_floats(name, getattr(self, name))).all():
                raise ValueError(f"{name} must be finite, got {getattr(self, name)!r}")

    def start(self, draw: Draws, environment: Environment) -> None:
        self._visitor = draw.uniform()

    def corrupt(self, offer: Offer) -> Floats:
        wanted = np.where(np.arange(offer.means.shape[1]) < self.owned, self.click, self.no_click)
        bot = self._visitor.at(offer.round) < self.share
        return np.where(bot[:, None], wanted - offer.rewards, 0.0)
