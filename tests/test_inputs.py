"""Readers take what they say and name what they refuse."""

import re
from collections.abc import Callable

import numpy as np
import pytest

from robandit.inputs import boolean, integer, not_negative, positive, probability, share


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (positive, 1e-100),
        (positive, np.float32(0.5)),
        (not_negative, 0),
        (not_negative, 1e100),
        (share, 0),
        (share, 1.0),
        (probability, 1e-9),
        (probability, np.float64(0.999)),
    ],
)
def test_numbers_in_range_are_read_as_floats(read: Callable[[str, object], float], value: float) -> None:
    number = read("x", value)
    assert type(number) is float
    assert number == value


@pytest.mark.parametrize(
    ("read", "value", "message"),
    [
        (positive, 0, "x must be a number > 0 (from 1e-100 to 1e100), got 0"),
        (positive, True, "x must be a number > 0 (from 1e-100 to 1e100), got True"),
        (not_negative, -1, "x, if not 0, must be a number > 0 (from 1e-100 to 1e100), got -1"),
        (share, 1.5, "x must be a number from 0 to 1, got 1.5"),
        (share, float("nan"), "x must be a number from 0 to 1, got nan"),
        (probability, 0, "x must be a number > 0 (from 1e-100 to 1e100), got 0"),
        (probability, 1, "x must be below 1, got 1"),
        (probability, "half", "x must be a number > 0 (from 1e-100 to 1e100), got 'half'"),
        (boolean, 1, "x must be True or False, got 1"),
        (boolean, "no", "x must be True or False, got 'no'"),
        (boolean, None, "x must be True or False, got None"),
    ],
)
def test_what_is_refused_is_named(read: Callable[[str, object], object], value: object, message: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        read("x", value)


def test_booleans_are_read_as_python_s() -> None:
    assert boolean("x", False) is False
    assert boolean("x", np.True_) is True


@pytest.mark.parametrize("value", [0, 1.0, True, "1", None])
def test_integers_are_whole_and_large_enough(value: object) -> None:
    with pytest.raises(ValueError, match=f"^x must be an integer >= 1, got {re.escape(repr(value))}$"):
        integer("x", value, least=1)
