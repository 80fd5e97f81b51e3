"""Feedback read from a log: it finds the columns, turns cells into numbers, and keeps the rows that can be used."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import Bools, Floats, Ints
from robandit.errors import ConfigError, nearest
from robandit.features import Features
from robandit.logs.audit.cells import (
    LARGEST,
    as_lists,
    flat,
    floats,
    keep,
    list_lengths,
    moments,
    plain,
    show,
    texts,
    told,
)
from robandit.logs.audit.named import SUFFIX, encode, load_features
from robandit.logs.audit.tables import BadRows, Chunk, Column, LogTable

_LISTED = "features", "action"  # columns that may hold all features as a list
_NUMBERED = r"x\d+", r"f\d+", r"feature_.*"  # columns that may hold one feature each
_SINGLE = 1e-6  # relative rounding of rewards that were once kept in single precision, and then some
_NAMES = 30  # the most columns that an error message names


@dataclass(frozen=True, kw_only=True)
class Columns:
    """The roles of a log's columns."""

    features: tuple[str, ...]
    """One column for each feature, or a single one that holds all of them as a list."""
    listed: bool
    """Whether a single column holds all features as a list."""
    asked: str | None = None
    """The option that named the features, if it was given."""
    described: Features | None = None
    """The features that say how columns become vectors, if a file was given."""
    reward: str = "reward"
    """The column of rewards."""
    sigma: str | None = None
    """The column of noise scales, if any."""
    source: str | None = None
    """The column of sources, if any."""
    time: str | None = None
    """The column of times, if any."""

    def names(self) -> list[str]:
        """The names of all columns, each once."""
        others = (self.reward, self.sigma, self.source, self.time)
        return list(dict.fromkeys([*self.features, *(name for name in others if name is not None)]))

    def feature_names(self, dim: int) -> list[str]:
        """What each of so many features is called."""
        if self.described is not None:
            return list(self.described.names)
        return [f"{self.features[0]}[{i}]" for i in range(dim)] if self.listed else list(self.features)


def find_columns(log: LogTable, features: str | None = None, **roles: str | None) -> Columns:
    """The columns that options name; without ``features``, those whose names look like features."""
    given = {"reward": "reward"} | {role: name for role, name in roles.items() if name is not None}
    for role, name in given.items():
        _require(log, name, role)
    if features is not None and features.endswith(SUFFIX) and features not in log.names:
        return _described(log, features, given)
    free = [name for name in log.names if name not in given.values()]
    found = _guess(log, free) if features is None else _named(log, features, free)
    listed = len(found) == 1 and log.holds_lists(found[0])
    for name in [*found, *(name for role, name in given.items() if role in ("reward", "sigma"))]:
        if log.holds_lists(name) and not (listed and name in found):
            raise ConfigError(f"the column {name!r} of {log.path} holds lists, where a number is needed")
        log.check_numbers(name)
    return Columns(features=tuple(found), listed=listed, asked=features, described=None, **given)


def _described(log: LogTable, path: str, given: dict[str, str]) -> Columns:
    """The columns that a file of features needs; or, in a log of the service, the vectors that it made by that file."""
    features = load_features(Path(path))
    for role in ("reward", "sigma"):
        if role in given:
            log.check_numbers(given[role])
    names = [column.name for column in features.columns]
    if given["reward"] in names:
        raise ConfigError(f"the column {given['reward']!r} of {log.path} can't be a feature and the reward")
    made = next((name for name in _LISTED if name in log.names and log.holds_lists(name)), None)
    if made is not None and not set(names) <= set(log.names):
        return Columns(features=(made,), listed=True, asked=path, described=features, **given)
    for name in names:
        _require(log, name, f"features {path}")
    return Columns(features=tuple(names), listed=False, asked=path, described=features, **given)


def _require(log: LogTable, name: str, role: str) -> None:
    if name not in log.names:
        hint = nearest(name, log.names)
        if "did you mean" in hint:
            hint += f" Its columns are {_listing(log)}"
        raise ConfigError(f"{log.path} has no column {name!r} (--{role}){hint}")


def _listing(log: LogTable) -> str:
    return ", ".join(log.names[:_NAMES]) + (", …" if len(log.names) > _NAMES else "")


