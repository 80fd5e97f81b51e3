"""Where the features of each column stand in a vector, what they are called, and how large they can be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from robandit.arrays import Floats, Index
from robandit.errors import nearest
from robandit.features.columns import Boolean, Column, Labelled, Numeric

CONSTANT = "(constant)"
"""The name of the feature that is always 1."""
_ROUNDING = 1.0 - 1e-12  # so that rounding lifts no norm above the bound


@dataclass(frozen=True)
class Layout:
    """The columns, and the slots that their features have.

    A row of work holds, in this order, the blocks of all columns, the constant, and the crosses. The vector is what is
    not hidden of it, times ``factor``.
    """

    action: tuple[Column, ...]
    context: tuple[Column, ...]
    source: tuple[Column, ...]
    """The column of sources, which serves in crosses alone."""
    crosses: tuple[tuple[str, str], ...]
    intercept: bool
    centred: bool
    """Whether the mean of the decision set is taken from its vectors."""
    action_bound: float
    first: dict[str, int] = field(init=False, default_factory=dict)
    """The slot at which each column's block begins."""

    def __post_init__(self) -> None:
        twice = [name for name, count in Counter(column.name for column in self.columns).items() if count > 1]
        if twice:
            raise ValueError(f"the column {twice[0]!r} is there twice; give every column one role")
        place = 0
        for column in self.columns:
            self.first[column.name] = place
            place += len(column.names)
        known = {column.name for column in self.columns}
        for pair in self.crosses:
            for name in pair:
                if name not in known:
                    raise ValueError(f"the cross {pair!r} names no column {name!r}{nearest(name, known)}")
        if not self.names:
            raise ValueError("there are no features: name at least one column, or an id")

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """All columns in the order of their blocks: in each role, the numbers first."""
        ordered = [sorted(role, key=_is_label) for role in (self.action, self.context, self.source)]
        return tuple(column for role in ordered for column in role)

    @cached_property
    def constant(self) -> int:
        """The slot of the constant, which is there if there is an intercept; the crosses begin here or after it."""
        return sum([len(column.names) for column in self.columns])

    @cached_property
    def factors(self) -> tuple[Index, Index]:
        """The slots of both factors of each product."""
        left, right = [np.empty(0, np.intp)], [np.empty(0, np.intp)]
        for one, two in self.crosses:
            a, b = self._block(one), self._block(two)
            left.append(np.repeat(a, len(b)))
            right.append(np.tile(b, len(a)))
        return np.concatenate(left), np.concatenate(right)

    def _block(self, name: str) -> Index:
        first = self.first[name]
        return np.arange(first, first + len(self.column(name).names))

    def column(self, name: str) -> Column:
        """The column of this name."""
        return next(column for column in self.columns if column.name == name)

    @cached_property
    def work_names(self) -> tuple[str, ...]:
        """What every slot of a row of work is called."""
        mains = [name for column in self.columns for name in column.names] + [CONSTANT] * self.intercept
        left, right = self.factors
        return *mains, *(f"{mains[a]} × {mains[b]}" for a, b in zip(left.tolist(), right.tolist(), strict=True))

    @cached_property
    def shown(self) -> Index | None:
        """The slots of a row of work that are features; None if all are."""
        hidden = [*self.source, *(self.context if self.centred else ())]  # context is the same for a whole set
        slots = np.setdiff1d(
            np.arange(len(self.work_names)), [slot for column in hidden for slot in self._block(column.name)]
        )
        return None if len(slots) == len(self.work_names) else slots

    @cached_property
    def names(self) -> tuple[str, ...]:
        """What the features are called."""
        if self.shown is None:
            return self.work_names
        return tuple(self.work_names[slot] for slot in self.shown.tolist())

    @cached_property
    def factor(self) -> float:
        """What vectors are multiplied with, so that none is longer than the bound."""
        reach = {column.name: column.reach for column in self.columns}
        hidden = {column.name for column in self.source} | {c.name for c in self.context if self.centred}
        squares = [reach[column.name] ** 2 for column in self.columns if column.name not in hidden]
        squares += [1.0] * self.intercept + [(reach[one] * reach[two]) ** 2 for one, two in self.crosses]
        # Two vectors of a set differ by at most twice the reach, and so does one from their mean.
        return self.action_bound * _ROUNDING / float(np.sqrt(sum(squares))) / (2.0 if self.centred else 1.0)


def numeric(column: Column) -> Numeric | None:
    """A column of numbers or truths as numbers; None if it holds labels."""
    return column.as_numbers if isinstance(column, Boolean) else column if isinstance(column, Numeric) else None


def _is_label(column: Column) -> bool:
    return isinstance(column, Labelled)


def read_crosses(crosses: Sequence[Sequence[str]]) -> tuple[tuple[str, str], ...]:
    """Read pairs of columns."""
    found = []
    for pair in crosses:
        if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(name, str) for name in pair):
            raise ValueError(f"a cross must be two names of columns, got {pair!r}")
        found.append((pair[0], pair[1]))
    return tuple(found)


def units(layout: Layout, columns: Sequence[Column]) -> Floats:
    """What one unit of a column changes in its slot of work: 1 / scale for numbers, 1 for slots of labels."""
    found = np.ones(len(layout.work_names))
    for column in columns:
        known = numeric(column)
        if known is not None and known.scale is not None:
            found[layout.first[column.name]] = 1.0 / known.scale
    left, right = layout.factors
    found[len(found) - len(left) :] = found[left] * found[right]
    return found
