"""The experiments beyond the paper: `robandit arena race` and `alarm`."""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from functools import partial
from typing import TYPE_CHECKING, Any

from robandit.cli.command import Command, CommandGroup
from robandit.cli.options import add_engine, add_out, add_sizes, engine_of, sizes_of, words
from robandit.cli.output import carry_out, save, save_figure, say
from robandit.cli.real import REAL
from robandit.errors import ConfigError

if TYPE_CHECKING:
    from robandit.experiments.arena.race import Entrants
    from robandit.experiments.tune import Tuned
    from robandit.lab.results import Result

# race


def _race_options(parser: ArgumentParser) -> None:
    from robandit.experiments.arena.race import SETTING, TUNE_TRIALS

    add_sizes(parser, **SETTING)
    parser.add_argument(
        "--tune-trials",
        type=int,
        default=TUNE_TRIALS,
        help="Repeat each scenario of the tuning this many times (default %(default)s).",
    )
    own = " Your own class is FILE.py:CLASS."
    yardstick = f"{own} OFUL, the yardstick, always takes part."
    for kind, more in (("policies", yardstick), ("attacks", own), ("environments", "")):
        about = f"Take only these {kind}, separated by commas (default: all).{more}"
        parser.add_argument(f"--{kind}", type=words, default=[], metavar="NAME,NAME,…", help=about)
    add_out(parser, "out/arena")
    add_engine(parser)


def _race(options: Namespace) -> None:
    from robandit.experiments.arena import race
    from robandit.experiments.arena.times import forecast
    from robandit.experiments.tune import SEED

    sizes = sizes_of(options)
    if sizes["seed"] == SEED:
        raise ConfigError(f"seed {SEED} is the one that the radius scales are tuned on; choose another")
    entrants = race.entrants_of(options.policies, options.attacks, options.environments)
    workers = engine_of(options).workers or os.cpu_count() or 1
    for line in forecast(entrants, **sizes, tune_trials=options.tune_trials, workers=workers):
        say(line)
    tuned, configs, results = {}, [], []
    for number, world in enumerate(entrants.environments, 1):
        tuned[world] = _tuned_in(entrants, world, f"arena-tune-{number}", options)
    save(options.out / "arena-scales.json", race.scales_json(tuned), force=options.force)
    for number, world in enumerate(entrants.environments, 1):
        configs.append(race.config(entrants, world, tuned[world].scales, **sizes))
        results.append(carry_out(configs[-1], f"arena-{number}", options)[1])
    save(options.out / "arena.parquet", partial(race.write_together, results), force=options.force)
    _tell(entrants, tuned, configs, results, options)


def _tuned_in(entrants: Entrants, world: str, name: str, options: Namespace) -> Tuned:
    """Tune every policy in one world."""
    from robandit.experiments.arena import race
    from robandit.experiments.tune import tune

    config = race.tuning_config(entrants, world, rounds=options.rounds, trials=options.tune_trials)
    run, result = carry_out(config, name, options)
    return tune(result.last_round(), run.plain(), race.grids(entrants), "mean")


def _tell(
    entrants: Entrants,
    tuned: dict[str, Tuned],
    configs: list[dict[str, Any]],
    results: list[Result],
    options: Namespace,
) -> None:
    """Time the policies, and write the scores and the pages."""
    from robandit.experiments.arena import page, race
    from robandit.experiments.arena.times import times

    taken, data = times(configs, options.out / "arena-times.json", anew=options.force)
    save(options.out / "arena-times.json", data, force=options.force)
    evidence = race.evidence(page.all_cells(results), configs, entrants.told)
    save(options.out / "evidence.json", evidence, force=options.force)
    pages = page.tell(results, entrants, tuned, taken, _race_command(options))
    for name, figure in pages.figures.items():
        save_figure(options.out / name, figure, force=options.force)
    save(options.out / "arena.md", pages.markdown.encode(), force=options.force)
    save(options.out / "arena.html", pages.html.encode(), force=options.force)
    print(pages.answer)


def _race_command(options: Namespace) -> str:
    """The command that makes the same again."""
    sizes = sizes_of(options) | {"tune-trials": options.tune_trials}
    chosen = {kind: ",".join(getattr(options, kind)) for kind in ("policies", "attacks", "environments")}
    return " ".join(
        ["robandit arena race", *(f"--{name} {value}" for name, value in sizes.items())]
        + [f"--{kind} '{names}'" for kind, names in chosen.items() if names]
    )


# alarm


def _alarm_options(parser: ArgumentParser) -> None:
    add_sizes(parser, rounds=1000, trials=150)
    add_out(parser, "out/alarm")
    add_engine(parser)


def _alarm(options: Namespace) -> None:
    from robandit.experiments.arena import alarm

    sizes = sizes_of(options)
    tables = {
        name: carry_out(config, f"alarm-{name}", options)[1].table for name, config in alarm.configs(**sizes).items()
    }
    text = alarm.text(tables, " ".join(["robandit arena alarm", *(f"--{name} {sizes[name]}" for name in sizes)]))
    save_figure(options.out / "alarm.png", alarm.picture(tables), force=options.force)
    save(options.out / "alarm.md", text.encode(), force=options.force)
    print(text)
    if any(alarm.breached(share) for name in ("level", "truth") for share in alarm.shares(tables[name])["all"]):
        raise RuntimeError("the monitor breaks its promise")


ARENA = CommandGroup(
    "arena",
    "Compare policies under attack: race, alarm, real.",
    "Experiments beyond the paper: compare the policies, and put the corruption\nmonitor to the test.",
    {
        "The arena's experiments": [
            Command(
                "race",
                "Race every policy under every attack, to see which to use.",
                "Race every policy in every world under every attack at two levels of\n"
                "corruption, each policy tuned in each world on the tuning seed. Writes\n"
                "arena.parquet, the radius scales and times as JSON, the pictures, and the\n"
                "scores as arena.md and arena.html. The files in between, arena-tune-1.parquet\n"
                "and so on, let a stopped run continue.",
                _race_options,
                _race,
            ),
            Command(
                "alarm",
                "Put the corruption monitor to the test.",
                "Put the corruption monitor to the test: how often it raises a false alarm,\n"
                "whether it ever proves more corruption than there was, how much it proves\n"
                "under flips, every attack and large noise, and what drift raises an alarm.\n"
                "Writes alarm.md, alarm.png and the tables, alarm-level.parquet and so on. The\n"
                "exit code is 1 if a promise is breached.",
                _alarm_options,
                _alarm,
            ),
            REAL,
        ]
    },
)
