"""How much vectors vary in the direction in which they vary least: what a bound on the parameter follows from.

If mean rewards ⟨a, μ⟩ are at most M in size at vectors with mean second moment G, then M² ≥ μᵀGμ. So the shortest μ
that gives these means has ‖μ‖ ≤ M/√s, where s is the least eigenvalue of G that is not 0.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from robandit.arrays import Floats
from robandit.features.columns import Labelled, Numeric
from robandit.features.layout import Layout

_NOTHING, _FAINT = 1e-12, 1e-8  # shares of the largest eigenvalue: none at all; too weak to say anything
_LARGEST, _MANY = 2000, 200  # the most features for which it is worked out, from rows and from a schema


def history_spread(rows: Floats) -> float | None:
    """s of vectors (n, d); None if it is too small to be told from rounding."""
    return None if rows.shape[1] > _LARGEST or not len(rows) else _least(rows.T @ rows / len(rows))


def _least(second: Floats) -> float | None:
    values = np.linalg.eigvalsh(second)
    if values[-1] <= 0.0 or ((values > _NOTHING * values[-1]) & (values < _FAINT * values[-1])).any():
        return None
    return float(values[values >= _FAINT * values[-1]][0])


def schema_spread(layout: Layout) -> float | None:
    """s if columns are independent, numbers are at either limit and labels at any slot alike: the corners of a schema.

    None where a scale is yet to be learnt, where sets are centred, and where features are many.
    """
    unknown = any(isinstance(column, Numeric) and column.scale is None for column in layout.columns)
    if unknown or layout.centred or len(layout.work_names) > _MANY:
        return None
    slots = _factors(layout)
    kept = range(len(slots)) if layout.shown is None else layout.shown.tolist()
    second = np.array([[_mean(layout, slots[i] + slots[j]) for j in kept] for i in kept])
    return _least(second * layout.factor**2)


def _factors(layout: Layout) -> list[list[tuple[str, int]]]:
    """What each slot of work is a product of: columns, and the place within their blocks."""
    mains = [[(column.name, place)] for column in layout.columns for place in range(len(column.names))]
    mains += [[]] * layout.intercept
    left, right = layout.factors
    return mains + [mains[i] + mains[j] for i, j in zip(left.tolist(), right.tolist(), strict=True)]


def _mean(layout: Layout, factors: list[tuple[str, int]]) -> float:
    """The mean of a product over all corners."""
    powers: dict[str, list[int]] = defaultdict(list)
    for name, place in factors:
        powers[name].append(place)
    found = 1.0
    for name, places in powers.items():
        column = layout.column(name)
        if isinstance(column, Labelled):
            found *= len(set(places)) == 1 and 1.0 / len(column.names)
        else:  # no value is missing at a corner
            found *= not any(places) and len(places) % 2 == 0 and column.reach ** len(places)
    return found
