"""A log that is read to its end once; its usable rounds are kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

from robandit.features.scaling import Scaling
from robandit.logs.audit.cells import plain
from robandit.logs.audit.feedback import AuditedRounds, Reader, find_columns
from robandit.logs.audit.settings import LEARNED, AuditSettings
from robandit.logs.audit.stored import StoredRounds
from robandit.logs.audit.tables import CHUNK, open_log

_HOPELESS = 10_000  # bad rows in excess of good ones after which the rest is not read


class WholeLog:
    """A log that was read to its end: its usable rounds, and the rows and times at which looks are due."""

    def __init__(
        self,
        path: Path,
        settings: AuditSettings,
        rounds: StoredRounds,
        columns: dict[str, str | None],
        *,
        kind: str | None = None,
        chunk: int = CHUNK,
        progress: Callable[[int, int, str], None] = lambda done, size, unit: None,
    ) -> None:
        log = open_log(path, kind, chunk)
        reader = Reader(log, find_columns(log, **columns), settings.reward_range)
        self.path, self.kind, self.bad, self.settings = path, log.kind, reader.bad, settings
        self.rounds = rounds
        self._places: dict[int, tuple[int, str | None]] = {}
        self._schedule = settings.schedule()
        self._due = next(self._schedule)
        for feedback, done in reader.read():
            self._keep(feedback)
            if self.bad.count > self.rounds.rounds + _HOPELESS:
                raise ValueError(f"{self._hopeless('first ')}, so the rest was not read")
            progress(done, log.size, log.unit)
        pa.default_memory_pool().release_unused()
        self._check_bad()
        self.columns, self.learned = reader.columns, max(1, min(LEARNED, self.rounds.rounds // 4))

    def _keep(self, feedback: AuditedRounds) -> None:
        first, number = self.rounds.rounds, len(feedback.rows)
        self.rounds.append(feedback.features, feedback.rewards, feedback.sigma, feedback.sources)
        while self._due + LEARNED <= first + number:
            self._place(self._due + LEARNED, feedback, self._due + LEARNED - first - 1)
            self._due = next(self._schedule)
        for row in range(min(number, 4 * LEARNED - first)):  # a small log, of which fewer rounds are learned from
            self._place(first + row + 1, feedback, row)
        if number:
            self._place(first + number, feedback, number - 1)

    def _place(self, round_: int, feedback: AuditedRounds, row: int) -> None:
        time = None if feedback.times is None else str(plain(feedback.times[row]))
        self._places[round_] = int(feedback.rows[row]), time

    def place(self, round_: int) -> tuple[int, str | None]:
        """The row and the time of a round that a look is due after, not counting the rounds that are learned from."""
        return self._places[round_ + self.learned]

    def features(self) -> Scaling:
        """Columns scaled as the first rounds say."""
        first = next(self.rounds.pieces(size=self.learned))
        return Scaling.learn(first.features, intercept=self.settings.intercept)

    def _check_bad(self) -> None:
        """Refuse a log without rows, or with more bad rows than good ones."""
        good = self.rounds.rounds
        if not good + self.bad.count:
            raise ValueError(f"{self.path} holds no rows")
        if not good or self.bad.count > good:
            raise ValueError(self._hopeless())

    def _hopeless(self, first: str = "") -> str:
        what, rows = "; ".join(self.bad.lines()[:3]), self.rounds.rounds + self.bad.count
        return f"{self.bad.count:,} of the {first}{rows:,} rows of {self.path} can't be used: {what}"
