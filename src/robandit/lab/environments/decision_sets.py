"""Decision sets with the reward of every action, out of a long table: a row is an action on offer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from robandit.arrays import Bools, Floats, Index, Ints
from robandit.errors import install, nearest
from robandit.features import Features
from robandit.features.tables import ColumnTable, read_table
from robandit.streams import ENVIRONMENT, Draws, RoundStream

ALL, TUNE, PLAY = HALVES = ("all", "tune", "play")
"""Which people are replayed: everybody, or one of two halves."""
FeatureColumns: TypeAlias = "str | Sequence[str] | Features | None"
"""The features: columns by name or pattern, in a list or separated by commas; `Features`, or the file of some."""


class ReplayColumns(NamedTuple):
    """What the columns of a long table are called."""

    round: str = "round"
    """The same for all actions of a decision set."""
    reward: str = "reward"
    features: FeatureColumns = None
    """By default all columns that have no other role and look like features."""
    action: str | None = None
    """The name of an action."""
    order: str | None = None
    """By which decisions are sorted in time."""
    source: str | None = None
    """Where the visitor came from."""
    person: str | None = None
    """Who decided."""
    propensity: str | None = None
    """The probability with which an action of a log was taken."""


@dataclass(frozen=True, eq=False)
class DecisionSets:
    """n decisions among N actions in all; those of decision t are the rows from starts[t] to starts[t + 1]."""

    vectors: Floats
    """The features of the actions, (N, d), of norm 1 at most."""
    rewards: Floats
    """What each action brings, (N,); in a log NaN for actions that were not taken."""
    starts: Ints
    """The first row of each decision, and N, (n + 1,)."""
    names: Sequence[str]
    """What the features are called."""
    person: Index
    """The number of the person who decided, (n,); without people, of the decision."""
    source: Ints | None = None
    """The number of the source that each visitor came from, (n,), if that is known."""
    sources: Sequence[str] = ()
    """What the sources are called."""
    propensity: Floats | None = None
    """The probability of the action that was taken, (n,), in a log."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def sizes(self) -> Ints:
        """The number of actions of each decision, (n,)."""
        return np.diff(self.starts)

    @property
    def shares(self) -> Floats:
        """1/K of the set that each action belongs to, (N,): all decisions count alike, whatever their size."""
        return np.repeat(1.0 / self.sizes, self.sizes)

    def where(self, keep: Bools) -> DecisionSets:
        """The decisions to ``keep``, (n,)."""
        rows = np.repeat(keep, self.sizes)
        return replace(
            self,
            vectors=self.vectors[rows],
            rewards=self.rewards[rows],
            starts=np.concatenate([[0], np.cumsum(self.sizes[keep])]),
            person=self.person[keep],
            source=None if self.source is None else self.source[keep],
            propensity=None if self.propensity is None else self.propensity[keep],
        )

    def best(self, scores: Floats) -> Index:
        """The row of the action with the highest score, (N,), in each decision; the first of equals."""
        decision = np.repeat(np.arange(len(self)), self.sizes)
        order = np.lexsort((np.arange(len(scores)), -scores, decision))
        return order[self.starts[:-1]]

    def value(self, scores: Floats) -> float:
        """The mean reward of always playing the action with the highest score, (N,)."""
        return float(self.rewards[self.best(scores)].mean())


def read_sets(data: Any, columns: ReplayColumns, *, half: str = ALL, split: int = 0) -> DecisionSets:
    """The decisions of one half, or all. Features are fitted on the people who are not replayed, if there are any."""
    table = read_table(_read_file(data) if isinstance(data, str | Path) else data)
    rows, starts = _grouped(table, columns)
    decisions = len(starts) - 1
    person = np.arange(decisions) if columns.person is None else table.labels(columns.person)[1][rows[starts[:-1]]]
    tuned = halves(person, split)
    kept = np.ones(decisions, bool) if half == ALL else tuned == (half == TUNE)
    known = np.ones(decisions, bool) if half == ALL else ~kept
    sizes = np.diff(starts)
    called, codes = ((), rows) if columns.source is None else _labels(table, columns.source)
    vectors, names = _vectors(table, columns, rows, np.repeat(known, sizes))
    whole = DecisionSets(
        vectors=vectors,
        rewards=_rewards(table, columns)[rows],
        starts=starts,
        names=names,
        person=person,
        source=None if columns.source is None else codes[rows[starts[:-1]]],
        sources=called,
        propensity=_propensities(table, columns, rows, starts),
    )
    return whole.where(kept)


def _read_file(path: str | Path) -> Any:
    """The table in a Parquet or CSV file."""
    with open(path, "rb") as file:
        parquet = file.read(4) == b"PAR1"
    try:
        if parquet:
            from pyarrow.parquet import read_table as read
        else:
            from pyarrow.csv import read_csv as read
    except ImportError as error:
        raise ValueError(f"reading {path} needs {error.name} as well: {install('lab')}") from None
    try:
        return read(path)
    except (ValueError, OSError) as error:  # Arrow's own are of these kinds
        raise ValueError(f"{path} can't be read as {'Parquet' if parquet else 'CSV'}: {error}") from None


