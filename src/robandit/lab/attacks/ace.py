"""Liu and Shroff's attack by an adversary that has to learn the means of the arms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats, Index
from robandit.inputs import positive
from robandit.lab.attacks.base import Targeted
from robandit.lab.environments import Environment, Offer
from robandit.streams import Draws


@dataclass(kw_only=True)
class ACE(Targeted):
    """Adaptive attack by constant estimation: −[μ̂_a − μ̂_† + β(N_a) + β(N_†)]₊ for a ≠ a† (Liu and Shroff 2019).

    β(n) = √((2σ²/n) log(π²Kn²/(3δ))), with means μ̂ and counts N of clean rewards, this round's included. It is an
    attack on arms: an action counts as the arm of its place in the set. Until the target was played there is nothing
    to compare with, and no attack.
    """

    sigma: float | None = None
    """σ, for which the noise is sub-Gaussian; the environment's noise range by default."""
    delta: float = 0.05
    """With which probability the bounds may fail."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sigma is not None:
            positive("sigma", self.sigma)
        if positive("delta", self.delta) >= 1.0:
            raise ValueError(f"delta must be below 1, got {self.delta!r}")

    def start(self, draw: Draws, environment: Environment) -> None:
        self._sigma = environment.noise_range if self.sigma is None else self.sigma
        self._counts: Floats = np.zeros((len(draw), 0))
        self._sums: Floats = np.zeros((len(draw), 0))

    def corrupt(self, offer: Offer) -> Floats:
        arms = offer.means.shape[1]
        counts, sums = self._seen(arms)
        target = self.aim(offer)[:, None]
        known = np.take_along_axis(counts, target, axis=1)
        of_target = np.take_along_axis(sums, target, axis=1) / np.maximum(known, 1.0)
        means = (sums + offer.rewards) / (counts + 1.0)
        lies = np.maximum(means - of_target + self._beta(counts + 1.0, arms) + self._beta(known, arms), 0.0)
        return self.spare(offer, np.where(known > 0.0, -lies, 0.0))

    def observe(self, offer: Offer, played: Index, reward: Floats) -> None:
        rows = np.arange(len(played))
        counts, sums = self._seen(offer.means.shape[1])
        counts[rows, played] += 1.0
        sums[rows, played] += reward

    def _seen(self, arms: int) -> tuple[Floats, Floats]:
        """Counts and sums of the first arms, (B, arms), which grow if there were never so many."""
        if arms > self._counts.shape[1]:
            more = ((0, 0), (0, arms - self._counts.shape[1]))
            self._counts, self._sums = np.pad(self._counts, more), np.pad(self._sums, more)
        return self._counts[:, :arms], self._sums[:, :arms]

    def _beta(self, n: Floats, arms: int) -> Floats:
        n = np.maximum(n, 1.0)
        return np.sqrt(2.0 * self._sigma**2 / n * np.log(np.pi**2 * arms * n**2 / (3.0 * self.delta)))
