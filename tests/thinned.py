"""Which values of a parameter `make test` tries: a few that stand for all. `make test-slow` tries the others."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def thinned(values: Iterable[Any], fast: Collection[Any]) -> list[Any]:
    """All values, of which those that are not in `fast` are slow. A tuple is a value of several parameters."""
    values = list(values)
    assert fast and all(value in values for value in fast), "a fast value is none of the values"
    return [value if value in fast else _slow(value) for value in values]


def longer(fast: Any, *slow: Any) -> list[Any]:
    """A size for `make test`, and larger ones for `make test-slow`."""
    return [fast, *map(_slow, slow)]


def _slow(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow)
