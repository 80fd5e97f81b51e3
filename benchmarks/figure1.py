"""Times the whole workload of the paper's Figure 1, and how public research scripts run it, in one run.

The workload is five policies, six amounts of corruption, ten trials, 10 000 rounds and d = K = 20. Ours is timed as a
user runs it: on all cores, including the start of the workers and the saving of the table. The script uses one core. It
is timed for a slice of rounds and scaled, before and after ours, because the speed of a machine varies.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import joblib
from threadpoolctl import threadpool_limits

from policies import peak_flops
from public_script import POLICIES, seconds_per_round
from robandit.lab.engine import Engine, carry_out
from robandit.lab.plan import Run

DIM = ACTIONS = 20
FLOPS = 2 * (ACTIONS * DIM * DIM + 2 * ACTIONS * DIM + 3 * DIM * DIM)  # of one round: widths, means and the update


def figure1(rounds: int) -> Run:
    """The run of Figure 1, at the radius scales of examples/race.toml."""
    return Run.read(
        {
            "rounds": rounds,
            "trials": 10,
            "environments": [{"name": "paper", "dim": DIM, "actions": ACTIONS}],
            "attacks": [{"name": "flip", "rounds": [0, 30, 90, 150, 300, 450]}],
            "policies": [
                {"name": "oful", "radius_scale": 0.4},
                {"name": "weighted-oful", "radius_scale": 0.016},
                {"name": "greedy"},
                {"name": "robust-weighted-oful", "radius_scale": 0.002},
                {"name": "multi-level-weighted-oful", "radius_scale": 0.004},
            ],
        }
    )


def ours(run: Run, workers: int) -> float:
    """The seconds that the whole run takes."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        carry_out(run, Path(folder) / "figure1.parquet", engine=Engine(workers=workers))
        return time.perf_counter() - start


def script(rounds: int) -> float:
    """The seconds per policy and round of the public script, averaged over its five policies."""
    with threadpool_limits(1):
        return sum(seconds_per_round(policy, rounds) for policy in POLICIES) / len(POLICIES)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10_000, help="of each trial (default %(default)s)")
    parser.add_argument("--repeats", type=int, default=2, help="how often to run it (default %(default)s)")
    options = parser.parse_args()
    run, workers = figure1(options.rounds), joblib.cpu_count()
    slices, times = [script(300)], []
    for _ in range(options.repeats):
        times.append(ours(run, workers))
        slices.append(script(300))
    with threadpool_limits(1):
        limit = FLOPS / peak_flops() / workers
    each, public = min(times) / run.size, min(slices)
    print(f"\nFigure 1: {run.size:,} policy-rounds on {workers} cores")
    print(f"all of it                         {min(times):8.1f} s      ({', '.join(f'{t:.1f}' for t in times)})")
    print(f"per policy and round              {1e6 * each:8.2f} µs")
    print(
        f"public script, one core           {1e6 * public:8.0f} µs     ({', '.join(f'{1e6 * s:.0f}' for s in slices)})"
    )
    print(f"times faster                      {public / each:8.0f}        ({public / each / workers:.0f} per core)")
    print(f"the arithmetic at this machine's peak {1e6 * limit:4.2f} µs: ours is {each / limit:.0f} times that")


if __name__ == "__main__":
    main()
