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
    """In some rounds the visitor is a bot, which clicks one advertiser's actions and never those of its rivals."""

    strength = "weak"

    budget: float | None = 100.0
    share: float = 0.1
    """Share of the rounds in which the visitor is a bot."""
    owned: int = 1
    """Number of actions that belong to the advertiser, the first ones of each set."""
    click: float = 1.0
    """Reward reported when a bot clicks."""
    no_click: float = 0.0
    """Reward reported when a bot does not click."""

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
