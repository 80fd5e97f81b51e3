"""The DEVELOPMENT set: anyone may look at these worlds and lies, and choose the constants of a policy on them.

Its lies are those that everybody talks about: promotion, suppression, flips, noise, ramps; always, in a window, after
a sleep, moving from source to source; the first tenth of the time, every fifth round.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from robandit.arrays import Bools, Floats
from robandit.experiments.fraud.habits import Family, Habit, by_bots, by_sources
from robandit.experiments.fraud.scenario import draw_scenarios
from robandit.experiments.fraud.shop import Visit

_MOVES = 8  # how often liars move on


def promote_below(visit: Visit) -> Floats:
    """Praises what is below the median of the set, and slanders everything else."""
    return visit.extreme(visit.mean < np.median(visit.means, axis=1))


def promote_worst(visit: Visit) -> Floats:
    """Praises the worst quarter, and is honest about the rest."""
    worst = visit.rank >= 0.75 * visit.means.shape[1]
    return np.where(worst, visit.extreme(worst), visit.honest())


def suppress_best(visit: Visit) -> Floats:
    """Slanders the best product, and is honest about the rest."""
    return np.where(visit.rank == 0, visit.extreme(visit.rank > 0), visit.honest())


def flip(visit: Visit) -> Floats:
    """Turns the order of the products around."""
    return visit.answer(visit.means.max(axis=1) + visit.means.min(axis=1) - visit.mean)


def noise(visit: Visit) -> Floats:
    """Reports whatever comes to mind."""
    return visit.extreme(visit.chance < 0.5)


def ramp(visit: Visit) -> Floats:
    """Turns the order around bit by bit."""
    turned = visit.means.max(axis=1) + visit.means.min(axis=1) - visit.mean
    return visit.answer((1.0 - visit.progress) * visit.mean + visit.progress * turned)


def _moved(visit: Visit) -> Bools:
    """As many sources as there are liars lie at a time, and the next ones in the next stretch of time."""
    scenario = visit.shop.scenario
    now = (np.array(scenario.liars) + int(visit.progress * _MOVES)) % len(scenario.shares)
    return np.isin(visit.source, now)


FAMILY = Family(
    lies={
        "promote below the median": promote_below,
        "promote the worst": promote_worst,
        "suppress the best": suppress_best,
        "flip": flip,
        "noise": noise,
        "ramp": ramp,
    },
    habits={
        "always": by_sources(lambda visit: True),
        "in a window": by_sources(lambda visit: 0.3 <= visit.progress < 0.6),
        "after a sleep": by_sources(lambda visit: visit.progress >= 0.4),
        "moving": Habit(_moved, _moved),
        "any time": by_bots(lambda visit: visit.chance < visit.shop.scenario.bots),
        "first tenth": by_bots(lambda visit: np.full(len(visit.source), visit.progress < 0.1)),
        "every fifth": by_bots(lambda visit: np.full(len(visit.source), visit.round % 5 == 0)),
        "late": by_bots(lambda visit: (visit.progress > 0.5) & (visit.chance < 2.0 * visit.shop.scenario.bots)),
    },
)

SCENARIOS = draw_scenarios(
    seed=11,
    with_sources=[
        *product(FAMILY.lies, ["always"]),
        ("promote below the median", "after a sleep"),
        ("flip", "in a window"),
        ("flip", "moving"),
        ("suppress the best", "moving"),
        ("promote the worst", "after a sleep"),
    ],
    without=[
        *product(["promote below the median", "flip"], ["any time", "first tenth", "every fifth", "late"]),
        ("suppress the best", "any time"),
        ("noise", "any time"),
        ("ramp", "any time"),
    ],
    worlds=4,
    clean=8,
    sizes={"dim": (4, 5, 6, 8, 12, 20), "actions": (4, 6, 10, 20), "rounds": (2000, 3000)},
)
