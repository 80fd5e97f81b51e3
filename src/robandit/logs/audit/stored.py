"""The usable rounds of a log, kept in a temporary file in plain binary: what was parsed once is read again quickly."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import Floats, Ints

PIECE = 1 << 14
"""The number of rounds that are read back at once. The last bits of sums depend on it."""


class Piece(NamedTuple):
    """Some rounds that follow one another."""

    features: Floats
    """The columns of features, (n, d)."""
    rewards: Floats
    """The rewards, (n,)."""
    sigma: Floats | None
    """The scales of the noise, (n,), if the log has them."""
    sources: Ints | None
    """The places of their sources in `StoredRounds.labels`, (n,), if the log has them."""

    def cut(self, start: int, stop: int) -> Piece:
        """The rounds from ``start`` to before ``stop``."""
        return Piece._make(None if part is None else part[start:stop] for part in self)


class StoredRounds:
    """Rounds on disk, in their order."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (`__exit__` closes it, and it vanishes)
        self._labels: dict[str, int] = {}
        self._sigma = self._sources = False
        self.dim, self.rounds = 0, 0

    def __enter__(self) -> StoredRounds:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @property
    def labels(self) -> list[str]:
        """The names of all sources, in the order in which they appear."""
        return list(self._labels)

    def append(self, features: Floats, rewards: Floats, sigma: Floats | None, sources: Any) -> None:
        """Keep some more rounds."""
        if not len(rewards):
            return
        self.dim, self._sigma, self._sources = features.shape[1], sigma is not None, sources is not None
        parts = [features, rewards[:, None]]
        parts += [] if sigma is None else [sigma[:, None]]
        parts += [] if sources is None else [self._places(sources)[:, None]]
        np.concatenate(parts, axis=1).tofile(self._file)
        self.rounds += len(rewards)

    def _places(self, sources: Any) -> Floats:
        labels = sources.tolist()
        for label in dict.fromkeys(labels):
            self._labels.setdefault(label, len(self._labels))
        return np.array([self._labels[label] for label in labels], dtype=float)

    def pieces(self, first: int = 0, size: int = PIECE) -> Iterator[Piece]:
        """All rounds from ``first`` on, counted from 0."""
        width = self.dim + 1 + self._sigma + self._sources
        self._file.flush()
        for start in range(first, self.rounds, size):
            number = min(size, self.rounds - start)
            self._file.seek(8 * width * start)
            rows = np.fromfile(self._file, count=width * number).reshape(number, width)
            yield Piece(
                features=rows[:, : self.dim],
                rewards=rows[:, self.dim],
                sigma=rows[:, self.dim + 1] if self._sigma else None,
                sources=rows[:, -1].astype(np.int64) if self._sources else None,
            )