def _named(log: LogTable, features: str, free: Sequence[str]) -> list[str]:
    """Columns by names and patterns, separated by commas. A pattern stands for columns that have no other role."""
    found: list[str] = []
    for word in filter(None, (part.strip() for part in features.split(","))):
        matched = [word] if word in log.names else [name for name in free if fnmatchcase(name, word)]
        if not matched:
            _require(log, word, "features")
        taken = set(matched).difference(free)
        if taken:
            raise ConfigError(f"the column {taken.pop()!r} of {log.path} can't be a feature and something else")
        found += matched
    if not found:
        raise ConfigError(f"--features must name at least one column, got {features!r}")
    return list(dict.fromkeys(found))


def _guess(log: LogTable, free: Sequence[str]) -> list[str]:
    for name in _LISTED:
        if name in free and log.holds_lists(name):
            return [name]
    for pattern in _NUMBERED:
        found = [name for name in free if re.fullmatch(pattern, name)]
        if found:
            return found
    raise ConfigError(
        f"{log.path} has no column of lists named features or action, and none named x0, f0 or feature_…: say which "
        f"columns are the --features. There are {_listing(log)}"
    )


class AuditedRounds(NamedTuple):
    """Rounds that can be used, in the order of the log."""

    rows: Ints
    """The numbers of their rows in the log, from 1."""
    features: Floats
    """The features, (n, d)."""
    rewards: Floats
    """The rewards, (n,)."""
    sigma: Floats | None
    """The scales of the noise, (n,), if the log has them."""
    sources: Any
    """The labels of the sources as an array of objects, if the log has them."""
    times: Column
    """The times as they stand in the log, if it has them."""

    def cut(self, start: int, stop: int) -> AuditedRounds:
        """The rounds from ``start`` to before ``stop``."""
        return AuditedRounds._make(None if part is None else part[start:stop] for part in self)


class Reader:
    """Gives the good rows of a log and counts the bad ones."""

    def __init__(self, log: LogTable, columns: Columns, reward_range: tuple[float, float] | None = None) -> None:
        self.log, self.columns, self.bad, self._range = log, columns, BadRows(), reward_range
        self.dim = None if columns.listed else len(columns.features)
        if columns.described is not None:
            self.dim = columns.described.dim
        self._last: tuple[float, int, str] | None = None  # time, row and how the log writes that time

    def read(self) -> Iterator[tuple[AuditedRounds, int]]:
        """Give the rounds chunk by chunk, each with how much of the log has been read."""
        for chunk in self.log.read(self.columns.names(), self.bad):
            yield self._take(chunk), chunk.done

    def _take(self, chunk: Chunk) -> AuditedRounds:
        sieve, columns = _Sieve(chunk, self.bad), self.columns
        features = self._features(sieve)
        rewards = sieve.numbers("the reward", columns.reward)
        if self._range is not None:
            sieve.beyond(rewards, columns.reward, *self._range)
        sigma = None if columns.sigma is None else sieve.scales(columns.sigma)
        sources = None if columns.source is None else sieve.labels(columns.source)
        times = None if columns.time is None else sieve.times(columns.time)
        good, clock = sieve.good, None
        if columns.time is not None and times is not None:
            clock = keep(chunk.columns[columns.time], good)
            self._check_order(times[good], chunk.rows[good], clock)
        return AuditedRounds(
            rows=chunk.rows[good],
            features=features[good],
            rewards=rewards[good],
            sigma=None if sigma is None else sigma[good],
            sources=None if sources is None else sources[good],
            times=clock,
        )

    def _features(self, sieve: _Sieve) -> Floats:
        if self.columns.listed:
            return self._lists(sieve)
        if self.columns.described is not None:
            return encode(self.columns.described, sieve)
        return np.column_stack([sieve.numbers("a feature", name) for name in self.columns.features])

    def _lists(self, sieve: _Sieve) -> Floats:
        """A column of lists as a matrix, as wide as the first list that is not empty."""
        (name,) = self.columns.features
        cells = as_lists(sieve.chunk.columns[name])
        lengths = list_lengths(cells)
        if self.dim is None and (lengths > 0).any():
            self.dim = int(lengths[lengths > 0][0])
        sieve.reject(lengths < 0, lambda place: told("the list of features", name, sieve.cell(name, place), "a list"))
        right = lengths == self.dim
        sieve.reject(~right, lambda place: _wrong_length(int(lengths[place]), self.dim))
        features = np.full((len(right), self.dim or 0), nan)
        features[right] = floats(flat(cells, right)).reshape(int(right.sum()), self.dim or 0)
        wrong = ~(np.abs(features) <= LARGEST)

        def tell(place: int) -> tuple[str, str]:
            column = int(wrong[place].argmax())
            return told("a feature", f"{name}[{column}]", plain(cells[place])[column])

        sieve.reject(wrong.any(axis=1), tell)
        return features

    def _check_order(self, times: Floats, rows: Ints, clock: Column) -> None:
        """Refuse times that fall, from chunk to chunk too."""
        if not len(times):
            return
        before = np.concatenate([[-np.inf if self._last is None else self._last[0]], times[:-1]])
        falls = np.flatnonzero(times < before)
        if falls.size:
            place = int(falls[0])
            _, row, when = self._last if place == 0 and self._last else (0, rows[place - 1], show(clock[place - 1]))
            raise ValueError(
                f"row {rows[place]:,} of {self.log.path} is out of order: its {self.columns.time} {show(clock[place])} "
                f"is before {when} of row {row:,}; sort the log by the time of the decisions"
            )
        self._last = float(times[-1]), int(rows[-1]), show(clock[-1])


