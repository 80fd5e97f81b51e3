"""Single cells of a table as values: a number, a truth, a label, or missing."""

from __future__ import annotations

from math import isinf, nan
from typing import Any

MISSING = "(missing)"
"""The level that stands for a missing label."""
_WORDS = {"true": 1.0, "yes": 1.0, "t": 1.0, "y": 1.0, "false": 0.0, "no": 0.0, "f": 0.0, "n": 0.0}


def is_missing(cell: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, NaT, pandas' NA, or blank text.

    >>> [is_missing(cell) for cell in (None, float("nan"), " ", 0, "0", False)]
    [True, True, True, False, False, False]
    """
    if isinstance(cell, str):
        return not cell.strip()
    try:
        return cell is None or bool(cell != cell)
    except TypeError:  # pandas' NA is neither equal nor different
        return True


def number(cell: Any) -> float:
    """A cell as a finite number, NaN if it is missing. Text that reads as a number is one."""
    if is_missing(cell):
        return nan
    try:
        value = float(cell)
    except (TypeError, ValueError):
        raise ValueError(f"must be a number, got {cell!r:.80}; words need a column of labels") from None
    except OverflowError:
        value = float("inf")
    if isinf(value):
        raise ValueError(f"must be finite, got {cell!r:.80}; send a number, or nothing where none is known")
    return value


def truth(cell: Any) -> float:
    """A cell as 1 or 0, NaN if it is missing.

    >>> [truth(cell) for cell in (True, "No", "1", 0, None)]
    [1.0, 0.0, 1.0, 0.0, nan]
    """
    word = _WORDS.get(cell.strip().lower()) if isinstance(cell, str) else None
    if word is not None:
        return word
    try:
        value = number(cell)
    except ValueError:
        value = 2.0
    if not (value != value or 0.0 <= value <= 1.0):
        raise ValueError(f"must be true or false, got {cell!r:.80}")
    return value


def label(cell: Any) -> str | None:
    """The name of a category, None if it is missing. 7, 7.0 and "7" are one category, as formats write it differently.

    >>> [label(cell) for cell in ("red ", 7, 7.0, 0.5, True, None)]
    ['red', '7', '7', '0.5', '1', None]
    """
    if isinstance(cell, str):
        return cell.strip() or None
    if is_missing(cell):
        return None
    if isinstance(cell, bytes):
        return cell.decode("utf-8", "replace").strip() or None
    hash(cell)  # a list is no category
    try:
        whole = int(cell)
        return str(whole) if whole == cell else str(cell)
    except (TypeError, ValueError, OverflowError):
        return str(cell)
