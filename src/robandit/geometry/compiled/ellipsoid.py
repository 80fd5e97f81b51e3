"""The kernel of `Ellipsoid.best`."""

from __future__ import annotations

from math import inf, sqrt

import numba

from robandit.geometry.compiled.parts import OPTIONS, compile_as


@numba.njit(**OPTIONS)
def leading(directions, along, center, radius, tie, index, best):
    """Write each ellipsoid's largest support value and its place; return whether any has others that equal it.

    ``directions`` are (B, K, d), or (1, K, d) if all have the same; ``along`` (B, K, d) are the rows Sᵀa.
    """
    n, count = along.shape[:2]
    several = False
    for b in range(n):
        offered = directions[b if len(directions) > 1 else 0]
        top, second, half_width = -inf, -inf, 0.0
        for k in range(count):
            square, mean = 0.0, 0.0
            for j in range(along.shape[2]):  # both sums in one loop
                square += along[b, k, j] * along[b, k, j]
                mean += offered[k, j] * center[b, j]
            value = mean + radius[b] * sqrt(square)
            if value > top:
                top, second, half_width, index[b] = value, top, value - mean, k
            elif value > second:
                second = value
        best[b] = top
        several |= second >= top - tie * (half_width + abs(top))
    return several


compile_as(leading, "3321fpa")
