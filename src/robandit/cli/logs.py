"""Look at feedback: `robandit audit` and `robandit evaluate`."""

from __future__ import annotations

import json
import math
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robandit.cli.command import Command
from robandit.cli.options import rewards
from robandit.cli.output import save, save_figure
from robandit.errors import ConfigError, install

if TYPE_CHECKING:
    from robandit.lab.plan import Entry
    from robandit.logs.audit import Audit
    from robandit.logs.evaluate import Evaluation
    from robandit.logs.evaluate.estimators import Interval

# audit

_AUDIT = """\
Check a log of rewards for tampering. Reads Parquet, CSV or NDJSON, and says on
one page of HTML how much corruption is proved. docs/ideas/monitor.md says what
the proof rests on.

A row is a round: the features of the action that was taken, the reward that
came back, and, if known, where it came from. Rows must stand in the order of
the decisions. Rows that can't be used are counted and shown, never dropped
silently; but a log from which rows were dropped because of their values proves
nothing.

  robandit audit clicks.csv --features features.json --reward click \\
      --rewards clicks --source partner"""


def _audit_options(parser: ArgumentParser) -> None:
    parser.add_argument("log", type=Path, help="A .parquet, .csv or .ndjson file; the latter two may be .gz as well.")
    _audit_columns(parser)
    _audit_knowledge(parser)
    where = parser.add_argument_group("where")
    where.add_argument(
        "--format", choices=("parquet", "csv", "ndjson"), help="Read the log as this (default: by its suffix)."
    )
    where.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="Write the page here (default: LOG's name with -audit.html, beside it).",
    )
    where.add_argument("--force", action="store_true", help="Replace the page that is there.")


def _audit_columns(parser: ArgumentParser) -> None:
    which = parser.add_argument_group("which columns")
    which.add_argument(
        "--features",
        metavar="FILE.json|COLUMNS",
        help="Encode columns by this file, which Features.save wrote. Or take the features from these columns, names "
        "or patterns such as 'x*' separated by commas, or from one column of lists (default: features or action if it "
        "holds lists, else all of x0, x1, … or f0, f1, … or feature_…).",
    )
    for name, default, about in (
        ("reward", "reward", "This column holds the rewards (default %(default)s)."),
        ("sigma", None, "This column holds the noise's sub-Gaussian scale, where each row has its own."),
        ("source", None, "This column says where a reward came from, to find out who is to blame."),
        ("time", None, "This column holds the time of the decision, which must never fall from row to row."),
    ):
        which.add_argument(f"--{name}", metavar="COLUMN", default=default, help=about)


def _audit_knowledge(parser: ArgumentParser) -> None:
    what = parser.add_argument_group("what is known of honest feedback")
    about = "Rewards lie in this range; `clicks` is 0,1. A row beyond it can't be used. Write --rewards=-1,1 if LOW is "
    _rewards(what, f"{about}negative.")
    about = "Noise has this sub-Gaussian scale: R if |noise| <= R (default: half the width of the range)."
    what.add_argument("--noise", metavar="S", type=float, help=about)
    about = "No honest reward is higher than this on average, whatever the action: a cap, not the average rate. For "
    what.add_argument("--highest-mean", metavar="P", type=float, help=f"{about}rare clicks it proves up to twice more.")
    about = (
        "The means of honest rewards are linear in the features to within Z (default: estimated, without confidence)."
    )
    what.add_argument("--misspecification", metavar="Z", type=float, help=about)
    about = (
        "Take Z from this log, which is known to be clean and has the same columns. It carries no confidence, either."
    )
    what.add_argument("--reference", metavar="LOG", type=Path, help=about)
    about = "Don't add a constant to the features: honest rewards are 0 on average where all features are."
    what.add_argument("--no-intercept", dest="intercept", action="store_false", help=about)
    about = "Honest rewards are the features times a parameter of at most this norm (default: of any norm)."
    what.add_argument("--parameter-bound", metavar="B", type=float, help=about)
    about = "Look at groups of rounds alone, and not at single rounds: that takes less memory."
    what.add_argument("--groups-only", dest="single_rounds", action="store_false", help=about)
    about = "Let a proof be wrong with at most this probability (default %(default)s)."
    what.add_argument("--delta", type=float, default=0.05, help=about)
    about = "Tell apart at most this many sources (default 100, given --source)."
    what.add_argument("--sources", type=int, help=about)
    about = "Look about this many times at a log of a million rows, at log-spaced rows (default %(default)s)."
    what.add_argument("--looks", type=int, default=60, help=about)


