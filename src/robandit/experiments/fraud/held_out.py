"""The HELD-OUT set: worlds and lies on which a policy is judged once. Do not read, run or quote it to set constants.

The digests in tests/experiments/test_fraud.py were committed before any policy was judged, and hold the table of
scenarios and the draws.
"""

from __future__ import annotations

import numpy as np

from robandit.arrays import Bools, Floats
from robandit.experiments.fraud.habits import Family, Habit, by_bots, by_sources, is_liar
from robandit.experiments.fraud.scenario import FraudScenario, draw_scenarios
from robandit.experiments.fraud.shop import Visit


def _feature(visit: Visit) -> Floats:
    """The value, within ±1, of the product played in one random feature, (B,). The first feature may be constant."""
    chosen = 1 + np.abs(visit.shop.direction[:, 1:]).argmax(axis=1)
    return visit.action[visit.shop.rows, chosen] * visit.action.shape[1] ** 0.5


def shifted_feature(visit: Visit) -> Floats:
    """Copies honest visitors, except that one feature has another effect."""
    return visit.answer(visit.mean + 1.5 * visit.shop.spread * _feature(visit))


def rare_contexts(visit: Visit) -> Floats:
    """Turns the order around without measure, but only about products that are rare."""
    rare = np.abs(_feature(visit)) > 0.8
    return np.where(rare, visit.extreme(visit.rank >= visit.means.shape[1] / 2), visit.honest())


def foreign_taste(visit: Visit) -> Floats:
    """Behaves like the visitors of another shop: linear, with a μ* of its own."""
    shop = visit.shop
    worth = np.matvec(shop.actions, shop.direction)
    low, high = worth.min(axis=1), worth.max(axis=1)
    part = (np.vecdot(visit.action, shop.direction) - low) / (high - low)
    return visit.answer(shop.means.min(axis=1) + 2.0 * shop.spread * part)


def second_best(visit: Visit) -> Floats:
    """Puts the second best just above the best, and is honest about the rest."""
    lifted = visit.means.max(axis=1) + 0.5 * visit.shop.spread
    return np.where(visit.rank == 1, visit.answer(lifted), visit.honest())


def replay(visit: Visit) -> Floats:
    """Sends true rewards of earlier rounds again."""
    return visit.earlier


def permuted(visit: Visit) -> Floats:
    """Reports the reward of another product of the set."""
    other = (visit.played + visit.means.shape[1] // 2) % visit.means.shape[1]
    return visit.answer(visit.means[visit.shop.rows, other])


def praise_all(visit: Visit) -> Floats:
    """Likes everything."""
    return visit.extreme(np.ones(len(visit.source), dtype=bool))


def flatten(visit: Visit) -> Floats:
    """Likes everything equally: what the average product deserves."""
    return visit.answer(visit.means.mean(axis=1))


def shouts(visit: Visit) -> Floats:
    """Is honest mostly; on one visit in six it turns the order around without measure."""
    return np.where(visit.chance < 1 / 6, visit.extreme(visit.mean < visit.means.mean(axis=1)), visit.honest())


def whispers(visit: Visit) -> Floats:
    """Moves the better half down a little and the worse half up."""
    step = np.where(visit.rank < visit.means.shape[1] / 2, -0.6, 0.6)
    return visit.answer(visit.mean + step * visit.shop.spread)


def segment(visit: Visit) -> Floats:
    """Praises the fifth of the products on offer that lies furthest along a random direction."""
    offered = visit.shop.actions[visit.shop.rows[:, None], visit.places]
    along = np.matvec(offered, visit.shop.direction)
    chosen = np.vecdot(visit.action, visit.shop.direction) >= np.quantile(along, 0.8, axis=1)
    return np.where(chosen, visit.extreme(chosen), visit.honest())


def colluding(visit: Visit) -> Floats:
    """Two roles: some liars praise the worst third, the others slander the best third."""
    size, praises = visit.means.shape[1], (visit.source % 2 == 0) & visit.shop.scenario.has_sources
    praises |= (visit.spell(100) < 0.5) & (not visit.shop.scenario.has_sources)
    lies = np.where(praises, visit.rank >= 2 * size / 3, visit.rank < size / 3)
    return np.where(lies, visit.extreme(praises), visit.honest())


def bait(visit: Visit) -> Floats:
    """Praises what is nearly as good as the best and slanders the best: the mistake that costs least to believe."""
    near = (visit.rank >= 1) & (visit.rank <= max(2, visit.means.shape[1] // 4))
    return np.where(near, visit.extreme(near), visit.answer(visit.mean - 0.5 * visit.shop.spread * (visit.rank == 0)))


def _wave(visit: Visit) -> Bools:
    """Whether the tide is high: half of each 600 rounds."""
    return np.full(len(visit.source), visit.round % 600 < 300)


def _silent(scenario: FraudScenario, progress: float) -> Floats:
    """No traffic from liars in the first 40 % of the time, then twice their share."""
    shares = np.array(scenario.shares)
    shares[list(scenario.liars)] *= 0.0 if progress < 0.4 else 2.0
    return shares


FAMILY = Family(
    lies={
        "shifted feature": shifted_feature,
        "rare contexts": rare_contexts,
        "foreign taste": foreign_taste,
        "second best": second_best,
        "replay": replay,
        "permuted": permuted,
        "praise all": praise_all,
        "flatten": flatten,
        "shouts": shouts,
        "whispers": whispers,
        "segment": segment,
        "colluding": colluding,
        "bait": bait,
    },
    habits={
        "all the time": by_sources(lambda visit: True),
        "half of the visits": by_sources(lambda visit: visit.spell(1) < 0.5),
        "in moods": by_sources(lambda visit: visit.spell(25) < 0.6),
        "in waves": by_sources(_wave),
        "after silence": Habit(is_liar, traffic=_silent),
        "scattered": by_bots(lambda visit: visit.spell(1) < visit.shop.scenario.bots),
        "in spells": by_bots(lambda visit: visit.spell(40) < visit.shop.scenario.bots),
        "at night": by_bots(
            lambda visit: np.full(len(visit.source), visit.round % 200 >= 200 * (1.0 - visit.shop.scenario.bots))
        ),
        "fading": by_bots(lambda visit: visit.spell(1) < 2.0 * visit.shop.scenario.bots * (1.0 - visit.progress)),
        "thickening": by_bots(lambda visit: visit.spell(1) < 2.0 * visit.shop.scenario.bots * visit.progress),
    },
)

SCENARIOS = draw_scenarios(
    seed=20261118,
    with_sources=[
        *((lie, "all the time") for lie in FAMILY.lies),
        ("foreign taste", "half of the visits"),
        ("segment", "in moods"),
        ("bait", "in waves"),
        ("colluding", "after silence"),
        ("foreign taste", "after silence"),
    ],
    without=[
        ("foreign taste", "scattered"),
        ("foreign taste", "in spells"),
        ("segment", "scattered"),
        ("segment", "at night"),
        ("bait", "fading"),
        ("bait", "thickening"),
        ("colluding", "in spells"),
        ("shifted feature", "scattered"),
        ("praise all", "in spells"),
        ("shouts", "fading"),
        ("second best", "scattered"),
        ("replay", "thickening"),
    ],
    worlds=4,
    clean=12,
    sizes={"dim": range(4, 21), "actions": range(4, 21), "rounds": (2000, 2500, 3000, 3500, 4000)},
)
