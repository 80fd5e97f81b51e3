"""Attacks by sources of traffic: some sources lie, always or for a while, and may pass the task on to others."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from robandit.arrays import Bools, Floats, Ints
from robandit.inputs import integer
from robandit.lab.attacks.base import Attack
from robandit.lab.environments import Environment, Offer
from robandit.streams import Draws


@dataclass(kw_only=True)
class BySource(Attack):
    """Some sources lie. Subclasses define `lies`. In a world without sources all visitors come from source 0."""

    liars: int = 3
    """Number of sources that lie at a time."""
    first: int = 0
    """Number of the first source that lies. Where traffic is skewed, source 0 is the largest."""
    begin: int = 1
    """First round with lies; until then the liars are honest."""
    end: int | None = None
    """Last round with lies. By default they never end."""
    move_every: int | None = None
    """Rounds after which the next sources take over. By default the same ones lie throughout."""

    strength: ClassVar[Literal["weak", "strong"]] = "weak"

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("liars", self.liars, least=1)
        integer("first", self.first, least=0)
        integer("begin", self.begin, least=1)
        for name in ("end", "move_every"):
            if getattr(self, name) is not None:
                integer(name, getattr(self, name), least=1)

    def start(self, draw: Draws, environment: Environment) -> None:
        self._sources = max(len(environment.shares), 1)
        replayed = getattr(environment, "clicks", False)
        self.clicks = replayed or getattr(environment, "noise", "") == "bernoulli"
        if self.first >= self._sources and environment.shares:
            raise ValueError(f"first must be below the number of sources, {self._sources}, got {self.first}")

    @abstractmethod
    def lies(self, offer: Offer) -> Floats:
        """The lies (B, K) in trials whose visitor lies; the others are left out."""

    def corrupt(self, offer: Offer) -> Floats | None:
        if offer.round < self.begin or (self.end is not None and offer.round > self.end):
            return None
        return np.where(self.owns(offer)[:, None], self.lies(offer), 0.0)

    def owns(self, offer: Offer) -> Bools:
        """Whether the visitor comes from a lying source, (B,), also while it does not lie."""
        if offer.source is None:
            return np.ones(len(offer.means), dtype=bool)
        return np.isin(offer.source, self.liars_in(offer.round))

    def liars_in(self, round_: int) -> Ints:
        """The numbers of the lying sources in a round."""
        moves = 0 if self.move_every is None else (round_ - 1) // self.move_every
        number = min(self.liars, self._sources)
        return (self.first + moves * number + np.arange(number)) % self._sources

    def as_if(self, offer: Offer, praised: Bools) -> Floats:
        """Lies (B, K) that praise some actions and slander the others, (B, K): as clicks, or as the set's best mean."""
        if self.clicks:
            return praised - offer.rewards
        return np.where(praised, offer.menu.best[:, None], offer.means.min(axis=1, keepdims=True)) - offer.means


@dataclass(kw_only=True)
class SourcePromote(BySource):
    """Lying sources praise what is below the median of the set and slander everything else."""

    def lies(self, offer: Offer) -> Floats:
        return self.as_if(offer, offer.means < np.median(offer.means, axis=1, keepdims=True))


@dataclass(kw_only=True)
class SourceSuppress(BySource):
    """Lying sources slander the best action and are honest about the others."""

    def lies(self, offer: Offer) -> Floats:
        best = offer.means >= offer.menu.best[:, None]
        return np.where(best, self.as_if(offer, ~best), 0.0)


@dataclass(kw_only=True)
class SourceFlip(BySource):
    """Lying sources report the opposite: no click for a click, or rewards with the mean's sign turned."""

    def lies(self, offer: Offer) -> Floats:
        return 1.0 - 2.0 * offer.rewards if self.clicks else -2.0 * offer.means


@dataclass(kw_only=True)
class SourceNoise(BySource):
    """Lying sources praise or slander by chance, whatever is played."""

    def start(self, draw: Draws, environment: Environment) -> None:
        super().start(draw, environment)
        self._coin = draw.uniform()

    def lies(self, offer: Offer) -> Floats:
        praised = self._coin.at(offer.round)[:, None] < 0.5
        return self.as_if(offer, np.broadcast_to(praised, offer.means.shape))
