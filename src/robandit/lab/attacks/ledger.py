"""The ledger: what an attack has spent, by both definitions of corruption, and what it has left."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robandit.arrays import Bools, Floats, Ints


class Ledger:
    """The accounts of a batch of trials.

    ``c_sup`` is the paper's Σ_t sup_a |c_t(a)| / (R + 1), eq. (def:corruption); ``c_play`` is Σ_t |c_t(a_t)|. A weak
    adversary, who commits to lies about all actions, has its budget in ``c_sup``; a strong one, who sees the action
    and lies about it alone, has it in ``c_play``.

    >>> ledger = Ledger(budgets=[1.0, 1.0], strong=[False, True], noise_range=0.5)
    >>> ledger.left.tolist()  # what one lie may still amount to
    [1.5, 1.0]
    >>> ledger.book(np.array([[0.3, 0.6], [0.3, 0.6]]), played=np.array([0, 0]))
    >>> ledger.c_sup.round(12).tolist(), ledger.c_play.tolist()
    ([0.4, 0.4], [0.3, 0.3])
    >>> ledger.left.round(12).tolist()
    [0.9, 0.7]
    """

    def __init__(self, *, budgets: ArrayLike, strong: ArrayLike, noise_range: float) -> None:
        self._budgets: Floats = np.asarray(budgets, dtype=float)
        self._strong: Bools = np.asarray(strong, dtype=bool)
        self._noise_range = noise_range
        self._overspent = self._budgets * (1.0 + 1e-9)
        self._rows = np.arange(len(self._budgets))
        # No limit is ∞, as is that on the corruption that an adversary of this kind does not pay for.
        self._limits = np.where(self._strong, np.inf, self._budgets), np.where(self._strong, self._budgets, np.inf)
        self.c_sup: Floats = np.zeros(len(self._budgets))
        self.c_play: Floats = np.zeros(len(self._budgets))
        self.lies: Ints = np.zeros(len(self._budgets), np.int64)
        """The number of rounds so far in which the reward was not the true one, (B,)."""
        self._count()

    def book(self, amounts: Floats, played: NDArray[np.intp]) -> None:
        """Enter a round: the size of the lie about each action, (B, K) ≥ 0, and the action played, (B,)."""
        c_sup = self.c_sup + amounts.max(axis=1) / (self._noise_range + 1.0)
        told = amounts[self._rows, played]
        c_play = self.c_play + told
        spent = np.where(self._strong, c_play, c_sup)
        if (spent > self._overspent).any():
            raise ValueError(f"a budget of {self._budgets[spent.argmax()]} was overspent: {spent.max()}")
        # A lie that takes all that is left may exceed it by a rounding error.
        self.c_sup, self.c_play = np.minimum(c_sup, self._limits[0]), np.minimum(c_play, self._limits[1])
        self.lies = self.lies + (told > 0.0)
        self._count()

    def _count(self) -> None:
        """Work out what is left."""
        left = np.where(
            self._strong, self._budgets - self.c_play, (self._budgets - self.c_sup) * (self._noise_range + 1.0)
        )
        self.left: Floats = left
        """The largest lie that each trial's budget still allows, in units of reward, (B,)."""
        self.exhausted = not left.any()
        """Whether every trial has spent its budget."""
