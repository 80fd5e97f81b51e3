"""An audit feeds a whole log to a `CorruptionMonitor`, in its order and chunk by chunk.

The result depends on the log and the settings alone, bit for bit: not on the format of the file or the chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robandit.errors import ConfigError
from robandit.inputs import integer
from robandit.logs.audit.cells import plain
from robandit.logs.audit.feedback import AuditedRounds, Columns, Reader, find_columns
from robandit.logs.audit.tables import CHUNK, BadRows, open_log
from robandit.monitor.certificate import Certificate, Group
from robandit.monitor.monitor import CorruptionMonitor
from robandit.monitor.sources import OTHERS

SOURCES = 100
"""The number of sources that are told apart by default."""
_PIECE = 1 << 14  # rows that the monitor is fed at once: the last bits of its sums depend on it
_FIRST, _MANY = 32, 10**6  # the round of the first look, and that of the last one asked for


@dataclass(frozen=True, kw_only=True)
class AuditSettings:
    """What is assumed of honest feedback, and how often an audit looks. `CorruptionMonitor` says more."""

    noise: float
    """The sub-Gaussian scale of the noise."""
    parameter_bound: float | None = None
    """An upper bound on ‖μ*‖, if one is known for sure."""
    delta: float = 0.05
    """The probability of a false alarm, over all looks."""
    reward_range: tuple[float, float] | None = None
    """The lowest and the highest honest reward, if known."""
    sources: int = 0
    """The number of sources to tell apart."""
    looks: int = 60
    """The number of looks at a log of a million rows; they are log-spaced."""

    def __post_init__(self) -> None:
        try:
            self.monitor(1)
            integer("looks", self.looks, 2)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def monitor(self, dim: int) -> CorruptionMonitor:
        """A fresh monitor with these settings."""
        return CorruptionMonitor(dim=dim, **{name: value for name, value in asdict(self).items() if name != "looks"})

    def schedule(self) -> Iterator[int]:
        """The rounds after which to look, log-spaced and without end: they must not depend on the log's length."""
        at = 0
        for place in count():
            at = max(at + 1, round(_FIRST * (_MANY / _FIRST) ** (place / (self.looks - 1))))
            yield at


class Look(NamedTuple):
    """What was proved after some round."""

    round: int
    """The number of rounds observed by then."""
    proved: float
    """The lower bound on the corruption."""
    row: int
    """The number of the last round's row in the log, where bad rows count too."""
    time: str | None
    """The time of that row, if the log has times."""


class Source(NamedTuple):
    """A source of traffic and what was found of it."""

    name: str
    rows: int
    """The number of its rows that could be used."""
    mean: float
    """The mean of its rewards."""
    placed: float | None
    """The corruption that the cheapest explanation places on it; None if the sources do not carry the proof."""


@dataclass(frozen=True, kw_only=True)
class Audit:
    """All that an audit found."""

    path: Path
    """The log."""
    kind: str
    """The format of the log."""
    columns: Columns
    """The columns that were read."""
    settings: AuditSettings
    """The settings of the audit."""
    dim: int
    """The number of features."""
    rows: int
    """The number of rows in the log, bad ones included."""
    certificate: Certificate
    """What is proved after the last row."""
    looks: list[Look]
    """What was proved on the way."""
    sources: list[Source]
    """All sources; those to which the cheapest explanation attributes most come first."""
    bad: BadRows
    """The rows that could not be used."""

    @property
    def alarm(self) -> Look | None:
        """The first look that proved anything."""
        return next((look for look in self.looks if look.proved > 0.0), None)


def audit(
    path: Path,
    settings: AuditSettings,
    *,
    kind: str | None = None,
    chunk: int = CHUNK,
    progress: Callable[[int, int, str], None] = lambda done, size, unit: None,
    **columns: str | None,
) -> Audit:
    """Test whether a log can be honest feedback. ``columns`` are those of `find_columns`."""
    log = open_log(path, kind, chunk)
    reader = Reader(log, find_columns(log, **columns))
    run = _Run(settings)
    for feedback, done in reader.read():
        run.take(feedback)
        progress(done, log.size, log.unit)
    _check_bad(path, reader.bad, run.rounds)
    certificate = run.finish()
    return Audit(
        path=path,
        kind=log.kind,
        columns=reader.columns,
        settings=settings,
        dim=reader.dim or 0,
        rows=run.rounds + reader.bad.count,
        certificate=certificate,
        looks=run.looks,
        sources=_sources(run.tally, certificate.sources),
        bad=reader.bad,
    )


