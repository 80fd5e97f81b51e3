"""Numbers with their 95 % intervals: means, ratios of means, and probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, isnan, lgamma, sqrt
from typing import NamedTuple, TypeAlias

import numpy as np

from robandit.arrays import TINY, Floats
from robandit.figures.numbers import two_digits
from robandit.lab.summary import t_quantile


def interval(values: Floats) -> tuple[float, float]:
    """The mean of the trials and half of its 95 % t interval, which is nan for one trial."""
    n = len(values)
    half = t_quantile(0.95, n - 1) * float(values.std(ddof=1)) / sqrt(n) if n > 1 else float("nan")
    return float(values.mean()), half


class Ratio(NamedTuple):
    """A ratio of mean regrets and its 95 % interval, which is nan for one trial."""

    value: float
    low: float
    high: float


Pairs: TypeAlias = Sequence[tuple[Floats, Floats]]
"""Pairs of regrets of the same trials, (n,) each: numerator and denominator of a ratio."""


def _linearised(x: Floats, y: Floats) -> tuple[float, Floats]:
    """The ratio ρ of the means, and by how much each trial moves it: (x_i − ρ y_i) / ȳ."""
    below = max(float(y.mean()), TINY)
    rho = float(x.mean()) / below
    return rho, (x - rho * y) / below


def mean_ratio(pairs: Pairs) -> Ratio:
    """The mean of the ratios."""
    parts = [_linearised(x, y) for x, y in pairs]
    value, half = float(np.mean([rho for rho, _ in parts])), interval(np.mean([moves for _, moves in parts], axis=0))[1]
    return Ratio(value, value - half, value + half)


def geometric_ratio(pairs: Pairs) -> Ratio:
    """The geometric mean of the ratios, with the interval of the mean logarithm."""
    parts = [(max(rho, TINY), moves) for rho, moves in (_linearised(x, y) for x, y in pairs)]
    log = float(np.mean([np.log(rho) for rho, _ in parts]))
    half = interval(np.mean([moves / rho for rho, moves in parts], axis=0))[1]
    return Ratio(exp(log), exp(log - half), exp(log + half))


def clopper_pearson(successes: int, trials: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of a probability, given the number of successes.

    >>> [round(end, 4) for end in clopper_pearson(80, 80)]
    [0.9549, 1.0]
    """
    tail = (1.0 - level) / 2.0
    return _lower_end(successes, trials, tail), 1.0 - _lower_end(trials - successes, trials, tail)


def _lower_end(successes: int, trials: int, tail: float) -> float:
    """The p at which this many successes or more have the probability ``tail``, by bisection."""
    if successes == 0:
        return 0.0
    k = np.arange(successes, trials + 1)
    ways = lgamma(trials + 1) - np.array([lgamma(i + 1) + lgamma(trials - i + 1) for i in k.tolist()])
    low, high = 0.0, 1.0
    for _ in range(50):
        p = (low + high) / 2.0
        chance = np.exp(ways + k * np.log(p) + (trials - k) * np.log1p(-p)).sum()
        low, high = (p, high) if chance < tail else (low, p)
    return (low + high) / 2.0


# Words.


def ratio_words(ratio: Ratio) -> str:
    """A ratio and its interval, if it has one.

    >>> ratio_words(Ratio(1.234, 1.1, 12.34))
    '1.23 [1.10, 12.3]'
    """
    value, low, high = map(_not_negative, ratio)
    return value if isnan(ratio.low) else f"{value} [{low}, {high}]"


def plus_minus(ratio: Ratio) -> str:
    """A ratio and half of its interval, for one that is symmetric.

    >>> plus_minus(Ratio(1.234, 1.1, 1.368))
    '1.23 ± 0.13'
    """
    value, half = _not_negative(ratio.value), two_digits(ratio.high - ratio.value) if ratio.high > ratio.value else "0"
    return value if isnan(ratio.low) else f"{value} ± {half}"


def _not_negative(value: float) -> str:
    """Three digits. No regret is below 0, even where its interval reaches there."""
    return f"{max(value, 0.0):.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