class _Sieve:
    """Finds the good rows of a chunk. A bad row is counted once, for its first fault."""

    def __init__(self, chunk: Chunk, bad: BadRows) -> None:
        self.chunk, self._bad = chunk, bad
        self.good: Bools = np.ones(len(chunk.rows), bool)

    def cell(self, name: str, place: int) -> Any:
        """A cell as a plain value."""
        return plain(self.chunk.columns[name][place])

    def reject(self, wrong: Bools, tell: Callable[[int], tuple[str, str]]) -> None:
        """Reject the rows that are wrong; ``tell`` gives the reason and the content of the cell."""
        for place in np.flatnonzero(wrong & self.good).tolist():
            reason, value = tell(place)
            self._bad.add(reason, int(self.chunk.rows[place]), value)
        self.good &= ~wrong

    def numbers(self, role: str, name: str) -> Floats:
        """A column of numbers."""
        values = floats(self.chunk.columns[name])
        self.reject(~(np.abs(values) <= LARGEST), lambda place: told(role, name, self.cell(name, place)))
        return values

    def beyond(self, rewards: Floats, name: str, low: float, high: float) -> None:
        """Reject rewards beyond the declared range, which can't be what was meant by it."""
        slack = _SINGLE * np.abs(rewards)
        reason = f"the reward is beyond the declared range from {low:g} to {high:g}"
        self.reject(
            (rewards < low - slack) | (rewards > high + slack),
            lambda place: (reason, f"{name} = {show(self.cell(name, place))}"),
        )

    def scales(self, name: str) -> Floats:
        """A column of noise scales, which must be above 0."""
        values = self.numbers("sigma", name)
        small = ~(values >= 1.0 / LARGEST)
        self.reject(small, lambda place: ("sigma is not > 0", f"{name} = {show(self.cell(name, place))}"))
        return values

    def labels(self, name: str) -> Any:
        """A column of sources."""
        labels = texts(self.chunk.columns[name])
        missing = np.array([label is None for label in labels.tolist()], dtype=bool)

        def tell(place: int) -> tuple[str, str]:
            broken = isinstance(self.cell(name, place), str) and "\n" in self.cell(name, place).strip()
            why = "holds a line break (is a quote not closed?)" if broken else "is missing"
            return f"the source {why}", f"{name} = {show(self.cell(name, place))}"

        self.reject(missing, tell)
        return labels

    def times(self, name: str) -> Floats:
        """A column of times as numbers."""
        values = moments(self.chunk.columns[name])
        self.reject(~np.isfinite(values), lambda place: told("the time", name, self.cell(name, place), "a time"))
        return values


def _wrong_length(length: int, dim: int | None) -> tuple[str, str]:
    return "the list of features has the wrong length", f"{length} instead of {dim or 'at least 1'}"
