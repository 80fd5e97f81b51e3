"""The theory as numbers: formulas by hand, the watcher against a slow transcription, verdicts, and planted bugs."""

import json
from collections.abc import Iterator
from functools import cache, partial
from math import ceil, exp, inf, log, nan, sqrt
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import binomtest
from transcriptions import Ridge, SlowMultiLevelWeightedOFUL

from robandit import MultiLevelWeightedOFUL, RobustWeightedOFUL
from robandit.arrays import Floats, Ints
from robandit.experiments.paper import verify as checks
from robandit.experiments.paper.theory import (
    Lemma,
    OneRadiusWatcher,
    Watcher,
    clopper_pearson,
    gap_bound,
    growth,
    highest_level,
    known_bound,
    multi_level_bound,
    robust_level,
    spread,
)
from robandit.experiments.paper.verify import Row, Verdicts, largest_ratio, verify
from robandit.geometry.regions import Region
from robandit.lab.attacks import ATTACKS, Attack, ClickFraud, Flip, NoAttack, Plot, RandomFlips
from robandit.lab.environments import Environment, Menu, Offer, Paper
from robandit.lab.protocol import Scenario, rehearse, simulate
from robandit.policies import Decision, Policy, radius
from robandit.policies.base import Search
from robandit.policies.radius import Setting
from robandit.streams import Draws

DELTA, SEED = 0.05, 3
SMALL: dict[str, Any] = {"rounds": 120, "trials": 6, "dim": 3, "actions": 4, "seed": SEED}


# ------------------------------------------------------------------------------------------ the formulas

# d = 4, R = 1, so that the floor is 2/√4 = 1 and one unit of corruption weighs √d = 2.
BY_HAND = Setting(
    dim=4,
    noise_range=1.0,
    action_bound=1.0,
    parameter_bound=1.0,
    delta=0.1,
    regularization=1.0,
    sigma_floor=1.0,
)
IOTA = log(1 + 8 / 4)  # T = 8: log(1 + TA²/((R+1)²λ))
AT_T = 8 * sqrt(4 * IOTA * log(2560)) + 8 * log(2560)  # log(4t²/δ) = log 2560 at t = T
LEVEL_AT_T = 8 * sqrt(4 * IOTA * log(40960)) + 8 * log(40960)  # log(8t²T/δ)


def level_gamma(level: int) -> float:
    return LEVEL_AT_T + 2 * (log(2 * level**2 / 0.1) + 3) + 1


def test_the_level_that_covers_the_corruption() -> None:
    amounts = [0.0, 1e-300, 1.0, 4.0, np.nextafter(4.0, 5.0), 5.0, 8.0, 1023.9, 1024.0, np.nextafter(1024.0, 2000.0)]
    assert robust_level(amounts).tolist() == [2, 2, 2, 2, 3, 3, 3, 10, 10, 11]
    for amount in np.random.default_rng(1).uniform(0.1, 1e4, 200):
        assert robust_level(amount) == max(2, ceil(np.log2(amount)))
        assert robust_level(amount) == 2 or 2.0 ** (robust_level(amount) - 1) < amount <= 2.0 ** robust_level(amount)


def test_the_constants_by_hand() -> None:
    assert growth(BY_HAND, 8) == pytest.approx(IOTA)
    assert spread(BY_HAND, 8, 1.0) == pytest.approx(3.0)  # √((R+1)²T/d + 1) = √(8 + 1)
    assert highest_level(8) == 4
    assert highest_level(9) == 5
    for horizon in (1, 2, 3, 100, 10_000):
        assert highest_level(horizon) == MultiLevelWeightedOFUL(dim=2, noise_range=1, horizon=horizon).levels


def test_the_bound_for_known_corruption_by_hand() -> None:
    alpha = AT_T + 2 * 5.0 + 1
    expected = 16 * IOTA + 2 * alpha * 3.0 * sqrt(8 * IOTA)
    assert known_bound(BY_HAND, 8, 5.0, 1.0) == pytest.approx(expected)
    assert known_bound(BY_HAND, 8, [5.0, 5.0], [1.0, 1.0]) == pytest.approx([expected] * 2)


