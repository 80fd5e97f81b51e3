"""The kernel of `Surprise.judge`."""

from __future__ import annotations

import numba

from robandit.geometry.compiled.parts import EXACT, compile_as


@numba.njit(**EXACT)
def judge(spread, latest, repeats, dissent, distance, rewards, least, now, seen, steps, far, repeated, median):
    """Judge one reward of each trial and get used to it, as `Surprise.judge` does, bit for bit."""
    for b in range(len(now)):
        dissent[b] = False
        if seen[b]:
            repeats[b] += rewards[b] == latest[b] and now[b] > 1
            latest[b] = rewards[b]
            dissent[b] = distance[b] > far * max(spread[b], least[b]) and repeats[b] <= repeated * now[b]
            if not dissent[b]:
                spread[b] *= steps[min(now[b], len(steps) - 1), int(distance[b] > median * spread[b])]


compile_as(judge, "aapq111rs2fff")
