"""Which directions of a parameter can be told apart by the vectors that features make."""

from __future__ import annotations

from typing import Any

import numpy as np

from robandit.arrays import Floats
from robandit.features import Features
from robandit.features.columns import Boolean, Categorical, Column, Growing, Numeric

LARGEST = 200
"""The most features for which this is worked out: beyond it would take long."""
_ROWS = 8  # rows of a sample for each feature


def spanned(features: Features) -> Floats | None:
    """The projection (d, d) onto the span of all vectors; None if there are too many features.

    The levels of a column add up to the constant, so what is added to all of them and taken from the constant changes
    no prediction. Of all parameters that say the same, the projection of any is the shortest.
    """
    if features.dim > LARGEST:
        return None
    rng, rows = np.random.default_rng(0), max(200, _ROWS * features.dim)
    other = Features.from_json(features.to_json())  # which counts what is unusual by itself
    sample = other.encode({column.name: _cells(column, rng, rows) for column in features.columns})
    _, size, basis = np.linalg.svd(sample, full_matrices=False)
    basis = basis[size > 1e-9 * size[0]]
    found: Floats = basis.T @ basis
    never = ~sample.any(axis=0)  # by bad luck; nothing is known of it then
    found[never, never] = 1.0
    return found


def _cells(column: Column, rng: np.random.Generator, rows: int) -> Any:
    """Cells of all kinds that a column may have."""
    if isinstance(column, Numeric | Boolean):
        known = column.as_numbers if isinstance(column, Boolean) else column
        assert known.centre is not None and known.scale is not None
        reach = known.limit * known.scale
        values = np.asarray(known.centre + reach * rng.choice([-1.0, -0.4, 0.3, 1.0], rows))
        if isinstance(column, Boolean):
            values = (values > 0.5).astype(float)
        return np.where(rng.random(rows) < 0.2, np.nan, values) if column.missing else values
    listed = () if not isinstance(column, Categorical | Growing) else column.levels
    others = [] if isinstance(column, Categorical) else [f"{number}" for number in range(50 * len(column.names))]
    return rng.choice([*listed, "\N{NULL}", *others], rows).tolist()
