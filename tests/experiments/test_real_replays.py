"""The data of the real wing, fetched: what there is to earn, and that a tuned OFUL earns it. ``make test-real``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from robandit import OFUL
from robandit.experiments.real import MissingData
from robandit.experiments.real.wing import WORLDS, World, world
from robandit.lab.attacks import Bots, NoAttack
from robandit.lab.protocol import Scenario, simulate

pytestmark = pytest.mark.real
FOLDER = Path(__file__).parents[2] / "out" / "data"
SHAPES = {"electricity": (4, 7, 0.25), "swissmetro": (3, 19, 1 / 3), "movielens": (20, 17, 0.572)}
BEST = {"electricity": 0.478, "swissmetro": 0.671, "movielens": 0.851}
CLEAN = {"electricity": 0.458, "swissmetro": 0.617, "movielens": 0.84}


@pytest.fixture(params=WORLDS)
def data(request: pytest.FixtureRequest) -> World:
    try:
        return world(request.param, FOLDER, fetch=True)
    except MissingData as missing:
        pytest.skip(str(missing))


def test_what_there_is_to_earn(data: World) -> None:
    replay = data.replay("play")
    actions, features, uniform = SHAPES[data.name]
    assert (replay.set_size, replay.dim) == (actions, features)
    assert replay.uniform == pytest.approx(uniform, abs=0.001)
    assert replay.hindsight().value == pytest.approx(BEST[data.name], abs=0.005)


def test_a_linear_policy_loses_little_to_a_logistic_one(data: World) -> None:
    fit = data.replay("play").linearity()
    assert fit.loss < 0.02 and fit.worst < 0.1


def test_a_tuned_oful_earns_what_it_did(data: World) -> None:
    replay = data.replay("play")
    attack = Bots(goal="promote", when="opening", rounds=data.rounds)
    scenarios = [Scenario(replay, one, range(4)) for one in (NoAttack(), attack)]
    policy = partial(OFUL, radius_scale=0.25 if data.name != "movielens" else 0.1, noise_range=1.0, parameter_bound=1.0)
    trace = simulate(policy=policy, scenarios=scenarios, rounds=data.rounds, seed=1)
    clean, fraud = np.split(trace.reward[-1] / data.rounds, 2)
    assert clean.mean() == pytest.approx(CLEAN[data.name], abs=0.015)
    assert fraud.mean() < clean.mean() - 0.03
    assert (trace.lies[-1][4:] > 0.05 * data.rounds).all() and not trace.lies[-1][:4].any()
