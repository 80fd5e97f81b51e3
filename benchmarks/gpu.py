"""Checks and times the kernels on a GPU, where there are only PyTorch, Triton and NumPy: no installation, no pyarrow.

    PYTHONPATH=src python3 benchmarks/gpu.py                    # everything, at full size
    PYTHONPATH=src python3 benchmarks/gpu.py --tiny             # small enough for the tools and for the interpreter
    PYTHONPATH=src python3 benchmarks/gpu.py --only choices times --match Multi-level
    TRITON_INTERPRET=1 python benchmarks/gpu.py --tiny          # without a GPU: only that nothing breaks
    compute-sanitizer --tool memcheck --kernel-name kns=play --kernel-name kns=vote \\
        python3 benchmarks/gpu.py --tiny --only times           # or --tool racecheck
    ncu --clock-control none --kernel-name regex:play --launch-count 4 --set basic \\
        --metrics smsp__inst_executed.sum,smsp__issue_active.avg.pct_of_peak_sustained_active \\
        python3 benchmarks/gpu.py --only times --rounds 500

Checks: the means of many trials on the GPU against those of fewer on the CPU, corrected for the number of comparisons;
and the rounds of some trials replayed in float64, for the share of choices that single precision changes. Times: second
launches, by CUDA events, beside a large matrix product in float32 and a large copy in the same process. A round's
operations are those that K actions and d features need, not those of the tiles that they are padded to.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "lab")]
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # for the trials on the CPU, a process for each core

from gpu_replay import replayed  # noqa: E402

from robandit import (  # noqa: E402
    CWOFUL,
    OFUL,
    Greedy,
    MultiLevelWeightedOFUL,
    Quorum,
    RobustWeightedOFUL,
    WeightedOFUL,
)
from robandit.arrays import Floats  # noqa: E402
from robandit.errors import ConfigError  # noqa: E402
from robandit.experiments.paper import figure1  # noqa: E402
from robandit.experiments.tune import GRID, grid_config, shipped  # noqa: E402
from robandit.experiments.tune import SEED as TUNING  # noqa: E402
from robandit.lab import attacks, environments  # noqa: E402
from robandit.lab.gpu.condense import condense, save_condensed  # noqa: E402
from robandit.lab.gpu.launch import COLUMNS, Device, play, prepare_launches  # noqa: E402
from robandit.lab.gpu.plan import Plan, plan  # noqa: E402
from robandit.lab.plan import Run, make_policy, make_scenario  # noqa: E402
from robandit.lab.protocol import LABELLED, Scenario, simulate  # noqa: E402

with_settings: Any = partial
SEED = 11
PAPER, FRESH = environments.Paper(), environments.Fresh()


class Case(NamedTuple):
    """A policy in a world."""

    name: str
    policy: Any
    environment: Any
    attack: Any

    def scenario(self, trials: range) -> Scenario:
        return Scenario(self.environment.facing(self.attack), self.attack, trials)


def held(world: environments.Synthetic, zeta: float = 0.0) -> environments.Synthetic:
    """A world with one set that stays, whose sources differ by so much."""
    return replace(world, fresh_rounds=0, zeta=zeta)


WEIGHTED, CW = with_settings(WeightedOFUL, radius_scale=0.016), with_settings(CWOFUL, radius_scale=0.1)
LEVELS = with_settings(MultiLevelWeightedOFUL, radius_scale=0.004)
CHECKED = [
    Case("Weighted OFUL, 90 flips", WEIGHTED, PAPER, attacks.Flip(rounds=90)),
    Case("Multi-level, 90 flips", LEVELS, PAPER, attacks.Flip(rounds=90)),
    Case("OFUL, clean", with_settings(OFUL, radius_scale=0.4), PAPER, attacks.NoAttack()),
    Case("Greedy, 30 flips", Greedy, PAPER, attacks.Flip(rounds=30)),
    Case("CW-OFUL, 90 flips", with_settings(CW, corruption=LABELLED), PAPER, attacks.Flip(rounds=90)),
    Case(
        "Robust, random flips",
        with_settings(RobustWeightedOFUL, radius_scale=0.002, corruption=20.0),
        environments.Fresh(sigma_high=0.5),
        attacks.RandomFlips(budget=30.0),
    ),
    Case("Weighted OFUL, suppress best", WEIGHTED, FRESH, attacks.SuppressBest(budget=50.0)),
    Case("CW-OFUL, oracle target", CW, environments.Heteroscedastic(), attacks.OracleTarget(budget=50.0)),
    Case(
        "OFUL, click fraud",
        with_settings(OFUL, radius_scale=0.1),
        environments.Clicks(),
        attacks.ClickFraud(budget=None, share=0.2),
    ),
    Case("Quorum, 90 flips", Quorum, PAPER, attacks.Flip(rounds=90)),
    Case("Quorum, bursts on fresh sets", Quorum, FRESH, attacks.Bursts(budget=None)),
    Case("Quorum, 3 of 10 promote", Quorum, environments.Clicks(sources=10), attacks.SourcePromote(liars=3)),
    Case(
        "OFUL, clicks, 3 of 10 promote",
        with_settings(OFUL, radius_scale=0.1),
        environments.Clicks(sources=10),
        attacks.SourcePromote(liars=3),
    ),
    Case(
        "Weighted OFUL, clicks, one set",
        WEIGHTED,
        environments.Bernoulli(sources=10, skew=0.5, zeta=0.1, fresh_rounds=0),
        attacks.SourcePromote(liars=3, begin=100, end=800, move_every=90),
    ),
    Case(
        "CW-OFUL, sources suppress",
        CW,
        environments.Fresh(sources=10, skew=1.0, zeta=0.1),
        attacks.SourceSuppress(liars=3, first=1, budget=50.0),
    ),
]
CLICKS, VISITED = environments.Bernoulli(), environments.Bernoulli(sources=10)
MANY, HALF, FEWER = 131_072, 65_536, 16_384
TIMED: list[tuple[Case, int, int, dict[str, Any]]] = [  # with trials, rounds, and what differs from the plan
    (Case("Weighted OFUL, one set", WEIGHTED, PAPER, attacks.NoAttack()), MANY, 10_000, {}),
    (Case("CW-OFUL, one set", CW, PAPER, attacks.NoAttack()), MANY, 10_000, {}),
    (Case("Weighted OFUL, one set, flips", WEIGHTED, PAPER, attacks.Bursts(budget=1e6)), MANY, 10_000, {}),
    (Case("Weighted OFUL, fresh sets", WEIGHTED, FRESH, attacks.NoAttack()), MANY, 1_000, {}),
    (Case("the same by ieee", WEIGHTED, FRESH, attacks.NoAttack()), MANY, 1_000, {"precision": "ieee"}),
    (Case("Multi-level, 450 flips", LEVELS, PAPER, attacks.Flip(rounds=450)), FEWER, 10_000, {}),
    (Case("Multi-level, clean", LEVELS, PAPER, attacks.NoAttack()), FEWER, 10_000, {}),
    (Case("Multi-level, 128 registers", LEVELS, PAPER, attacks.NoAttack()), FEWER, 10_000, {"registers": 128}),
    (Case("Multi-level, fresh sets", LEVELS, FRESH, attacks.NoAttack()), FEWER, 1_000, {}),
    (Case("Quorum, one set", Quorum, PAPER, attacks.NoAttack()), HALF, 10_000, {}),
    (Case("Quorum, one set, 450 flips", Quorum, PAPER, attacks.Flip(rounds=450)), HALF, 10_000, {}),
    (Case("Quorum, one set, bursts", Quorum, PAPER, attacks.Bursts(budget=None)), HALF, 10_000, {}),
    (Case("Quorum, fresh sets", Quorum, FRESH, attacks.NoAttack()), HALF, 10_000, {}),
    (Case("Quorum, fresh sets, bursts", Quorum, FRESH, attacks.Bursts(budget=None)), HALF, 10_000, {}),
    (Case("Quorum, clicks, 10 sources", Quorum, VISITED, attacks.SourcePromote(liars=3)), FEWER, 10_000, {}),
    (Case("Quorum, 16 384 trials", Quorum, PAPER, attacks.NoAttack()), FEWER, 10_000, {}),
    (Case("Quorum, fresh, 128 registers", Quorum, FRESH, attacks.NoAttack()), FEWER, 10_000, {"registers": 128}),
    (Case("clicks, one set", WEIGHTED, held(CLICKS), attacks.NoAttack()), MANY, 10_000, {}),
    (Case("clicks, one set, 3 of 10 promote", WEIGHTED, held(VISITED), attacks.SourcePromote()), MANY, 10_000, {}),
    (Case("clicks, and sources differ", WEIGHTED, held(VISITED, 0.1), attacks.SourcePromote()), MANY, 10_000, {}),
    (Case("clicks, fresh sets", WEIGHTED, CLICKS, attacks.NoAttack()), MANY, 1_000, {}),
    (Case("clicks, fresh, 3 of 10 promote", WEIGHTED, VISITED, attacks.SourcePromote()), MANY, 1_000, {}),
]


def on_cpu(case: Case, trials: range, rounds: int) -> dict[str, Floats]:
    """What a batch of trials comes to on the CPU, by column."""
    at = np.array([rounds // 4, rounds])
    trace = simulate(policy=case.policy, scenarios=[case.scenario(trials)], rounds=rounds, seed=SEED, at=at)
    return {name: getattr(trace, name).astype(float) for name in ("regret", "c_sup", "c_play")}


def check_means(device: Device, cases: list[Case], trials: int, fewer: int, rounds: int) -> bool:
    """Compare means on the GPU and on the CPU, at a quarter of the rounds and at the end."""
    batches = [range(first, min(first + 64, fewer)) for first in range(0, fewer, 64)]
    limit = statistics.NormalDist().inv_cdf(1.0 - 0.01 / (2 * max(len(cases), 1) * 6))  # 1 % for all together
    print(f"\nmeans of {trials} trials on the GPU and {fewer} on the CPU, {rounds} rounds: |z| should be < {limit:.2f}")
    worst = 0.0
    # Spawned, since processes that are forked once CUDA has started may hang.
    with ProcessPoolExecutor(min(len(batches), os.cpu_count() or 1), get_context("spawn")) as pool:
        for case in cases:
            parts = list(pool.map(partial(on_cpu, case, rounds=rounds), batches))
            at = np.array([rounds // 4, rounds])
            what = plan(case.policy, case.scenario(range(1)), rounds, SEED)
            columns = play(what, range(trials), rounds, SEED, at, device).columns.double().cpu().numpy()
            assert np.isfinite(columns[:, :5]).all(), f"{case.name}: something was not written"
            words = []
            for name in parts[0]:
                here = np.concatenate([part[name] for part in parts], axis=1)
                there = columns[:, COLUMNS.index(name)]
                error = np.sqrt(here.var(axis=1, ddof=1) / here.shape[1] + there.var(axis=1, ddof=1) / trials)
                z = (there.mean(axis=1) - here.mean(axis=1)) / np.maximum(error, 1e-9)
                worst = max(worst, float(np.abs(z).max()))
                words.append(f"{name} {here[-1].mean():8.2f} {there[-1].mean():8.2f} z {z[0]:5.2f} {z[1]:5.2f}")
            print(f"{case.name:30} {'   '.join(words)}", flush=True)
    print(f"largest |z|: {worst:.2f}: {'as it should be' if worst < limit else 'TOO LARGE'}")
    return worst < limit


def check_choices(cases: list[Case], trials: int, rounds: int) -> bool:
    """Replay rounds in float64, by the CPU's own policies, attacks and ledger."""
    print(f"\nreplayed in float64: {trials} trials of {rounds} rounds")
    fine = True
    for case in cases:
        for precision in ("ieee",) if case.policy is LEVELS else ("ieee", "tf32x3"):
            scenario = Scenario(case.environment, case.attack, range(trials))
            found = replayed(case.policy, scenario, rounds, SEED, precision=precision)
            fine &= found.behind < 1e-3 and found.reward < 1e-4
            print(
                f"{case.name:30} {precision:7} other choices {found.changed:8.2e}, the worst "
                f"{found.behind:8.2e} behind; rewards differ by {found.reward:7.1e}, columns by {found.columns:7.1e}",
                flush=True,
            )
    return fine


