"""The sources of traffic that a policy may tell apart: reading their labels, and a slot for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Bools, Index, constant, count_to

Source: TypeAlias = str | int | None
"""The label of a source; None where it is not known."""
Sources: TypeAlias = Source | Sequence[Source] | NDArray[Any]
"""Sources as callers pass them: one label, or one for each trial."""
Labels: TypeAlias = NDArray[Any]
"""Checked labels, (B,): 64-bit integers, or objects where some are text or None."""

_ONE = (str, int, np.integer)
_SMALL = 64  # sources with smaller numbers, and not below 0, have a table of their slots


def read_source(source: Any, batch: int, single: bool) -> Labels | None:
    """Read the label of each trial, (B,), as a copy; None where no source is named at all."""
    if source is None:
        return None
    if isinstance(source, _ONE):
        return _filled(batch, _read_label(source))
    listed = source.ndim == 1 if isinstance(source, np.ndarray) else isinstance(source, Sequence)
    if single or not listed or len(source) != batch:
        wanted = "one label" if single else f"one label, or one for each of the {batch} trials"
        raise ValueError(f"source must be {wanted}, text or a whole number; got {source!r:.60}")
    return _read_labels(source)


def read_logged_sources(source: Any, shape: tuple[int, int], single: bool) -> list[Labels | None]:
    """Read the labels (B,) of n logged rounds: one for all, one for each round (n,), or in a batch (B, n)."""
    if source is None or isinstance(source, _ONE):
        return [read_source(source, shape[0], single)] * shape[1]
    given = np.shape(source)
    if given not in (shape[1:], shape) or (single and len(given) != 1):
        raise ValueError(f"source must be one for each of the {shape[1]} actions, got shape {given}")
    flat = list(source) if len(given) == 1 else [label for row in source for label in row]
    labels = np.broadcast_to(_read_labels(flat).reshape(given), shape)
    return list(labels.T)


def _read_labels(source: Sequence[Source] | NDArray[Any]) -> Labels:
    if isinstance(source, np.ndarray) and source.dtype == np.int64:
        return source.copy()  # the common case, made fast
    labels = [_read_label(label) for label in source]
    kinds = {type(label) for label in labels}
    if kinds == {int}:
        return np.array(labels, dtype=np.int64)
    if kinds >= {int, str}:
        number, text = (next(label for label in labels if type(label) is kind) for kind in (int, str))
        raise ValueError(f"source must be all text or all whole numbers, got {number!r} and {text!r}")
    found = np.empty(len(labels), dtype=object)
    found[:] = labels
    return found


def _read_label(label: Any) -> Source:
    if isinstance(label, str):
        return str(label)
    if isinstance(label, (int, np.integer)) and not isinstance(label, bool) and -(2**63) <= label < 2**63:
        return int(label)
    if label is None:
        return None
    raise ValueError(f"source must be text or a whole number of 64 bits, got {label!r:.60}")


def _filled(batch: int, label: Source) -> Labels:
    found: Labels = np.empty(batch, dtype=np.int64 if isinstance(label, int) else object)
    found.fill(label)  # np.full would make text an array first, which loses NULs at its end
    return found


class SourceSlots:
    """The slot of each source, trial by trial: 0, 1, 2, … in the order in which a trial learns from them.

    The first ``most`` sources of a trial have a slot each; all others share the slot ``most``. Rounds that name no
    source belong to one more source, None.

    >>> slots = SourceSlots(2, batch=1)
    >>> [slots.place(np.array([name], dtype=object)).item() for name in ("ads", "mail", "web", "ads")]
    [0, 1, 2, 0]
    >>> slots.labels
    [['ads', 'mail']]
    """

    def __init__(self, most: int, batch: int) -> None:
        self.most = most
        self._clear(batch)

    def _clear(self, batch: int) -> None:
        self._tables: list[dict[Source, int]] = [{} for _ in range(batch)]
        self._numbered: Index = np.full((batch, _SMALL), self.most, np.intp)  # the slots of small numbers
        self._unnamed: Index | None = None  # the slots of None, once all trials have one: they stay

    @property
    def labels(self) -> list[list[Source]]:
        """The sources of each trial that have a slot, in the order of the slots."""
        return [list(table) for table in self._tables]

    def find(self, source: Labels | None) -> Index:
        """The slot of each trial's source, (B,); ``most`` for one that has none of its own."""
        return self._known(source)

    def place(self, source: Labels | None, seen: Bools | None = None) -> Index:
        """The same, after new sources got a slot; not in trials whose ``seen`` is false."""
        if source is None and self._unnamed is not None:
            return self._unnamed
        slots = self._known(source)
        new = slots == self.most
        if new.any():
            labels = self._listed(source)
            for trial in np.flatnonzero(new if seen is None else new & seen).tolist():
                slots[trial] = self.place_one(labels[trial], trial)
        elif source is None:
            self._unnamed = constant(slots)
        return slots

    def place_one(self, label: Source, trial: int = 0) -> int:
        """The same for the source of one trial, which is seen."""
        table = self._tables[trial]
        slot = table.get(label)
        if slot is None:
            slot = self.most
            if len(table) < self.most:
                slot = len(table)
                self._give(trial, label, slot)
        return slot

    def _give(self, trial: int, label: Source, slot: int) -> None:
        self._tables[trial][label] = slot
        if isinstance(label, int) and 0 <= label < _SMALL:
            self._numbered[trial, label] = slot

    def _known(self, source: Labels | None) -> Index:
        """The slots of sources, (B,), ``most`` for those that have none."""
        if source is not None and source.dtype == np.int64 and source.min() >= 0 and source.max() < _SMALL:
            return self._numbered[count_to(len(source)), source]  # the common case of simulations, made fast
        pairs = zip(self._tables, self._listed(source), strict=True)
        return np.array([table.get(label, self.most) for table, label in pairs], np.intp)

    def restore(self, labels: Sequence[Sequence[Source]]) -> None:
        """Give the sources of a saved state their slots again."""
        rows = [list(map(_read_label, row)) for row in labels]
        if len(rows) != len(self._tables) or any(len(set(row)) != len(row) for row in rows):
            raise ValueError("the state's sources should be a list of different labels for each trial")
        if max(map(len, rows)) > self.most:
            raise ValueError(f"the state's sources should be at most {self.most} in each trial")
        self._clear(len(rows))
        for trial, row in enumerate(rows):
            for slot, label in enumerate(row):
                self._give(trial, label, slot)

    def _listed(self, source: Labels | None) -> list[Source]:
        return [None] * len(self._tables) if source is None else source.tolist()
