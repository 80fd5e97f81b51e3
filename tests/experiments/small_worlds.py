"""Small scenarios for the tests of the theory."""

from __future__ import annotations

from math import sqrt
from typing import Any

from robandit.lab.attacks import Attack
from robandit.lab.environments import Environment, Paper
from robandit.lab.protocol import Scenario
from robandit.policies.radius import Setting

DELTA, SEED = 0.05, 3


def world(attack: Attack, trials: int = 2, **settings: Any) -> Scenario:
    environment: Environment = Paper(dim=3, actions=4, parameter="random", **settings)
    return Scenario(environment.facing(attack), attack, range(trials))


def setting_of(dim: int) -> Setting:
    return Setting(dim, 0.5, 1.0, 1.0, DELTA, 1.0, 1.5 / sqrt(dim))