def seconds(device: Device, call: Any) -> float:
    """How long some launches take: by CUDA events on a GPU, by the clock in the interpreter."""
    if device.name == "cpu":
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    begin, end = (device.torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    call()
    end.record()
    device.torch.cuda.synchronize()
    return float(begin.elapsed_time(end)) / 1e3


def breakdown(device: Device, launches: list[Any]) -> dict[str, float]:
    """How long each kind of launch takes, in seconds, where there is more than one kind."""
    torch, named = device.torch, [(launch.func.__name__.strip("_"), launch) for launch in launches]
    if device.name == "cpu" or len({name for name, _ in named}) < 2:
        return {}
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(len(named) + 1)]
    marks[0].record()
    for (_, launch), mark in zip(named, marks[1:], strict=True):
        launch()
        mark.record()
    torch.cuda.synchronize()
    spent: dict[str, float] = {}
    for (name, _), begin, end in zip(named, marks, marks[1:], strict=False):
        spent[name] = spent.get(name, 0.0) + float(begin.elapsed_time(end)) / 1e3
    return spent


def ceilings(device: Device, size: int) -> tuple[float, float]:
    """Operations per second of a large product in float32, and bytes per second of a large copy, read and written."""
    torch = device.torch
    torch.backends.cuda.matmul.allow_tf32 = False
    a, b = (torch.rand((size, size), device=device.name) for _ in range(2))
    large = torch.rand((size * size * 8,), device=device.name)
    product, copy = [], []
    for _ in range(6):
        product.append(seconds(device, lambda: a @ b))
        copy.append(seconds(device, lambda: large.clone()))
    return 2.0 * size**3 / statistics.median(product[1:]), 8.0 * large.numel() / statistics.median(copy[1:])


