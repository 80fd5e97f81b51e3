"""What a worker of an engine does. It starts fast, since nothing is imported here that only the engine needs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

from robandit.lab.plan import Task, run_together
from robandit.lab.protocol import Trace


def work(tasks: Mapping[int, Task], meter: Path | None, orphans_stop: bool = False) -> list[tuple[int, Trace]]:
    """Run a group of tasks. With ``orphans_stop`` the process ends when the one that started it is killed."""
    counts = np.memmap(meter, dtype=np.int64, mode="r+") if meter is not None and meter.exists() else None
    numbers, parent = list(tasks), os.getppid()
    lanes = np.array([task.size // task.rounds for task in tasks.values()])

    def count(rounds: int) -> None:
        if orphans_stop and os.getppid() != parent:
            os._exit(1)
        if counts is not None:
            counts[numbers] += rounds * lanes

    if counts is not None:
        counts[numbers] = 0  # they may have been begun before, by a worker that was lost
    with threadpool_limits(1):
        return list(zip(numbers, run_together(list(tasks.values()), count), strict=True))
