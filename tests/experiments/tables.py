"""Results made by hand, for the tests of what is read off them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from robandit.lab.results import SCHEMA


def result(rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """A result of these rows, each with what it does not say filled in."""
    quiet: dict[str, Any] = {"lies": 0, "gap": 0.1, "smallest_gap": 0.1, "proved": None, "level_use": []}
    return pa.Table.from_pylist([{**quiet, "updates": row["round"], **row} for row in rows], schema=SCHEMA)
