"""The rounds of a stream cut into blocks, and the ways of putting neighbouring blocks together."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from robandit.monitor.groups import Groups, Sums, rank_shares

_FINE = 2  # blocks of one length before the next, twice as long, at either end of the stream


class Partition(NamedTuple):
    """One way of cutting the rounds so far into blocks."""

    starts: Sequence[int]
    """The first round of each block, counted from 0."""
    names: Sequence[str]
    """The rounds of each block as a reader counts them, such as `17–32`."""
    groups: Groups
    """The sums over the rounds of each block."""


class Blocks:
    """Sums over blocks of rounds in B streams. Blocks are short at both ends of the stream and long in between."""

    def __init__(self, shortest: int, batch: int, dim: int) -> None:
        self.shortest = shortest
        self.spans: list[tuple[int, int]] = []  # first round, counted from 0, and length
        self.sums = Sums(batch, dim)

    def open(self, now: int) -> None:
        """Begin a new block where one is due, and merge old ones that are far from both ends of the stream."""
        if now % self.shortest:
            return
        length = self.shortest
        while now % (2 * length) == 0:  # when twins of this length can have come far enough from the end
            start = now - 2 * length * (1 + _FINE)
            if start < 2 * length * _FINE:
                break
            place = bisect_left(self.spans, (start, 0))
            self.spans[place : place + 2] = [(start, 2 * length)]
            self.sums.merge(place)
            length *= 2
        self.spans.append((now, self.shortest))
        self.sums.append()

    def partitions(self, rounds: int, share: float) -> Iterator[Partition]:
        """The first ``rounds`` rounds in blocks, from the shortest blocks to the longest of which there are two.

        Rounds that make a single block are one partition all the same. ``share`` is the part of δ that all blocks
        together may use.
        """
        shortest = self.shortest
        while rounds and shortest < max(rounds, self.shortest + 1):
            firsts, starts, lengths = self._at_least(shortest)
            long, index = np.array(lengths, dtype=float), np.array(starts) / lengths
            names = [
                f"{start + 1:,}–{min(start + length, rounds):,}" for start, length in zip(starts, lengths, strict=True)
            ]
            shares = share * rank_shares(np.log2(long / self.shortest)) * rank_shares(index)
            yield Partition(starts, names, self.sums.groups(firsts, long, shares))
            shortest *= 2

    def _at_least(self, shortest: int) -> tuple[list[int], list[int], list[int]]:
        """Blocks of at least this length: the place of the first span in each, its first round and its length."""
        firsts: list[int] = []
        starts: list[int] = []
        lengths: list[int] = []
        for place, (start, length) in enumerate(self.spans):
            length = max(length, shortest)
            if not starts or start >= starts[-1] + lengths[-1]:
                firsts.append(place)
                starts.append(start - start % length)
                lengths.append(length)
        return firsts, starts, lengths

    def fit(self, rounds: int) -> bool:
        """Whether the blocks follow one another without gaps and end where a stream of so many rounds does."""
        starts, ends = [start for start, _ in self.spans], [start + length for start, length in self.spans]
        return starts == [0, *ends][: len(starts)] and 0 <= max(ends, default=0) - rounds < self.shortest
