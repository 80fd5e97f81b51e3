"""The kernel of `Ellipsoid.best`."""

from __future__ import annotations

from math import inf, sqrt

import numba
import numpy as np

from robandit.geometry.compiled.parts import OPTIONS, compile_as


@numba.njit(**OPTIONS)
def leading(directions, along, center, radius, tie, index, best):
    """Write each ellipsoid's largest support value and its place; return whether any has others that equal it.

    ``directions`` are (B, K, d), or (1, K, d) if all have the same; ``along`` (B, K, d) are the rows Sᵀa.
    """
    n, count = along.shape[:2]
    values, half_widths = np.empty(count), np.empty(count)
    several = False
    for b in range(n):
        offered = directions[b if len(directions) > 1 else 0]
        top, equal, k = -inf, 0, 0
        for i in range(count):
            square, mean = 0.0, 0.0
            for j in range(along.shape[2]):  # both sums in one loop
                square += along[b, i, j] * along[b, i, j]
                mean += offered[i, j] * center[b, j]
            half_widths[i] = radius[b] * sqrt(square)
            values[i] = mean + half_widths[i]
            top = max(top, values[i])  # no branch here: guessed wrong, it took as long as the sums
        while values[k] < top:
            k += 1
        least = top - tie * (half_widths[k] + abs(top))
        for value in values:
            equal += value >= least
        index[b], best[b] = k, top
        several |= equal > 1
    return several


compile_as(leading, "3321fpa")
