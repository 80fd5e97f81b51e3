"""A slow encoder, written from the description of `Features` alone: one record, one column, one name at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from math import isnan, sqrt
from typing import Any

from robandit.features import Boolean, Categorical, Features, Hashed, Numeric


def nothing(cell: Any) -> bool:
    return cell is None or cell == "" or (isinstance(cell, float) and isnan(cell))


def text(cell: Any) -> str:
    if isinstance(cell, str):
        return cell.strip()
    return str(int(cell)) if isinstance(cell, int | float) and cell == int(cell) else str(cell)


def block(column: Any, cell: Any) -> dict[str, float]:
    """The features of a column, by name; those that are left out are 0."""
    name = column.name
    if isinstance(column, Numeric | Boolean):
        if nothing(cell):
            assert column.missing
            return {name: 0.0, f"{name} missing": 1.0}
        if isinstance(column, Boolean):
            return {name: 1.0 if cell in (True, "true", "yes") else -1.0}
        assert column.centre is not None and column.scale is not None
        z = (float(cell) - column.centre) / column.scale
        return {name: max(-column.limit, min(column.limit, z))}
    word = "(missing)" if nothing(cell) else text(cell)
    if isinstance(column, Categorical):
        return {f"{name}={word if word in column.levels else '(unseen)'}": 1.0}
    assert isinstance(column, Hashed)
    digest = blake2b(f"{name}\0{word}".encode(), digest_size=8).digest()
    return {f"{name}#{int.from_bytes(digest, 'little') % column.buckets}": 1.0}


def reach(column: Any) -> float:
    return float(column.limit) if isinstance(column, Numeric) and column.limit > 1 else 1.0


def vector(
    record: Mapping[str, Any], features: Features, crosses: Sequence[tuple[str, str]], hidden: Sequence[str] = ()
) -> dict[str, float]:
    """The vector of a record, by name, before a set is centred."""
    columns = {column.name: column for column in features.columns}
    blocks = {name: block(column, record.get(name)) for name, column in columns.items()}
    found = {name: value for column in blocks if column not in hidden for name, value in blocks[column].items()}
    squares = [reach(column) ** 2 for name, column in columns.items() if name not in hidden]
    if "(constant)" in features.names:
        found["(constant)"] = 1.0
        squares.append(1.0)
    for one, two in crosses:
        found |= {f"{a} × {b}": u * v for a, u in blocks[one].items() for b, v in blocks[two].items()}
        squares.append((reach(columns[one]) * reach(columns[two])) ** 2)
    factor = features.action_bound / sqrt(sum(squares))
    return {name: value * factor for name, value in found.items()}


def matrix(
    records: Sequence[Mapping[str, Any]],
    features: Features,
    crosses: Sequence[tuple[str, str]] = (),
    hidden: Sequence[str] = (),
) -> list[list[float]]:
    """The vectors of records as rows."""
    rows = [vector(record, features, crosses, hidden) for record in records]
    assert all(set(row) <= set(features.names) for row in rows)
    return [[row.get(name, 0.0) for name in features.names] for row in rows]
