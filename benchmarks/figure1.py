"""Times the whole workload of the paper's Figure 1, and how public research scripts run it, in one run.

The workload is five policies, six amounts of corruption, ten trials, 10 000 rounds and d = K = 20. Ours is timed as a
user runs it: on all cores, including the start of the workers and the saving of the table. The script uses one core. It
is timed for a slice of rounds and scaled, before and after ours, because the speed of a machine varies. The processors'
time, divided by the cores, is what the clock would show at least on a machine that nobody else uses.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import joblib
from joblib.externals.loky import get_reusable_executor
from threadpoolctl import threadpool_limits

from policies import KERNELS, peak_flops
from public_script import POLICIES, seconds_per_round
from robandit.lab.engine import Engine, carry_out
from robandit.lab.plan import Run

DIM = ACTIONS = 20
FLOPS = 2 * (ACTIONS * DIM * DIM + 2 * ACTIONS * DIM + 3 * DIM * DIM)  # of one round: widths, means and the update


def figure1(rounds: int, kernel: str = "numpy") -> Run:
    """The run of Figure 1, at the radius scales of examples/race.toml."""
    policies: list[dict[str, Any]] = [
        {"name": "oful", "radius_scale": 0.4},
        {"name": "weighted-oful", "radius_scale": 0.016},
        {"name": "greedy"},
        {"name": "robust-weighted-oful", "radius_scale": 0.002},
        {"name": "multi-level-weighted-oful", "radius_scale": 0.004},
    ]
    chosen = {} if kernel == "numpy" else {"kernel": kernel}
    return Run.read(
        {
            "rounds": rounds,
            "trials": 10,
            "environments": [{"name": "paper", "dim": DIM, "actions": ACTIONS}],
            "attacks": [{"name": "flip", "rounds": [0, 30, 90, 150, 300, 450]}],
            "policies": [policy | chosen for policy in policies],
        }
    )


def ours(run: Run, workers: int) -> tuple[float, float]:
    """The seconds that the whole run takes: by the clock, and of all processors together."""
    with tempfile.TemporaryDirectory() as folder:
        start, before = time.perf_counter(), _processors()
        carry_out(run, Path(folder) / "figure1.parquet", engine=Engine(workers=workers))
        spent = time.perf_counter() - start
        get_reusable_executor().shutdown(wait=True)  # what a worker used is known when it has ended
        return spent, _processors() - before


def _processors() -> float:
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def script(rounds: int) -> float:
    """The seconds per policy and round of the public script, averaged over its five policies."""
    with threadpool_limits(1):
        return sum(seconds_per_round(policy, rounds) for policy in POLICIES) / len(POLICIES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10_000, help="of each trial (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=2, help="how often to run it (default %(default)s)")
    parser.add_argument("--kernels", nargs="+", choices=KERNELS, default=KERNELS, help="default: all")
    options = parser.parse_args()
    workers, slices = joblib.cpu_count(), [script(300)]
    times: dict[str, list[tuple[float, float]]] = {kernel: [] for kernel in options.kernels}
    for _ in range(options.repeats):
        for kernel, spent in times.items():
            spent.append(ours(figure1(options.rounds, kernel), workers))
        slices.append(script(300))
    with threadpool_limits(1):
        limit = FLOPS / peak_flops() / workers
    size, public = figure1(options.rounds).size, min(slices)
    print(f"\nFigure 1: {size:,} policy-rounds on {workers} cores")
    print(f"public script, one core     {1e6 * public:8.0f} µs     ({', '.join(f'{1e6 * s:.0f}' for s in slices)})")
    print(f"the arithmetic at this machine's peak {1e6 * limit:8.2f} µs")
    print("kernel   seconds   µs per policy and round: clock, processors / cores   of the arithmetic   times faster")
    for kernel, spent in times.items():
        clock, busy = (min(column) for column in zip(*spent, strict=True))
        each, least = clock / size, busy / workers / size
        print(
            f"{kernel:6s} {clock:9.1f} {1e6 * each:31.2f} {1e6 * least:19.2f} "
            f"{each / limit:13.1f}, {least / limit:4.1f} {public / each:14.0f}"
        )


if __name__ == "__main__":
    main()
