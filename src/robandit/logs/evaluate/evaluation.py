"""The value of policies on the service's log, with intervals and warnings. See docs/how-to/evaluate.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import Floats
from robandit.errors import ConfigError
from robandit.lab.catalogue import find
from robandit.lab.plan import Entry
from robandit.logs.evaluate.estimators import (
    Interval,
    bernstein,
    by_decision,
    doubly_robust,
    effective_size,
    importance,
    interval,
    ips,
    mean_weight,
    predict,
    snips,
)
from robandit.logs.evaluate.records import DecisionLog
from robandit.policies import Policy

UNIFORM, LOGGED = "uniform", "logged"
"""Policies that need no training: every action alike, and what the log's own policy did."""
LEAST = 30
"""The least number of decisions for an interval: with fewer, a central limit is no limit."""
_FEW = 50.0  # the effective size below which a warning is given
_STRANGE = 0.002  # share of logs with right propensities that may be warned of


class EvaluationRow(NamedTuple):
    """The value of one policy by one estimator."""

    policy: str
    estimator: str
    value: Interval
    """The mean reward of a decision."""
    gain: Interval | None
    """How much more that is than the logged policy's, decision by decision; None for the logged policy itself."""
    sure: Interval | None
    """For IPS with a range of rewards, an interval that holds for every n."""
    effective: float
    """The effective number of decisions."""
    largest: float
    """The largest weight."""


@dataclass(frozen=True)
class Evaluation:
    """All estimates, with notes and warnings."""

    decisions: int
    """The number of decisions in the log."""
    trained: int
    """The number of decisions that policies were trained on."""
    evaluated: int
    """The number of decisions that policies were evaluated on."""
    confidence: float
    """The confidence of the intervals."""
    rows: list[EvaluationRow]
    """The estimates, the logged policy's own first."""
    notes: list[str]
    """What a reader should know of the log."""
    warnings: list[str]
    """The reasons why the estimates may be wrong."""


def evaluate(
    log: DecisionLog,
    policies: Sequence[Entry | str],
    *,
    train: float = 0.5,
    confidence: float = 0.95,
    reward_range: tuple[float, float] | None = None,
    noise_range: float = 1.0,
    seed: int = 0,
) -> Evaluation:
    """The values of policies, each trained on the first part of the log, frozen, and evaluated on the rest."""
    _check(log, train, confidence, reward_range)
    known = log.where(np.isfinite(log.reward))
    first, rest = _split(known, train)
    cut = len(first)
    fitted = predict(known.offered, known.starts, known.index, known.reward, cut)[known.starts[cut] :]
    own = interval(rest.reward, confidence)
    rows, warnings = [EvaluationRow(LOGGED, "mean", own, None, None, float(len(rest)), 1.0)], _warnings(log)
    for policy in policies:
        if policy != LOGGED:
            name = policy if isinstance(policy, str) else policy.label
            chances = _chances(first, rest, policy, noise_range, seed)
            weights = importance(chances[rest.chosen], rest.propensity)
            rows += _rows(name, rest, weights, chances, fitted, confidence, reward_range)
            warnings += _doubts(name, weights, _largest(rest, chances))
    return Evaluation(len(log), cut, len(rest), confidence, rows, _notes(log), warnings)


def _split(known: DecisionLog, train: float) -> tuple[DecisionLog, DecisionLog]:
    """The decisions to train on, and those to evaluate on."""
    cut = int(train * len(known))
    if len(known) - cut < LEAST:
        raise ValueError(
            f"{len(known) - cut:,} decisions with a reward are left to evaluate on, and {LEAST} are the least; "
            "wait for more, or train on a smaller share"
        )
    late = np.arange(len(known)) >= cut
    return known.where(~late), known.where(late)


def _check(log: DecisionLog, train: float, confidence: float, reach: tuple[float, float] | None) -> None:
    if not 0.0 <= train < 1.0:
        raise ConfigError(f"train must be at least 0 and below 1, so that some are left to evaluate on; got {train}")
    if not 0.0 < confidence < 1.0:
        raise ConfigError(f"confidence must be between 0 and 1, got {confidence}")
    known = log.reward[np.isfinite(log.reward)]
    if reach is not None and not reach[0] < reach[1]:
        raise ConfigError(f"reward range must be LOW,HIGH with LOW < HIGH, got {reach[0]:g},{reach[1]:g}")
    if reach is not None and known.size and not reach[0] <= known.min() <= known.max() <= reach[1]:
        raise ValueError(
            f"rewards go from {known.min():g} to {known.max():g}, beyond the range {reach[0]:g},{reach[1]:g}"
        )


