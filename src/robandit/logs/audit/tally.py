"""How much each source has, and what its rewards are on average."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from robandit.logs.audit.stored import StoredRounds
from robandit.monitor.sources import OTHERS


def tally(rounds: StoredRounds, most: int) -> Iterator[tuple[str, int, float]]:
    """The name, the rows and the mean reward of each of the first ``most`` sources, and of all others as one."""
    names = rounds.labels
    rows, total = np.zeros(len(names), np.int64), np.zeros(len(names))
    for piece in rounds.pieces():
        if piece.sources is not None:
            rows += np.bincount(piece.sources, minlength=len(names))
            total += np.bincount(piece.sources, piece.rewards, minlength=len(names))
    for name, number, gain in zip(names[:most], rows.tolist(), total.tolist(), strict=False):
        yield name, number, gain / number
    if names[most:]:
        yield OTHERS, int(rows[most:].sum()), float(total[most:].sum() / rows[most:].sum())
