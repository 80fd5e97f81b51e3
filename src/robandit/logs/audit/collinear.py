"""Columns that are nearly a combination of others: nothing can be proved with them, and rounding hides that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from robandit.arrays import TINY, Floats

_FAINT, _NOTHING = 1e-3, 1e-12  # singular values of columns of length 1: too weak to use; none at all


def check_independent(pieces: Iterable[Floats], names: Sequence[str]) -> None:
    """Refuse vectors, given as pieces (n, d) of all rows, of which some column is nearly a combination of others.

    One that is a combination of others to the last digit does no harm. The rows themselves are reduced to a triangle R
    with RᵀR = XᵀX, since sums of squares would lose half of the digits.
    """
    triangle: Any = np.zeros((0, len(names)))
    for rows in pieces:
        triangle = np.linalg.qr(np.vstack([triangle, rows]), mode="r")
    if not len(triangle):
        return
    size = np.sqrt(np.maximum(np.vecdot(triangle.T, triangle.T), TINY))
    values, directions = np.linalg.svd(triangle / size)[1:]
    faint = np.flatnonzero((values > _NOTHING * values[0]) & (values < _FAINT * values[0]))
    if faint.size:
        worst = faint[-1]
        one, two = sorted(np.argsort(-np.abs(directions[worst]))[:2].tolist())
        raise ValueError(
            f"columns {names[one]} and {names[two]} are nearly the same or nearly a combination of others, up to "
            f"{values[worst] / values[0]:.0e} of their size, so nothing can be proved; leave one out, or declare a "
            "parameter bound"
        )