def operations(case: Case) -> int:
    """What a round needs: V v, the update of V, and K-vectors; on a fresh set the product Sᵀ X as well.

    Quorum folds the reward into a group besides. Its votes are not counted: what they need depends on the trial.
    """
    d, k = case.environment.dim, case.environment.actions
    held = 2 * k * d + 2 * k * d + 10 * k
    fresh = 2 * k * d * d + 6 * k * d + 4 * d * d + 10 * k
    always = case.environment.facing(case.attack).fresh_rounds is None
    if case.policy is LEVELS:  # S v and the update of S, or that of S⁻¹; of the level three products and two updates
        return (fresh if always else held) + 4 * d * d + 10 * d * d
    if case.policy is Quorum:
        return (fresh if always else held) + 3 * (d + 1) * (d + 2) // 2
    return fresh if always else held


def moved(case: Case, trials: int, rounds: int, wide: int) -> int:
    """Bytes that are read or written at least: the state once, and in each round two matrices of the level."""
    state = 2 * trials * wide * (wide + 2) * 4
    return state + (trials * rounds * 16 * case.environment.dim**2 if case.policy is LEVELS else 0)


def varied(what: Plan, kind: Mapping[str, Any]) -> Plan:
    """A plan with what is tried: other registers, or another precision."""
    world = what.world_kind._replace(precision=kind.get("precision", what.world_kind.precision))
    return what._replace(registers=kind.get("registers", what.registers), world_kind=world)


