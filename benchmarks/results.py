"""Measures how fast a large grid is saved, and in how much memory: a run whose rounds are made up, not played.

By default it has the size of 15 policies under 60 attacks with 1 000 trials each: 75 million rows, which need 7 GB of
disk until they are measured.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from unittest.mock import patch

import numpy as np

from robandit.arrays import Ints
from robandit.lab import worker
from robandit.lab.engine import Engine, carry_out
from robandit.lab.plan import Run, Task
from robandit.lab.protocol import Trace, checkpoints
from robandit.lab.summary import summary


def grid(policies: int, attacks: int, trials: int) -> Run:
    """A run of 10 000 rounds with 84 checkpoints. A third of its policies have levels."""
    kinds = ("multi-level-weighted-oful", "oful", "greedy")
    return Run.read(
        {
            "rounds": 10_000,
            "trials": trials,
            "checkpoints": 100,
            "environments": [{"name": "paper", "dim": 2, "actions": 2}],
            "attacks": [{"name": "flip", "rounds": k} for k in range(attacks)],
            "policies": [{"name": kinds[i % 3], "label": f"{kinds[i % 3]} {i}"} for i in range(policies)],
        }
    )


def made_up(task: Task) -> Trace:
    """A trace of the right shape, of random numbers that grow as a real one's do."""
    at, size = checkpoints(task.rounds, task.checkpoints), task.size // task.rounds
    rng = np.random.default_rng([len(task.policy.label), task.scenarios[0][2][0]])
    steps = np.diff(at, prepend=0)[:, None]  # (checkpoints, 1)
    regret, reward, c_sup, c_play = (np.cumsum(steps * rng.random((len(at), size)), axis=0) for _ in range(4))
    gap, counts = rng.random((len(at), size)), np.broadcast_to(at[:, None], (len(at), size))
    levels = 14 if task.policy.kind == "multi-level-weighted-oful" else 0
    use = rng.integers(0, at[:, None, None] + 1, (len(at), size, levels))
    info: dict[str, Ints] = {"empty": counts // 9, "cascade": counts // 7} if levels else {}
    unknown = np.full_like(gap, np.nan)
    nowhere = np.full_like(counts, -1)  # no sources
    return Trace(
        at, regret, reward, c_sup, c_play, counts, gap, gap, counts, unknown, nowhere, use[:, :, :0], use, info
    )


def peak() -> float:
    """The most memory that this process has had so far, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("policies", 15), ("attacks", 60), ("trials", 1000)):
        parser.add_argument(f"--{name}", type=int, default=default, help="(default %(default)s)")
    parser.add_argument("--folder", help="where to save, for as long as it runs (default: the system's)")
    options = parser.parse_args()
    run = grid(options.policies, options.attacks, options.trials)
    unplayed = patch.object(worker, "run_together", side_effect=lambda tasks, _: [made_up(task) for task in tasks])
    with tempfile.TemporaryDirectory(dir=options.folder) as folder, unplayed as making:
        before, start = peak(), time.perf_counter()
        result = carry_out(run, Path(folder) / "grid.parquet", engine=Engine(workers=1))
        saved, middle = peak(), time.perf_counter()
        summary(result.last_round())
        read, end = peak(), time.perf_counter()
        size = result.path.stat().st_size
    assert making.called, "rounds were played instead of made up"
    rows = run.size // run.rounds * len(checkpoints(run.rounds, run.checkpoints))
    print(f"{rows:,} rows, {size / 1e9:.2f} GB; {before:.0f} MiB before the run")
    print(f"made up and saved    {middle - start:7.1f} s   {rows / (middle - start):12,.0f} rows/s   {saved:6.0f} MiB")
    print(f"last round summed up {end - middle:7.1f} s   {rows / (end - middle):12,.0f} rows/s   {read:6.0f} MiB")


if __name__ == "__main__":
    main()
