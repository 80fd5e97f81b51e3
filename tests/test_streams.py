"""Draws that depend on seed, trial, stream and round alone."""

import numpy as np
from scipy import stats

from robandit.streams import ATTACK, ENVIRONMENT, Draws, RoundStream


def test_a_round_can_be_read_from_anywhere() -> None:
    forwards = RoundStream(seed=3, trials=[0, 1], key=(0,), shape=(2,))
    rounds = [forwards.at(i).copy() for i in range(1000)]
    elsewhere = RoundStream(seed=3, trials=[1], key=(0,), shape=(2,))
    for i in (999, 0, 256, 255, 511, 512):
        assert np.array_equal(elsewhere.at(i)[0], rounds[i][1])


def test_seeds_trials_and_streams_differ() -> None:
    settings = [(3, 0, 0), (4, 0, 0), (3, 1, 0), (3, 0, 1), (3 + 2**32, 0, 0)]
    first = {RoundStream(seed=s, trials=[t], key=(n,), shape=(1,)).at(0)[0, 0] for s, t, n in settings}
    assert len(first) == len(settings)


def test_draws_are_uniform() -> None:
    stream = RoundStream(seed=3, trials=range(20), key=(0,), shape=(3,))
    draws = np.array([stream.at(i) for i in range(600)])
    assert stats.kstest(draws.ravel(), "uniform").pvalue > 0.001


def test_wide_draws_are_the_same_from_anywhere() -> None:
    forwards = RoundStream(seed=3, trials=[0, 1], key=(1, 1), shape=(30, 40), normal=True)
    rounds = [forwards.at(i).copy() for i in range(60)]
    elsewhere = RoundStream(seed=3, trials=[1], key=(1, 1), shape=(30, 40), normal=True)
    for i in (59, 0, 13, 12, 40):
        assert np.array_equal(elsewhere.at(i)[0], rounds[i][1])


def test_chunks_and_trials_are_uncorrelated_and_normal() -> None:
    stream = RoundStream(seed=3, trials=range(4), key=(1, 2), shape=(), normal=True)
    draws = np.array([stream.at(i) for i in range(4 * 256)])  # (rounds, trials)
    assert stats.kstest(draws.ravel(), "norm").pvalue > 0.001
    blocks = draws.T.reshape(16, 256)  # every chunk of every trial
    correlations = np.corrcoef(blocks)[np.triu_indices(16, k=1)]
    assert np.abs(correlations).max() < 4.5 / 256**0.5


def test_each_stream_of_an_environment_or_attack_is_its_own() -> None:
    def first(who: int, trial: int) -> list[float]:
        draw = Draws(seed=3, trials=[trial], who=who)
        streams = [draw.uniform(), draw.uniform(), draw.shared()]
        return [float(stream.at(1)[0]) for stream in streams]

    drawn = [first(ENVIRONMENT, 0), first(ENVIRONMENT, 1), first(ATTACK, 0)]
    assert drawn[0][2] == drawn[1][2]  # shared by all trials
    assert len({number for numbers in drawn for number in numbers}) == 8
    assert drawn[0] == first(ENVIRONMENT, 0)
