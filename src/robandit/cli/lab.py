"""The lab: `robandit simulate`, `robandit plot` and `robandit list`."""

from __future__ import annotations

import inspect
import textwrap
import time
from argparse import ArgumentParser, Namespace
from dataclasses import MISSING
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robandit.cli.command import Command, CommandGroup, require
from robandit.cli.options import add_engine, add_out, engine_of
from robandit.cli.output import save_figure, say

if TYPE_CHECKING:
    from robandit.lab.plan import Run

# simulate

_SIMULATE = """\
Let policies play in environments under attacks, and save their regret as a
tidy table.

A policy, attack or environment is given as its name and settings,
NAME,KEY=VALUE,…. `robandit list policies`, `robandit list attacks` and
`robandit list environments` show what there is. A value in brackets,
KEY=[1,2,3], stands for one run with each. Your own class is named by its
place, FILE.py:CLASS or MODULE:CLASS.

A TOML file (--config) can say the same; options beside it replace what it says:

  rounds = 10000
  trials = 10
  environments = ["paper"]
  [[attacks]]
  name = "flip"
  rounds = [0, 30, 90]
  [[policies]]
  name = "oful"
  radius_scale = 0.4

A run that was stopped, even by a power cut, continues where it was when the
same command is given again. The result depends on the configuration alone,
bit for bit, and not on the workers, the engine or the batch.

With --device cuda and --out FILE.npz, a run of very many trials is summed up on
the GPU. --from FILE.npz makes a table of it, there or elsewhere."""


def _simulate_options(parser: ArgumentParser) -> None:
    what = parser.add_argument_group("what to run")
    what.add_argument("--config", type=Path, metavar="FILE", help="Read the whole configuration from this TOML file.")
    for name, default in (("policy", ""), ("attack", " (default: none)"), ("environment", " (default: paper)")):
        about = f"Add this {name}; the option may be repeated{default}."
        what.add_argument(f"--{name}", action="append", metavar="NAME,KEY=VALUE", help=about)
    what.add_argument("--rounds", type=int, help="Play this many rounds in each trial (default 1000).")
    what.add_argument("--trials", type=int, help="Repeat each scenario this many times (default 10).")
    what.add_argument("--seed", type=int, help="Seed all random draws with this number (default 1).")
    what.add_argument("--checkpoints", type=int, help="Record about this many rounds of each trial (default 100).")
    what.add_argument(
        "--monitor",
        nargs="?",
        type=float,
        const=True,
        metavar="NOISE",
        help="Let a corruption monitor watch. It is told the sub-Gaussian scale of the noise (default: the "
        "environment's own).",
    )
    add_out(parser, "run.parquet", "the table to this file")
    add_engine(parser)


def _simulate(options: Namespace) -> None:
    start = time.perf_counter()
    if options.out.suffix == ".npz":
        size = _condense(options)
    else:
        require("lab")
        size = _tabulate(options)
    print(f"{size:,} rounds in {time.perf_counter() - start:.1f} s, saved in {options.out}")


def _condense(options: Namespace) -> int:
    """Sum a run up on a GPU, for which NumPy and PyTorch are enough. Gives the number of rounds."""
    from robandit.lab.gpu.condense import condense, save_condensed

    run = _run_of(options)
    save_condensed(options.out, condense(run), force=options.force)
    return run.size


def _tabulate(options: Namespace) -> int:
    """Carry out a run, or take one that was summed up, and print its means. Gives the number of rounds."""
    from robandit.experiments.notebook.shown import means
    from robandit.lab.condensed import load_condensed, read_condensed
    from robandit.lab.engine import carry_out

    if options.source is not None:
        run, _ = read_condensed(options.source)
        result = load_condensed(options.source, options.out, force=options.force)
    else:
        run = _run_of(options)
        result = carry_out(run, options.out, engine=engine_of(options), force=options.force, say=say)
    print(means(result.last_round()))
    return run.size


