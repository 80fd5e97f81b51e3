"""The command line: parse, call, print."""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import textwrap
import time
from collections.abc import Sequence
from dataclasses import MISSING
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import robandit
from robandit.cli import evaluate as evaluate
from robandit.cli import service as service
from robandit.cli.experiments import add_commands, add_engine_options, engine_of, save_figure
from robandit.errors import ConfigError
from robandit.lab.catalogue import CATALOGUE, describe, find
from robandit.lab.plan import SET_BY_THE_RUN, Run, read_text

_NEEDED: dict[str | None, tuple[str, ...]] = {
    "lab": ("joblib", "matplotlib", "pyarrow", "threadpoolctl", "tqdm"),
    "serve": ("apsw", "msgspec", "starlette", "uvicorn"),
    None: (),
}
"""The modules that commands need beyond NumPy, by the extra that brings them."""

_EXITS = """\
exit codes: 0 done; 1 the run failed; 2 wrong options or configuration, or something is in the way, and nothing was
written; 130 stopped from the keyboard"""

_SIMULATE = f"""\
Race policies through environments under attacks, and save a tidy table.

A policy, attack or environment is given as its name and settings, NAME,KEY=VALUE,…: see `robandit policies`, `robandit
attacks` and `robandit environments`. A value in brackets, KEY=[1,2,3], stands for one run with each. Your own class is
named by its place, FILE.py:CLASS or MODULE:CLASS.

The same can be said in a TOML file (--config); options given beside it take the place of what it says:

  rounds = 10000
  trials = 10
  environments = ["paper"]
  [[attacks]]
  name = "flip"
  rounds = [0, 30, 90]
  [[policies]]
  name = "oful"
  radius_scale = 0.4

A run that is stopped, even by a power cut, goes on where it was when the same command is given again. The result
depends on the configuration alone, bit for bit: not on workers, engine or batch.

{_EXITS}"""


