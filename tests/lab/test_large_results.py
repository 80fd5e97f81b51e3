"""Results too large for memory: row groups, and how much a run needs."""

from __future__ import annotations

import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from robandit.lab import results
from robandit.lab.engine import Engine, carry_out
from robandit.lab.plan import Run
from thinned import thinned

CONFIG: dict[str, Any] = {
    "policies": ["oful", {"name": "multi-level-weighted-oful", "radius_scale": 0.002}],  # the first tells no info
    "attacks": [{"name": "flip", "rounds": [0, 5]}, {"name": "top-n", "budget": None}],
    "environments": [{"name": "paper", "dim": 3, "actions": 4}],
    "rounds": 40,
    "trials": 4,
    "checkpoints": 6,
}


@pytest.mark.no_cover
@pytest.mark.parametrize("batch", thinned([1, 5, 64], fast=[5]))
def test_row_groups_do_not_depend_on_the_pieces(batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = carry_out(Run.read(CONFIG), tmp_path / "whole", engine=Engine(workers=1)).table
    monkeypatch.setattr(results, "_ROWS", 37)
    for place, cut in (("one", batch), ("two", 7)):
        result = carry_out(Run.read(CONFIG), tmp_path / place, engine=Engine(workers=1, batch=cut))
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    groups = list(result.row_groups())
    assert [group.num_rows for group in groups] == [37, 37, 37, 33]
    assert pa.concat_tables(groups).equals(whole) and result.table.equals(whole)
    assert result.last_round().equals(whole.filter(pc.field("round") == 40))


def test_the_bytes_do_not_depend_on_how_rows_are_cut() -> None:
    """At full size, where columns have several pages."""
    rng, rows, about = np.random.default_rng(1), 300_000, {"x": 1}
    names = pa.array(["a", "bc", None]).take(rng.integers(0, 3, rows))
    levels = pa.ListArray.from_arrays(np.arange(rows + 1, dtype=np.int32) * 2, rng.integers(0, 99, 2 * rows))
    whole = pa.table({"name": names, "regret": rng.random(rows), "count": rng.integers(0, 9, rows), "levels": levels})
    files = []
    for cuts in ([], [1, 1000, 131_071, 131_073, 262_144], sorted(rng.integers(0, rows, 99).tolist())):
        ends = zip([0, *cuts], [*cuts, rows], strict=True)
        files.append(BytesIO())
        results.write(files[-1], (whole.slice(a, b - a) for a, b in ends), [whole.schema], about)
    assert len({file.getvalue() for file in files}) == 1
    assert pq.read_table(files[0]).replace_schema_metadata(None).equals(whole)


GRID = """
import sys
from pathlib import Path
import numpy as np
from robandit.lab import results, worker
from robandit.lab.engine import Engine, carry_out
from robandit.lab.plan import Run
from robandit.lab.protocol import Trace, checkpoints

def made_up(task):
    at, size = checkpoints(task.rounds, task.checkpoints), task.size // task.rounds
    some = np.random.default_rng(1).random((len(at), size))
    whole = (1e6 * some).astype(np.int64)
    use = np.broadcast_to(whole[:, :, None], (*whole.shape, 14))
    sums, sources = (some, some, some, some, whole, some, some, whole, some), (whole, use[:, :, :0])
    return Trace(at, *sums, *sources, use, {"empty": whole})

def peak():
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1])

worker.run_together, results._ROWS = lambda tasks, progress: [made_up(task) for task in tasks], 1 << 14
config = {"policies": ["oful"], "environments": [{"name": "paper", "dim": 2}], "rounds": 10_000}

def run(trials):
    path = Path(sys.argv[1]) / f"{trials}.parquet"
    result = carry_out(Run.read({**config, "trials": trials}), path, engine=Engine(workers=1, batch=100))
    assert result.last_round().num_rows == trials
    return result

run(500)  # what any run needs
before = peak()
result = run(8000)
streamed = peak()
table = result.table
print(streamed - before, peak() - before, table.nbytes // 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_a_run_needs_far_less_memory_than_its_table(tmp_path: Path) -> None:
    """Rows that are made up, not played. Reading the whole table, as every run once did, is seen."""
    command = [sys.executable, "-c", GRID, str(tmp_path)]
    streamed, read, table = map(int, subprocess.check_output(command, text=True).split())
    assert table > 100_000 and read > 0.8 * table
    assert streamed < 0.4 * table