def _run_of(options: Namespace) -> Run:
    """The run that the file and the options describe together."""
    from robandit.inputs import read_text
    from robandit.lab.catalogue import CATALOGUE
    from robandit.lab.plan import Run

    given = {name: getattr(options, name) for name in ("rounds", "trials", "seed", "checkpoints", "monitor", "device")}
    given |= {
        kind: values and [read_text(value) for value in values]
        for kind, values in zip(CATALOGUE, (options.environment, options.attack, options.policy), strict=True)
    }
    given = {name: value for name, value in given.items() if value is not None}
    return Run.read_file(options.config, **given) if options.config else Run.read(given)


SIMULATE = Command(
    "simulate",
    "Let policies play under attack, and save their regret.",
    _SIMULATE,
    _simulate_options,
    _simulate,
    extra=None,  # a GPU machine may lack what tables need
)

# plot


def _plot_options(parser: ArgumentParser) -> None:
    parser.add_argument("result", type=Path, help="The table that `robandit simulate` saved.")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="Write the pictures here (default: beside the table)."
    )
    parser.add_argument(
        "--format", choices=("png", "pdf", "svg"), default="png", help="Draw in this format (default %(default)s)."
    )
    parser.add_argument(
        "--bands",
        choices=("interval", "quantiles"),
        default="interval",
        help="Draw the mean with its interval, or the median with bands that hold half and 90 %% of the trials "
        "(default %(default)s).",
    )
    parser.add_argument("--force", action="store_true", help="Replace pictures that are there already.")


def _plot(options: Namespace) -> None:
    from robandit.figures.pictures import PICTURES, regret_curves
    from robandit.lab.results import read

    table = read(options.result).table
    folder = options.out or options.result.parent
    paths = {name: folder / f"{options.result.stem}-{name}.{options.format}" for name in PICTURES}
    taken = [str(path) for path in paths.values() if path.exists()]
    if taken and not options.force:
        raise FileExistsError(f"{', '.join(taken)} would be overwritten; choose another --out, or say --force")
    for name, draw in PICTURES.items():
        figure = draw(table, options.bands) if draw is regret_curves else draw(table)
        if figure is not None:
            save_figure(paths[name], figure, force=options.force)


PLOT = Command(
    "plot",
    "Draw the pictures of a saved simulation.",
    "Draw the table that `robandit simulate` saved: the regret over the rounds, the\n"
    "regret against the corruption, how it is spread over trials, and the levels of\n"
    "the policies that have levels.",
    _plot_options,
    _plot,
)

# list


def _list_options(parser: ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", help="Show what this one does, and its settings.")


def _list(kind: str, options: Namespace) -> None:
    from robandit.lab.catalogue import CATALOGUE, find

    if options.name is not None:
        _describe(kind, find(kind, options.name))
        return
    registered, _ = CATALOGUE[kind]
    for name, found in registered.items():
        strength = f"{found.strength:7}" if hasattr(found, "strength") else ""
        print(f"{name:26} {strength}{(found.__doc__ or '').strip().splitlines()[0]}")


def _describe(kind: str, found: Any) -> None:
    """Print what a class does, and its settings."""
    from robandit.lab.plan import SET_BY_THE_RUN
    from robandit.policies.settings import describe

    about, *_ = (inspect.getdoc(found) or "").partition("\n\nSettings:\n")  # of policies `help` shows them, too
    print(f"{about}\n\nSettings:")
    for setting in describe(found):
        if kind != "policies" or setting.name not in SET_BY_THE_RUN:
            default = "" if setting.default is MISSING else f" (default {setting.default})"
            print(textwrap.fill(f"{setting.name}{default}: {setting.meaning}", 100, subsequent_indent="    "))


def _listing(kind: str, about: str) -> Command:
    description = f"{about}\nWith a name, print what it does and its settings."
    return Command(kind, about, description, _list_options, partial(_list, kind), extra=None)


LIST = CommandGroup(
    "list",
    "List the policies, attacks or environments, or the settings of one.",
    "List what there is to choose from, one line each; with a name, print what it\n"
    "does and its settings, as in `robandit list policies oful`.",
    {
        "Lists": [
            _listing("policies", "List the policies, which choose actions."),
            _listing("attacks", "List the attacks, which tamper with rewards."),
            _listing("environments", "List the environments, which draw actions and rewards."),
        ]
    },
)