_AUDIT = f"""\
Was this feedback tampered with? Reads a log of rewards, from Parquet, CSV or NDJSON, and says how much corruption is
proved in it, on one page of HTML. docs/monitor.md says what the proof rests on.

A row is a round: the features of the action that was taken, the reward that came back, and perhaps where it came from.
Rows must stand in the order of the decisions. Rows that can't be used are counted and shown, never dropped silently;
but a log from which rows were dropped because of their values proves nothing.

  robandit audit clicks.parquet --noise 0.5 --source partner --time shown_at

{_EXITS}"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; gives its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        _require(options.extra)
        options.call(options)
    except KeyboardInterrupt:
        print("\nstopped; a run goes on from here if the same command is given again", file=sys.stderr)
        return 130
    except BrokenPipeError:  # whoever read the output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except FileNotFoundError as error:
        print(f"robandit: there is no {error.filename or error}", file=sys.stderr)
        return 1
    except (ConfigError, FileExistsError) as error:
        print(f"robandit: {error}", file=sys.stderr)
        return 2
    except (OSError, ValueError, RuntimeError) as error:
        print(f"robandit: {error}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="robandit", description="Bandits that can't be bought.", epilog=_EXITS, formatter_class=raw
    )
    parser.set_defaults(extra="lab")
    parser.add_argument("--version", action="version", version=f"robandit {robandit.__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    simulate = commands.add_parser(
        "simulate", help="race policies under attack", description=_SIMULATE, formatter_class=raw
    )
    _simulate_options(simulate)
    for kind, (_, base) in CATALOGUE.items():
        about = f"list the {kind} there are"
        listing = commands.add_parser(kind, help=about, description=f"{about.capitalize()}, one line each.")
        listing.add_argument("name", nargs="?", help=f"show the settings of this {base.__name__.lower()}")
        listing.set_defaults(call=_list, kind=kind, extra=None)
    plot = commands.add_parser("plot", help="draw a saved result", description="Draw a saved result.", epilog=_EXITS)
    plot.add_argument("result", type=Path, help="what `robandit simulate` saved")
    plot.add_argument("--out", type=Path, help="the folder for the pictures (default: where the result is)")
    plot.add_argument("--format", choices=("png", "pdf", "svg"), default="png", help="(default %(default)s)")
    plot.add_argument("--force", action="store_true", help="replace pictures that are there already")
    plot.set_defaults(call=_plot)
    audit = commands.add_parser(
        "audit", help="how much corruption is proved in a log", description=_AUDIT, formatter_class=raw
    )
    _audit_options(audit)
    add_commands(commands)
    evaluate.add_command(commands, _EXITS)
    service.add_commands(commands)
    return parser


def _simulate_options(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to run")
    what.add_argument("--config", type=Path, metavar="FILE", help="a TOML file with the whole configuration")
    for name, default in (("policy", ""), ("attack", " (default: none)"), ("environment", " (default: paper)")):
        what.add_argument(f"--{name}", action="append", metavar="NAME,KEY=VALUE", help=f"one or more{default}")
    what.add_argument("--rounds", type=int, help="rounds of a trial (default 1000)")
    what.add_argument("--trials", type=int, help="trials of each (default 10)")
    what.add_argument("--seed", type=int, help="of all randomness (default 1)")
    what.add_argument("--checkpoints", type=int, help="rounds to record, about (default 100)")
    what.add_argument(
        "--monitor",
        nargs="?",
        type=float,
        const=True,
        metavar="NOISE",
        help="let a corruption monitor ride along, told the noise's sub-Gaussian scale (default: the environment's)",
    )
    add_engine_options(parser, "run.parquet")
    parser.set_defaults(call=_simulate)


def _simulate(options: argparse.Namespace) -> None:
    from robandit.lab.engine import carry_out

    given = {name: getattr(options, name) for name in ("rounds", "trials", "seed", "checkpoints", "monitor")}
    given |= {
        kind: values and [read_text(value) for value in values]
        for kind, values in zip(CATALOGUE, (options.environment, options.attack, options.policy), strict=True)
    }
    given = {name: value for name, value in given.items() if value is not None}
    run = Run.read_file(options.config, **given) if options.config else Run.read(given)
    engine = engine_of(options)
    start = time.perf_counter()
    say = partial(print, file=sys.stderr)
    result = carry_out(run, options.out, engine=engine, force=options.force, say=say)
    seconds = time.perf_counter() - start
    _summarise(result.table)
    print(f"{run.size:,} rounds in {seconds:.1f} s, saved in {options.out}")


def _summarise(table: Any) -> None:
    """The regret at the end, for each scenario and policy, with the corruption that was realised and that proved."""
    from robandit.lab.summary import proofs, summary

    proved = proofs(table)
    more = ("proved", "alarms") if proved else ()
    rows: list[tuple[str, ...]] = [("environment", "attack", "C", "realised", "policy", "regret", *more)]
    for case, policies in summary(table).items():
        for policy, curve in policies.items():
            label = "-" if case.corruption is None else f"{case.corruption:g}"
            half = f" ± {curve.half[-1]:.1f}" if curve.trials > 1 else ""
            regret = f"{curve.mean[-1]:.1f}{half}"
            found = proved[case][policy] if proved else None
            alarm = (f"{found.proved:.2f} of {found.played:.1f}", f"{found.alarms}/{found.trials}") if found else ()
            rows.append((case.environment, case.attack, label, f"{curve.realised:.1f}", policy, regret, *alarm))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _list(options: argparse.Namespace) -> None:
    """What there is, or the settings of one."""
    registered, _ = CATALOGUE[options.kind]
    if options.name is None:
        for name, found in registered.items():
            strength = f"{found.strength:7}" if hasattr(found, "strength") else ""
            print(f"{name:26} {strength}{_first_line(found)}")
        return
    found = find(options.kind, options.name)
    print(f"{inspect.getdoc(found)}\n\nSettings:")
    for field in describe(found):
        if options.kind != "policies" or field.name not in SET_BY_THE_RUN:
            default = "" if field.default is MISSING else f" (default {field.default})"
            print(textwrap.fill(f"{field.name}{default}: {field.meaning}", 100, subsequent_indent="    "))


def _first_line(found: type) -> str:
    return (found.__doc__ or "").strip().splitlines()[0]


def _plot(options: argparse.Namespace) -> None:
    from robandit.figures.pictures import PICTURES
    from robandit.lab.results import read

    table = read(options.result).table
    options.out = options.out or options.result.parent
    paths = {name: options.out / f"{options.result.stem}-{name}.{options.format}" for name in PICTURES}
    taken = [str(path) for path in paths.values() if path.exists()]
    if taken and not options.force:
        raise FileExistsError(f"{', '.join(taken)} would be overwritten; choose another --out, or say --force")
    for name, draw in PICTURES.items():
        figure = draw(table)
        if figure is not None:
            save_figure(options, paths[name].name, figure)


def _audit_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("log", type=Path, help="a .parquet, .csv or .ndjson file; the latter two may be .gz as well")
    which = parser.add_argument_group("which columns")
    which.add_argument(
        "--features",
        metavar="COLUMNS",
        help="names or patterns such as 'x*', parted by commas, or one column of lists (default: features or action if "
        "it holds lists, else all of x0, x1, … or f0, f1, … or feature_…)",
    )
    which.add_argument("--reward", metavar="COLUMN", default="reward", help="(default %(default)s)")
    which.add_argument("--sigma", metavar="COLUMN", help="the noise's sub-Gaussian scale, where each row has its own")
    which.add_argument("--source", metavar="COLUMN", help="where a reward came from, to find out who is to blame")
    which.add_argument("--time", metavar="COLUMN", help="when it was decided; it must never fall from row to row")
    what = parser.add_argument_group("what is known of honest feedback")
    what.add_argument(
        "--noise",
        metavar="S",
        type=float,
        required=True,
        help="its sub-Gaussian scale: R if |noise| <= R, 0.5 if honest rewards lie in [0, 1]",
    )
    bound = "honest rewards are the features times a parameter, whose norm is at most this (default %(default)s)"
    what.add_argument("--parameter-bound", metavar="B", type=float, default=1.0, help=bound)
    what.add_argument(
        "--reward-range",
        type=_range,
        metavar="LOW,HIGH",
        help="where honest rewards lie (with a sign, as in --reward-range=-1,1)",
    )
    what.add_argument("--delta", type=float, default=0.05, help="how often a proof may be wrong (default %(default)s)")
    what.add_argument("--sources", type=int, help="tell at most so many sources apart (default 100, given --source)")
    what.add_argument(
        "--looks",
        type=int,
        default=60,
        help="looks at a log of a million rows, about; they are log-spaced (default %(default)s)",
    )
    where = parser.add_argument_group("where")
    where.add_argument("--format", choices=("parquet", "csv", "ndjson"), help="(default: by the log's suffix)")
    where.add_argument("--out", type=Path, help="the page (default: LOG's name with -audit.html, beside it)")
    where.add_argument("--force", action="store_true", help="replace what is there")
    parser.set_defaults(call=_audit)


def _range(text: str) -> tuple[float, float]:
    low, high = text.split(",")
    return float(low), float(high)


def _audit(options: argparse.Namespace) -> None:
    from threadpoolctl import threadpool_limits
    from tqdm import tqdm

    from robandit.files import save_file
    from robandit.logs.audit import SOURCES, AuditSettings, audit
    from robandit.logs.audit.page import build
    from robandit.logs.audit.tables import stem

    path: Path = options.log
    out = options.out or path.with_name(f"{stem(path)}-audit.html")
    if out.resolve() == path.resolve():
        raise ConfigError(f"--out {out} is the log itself")
    if options.sources is not None and options.source is None:
        raise ConfigError("--sources needs --source, the column that they stand in")
    kept = ("noise", "parameter_bound", "delta", "reward_range", "looks")
    sources = 0 if options.source is None else SOURCES if options.sources is None else options.sources
    settings = AuditSettings(**{name: getattr(options, name) for name in kept}, sources=sources)
    columns = {name: getattr(options, name) for name in ("features", "reward", "sigma", "source", "time")}
    with threadpool_limits(1), tqdm(unit_scale=True, disable=None) as bar:

        def progress(done: int, size: int, unit: str) -> None:
            bar.total, bar.unit = size, unit
            bar.update(done - bar.n)

        found = audit(path, settings, kind=options.format, progress=progress, **columns)
    print(found.certificate.sentence)
    if found.bad.count:
        print(f"{found.bad.count:,} of {found.rows:,} rows were left out:", *found.bad.lines(), sep="\n  ")
    if save_file(out, build(found).encode(), force=options.force):
        print(out, file=sys.stderr)


def _require(extra: str | None) -> None:
    missing = [module for module in _NEEDED[extra] if find_spec(module) is None]
    if missing:
        raise ConfigError(f"this command needs {', '.join(missing)} as well: pip install 'robandit[{extra}]'")