def test_the_bound_for_unknown_corruption_by_hand() -> None:
    """C = 3 makes ℓ* = 2, and T = 8 makes ℓ_max = 4."""
    root = 3.0 * sqrt(8 * IOTA)
    low = 4 * 4 * (16 * IOTA + (AT_T + 2 * 4 + 1) * root)
    high = sum(16 * IOTA + 2 * level_gamma(level) * root for level in (3, 4))
    assert multi_level_bound(BY_HAND, 8, 3.0, 1.0) == pytest.approx(low + high)
    top = 4 * 16 * (16 * IOTA + (AT_T + 2 * 16 + 1) * root)  # ℓ* = ℓ_max leaves no level above
    assert multi_level_bound(BY_HAND, 8, [3.0, 16.0], [1.0, 1.0]) == pytest.approx([low + high, top])


def test_the_bound_by_the_gap_by_hand() -> None:
    variance = 0.5**2 + 1.0  # max σ² + (R+1)²/d
    low = 4 * (10 * 4 * IOTA + 32 * (AT_T + 2 * 4 + 1) ** 2 * variance * 4 * IOTA)
    high = 4 * sum(2 * 4 * IOTA + 2 * level_gamma(level) ** 2 * variance * 4 * IOTA for level in (3, 4))
    assert gap_bound(BY_HAND, 8, 3.0, 0.5, 0.2) == pytest.approx((low + high) / 0.2)
    assert gap_bound(BY_HAND, 8, 3.0, 0.5, inf) == 0.0  # all actions are best