def _rows(
    name: str,
    rest: DecisionLog,
    weights: Floats,
    chances: Floats,
    fitted: Floats,
    confidence: float,
    reach: tuple[float, float] | None,
) -> list[EvaluationRow]:
    rewards, expected = rest.reward, by_decision(chances * fitted, rest.starts)
    terms = {"IPS": ips(weights, rewards)}
    if weights.any():
        terms["SNIPS"] = snips(weights, rewards)
    terms["DR"] = doubly_robust(weights, rewards, fitted[rest.chosen], expected)
    told = effective_size(weights), float(weights.max())
    sure = {"IPS": bernstein(weights, rewards, reach, confidence)} if reach else {}
    return [
        EvaluationRow(name, how, interval(each, confidence), interval(each - rewards, confidence), sure.get(how), *told)
        for how, each in terms.items()
    ]


# The policies that are evaluated.


def _chances(first: DecisionLog, rest: DecisionLog, policy: Entry | str, noise_range: float, seed: int) -> Floats:
    """The probability π(a|x) of each action on offer in ``rest``, (N,)."""
    if policy == UNIFORM:
        counts = np.diff(rest.starts)
        return np.repeat(1.0 / counts, counts)
    assert isinstance(policy, Entry)
    if not len(first):
        raise ConfigError(f"{policy.label} must be trained on something: train must be above 0")
    norms = (np.linalg.norm(part.offered, axis=1).max() for part in (first, rest))
    usual = {"noise_range": noise_range, "horizon": len(first) + len(rest) + 1, "action_bound": float(max(1.0, *norms))}
    frozen = _trained(first, policy, usual, seed)
    menus = np.split(rest.offered, rest.starts[1:-1])
    return np.concatenate([frozen.propensities(menu) for menu in menus])


def _trained(first: DecisionLog, entry: Entry, usual: Mapping[str, Any], seed: int) -> Policy:
    """The policy after it has learnt from these decisions. Where it has levels, it draws its own.

    Settings that it has and was not given are the ``usual`` ones.
    """
    made = find("policies", entry.kind)
    have = {item.name for item in fields(made)}
    settings = {key: value for key, value in usual.items() if key in have} | dict(entry.settings)
    try:
        policy: Policy = made(dim=first.offered.shape[1], seed=seed, **settings)
        policy.warm_start(first.offered[first.chosen], first.reward, first.sigma)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{entry.label}: {error}") from None
    return policy


# Notes and warnings.


def _notes(log: DecisionLog) -> list[str]:
    found, outcomes = [], log.outcomes
    missing = outcomes["pending"] + outcomes["lost"]
    if missing:
        found.append(
            f"{missing:,} of {len(log):,} decisions have no reward ({outcomes['pending']:,} pending, "
            f"{outcomes['lost']:,} lost) and are left out. The estimates hold only if whether a reward is missing "
            "depends neither on the action nor on what the reward would have been."
        )
    if log.left_out:
        found.append(
            f"{log.left_out:,} more decisions don't say what was on offer, since the bandit did not explore then; they "
            "are left out."
        )
    if outcomes["default"]:
        found.append(f"{outcomes['default']:,} rewards are the default, which counts as a reward.")
    return found


def _warnings(log: DecisionLog) -> list[str]:
    if log.proof is None:
        return []
    return [f"The values are those of corrupted feedback, not of honest feedback. {log.proof}"]


def _largest(rest: DecisionLog, chances: Floats) -> float:
    """The largest weight that any draw could have had, if all actions are explored as the least likely draw was."""
    counts = np.diff(rest.starts)
    floor = (rest.propensity * counts).min() / counts  # of a propensity: a policy explores each of K actions alike
    return float((np.maximum.reduceat(chances, rest.starts[:-1]) / floor).max())


def _doubts(name: str, weights: Floats, most: float) -> list[str]:
    """The reasons why the intervals of a policy may be wrong."""
    found, size = [], effective_size(weights)
    if size < _FEW:
        found.append(
            f"{name}: the weights leave an effective size of {size:.0f}; with so few, intervals can be too short. "
            "Explore more, or wait for more decisions."
        )
    low, high = mean_weight(weights, max(1.0, most), _STRANGE)
    if not low - 1e-6 <= 1.0 <= high + 1e-6:
        found.append(
            f"{name}: the mean weight is {weights.mean():.3f}, between {low:.3f} and {high:.3f} where the chance of "
            "draws is counted in, and should be 1. Either the propensities in this log are not the probabilities with "
            "which its actions were drawn, or rewards are missing more often for some actions than for others."
        )
    return found
