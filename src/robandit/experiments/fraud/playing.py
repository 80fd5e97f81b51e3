"""Plays any policy in a scenario, for a batch of trials, and counts its regret on clean means."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import fields
from functools import partial
from typing import Any

import numpy as np

from robandit.arrays import Bools, Floats
from robandit.experiments.fraud import development, held_out
from robandit.experiments.fraud.scenario import NOBODY, NOISE_RANGE, FraudScenario
from robandit.experiments.fraud.shop import Shop, Visit
from robandit.policies import Policy

BLIND, SOURCES, TOLD = VIEWS = ("blind", "sources", "told who lies")
"""What a policy is told: nothing of sources; the source of each visitor; also whom not to learn from."""
TRIALS = 16

_LIES = {**development.FAMILY.lies, **held_out.FAMILY.lies}
_HABITS = {**development.FAMILY.habits, **held_out.FAMILY.habits}
_EARLIER = 60  # how many rounds ago the reward was given that a liar may repeat


def regret(scenario: FraudScenario, make: Callable[..., Policy], view: str = SOURCES, trials: int = TRIALS) -> Floats:
    """The regret of a policy in every trial, (B,). All policies have the same products, visitors and luck.

    ``make`` is a class of policies, or a `functools.partial` of one. Its size, horizon and seed come from the scenario.

    >>> from robandit import OFUL
    >>> scenario = development.SCENARIOS[0]
    >>> regret(scenario, OFUL, BLIND, trials=2).shape
    (2,)
    """
    if view not in VIEWS:
        raise ValueError(f"view must be one of {', '.join(VIEWS)}, got {view!r}")
    shop, fraud = Shop(scenario, range(trials)), _Fraud(scenario, trials)
    policy, lost = prepare(make, scenario, trials), np.zeros(trials)
    labelled = view != BLIND and scenario.has_sources
    for t in range(scenario.rounds):
        places, source = shop.places(t), shop.sources(t, fraud.shares(t))
        shown = shop.actions[shop.rows[:, None], places]
        decision = policy.choose(shown, scenario.told, source=source if labelled else None)
        visit = Visit(shop, t, places, source, decision.index, fraud.earlier)
        reward, bought = fraud.answer(visit)
        policy.update(decision, reward, mask=~bought if view == TOLD else None)
        lost += visit.means.max(axis=1) - visit.mean
    return lost


def uniform_regret(scenario: FraudScenario, trials: int = TRIALS) -> Floats:
    """The expected regret of playing every action equally often, (B,)."""
    shop, lost = Shop(scenario, range(trials)), np.zeros(trials)
    for t in range(scenario.rounds):
        means = shop.means[shop.rows[:, None], shop.places(t)]
        lost += means.max(axis=1) - means.mean(axis=1)
    return lost


def prepare(make: Callable[..., Policy], scenario: FraudScenario, trials: int) -> Policy:
    """The policy with what it must know about the scenario."""
    known = {"dim": scenario.dim, "noise_range": NOISE_RANGE, "horizon": scenario.rounds}
    kind: Any = make.func if isinstance(make, partial) else make
    wanted = {item.name for item in fields(kind)} - set(make.keywords if isinstance(make, partial) else ())
    given = {name: value for name, value in known.items() if name in wanted}
    return make(**given, trials=trials, seed=scenario.number)


class _Fraud:
    """Answers in place of the visitors whom the fraudster owns."""

    def __init__(self, scenario: FraudScenario, trials: int) -> None:
        self._scenario, self._honest = scenario, scenario.lie == NOBODY
        self._nobody: Bools = np.zeros(trials, dtype=bool)
        if not self._honest:
            self._lie, self._habit = _LIES[scenario.lie], _HABITS[scenario.habit]
        self._memory: deque[Floats] = deque([np.zeros(trials)], maxlen=_EARLIER)

    @property
    def earlier(self) -> Floats:
        return self._memory[0]

    def shares(self, t: int) -> Floats | None:
        """The traffic shares of a round, where they are not the scenario's."""
        if self._honest or self._habit.traffic is None:
            return None
        return self._habit.traffic(self._scenario, t / self._scenario.rounds)

    def answer(self, visit: Visit) -> tuple[Floats, Bools]:
        """What visitors report, (B,), and whether they belong to the fraudster, (B,)."""
        reward = visit.honest()
        self._memory.append(reward)
        if self._honest:
            return reward, self._nobody
        lies = self._habit.lies(visit)
        told = np.where(lies, self._lie(visit), reward) if lies.any() else reward
        return told, self._habit.owns(visit)
