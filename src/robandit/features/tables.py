"""Columns by name, out of whatever people have: records, frames of pandas or polars, Arrow's tables, arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import Floats, Index
from robandit.errors import nearest
from robandit.features.cells import label, number

_SPARSE = (
    "a sparse matrix is not read here, since a policy keeps d × d numbers: pass .toarray() if its columns are few, "
    "or hash what made it so wide"
)


class ColumnTable(NamedTuple):
    """Rows as columns that can be asked for by name."""

    names: list[str]
    length: int
    cells: Callable[[str], Any]
    """Gives the cells of a column that exists, a list or an array."""
    row: str = "row"
    """What an error calls a row."""

    def get(self, name: str, *, optional: bool = False) -> Any:
        """The cells of a column. If it is ``optional``, records that don't have it have None."""
        if name not in self.names:
            if optional and self.row != "row":
                return [None] * self.length
            where = "the table has" if self.row == "row" else f"a {self.row} has"
            raise ValueError(f"{where} no column {name!r}{nearest(name, self.names)}")
        found = self.cells(name)
        if not optional and isinstance(found, list) and any(cell is _ABSENT for cell in found):
            raise ValueError(f"{self.row} {next(i for i, cell in enumerate(found) if cell is _ABSENT)} has no {name!r}")
        return found

    def numbers(self, name: str, read: Callable[[Any], float] = number, *, optional: bool = False) -> Floats:
        """A column as numbers, NaN where a cell is missing."""
        found = self.get(name, optional=optional)
        if isinstance(found, np.ndarray) and found.dtype.kind in "fiub" and not isinstance(found, np.ma.MaskedArray):
            array = found.astype(float)
            if read is number and not np.isinf(array).any():
                return array
        return self.each(name, listed(found), read)

    def each(self, name: str, cells: list[Any], read: Callable[[Any], float]) -> Floats:
        """What is read from each cell. An error names the cell."""
        try:
            return np.fromiter(map(read, cells), float, len(cells))
        except (ValueError, TypeError):
            place, why = _first_fault(cells, read)
            raise ValueError(f"{self.row} {place}: {name} {why}") from None

    def labels(self, name: str, *, optional: bool = False) -> tuple[list[str | None], Index]:
        """The different labels of a column, None for missing ones, and the place of each row's label among them."""
        cells = listed(self.get(name, optional=optional))
        try:
            places: dict[Any, int] = {}
            codes = np.fromiter((places.setdefault(cell, len(places)) for cell in cells), np.intp, len(cells))
            return [label(None if cell is _ABSENT else cell) for cell in places], codes
        except TypeError:
            place, _ = _first_fault(cells, hash)
            raise ValueError(f"{self.row} {place}: {name} must be a category, got {cells[place]!r:.80}") from None

    def groups(self, name: str) -> list[Index]:
        """The rows that have the same label, for each label; every row must have one."""
        labels, codes = self.labels(name)
        if None in labels:
            place = int((codes == labels.index(None)).argmax())
            raise ValueError(f"{self.row} {place}: {name} is missing, and says which rows belong together")
        order = np.argsort(codes, kind="stable")
        return np.split(order, np.cumsum(np.bincount(codes))[:-1])


class _Absent:
    """A cell that a record does not have."""

    def __repr__(self) -> str:
        return "nothing"

    def __ne__(self, _: object) -> bool:  # it is missing, as NaN is
        return True

    __hash__ = object.__hash__


_ABSENT = _Absent()


