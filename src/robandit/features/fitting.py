"""Guesses from history what each column is, and learns its centre and scale or its levels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date
from math import isinf
from typing import Any

import numpy as np

from robandit.arrays import Floats
from robandit.errors import nearest
from robandit.features.cells import MISSING, is_missing, number
from robandit.features.columns import (
    BUCKETS,
    PEAK,
    Boolean,
    Categorical,
    Column,
    Hashed,
    Numeric,
    read_kind,
)
from robandit.features.layout import read_crosses
from robandit.features.moments import Moments, checked
from robandit.features.tables import ColumnTable, listed

LEVELS = 32
"""The most levels that have a slot each; with more, they are hashed."""
WIDEST = 256
"""The most features to which crosses are made unasked."""
_NAMES = "id", "key", "uuid", "time", "timestamp", "date", "datetime"
_TRUTHS = ("true", "false"), ("yes", "no"), ("t", "f"), ("y", "n")


def fitted(
    table: ColumnTable,
    action: Sequence[str] | None,
    context: Sequence[str],
    roles: Mapping[str, str | None],
    crosses: Sequence[Sequence[str]] | None,
    kinds: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, str]]:
    """The schema of a history, and the columns that were left out with the reason."""
    context, left_out = _listed("context", context), dict[str, str]()
    named = None if action is None else _listed("action", action)
    _check_known(table, [*(named or ()), *context, *filter(None, roles.values()), *kinds])
    if named is None:
        named, left_out = _guess(table, context, roles, kinds)
    pairs = read_crosses([(one, two) for one in context for two in named] if crosses is None else crosses)
    schema: dict[str, Any] = {
        "action": [_column(table, name, kinds) for name in named],
        "context": [_column(table, name, kinds) for name in context],
        "crosses": pairs,
    }
    source = roles["source"]
    if source is not None and any(source in pair for pair in pairs):
        schema["source"] = [_labels(table, source)]
    if crosses is None:
        _check_width(schema)
    return schema, left_out


def _guess(
    table: ColumnTable, context: Sequence[str], roles: Mapping[str, str | None], kinds: Mapping[str, Any]
) -> tuple[list[str], dict[str, str]]:
    """The columns that may be features of actions; by its id alone, if an action has nothing else."""
    free = [name for name in table.names if name not in roles.values() and name not in context]
    left_out = {name: why for name in free if (why := _unfit(table, name, kinds))}
    action = [name for name in free if name not in left_out] or [name for name in [roles["id"]] if name]
    if not action:
        raise ValueError(f"no column is fit to be a feature: {left_out or 'there are none'}; name them with action=")
    return action, left_out


def _listed(role: str, names: Sequence[str]) -> list[str]:
    if isinstance(names, str):
        raise ValueError(f"{role} must be a list of columns, got the text {names!r}: write [{names!r}]")
    return list(names)


def _check_known(table: ColumnTable, names: Sequence[str]) -> None:
    if not table.length:
        raise ValueError("the history has no rows")
    for name in names:
        if name not in table.names:
            raise ValueError(f"the history has no column {name!r}{nearest(name, table.names)}")


def _check_width(schema: Mapping[str, Any]) -> None:
    """Refuse crosses that nobody asked for if they are too many."""
    width = {column.name: len(column.names) for role in ("action", "context") for column in schema[role]}
    total = sum(width.values()) + sum(width[one] * width[two] for one, two in schema["crosses"])
    if schema["crosses"] and total > WIDEST:
        raise ValueError(
            f"crossing every column of the context with every one of the actions makes {total} features, and "
            f"{WIDEST} are the most that are made unasked: say crosses=[({', '.join(map(repr, schema['crosses'][0]))})"
            ", …], or crosses=() for none"
        )


def _unfit(table: ColumnTable, name: str, kinds: Mapping[str, Any]) -> str:
    """Why a column that nobody named should not be a feature; nothing if it should."""
    if name in kinds:
        return ""
    words = name.lower().replace("-", "_").split("_")
    if words[-1] in _NAMES:
        return "its name is that of an id or a time"
    values = _plain_numbers(table, name)
    if values is not None:
        return "" if np.isnan(values).any() or values.min() < values.max() else "it is the same in all rows"
    cells = [cell for cell in listed(table.get(name, optional=True)) if not is_missing(cell)]
    if any(isinstance(cell, date | list | dict | tuple) for cell in cells[:1]):
        return f"it holds values such as {cells[0]!r:.60}"
    different = len(set(map(str, cells)))
    if different <= 1 and len(cells) == table.length:
        return "it is the same in all rows"
    if _kind(cells) == "categorical" and different > LEVELS and different > table.length / 2:
        return f"it has {different} different labels in {table.length} rows, as names have"
    return ""


def _column(table: ColumnTable, name: str, kinds: Mapping[str, Any]) -> Column:
    """A column as the history has it."""
    given = kinds.get(name)
    if isinstance(given, Column):
        return given
    values = _plain_numbers(table, name)
    if values is not None and given is None:
        return _numeric(name, values)
    cells = listed(table.get(name, optional=True))
    kind = _kind([cell for cell in cells if not is_missing(cell)]) if given is None else read_kind(name, given)
    if kind == "hashed":
        return Hashed(name)
    if kind == "categorical":
        return _labels(table, name, listed_=given is not None)
    gone = any(map(is_missing, cells))
    if kind == "boolean":
        return Boolean(name, missing=gone)
    return _numeric(name, table.numbers(name, optional=True))


def _plain_numbers(table: ColumnTable, name: str) -> Floats | None:
    """A column that is an array of numbers already, which needs no look at each cell."""
    found = table.get(name, optional=True)
    if not isinstance(found, np.ndarray) or isinstance(found, np.ma.MaskedArray) or found.dtype.kind not in "fiu":
        return None
    return table.numbers(name) if found.size else None


def _numeric(name: str, values: Floats) -> Numeric:
    """A column of numbers with the centre and the scale of these values, NaN where they are missing."""
    moments, gone = Moments().add(checked(name, values)), bool(np.isnan(values).any())
    return Numeric(name, centre=moments.mean, scale=moments.scale(PEAK), missing=gone)


def _kind(cells: Sequence[Any]) -> str:
    """What kind of values these are, none of them missing."""
    words = {cell.strip().lower() if isinstance(cell, str) else cell for cell in _few(cells)}
    if words and all(isinstance(word, bool | np.bool_) for word in words):
        return "boolean"
    if words and any(words <= set(pair) for pair in _TRUTHS):
        return "boolean"
    try:
        for cell in cells:
            if not (isinstance(cell, float) and isinf(cell)):  # which is a number, and refused as one
                number(cell)
    except ValueError:
        return "categorical"
    return "numeric"


def _few(cells: Sequence[Any]) -> Sequence[Any]:
    """The cells, or the first of them if they can't be two truths."""
    first = {str(cell).lower() for cell in cells[:100]}
    return cells if len(first) <= 2 else cells[:100]


def _labels(table: ColumnTable, name: str, *, listed_: bool = False) -> Column:
    """A column of labels: one-hot, the most frequent level first, or hashed if there are too many levels."""
    labels, codes = table.labels(name, optional=True)
    times: Counter[str] = Counter()
    for text, count in zip(labels, np.bincount(codes, minlength=len(labels)).tolist(), strict=True):
        times[MISSING if text is None else text] += count
    if len(times) > LEVELS and not listed_:
        return Hashed(name, buckets=BUCKETS)
    return Categorical(name, levels=tuple(sorted(times, key=lambda text: (-times[text], text))))
