"""Our policies beside the learners of packaged libraries: regret under attack and time per round, in one run.

All play the same trials: fresh decision sets, d = 5, K = 20, 2000 rounds, and the paper's attack on the first k rounds,
which the paper labels C = 2k. All see the actions and the reward of the action played. Nobody is told k or C. Nobody is
told σ either, unless `--sigma` tells it to ours. Each learner's knobs are chosen on a seed of their own, by the mean
regret over C = 0, 50 and 200, and are the same for every C.

Times are medians of slices that take all learners in turn, because the speed of a shared machine varies. A library's
time is given as it is, and without the cost of our adapter. Install the libraries with `pip install '.[lab,peers]'`.
Those that are not installed are left out.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from peer_adapters import CONTENDERS, LEFT_OUT, Knobs, installed
from peer_race import BY_CLASS, WORLD, Entrant, Own, Race, Theirs, check_play
from peer_times import Cost, measure
from robandit.arrays import Floats
from robandit.experiments.intervals import interval
from robandit.experiments.tune import SEED as TUNING_SEED
from robandit.figures.numbers import mean_half

SEED = 1
FLIPS = (0, 25, 100)
SIZES = tuple((dim, count) for dim in (5, 20, 100) for count in (20, 1000))
OURS = ("OFUL", "MultiLevelWeightedOFUL", "CWOFUL", "VarianceAwareCWOFUL", "Quorum")
LIKE = "OFUL, one trial"
"""The learner to whose time all times are compared. Every library's LinUCB is the same algorithm."""


