"""The scales of plain columns: what an audit learns from its first rows, before the rewards that it judges."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from robandit.arrays import Floats

_PEAK = 4.0  # a value that is seldom taken has at most this size, in units of its column's scale


@dataclass(frozen=True, eq=False)
class Scaling:
    """Turns rows of d columns into vectors: each column centred and scaled, and a constant 1 after them.

    A linear model of such vectors says the same as one of the columns and a constant, whatever the centres and scales
    are. They must not depend on rewards that the model is then asked about: learn them from earlier rows.

    >>> seconds = np.array([[1.7e9, 1.0], [1.7e9 + 60.0, 0.0]])
    >>> Scaling.learn(seconds)(seconds).tolist()
    [[-1.0, 1.0, 1.0], [1.0, -1.0, 1.0]]
    """

    centre: Floats
    """What is taken from each column, (d,)."""
    scale: Floats
    """What each column is then divided by, (d,)."""
    intercept: bool = True
    """Whether a constant 1 is added."""

    @classmethod
    def learn(cls, rows: Floats, *, intercept: bool = True) -> Scaling:
        """Centres and scales from rows (n, d). Without an intercept, which makes up for them, there are no centres."""
        centre = rows.mean(axis=0) if intercept else np.zeros(rows.shape[1])
        apart = rows - centre
        scale = np.maximum(np.sqrt(np.mean(apart**2, axis=0)), np.abs(apart).max(axis=0) / _PEAK)
        return cls(centre, np.where(scale > 1e-9 * np.abs(centre), scale, np.maximum(np.abs(centre), 1.0)), intercept)

    @property
    def dim(self) -> int:
        """The number of features of a vector."""
        return len(self.centre) + self.intercept

    def __call__(self, rows: Floats) -> Floats:
        """The vectors (n, dim) of rows (n, d)."""
        found = np.ones((len(rows), self.dim))
        found[:, : len(self.centre)] = (rows - self.centre) / self.scale
        return found
