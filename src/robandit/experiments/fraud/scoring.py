"""The scores of policies over many scenarios: ratios of mean regrets, their geometric mean, and the worst."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import exp
from typing import NamedTuple, TypeAlias

import numpy as np

from robandit.arrays import Floats
from robandit.experiments.fraud.playing import regret
from robandit.experiments.fraud.scenario import NOBODY, FraudScenario
from robandit.experiments.intervals import Ratio, interval
from robandit.policies import Policy

MATERIAL = 0.01
"""The least regret that counts, as a share of that of uniform play."""


class Entrant(NamedTuple):
    """A policy and what it is told."""

    make: Callable[..., Policy]
    view: str


Regrets: TypeAlias = Mapping[str, Floats]
"""The regret of each entrant, (scenarios, trials)."""


def play_all(
    scenarios: Sequence[FraudScenario], entrants: Mapping[str, Entrant], trials: int, workers: int = 1
) -> dict[str, Floats]:
    """The regret of each entrant in all scenarios, (scenarios, trials); the same with any number of processes."""
    from joblib import Parallel, delayed
    from tqdm import tqdm

    pairs = [(entrant, scenario) for entrant in entrants.values() for scenario in scenarios]
    jobs = (delayed(regret)(scenario, entrant.make, entrant.view, trials) for entrant, scenario in pairs)
    played = Parallel(workers, return_as="generator")(jobs)
    found = np.array(list(tqdm(played, "plays", len(pairs), disable=None)))
    return dict(zip(entrants, found.reshape(len(entrants), len(scenarios), trials), strict=True))


def material(regrets: Regrets, uniform: Floats) -> dict[str, Floats]:
    """The mean regrets of each entrant, (scenarios,), of which none counts less than 1 % of uniform play's.

    Where a policy finds the best action at once, its regret is nearly nothing, and a ratio to it says nothing.
    """
    least = MATERIAL * uniform.mean(axis=1)
    return {label: np.maximum(regret.mean(axis=1), least) for label, regret in regrets.items()}


def geometric(above: Floats, below: Floats) -> Ratio:
    """The geometric mean over scenarios of the ratio of mean regrets (scenarios,), with an interval over scenarios.

    >>> geometric(np.array([2.0, 8.0]), np.array([1.0, 2.0])).value
    2.82842712474619
    """
    logs = np.log(above / below)
    middle, half = interval(logs)
    return Ratio(exp(middle), exp(middle - half), exp(middle + half))


def best_in_hindsight(means: Mapping[str, Floats], rivals: Iterable[str]) -> Floats:
    """The mean regret of the best rival of each scenario, (scenarios,)."""
    return np.min([means[label] for label in rivals], axis=0)


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
