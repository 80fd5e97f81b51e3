"""The kinds of arrays that everything is made of, and a constant that keeps quotients finite."""

from __future__ import annotations

from functools import lru_cache
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=np.generic)

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Ints: TypeAlias = NDArray[np.int64]
Index: TypeAlias = NDArray[np.intp]
Rows: TypeAlias = slice | Index

ALL = slice(None)
"""Selects all rows."""
TINY = 1e-300
"""Keeps a quotient finite where its denominator may be zero."""
ONE: Ints = np.ones((), np.int64)
"""1 as NumPy adds it to whole numbers in half the time."""
ONE.flags.writeable = False


@lru_cache(maxsize=64)
def count_to(length: int) -> Index:
    """The numbers 0 … length − 1, to index rows by.

    This array and the next two are made once and can't be written to: making them in every round takes time.
    """
    return constant(np.arange(length))


@lru_cache(maxsize=64)
def ones(length: int) -> Floats:
    """So many ones."""
    return constant(np.ones(length))


@lru_cache(maxsize=64)
def all_true(length: int) -> Bools:
    """So many truths."""
    return constant(np.ones(length, dtype=bool))


def within(array: Floats, bound: float) -> bool:
    """Whether all numbers lie from −bound to bound; NaN does not."""
    if array.size == 1:
        return abs(array.item()) <= bound
    return -bound <= array.item(array.argmin()) and array.item(array.argmax()) <= bound  # faster than extremes


def constant(array: NDArray[T]) -> NDArray[T]:
    """The array, to which nobody can write any more."""
    array.flags.writeable = False
    return array
