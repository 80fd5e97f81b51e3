"""The verdict on a claim of the paper, from what was measured in some trials."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import Floats
from robandit.experiments.intervals import clopper_pearson, interval
from robandit.experiments.paper.theory import Lemma
from robandit.lab.protocol import Scenario

HOLDS, FAILS, UNDECIDED, VACUOUS = "holds", "fails", "undecided", "vacuous"


class ClaimRow(NamedTuple):
    """A claim checked in the trials of one environment and attack, as plain data."""

    claim: str
    attack: str
    environment: str
    corruption: float
    """The realised C, averaged over the trials."""
    unit: str
    """What was checked: `trials`, `rounds`, or the `mean` over trials."""
    checked: int
    breaches: int
    required: float
    """The probability that the paper promises, 1 for what must always hold."""
    low: float
    """The lower end of the 95 % Clopper–Pearson interval of the coverage, NaN where coverage does not apply."""
    high: float
    """The upper end of that interval."""
    ratio: float
    """The largest distance over radius, left over right, or regret over bound. Above 1 it is a breach."""
    verdict: str
    regret: float = nan
    """The mean regret, for a bound."""
    bound: float = nan
    """The mean bound."""
    ceiling: float = nan
    """The most that any policy could have lost, averaged over the trials."""

    def evidence(self) -> str:
        """The numbers in words."""
        if not np.isnan(self.bound):
            relation = "≥" if self.verdict == VACUOUS else "<"
            ratio = f"bound {self.bound:.3g} {relation} {self.ceiling:.3g}, the most that can be lost"
            return f"regret {self.regret:.3g}, {ratio}; ratio at most {self.ratio:.2g}"
        counted = f"{self.breaches} breaches in {self.checked} {self.unit}; ratio at most {self.ratio:.2g}"
        if np.isnan(self.low):
            return counted
        return f"{counted}; coverage [{self.low:.3f}, {self.high:.3f}], promised {self.required:.3g}"


class TrialGroup(NamedTuple):
    """The trials of an environment under an attack."""

    environment: str
    attack: str
    scenario: Scenario
    corruption: float = nan
    """The realised C, averaged over the trials."""

    def row(self, claim: str, *rest: Any, **more: Any) -> ClaimRow:
        """A row about these trials."""
        return ClaimRow(claim, self.attack, self.environment, self.corruption, *rest, **more)


def coverage(claim: str, group: TrialGroup, ratio: Floats, required: float) -> ClaimRow:
    """A row on how many trials stay within 1, given their largest ratios (n,)."""
    breaches = int(np.count_nonzero(~(ratio <= 1.0)))
    low, high, verdict = judge_coverage(breaches, len(ratio), required)
    return group.row(claim, "trials", len(ratio), breaches, required, low, high, float(ratio.max()), verdict)


def judge_coverage(breaches: int, checked: int, required: float) -> tuple[float, float, str]:
    """The interval of the coverage and the verdict. It holds if there is no breach, or by the interval.

    >>> [judge_coverage(breaches, 80, 0.85)[2] for breaches in (0, 4, 12, 30)]
    ['holds', 'holds', 'undecided', 'fails']
    """
    low, high = clopper_pearson(checked - breaches, checked)
    if breaches == 0 or low >= required:
        return low, high, HOLDS
    return low, high, FAILS if high < required else UNDECIDED


def per_round(claim: str, group: TrialGroup, lemma: Lemma, part: slice) -> ClaimRow:
    """A row on a lemma that must hold in every round of the good event. One violation is too many."""
    checked, breaches = int(lemma.checks[part].sum()), int(lemma.violations[part].sum())
    verdict = FAILS if breaches else HOLDS if checked else UNDECIDED
    ratio = float(lemma.ratio[part].max())
    return group.row(claim, "rounds", checked, breaches, 1.0, nan, nan, ratio, verdict)


def path_bound(
    claim: str, group: TrialGroup, regret: Floats, bound: Floats, ceiling: Floats, required: float
) -> ClaimRow:
    """A row on a bound for every path. It is vacuous if it exceeds what any policy could lose."""
    row = coverage(claim, group, regret / bound, required)
    return row._replace(
        verdict=VACUOUS if (bound >= ceiling).all() else row.verdict,
        regret=float(regret.mean()),
        bound=float(bound.mean()),
        ceiling=float(ceiling.mean()),
    )


def mean_bound(claim: str, group: TrialGroup, regret: Floats, bound: Floats, ceiling: Floats) -> ClaimRow:
    """A row on a bound on the mean regret, by the 95 % interval of regret − bound. It can be vacuous too."""
    excess, half = interval(regret - bound)
    verdict = HOLDS if excess + half < 0.0 else FAILS if excess - half > 0.0 else UNDECIDED
    means = float(regret.mean()), float(bound.mean()), float(ceiling.mean())
    if means[1] >= means[2]:
        verdict = VACUOUS
    breaches, ratio = int(excess > 0.0), means[0] / means[1]
    return group.row(claim, "mean", len(regret), breaches, 1.0, nan, nan, ratio, verdict, *means)


def pool(rows: Sequence[ClaimRow]) -> ClaimRow:
    """One row for all rows on a claim. Counts add up, the worst ratio stays, and one failure is a failure of all."""
    worst = max(rows, key=lambda row: row.ratio)
    checked, breaches = sum(row.checked for row in rows), sum(row.breaches for row in rows)
    found = {row.verdict for row in rows}
    verdict = next(each for each in (FAILS, UNDECIDED, HOLDS, VACUOUS) if each in found)
    low, high = worst.low, worst.high
    if worst.unit == "trials":
        low, high, together = judge_coverage(breaches, checked, worst.required)
        verdict = verdict if verdict in (FAILS, VACUOUS) else together  # more trials can decide
    return worst._replace(
        attack="all",
        environment="all",
        corruption=float(np.mean([row.corruption for row in rows])),
        checked=checked,
        breaches=breaches,
        low=low,
        high=high,
        verdict=verdict,
    )