def _check_bad(path: Path, bad: BadRows, good: int) -> None:
    """Refuse a log without rows, or with more bad rows than good ones."""
    if not good + bad.count:
        raise ValueError(f"{path} holds no rows")
    if not good or bad.count > good:
        what = "; ".join(bad.lines()[:3])
        raise ValueError(f"{bad.count:,} of the {good + bad.count:,} rows of {path} can't be used: {what}")


class _Run:
    """Feeds a monitor in pieces that depend on nothing but the round, and looks when a look is due."""

    def __init__(self, settings: AuditSettings) -> None:
        self._settings, self._schedule = settings, settings.schedule()
        self._due = next(self._schedule)
        self._monitor: CorruptionMonitor | None = None
        self._waiting: list[AuditedRounds] = []
        self.rounds = 0
        self.looks: list[Look] = []
        self.tally = SourceTally(settings.sources)

    def take(self, feedback: AuditedRounds) -> None:
        """Feed these rounds, and look on the way."""
        done, number = 0, len(feedback.rows)
        while done < number:
            end = min(self._due, self.rounds - self.rounds % _PIECE + _PIECE)
            part = feedback.cut(done, done + min(number - done, end - self.rounds))
            self._waiting.append(part)
            done += len(part.rows)
            self.rounds += len(part.rows)
            if self.rounds == end:
                self._feed()
            if self.rounds == self._due:
                self._look(part)
                self._due = next(self._schedule)
        if number:
            self._last = feedback.cut(number - 1, number)

    def finish(self) -> Certificate:
        """Look a last time, at the whole log."""
        self._feed()
        assert self._monitor is not None
        found: Certificate = self._monitor.certificate()
        if not self.looks or self.looks[-1].round < self.rounds:
            self._note(found.lower_bound, self._last)
        return found

    def _feed(self) -> None:
        if not self._waiting:
            return
        _, features, rewards, sigma, sources, _ = (
            None if parts[0] is None or name == "times" else np.concatenate(parts)
            for name, parts in zip(AuditedRounds._fields, zip(*self._waiting, strict=True), strict=True)
        )
        self._waiting = []
        assert features is not None and rewards is not None
        if self._monitor is None:
            self._monitor = self._settings.monitor(features.shape[1])
        self._monitor.observe_log(features, rewards, sigma, sources)
        if sources is not None:
            self.tally.add(sources, rewards)

    def _look(self, last: AuditedRounds) -> None:
        assert self._monitor is not None
        self._note(float(self._monitor.lower_bounds()[0]), last)

    def _note(self, proved: float, last: AuditedRounds) -> None:
        time = None if last.times is None else str(plain(last.times[-1]))
        self.looks.append(Look(self.rounds, proved, int(last.rows[-1]), time))


class SourceTally:
    """The number and the sum of rewards from each of the first ``most`` sources, and from all others."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: dict[str, int] = {}
        self._rows, self._total = np.zeros(most + 1, np.int64), np.zeros(most + 1)

    def add(self, labels: Any, rewards: Any) -> None:
        """Count these rewards for the sources that their labels name."""
        for label in dict.fromkeys(labels.tolist()):
            if label not in self._places and len(self._places) < self._most:
                self._places[label] = len(self._places)
        places = np.array([self._places.get(label, self._most) for label in labels.tolist()])
        self._rows += np.bincount(places, minlength=self._most + 1)
        self._total += np.bincount(places, rewards, minlength=self._most + 1)

    def items(self) -> Iterator[tuple[str, int, float]]:
        """The name, the rows and the mean reward of each source that has any rows."""
        for name, place in [*self._places.items(), (OTHERS, self._most)]:
            if self._rows[place]:
                yield name, int(self._rows[place]), float(self._total[place] / self._rows[place])


def _sources(tally: SourceTally, blamed: tuple[Group, ...]) -> list[Source]:
    placed = {group.name: group.placed for group in blamed}
    found = [Source(name, rows, mean, placed.get(name, 0.0) if blamed else None) for name, rows, mean in tally.items()]
    return sorted(found, key=lambda source: (-(source.placed or 0.0), -source.rows))
