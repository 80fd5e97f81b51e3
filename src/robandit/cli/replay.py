"""One's own decisions, played again: `robandit replay`."""

from __future__ import annotations

import hashlib
from argparse import ArgumentParser, Namespace
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robandit.cli.command import Command
from robandit.cli.options import add_engine, add_out, words
from robandit.cli.output import carry_out, save, save_figure
from robandit.errors import ConfigError

if TYPE_CHECKING:
    from robandit.experiments.real.race import Entries
    from robandit.lab.environments import Replay

_REPLAY = """\
Let policies play your own decisions again, clean and with bots among the
visitors, and see what each would have earned. docs/how-to/replay.md says more.

FILE is CSV or Parquet. A row is an action that could be taken: the decision set
that it belongs to (round), its features, and the reward that it brings, from 0
to 1. Every trial shuffles the decisions. Features are fitted on one half of the
people, or of the decisions without --person, and the other half is played.

  robandit replay choices.csv --round visit --reward clicked --person customer

In a log only the action taken has a reward, and a column says with which
probability it was taken. With --propensity, policies are judged by rejection
replay, and by the estimates of `robandit evaluate`:

  robandit replay log.parquet --propensity p"""

_ROLES = {
    "round": ("round", "The same for all actions of a decision set"),
    "reward": ("reward", "The rewards, from 0 to 1"),
    "action": (None, "The names of the actions, which are no features"),
    "order": (None, "Play in the order of this, such as a time; by default decisions are shuffled"),
    "source": (None, "Where a visitor came from, for policies that tell sources apart"),
    "person": (None, "Who decided; without it, halves are of decisions"),
    "propensity": (None, "The probability with which an action of a log was taken"),
}


def _options(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="A .parquet or .csv file.")
    which = parser.add_argument_group("which columns")
    about = "The features, names or patterns such as 'x*' separated by commas (default: all columns without a role)."
    which.add_argument("--features", metavar="COLUMNS", help=about)
    for name, (default, meaning) in _ROLES.items():
        about = f"{meaning}{' (default %(default)s)' if default else ''}."
        which.add_argument(f"--{name}", metavar="COLUMN", default=default, help=about)
    what = parser.add_argument_group("what to play")
    about = "Add this policy; the option may be repeated (default: what `recommend` answers, OFUL, CW-OFUL and Greedy)."
    what.add_argument("--policy", action="append", metavar="NAME,KEY=VALUE", help=about)
    about = "Send bots in these shares of the rounds, separated by commas (default 0.2)."
    what.add_argument("--bots", type=words, default=["0.2"], metavar="SHARE,SHARE,…", help=about)
    about = "Play this many rounds (default: every decision once)."
    what.add_argument("--rounds", type=int, help=about)
    what.add_argument("--trials", type=int, default=20, help="Play this many shuffles (default %(default)s).")
    what.add_argument("--seed", type=int, default=1, help="Seed all random draws with this (default %(default)s).")
    add_out(parser, "out/replay")
    add_engine(parser)


def _replay(options: Namespace) -> None:
    if options.propensity is not None:
        _log(options)
        return
    from robandit.experiments.real import race
    from robandit.figures.tables import markdown, text

    shares = [_share(part) for part in options.bots]
    world = _world(options)
    replay = _made(world)
    lines = _about(replay)
    print("\n".join(lines) + "\n")
    rounds = options.rounds or len(replay.sets)
    numbers = {"rounds": rounds, "trials": options.trials, "seed": options.seed}
    config = race.config(world, _entries(replay, rounds, options), race.attacks(rounds, shares), **numbers)
    found = race.earned(carry_out(config, "replay", options)[1].last_round())
    tables = [race.score_rows(found, share) for share in shares]
    for header, rows in tables:
        print("\n".join([*text([header, *rows]), ""]))
    page = [*lines, *(line for header, rows in tables for line in ["", *markdown(header, rows)]), ""]
    save(options.out / "replay.md", "\n".join(page).encode(), force=options.force)
    figure = race.picture(found, shares[-1], replay.hindsight().value, replay.uniform)
    save_figure(options.out / "replay.png", figure, force=options.force)
    save_figure(options.out / "replay-calibration.png", race.calibration(replay.linearity()), force=options.force)


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0.0 < share < 1.0:
        raise ConfigError(f"--bots must be shares between 0 and 1, got {text!r}")
    return share