def _grouped(table: ColumnTable, columns: ReplayColumns) -> tuple[Index, Ints]:
    """The rows of the table set by set, in the order of time if that is known, and where each set starts."""
    for name in (columns.round, columns.reward, columns.order, columns.source, columns.person, columns.propensity):
        if name is not None and name not in table.names:
            raise ValueError(f"there is no column {name!r}{nearest(name, table.names)}")
    if not table.length:
        raise ValueError("the table has no rows")
    groups = table.groups(columns.round)
    if columns.order is not None:
        when = table.numbers(columns.order)
        if not np.isfinite(when).all():
            raise ValueError(f"row {int((~np.isfinite(when)).argmax())}: {columns.order} must be a number to sort by")
        groups.sort(key=lambda rows: (when[rows[0]], rows[0]))
    return np.concatenate(groups), np.concatenate([[0], np.cumsum([len(rows) for rows in groups])])


def halves(person: Index, seed: int) -> Bools:
    """Whether each decision is of the first of two halves, (n,). Nobody is in both."""
    luck = RoundStream(seed=seed, trials=[0], key=(ENVIRONMENT, 0), shape=(int(person.max()) + 1,)).at(0)[0]
    return luck[person] < np.median(luck[np.unique(person)])


def shuffles(sizes: Ints, draw: Draws, *, in_order: bool = False) -> Iterator[Index]:
    """The decision that each trial plays, (B,), round by round, without end; every lap has all of them once.

    In a round all trials have sets of the same size, because a batch is one array: the sequence of ``sizes``, (n,), is
    drawn for all of them, and each trial shuffles the decisions of each size.
    """
    number, trials = len(sizes), len(draw)
    sequence, luck = draw.shared(number), draw.uniform(number)
    for lap in count():
        if in_order:
            yield from np.broadcast_to(np.arange(number)[:, None], (number, trials))
            continue
        order = np.argsort(sequence.at(lap)[0])
        chosen = np.empty((number, trials), np.intp)
        for size in np.unique(sizes).tolist():
            members = np.flatnonzero(sizes == size)
            chosen[sizes[order] == size] = members[np.argsort(luck.at(lap)[:, members], axis=1)].T
        yield from chosen


def _labels(table: ColumnTable, name: str) -> tuple[Sequence[str], Ints]:
    """The different labels of a column in the order of the alphabet, and the number of each row's."""
    labels, codes = table.labels(name)
    texts = np.array(["" if text is None else text for text in labels])
    order = np.argsort(texts, kind="stable")
    return texts[order].tolist(), np.argsort(order)[codes].astype(np.int64)


def _rewards(table: ColumnTable, columns: ReplayColumns) -> Floats:
    rewards = table.numbers(columns.reward)
    if columns.propensity is None and not np.isfinite(rewards).all():
        raise ValueError(
            f"row {int((~np.isfinite(rewards)).argmax())}: every action needs its reward. In a log, where only the "
            "action taken has one, name the column of its probability: propensity"
        )
    return rewards


def _propensities(table: ColumnTable, columns: ReplayColumns, rows: Index, starts: Ints) -> Floats | None:
    """The probability of the action taken in each decision of a log, which is the one that has a reward."""
    if columns.propensity is None:
        return None
    taken = np.isfinite(_rewards(table, columns)[rows])
    counts = np.add.reduceat(taken.astype(int), starts[:-1])
    if (counts != 1).any():
        at = int((counts != 1).argmax())
        where = f"the decision of row {int(rows[starts[at]])}"
        raise ValueError(f"in a log one action of each set has a reward; {where} has {counts[at]}")
    found = table.numbers(columns.propensity)[rows][taken]
    if not ((found > 0.0) & (found <= 1.0 + 1e-9)).all():
        raise ValueError(f"{columns.propensity} must be above 0 and at most 1 where there is a reward, got {found}")
    return found


# Features.


def _vectors(table: ColumnTable, columns: ReplayColumns, rows: Index, known: Bools) -> tuple[Floats, Sequence[str]]:
    """The vectors (N, d) of these rows. Features that are not given are fitted on the ``known`` ones among them.

    Fitted ones are stretched until the longest known vector has norm 1, and longer ones are cut to that.
    """
    given = columns.features
    if isinstance(given, str) and given.endswith(".json"):
        given = Features.load(given)
    if isinstance(given, Features):
        return given.rows(_taken(table, table.names, rows), decision=columns.round), given.names
    names = _feature_names(table, columns, given)
    fitted = Features.fit(_taken(table, names, rows[known]), action=None if given is None else names)
    vectors = fitted.rows(_taken(table, names, rows))
    vectors /= np.linalg.norm(vectors[known], axis=1).max()
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1), 1.0)[:, None], fitted.names


def _feature_names(table: ColumnTable, columns: ReplayColumns, given: str | Sequence[str] | None) -> list[str]:
    """The columns that are features: those given, by name or pattern, or all that no other role has."""
    roles = columns._replace(features=None)
    free = [name for name in table.names if name not in roles]
    if given is None:
        return free
    wanted = [part.strip() for part in given.split(",")] if isinstance(given, str) else list(given)
    found = []
    for pattern in wanted:
        hits = [name for name in table.names if fnmatchcase(name, pattern)]
        if not hits:
            raise ValueError(f"there is no column {pattern!r}{nearest(pattern, free)}")
        found += hits
    return list(dict.fromkeys(found))


def _taken(table: ColumnTable, names: Sequence[str], rows: Index) -> dict[str, Any]:
    """Some columns of some rows."""
    found = {}
    for name in names:
        cells = table.get(name)
        found[name] = cells[rows] if isinstance(cells, np.ndarray) else [cells[row] for row in rows.tolist()]
    return found
