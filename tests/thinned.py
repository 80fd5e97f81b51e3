"""Which values of a parameter `make test` tries, and which of them are traced: a few that stand for all."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def thinned(values: Iterable[Any], fast: Collection[Any]) -> list[Any]:
    """All values, of which `make test-slow` tries those that are not in `fast`."""
    return _marked(values, fast, pytest.mark.slow)


def longer(fast: Any, *slow: Any) -> list[Any]:
    """A size for `make test`, and larger ones for `make test-slow`."""
    return thinned([fast, *slow], [fast])


def untraced(values: Iterable[Any], but: Collection[Any]) -> list[Any]:
    """All values, of which only those in `but` reach lines that no other test does: the others need not be traced."""
    return _marked(values, but, pytest.mark.no_cover)


def _marked(values: Iterable[Any], plain: Collection[Any], mark: pytest.MarkDecorator) -> list[Any]:
    """Mark the values that are not plain, and may be marked already. A tuple is a value of several parameters."""
    found, missing = [], list(plain)
    for value in values:
        inside = _inside(value)
        if inside in missing:
            missing.remove(inside)
            found.append(value)
        else:
            marks = value.marks if hasattr(value, "marks") else ()
            found.append(pytest.param(*(inside if isinstance(inside, tuple) else (inside,)), marks=(*marks, mark)))
    assert len(found) > len(missing) == 0, f"{missing} are none of the values"
    return found


def _inside(value: Any) -> Any:
    if not hasattr(value, "marks"):
        return value
    return value.values if len(value.values) > 1 else value.values[0]
