"""Encodes decision sets and long tables, counts what was unusual, and follows values where no scale is known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from robandit.arrays import Floats
from robandit.features.cells import MISSING
from robandit.features.columns import Column, Growing, Numeric
from robandit.features.encoding import Counts, RecordPlan, fill, finish, standardise
from robandit.features.layout import Layout
from robandit.features.moments import Moments, checked
from robandit.features.tables import ColumnTable, read_table

Tables = tuple[ColumnTable, ColumnTable, ColumnTable]
"""Where the columns of the actions, of the context and of the source are read."""


class Encoder:
    """Turns cells into vectors by a layout, whose columns without a scale have moments."""

    def __init__(self, layout: Layout, moments: Mapping[str, Moments] | None = None) -> None:
        self.counts = Counts()
        open_ = [column.name for column in layout.columns if isinstance(column, Numeric) and column.scale is None]
        self._adopt(layout, {name: (moments or {}).get(name, Moments()) for name in open_})

    def _adopt(self, layout: Layout, moments: dict[str, Moments]) -> None:
        self.layout, self.moments = layout, moments
        roles = layout.action, layout.context, layout.source
        ends = np.cumsum([sum([len(column.names) for column in columns]) for columns in roles]).tolist()
        self._shared = slice(ends[0], ends[1]), slice(ends[1], ends[2])
        quick = [] if moments else [RecordPlan(layout, columns) if columns else None for columns in roles]
        self._plans = [(place, plan) for place, plan in enumerate(quick) if plan is not None]

    def resolved(self, columns: Sequence[Column], moments: Mapping[str, Moments]) -> tuple[Column, ...]:
        """Columns with the centres and scales that moments say."""
        return tuple(
            replace(column, centre=moments[column.name].mean, scale=moments[column.name].scale(column.limit))
            if isinstance(column, Numeric) and column.name in moments
            else column
            for column in columns
        )

    def encode(self, candidates: Any, context: Any, source: Any, id_: str | None) -> Floats:
        """The vectors (K, dim) of a decision set."""
        quick = self._quickly(candidates, context, source)
        return self.scale(self.read(candidates, context, source, id_)) if quick is None else quick

    def read(self, candidates: Any, context: Any, source: Any, id_: str | None) -> Floats:
        """What the cells of a decision set hold, before it is scaled: rows of work (K, slots)."""
        table = self._read_candidates(candidates, id_)
        around, whence = table, table
        if context is not None:
            around = self._read_context(context)
        if source is not None:
            whence = read_table([{column.name: source for column in self.layout.source}], row="source")
        tables = table, around, whence
        if context is None:
            self._check_context(table)
        layout, moments = self._grown(tables), self._followed(tables) if self.moments else {}
        work = self._filled(layout, tables, moments)
        if moments or layout is not self.layout:
            self._adopt(layout, moments)
        return work

    def rows(self, frame: Any, decision: str | None) -> Floats:
        """The vectors (n, dim) of a long table that holds all columns."""
        table = read_table(frame, [column.name for column in self.layout.columns])
        sets: Sequence[Any] = [slice(None)]
        if self.layout.centred:
            if decision is None:
                raise ValueError(
                    "centre='set' needs whole decision sets: pass decision= with the column that tells them apart"
                )
            sets = table.groups(decision)
        return self.scale(self._filled(self.layout, (table, table, table), self.moments), sets)

    def scale(self, work: Floats, sets: Sequence[Any] = (slice(None),)) -> Floats:
        """The vectors (n, dim) of what was read, which is overwritten, by the centres and scales that are known now."""
        standardise(self.layout, self.resolved(self.layout.columns, self.moments), work)
        return finish(self.layout, work, sets)

    def _quickly(self, candidates: Any, context: Any, source: Any) -> Floats | None:
        """The vectors, if the candidates are dicts that hold nothing unusual."""
        if type(candidates) is not list or not candidates or type(candidates[0]) is not dict or not self._plans:
            return None
        if context is not None and not isinstance(context, dict):
            return None
        work = np.zeros((len(candidates), len(self.layout.work_names)))
        try:
            for place, plan in self._plans:
                records = candidates
                if place == 1 and context is not None:
                    records = [context]
                elif place == 2 and source is not None:
                    records = [{column.name: source for column in self.layout.source}]
                if not plan.write(records, work if records is candidates else work[:1]):
                    return None
        except (KeyError, TypeError, ValueError, OverflowError):
            return None  # the general way says what is wrong
        if len(self._plans) > 1:
            self._share(work, context is not None, source is not None)
        return finish(self.layout, work)

    def _filled(self, layout: Layout, tables: Tables, moments: Mapping[str, Moments]) -> Floats:
        """What the cells hold, in the general way. The tables of context and source may have one row for all."""
        counts, work = Counts(), np.zeros((tables[0].length, len(layout.work_names)))
        roles = layout.action, layout.context, layout.source
        for columns, table in zip(roles, tables, strict=True):
            fill(layout, self.resolved(columns, moments), table, work[: table.length], counts)
        self._share(work, tables[1] is not tables[0], tables[2] is not tables[0])
        self.counts += counts
        return work

    def _share(self, work: Floats, context: bool, source: bool) -> None:
        """Copy what the first row has of context and source to all others, where one value is for all of them."""
        for shared, slots in zip((context, source), self._shared, strict=True):
            if shared:
                work[1:, slots] = work[0, slots]

    def _grown(self, tables: Tables) -> Layout:
        """The layout after the labels of a decision set took their slots."""
        roles: dict[str, Any] = {}
        for role, table in zip(("action", "context", "source"), tables, strict=True):
            old: tuple[Column, ...] = getattr(self.layout, role)
            new = tuple(_after(column, table) if isinstance(column, Growing) else column for column in old)
            if new != old:
                roles[role] = new
        return replace(self.layout, **roles) if roles else self.layout

    def _followed(self, tables: Tables) -> dict[str, Moments]:
        """The moments after the values of a decision set."""
        found = dict(self.moments)
        for columns, table in zip((self.layout.action, self.layout.context), tables, strict=False):
            for column in columns:
                if column.name in found and isinstance(column, Numeric):
                    values = table.numbers(column.name, optional=column.missing)
                    found[column.name] = found[column.name].add(checked(column.name, values))
        return found

    def _read_candidates(self, candidates: Any, id_: str | None) -> ColumnTable:
        names = [column.name for column in self.layout.action]
        if names == [id_] and _are_ids(candidates):
            candidates = {id_: list(candidates)}
        elif _are_ids(candidates) and len(candidates):
            raise ValueError(
                f"candidates must hold {', '.join(names)}, got the id {candidates[0]!r} alone; pass dicts or a frame"
            )
        table = read_table(candidates, names, "candidate")
        if not table.length:
            raise ValueError("there are no candidates to choose from")
        return table

    def _check_context(self, table: ColumnTable) -> None:
        """Without a context, candidates must hold it."""
        gone = [column.name for column in self.layout.context if column.name not in table.names]
        if gone and not any(getattr(column, "missing", False) for column in self.layout.context):
            shown = ", ".join(f"{name!r}: …" for name in gone)
            raise ValueError(f"the context is not there: pass context={{{shown}}}, the same for all candidates")

    def _read_context(self, context: Any) -> ColumnTable:
        names = [column.name for column in self.layout.context]
        if isinstance(context, list | tuple) and any(isinstance(one, Mapping) for one in context):
            raise ValueError(f"a context must be one dict for all candidates, got {len(context)}: {context!r:.60}")
        if isinstance(context, Mapping):
            return read_table([context], row="context")
        table = read_table(np.atleast_2d(context) if isinstance(context, list | tuple) else context, names, "context")
        if table.length != 1:
            raise ValueError(f"a context must be one row for all candidates, got {table.length}")
        return table


def _after(column: Growing, table: ColumnTable) -> Growing:
    """A column after the labels of a table took their slots."""
    if not column.growing:
        return column
    return column.grown(MISSING if text is None else text for text in table.labels(column.name)[0])


def _are_ids(candidates: Any) -> bool:
    """Whether candidates are bare names of actions."""
    if isinstance(candidates, np.ndarray):
        return candidates.ndim == 1 and not candidates.dtype.names
    if not isinstance(candidates, Sequence) or isinstance(candidates, str | bytes):
        return False
    return all(isinstance(one, str | int) for one in candidates)
