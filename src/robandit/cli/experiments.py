"""The commands that rerun the paper, tune, figure1, variance, verify and report, and those beyond it: arena, sweep,
insurance."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robandit.errors import ConfigError
from robandit.experiments.arena import race as arena
from robandit.experiments.paper import figure1, variance
from robandit.experiments.tune import GRID, OBJECTIVES, SEED, Tuned, grid_config, sensitivity, shipped, tune
from robandit.lab.plan import Run

if TYPE_CHECKING:
    from robandit.lab.engine import Engine
    from robandit.lab.results import Result


def add_engine_options(parser: argparse.ArgumentParser, default: str) -> None:
    """Where to run, and where to put what comes out."""
    where = parser.add_argument_group("where")
    where.add_argument("--out", type=Path, default=Path(default), help="what to write (default %(default)s)")
    where.add_argument("--force", action="store_true", help="replace what is there, drop another run half done")
    where.add_argument("--engine", default="local", help="local, dask or ray (default %(default)s)")
    where.add_argument("--address", help="of a running Dask scheduler or Ray cluster (default: start one here)")
    where.add_argument("--workers", type=int, help="processes (default: as many as there are cores)")
    where.add_argument("--batch", type=int, help="trials that one process runs at once (default: what is fast)")


def engine_of(options: argparse.Namespace) -> Engine:
    """The engine that the options ask for."""
    from robandit.lab.engine import Engine

    return Engine(kind=options.engine, workers=options.workers, address=options.address, batch=options.batch)


def add_commands(commands: Any) -> None:
    """Add them to a parser's subcommands."""
    _add(commands, "tune", _tune, "pick each policy's radius scale, on seeds of its own", rounds=10_000, trials=32)
    _add(commands, "figure1", _figure1, "rerun the paper's Figure 1 and judge its claims", rounds=10_000, trials=10)
    _add(commands, "variance", _variance, "what knowing the variance buys", rounds=5_000, trials=64)
    _add(commands, "insurance", _insurance, "what the sceptic's insurance costs and buys", rounds=5_000, trials=50)
    _add_verify(commands)
    _add_arena(commands)
    _add_sweep(commands)
    _add_alarm(commands)
    report = commands.add_parser("report", help="gather it all on one page", description=_report.__doc__)
    report.add_argument("--out", type=Path, default=Path("out"), help="the folder (default %(default)s)")
    report.add_argument("--force", action="store_true", help="replace the page that is there")
    report.set_defaults(call=_report)


def _add(commands: Any, name: str, call: Any, about: str, *, rounds: int, trials: int) -> None:
    parser = commands.add_parser(name, help=about, description=call.__doc__)
    parser.add_argument("--rounds", type=int, default=rounds, help="of a trial (default %(default)s)")
    parser.add_argument("--trials", type=int, default=trials, help="of each (default %(default)s)")
    seed = SEED if name == "tune" else 1
    parser.add_argument("--seed", type=int, default=seed, help="of all randomness (default %(default)s)")
    if name not in ("variance", "insurance"):
        parser.add_argument("--dim", type=int, default=20, help="features of an action (default %(default)s)")
        parser.add_argument("--actions", type=int, default=20, help="in a decision set (default %(default)s)")
        flips = ",".join(map(str, figure1.FLIPS))
        parser.add_argument("--flips", type=_integers, default=figure1.FLIPS, help=f"k of each panel (default {flips})")
    if name == "tune":
        parser.add_argument("--grid", type=_floats, default=GRID, help="scales to try (default 1, 1/2, … 1/1024)")
        parser.add_argument(
            "--objective", default="mean", help=f"{' or '.join(OBJECTIVES)} panel (default %(default)s)"
        )
    if name == "figure1":
        parser.add_argument("--radius", choices=("tuned", "theory"), default="tuned", help="theory is scale 1")
        parser.add_argument("--scales", type=Path, help="a file of `robandit tune` (default: the one in the package)")
    add_engine_options(parser, "out")
    parser.set_defaults(call=call)


