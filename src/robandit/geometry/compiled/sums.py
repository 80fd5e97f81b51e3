"""The kernel of `RoundGroups.add`."""

from __future__ import annotations

import numba

from robandit.geometry.compiled.parts import EXACT, compile_as


@numba.njit(**EXACT)
def add(precision, target, squares, mass, counts, last, changed, places, actions, rewards, weights, now):
    """Fold one reward into each of some groups, as `RoundGroups.add` does, bit for bit."""
    n, dim = actions.shape
    for b in range(n):
        at, w, r = places[b], weights[b], rewards[b]
        for i in range(dim):
            weighted = w * actions[b, i]
            target[at, i] += r * weighted
            for j in range(dim):
                precision[at, i, j] += weighted * actions[b, j]
        squares[at] += w * (r * r)
        mass[at] += w
        if w > 0.0:
            counts[at] += 1
            last[at] = now[b]
        changed[at] = True


compile_as(add, "cbaappqr211r")
