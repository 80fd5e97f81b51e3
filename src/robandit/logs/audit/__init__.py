"""An audit: a whole log of feedback through a `CorruptionMonitor`, in its order and chunk by chunk.

What comes out depends on the log and the settings alone, bit for bit: not on the format of the file or the chunks.
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
from robandit.logs.audit.feedback import Columns, Feedback, Reader, find_columns
from robandit.logs.audit.tables import CHUNK, BadRows, open_log
from robandit.monitor.certificate import Certificate, Group
from robandit.monitor.monitor import CorruptionMonitor
from robandit.monitor.sources import OTHERS

SOURCES = 100
"""Sources that are told apart if nothing else is said."""
_PIECE = 1 << 14  # rows that the monitor is fed at once: the last bits of its sums depend on it
_FIRST, _MANY = 32, 10**6  # the round of the first look, and the length of a log that has as many as asked for


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a log is held against."""

    noise: float
    parameter_bound: float = 1.0
    delta: float = 0.05
    reward_range: tuple[float, float] | None = None
    sources: int = 0
    looks: int = 60

    def __post_init__(self) -> None:
        try:
            self.monitor(1)
            integer("looks", self.looks, 2)
        except ValueError as error:
            raise ConfigError(str(error)) from None

    def monitor(self, dim: int) -> CorruptionMonitor:
        """A fresh one."""
        return CorruptionMonitor(dim=dim, **{name: value for name, value in asdict(self).items() if name != "looks"})

    def schedule(self) -> Iterator[int]:
        """The rounds after which to look, log-spaced, without end. They are fixed before the log's length is known."""
        at = 0
        for place in count():
            at = max(at + 1, round(_FIRST * (_MANY / _FIRST) ** (place / (self.looks - 1))))
            yield at


class Look(NamedTuple):
    """What was proved when."""

    round: int
    proved: float
    row: int
    """The round's number in the log, where bad rows count too."""
    time: str | None


class Source(NamedTuple):
    """What is known of a source."""

    name: str
    rows: int
    mean: float
    """Of its rewards."""
    placed: float | None
    """The corruption that is attributed to it; none if it is not the sources that carry the proof."""
    voice: float | None


@dataclass(frozen=True, kw_only=True)
class Audit:
    """All that an audit found."""

    path: Path
    kind: str
    columns: Columns
    settings: Settings
    dim: int
    rows: int
    """Of the log, bad ones too."""
    certificate: Certificate
    looks: list[Look]
    sources: list[Source]
    """The most corrupted first, as the cheapest explanation has it."""
    bad: BadRows

    @property
    def alarm(self) -> Look | None:
        """The first look that proved anything."""
        return next((look for look in self.looks if look.proved > 0.0), None)


def audit(
    path: Path,
    settings: Settings,
    *,
    kind: str | None = None,
    chunk: int = CHUNK,
    progress: Callable[[int, int, str], None] = lambda done, size, unit: None,
    **columns: str | None,
) -> Audit:
    """Hold a log against what honest feedback can look like. ``columns`` are those of `find_columns`."""
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
    if not good + bad.count:
        raise ValueError(f"{path} holds no rows")
    if not good or bad.count > good:
        what = "; ".join(bad.lines()[:3])
        raise ValueError(f"{bad.count:,} of the {good + bad.count:,} rows of {path} can't be used: {what}")


class _Run:
    """Feeds a monitor in pieces whose ends depend on nothing but the round, and looks when that is due."""

    def __init__(self, settings: Settings) -> None:
        self._settings, self._schedule = settings, settings.schedule()
        self._due = next(self._schedule)
        self._monitor: CorruptionMonitor | None = None
        self._waiting: list[Feedback] = []
        self.rounds = 0
        self.looks: list[Look] = []
        self.tally = Tally(settings.sources)

    def take(self, feedback: Feedback) -> None:
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
        """The last look, at all of it."""
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
            for name, parts in zip(Feedback._fields, zip(*self._waiting, strict=True), strict=True)
        )
        self._waiting = []
        assert features is not None and rewards is not None
        if self._monitor is None:
            self._monitor = self._settings.monitor(features.shape[1])
        self._monitor.observe_log(features, rewards, sigma, sources)
        if sources is not None:
            self.tally.add(sources, rewards)

    def _look(self, last: Feedback) -> None:
        assert self._monitor is not None
        self._note(float(self._monitor.lower_bounds()[0]), last)

    def _note(self, proved: float, last: Feedback) -> None:
        time = None if last.times is None else str(plain(last.times[-1]))
        self.looks.append(Look(self.rounds, proved, int(last.rows[-1]), time))


class Tally:
    """How many rewards came from each of the first so many sources and from all others, and their sum."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._places: dict[str, int] = {}
        self._rows, self._total = np.zeros(most + 1, np.int64), np.zeros(most + 1)

    def add(self, labels: Any, rewards: Any) -> None:
        for label in dict.fromkeys(labels.tolist()):
            if label not in self._places and len(self._places) < self._most:
                self._places[label] = len(self._places)
        places = np.array([self._places.get(label, self._most) for label in labels.tolist()])
        self._rows += np.bincount(places, minlength=self._most + 1)
        self._total += np.bincount(places, rewards, minlength=self._most + 1)

    def items(self) -> Iterator[tuple[str, int, float]]:
        """Name, rows and mean reward of each that has any."""
        for name, place in [*self._places.items(), (OTHERS, self._most)]:
            if self._rows[place]:
                yield name, int(self._rows[place]), float(self._total[place] / self._rows[place])


def _sources(tally: Tally, blamed: tuple[Group, ...]) -> list[Source]:
    placed = {group.name: group for group in blamed}
    nothing = Group("", 0.0, 0.0)
    found = [
        Source(name, rows, mean, *(placed.get(name, nothing)[1:] if blamed else (None, None)))
        for name, rows, mean in tally.items()
    ]
    return sorted(found, key=lambda source: (-(source.placed or 0.0), -(source.voice or 0.0), -source.rows))