def times(device: Device, match: str, fewest: int | None, most: int | None, repeats: int) -> None:
    """Time second launches, and print the rounds per second beside the ceilings."""
    peak, bandwidth = ceilings(device, 8192 if device.name == "cuda" else 64)
    print(f"\nceilings: {peak / 1e12:.2f} TFLOP/s in a float32 product, {bandwidth / 1e12:.2f} TB/s in a copy")
    print(
        f"{'case':32} {'trials':>7} {'rounds':>6} {'ms':>9} {'spread':>7} {'rounds/s':>9} {'of peak':>8} {'of copy':>8}"
    )
    for case, trials, rounds, kind in TIMED:
        if not re.search(match, case.name):
            continue
        trials, rounds = fewest or trials, min(rounds, most or rounds)
        what = varied(plan(case.policy, case.scenario(range(1)), rounds, SEED), kind)
        at, spent = np.array([rounds // 2, rounds]), []
        for _ in range(repeats + 1):  # the first one compiles
            out, launches = prepare_launches(what, range(trials), rounds, SEED, at, device)
            spent.append(seconds(device, lambda launches=launches: [launch() for launch in launches]))
            assert not bool(out.columns.isnan().any()), f"{case.name}: something was not written"
        middle, played = statistics.median(spent[1:]), trials * rounds
        spread, least = (max(spent[1:]) - min(spent[1:])) / middle, moved(case, trials, rounds, what.world_kind.wide)
        print(
            f"{case.name:32} {trials:7d} {rounds:6d} {1e3 * middle:9.2f} {spread:7.1%} {played / middle:9.2e} "
            f"{played * operations(case) / middle / peak:8.1%} {least / middle / bandwidth:8.1%}",
            flush=True,
        )
        if what.quorum is not None:
            again = prepare_launches(what, range(trials), rounds, SEED, at, device)[1]
            for name, part in breakdown(device, again).items():
                print(f"{name:>48} {1e3 * part:9.2f}", flush=True)


def retune(trials: int, rounds: int, out: Path) -> dict[str, float]:
    """Play the tuning of Figure 1's scales, and write it down for `robandit paper tune --from`. Gives the best ones."""
    policies = {name: settings for name, settings in figure1.POLICIES.items() if name != figure1.GREEDY}
    base = {"rounds": rounds, "trials": trials, "seed": TUNING, "checkpoints": 2, "device": "cuda"}
    grids = dict.fromkeys(policies, GRID)
    run = Run.read(grid_config(base | figure1.world(20, 20, figure1.FLIPS), policies, grids))
    start = time.perf_counter()
    held = condense(run)
    save_condensed(out, held, force=True)
    print(f"\n{run.size:.2e} rounds of tuning in {time.perf_counter() - start:.1f} s, in {out}")
    means = held["ends"].mean(axis=(1, 2)).reshape(len(policies), len(GRID))
    scales = {name: GRID[place] for name, place in zip(policies, means.argmin(axis=1), strict=True)}
    print(f"best: {scales}", flush=True)
    return scales


def rerun_figure1(scales: Mapping[str, float], trials: int, rounds: int, out: Path) -> None:
    """Play Figure 1 at these scales, as far as a GPU can, and write it down for `robandit … --from`."""
    config = figure1.config(scales, trials=trials, rounds=rounds)
    fits = []
    for entry in config["policies"]:
        run = Run.read({**config, "policies": [entry]})
        try:
            plan(
                make_policy(run.policies[0]),
                Scenario(*make_scenario(run.environments[0], run.attacks[0]), [0]),
                rounds,
                1,
            )
            fits.append(entry)
        except ConfigError as error:
            print(f"left out: {error}")
    start = time.perf_counter()
    run = Run.read({**config, "policies": fits, "device": "cuda"})
    save_condensed(out, condense(run), force=True)
    print(f"\n{run.size:.2e} rounds of Figure 1 in {time.perf_counter() - start:.1f} s, in {out}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", action="store_true", help="Use sizes for tools that are slow.")
    parts = ("means", "choices", "times", "tune", "figure1")
    parser.add_argument("--only", nargs="+", choices=parts, default=(), help="Do only these.")
    parser.add_argument("--match", default="", help="Check and time only the cases whose names match.")
    parser.add_argument("--repeats", type=int, default=5, help="Time so many launches after the first one.")
    parser.add_argument("--rounds", type=int, help="Play at most this many rounds in what is timed or replayed.")
    parser.add_argument("--figure1", type=int, metavar="TRIALS", help="Rerun Figure 1 with this many trials as well.")
    parser.add_argument("--tune", type=int, metavar="TRIALS", help="Tune with this many; Figure 1 takes what is best.")
    parser.add_argument("--out", type=Path, default=Path(), help="Write tune.npz and figure1.npz here (default: here).")
    options = parser.parse_args()
    device, tiny = Device.find(), options.tiny
    name = device.torch.cuda.get_device_name() if device.name == "cuda" else "no GPU: Triton's interpreter"
    print(f"{name}, PyTorch {device.torch.__version__}")

    def wanted(part: str) -> bool:
        return not options.only or part in options.only

    fine, cases = True, [case for case in CHECKED if re.search(options.match, case.name)]
    if wanted("means"):
        fine &= check_means(device, cases, *((4, 8, 12) if tiny else (100_000, 1_000, 1_000)))
    if wanted("choices"):
        fine &= check_choices(cases, *((2, 10) if tiny else (64, options.rounds or 1_000)))
    if wanted("times"):
        times(device, options.match, 2 if tiny else None, 6 if tiny else options.rounds, 1 if tiny else options.repeats)
    scales, rounds = shipped().scales, 6 if tiny else 10_000
    if options.tune or "tune" in options.only:
        scales = retune(options.tune or 2, rounds, options.out / "tune.npz")
    if options.figure1 or "figure1" in options.only:
        rerun_figure1(scales, options.figure1 or 2, rounds, options.out / "figure1.npz")
    return 0 if fine or tiny else 1


if __name__ == "__main__":
    sys.exit(main())
