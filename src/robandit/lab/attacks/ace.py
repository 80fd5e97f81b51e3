"""Liu and Shroff's attack by an adversary that must learn the means of the arms."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats, Index
from robandit.inputs import positive, probability
from robandit.lab.attacks.base import Targeted, widened
from robandit.lab.environments import Environment, Offer
from robandit.streams import Draws


@dataclass(kw_only=True)
class ACE(Targeted):
    """Adaptive attack by constant estimation: −[μ̂(a) − μ̂(†) + β(N_a) + β(N_†)]₊ for a ≠ a† (Liu and Shroff 2019).

    β(n) = √((2σ²/n) log(π²Kn²/(3δ))), with means μ̂ and counts N of clean rewards, this round's included. The attack
    is on arms: the place of an action in the set is its arm. It begins once the target has been played.
    """

    sigma: float | None = None
    """Number σ such that the noise is σ-sub-Gaussian. By default the environment's noise range."""
    delta: float = 0.05
    """Probability δ with which the bounds may fail."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sigma is not None:
            positive("sigma", self.sigma)
        probability("delta", self.delta)

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
        """The counts and sums of the first arms, (B, arms), which can be written to."""
        self._counts, self._sums = widened(self._counts, arms), widened(self._sums, arms)
        return self._counts[:, :arms], self._sums[:, :arms]

    def _beta(self, n: Floats, arms: int) -> Floats:
        """The width β(n) of the confidence interval of a mean of n rewards."""
        n = np.maximum(n, 1.0)
        return np.sqrt(2.0 * self._sigma**2 / n * np.log(np.pi**2 * arms * n**2 / (3.0 * self.delta)))
