"""The sources of traffic that a monitor tells apart."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

from robandit.arrays import Index
from robandit.monitor.groups import Groups, Sums, rank_shares

OTHERS = "(all other sources)"
"""The common name of the sources beyond those that are told apart."""
_LENGTH = 1024.0  # rounds of a source, which nobody knows beforehand: it sets the usual size of λ and nothing else


class Sources:
    """Sums over the rounds of each source in B streams: the first ``most`` to appear, and all others as one."""

    def __init__(self, most: int, batch: int, dim: int) -> None:
        self.most = most
        self.labels: list[Hashable] = []
        self.sums = Sums(batch, dim)

    def read(self, source: Any, number: int) -> list[tuple[int, Index]]:
        """The place of each source named for these ``number`` rows, with the rows that are its."""
        found: dict[int, list[int]] = {}
        known = {label: place for place, label in enumerate(self.labels)}
        for row, label in enumerate(self._read_labels(source, number)):
            if label not in known and len(known) < self.most:
                known[label] = len(known)
            found.setdefault(known.get(label, self.most), []).append(row)
        self.labels = list(known)
        while self.sums.number <= max(found, default=-1):
            self.sums.append()
        return [(place, np.array(rows)) for place, rows in found.items()]

    def _read_labels(self, source: Any, number: int) -> list[Hashable]:
        if self.most == 0 or source is None:
            if source is not None:
                raise ValueError("make the monitor with sources=… (how many) to tell sources apart")
            if self.most:
                raise ValueError("this monitor tells sources apart: every round needs its source")
            return []
        one = isinstance(source, str) or not isinstance(source, (Sequence, np.ndarray))
        names = [source] * number if one else source.tolist() if isinstance(source, np.ndarray) else list(source)
        if len(names) != number:
            raise ValueError(f"source must be one label or {number}, got {len(names)}")
        labels = [name.item() if isinstance(name, np.generic) else name for name in names]
        for label in labels:
            if not isinstance(label, (str, int, float, bool)) or label != label:  # NaN equals nothing, not even itself
                raise ValueError(f"source must be text or a number, got {label!r}")
        return labels

    def names(self) -> list[str]:
        """The name of each group, as `groups` has them."""
        return [*map(str, self.labels), OTHERS][: self.sums.number]

    def groups(self, share: float) -> Groups:
        """The sources as groups, which together may use this ``share`` of δ."""
        number = self.sums.number
        shares = share * rank_shares(np.arange(float(number)))
        return self.sums.groups(list(range(number)), np.full(number, _LENGTH), shares)

    def fit(self) -> bool:
        """Whether there are sums for each label, and for others only if all labels are taken."""
        known = len(set(self.labels)) == len(self.labels) <= self.most
        return known and self.sums.number - len(self.labels) in (0, int(len(self.labels) == self.most))
