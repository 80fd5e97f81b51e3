"""`robandit evaluate`."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

from robandit.errors import ConfigError
from robandit.lab.plan import Entry, read_entries, read_text
from robandit.logs.evaluate import LOGGED, UNIFORM, Evaluation, evaluate
from robandit.logs.evaluate.estimators import Interval
from robandit.logs.evaluate.records import read

_ABOUT = """\
What would another policy have earned on this traffic? Off-policy evaluation of the service's log, by inverse propensity
scoring (IPS), self-normalised (SNIPS), and doubly robust (DR). docs/evaluate.md says what it rests on.

LOG is what GET /v1/bandits/NAME/log gave, as NDJSON (.gz, too) or as Parquet (?format=parquet), or the file of a
service that is not running (robandit.db, with --bandit). The bandit must have been made with "exploration" above 0.

A policy learns from the first part of the log, is frozen, and is evaluated on the rest. It is given as its name and
settings, NAME,KEY=VALUE,…: see `robandit policies`. `uniform` plays anything alike; `logged` is what was done, and is
always shown. Your own class is named by its place, FILE.py:CLASS or MODULE:CLASS.

  robandit evaluate shop.ndjson --policy greedy --policy oful,radius_scale=0.4 --out evaluation

"""


def add_command(commands: Any, epilog: str) -> None:
    """Add it to a parser's subcommands."""
    raw = argparse.RawDescriptionHelpFormatter
    about = "what another policy would have earned, from the service's log"
    parser = commands.add_parser("evaluate", help=about, description=_ABOUT + epilog, formatter_class=raw)
    parser.add_argument("log", type=Path, help="NDJSON, Parquet, or a service's file")
    parser.add_argument("--bandit", metavar="NAME", help="whose log, in a service's file with several")
    what = parser.add_argument_group("what to evaluate")
    what.add_argument("--policy", action="append", metavar="NAME,KEY=VALUE", help="one or more (default: uniform)")
    what.add_argument("--train", type=float, default=0.5, help="the share to learn from (default %(default)s)")
    what.add_argument(
        "--noise-range",
        type=float,
        default=1.0,
        metavar="R",
        help="what policies are told: rewards differ from their mean by at most this (default %(default)s)",
    )
    what.add_argument("--seed", type=int, default=0, help="of the policies' own draws (default %(default)s)")
    how = parser.add_argument_group("how")
    how.add_argument("--confidence", type=float, default=0.95, help="of the intervals (default %(default)s)")
    how.add_argument(
        "--reward-range",
        type=_range,
        metavar="LOW,HIGH",
        help="where rewards lie, for an interval of IPS that holds for every n (with a sign: --reward-range=-1,1)",
    )
    where = parser.add_argument_group("where")
    where.add_argument("--json", action="store_true", help="print JSON instead of a table")
    where.add_argument("--out", type=Path, metavar="FOLDER", help="for evaluate.json and evaluate.png (default: none)")
    where.add_argument("--force", action="store_true", help="replace what is there")
    parser.set_defaults(call=_evaluate, extra=None)


def _range(text: str) -> tuple[float, float]:
    low, high = text.split(",")
    return float(low), float(high)


def _evaluate(options: argparse.Namespace) -> None:
    policies = _policies(options.policy or [UNIFORM])
    names = ("train", "confidence", "reward_range", "noise_range", "seed")
    found = evaluate(read(options.log, options.bandit), policies, **{name: getattr(options, name) for name in names})
    text = json.dumps(as_json(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    if options.json:
        print(text, end="")
    else:
        print("\n".join(lines(found)))
    for word in found.warnings:
        print(f"warning: {word}", file=sys.stderr)
    if options.out is not None:
        _save(options, found, text)


def _save(options: argparse.Namespace, found: Evaluation, text: str) -> None:
    try:
        from robandit.cli.experiments import save_figure
        from robandit.files import save_file
        from robandit.logs.evaluate.picture import forest
    except ImportError as error:
        raise ConfigError(f"a picture needs {error.name} as well: pip install 'robandit[lab]'") from None
    path = options.out / "evaluate.json"
    if save_file(path, text.encode(), force=options.force):
        print(path, file=sys.stderr)
    save_figure(options, "evaluate.png", forest(found))


def _policies(given: list[str]) -> list[Entry | str]:
    """As they were asked for; `uniform` and `logged` are no policies of the catalogue."""
    plain = [text for text in given if text in (UNIFORM, LOGGED)]
    rest = [read_text(text) for text in given if text not in plain]
    return [*dict.fromkeys(plain), *(read_entries("policies", rest) if rest else [])]


def as_json(found: Evaluation) -> dict[str, Any]:
    """All of it as plain data."""
    rows = [
        {key: value._asdict() if hasattr(value, "_asdict") else value for key, value in row._asdict().items()}
        for row in found.rows
    ]
    return {**vars(found), "rows": rows}


def lines(found: Evaluation) -> list[str]:
    """A table, and what must be said of it."""
    level = f"{100 * found.confidence:g} % interval"
    sure = any(row.sure for row in found.rows)
    table = [["policy", "estimator", "value", level, "gain over logged", "effective", "largest weight"]]
    table[0][4:4] = ["finite-sample"] if sure else []
    decimals = _decimals(found)
    for row in found.rows:
        cells = [row.policy, row.estimator, f"{row.value.value:.{decimals}f}", _between(row.value, decimals)]
        cells += [_between(row.sure, decimals)] if sure else []
        gain = f"{row.gain.value:+.{decimals}f} ({_between(row.gain, decimals)})" if row.gain else "-"
        table.append([*cells, gain, f"{row.effective:,.0f}", f"{row.largest:.3g}"])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table]
    split = f"{found.decisions:,} decisions: {found.trained:,} to learn from, {found.evaluated:,} to evaluate on."
    return [*shown, "", split, *found.notes]


def _between(value: Interval | None, decimals: int) -> str:
    return "-" if value is None else f"{value.low:.{decimals}f} to {value.high:.{decimals}f}"


def _decimals(found: Evaluation) -> int:
    """So many that the shortest interval has two digits."""
    least = min(row.value.high - row.value.low for row in found.rows)
    return 4 if least <= 0.0 else min(9, max(0, 2 - math.floor(math.log10(least))))