def _rewards(parser: Any, about: str) -> None:
    """Add the option that declares rewards; the other name is what it was called."""
    names = ("--rewards", "--reward-range")
    parser.add_argument(*names, dest="reward_range", type=rewards, metavar="clicks|LOW,HIGH", help=about)


def _audit(options: Namespace) -> None:
    from robandit.logs.audit.page import build
    from robandit.logs.audit.tables import stem

    path: Path = options.log
    out = options.out or path.with_name(f"{stem(path)}-audit.html")
    if out.resolve() == path.resolve():
        raise ConfigError(f"--out {out} is the log itself")
    if options.sources is not None and options.source is None:
        raise ConfigError("--sources needs --source, the column that they stand in")
    found = _audited(options)
    print(found.sentence)
    if found.bad.count:
        print(f"{found.bad.count:,} of {found.rows:,} rows were left out:", *found.bad.lines(), sep="\n  ")
    save(out, build(found).encode(), force=options.force)


def _audited(options: Namespace) -> Audit:
    """Audit the log, with a bar that shows how far it is."""
    from threadpoolctl import threadpool_limits
    from tqdm import tqdm

    from robandit.logs.audit import SOURCES, AuditSettings, audit

    known = ("noise", "reward_range", "highest_mean", "misspecification", "parameter_bound")
    kept = (*known, "delta", "looks", "intercept", "single_rounds")
    sources = 0 if options.source is None else SOURCES if options.sources is None else options.sources
    settings = AuditSettings(**{name: getattr(options, name) for name in kept}, sources=sources)
    columns = {name: getattr(options, name) for name in ("features", "reward", "sigma", "source", "time")}
    with threadpool_limits(1), tqdm(unit_scale=True, disable=None) as bar:

        def progress(done: int, size: int, unit: str) -> None:
            bar.total, bar.unit = size, unit
            bar.update(done - bar.n)

        given = {"kind": options.format, "reference": options.reference}
        return audit(options.log, settings, progress=progress, **given, **columns)


AUDIT = Command("audit", "Check a log of rewards for tampering.", _AUDIT, _audit_options, _audit)

# evaluate

_EVALUATE = """\
Estimate what another policy would have earned on this traffic: off-policy
evaluation of the service's log, by inverse propensity scoring (IPS),
self-normalised (SNIPS), and doubly robust (DR). docs/how-to/evaluate.md says
what it rests on.

LOG is what GET /v1/bandits/NAME/log gave, as NDJSON (.gz, too) or as Parquet
(?format=parquet), or the file of a service that is not running (robandit.db,
with --bandit). The bandit must have been made with "exploration" above 0.

A policy learns from the first part of the log, is frozen, and is evaluated on
the rest. It is given as its name and settings, NAME,KEY=VALUE,…: see
`robandit list policies`. `uniform` plays all actions alike; `logged` is what
was done, and is always shown. Your own class is named by its place,
FILE.py:CLASS or MODULE:CLASS.

  robandit evaluate shop.ndjson --policy greedy --policy oful,radius_scale=0.4"""


