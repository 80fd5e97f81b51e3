"""The centre and the scale of a column of numbers, from all of its values at once or as they come."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robandit.arrays import Floats

_LARGEST = 1e90  # of which squares can be added up
_LEAST = 1e-90  # a spread below this is none


class Moments(NamedTuple):
    """What is kept of the values of a column."""

    number: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """Σ (value − mean)²."""
    low: float = 0.0
    high: float = 0.0

    def add(self, values: Floats) -> Moments:
        """The moments with some more values, of which those that are missing (NaN) don't count.

        >>> Moments().add(np.array([1.0, 2.0])).add(np.array([3.0])) == Moments().add(np.array([1.0, 2.0, 3.0]))
        True
        """
        known = values[~np.isnan(values)]
        if not known.size:
            return self
        if not self.number:
            mean = float(known.mean())
            squares = float(np.sum((known - mean) ** 2))
            return Moments(known.size, mean, squares, float(known.min()), float(known.max()))
        other = Moments().add(known)
        total, apart = self.number + other.number, other.mean - self.mean
        return Moments(
            total,
            self.mean + apart * (other.number / total),
            self.squares + other.squares + apart**2 * (self.number * other.number / total),
            min(self.low, other.low),
            max(self.high, other.high),
        )

    def scale(self, limit: float) -> float:
        """What the values are divided by: their spread, or more if one would lie beyond the limit otherwise."""
        if not self.number:
            return 1.0
        spread = (self.squares / self.number) ** 0.5
        found = max(spread, (self.high - self.mean) / limit, (self.mean - self.low) / limit)
        return found if found > max(1e-9 * abs(self.mean), _LEAST) else max(abs(self.mean), 1.0)


def checked(name: str, values: Floats) -> Floats:
    """Values of a column, NaN where they are missing, if none is too large to have a scale."""
    largest = np.nanmax(np.abs(values), initial=0.0)
    if largest > _LARGEST:
        raise ValueError(f"{name} must lie within ±{_LARGEST:g} to have a scale, got {largest:g}")
    return values