def print_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print columns, the first aligned to the left and the others to the right."""
    lines = [[str(cell) for cell in row] for row in (heads, *rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for first, *rest in lines:
        cells = [text.rjust(width) for text, width in zip(rest, widths[1:], strict=True)]
        print("   ".join([first.ljust(widths[0]), *cells]))


# Regret.

Found = dict[tuple[str, str, int], Floats]
"""Regrets by name, knobs and flips."""


def carry_out(entrant: Entrant, knobs: Knobs, race: Race) -> tuple[tuple[str, str, int], Floats]:
    return (entrant.name, label(knobs), race.flips), entrant.regret(knobs, race)


def all_regrets(jobs: Sequence[tuple[Entrant, Knobs, Race]], workers: int, what: str) -> Found:
    """The regrets of all jobs."""
    with joblib.parallel_config("loky", inner_max_num_threads=1):
        parallel = joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
        found = parallel(joblib.delayed(carry_out)(*job) for job in jobs)
        return dict(tqdm(found, total=len(jobs), desc=what, mininterval=1.0))


def label(knobs: Knobs) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in knobs.items()) or "-"


def share(trials: int, entrant: Entrant) -> range:
    """The trials that an entrant plays: half of them if it is slow."""
    return range(-(-trials // 2) if entrant.slow else trials)


def tune(
    entrants: Sequence[Entrant], rounds: int, trials: int, workers: int
) -> tuple[dict[str, Knobs], dict[str, float]]:
    """The best knobs of each entrant, and their mean regret over all C. Entrants of one rule share their knobs."""
    first = {entrant.rule or entrant.name: entrant for entrant in reversed(entrants)}  # the first of each rule stays
    jobs = [
        (entrant, knobs, Race(flips, share(trials, entrant), rounds, TUNING_SEED))
        for entrant in first.values()
        for knobs in entrant.grid
        for flips in FLIPS
    ]
    found = all_regrets(jobs, workers, "tuning")
    best: dict[str, Knobs] = {}
    reached: dict[str, float] = {}
    for entrant in entrants:
        tuned = first[entrant.rule or entrant.name]
        means = [np.mean([found[tuned.name, label(knobs), flips].mean() for flips in FLIPS]) for knobs in tuned.grid]
        best[entrant.name] = entrant.grid[int(np.argmin(means))]
        reached[entrant.name] = float(min(means))
    return best, reached


def regrets(options: argparse.Namespace, ours: Sequence[Own], theirs: Sequence[Theirs]) -> dict[str, Any]:
    """Tune, race and print. The result goes into the JSON file."""
    check_play(SEED)
    entrants: list[Entrant] = [*ours, *theirs]
    best, reached = tune(entrants, options.rounds, options.tuning_trials, options.workers)
    jobs: list[tuple[Entrant, Knobs, Race]] = []
    for entrant in entrants:
        races = [Race(flips, share(options.trials, entrant), options.rounds, SEED) for flips in FLIPS]
        jobs += [(entrant, best[entrant.name], race) for race in races]
    found = all_regrets(jobs, options.workers, "racing")
    final = {e.name: [found[e.name, label(best[e.name]), flips] for flips in FLIPS] for e in entrants}
    heads = [f"C = {2 * flips}" for flips in FLIPS]
    print(
        f"\nRegret after {options.rounds} rounds of fresh sets, d = {WORLD.dim}, K = {WORLD.actions}, 95 % intervals\n"
    )
    rows = [[name, *map(spread, values), len(values[0]), label(best[name])] for name, values in final.items()]
    print_table(["", *heads, "trials", "chosen"], rows)
    champion = min((own.name for own in ours), key=lambda name: reached[name])
    if theirs:
        print(f"\n{champion}, the best of ours in tuning, minus each peer in the same trials: below 0 ours is better\n")
        print_table(["", *heads], [[peer.name, *gaps(final[champion], final[peer.name])] for peer in theirs])
    return {
        "champion": champion,
        "chosen": {name: dict(knobs) for name, knobs in best.items()},
        "regret": {e: dict(zip(heads, (v.tolist() for v in final[e]), strict=True)) for e in final},
    }


def gaps(own: Sequence[Floats], their: Sequence[Floats]) -> list[str]:
    """How much more regret ours has at each C, paired over trials, and whether it is better, worse or even."""
    cells = []
    for mine, yours in zip(own, their, strict=True):
        gap = mine[: len(yours)] - yours
        mean, half = interval(gap)
        cells.append(f"{spread(gap)} {'better' if mean + half < 0.0 else 'WORSE ' if mean - half > 0.0 else 'even  '}")
    return cells


def spread(values: Floats) -> str:
    return mean_half(*interval(values), decimals=1)


# Time.


def times(
    options: argparse.Namespace, ours: Sequence[Own], theirs: Sequence[Theirs], chosen: Mapping[str, Knobs]
) -> dict[str, Any]:
    """Time all learners at every size and print. The result goes into the JSON file."""
    sizes = SIZES[:1] if options.quick else SIZES
    found = measure(sizes, ours, theirs, chosen, options.slices, options.slice)
    heads, everybody = [f"d {dim} K {count}" for dim, count in found], list(found[sizes[0]])

    def show(title: str, cell: Callable[[Cost, Cost], str], names: Sequence[str] = everybody) -> None:
        print(f"\n{title}\n")
        print_table(["", *heads], [[name, *(cell(at[name], at[LIKE]) for at in found.values())] for name in names])

    show("Microseconds per round and trial, choose and update, adapter included", lambda c, _: f"{1e6 * sum(c):.1f}")
    show(
        f"The same without our adapter, as a multiple of {LIKE}: above 1 takes longer",
        lambda c, like: f"{(c.building + c.playing) / sum(like):.2f}",
    )
    if theirs:
        show(
            "The share of our adapter, and that of building the library's own objects",
            lambda c, _: f"{c.adapter / sum(c):.0%}, {c.building / sum(c):.0%}",
            [peer.name for peer in theirs],
        )
    return {head: {name: c._asdict() for name, c in at.items()} for head, at in zip(heads, found.values(), strict=True)}


# The command.


def read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--quick", action="store_true", help="a short run to see that it works; its numbers mean nothing")
    add("--trials", type=int, default=20, help="of each learner; slow ones play half of them (default %(default)s)")
    add("--peers", help="only these packages, separated by commas, or none")
    add("--ours", default=",".join(OURS), help="our policies, by class name (default %(default)s)")
    add("--sigma", action="store_true", help="tell ours σ, as the paper does; no peer can be told")
    add("--only", choices=("regret", "time"), help="run only this half")
    add("--workers", type=int, default=joblib.cpu_count(), help="processes for the regret (default %(default)s)")
    add("--json", type=Path, metavar="FILE", help="write all numbers to this file")
    options = parser.parse_args()
    options.rounds, options.tuning_trials, options.slices, options.slice = 2000, 4, 5, 0.08
    if options.quick:
        options.rounds, options.trials, options.tuning_trials = 60, min(options.trials, 4), 2
        options.slices, options.slice = 2, 0.005
    return options


def entered(options: argparse.Namespace) -> tuple[list[Own], list[Theirs]]:
    """The learners that take part. Prints which do not."""
    names = options.ours.split(",")
    if "OFUL" not in names:
        names.insert(0, "OFUL")  # times are compared to it
    for name in (name for name in names if name not in BY_CLASS):
        print(f"{name}: not among the policies of this version")
    packages = sorted({contender.package for contender in CONTENDERS})
    wanted = packages if options.peers is None else [name for name in options.peers.split(",") if name != "none"]
    there = [package for package in wanted if package in packages and installed(package)]
    for package in (package for package in wanted if package not in there):
        print(f"{package}: not installed: pip install {package}" if package in packages else f"{package}: no such peer")
    theirs = [Theirs(contender) for contender in CONTENDERS if contender.package in there]
    return [Own(name, options.sigma) for name in names if name in BY_CLASS], theirs


def main() -> None:
    options = read_options()
    ours, theirs = entered(options)
    report: dict[str, Any] = {}
    with threadpool_limits(1):  # set now, when all libraries are loaded
        if options.only != "time":
            report |= regrets(options, ours, theirs)
        if options.only != "regret":
            report["seconds"] = times(options, ours, theirs, report.get("chosen", {}))
    print("\nDoes not apply, or only in part:", *LEFT_OUT, sep="\n- ")
    if options.json:
        options.json.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
