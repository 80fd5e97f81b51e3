"""Runs robandit, and writes how long single steps of its event loop take, in CPU time of its thread.

`python benchmarks/loop_times.py FILE serve …`. While one step runs nobody else is served; other programs on the machine
do not change its CPU time. Each SIGUSR1 writes the longest step since the last one to FILE, in milliseconds, with the
number of steps and their CPU in all.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import Any

from robandit.cli import main


class Steps:
    """The longest step so far, all of them, and how many there were."""

    def __init__(self, file: Path) -> None:
        self._file, self._before = file, asyncio.Handle._run
        self.longest = self.total = 0.0
        self.number = 0

    def run(self, handle: Any) -> None:
        """Run one step of the loop, as asyncio does, and measure it."""
        begin = time.thread_time()
        try:
            self._before(handle)
        finally:
            took = time.thread_time() - begin
            self.longest, self.total, self.number = max(self.longest, took), self.total + took, self.number + 1

    def write(self, *_: Any) -> None:
        """Write the figures, and begin again."""
        beside = self._file.with_suffix(".new")
        beside.write_text(f"{1e3 * self.longest} {self.number} {1e3 * self.total}\n", encoding="ascii")
        beside.replace(self._file)
        self.longest = self.total = self.number = 0


if __name__ == "__main__":
    sys.modules["uvloop"] = None  # type: ignore[assignment]  # its steps can't be watched
    steps = Steps(Path(sys.argv[1]))
    setattr(asyncio.Handle, "_run", lambda handle: steps.run(handle))  # noqa: B010 - mypy minds the assignment
    signal.signal(signal.SIGUSR1, steps.write)
    sys.exit(main(sys.argv[2:]))
