"""The columns of a log as a `Features` file reads them: cells in, vectors with names out."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from robandit.arrays import Bools, Floats, Index
from robandit.errors import ConfigError
from robandit.features import Features
from robandit.features.cells import is_missing, label, truth
from robandit.features.columns import Boolean, Numeric
from robandit.logs.audit.cells import LARGEST, floats, plain, told
from robandit.logs.audit.tables import Chunk, Column

SUFFIX = ".json"
"""How the name of a file of features ends."""


class Rejecting(Protocol):
    """Counts bad rows of a chunk, each once."""

    chunk: Chunk

    def reject(self, wrong: Bools, tell: Any) -> None:
        """Reject the rows that are wrong."""
        ...


def load_features(path: Path | str) -> Features:
    """The features of a file, if single actions can be encoded by them, one after the other."""
    features = Features.load(path)
    if features.centred:
        raise ConfigError(f"{path} has centre='set', which needs whole decision sets; a log of rewards has one action")
    if features.learning:
        raise ConfigError(f"{path} has features that still learn their scales: freeze() them before they are saved")
    return features


def encode(features: Features, sieve: Rejecting) -> Floats:
    """The vectors (n, dim) of a chunk; a row that can't be encoded is rejected, and its vector is 0."""
    columns: dict[str, Any] = {}
    good = np.ones(len(sieve.chunk.rows), dtype=bool)
    for column in features.columns:
        cells = sieve.chunk.columns[column.name]
        if not isinstance(column, Numeric | Boolean):
            columns[column.name] = _labels(cells)
            continue
        values = _truths(cells) if isinstance(column, Boolean) else floats(cells)
        wrong = _wrong(values, cells, optional=column.missing)
        sieve.reject(wrong, lambda place, name=column.name, cells=cells: told("a feature", name, plain(cells[place])))
        columns[column.name], good = values, good & ~wrong
    found = np.zeros((len(good), features.dim))
    if good.any():
        found[good] = features.rows({name: np.asarray(cells)[good] for name, cells in columns.items()})
    return found


def _wrong(values: Floats, cells: Column, *, optional: bool) -> Bools:
    """Where there is no number, unless one may be missing and is."""
    wrong = ~(np.abs(values) <= LARGEST)
    for place in np.flatnonzero(wrong & np.isnan(values)).tolist() if optional else ():
        wrong[place] = not is_missing(plain(cells[place]))
    return wrong


def _labels(cells: Column) -> Any:
    """Labels as an array of objects, None for those that are missing."""
    known, codes = _distinct(cells)
    return np.array([*map(label, known), None], dtype=object)[codes]


def _truths(cells: Column) -> Floats:
    """1 and 0, NaN for what is neither."""
    known, codes = _distinct(cells)
    return np.array([*map(_truth, known), np.nan])[codes]


def _truth(cell: Any) -> float:
    try:
        return truth(cell)
    except ValueError:
        return float("nan")


def _distinct(cells: Column) -> tuple[list[Any], Index]:
    """The different cells, and the place of each row's among them: the one after the last for a list, or nothing."""
    if isinstance(cells, pa.Array):
        found = cells if pa.types.is_dictionary(cells.type) else cells.dictionary_encode()
        known = found.dictionary.to_pylist()
        return known, found.indices.fill_null(len(known)).to_numpy(zero_copy_only=False).astype(np.intp)
    places: dict[Any, int] = {}
    plain_cells = [None if isinstance(cell, list | dict) else cell for cell in cells]
    codes = np.fromiter((places.setdefault(cell, len(places)) for cell in plain_cells), np.intp, len(plain_cells))
    return list(places), codes
