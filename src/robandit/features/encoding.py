"""From cells to vectors: a general way that counts and complains, and a quick one for records with nothing unusual."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np

from robandit.arrays import Floats, Index
from robandit.features.cells import MISSING, label, number, truth
from robandit.features.columns import Boolean, Categorical, Column, Growing, Hashed, Labelled, Numeric
from robandit.features.layout import Layout, numeric
from robandit.features.tables import ColumnTable

Counts: TypeAlias = Counter[tuple[str, str]]
"""How often something unusual was met, by column and by what it was: clipped, unseen or missing."""

_KEPT = 1 << 16  # the most hashed labels that are remembered


# The general way.


def fill(layout: Layout, columns: Sequence[Column], table: ColumnTable, out: Floats, counts: Counts) -> None:
    """Write what the cells of some columns hold into rows of work (n, slots): numbers as they are, NaN if missing."""
    for column in columns:
        first = layout.first[column.name]
        if isinstance(column, Labelled):
            out[np.arange(len(out)), first + _slots(column, table, counts)] = 1.0
        else:
            _fill_numbers(column, table, out[:, first : first + len(column.names)], counts)


def _slots(column: Labelled, table: ColumnTable, counts: Counts) -> Index:
    """The slot of each row within the block of a column of labels."""
    labels, codes = table.labels(column.name, optional=MISSING in getattr(column, "levels", ()))
    known = column.slots(0) if isinstance(column, Categorical) else {}
    found = np.empty(len(labels), np.intp)
    times = np.bincount(codes, minlength=len(labels)).tolist()
    for place, text in enumerate(labels):
        if not isinstance(column, Categorical):
            found[place] = column.slot(MISSING if text is None else text)
        else:
            found[place] = known.get(MISSING if text is None else text, len(column.levels))
            if text is not None and text not in known:
                counts[column.name, "unseen"] += times[place]
        if text is None:
            counts[column.name, "missing"] += times[place]
    return found[codes]


def _fill_numbers(column: Column, table: ColumnTable, out: Floats, counts: Counts) -> None:
    """Write the numbers, and whether each is missing, into the block (n, 1 or 2) of a column of numbers."""
    known = numeric(column)
    assert known is not None
    values = table.numbers(column.name, truth if isinstance(column, Boolean) else number, optional=known.missing)
    gone = np.isnan(values)
    if gone.any():
        if not known.missing:
            raise ValueError(
                f"{table.row} {int(gone.argmax())}: {column.name} is missing, and the features don't allow for that; "
                f"fill it in, or allow it with missing=True (a history with missing values does, too)"
            )
        counts[column.name, "missing"] += int(gone.sum())
        out[:, 1] = gone
    out[:, 0] = values
    counts[column.name, "clipped"] += int(np.count_nonzero(np.abs(_z(known, values)) > known.limit))


def _z(column: Numeric, values: Floats) -> Floats:
    """z of some values, not clipped yet: as the quick way has it, to the last bit."""
    assert column.centre is not None and column.scale is not None
    with np.errstate(over="ignore"):
        return (values - column.centre) * (1.0 / column.scale)


def standardise(layout: Layout, columns: Sequence[Column], work: Floats) -> None:
    """Turn the numbers of rows of work into z, in place: clipped, and 0 where they are missing."""
    for column in columns:
        known = numeric(column)
        if known is not None:
            slot = work[:, layout.first[column.name]]
            z = _z(known, slot)
            np.clip(np.where(np.isnan(slot), 0.0, z) if known.missing else z, -known.limit, known.limit, out=slot)


def finish(layout: Layout, work: Floats, sets: Sequence[Any] = (slice(None),)) -> Floats:
    """Vectors (n, d) out of rows of work whose columns are filled in. Each of ``sets`` is a decision set."""
    if layout.intercept:
        work[:, layout.constant] = 1.0
    if layout.crosses:
        left, right = layout.factors
        work[:, work.shape[1] - len(left) :] = np.take(work, left, axis=1) * np.take(work, right, axis=1)
    found = work if layout.shown is None else np.take(work, layout.shown, axis=1)
    if layout.centred:
        for rows in sets:
            found[rows] -= found[rows].mean(axis=0)
    found *= layout.factor
    return found


# The quick way.


class RecordPlan:
    """Writes the blocks of some columns for records that are dicts, if all is as usual."""

    def __init__(self, layout: Layout, columns: Sequence[Column]) -> None:
        self._width = len(layout.work_names)
        known = [(found, layout.first[found.name]) for found in map(numeric, columns) if found is not None]
        self._numbers = _getter([column.name for column, _ in known])
        self._count = len(known)
        self._values = _as_slice([slot for _, slot in known])
        self._centre = np.array([column.centre for column, _ in known], dtype=float)
        self._inverse = np.array([1.0 / (column.scale or 1.0) for column, _ in known])
        self._limit = np.array([column.limit for column, _ in known])
        self._choices: list[tuple[Callable[[Any], Any], Callable[[Any], int]]] = []
        for column in columns:
            if isinstance(column, Labelled):
                self._choices.append((itemgetter(column.name), _finder(column, layout.first[column.name]).__getitem__))

    def write(self, records: Sequence[Any], work: Floats) -> bool:
        """Fill rows of work (n, slots), and say whether that went well; if not, the general way has to."""
        number = len(records)
        if self._count:
            cells = chain.from_iterable(map(self._numbers, records))
            z = np.fromiter(cells, float, number * self._count).reshape(number, self._count)
            z -= self._centre
            z *= self._inverse
            if not (np.abs(z) <= self._limit).all():  # NaN is not, either
                return False
            work[:, self._values] = z
        if self._choices:
            slots = chain.from_iterable(map(slot, map(get, records)) for get, slot in self._choices)
            places = np.fromiter(slots, np.intp, number * len(self._choices))
            places += _starts(number, len(self._choices), self._width)
            work.reshape(-1)[places] = 1.0
        return True


def _getter(names: list[str]) -> Callable[[Any], Any]:
    """Gets the cells of these names from a record, as a tuple."""
    if len(names) == 1:
        (name,) = names
        return lambda record: (record[name],)
    return itemgetter(*names) if names else lambda record: ()


def _as_slice(slots: list[int]) -> slice | list[int]:
    """Slots that follow one another as a slice, which is faster."""
    together = bool(slots) and slots == list(range(slots[0], slots[0] + len(slots)))
    return slice(slots[0], slots[-1] + 1) if together else slots


@lru_cache(maxsize=256)
def _starts(number: int, times: int, width: int) -> Index:
    """Where the rows of a flat array begin, all of them so many times over."""
    return np.tile(np.arange(number, dtype=np.intp) * width, times)


def _finder(column: Labelled, first: int) -> dict[Any, int]:
    return column.slots(first) if isinstance(column, Categorical) else _Slots(column, first)


class _Slots(dict[Any, int]):
    """The slots of labels that no schema lists, of which many are remembered."""

    def __init__(self, column: Hashed | Growing, first: int) -> None:
        super().__init__()
        self._column, self._first = column, first
        self._open = isinstance(column, Growing) and column.growing

    def __missing__(self, cell: Any) -> int:
        text = label(cell)
        if text is None or (self._open and text not in self._column.levels):  # type: ignore[union-attr]
            raise KeyError(cell)  # the general way counts it, or gives it a slot
        slot = self._first + self._column.slot(text)
        if len(self) < _KEPT:
            self[cell] = slot
        return slot
