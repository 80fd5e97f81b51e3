"""The contract that every attack keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from robandit.arrays import Bools, Floats, Index
from robandit.errors import Configured
from robandit.inputs import integer, not_negative
from robandit.lab.environments import Environment, Offer
from robandit.streams import Draws


@dataclass(kw_only=True)
class Attack(Configured, ABC):
    """Lies about rewards. One of one's own defines ``strength`` and `corrupt`.

    An attack says what it would like; the adversary that runs it cuts every lie to what the budget allows and keeps the
    ledger. What it remembers between rounds belongs into attributes that `start` sets.
    """

    budget: float | None = None
    """The most it may spend: a weak attack C_sup, a strong one C_play. None: no limit."""

    strength: ClassVar[Literal["weak", "strong"]]
    """`weak` attacks commit to their lies before the action is drawn; `strong` ones lie about the action they see."""
    infinite: ClassVar[bool] = False
    """Whether it can lie about infinite decision sets. Its lies must then be linear in ⟨a, μ*⟩."""

    def __post_init__(self) -> None:
        if self.budget is not None:
            not_negative("budget", self.budget)

    @abstractmethod
    def corrupt(self, offer: Offer) -> Floats | None:
        """c_t(a), what to add to the reward of every action, (B, K); None for nothing.

        All of the offer may be looked at, μ* and the noise included (step 3). What a strong attack says of actions
        other than the one played is what it would have done.
        """

    def start(self, draw: Draws, environment: Environment) -> None:
        """Begin with the trials of ``draw``, whose streams are the only randomness."""

    def disguise(self, offer: Offer) -> Floats | None:
        """The features (B, K, d) to show the policy instead of the true ones; None to show those."""
        return None

    def observe(self, offer: Offer, played: Index, reward: Floats) -> None:
        """Learn which action was played, (B,), and its clean reward, (B,)."""

    @property
    def label(self) -> float | None:
        """The corruption C that tables and pictures name it by; None if it has no limit."""
        return self.budget

    @property
    def opening(self) -> int:
        """For how many rounds from the first it goes on: while it does, the paper's environment draws fresh sets."""
        return 0


class Flips(Attack):
    """Flips μ* in some rounds: r(a) = −⟨a, μ*⟩ + ε, as the paper's adversary does. One defines `when`."""

    strength = "weak"
    infinite = True

    @abstractmethod
    def when(self, round_: int) -> bool | Bools:
        """Whether to flip this round: for all trials alike, or (B,)."""

    def corrupt(self, offer: Offer) -> Floats | None:
        flipped = self.when(offer.round)
        if isinstance(flipped, np.ndarray):
            return np.where(flipped[:, None], -2.0 * offer.means, 0.0)
        return -2.0 * offer.means if flipped else None


@dataclass(kw_only=True)
class Targeted(Attack):
    """Wants one action of each set to be played."""

    budget: float | None = 100.0
    target: int | None = None
    """The place of that action, or the last one in a set that ends before. By default the worst action of each set."""

    strength = "strong"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target is not None:
            integer("target", self.target, least=0)

    def aim(self, offer: Offer) -> Index:
        """Where the target is, (B,)."""
        if self.target is None:
            return offer.means.argmin(axis=1)
        return np.full(len(offer.means), min(self.target, offer.means.shape[1] - 1))

    def spare(self, offer: Offer, lies: Floats) -> Floats:
        """These lies (B, K), but none about the target."""
        lies[np.arange(len(lies)), self.aim(offer)] = 0.0
        return lies