def _add_verify(commands: Any) -> None:
    parser = commands.add_parser("verify", help="the theorems as numbers", description=_verify.__doc__)
    for name, default, about in (
        ("rounds", 1000, "of a trial"),
        ("trials", 80, "of each attack and environment"),
        ("dim", 5, "features of an action"),
        ("actions", 10, "in a decision set"),
        ("seed", 1, "of all randomness"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{about} (default %(default)s)")
    parser.add_argument("--delta", type=float, default=0.05, help="δ (default %(default)s)")
    parser.add_argument(
        "--shrink", type=float, default=1.0, help="multiplies every radius in the checks, to see them fail (default 1)"
    )
    parser.add_argument("--out", type=Path, default=Path("out"), help="the folder to write to (default %(default)s)")
    parser.add_argument("--force", action="store_true", help="replace what is there")
    parser.set_defaults(call=_verify)


def _add_arena(commands: Any) -> None:
    about = "every policy under every attack: which to use, and what an attack costs"
    parser = commands.add_parser("arena", help=about, description=_arena.__doc__)
    for name, default in arena.SETTING.items():
        of = {"rounds": "of a trial", "trials": "of each scenario", "seed": "of all randomness but the tuning's"}[name]
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{of} (default %(default)s)")
    tune_trials = "of each scenario in the tuning (default %(default)s)"
    parser.add_argument("--tune-trials", type=int, default=arena.TUNE_TRIALS, help=tune_trials)
    own = "; FILE.py:CLASS is one of your own, and OFUL, the measure of all, is always there"
    for kind, more in (("policies", own), ("attacks", ""), ("environments", "")):
        parser.add_argument(f"--{kind}", type=_words, default=[], help=f"some, parted by commas (default: all{more})")
    add_engine_options(parser, "out/arena")
    parser.set_defaults(call=_arena)


def _add_alarm(commands: Any) -> None:
    parser = commands.add_parser("alarm", help="the corruption monitor on trial", description=_alarm.__doc__)
    parser.add_argument("--rounds", type=int, default=1000, help="of a trial, where it matters (default %(default)s)")
    parser.add_argument("--trials", type=int, default=150, help="of each innocent world (default %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="of all randomness (default %(default)s)")
    add_engine_options(parser, "out/alarm")
    parser.set_defaults(call=_alarm)


def _add_sweep(commands: Any) -> None:
    parser = commands.add_parser("sweep", help="where the sceptic collapses", description=_sweep.__doc__)
    parser.add_argument("--trials", type=int, default=20, help="of each scenario (default %(default)s)")
    parser.add_argument("--seed", type=int, default=3, help="of all randomness (default %(default)s)")
    parser.add_argument("--long", action="store_true", help="slow cells too, of up to 100 000 rounds")
    add_engine_options(parser, "out/sweep")
    parser.set_defaults(call=_sweep, batch=140)  # all trials of a policy in a cell: most cells are small


def _words(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _floats(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _carry_out(config: Mapping[str, Any], name: str, options: argparse.Namespace) -> tuple[Run, Result]:
    from robandit.lab.engine import carry_out

    run = Run.read(config)
    path = options.out / f"{name}.parquet"
    say = partial(print, file=sys.stderr)
    return run, carry_out(run, path, engine=engine_of(options), force=options.force, say=say)


def _numbers(options: argparse.Namespace) -> dict[str, int]:
    return {name: getattr(options, name) for name in ("rounds", "trials", "seed")}


def _tune(options: argparse.Namespace) -> None:
    """Run the policies of Figure 1 at every scale of a grid, and keep the best of each by one objective: the mean
    regret at the end over all panels, or that of the worst panel. Writes tune.parquet, scales.json and tune.png."""
    policies = {name: settings for name, settings in figure1.POLICIES.items() if name != figure1.GREEDY}
    base = _numbers(options) | figure1.world(options.dim, options.actions, options.flips)
    grids = dict.fromkeys(policies, options.grid)
    run, result = _carry_out(grid_config(base | {"checkpoints": 2}, policies, grids), "tune", options)
    tuned = tune(result.table, run.plain(), grids, options.objective)
    _save(options, "scales.json", tuned.to_json().encode())
    save_figure(options, "tune.png", sensitivity(tuned))
    for policy, scale in tuned.scales.items():
        best = min(tuned.curves[policy], key=lambda point: point.regret)
        print(f"{policy:34} {scale:9.4g}   regret {best.regret:.0f} ± {best.half:.0f}")


def _scales(options: argparse.Namespace) -> Mapping[str, float]:
    if options.radius == "theory":
        return {}
    if options.scales is None:
        return shipped().scales
    try:
        return Tuned.from_json(options.scales.read_text(encoding="utf-8")).scales
    except OSError as error:
        raise ConfigError(f"can't read {options.scales}: {error}") from None


def _figure1(options: argparse.Namespace) -> None:
    """Rerun the paper's Figure 1: six amounts of corruption, five policies, and Robust weighted OFUL once more with
    the corruption that is really there. Writes figure1.parquet, the six panels as PNG and PDF, and the table of regrets
    with the verdict on each of the paper's claims as figure1.md."""
    from robandit.figures.pictures import regret_curves

    numbers = _numbers(options)
    if options.radius == "tuned" and options.scales is None and numbers["seed"] == SEED:
        raise ConfigError(f"seed {SEED} is the one that the radius scales were tuned on; choose another")
    scales = _scales(options)
    config = figure1.config(scales, dim=options.dim, actions=options.actions, flips=options.flips, **numbers)
    _, result = _carry_out(config, "figure1", options)
    figure = regret_curves(result.table)
    for ending in ("png", "pdf"):
        save_figure(options, f"figure1.{ending}", figure)
    text = figure1_text(result, scales)
    _save(options, "figure1.md", text.encode())
    print(text)


def figure1_text(result: Result, scales: Mapping[str, float]) -> str:
    """The table of regrets and the verdicts, in Markdown."""
    header, rows = figure1.regret_rows(result.table, scales)
    numbers = result.config
    lines = [
        f"{numbers['trials']} trials of {numbers['rounds']} rounds, seed {numbers['seed']}: the regret at the end, "
        "mean and half of its 95 % interval.",
        "",
        *_markdown(header, rows),
        "",
        *_markdown(
            ["claim", "verdict", "regrets, and the 95 % interval of their difference, paired over trials"],
            [[found.claim.text(), found.verdict, found.evidence()] for found in figure1.judge(result.table)],
        ),
    ]
    return "\n".join(lines) + "\n"


def _markdown(header: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in [header, ["---"] * len(header), *rows]]


def _variance(options: argparse.Namespace) -> None:
    """Where σ_t really varies: Weighted and Multi-level weighted OFUL when they are told it, and when they are told
    R instead, each tuned for itself on the tuning seed. Writes variance-tune.parquet, variance.parquet, variance.md."""
    numbers = _numbers(options)
    config = variance.tuning_config(**numbers | {"seed": SEED})
    _, result = _carry_out(config, "variance-tune", options)
    scales = variance.choose(result.table)
    _, result = _carry_out(variance.config(scales, **numbers), "variance", options)
    header, rows = variance.rows(result.table, scales)
    text = "\n".join(_markdown(header, rows)) + "\n"
    _save(options, "variance.md", text.encode())
    print(text)


def _insurance(options: argparse.Namespace) -> None:
    """The sceptic with more and more insurance, on decision sets that stay the same: the price when nobody attacks, and
    the regret under lies that never contradict. Writes insurance.parquet, insurance.png and insurance.md."""
    from robandit.experiments.arena import insurance

    _, result = _carry_out(insurance.config(**_numbers(options)), "insurance", options)
    save_figure(options, "insurance.png", insurance.picture(result.table))
    text = "\n".join(_markdown(*insurance.rows(result.table))) + "\n"
    _save(options, "insurance.md", text.encode())
    print(text)


def _verify(options: argparse.Namespace) -> None:
    """Hold the paper's lemmas and bounds, at radius scale 1, and the corruption monitor against trials under every weak
    attack: how often they are breached, and how wide they are. Writes verify.json. The exit code is 1 if a claim
    fails."""
    from threadpoolctl import threadpool_limits
    from tqdm import tqdm

    from robandit.experiments.paper.verdicts import FAILS
    from robandit.experiments.paper.verify import RUNS, largest_ratio, verify

    names = ("rounds", "trials", "dim", "actions", "delta", "seed", "shrink")
    settings = {name: getattr(options, name) for name in names}
    with threadpool_limits(1), tqdm(total=RUNS * options.rounds, unit=" rounds", disable=None) as bar:
        found = verify(**settings, progress=bar.update)
    rows = [{"claim": row.claim, "verdict": row.verdict, "evidence": row.evidence()} for row in found.pooled()]
    words = " ".join(f"--{name} {value}" for name, value in settings.items())
    each = [{name: None if value != value else value for name, value in row._asdict().items()} for row in found.rows]
    told = {"command": f"robandit verify {words}", "largest ratio": largest_ratio(found), "monitor": found.power}
    told |= {"rows": rows, "each": each}
    _save(options, "verify.json", (json.dumps(told, indent=1, ensure_ascii=False) + "\n").encode())
    for row in rows:
        print(f"{row['verdict']:10} {row['claim']}\n{'':10} {row['evidence']}")
    print(f"\nThe farthest that an estimate was from μ* is {largest_ratio(found):.3f} of its radius.\n{found.power}")
    if any(row["verdict"] == FAILS for row in rows):
        raise RuntimeError("a claim of the paper is breached")


def _arena(options: argparse.Namespace) -> None:
    """Every policy in three worlds under every attack at two levels of corruption, each policy tuned in each world on
    the tuning seed. Writes arena.parquet, the radius scales and times as JSON, the pictures, and the scores as
    arena.md and arena.html. What it leaves in between, arena-tune-1.parquet and so on, lets it go on when stopped."""
    from robandit.experiments.arena import page as arena_page
    from robandit.experiments.arena.times import forecast, times

    numbers = _numbers(options)
    if numbers["seed"] == SEED:
        raise ConfigError(f"seed {SEED} is the one that the radius scales are tuned on; choose another")
    field = arena.entrants_of(options.policies, options.attacks, options.environments)
    workers = engine_of(options).workers or os.cpu_count() or 1
    for line in forecast(field, **numbers, tune_trials=options.tune_trials, workers=workers):
        print(line, file=sys.stderr)
    tuned, configs, results = {}, [], []
    for number, world in enumerate(field.environments, 1):
        tuned[world] = _tuned_in(field, world, f"arena-tune-{number}", options)
    _save(options, "arena-scales.json", arena.scales_json(tuned))
    for number, world in enumerate(field.environments, 1):
        configs.append(arena.config(field, world, tuned[world].scales, **numbers))
        results.append(_carry_out(configs[-1], f"arena-{number}", options)[1])
    _save(options, "arena.parquet", arena.together(results))
    taken, data = times(configs, options.out / "arena-times.json", anew=options.force)
    _save(options, "arena-times.json", data)
    _save(options, "evidence.json", arena.evidence(arena_page.all_cells(results), configs, field.told))
    pages = arena_page.tell(results, field, tuned, taken, _arena_command(options))
    for name, figure in pages.figures.items():
        save_figure(options, name, figure)
    _save(options, "arena.md", pages.markdown.encode())
    _save(options, "arena.html", pages.html.encode())
    print(pages.answer)


def _tuned_in(field: arena.Entrants, world: str, name: str, options: argparse.Namespace) -> Tuned:
    config = arena.tuning_config(field, world, rounds=options.rounds, trials=options.tune_trials)
    run, result = _carry_out(config, name, options)
    return tune(result.table, run.plain(), arena.grids(field), "mean")


def _arena_command(options: argparse.Namespace) -> str:
    sizes = " ".join(f"--{name} {getattr(options, name.replace('-', '_'))}" for name in (*arena.SETTING, "tune-trials"))
    chosen = {kind: ",".join(getattr(options, kind)) for kind in ("policies", "attacks", "environments")}
    return f"robandit arena {sizes}" + "".join(f" --{kind} '{names}'" for kind, names in chosen.items() if names)


def _sweep(options: argparse.Namespace) -> None:
    """The sceptic beside the best published policy over many settings, one factor at a time and a few corners: where
    does it collapse? Writes sweep.md, sweep.csv and sweep.png; sweep-1.parquet and so on let it go on when stopped."""
    from robandit.experiments.arena import sweep

    found: arena.Cells = {}
    for number, cell in enumerate([*sweep.CELLS, *(sweep.LONG if options.long else ())], 1):
        config = sweep.config(cell, trials=options.trials, seed=options.seed)
        found |= arena.cells(_carry_out(config, f"sweep-{number}", options)[1].table)
    long = " --long" if options.long else ""
    text = sweep.text(found, f"robandit sweep --trials {options.trials} --seed {options.seed}{long}")
    _save(options, "sweep.csv", sweep.as_csv(found).encode())
    save_figure(options, "sweep.png", sweep.picture(found))
    _save(options, "sweep.md", text.encode())
    print(text)


def _alarm(options: argparse.Namespace) -> None:
    """The corruption monitor on trial: false alarms where nobody lies, whether it ever proves more than there was, how
    much it proves under flips, every attack and large noise, and what drift raises an alarm. Writes alarm.md, alarm.png
    and the tables, alarm-level.parquet and so on. The exit code is 1 if a promise is breached."""
    from robandit.experiments.arena import alarm

    tables = {
        name: _carry_out(config, f"alarm-{name}", options)[1].table
        for name, config in alarm.configs(**_numbers(options)).items()
    }
    words = " ".join(f"--{name} {value}" for name, value in _numbers(options).items())
    text = alarm.text(tables, f"robandit alarm {words}")
    save_figure(options, "alarm.png", alarm.picture(tables))
    _save(options, "alarm.md", text.encode())
    print(text)
    if any(alarm.breached(share) for name in ("level", "truth") for share in alarm.shares(tables[name])["all"]):
        raise RuntimeError("the monitor breaks its promise")


def _report(options: argparse.Namespace) -> None:
    """Gather what the other commands left in a folder on one page, report.html, that needs nothing else."""
    from robandit.experiments.paper.report import build

    _save(options, "report.html", build(options.out).encode())


def _save(options: argparse.Namespace, name: str, data: bytes) -> None:
    from robandit.files import save_file

    path: Path = options.out / name
    if save_file(path, data, force=options.force):
        print(path, file=sys.stderr)


def save_figure(options: argparse.Namespace, name: str, figure: Any) -> None:
    from io import BytesIO

    buffer = BytesIO()
    ending = name.rpartition(".")[2]
    figure.savefig(buffer, format=ending, dpi=200, metadata={"CreationDate": None} if ending == "pdf" else None)
    _save(options, name, buffer.getvalue())
