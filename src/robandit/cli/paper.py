"""The experiments of the paper: `robandit paper tune`, `figure1`, `variance`, `verify` and `report`."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robandit.cli.command import Command, CommandGroup
from robandit.cli.options import add_engine, add_out, add_sizes, floats, integers, sizes_of
from robandit.cli.output import carry_out, save, save_figure
from robandit.errors import ConfigError
from robandit.figures.tables import markdown

if TYPE_CHECKING:
    from robandit.experiments.paper.verify import Verification
    from robandit.lab.results import Result


def _world_options(parser: ArgumentParser) -> None:
    """Add the options that change the size of the world of Figure 1."""
    from robandit.experiments.paper.figure1 import FLIPS

    parser.add_argument(
        "--dim", type=int, default=20, help="Give each action this many features (default %(default)s)."
    )
    parser.add_argument(
        "--actions", type=int, default=20, help="Offer this many actions in each round (default %(default)s)."
    )
    flips = ",".join(map(str, FLIPS))
    about = f"Flip the rewards of this many rounds, with one panel for each number (default {flips})."
    parser.add_argument("--flips", type=integers, default=FLIPS, metavar="K,K,…", help=about)


# tune


def _tune_options(parser: ArgumentParser) -> None:
    from robandit.experiments.tune import GRID, OBJECTIVES, SEED

    add_sizes(parser, rounds=10_000, trials=32, seed=SEED)
    _world_options(parser)
    parser.add_argument(
        "--grid", type=floats, default=GRID, metavar="S,S,…", help="Try these scales (default 1, 1/2, … 1/1024)."
    )
    parser.add_argument(
        "--objective",
        default="mean",
        help=f"Keep the scale that is best by the {' or '.join(OBJECTIVES)} panel (default %(default)s).",
    )
    add_out(parser, "out")
    add_engine(parser)


def _tune(options: Namespace) -> None:
    from robandit.experiments.paper import figure1
    from robandit.experiments.tune import grid_config, sensitivity, tune

    policies = {name: settings for name, settings in figure1.POLICIES.items() if name != figure1.GREEDY}
    base = sizes_of(options) | figure1.world(options.dim, options.actions, options.flips)
    grids = dict.fromkeys(policies, options.grid)
    run, result = carry_out(grid_config(base | {"checkpoints": 2}, policies, grids), "tune", options)
    tuned = tune(result.last_round(), run.plain(), grids, options.objective)
    save(options.out / "scales.json", tuned.to_json().encode(), force=options.force)
    save_figure(options.out / "tune.png", sensitivity(tuned), force=options.force)
    for policy, scale in tuned.scales.items():
        best = min(tuned.curves[policy], key=lambda point: point.regret)
        print(f"{policy:34} {scale:9.4g}   regret {best.regret:.0f} ± {best.half:.0f}")


# figure1


def _figure1_options(parser: ArgumentParser) -> None:
    add_sizes(parser, rounds=10_000, trials=10)
    _world_options(parser)
    parser.add_argument(
        "--radius",
        choices=("tuned", "theory"),
        default="tuned",
        help="Use the tuned radius scales, or the theory's, which are 1 (default %(default)s).",
    )
    parser.add_argument(
        "--scales",
        type=Path,
        metavar="FILE",
        help="Take the tuned scales from this file of `robandit paper tune` (default: those of the package).",
    )
    add_out(parser, "out")
    add_engine(parser)


def _figure1(options: Namespace) -> None:
    from robandit.experiments.paper import figure1
    from robandit.experiments.tune import SEED
    from robandit.figures.pictures import regret_curves

    sizes = sizes_of(options)
    if options.radius == "tuned" and options.scales is None and sizes["seed"] == SEED:
        raise ConfigError(f"seed {SEED} is the one that the radius scales were tuned on; choose another")
    scales = _scales(options)
    config = figure1.config(scales, dim=options.dim, actions=options.actions, flips=options.flips, **sizes)
    _, result = carry_out(config, "figure1", options)
    figure = regret_curves(result.table)
    for ending in ("png", "pdf"):
        save_figure(options.out / f"figure1.{ending}", figure, force=options.force)
    text = _figure1_text(result, scales)
    save(options.out / "figure1.md", text.encode(), force=options.force)
    print(text)


def _scales(options: Namespace) -> Mapping[str, float]:
    """The radius scales that the options ask for; none stands for scale 1."""
    from robandit.experiments.tune import Tuned, shipped

    if options.radius == "theory":
        return {}
    if options.scales is None:
        return shipped().scales
    try:
        return Tuned.from_json(options.scales.read_text(encoding="utf-8")).scales
    except OSError as error:
        raise ConfigError(f"can't read {options.scales}: {error}") from None


def _figure1_text(result: Result, scales: Mapping[str, float]) -> str:
    """The table of regrets and the verdicts, in Markdown."""
    from robandit.experiments.paper import figure1

    header, rows = figure1.regret_rows(result.table, scales)
    sizes = result.config
    lines = [
        f"{sizes['trials']} trials of {sizes['rounds']} rounds, seed {sizes['seed']}: the regret at the end, "
        "mean and half of its 95 % interval.",
        "",
        *markdown(header, rows),
        "",
        *markdown(
            ["claim", "verdict", "regrets, and the 95 % interval of their difference, paired over trials"],
            [[found.claim.text(), found.verdict, found.evidence()] for found in figure1.judge(result.table)],
        ),
    ]
    return "\n".join(lines) + "\n"


# variance


def _variance_options(parser: ArgumentParser) -> None:
    add_sizes(parser, rounds=5_000, trials=64)
    add_out(parser, "out")
    add_engine(parser)


def _variance(options: Namespace) -> None:
    from robandit.experiments.paper import variance
    from robandit.experiments.tune import SEED

    sizes = sizes_of(options)
    config = variance.tuning_config(**sizes | {"seed": SEED})
    _, result = carry_out(config, "variance-tune", options)
    scales = variance.choose(result.last_round())
    _, result = carry_out(variance.config(scales, **sizes), "variance", options)
    text = "\n".join(markdown(*variance.rows(result.last_round(), scales))) + "\n"
    save(options.out / "variance.md", text.encode(), force=options.force)
    print(text)


# verify


def _verify_options(parser: ArgumentParser) -> None:
    for name, default, about in (
        ("rounds", 1000, "Play this many rounds in each trial"),
        ("trials", 80, "Play this many trials of each attack in each environment"),
        ("dim", 5, "Give each action this many features"),
        ("actions", 10, "Offer this many actions in each round"),
        ("seed", 1, "Seed all random draws with this number"),
    ):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"{about} (default %(default)s).")
    parser.add_argument(
        "--delta", type=float, default=0.05, help="Let a bound fail with this probability, δ (default %(default)s)."
    )
    parser.add_argument(
        "--shrink",
        type=float,
        default=1.0,
        help="Multiply every radius in the checks by this, to see them fail (default %(default)s).",
    )
    add_out(parser, "out")


def _verify(options: Namespace) -> None:
    from threadpoolctl import threadpool_limits
    from tqdm import tqdm

    from robandit.experiments.paper.verdicts import FAILS
    from robandit.experiments.paper.verify import RUNS, largest_ratio, verify

    names = ("rounds", "trials", "dim", "actions", "delta", "seed", "shrink")
    settings = {name: getattr(options, name) for name in names}
    with threadpool_limits(1), tqdm(total=RUNS * options.rounds, unit=" rounds", disable=None) as bar:
        found = verify(**settings, progress=bar.update)
    words = " ".join(f"--{name} {value}" for name, value in settings.items())
    told = _verify_data(found, f"robandit paper verify {words}")
    data = (json.dumps(told, indent=1, ensure_ascii=False) + "\n").encode()
    save(options.out / "verify.json", data, force=options.force)
    for row in told["rows"]:
        print(f"{row['verdict']:10} {row['claim']}\n{'':10} {row['evidence']}")
    print(f"\nThe farthest that an estimate was from μ* is {largest_ratio(found):.3f} of its radius.\n{found.power}")
    if any(row["verdict"] == FAILS for row in told["rows"]):
        raise RuntimeError("a claim of the paper is breached")


def _verify_data(found: Verification, command: str) -> dict[str, Any]:
    """The verdicts as plain data for verify.json."""
    from robandit.experiments.paper.verify import largest_ratio

    rows = [{"claim": row.claim, "verdict": row.verdict, "evidence": row.evidence()} for row in found.pooled()]
    each = [{name: None if value != value else value for name, value in row._asdict().items()} for row in found.rows]
    told = {"command": command, "largest ratio": largest_ratio(found), "monitor": found.power}
    return told | {"rows": rows, "each": each}


# report


def _report_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="Read from and write into this folder (default %(default)s)."
    )
    parser.add_argument("--force", action="store_true", help="Replace the page that is there.")


def _report(options: Namespace) -> None:
    from robandit.experiments.paper.report import build

    save(options.out / "report.html", build(options.out).encode(), force=options.force)


PAPER = CommandGroup(
    "paper",
    "Rerun the paper: tune, figure1, variance, verify, report.",
    "Rerun the experiments of the paper, and check its claims and theorems.",
    {
        "The paper's experiments": [
            Command(
                "tune",
                "Choose the radius scale of each policy, on seeds of its own.",
                "Run the policies of Figure 1 at every scale of a grid, and keep the best scale\n"
                "of each by one objective: the mean regret at the end over all panels, or the\n"
                "regret of the worst panel. Writes tune.parquet, scales.json and tune.png.",
                _tune_options,
                _tune,
            ),
            Command(
                "figure1",
                "Rerun Figure 1, and judge the paper's claims about it.",
                "Rerun the paper's Figure 1: five policies under six amounts of corruption, and\n"
                "Robust weighted OFUL once more, told the corruption that is really there.\n"
                "Writes figure1.parquet, the six panels as PNG and PDF, and figure1.md: the\n"
                "table of regrets with a verdict on each of the paper's claims.",
                _figure1_options,
                _figure1,
            ),
            Command(
                "variance",
                "Measure what knowing the variance of the noise is worth.",
                "Compare Weighted and Multi-level weighted OFUL where the noise σ_t varies:\n"
                "told σ_t, and told the bound R instead, each tuned for itself on the tuning\n"
                "seed. Writes variance-tune.parquet, variance.parquet and variance.md.",
                _variance_options,
                _variance,
            ),
            Command(
                "verify",
                "Check the paper's lemmas and bounds in simulated trials.",
                "Check the paper's lemmas and bounds, at radius scale 1, and the corruption\n"
                "monitor in trials under every weak attack: how often each is breached, and\n"
                "how wide it is. Writes verify.json. The exit code is 1 if a claim fails.",
                _verify_options,
                _verify,
            ),
            Command(
                "report",
                "Gather what the others left in a folder on one page.",
                "Gather what the other commands left in a folder on one page, report.html, that\nneeds no other file.",
                _report_options,
                _report,
            ),
        ]
    },
)
