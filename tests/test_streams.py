"""Draws that depend on seed, trial, stream and round alone."""

import numpy as np
from scipy import stats

from robandit.streams import RoundStream


def test_a_round_can_be_read_from_anywhere() -> None:
    forwards = RoundStream(seed=3, trials=[0, 1], stream=0, width=2)
    rounds = [forwards.at(i).copy() for i in range(1000)]
    elsewhere = RoundStream(seed=3, trials=[1], stream=0, width=2)
    for i in (999, 0, 256, 255, 511, 512):
        assert np.array_equal(elsewhere.at(i)[0], rounds[i][1])


def test_seeds_trials_and_streams_differ() -> None:
    settings = [(3, 0, 0), (4, 0, 0), (3, 1, 0), (3, 0, 1), (3 + 2**32, 0, 0)]
    first = {RoundStream(seed=s, trials=[t], stream=n, width=1).at(0)[0, 0] for s, t, n in settings}
    assert len(first) == len(settings)


def test_draws_are_uniform() -> None:
    stream = RoundStream(seed=3, trials=range(20), stream=0, width=3)
    draws = np.array([stream.at(i) for i in range(600)])
    assert stats.kstest(draws.ravel(), "uniform").pvalue > 0.001
