"""Numbers as a reader wants them: a few digits, a range, a mean with half of its interval."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan


def two_digits(value: float) -> str:
    """Two significant digits.

    >>> [two_digits(value) for value in (0.854, 0.999, 1.234, 12.34, 123.4, 1234.5)]
    ['0.85', '1.0', '1.2', '12', '120', '1.2k']
    """
    rounded = float(f"{value:.1e}")
    if rounded >= 1000.0:
        return f"{rounded / 1000.0:.2g}k"
    return f"{rounded:.0f}" if rounded >= 10.0 else f"{rounded:.1f}" if rounded >= 1.0 else f"{rounded:.2f}"


def three_digits(value: float) -> str:
    """Three significant digits, or every digit before the point where there are at most five.

    >>> [three_digits(value) for value in (0.12345, 12.345, 12345.6, 123456.0)]
    ['0.123', '12.3', '12346', '123k']
    """
    if value < 99_999.5:
        return f"{value:.0f}" if value >= 100 else f"{value:.3g}"
    return f"{value / 1e3:.3g}k" if value < 999_500 else f"{value / 1e6:.3g}M"


def span(values: Iterable[float]) -> str:
    """The least and the largest value, or one of them where both read the same.

    >>> span([3.0, 1.0]), span([2.0, 2.0001])
    ('1–3', '2')
    """
    ordered = sorted(values)
    return "–".join(dict.fromkeys((three_digits(ordered[0]), three_digits(ordered[-1]))))


def mean_half(mean: float, half: float, decimals: int = 0) -> str:
    """A mean and half of its interval; one trial has no interval, and its half is nan.

    >>> mean_half(31.4, 2.6), mean_half(31.4, float("nan"))
    ('31 ± 3', '31')
    """
    return f"{mean:.{decimals}f}" if isnan(half) else f"{mean:.{decimals}f} ± {half:.{decimals}f}"