def _evaluate_options(parser: ArgumentParser) -> None:
    parser.add_argument("log", type=Path, help="The log as NDJSON or Parquet, or a service's file.")
    parser.add_argument("--bandit", metavar="NAME", help="Take this bandit's log, from a service's file with several.")
    what = parser.add_argument_group("what to evaluate")
    about = "Evaluate this policy; the option may be repeated (default: uniform)."
    what.add_argument("--policy", action="append", metavar="NAME,KEY=VALUE", help=about)
    about = "Learn from this share of the log (default %(default)s)."
    what.add_argument("--train", type=float, default=0.5, help=about)
    about = "Tell policies that rewards differ from their mean by at most this (default %(default)s)."
    what.add_argument("--noise-range", type=float, default=1.0, metavar="R", help=about)
    about = "Seed the policies' own draws with this number (default %(default)s)."
    what.add_argument("--seed", type=int, default=0, help=about)
    how = parser.add_argument_group("how")
    about = "Give the intervals this confidence (default %(default)s)."
    how.add_argument("--confidence", type=float, default=0.95, help=about)
    about = "Rewards lie in this range; `clicks` is 0,1. It gives IPS an interval that holds for every n. Write "
    _rewards(how, f"{about}--rewards=-1,1 if LOW is negative.")
    where = parser.add_argument_group("where")
    where.add_argument("--json", action="store_true", help="Print JSON instead of a table.")
    about = "Write evaluate.json and evaluate.png into this folder (default: write nothing)."
    where.add_argument("--out", type=Path, metavar="FOLDER", help=about)
    where.add_argument("--force", action="store_true", help="Replace existing files that differ.")


def _evaluate(options: Namespace) -> None:
    from robandit.logs.evaluate import UNIFORM, evaluate
    from robandit.logs.evaluate.records import read

    policies = _policies(options.policy or [UNIFORM])
    names = ("train", "confidence", "reward_range", "noise_range", "seed")
    found = evaluate(read(options.log, options.bandit), policies, **{name: getattr(options, name) for name in names})
    text = json.dumps(as_json(found), indent=1, ensure_ascii=False, allow_nan=False) + "\n"
    print(text, end="") if options.json else print("\n".join(lines(found)))
    for word in found.warnings:
        print(f"warning: {word}", file=sys.stderr)
    if options.out is not None:
        _save_evaluation(options, found, text)


def _save_evaluation(options: Namespace, found: Evaluation, text: str) -> None:
    try:
        from robandit.logs.evaluate.picture import forest
    except ImportError as error:
        raise ConfigError(f"a picture needs {error.name} as well: {install('lab')}") from None
    save(options.out / "evaluate.json", text.encode(), force=options.force)
    save_figure(options.out / "evaluate.png", forest(found), force=options.force)


def _policies(given: list[str]) -> list[Entry | str]:
    """The policies that were asked for. `uniform` and `logged` stay words, since the catalogue has no such policies."""
    from robandit.inputs import read_text
    from robandit.lab.plan import read_entries
    from robandit.logs.evaluate import LOGGED, UNIFORM

    plain = [text for text in given if text in (UNIFORM, LOGGED)]
    rest = [read_text(text) for text in given if text not in plain]
    return [*dict.fromkeys(plain), *(read_entries("policies", rest) if rest else [])]


def as_json(found: Evaluation) -> dict[str, Any]:
    """The whole evaluation as plain data."""
    rows = [
        {key: value._asdict() if hasattr(value, "_asdict") else value for key, value in row._asdict().items()}
        for row in found.rows
    ]
    return {**vars(found), "rows": rows}


def lines(found: Evaluation) -> list[str]:
    """The evaluation as a table, followed by what must be said about it."""
    from robandit.figures.tables import text

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
    split = f"{found.decisions:,} decisions: {found.trained:,} to learn from, {found.evaluated:,} to evaluate on."
    return [*text(table), "", split, *found.notes]


def _between(value: Interval | None, decimals: int) -> str:
    return "-" if value is None else f"{value.low:.{decimals}f} to {value.high:.{decimals}f}"


def _decimals(found: Evaluation) -> int:
    """The number of decimals at which the shortest interval has two digits."""
    least = min(row.value.high - row.value.low for row in found.rows)
    return 4 if least <= 0.0 else min(9, max(0, 2 - math.floor(math.log10(least))))


EVALUATE = Command(
    "evaluate",
    "Estimate from a service's log what another policy would have earned.",
    _EVALUATE,
    _evaluate_options,
    _evaluate,
    extra=None,
)
