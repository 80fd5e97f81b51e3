"""The verdicts on coverage, lemmas and bounds."""

from __future__ import annotations

from math import nan

import numpy as np
import pytest
from small_worlds import world

from robandit.experiments.intervals import clopper_pearson
from robandit.experiments.paper.theory import Lemma
from robandit.experiments.paper.verdicts import (
    ClaimRow,
    TrialGroup,
    coverage,
    mean_bound,
    path_bound,
    per_round,
)
from robandit.experiments.paper.verify import Verification
from robandit.lab.attacks import NoAttack

GROUP = TrialGroup("paper", "flip", world(NoAttack()), 3.0)


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
    row = coverage("c", GROUP, ratio, required)
    low, high = clopper_pearson(trials - breaches, trials)
    ends = 1.5 if breaches else 0.5
    assert row == ClaimRow(
        "c", "flip", "paper", 3.0, "trials", trials, breaches, required, low, high, ends, verdict, *row[-3:]
    )
    assert np.isnan(row[-3:]).all()
    assert f"{breaches} breaches in {trials} trials" in row.evidence()


def test_a_ratio_that_is_no_number_is_a_breach() -> None:
    assert coverage("c", GROUP, np.array([0.5, nan]), 0.85).breaches == 1


@pytest.mark.parametrize(("violations", "seen", "verdict"), [(0, 5, "holds"), (1, 5, "fails"), (0, 0, "undecided")])
def test_the_verdict_on_a_lemma(violations: int, seen: int, verdict: str) -> None:
    lemma = Lemma(3)
    lemma.checks[1], lemma.violations[1], lemma.violations[2] = seen, violations, 7
    row = per_round("c", GROUP, lemma, slice(0, 2))
    assert (row.unit, row.checked, row.breaches, row.verdict) == ("rounds", seen, violations, verdict)


@pytest.mark.parametrize(
    ("regret", "bound", "ceiling", "verdict"),
    [(1.0, 5.0, 4.0, "vacuous"), (1.0, 4.0, 4.0, "vacuous"), (1.0, 2.0, 4.0, "holds"), (3.0, 2.0, 4.0, "fails")],
)
def test_the_verdicts_on_bounds(regret: float, bound: float, ceiling: float, verdict: str) -> None:
    wobble = np.linspace(-0.1, 0.1, 20)
    numbers = wobble + regret, np.full(20, bound), np.full(20, ceiling)
    for row in (path_bound("c", GROUP, *numbers, 0.95), mean_bound("c", GROUP, *numbers)):
        assert (row.verdict, row.bound, row.ceiling) == (verdict, bound, ceiling)
        assert row.regret == pytest.approx(regret)
        assert ("≥" in row.evidence()) == (verdict == "vacuous")


def test_a_mean_near_its_bound_is_undecided() -> None:
    regret = np.array([1.0, 3.0, 2.0, 2.1])
    assert mean_bound("c", GROUP, regret, np.full(4, 2.0), np.full(4, 9.0)).verdict == "undecided"
    assert mean_bound("c", GROUP, regret[:1], np.full(1, 2.0), np.full(1, 9.0)).verdict == "undecided"


def test_rows_are_pooled_by_claim() -> None:
    parts = [coverage("c", GROUP, np.append(np.zeros(19), ratio), 0.85) for ratio in (0.5, 1.2, 1.1)]
    assert [row.verdict for row in parts] == ["holds", "undecided", "undecided"]
    other = per_round("l", GROUP, Lemma(2), slice(0, 2))
    first, second = Verification({}, [*parts, other]).pooled()
    assert (first.claim, first.attack, first.checked, first.breaches, first.ratio) == ("c", "all", 60, 2, 1.2)
    assert (first.verdict, first.low) == ("holds", clopper_pearson(58, 60)[0])  # together they decide
    assert (second.claim, second.verdict) == ("l", "undecided")
    broken = coverage("c", GROUP, np.full(20, 2.0), 0.85)
    assert Verification({}, [parts[0], broken]).pooled()[0].verdict == "fails"