def _world(options: Namespace) -> dict[str, Any]:
    """The environment as a run takes it: the half that is played, if there are people."""
    digest = hashlib.sha256(options.file.read_bytes()).hexdigest()
    names = [name for name in (*_ROLES, "features") if name != "propensity" and getattr(options, name) is not None]
    half = {} if options.order is not None else {"half": "play"}
    about = {"data": str(options.file), "digest": digest, **half}
    return {"name": "replay", "label": options.file.stem, **about, **{name: getattr(options, name) for name in names}}


def _made(world: dict[str, Any]) -> Replay:
    """The environment, if policies can be told of it that rewards are from 0 to 1."""
    from robandit.lab.environments import Replay

    try:
        replay = Replay(**{name: value for name, value in world.items() if name not in ("name", "label")})
    except ValueError as error:
        raise ConfigError(str(error)) from None
    low, high = replay.sets.rewards.min(), replay.sets.rewards.max()
    if low < 0.0 or high > 1.0:
        raise ConfigError(f"rewards must lie from 0 to 1, got {low:g} to {high:g}; divide them by what is possible")
    return replay


def _about(replay: Replay) -> list[str]:
    """What there is to be earned, and how linear it is."""
    sizes, fit, best = replay.sets.sizes, replay.linearity(), replay.hindsight()
    many = f"{sizes.min()}" if replay.set_size else f"{sizes.min()} to {sizes.max()}"
    return [
        f"{len(replay.sets):,} decisions among {many} actions with {replay.dim} features.",
        f"Uniform play earns {replay.uniform:.3f}, the best linear policy in hindsight {best.value:.3f} ({best.how}).",
        f"Fitted on others, a linear model earns {fit.linear:.3f} and a logistic one {fit.logistic:.3f}: "
        f"linear loses {100 * fit.loss:.1f} ± {100 * fit.half:.1f} %.",
    ]


def _entries(replay: Replay, rounds: int, options: Namespace) -> Entries:
    """The policies to play, by label."""
    from robandit.experiments.real import race
    from robandit.inputs import read_text
    from robandit.lab.plan import read_entries

    if options.policy is None:
        found = race.entries(replay, ["oful", "cw-oful", "greedy"])
        return {
            **found,
            "CWOFUL": {**found["CWOFUL"], "radius_scale": 0.1},
            "OFUL": {**found["OFUL"], "radius_scale": 0.25},
        }
    given = read_entries("policies", [read_text(text) for text in options.policy])
    found = race.entries(replay, [])
    return found | {entry.label: race.declared({**entry.plain()}) for entry in given}


# Logs.


def _log(options: Namespace) -> None:
    """Judge policies on a log, of which only the actions taken have a reward."""
    from robandit.cli.logs import lines
    from robandit.figures.tables import text
    from robandit.inputs import read_text
    from robandit.lab.environments.decision_sets import ReplayColumns, read_sets
    from robandit.lab.plan import read_entries
    from robandit.logs.evaluate import UNIFORM, evaluate
    from robandit.logs.rejection import as_log, rejection_replay

    columns = ReplayColumns(**{name: getattr(options, name) for name in (*_ROLES, "features")})
    try:
        log = read_sets(options.file, columns)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    given = options.policy or ["oful,radius_scale=0.25", "greedy"]
    policies = read_entries("policies", [read_text(one) for one in given])
    rows = [["policy", "mean reward", "rounds kept"]]
    for entry in policies:
        found = rejection_replay(log, _policy(entry, log.vectors.shape[1], len(log), options), seed=options.seed)
        rows.append(
            [entry.label, f"{found.rewards.mean():.3f} ± {found.rewards.std():.3f}", f"{found.kept.mean():.0f}"]
        )
    print("\n".join(["Rejection replay, over shuffles:", "", *text(rows), ""]))
    print("Only rounds in which the policy does what was done are kept: with K actions about one in K, and fewer where")
    print("propensities differ. A policy learns from those alone, so this says what it earns in as few rounds.\n")
    print("\n".join(lines(evaluate(as_log(log), [UNIFORM, *policies], seed=options.seed))))


def _policy(entry: Any, dim: int, rounds: int, options: Namespace) -> Any:
    """A policy for a batch of shuffles."""
    from robandit.lab.catalogue import find

    made = find("policies", entry.kind)
    usual = {"noise_range": 1.0, "horizon": rounds, "corruption": None}
    has = {item.name for item in fields(made)}
    settings = {name: value for name, value in usual.items() if name in has} | dict(entry.settings)
    return made(dim=dim, trials=options.trials, seed=options.seed, **settings)


REPLAY = Command(
    "replay", "Let policies play your own decisions again, with bots among them.", _REPLAY, _options, _replay
)
