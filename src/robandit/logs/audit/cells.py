"""Cells of a log as values: numbers, labels, times and lists; and what is wrong with those that are none."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from itertools import chain
from math import isinf, isnan, nan
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from robandit.arrays import Bools, Floats, Ints
from robandit.logs.audit.tables import Column

LARGEST = 1e15
"""The largest number: larger ones are not exact to the unit, and fourth powers in a proof might overflow."""


def told(role: str, name: str, cell: Any, what: str = "a number") -> tuple[str, str]:
    """The reason why a cell can't be used, and its content."""
    return f"{role} {_fault(cell, what)}", f"{name} = {show(cell)}"


def _fault(cell: Any, what: str) -> str:
    if cell is None or (isinstance(cell, str) and not cell.strip()):
        return "is missing"
    value = number(cell)
    if isinf(value):
        return "is infinite"
    if isnan(value):
        return "is NaN" if str(cell).strip().lower().lstrip("+-") == "nan" else f"is not {what}"
    return f"is beyond ±{LARGEST:g}" if what == "a number" else f"is not {what}"


def show(cell: Any) -> str:
    """A cell as it is shown to a reader."""
    cell = plain(cell)
    return "nothing" if cell is None else str(cell) if isinstance(cell, datetime) else repr(cell)


def number(cell: Any) -> float:
    """A cell as a number; NaN if it is not a number.

    >>> [number(cell) for cell in (1, " 2.5 ", True, "false", "1_000", "much", None)]
    [1.0, 2.5, 1.0, 0.0, nan, nan, nan]
    """
    if isinstance(cell, str):
        cell = {"true": True, "false": False}.get(cell.strip().lower(), cell)
    try:
        return nan if isinstance(cell, str) and "_" in cell else float(cell)
    except (TypeError, ValueError):
        return nan
    except OverflowError:
        return float("inf")


def floats(column: Column) -> Floats:
    """A column as numbers; NaN where a cell is not a number."""
    if isinstance(column, pa.Array):
        try:
            return _decoded(column).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            column = column.to_pylist()
    try:
        array = np.asarray(column)
    except (ValueError, OverflowError):  # lists of different lengths among the cells
        array = np.empty((0, 0), dtype=object)
    if array.dtype.kind in "fiub" and array.ndim == 1:
        return array.astype(float)
    return np.array([number(cell) for cell in column], dtype=float)


def texts(column: Column) -> Any:
    """A column as an array of strings; None where a cell is empty or has a line break, as after an unclosed quote."""
    cells = column.dictionary_encode() if isinstance(column, pa.Array) else column
    if isinstance(column, pa.Array):
        known = np.array([*map(_label, cells.dictionary.to_pylist()), None], dtype=object)
        return known[cells.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)]
    return np.array([*map(_label, cells), None], dtype=object)[:-1]


def _label(cell: Any) -> str | None:
    text = cell.decode("utf-8", "replace") if isinstance(cell, bytes) else str(cell)
    text = text.strip()
    empty = cell is None or not text or "\n" in text or (isinstance(cell, float) and isnan(cell))
    return None if empty else text


def moments(column: Column) -> Floats:
    """A column of times (numbers or ISO 8601) as numbers that grow with time; NaN where a cell is not a time."""
    if isinstance(column, pa.Array) and pa.types.is_temporal(column.type):
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("ms"))
        return column.cast(pa.int64()).to_numpy(zero_copy_only=False).astype(float)
    values = np.array(floats(column))
    for place in np.flatnonzero(np.isnan(values)).tolist():
        values[place] = _moment(plain(column[place]))
    return values


def _moment(cell: Any) -> float:
    try:
        found = datetime.fromisoformat(cell.strip())
    except (AttributeError, TypeError, ValueError):
        return nan
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def plain(cell: Any) -> Any:
    """A cell as a plain value of Python."""
    return cell.as_py() if isinstance(cell, pa.Scalar) else cell


def _decoded(column: Any) -> Any:
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def keep(column: Column, good: Bools) -> Column:
    """The cells of the good rows."""
    if isinstance(column, pa.Array):
        return column.filter(pa.array(good))
    return [cell for cell, keep in zip(column, good.tolist(), strict=True) if keep]


# Lists of features.


def as_lists(column: Column) -> Column:
    """A column of lists: Arrow's as it is; otherwise Python lists, and None where a cell is not a list."""
    if isinstance(column, pa.Array) and not pa.types.is_string(column.type):
        return column
    return [_as_list(cell) for cell in (column.to_pylist() if isinstance(column, pa.Array) else column)]


def _as_list(cell: Any) -> list[Any] | None:
    if isinstance(cell, str):
        try:
            cell = json.loads(cell)
        except (ValueError, RecursionError):
            return None
    return cell if isinstance(cell, list) else None


def list_lengths(cells: Column) -> Ints:
    """The length of each list; −1 where there is none."""
    if isinstance(cells, pa.Array):
        return pc.list_value_length(cells).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.array([-1 if cell is None else len(cell) for cell in cells], dtype=np.int64)


def flat(cells: Column, right: Bools) -> Column:
    """The items of these lists, one after the other."""
    kept = keep(cells, right)
    return kept.flatten() if isinstance(kept, pa.Array) else list(chain.from_iterable(kept))
