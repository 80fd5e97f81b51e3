"""What `Bandit.choose` answers, and how the ids of candidates are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import ne
from typing import Any

from robandit.arrays import Floats
from robandit.features.cells import is_missing
from robandit.features.tables import listed, read_table

PLAIN = "id"
"""The column that names a candidate if nobody says which one does."""
_BLANK = {None, ""}


@dataclass(slots=True, eq=False, kw_only=True)
class Pick:
    """The candidate that was chosen, and what `learn` and `explain` need."""

    id: Any
    """The candidate's own id; its place in the set where candidates have none."""
    decision_id: str
    """What to hand to `learn` later, if not this object."""
    index: int
    """The place of the candidate in its set, from 0 on."""
    propensity: float
    """The probability with which it was chosen."""
    value: float
    """The most that the reward may be on average, by what is known so far, in units of reward."""
    source: str | int | None
    """Where the traffic comes from, if that was said."""
    ids: Sequence[Any] = field(repr=False)
    """The ids of all candidates."""
    rows: Floats = field(repr=False)
    """The candidates as vectors (K, d)."""
    read: Floats | None = field(repr=False)
    """What was read of the candidates, while the features still learn their scales."""


def read_ids(candidates: Any, column: str | None) -> Sequence[Any]:
    """The ids of candidates, all different: those of a column, the candidates themselves, or their places."""
    if type(candidates) is list and candidates and type(candidates[0]) is dict:
        ids = _of_dicts(candidates, column)  # the common case, made fast
    elif are_plain(candidates):
        ids = listed(candidates)
    else:
        table = read_table(candidates, row="candidate")
        named = column if column is not None else PLAIN if PLAIN in table.names else None
        ids = range(table.length) if named is None else listed(table.get(named))
    _check_ids(ids)
    return ids


def _of_dicts(records: Sequence[Mapping[str, Any]], column: str | None) -> Sequence[Any]:
    named = column if column is not None else PLAIN if PLAIN in records[0] else None
    try:
        return range(len(records)) if named is None else [record[named] for record in records]
    except (KeyError, TypeError):
        return listed(read_table(records, row="candidate").get(named or ""))  # which says what is wrong


def are_plain(candidates: Any) -> bool:
    """Whether candidates are bare ids."""
    if hasattr(candidates, "dtype") and hasattr(candidates, "ndim"):
        return candidates.ndim == 1 and not getattr(candidates.dtype, "names", None)
    if hasattr(candidates, "dtype") and hasattr(candidates, "to_list"):  # a column of polars
        return True
    if not isinstance(candidates, Sequence) or isinstance(candidates, str | bytes):
        return False
    return all(isinstance(one, str | int) for one in candidates)


def _check_ids(ids: Sequence[Any]) -> None:
    """Refuse ids of which one is missing, or there twice."""
    if not len(ids):
        raise ValueError("there are no candidates to choose from: pass at least one")
    if isinstance(ids, range):
        return
    try:
        different = set(ids)
        if len(different) == len(ids) and different.isdisjoint(_BLANK) and not any(map(ne, ids, ids)):
            return
    except TypeError:
        pass
    for place, id_ in enumerate(ids):
        if is_missing(id_):
            raise ValueError(f"candidate {place} has no id, got {id_!r}: give every candidate one")
        if getattr(id_, "__hash__", None) is None:
            raise ValueError(f"candidate {place}: an id must be text or a number, got {id_!r:.60}")
        if id_ in ids[:place]:
            first = list(ids).index(id_)
            raise ValueError(f"candidates {first} and {place} have the same id {id_!r:.60}: pass each candidate once")
