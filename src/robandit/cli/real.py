"""The real wing of the arena: `robandit arena real`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from robandit.cli.command import Command
from robandit.cli.options import add_engine, add_out, words
from robandit.cli.output import carry_out, save, save_figure

if TYPE_CHECKING:
    from robandit.experiments.real.race import Earned, Entries
    from robandit.experiments.real.wing import World


def _options(parser: ArgumentParser) -> None:
    from robandit.experiments.real.wing import HELD_OUT, TRIALS, TUNE_TRIALS, WORLDS

    about = "Play this many shuffles of each data set (default %(default)s)."
    parser.add_argument("--trials", type=int, default=TRIALS, help=about)
    about = "Tune on this many shuffles of the other half (default %(default)s)."
    parser.add_argument("--tune-trials", type=int, default=TUNE_TRIALS, help=about)
    parser.add_argument("--seed", type=int, default=1, help="Seed all random draws with this (default %(default)s).")
    about = f"Take only these data sets, separated by commas (default: {', '.join(WORLDS)})."
    parser.add_argument("--worlds", type=words, default=[], metavar="NAME,NAME,…", help=about)
    about = f"Take the data that were held out, {', '.join(HELD_OUT)}, and the ten policies that played them."
    parser.add_argument("--held-out", action="store_true", help=about)
    about = "Take only these policies, separated by commas (default: all). OFUL and CW-OFUL always take part."
    parser.add_argument("--policies", type=words, default=[], metavar="NAME,NAME,…", help=about)
    about = "Keep the data in this folder (default %(default)s)."
    parser.add_argument("--data", type=Path, default=Path("out/data"), metavar="FOLDER", help=about)
    parser.add_argument("--fetch", action="store_true", help="Download data that are not there.")
    add_out(parser, "out/real")
    add_engine(parser)


def _real(options: Namespace) -> None:
    from robandit.experiments.real import wing
    from robandit.experiments.real.race import picture
    from robandit.policies import POLICIES

    chosen = options.worlds or (wing.HELD_OUT if options.held_out else wing.WORLDS)
    names = options.policies or (wing.HELD_OUT_POLICIES if options.held_out else POLICIES)
    names = list(dict.fromkeys([*names, "oful", "cw-oful"]))
    worlds = {name: wing.world(name, options.data, fetch=options.fetch) for name in chosen}
    found, sourced, scales = {}, {}, {}
    for name, world in worlds.items():
        entries = wing.contenders(world, names)
        scales[name] = _tuned(world, entries, options)
        for label, scale in scales[name].items():
            entries[label] = {**entries[label], "radius_scale": scale}
        config = wing.playing_config(world, entries, options.trials, options.seed)
        found[name] = _played(config, f"real-{name}", options)
        named = wing.sources_config(world, entries, options.trials, options.seed)
        if named is not None:
            sourced[name] = _played(named, f"real-{name}-sources", options)
        replay = world.replay("play")
        figure = picture(found[name], wing.SHARE, replay.hindsight().value, replay.uniform)
        save_figure(options.out / f"real-{name}.png", figure, force=options.force)
    save(options.out / "real.json", wing.as_json(found, scales), force=options.force)
    title = "The held-out data" if options.held_out else "The real wing"
    text = wing.page(found, sourced, scales, worlds, title=title, command=_command(options))
    save(options.out / "real.md", text.encode(), force=options.force)
    print(text, end="")


def _tuned(world: World, entries: Entries, options: Namespace) -> dict[str, float]:
    """The scale of each policy that earns most on the people who do not play, over clean and fraudulent replays."""
    from robandit.experiments.real import wing
    from robandit.experiments.tune import label

    config = wing.tuning_config(world, entries, options.tune_trials)
    earned = _played(config, f"real-{world.name}-tune", options)
    return {
        policy: max(grid, key=lambda scale: wing.both(earned[label(policy, scale)]))
        for policy, grid in wing.grids(entries).items()
    }


def _played(config: dict[str, object], name: str, options: Namespace) -> Earned:
    from robandit.experiments.real.race import earned

    return earned(carry_out(config, name, options)[1].last_round())


def _command(options: Namespace) -> str:
    held_out = " --held-out" if options.held_out else ""
    lists = {"worlds": options.worlds, "policies": options.policies}
    chosen = "".join(f" --{name} '{','.join(given)}'" for name, given in lists.items() if given)
    sizes = f"--trials {options.trials} --tune-trials {options.tune_trials} --seed {options.seed}"
    return f"robandit arena real{held_out} {sizes}{chosen} --fetch"


REAL = Command(
    "real",
    "Replay real data with injected fraud.",
    "Let all policies play the decisions of real people again: suppliers of\n"
    "electricity, Swissmetro and MovieLens, clean and with bots in 5, 10 and 20 % of\n"
    "the rounds. Radii are tuned on other people. The data come from packages that\n"
    "others publish (`robandit data`). Writes real.md, real.json, pictures and the\n"
    "tables, which let a stopped run continue. Give --held-out a folder of its own.",
    _options,
    _real,
)
