"""Intervals of means, of ratios and of probabilities, by hand and against SciPy."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from robandit.experiments.intervals import clopper_pearson, geometric_ratio, interval, mean_ratio

T1 = 12.706204736  # Student's 97.5 % quantile with one degree of freedom


def test_intervals_are_students() -> None:
    values = np.random.default_rng(0).normal(3, 2, 17)
    low, high = stats.t.interval(0.95, 16, values.mean(), stats.sem(values))
    mean, half = interval(values)
    assert (mean - half, mean + half) == pytest.approx((low, high))
    assert np.isnan(interval(np.array([1.0]))[1])


def test_a_ratio_and_its_interval_by_hand() -> None:
    ratio = mean_ratio([(np.array([6.0, 6.0]), np.array([2.0, 4.0]))])
    half = T1 * np.std([2 / 3, -2 / 3], ddof=1) / np.sqrt(2)  # (x_i − 2 y_i) / 3
    assert ratio == pytest.approx((2.0, 2.0 - half, 2.0 + half))
    same = mean_ratio([(np.array([1.0, 5.0, 2.0]), np.array([2.0, 10.0, 4.0]))])
    assert same == pytest.approx((0.5, 0.5, 0.5))  # paired: what is in proportion in every trial has no spread


def test_ratios_of_several_scenarios() -> None:
    y = np.array([2.0, 4.0])
    pairs = [(np.array([6.0, 6.0]), y), (np.array([24.0, 24.0]), y)]  # 2 and 8
    mean, geometric = mean_ratio(pairs), geometric_ratio(pairs)
    assert mean.value == pytest.approx(5.0)
    half = T1 * np.std([5 / 3, -5 / 3], ddof=1) / np.sqrt(2)  # the mean of (2/3, −2/3) and (8/3, −8/3)
    assert mean.high - mean.value == pytest.approx(half)
    half = T1 * np.std([1 / 3, -1 / 3], ddof=1) / np.sqrt(2)  # each over its ratio
    assert geometric == pytest.approx((4.0, 4.0 * np.exp(-half), 4.0 * np.exp(half)))
    alone = geometric_ratio([(np.array([6.0]), np.array([3.0]))])
    assert alone.value == pytest.approx(2.0) and np.isnan(alone.low) and np.isnan(alone.high)


def test_the_interval_covers_as_it_says() -> None:
    rng, covered = np.random.default_rng(0), 0
    for _ in range(400):
        common = rng.gamma(4.0, 1.0, 50)  # what a trial has in common for both
        low, high = geometric_ratio([(3.0 * common + rng.gamma(4.0, 1.0, 50), common + rng.gamma(4.0, 1.0, 50))])[1:]
        covered += low <= 2.0 <= high
    assert 0.91 <= covered / 400 <= 0.985


@pytest.mark.no_cover
@pytest.mark.parametrize("trials", [1, 2, 7, 80, 1440])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_clopper_pearson_against_scipy(trials: int, level: float) -> None:
    for successes in sorted({0, 1, trials // 3, trials // 2, trials - 1, trials}):
        exact = stats.binomtest(successes, trials).proportion_ci(level, method="exact")
        assert clopper_pearson(successes, trials, level) == pytest.approx((exact.low, exact.high), abs=1e-11)
