"""The contract that every attack keeps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Bools, Floats, Index
from robandit.errors import Configured
from robandit.inputs import integer, not_negative
from robandit.lab.environments import Environment, Offer
from robandit.streams import Draws

Number = TypeVar("Number", np.float64, np.int64)


@dataclass(kw_only=True)
class Attack(Configured, ABC):
    """Lies about rewards. Subclasses define ``strength`` and `corrupt`.

    An attack says what lies it would like to tell; the adversary that runs it cuts each lie to what the budget allows
    and keeps the ledger. What an attack remembers between rounds belongs in attributes that `start` sets.
    """

    budget: float | None = None
    """Most corruption that the attack may spend: C_sup if it is weak, C_play if it is strong. None means no limit."""

    strength: ClassVar[Literal["weak", "strong"]]
    """A `weak` attack commits to its lies before the action is drawn; a `strong` one sees the action first."""
    infinite: ClassVar[bool] = False
    """Whether the attack can lie about infinite decision sets. Its lies must then be linear in ⟨a, μ*⟩."""

    def __post_init__(self) -> None:
        if self.budget is not None:
            not_negative("budget", self.budget)

    @abstractmethod
    def corrupt(self, offer: Offer) -> Floats | None:
        """The lies c_t(a) to add to the reward of every action, (B, K); None for no lies.

        The attack may look at all of the offer, μ* and the noise included (step 3). A strong attack gives for each
        action the lie that it would tell if that action were played.
        """

    def start(self, draw: Draws, environment: Environment) -> None:
        """Begin the trials of ``draw``, which is the only source of randomness."""

    def disguise(self, offer: Offer) -> Floats | None:
        """The features (B, K, d) to show the policy instead of the true ones; None to show the true ones."""
        return None

    def observe(self, offer: Offer, played: Index, reward: Floats) -> None:
        """Learn which actions were played, (B,), and their clean rewards, (B,)."""

    def owns(self, offer: Offer) -> Bools:
        """Whether each visitor belongs to the attack, (B,): policies that are told the liars learn nothing from it."""
        return np.zeros(len(offer.means), dtype=bool)

    @property
    def label(self) -> float | None:
        """The corruption C with which tables and pictures label the attack; None if it has no limit."""
        return self.budget

    @property
    def opening(self) -> int:
        """The number of opening rounds under attack. During them the paper's environment draws fresh sets."""
        return 0


class Flips(Attack):
    """Flips μ* in some rounds, r(a) = −⟨a, μ*⟩ + ε, as the paper's adversary does. Subclasses define `when`."""

    strength = "weak"
    infinite = True

    @abstractmethod
    def when(self, round_: int) -> bool | Bools:
        """Whether to flip this round: one answer for all trials, or (B,)."""

    def corrupt(self, offer: Offer) -> Floats | None:
        flipped = self.when(offer.round)
        if isinstance(flipped, np.ndarray):
            return np.where(flipped[:, None], -2.0 * offer.means, 0.0)
        return -2.0 * offer.means if flipped else None


@dataclass(kw_only=True)
class Targeted(Attack):
    """Wants the policy to play one target action of each set."""

    budget: float | None = 100.0
    target: int | None = None
    """Place of the target in a set, or the last place if the set is smaller. By default the worst action."""

    strength = "strong"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.target is not None:
            integer("target", self.target, least=0)

    def aim(self, offer: Offer) -> Index:
        """The place of the target, (B,)."""
        if self.target is None:
            return offer.means.argmin(axis=1)
        return np.full(len(offer.means), min(self.target, offer.means.shape[1] - 1))

    def spare(self, offer: Offer, lies: Floats) -> Floats:
        """Drop the lies about the target from lies (B, K), in place."""
        lies[np.arange(len(lies)), self.aim(offer)] = 0.0
        return lies


def widened(counts: NDArray[Number], columns: int) -> NDArray[Number]:
    """Counts (B, k), with columns of zeros appended if there are fewer than this."""
    missing = columns - counts.shape[1]
    return np.pad(counts, ((0, 0), (0, missing))) if missing > 0 else counts
