"""The sources of an environment's traffic: who visits in a round, and how honest sources differ."""

from __future__ import annotations

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.streams import Draws


def shares_of(sources: int, skew: float) -> tuple[float, ...]:
    """The traffic shares of so many sources: all the same, or the j-th in proportion to j^−skew.

    >>> shares_of(4, 0.0)
    (0.25, 0.25, 0.25, 0.25)
    """
    sizes = np.arange(1.0, sources + 1.0) ** -skew
    return tuple((sizes / sizes.sum()).tolist()) if sources else ()


class Traffic:
    """The visitors of a batch of trials. Each source has a lean of its own, a direction of length ζ added to μ*."""

    def __init__(self, draw: Draws, *, shares: tuple[float, ...], zeta: float, dim: int) -> None:
        self._visitors = draw.uniform()
        lean = draw.normal(len(shares), dim).at(0)
        self.leans: Floats = zeta * lean / np.linalg.norm(lean, axis=2, keepdims=True)
        """The lean of each source, (B, G, d)."""
        self._ends, self._rows, self._differ = np.cumsum(shares)[:-1], np.arange(len(draw)), zeta > 0.0

    def sources(self, t: int) -> Ints:
        """The source of each trial's visitor in a round, (B,): 0, 1, 2, …"""
        return np.searchsorted(self._ends, self._visitors.at(t), side="right").astype(np.int64)

    def bias(self, source: Ints, actions: Floats) -> Floats | None:
        """What visitors from these sources add to the mean of each action, (B, K): at most ζ if no norm exceeds 1."""
        return np.matvec(actions, self.leans[self._rows, source]) if self._differ else None