@pytest.mark.parametrize("trials", [1, 2, 7, 80, 1440])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_clopper_pearson_against_scipy(trials: int, level: float) -> None:
    for successes in sorted({0, 1, trials // 3, trials // 2, trials - 1, trials}):
        exact = binomtest(successes, trials).proportion_ci(level, method="exact")
        assert clopper_pearson(successes, trials, level) == pytest.approx((exact.low, exact.high), abs=1e-11)


# ------------------------------------------------------------------------------------------ the watcher


class Seen(NamedTuple):
    """A round of one trial, as anyone could have written it down."""

    actions: Floats
    parameter: Floats
    regret: float
    place: int
    level: int
    reward: float
    sigma: float
    lie: float
    """sup_a |r(a) − r′(a)|."""


class Notes:
    """Passes rounds on to a watcher, and writes them down for each trial."""

    def __init__(self, watcher: Any, size: int) -> None:
        self._watcher, self.trials = watcher, [list[Seen]() for _ in range(size)]

    def __call__(self, policy: Policy, offer: Offer, plot: Plot, decision: Decision) -> None:
        self._watcher(policy, offer, plot, decision)
        assert isinstance(offer.actions, np.ndarray)
        lies = np.zeros_like(offer.means) if plot.lies is None else plot.lies
        rewards = offer.rewards + lies
        for b, seen in enumerate(self.trials):
            i = int(decision.index[b])
            regret = float(offer.means[b].max() - offer.means[b, i])
            seen.append(
                Seen(
                    offer.actions[b].copy(),
                    offer.menu.parameter[b],
                    regret,
                    i,
                    int(decision.level[b]),
                    float(rewards[b, i]),
                    float(decision.sigma[b]),
                    float(np.abs(lies[b]).max()),
                )
            )


class Slow:
    """Every quantity of the lemmas in one trial, for every round and every level ≥ ℓ*, by the book."""

    def __init__(self, rounds: list[Seen], corruption: float, shrink: float, horizon: int, dim: int) -> None:
        policy = SlowMultiLevelWeightedOFUL(dim=dim, noise_range=0.5, horizon=horizon, delta=DELTA)
        lowest = max(2, ceil(log(corruption, 2))) if corruption > 0 else 2
        above = range(lowest, policy.l_max + 1)
        spent = dict.fromkeys(policy.levels, 0.0)
        self.beta = self.gamma = self.corruption = self.low_ratio = self.high_ratio = 0.0
        self.low_checks = self.high_checks = self.violations = 0
        for seen in rounds:
            for level in above:
                beta, gamma = shrink * policy.beta(level), shrink * policy.gamma(level)
                self.beta = max(self.beta, away(policy.whole, seen.parameter) / beta)
                self.gamma = max(self.gamma, away(policy.levels[level], seen.parameter) / gamma)
            spent[seen.level] += seen.lie / 1.5
            for level in above:
                self.corruption = max(self.corruption, spent[level] / (log(2 * level**2 / DELTA) + 3))
            if max(self.beta, self.gamma) <= 1.0:
                self.lemma(policy, seen, lowest, shrink)
            policy.update(seen.actions[seen.place], seen.reward, seen.sigma, seen.level)

    def lemma(self, policy: SlowMultiLevelWeightedOFUL, seen: Seen, lowest: int, shrink: float) -> None:
        action = seen.actions[seen.place]
        if seen.level <= lowest:
            other = seen.actions[policy.choose(seen.actions, lowest)[0]]
            lengths = length(action, policy.whole) + length(other, policy.whole)
            ratio = seen.regret / (2 * shrink * policy.beta(lowest) * lengths)
            self.low_checks, self.low_ratio = self.low_checks + 1, max(self.low_ratio, ratio)
        else:
            ratio = seen.regret / (2 * shrink * policy.gamma(seen.level) * length(action, policy.levels[seen.level]))
            self.high_checks, self.high_ratio = self.high_checks + 1, max(self.high_ratio, ratio)
        self.violations += ratio > 1.0


def away(ridge: Ridge, truth: Floats) -> float:
    """‖μ − μ*‖_Σ."""
    return sqrt((ridge.mu - truth) @ ridge.Sigma @ (ridge.mu - truth))


def length(action: Floats, ridge: Ridge) -> float:
    """‖a‖_{Σ⁻¹}."""
    return sqrt(action @ np.linalg.solve(ridge.Sigma, action))


def world(attack: Attack, trials: int = 2, **settings: Any) -> Scenario:
    environment: Environment = Paper(dim=3, actions=4, parameter="random", **settings)
    return Scenario(environment.facing(attack), attack, range(trials))


def setting_of(dim: int) -> Setting:
    return Setting(dim, 0.5, 1.0, 1.0, DELTA, 1.0, 1.5 / sqrt(dim))


@pytest.mark.parametrize("shrink", [1.0, 0.02])
def test_the_watcher_against_a_slow_transcription(shrink: float) -> None:
    """With the smaller shrink E_1 is lost on the way in some trials, after which the lemmas go unchecked."""
    rounds = 60
    scenarios = [world(Flip(rounds=8)), world(NoAttack()), world(ClickFraud(share=0.3, budget=7.0), fresh_rounds=60)]
    corruption = rehearse(scenarios, rounds, SEED)
    watcher = Watcher(setting_of(3), rounds, corruption, shrink)
    notes = Notes(watcher, len(corruption))
    trace = simulate(policy=MultiLevelWeightedOFUL, scenarios=scenarios, rounds=rounds, seed=SEED, watch=notes)
    assert trace.c_sup[-1].tolist() == corruption.tolist()
    for b, seen in enumerate(notes.trials):
        slow = Slow(seen, corruption[b], shrink, rounds, 3)
        found = watcher.beta[b], watcher.gamma[b], watcher.corruption[b], watcher.low.ratio[b], watcher.high.ratio[b]
        assert found == pytest.approx((slow.beta, slow.gamma, slow.corruption, slow.low_ratio, slow.high_ratio))
        assert (watcher.low.checks[b], watcher.high.checks[b]) == (slow.low_checks, slow.high_checks)
        assert watcher.low.violations[b] + watcher.high.violations[b] == slow.violations
        assert watcher.held[b] == (max(slow.beta, slow.gamma) <= 1.0)
        assert watcher.tally.sigma_squares[b] == pytest.approx(sum(each.sigma**2 for each in seen))
        assert watcher.tally.sigma_max[b] == max(each.sigma for each in seen)
        losses = [np.ptp(each.actions @ each.parameter) for each in seen]
        assert watcher.tally.ceiling[b] == pytest.approx(sum(losses))
    assert watcher.held.all() == (shrink == 1.0)
    if shrink == 1.0:
        assert (watcher.low.checks + watcher.high.checks == rounds).all()
    else:
        assert 0 < watcher.low.checks.sum() < rounds * len(corruption)


def test_the_watcher_of_one_radius_against_a_slow_transcription() -> None:
    rounds, scenarios = 40, [world(RandomFlips(budget=3.0), fresh_rounds=40)]
    corruption = rehearse(scenarios, rounds, SEED)
    watcher = OneRadiusWatcher(2, shrink=0.5)
    notes = Notes(watcher, 2)
    policy = partial(RobustWeightedOFUL, corruption=corruption.tolist())
    simulate(policy=policy, scenarios=scenarios, rounds=rounds, seed=SEED, watch=notes)
    for b, seen in enumerate(notes.trials):
        ridge, largest = Ridge(3, 1.0), 0.0
        for t, each in enumerate(seen, start=1):
            alpha = radius.alpha(setting_of(3), t, corruption[b])
            largest = max(largest, away(ridge, each.parameter) / (0.5 * float(alpha)))
            ridge.add(each.actions[each.place], each.reward, max(each.sigma, 1.5 / sqrt(3)))
        assert watcher.ratio[b] == pytest.approx(largest)


def test_a_corruption_beyond_all_levels_is_refused() -> None:
    with pytest.raises(ValueError, match="corruption must be at most 2T = 200, got 300"):
        Watcher(setting_of(3), 100, np.array([1.0, 300.0]))


def test_a_lemma_counts() -> None:
    lemma = Lemma(3)
    lemma.check(np.array([0, 2]), np.array([1.0, 0.5]), np.array([2.0, 0.25]))
    lemma.check(np.array([2, 1]), np.array([nan, 1.0]), np.array([1.0, 1.0 - 1e-12]))  # rounding is no violation
    assert lemma.checks.tolist() == [1, 1, 2]
    assert lemma.violations.tolist() == [0, 0, 2]
    assert lemma.ratio[:2] == pytest.approx([0.5, 1.0])


# ------------------------------------------------------------------------------------------ the verdicts


CELL = checks.Cell("paper", "flip", world(NoAttack()), 3.0)


@pytest.mark.parametrize(
    ("breaches", "trials", "required", "verdict"),
    [
        (0, 1, 0.95, "holds"),
        (0, 400, 0.95, "holds"),
        (1, 80, 0.85, "holds"),  # [0.932, 0.9997]
        (1, 80, 0.95, "undecided"),
        (20, 80, 0.85, "fails"),  # [0.641, 0.840]
        (80, 80, 0.85, "fails"),
    ],
)
def test_the_verdict_on_a_coverage(breaches: int, trials: int, required: float, verdict: str) -> None:
    ratio = np.where(np.arange(trials) < breaches, 1.5, 0.5)
    row = checks.coverage("c", CELL, ratio, required)
    low, high = clopper_pearson(trials - breaches, trials)
    ends = 1.5 if breaches else 0.5
    assert row == Row(
        "c", "flip", "paper", 3.0, "trials", trials, breaches, required, low, high, ends, verdict, *row[-3:]
    )
    assert np.isnan(row[-3:]).all()
    assert f"{breaches} breaches in {trials} trials" in row.evidence()


def test_a_ratio_that_is_no_number_is_a_breach() -> None:
    assert checks.coverage("c", CELL, np.array([0.5, nan]), 0.85).breaches == 1


@pytest.mark.parametrize(("violations", "seen", "verdict"), [(0, 5, "holds"), (1, 5, "fails"), (0, 0, "undecided")])
def test_the_verdict_on_a_lemma(violations: int, seen: int, verdict: str) -> None:
    lemma = Lemma(3)
    lemma.checks[1], lemma.violations[1], lemma.violations[2] = seen, violations, 7
    row = checks.per_round("c", CELL, lemma, slice(0, 2))
    assert (row.unit, row.checked, row.breaches, row.verdict) == ("rounds", seen, violations, verdict)


@pytest.mark.parametrize(
    ("regret", "bound", "ceiling", "verdict"),
    [(1.0, 5.0, 4.0, "vacuous"), (1.0, 4.0, 4.0, "vacuous"), (1.0, 2.0, 4.0, "holds"), (3.0, 2.0, 4.0, "fails")],
)
def test_the_verdicts_on_bounds(regret: float, bound: float, ceiling: float, verdict: str) -> None:
    wobble = np.linspace(-0.1, 0.1, 20)
    numbers = wobble + regret, np.full(20, bound), np.full(20, ceiling)
    for row in (checks.path_bound("c", CELL, *numbers, 0.95), checks.mean_bound("c", CELL, *numbers)):
        assert (row.verdict, row.bound, row.ceiling) == (verdict, bound, ceiling)
        assert row.regret == pytest.approx(regret)
        assert ("≥" in row.evidence()) == (verdict == "vacuous")


def test_a_mean_near_its_bound_is_undecided() -> None:
    regret = np.array([1.0, 3.0, 2.0, 2.1])
    assert checks.mean_bound("c", CELL, regret, np.full(4, 2.0), np.full(4, 9.0)).verdict == "undecided"
    assert checks.mean_bound("c", CELL, regret[:1], np.full(1, 2.0), np.full(1, 9.0)).verdict == "undecided"


def test_rows_are_pooled_by_claim() -> None:
    parts = [checks.coverage("c", CELL, np.append(np.zeros(19), ratio), 0.85) for ratio in (0.5, 1.2, 1.1)]
    assert [row.verdict for row in parts] == ["holds", "undecided", "undecided"]
    other = checks.per_round("l", CELL, Lemma(2), slice(0, 2))
    first, second = Verdicts({}, [*parts, other]).pooled()
    assert (first.claim, first.attack, first.checked, first.breaches, first.ratio) == ("c", "all", 60, 2, 1.2)
    assert (first.verdict, first.low) == ("holds", clopper_pearson(58, 60)[0])  # together they decide
    assert (second.claim, second.verdict) == ("l", "undecided")
    broken = checks.coverage("c", CELL, np.full(20, 2.0), 0.85)
    assert Verdicts({}, [parts[0], broken]).pooled()[0].verdict == "fails"


# ------------------------------------------------------------------------------------------ all of it


@cache
def sound() -> Verdicts:
    return verify(**SMALL)


def by_claim(verdicts: Verdicts) -> dict[str, Row]:
    return {row.claim: row for row in verdicts.pooled()}


def test_all_weak_attacks_really_lie_in_both_environments() -> None:
    weak = {name for name, kind in ATTACKS.items() if kind.strength == "weak"}
    rows = [row for row in sound().rows if row.claim == checks.EVENT]
    assert {(row.environment, row.attack) for row in rows} == {(e, a) for e in ("paper", "fresh") for a in weak}
    assert all((row.corruption > 0.3) == (row.attack != "none") for row in rows)


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


def test_the_same_again() -> None:
    calls: list[int] = []
    again = verify(**SMALL, progress=calls.append)
    assert repr(again) == repr(sound())  # with its nans
    assert sum(calls) == checks.RUNS * SMALL["rounds"]


CLAIMS = [*checks.RADII, checks.OFUL_RADIUS, checks.WEIGHTED_RADIUS]


@pytest.mark.parametrize("claim", CLAIMS)
def test_shrunken_radii_are_breached(claim: str) -> None:
    """Every radius is as wide as its largest ratio says: at nine tenths of that, μ* is seen outside."""
    ratio = largest_ratio(sound(), [claim])
    row = by_claim(verify(**SMALL, shrink=0.9 * ratio))[claim]
    assert row.breaches > 0
    assert row.ratio == pytest.approx(1.0 / 0.9)


def test_radii_that_are_shrunk_less_are_not_breached() -> None:
    rows = by_claim(verify(**SMALL, shrink=1.01 * largest_ratio(sound(), CLAIMS)))
    assert not any(rows[claim].breaches for claim in CLAIMS)


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

    def _learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        super()._learn(actions, 1000.0 * rewards, weights, level)


def test_a_policy_that_learns_wrong_rewards_fails() -> None:
    pooled = by_claim(verify(**SMALL, multi_level=WrongUnits))
    assert {pooled[claim].verdict for claim in (checks.EVENT, checks.BETA, checks.GAMMA)} == {"fails"}
    assert pooled[checks.ALPHA].verdict == "holds"


class OneLevel(MultiLevelWeightedOFUL):
    """Draws the same level every round, which then meets all of the corruption."""

    def _draw_level(self, uniform: Floats) -> Ints:
        return np.full(len(uniform), self.levels)


def test_a_policy_that_draws_levels_wrongly_fails() -> None:
    rounds, scenario = 200, world(Flip(rounds=100), trials=20)
    corruption = rehearse([scenario], rounds, SEED)
    for policy, verdict in ((OneLevel, "fails"), (MultiLevelWeightedOFUL, "holds")):
        watcher = Watcher(setting_of(3), rounds, corruption)
        simulate(policy=policy, scenarios=[scenario], rounds=rounds, seed=SEED, watch=watcher)
        row = checks.coverage("c", CELL, watcher.corruption, 0.95)
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

    def _weights(self, sigma: Floats) -> Floats:
        return np.full_like(sigma, 1e12)

    def _search(self, actions: Floats | Region, level: Ints) -> Search:
        assert isinstance(actions, np.ndarray)
        return super()._search(-actions, level)


def test_a_policy_that_plays_the_worst_violates_the_lemmas() -> None:
    rounds, scenario = 50, Scenario(Line(dim=1), NoAttack(), range(8))
    watcher = Watcher(setting_of(1), rounds, np.zeros(8))
    simulate(policy=Spiteful, scenarios=[scenario], rounds=rounds, seed=SEED, watch=watcher)
    assert watcher.held.all()
    for lemma in (watcher.low, watcher.high):
        assert checks.per_round("c", CELL, lemma, slice(0, 8)).verdict == "fails"
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
