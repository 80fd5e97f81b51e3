"""The theorems checked in small runs: everything holds, shrunken radii are breached, and planted bugs are found."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from math import exp, inf, log
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest
from small_worlds import DELTA, SEED, setting_of, world

from robandit import MultiLevelWeightedOFUL
from robandit.arrays import Floats, Ints
from robandit.experiments.paper import verify as checks
from robandit.experiments.paper.theory import Watcher
from robandit.experiments.paper.verdicts import ClaimRow, TrialGroup, coverage, per_round
from robandit.experiments.paper.verify import Verification, largest_ratio, verify
from robandit.geometry.regions import Region
from robandit.lab.attacks import ON_ALL_TRAFFIC, Flip, NoAttack
from robandit.lab.environments import Environment, Menu, Offer
from robandit.lab.protocol import Scenario, rehearse, simulate
from robandit.policies.decision import Search
from robandit.streams import Draws
from thinned import thinned

GROUP = TrialGroup("paper", "flip", world(NoAttack()), 3.0)
SMALL: dict[str, Any] = {"rounds": 40, "trials": 6, "dim": 3, "actions": 4, "seed": SEED}


# ------------------------------------------------------------------------------------------ all of it


@cache
def sound() -> Verification:
    return verify(**SMALL)


def by_claim(found: Verification) -> dict[str, ClaimRow]:
    return {row.claim: row for row in found.pooled()}


@pytest.mark.no_cover
def test_all_weak_attacks_really_lie_in_both_environments() -> None:
    weak = {name for name, kind in ON_ALL_TRAFFIC.items() if kind.strength == "weak"}
    rows = [row for row in sound().rows if row.claim == checks.EVENT]
    assert {(row.environment, row.attack) for row in rows} == {(e, a) for e in ("paper", "fresh") for a in weak}
    assert all((row.corruption > 0.3) == (row.attack != "none") for row in rows)


@pytest.mark.no_cover
def test_everything_holds_or_is_vacuous() -> None:
    pooled = by_claim(sound())
    bounds = {checks.KNOWN_BOUND, checks.MULTI_BOUND, checks.GAP_BOUND}
    assert {row.verdict for row in sound().rows} == {"holds", "vacuous"}
    assert {claim for claim, row in pooled.items() if row.verdict == "vacuous"} == bounds
    assert "alarm in" in sound().power and pooled[checks.PROVED].checked > 0
    assert len(pooled) == 13 and sum(row.breaches for row in pooled.values()) == 0
    batch = 18 * SMALL["trials"]
    assert pooled[checks.LOW].checked + pooled[checks.HIGH].checked == batch * SMALL["rounds"]
    assert (pooled[checks.EVENT].checked, pooled[checks.OFUL_RADIUS].checked) == (batch, 2 * SMALL["trials"])
    assert 0.0 < largest_ratio(sound()) < 0.1


def test_rows_are_plain_data() -> None:
    plain = [row._asdict() for row in sound().rows]
    assert repr(json.loads(json.dumps(plain))) == repr(plain)  # with its nans
    assert {type(value) for row in plain for value in row.values()} == {str, int, float}


@pytest.mark.no_cover
def test_the_same_again() -> None:
    calls: list[int] = []
    again = verify(**SMALL, progress=calls.append)
    assert repr(again) == repr(sound())  # with its nans
    assert sum(calls) == checks.RUNS * SMALL["rounds"]


CLAIMS = [*checks.RADII, checks.OFUL_RADIUS, checks.WEIGHTED_RADIUS]


@pytest.mark.parametrize("claim", thinned(CLAIMS, fast=[checks.BETA, checks.OFUL_RADIUS]))
@pytest.mark.no_cover
def test_shrunken_radii_are_breached(claim: str) -> None:
    """Every radius is as wide as its largest ratio says: at nine tenths of that, μ* is seen outside."""
    ratio = largest_ratio(sound(), [claim])
    row = by_claim(verify(**SMALL, shrink=0.9 * ratio))[claim]
    assert row.breaches > 0
    assert row.ratio == pytest.approx(1.0 / 0.9)


@pytest.mark.no_cover
def test_radii_that_are_shrunk_less_are_not_breached() -> None:
    rows = by_claim(verify(**SMALL, shrink=1.01 * largest_ratio(sound(), CLAIMS)))
    assert not any(rows[claim].breaches for claim in CLAIMS)


@pytest.mark.no_cover
def test_the_largest_ratio_shrinks_all_of_the_paper() -> None:
    shrunk = by_claim(verify(**SMALL, shrink=0.9 * largest_ratio(sound())))
    assert any(shrunk[claim].breaches for claim in checks.RADII)
    assert shrunk[checks.OFUL_RADIUS].verdict == "fails"
    assert sum(shrunk[claim].checked for claim in (checks.LOW, checks.HIGH)) < 18 * SMALL["trials"] * SMALL["rounds"]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"delta": 0.4}, "delta must be below 1/3"),
        ({"delta": 0.0}, "delta must be a number > 0"),
        ({"shrink": 0.0}, "shrink must be a number > 0"),
        ({"trials": 0}, "trials must be"),
        ({"rounds": 1}, "rounds must be"),
    ],
)
def test_settings_that_make_no_sense(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        verify(**SMALL | setting)


# ------------------------------------------------------------------------------------------ planted bugs


class WrongUnits(MultiLevelWeightedOFUL):
    """Learns rewards as if they were given in per mille."""

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        super().learn(actions, 1000.0 * rewards, weights, level)


@pytest.mark.no_cover
def test_a_policy_that_learns_wrong_rewards_fails() -> None:
    pooled = by_claim(verify(**SMALL, multi_level=WrongUnits))
    assert {pooled[claim].verdict for claim in (checks.EVENT, checks.BETA, checks.GAMMA)} == {"fails"}
    assert pooled[checks.ALPHA].verdict == "holds"


class OneLevel(MultiLevelWeightedOFUL):
    """Draws the same level every round, which then meets all of the corruption."""

    def draw_level(self, uniform: Floats) -> Ints:
        return np.full(len(uniform), self.levels)


def test_a_policy_that_draws_levels_wrongly_fails() -> None:
    rounds, scenario = 200, world(Flip(rounds=100), trials=20)
    corruption = rehearse([scenario], rounds, SEED)
    for policy, verdict in ((OneLevel, "fails"), (MultiLevelWeightedOFUL, "holds")):
        watcher = Watcher(setting_of(3), rounds, corruption)
        simulate(policy=policy, scenarios=[scenario], rounds=rounds, seed=SEED, watch=watcher)
        row = coverage("c", GROUP, watcher.corruption, 0.95)
        assert row.verdict == verdict
        if policy is OneLevel:
            assert row.ratio == pytest.approx(corruption.max() / (log(2 * 9**2 / DELTA) + 3))


class Line(Environment):
    """Three actions on a line, and no noise."""

    def rounds(self, draw: Draws) -> Iterator[Offer]:
        menu = Menu.of(np.tile([[1.0], [0.5], [-1.0]], (len(draw), 1, 1)), np.ones((len(draw), 1)))
        for t in range(1, 1000):
            yield Offer(t, menu, np.zeros(len(draw)), np.zeros(len(draw)))


class Spiteful(MultiLevelWeightedOFUL):
    """Learns everything from one reward, and plays the action that looks worst."""

    def weights(self, sigma: Floats) -> Floats:
        return np.full_like(sigma, 1e12)

    def search(self, actions: Floats | Region, level: Ints) -> Search:
        assert isinstance(actions, np.ndarray)
        return super().search(-actions, level)


def test_a_policy_that_plays_the_worst_violates_the_lemmas() -> None:
    rounds, scenario = 50, Scenario(Line(dim=1), NoAttack(), range(8))
    watcher = Watcher(setting_of(1), rounds, np.zeros(8))
    simulate(policy=Spiteful, scenarios=[scenario], rounds=rounds, seed=SEED, watch=watcher)
    assert watcher.held.all()
    for lemma in (watcher.low, watcher.high):
        assert per_round("c", GROUP, lemma, slice(0, 8)).verdict == "fails"
        assert 0 < lemma.violations.sum() < lemma.checks.sum()  # not in a level's first round, which knows nothing


def test_a_level_meets_little_of_the_corruption() -> None:
    """Lemma sec6:sb-corrupt-bandit assumes lies of at most 1 per round, and here they are up to 2. An adversary who
    spends 2^ℓ in such lies makes Corruption_ℓ twice a binomial variable; its tail is within the lemma's."""
    for level in (2, 4, 7, 10):
        n, p = 2**level // 2, 2.0**-level
        for hits in range(n + 1):
            at_least = binomtest(hits, n, p, alternative="greater").pvalue
            assert at_least <= exp(3.0 - 2.0 * hits) + 1e-12


def test_fresh_sets_have_a_smaller_gap_than_a_fixed_one() -> None:
    """So the bound by the gap is far worse there; both are finite."""
    rows = [row for row in sound().rows if row.claim == checks.GAP_BOUND and row.attack == "none"]
    bounds = {row.environment: row.bound for row in rows}
    assert inf > bounds["fresh"] > bounds["paper"] > 0
