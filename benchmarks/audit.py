"""Times `robandit audit` on a log of a million rows, and measures its peak memory, beside simply reading the file.

The log is made in a temporary folder or in --folder. It has 20 features and 20 partners, and partner-13 flips the sign
of 30 % of its rewards. Each number is for a process of its own, including its start.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DIM, PARTNERS, FRAUD, NOISE = 20, 20, 0.3, 0.1
ROW_GROUP = 100_000
READ = """
import sys, pyarrow.parquet as pq
for batch in pq.ParquetFile(sys.argv[1], pre_buffer=False, buffer_size=1 << 20).iter_batches(1 << 15):
    for column in batch.columns:
        column.to_numpy(zero_copy_only=False)
"""


def make_log(path: Path, rows: int, seed: int = 1) -> None:
    """Write rows of features, reward, partner and time, in the order of time, a row group at a time."""
    rng = np.random.default_rng(seed)
    parameter = rng.standard_normal(DIM)
    parameter *= 0.9 / np.linalg.norm(parameter)
    writer = None
    for start in range(0, rows, ROW_GROUP):
        number = min(ROW_GROUP, rows - start)
        actions = rng.uniform(-1.0, 1.0, (number, DIM)) / DIM**0.5
        rewards = actions @ parameter + rng.normal(0.0, NOISE, number)
        partners = rng.integers(0, PARTNERS, number)
        rewards[(partners == 13) & (rng.random(number) < FRAUD)] *= -1.0
        columns = {f"x{place}": actions[:, place] for place in range(DIM)}
        names = [f"partner-{place:02d}" for place in partners.tolist()]
        clock = np.datetime64("2025-03-01", "s") + np.arange(start, start + number)
        table = pa.table({**columns, "reward": rewards, "partner": names, "shown_at": clock})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    if writer is not None:
        writer.close()


class Measured(NamedTuple):
    """What a process took."""

    seconds: float
    """The seconds from start to end."""
    cpu: float
    """The seconds of processor time, which other work on the machine changes less."""
    peak: float
    """The peak memory in MiB."""


def measure(command: list[str]) -> Measured:
    """Run a command and measure it from start to end."""
    start = time.perf_counter()
    child = subprocess.Popen(command)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise RuntimeError(f"{command[:4]} failed")
    return Measured(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024.0)


def race(folder: Path, rows: int) -> None:
    """Make the log, measure the audit and the two processes beside it, and print."""
    path = folder / "clicks.parquet"
    make_log(path, rows)
    print(f"{path}: {rows:,} rows, {DIM} features, {path.stat().st_size / 2**20:.0f} MiB", flush=True)
    options = f"--noise {NOISE} --source partner --time shown_at --force".split()
    command = [sys.executable, "-m", "robandit", "audit", str(path), *options]
    figures = {
        "import robandit": measure([sys.executable, "-c", "import robandit.logs.audit.page"]),
        "read the file": measure([sys.executable, "-c", READ, str(path)]),
        "robandit audit": measure(command),
    }
    print(f"\n{'':16} {'seconds':>8} {'CPU s':>6} {'rows/s':>10} {'peak MiB':>9}")
    for name, (seconds, cpu, peak) in figures.items():
        speed = "" if name.startswith("import") else f"{rows / seconds:,.0f}"
        print(f"{name:16} {seconds:8.1f} {cpu:6.1f} {speed:>10} {peak:9.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10**6, help="(default %(default)s)")
    parser.add_argument("--folder", type=Path, help="keep the log and the page here (default: a temporary folder)")
    options = parser.parse_args()
    if options.folder is not None:
        options.folder.mkdir(parents=True, exist_ok=True)
        race(options.folder, options.rows)
        return
    with tempfile.TemporaryDirectory() as folder:
        race(Path(folder), options.rows)


if __name__ == "__main__":
    main()
