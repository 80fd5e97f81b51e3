"""What a fraudster is made of: lies, which are functions of a visit, and habits, which say when they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from robandit.arrays import Bools, Floats
from robandit.experiments.fraud.scenario import FraudScenario
from robandit.experiments.fraud.shop import Visit

Lie: TypeAlias = Callable[[Visit], Floats]
"""Gives the reward that a liar reports, (B,)."""


def is_liar(visit: Visit) -> Bools:
    """Whether the visitor comes from a source that belongs to the fraudster, (B,)."""
    return np.isin(visit.source, visit.shop.scenario.liars)


@dataclass(frozen=True)
class Habit:
    """When liars lie."""

    lies: Callable[[Visit], Bools]
    """Whether this visit is lied about, (B,)."""
    owns: Callable[[Visit], Bools] = is_liar
    """Whether the visitor belongs to the fraudster, (B,): an oracle that is told who lies learns nothing from it."""
    traffic: Callable[[FraudScenario, float], Floats] | None = None
    """The traffic shares by the share of the time that is over, where they change."""


def by_sources(when: Callable[[Visit], Bools | bool]) -> Habit:
    """The habit of sources that lie at some times."""
    return Habit(lambda visit: is_liar(visit) & when(visit))


def by_bots(when: Callable[[Visit], Bools]) -> Habit:
    """The habit of bots that come from anywhere."""
    return Habit(when, when)


@dataclass(frozen=True)
class Family:
    """Some lies and habits by name."""

    lies: Mapping[str, Lie]
    habits: Mapping[str, Habit]
