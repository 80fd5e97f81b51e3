"""The scores of policies over many scenarios: ratios of mean regrets, their geometric mean, and the worst."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp
from typing import NamedTuple, TypeAlias

import numpy as np

from robandit.arrays import TINY, Floats
from robandit.experiments.fraud.playing import regret
from robandit.experiments.fraud.scenario import NOBODY, FraudScenario
from robandit.experiments.intervals import Ratio, interval
from robandit.policies import Policy


class Entrant(NamedTuple):
    """A policy and what it is told."""

    make: Callable[..., Policy]
    view: str


Regrets: TypeAlias = Mapping[str, Floats]
"""The regret of each entrant, (scenarios, trials)."""


def play_all(scenarios: Sequence[FraudScenario], entrants: Mapping[str, Entrant], trials: int) -> dict[str, Floats]:
    """The regret of each entrant in all scenarios, (scenarios, trials)."""
    return {
        label: np.stack([regret(scenario, entrant.make, entrant.view, trials) for scenario in scenarios])
        for label, entrant in entrants.items()
    }


def geometric(above: Floats, below: Floats) -> Ratio:
    """The geometric mean over scenarios of the ratio of mean regrets, with an interval over scenarios.

    >>> geometric(np.array([[1.0, 3.0], [8.0, 8.0]]), np.array([[1.0, 1.0], [2.0, 2.0]])).value
    2.82842712474619
    """
    logs = np.log(np.maximum(ratios(above, below), TINY))
    middle, half = interval(logs)
    return Ratio(exp(middle), exp(middle - half), exp(middle + half))


def ratios(above: Floats, below: Floats) -> Floats:
    """The ratio of the mean regrets in each scenario, (scenarios,)."""
    return above.mean(axis=1) / np.maximum(below.mean(axis=1), TINY)


def best_in_hindsight(regrets: Regrets, rivals: Iterable[str]) -> Floats:
    """The regret of the best rival of each scenario, (scenarios, trials)."""
    stacked = np.stack([regrets[label] for label in rivals])
    first = stacked.mean(axis=2).argmin(axis=0)
    return stacked[first, np.arange(len(first))]


class Part(NamedTuple):
    """Some of the scenarios, by their places."""

    title: str
    places: list[int]


def parts(scenarios: Sequence[FraudScenario]) -> list[Part]:
    """The scenarios with and without sources, attacked and not."""
    return [
        Part(
            f"{who}, {state}",
            [i for i, one in enumerate(scenarios) if one.has_sources == sourced and clean == (one.lie == NOBODY)],
        )
        for sourced, who in ((True, "with sources"), (False, "without sources"))
        for clean, state in ((False, "attacked"), (True, "nobody lies"))
    ]
