"""How far from linear rewards are: a model of the first half of the rounds, tried on the second."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.features.scaling import Scaling
from robandit.logs.audit.stored import PIECE, StoredRounds
from robandit.monitor.cones import solve

LEAST = 1000
"""The least number of rounds from which anything is said."""
_TENTHS = 10
_CELL = 50  # the least number of rounds in a cell
_SURE = 2.0  # standard errors that are added to a mean
_SAMPLE = 4  # pieces from which the tenths of predictions are found


class Linearity(NamedTuple):
    """How well a linear model predicts rounds that it was not fitted to."""

    off: float
    """The most by which rewards differ from predictions on average in any cell, and two standard errors."""
    cell: str
    """The cell in which they do, in words."""
    rounds: int
    """The number of rounds on which predictions were tried."""


def measure(
    rounds: StoredRounds, features: Scaling, clip: Callable[[Floats], Floats], *, everywhere: bool
) -> Linearity | None:
    """How far the linear model is off. None if there are too few rounds.

    A cell is a tenth of the predictions. In a log that is known to be clean, look ``everywhere``: tenths of the time
    and sources are cells, too. In any other log these would hide a liar by excusing what he does.
    """
    if rounds.rounds < LEAST:
        return None
    half = rounds.rounds // 2 // PIECE * PIECE or rounds.rounds // 2
    parameter = _fit(rounds, features, clip, half)
    edges = _edges(rounds, features, parameter)
    cells = _Cells(rounds.rounds - half)
    for at, predicted, rewards, sources in _tried(rounds, features, clip, half, parameter):
        rest = rewards - predicted
        cells.add("tenth {} of the predictions", np.searchsorted(edges, predicted), rest)
        if everywhere:
            cells.add("tenth {} of the time", (at * _TENTHS) // (rounds.rounds - half), rest)
            if sources is not None:
                cells.add("source number {}", sources, rest)
    off, cell = cells.most()
    return Linearity(off, cell, rounds.rounds - half)


def _fit(rounds: StoredRounds, features: Scaling, clip: Callable[[Floats], Floats], half: int) -> Floats:
    gram, moment, left = np.zeros((features.dim, features.dim)), np.zeros(features.dim), half
    for piece in rounds.pieces():
        part = piece.cut(0, left)
        actions = features(part.features)
        gram += actions.T @ actions
        moment += clip(part.rewards) @ actions
        left -= len(actions)
        if left <= 0:
            break
    return solve(gram[None], moment[None])[0]


def _tried(
    rounds: StoredRounds, features: Scaling, clip: Callable[[Floats], Floats], half: int, parameter: Floats
) -> Iterator[tuple[Ints, Floats, Floats, Ints | None]]:
    """The number, the prediction, the reward and the source of rounds that the model was not fitted to."""
    done = 0
    for piece in rounds.pieces(half):
        number = len(piece.rewards)
        yield np.arange(done, done + number), features(piece.features) @ parameter, clip(piece.rewards), piece.sources
        done += number


def _edges(rounds: StoredRounds, features: Scaling, parameter: Floats) -> Floats:
    """Where the tenths of the predictions end, by the first rounds."""
    sample = [features(piece.features) @ parameter for piece in islice(rounds.pieces(), _SAMPLE)]
    return np.quantile(np.concatenate(sample), np.arange(1, _TENTHS) / _TENTHS)


class _Cells:
    """The number, the sum and the sum of squares of what predictions leave over, for each cell."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._sums: dict[str, Floats] = {}

    def add(self, kind: str, cells: Ints, rest: Floats) -> None:
        """Count these rounds in their cells."""
        size = int(cells.max(initial=0)) + 1
        new = np.stack([np.bincount(cells, weights, size) for weights in (np.ones(len(rest)), rest, rest**2)])
        old = self._sums.get(kind, np.zeros((3, 0)))
        wide = np.zeros((3, max(size, old.shape[1])))
        wide[:, : old.shape[1]] += old
        wide[:, :size] += new
        self._sums[kind] = wide

    def most(self) -> tuple[float, str]:
        """How far the model is off in the worst cell, and that cell's name."""
        found = [(0.0, "")]
        for kind, (number, total, squares) in self._sums.items():
            for place in np.flatnonzero(number >= _CELL).tolist():
                count, mean = number[place], total[place] / number[place]
                spread = max(0.0, squares[place] / count - mean**2)
                found.append((abs(mean) + _SURE * (spread / count) ** 0.5, kind.format(place + 1)))
        return max(found)