def read_table(data: Any, names: Sequence[str] = (), row: str = "row") -> ColumnTable:
    """Columns out of records, a dict of columns, a frame, or an array (n, d) whose columns have these names."""
    if isinstance(data, ColumnTable):
        return data
    if hasattr(data, "tocsr"):
        raise ValueError(_SPARSE)
    if isinstance(data, Mapping):
        return _from_columns(data, row)
    if hasattr(data, "collect") and not hasattr(data, "__len__"):
        raise ValueError("a lazy frame holds no rows yet: pass what its collect() gives")
    if hasattr(data, "column_names"):  # Arrow
        names = list(data.column_names)
        return ColumnTable(names, data.num_rows, lambda name: _array(data.column(_once(name, names))), row)
    if hasattr(data, "columns") and hasattr(data, "__getitem__"):  # pandas, polars and their like
        return _from_frame(data, row)
    if isinstance(data, np.ndarray) and data.dtype.names:
        return ColumnTable(list(data.dtype.names), len(data), data.__getitem__, row)
    if isinstance(data, Sequence) and not isinstance(data, str | bytes) and all(isinstance(r, Mapping) for r in data):
        return _from_records(data, row)
    return _from_array(data, names, row)


def _from_frame(frame: Any, row: str) -> ColumnTable:
    names = [str(name) for name in frame.columns]
    known = dict(zip(names, frame.columns, strict=True))
    return ColumnTable(list(known), len(frame), lambda name: _array(frame[known[_once(name, names)]]), row)


def _once(name: str, names: Sequence[str]) -> str:
    """A column's name, if there is one such column only."""
    if names.count(name) > 1:
        raise ValueError(f"the table has {names.count(name)} columns {name!r}: rename or drop all but one")
    return name


def _from_records(records: Sequence[Mapping[str, Any]], row: str) -> ColumnTable:
    names = list(dict.fromkeys(name for record in records for name in record))
    return ColumnTable(names, len(records), lambda name: [record.get(name, _ABSENT) for record in records], row)


def _from_columns(columns: Mapping[str, Any], row: str) -> ColumnTable:
    lengths = {name: len(cells) for name, cells in columns.items() if hasattr(cells, "__len__")}
    if any(isinstance(columns[name], str) for name in lengths) or len(lengths) < len(columns):
        raise ValueError(f"{row}s must be a list, even of one: write [{columns!r:.80}]")
    if len(set(lengths.values())) > 1:
        raise ValueError(f"a dict must hold columns of one length, got {lengths or columns!r:.120}")
    length = next(iter(lengths.values()), 0)
    return ColumnTable(list(columns), length, lambda name: _array(columns[name]), row)


def _from_array(data: Any, names: Sequence[str], row: str) -> ColumnTable:
    array = np.asarray(data)
    if array.ndim != 2 or array.dtype.kind not in "fiub":
        raise ValueError(f"{row}s must be dicts, a frame, a dict of columns or an array (n, d), got {_shown(data)}")
    named = list(names) or [f"x{place}" for place in range(array.shape[1])]
    if array.shape[1] != len(named):
        raise ValueError(f"an array must have the columns {', '.join(named)}, got {array.shape[1]}")
    return ColumnTable(named, len(array), lambda name: array[:, named.index(name)], row)


def _array(cells: Any) -> Any:
    """The cells of a column as a list or an array."""
    if isinstance(cells, list | np.ndarray):
        return cells
    if hasattr(
        getattr(cells, "type", None), "index_type"
    ):  # Arrow's dictionaries, whose to_numpy puts labels into gaps
        cells = cells.cast(cells.type.value_type)
    return cells.to_numpy() if hasattr(cells, "to_numpy") else list(cells)


def listed(cells: Any) -> list[Any]:
    """Cells as plain values of Python."""
    if isinstance(cells, np.ndarray) and cells.dtype.kind in "mM" and np.datetime_data(cells.dtype)[0] == "ns":
        cells = cells.astype(f"{cells.dtype.kind}8[us]")  # as a datetime holds; nanoseconds would become bare integers
    return cells.tolist() if isinstance(cells, np.ndarray) else list(cells)


def _first_fault(cells: list[Any], read: Callable[[Any], Any]) -> tuple[int, str]:
    for place, cell in enumerate(cells):
        try:
            read(cell)
        except (ValueError, TypeError) as error:
            return place, str(error)
    raise AssertionError("no cell is at fault")


def _shown(data: Any) -> str:
    return f"{type(data).__name__} {data!r:.60}"
