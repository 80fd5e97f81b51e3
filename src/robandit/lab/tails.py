"""How a quantity is spread over trials: its quantiles, and the mean of the worst 1 %.

Regret has heavy tails, so its mean alone says little of what a bad run costs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robandit.arrays import Floats

LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
"""The levels of the quantiles that are kept."""
WORST = 0.01
"""The share of trials that counts as the worst."""


class Spread(NamedTuple):
    """How a quantity is spread over trials, at each of n checkpoints."""

    quantiles: Floats
    """Its quantiles at `LEVELS`, (n, levels)."""
    worst: Floats
    """The mean of the worst 1 % of the trials, (n,): of the worst one where there are fewer than 100."""

    def quantile(self, level: float) -> Floats:
        """One of the quantiles, (n,)."""
        return self.quantiles[:, LEVELS.index(level)]


def spread(values: Floats) -> Spread:
    """The spread of values (n, trials), of which the largest are the worst.

    >>> found = spread(np.arange(1.0, 201.0)[None, :])
    >>> float(found.quantile(0.5)[0]), float(found.worst[0])
    (100.5, 199.5)
    """
    ordered = np.sort(values, axis=1)
    return Spread(np.quantile(ordered, LEVELS, axis=1).T, ordered[:, -number_of_worst(values.shape[1]) :].mean(axis=1))


def number_of_worst(trials: int) -> int:
    """How many trials the worst 1 % are, rounded up.

    >>> [number_of_worst(trials) for trials in (1, 100, 101, 100_000)]
    [1, 1, 2, 1000]
    """
    return -(-trials // round(1.0 / WORST))
