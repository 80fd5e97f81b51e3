"""The sweep: our own policy against published ones over many settings, to find where it does worst."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from robandit.experiments.arena.page import wrapped
from robandit.experiments.arena.race import Cells, best, of_world
from robandit.experiments.arena.worlds import CLEAN
from robandit.experiments.intervals import Pairs, Ratio, geometric_ratio, mean_ratio, ratio_words
from robandit.figures.tables import markdown
from robandit.lab.summary import Case

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

# The settings. The sceptic was developed with other budgets. It was later improved on these cells and budgets, but with
# other seeds.

_BASE = {"dim": 5, "actions": 20, "parameter": "random", "rounds": 1000}
WORLDS: Mapping[str, Mapping[str, Any]] = {
    "fixed": {"name": "paper", "fresh_rounds": 0, **_BASE},
    "fresh": {"name": "fresh", "fresh_rounds": None, **_BASE},
}
"""The two cells that all others vary: one decision set for all rounds, and a fresh one in every round."""
FACTORS: Mapping[str, Mapping[str, Any]] = {
    "d = 2": {"dim": 2},
    "d = 20": {"dim": 20},
    "d = 50": {"dim": 50},
    "K = 5": {"actions": 5},
    "K = 100": {"actions": 100},
    "T = 10⁴": {"rounds": 10_000},
    "T = 10⁵": {"rounds": 100_000},
    "σ ≤ 0.2": {"sigma_high": 0.2},
    "two-point": {"name": "heteroscedastic"},
    "clicks": {"name": "bernoulli"},
    "σ not told": {"hide_sigma": True},
    "even μ*": {"parameter": "even"},
}
LONG: Sequence[str] = (
    "fresh, T = 10⁴",
    "fresh, d = 20, T = 10⁴",
    "fixed, T = 10⁵",
    "fresh, T = 10⁵",
    "fixed, clicks, T = 10⁵",
)
"""The cells that take longest. They run only with `--long`."""
_COMMON = [factor for factor in FACTORS if factor not in ("T = 10⁵", "even μ*")]
CELLS: Sequence[str] = (
    "fixed",
    *(f"fixed, {factor}" for factor in _COMMON),
    "fixed, even μ*",
    "fixed, d = 2, K = 5",
    "fixed, d = 50, K = 100",
    "fixed, d = 20, T = 10⁴",
    "fixed, d = 20, clicks",
    "fixed, clicks, T = 10⁴",
    "fixed, two-point, σ not told",
    "fresh",
    *(f"fresh, {factor}" for factor in _COMMON if factor != "T = 10⁴"),
    "fresh, d = 50, K = 100",
    "fresh, two-point, σ not told",
)
"""The cells: a world and the factors changed in it, one at a time and in a few combinations."""

ATTACKS: Sequence[Mapping[str, Any]] = (
    {"name": CLEAN},
    {"name": "flip", "budget": 40.0},  # goes on until the budget is spent: see config()
    {"name": "random-flips", "probability": 0.1, "budget": 40.0},
    {"name": "suppress-best", "budget": 40.0},
    {"name": "oracle-target", "budget": 60.0},
    {"name": "top-n", "budget": 60.0},
    {"name": "first-impressions", "times": 2, "budget": 60.0},
)
OURS: Mapping[str, Mapping[str, Any]] = {
    "Sceptic": {"name": "sceptic"},
    "Sceptic, insured": {"name": "sceptic", "insurance": 1.0},
}
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    "OFUL × 0.25": {"name": "oful", "radius_scale": 0.25},
    "OFUL × 0.5": {"name": "oful", "radius_scale": 0.5},
    "CW-OFUL × 0.03": {"name": "cw-oful", "corruption": None, "radius_scale": 0.03},
    "CW-OFUL × 0.1": {"name": "cw-oful", "corruption": None, "radius_scale": 0.1},
    "Weighted OFUL × 0.02": {"name": "weighted-oful", "radius_scale": 0.02},
    "Greedy": {"name": "greedy"},
    "LinTS × 0.03": {"name": "lin-ts", "radius_scale": 0.03},
}
"""The published policies, at radius scales that do well everywhere; two scales where it matters. Neither these nor our
own policies are told C."""


def settings(cell: str) -> dict[str, Any]:
    """The environment and the rounds that a cell's name stands for.

    >>> settings("fixed, d = 2, T = 10⁴")["dim"], settings("fresh, T = 10⁴")["rounds"]
    (2, 10000)
    """
    world, *factors = cell.split(", ")
    found = dict(WORLDS[world])
    for factor in factors:
        found |= FACTORS[factor]
    return found


def config(cell: str, *, trials: int, seed: int) -> dict[str, Any]:
    """The settings of the run of one cell: every policy under every attack."""
    world = settings(cell)
    rounds = world.pop("rounds")
    return {
        "rounds": rounds,
        "trials": trials,
        "seed": seed,
        "checkpoints": 2,
        "environments": [{**world, "label": cell}],
        "attacks": [{**attack, "rounds": rounds} if attack["name"] == "flip" else attack for attack in ATTACKS],
        "policies": [{**policy, "label": label} for label, policy in {**OURS, **PUBLISHED}.items()],
    }


# The scores.


def rival(found: Cells, case: Case) -> str:
    """The published policy of least mean regret in a scenario. It is picked with hindsight, which favours it."""
    return best(found[case], OURS)


def pairs(found: Cells, policy: str, cases: Sequence[Case], against: str | None = None) -> Pairs:
    """The regrets of a policy and of another in these scenarios; by default of the best published one in each."""
    return [
        (found[case][policy].regret, found[case][rival(found, case) if against is None else against].regret)
        for case in cases
    ]


class Comparison(NamedTuple):
    """A policy's regret over another's, in one cell or over all of them."""

    clean: Ratio
    """The ratio on clean data."""
    attacked: Ratio
    """The geometric mean over the attacks."""
    worst: Ratio
    """The ratio in the worst attacked scenario."""
    where: Case
    """The worst attacked scenario."""


def compare(found: Cells, policy: str, against: str | None = None) -> Comparison:
    """Compare a policy with another over these scenarios; by default with the best published in each."""
    clean = [case for case in found if case.attack == CLEAN]
    hostile = [case for case in found if case.attack != CLEAN]
    each = {case: mean_ratio(pairs(found, policy, [case], against)) for case in hostile}
    where = max(hostile, key=lambda case: each[case].value)
    mean = mean_ratio if len(clean) == 1 else geometric_ratio  # one cell gets the same interval as elsewhere
    price, attacked = (
        mean(pairs(found, policy, clean, against)),
        geometric_ratio(pairs(found, policy, hostile, against)),
    )
    return Comparison(price, attacked, each[where], where)


def by_cell(found: Cells, policy: str) -> dict[str, Comparison]:
    """The comparison with the best published in each cell."""
    return {cell: compare(of_world(found, cell), policy) for cell in dict.fromkeys(case.environment for case in found)}


def ratios(found: Cells, policy: str) -> dict[Case, Ratio]:
    """The regret over that of the best published in every scenario."""
    return {case: mean_ratio(pairs(found, policy, [case])) for case in found}


# The words.


def text(found: Cells, command: str) -> str:
    """The findings in Markdown, which links to the picture."""
    parts = ["# The sweep", wrapped(METHOD), *(wrapped(verdict(found, policy)) for policy in OURS)]
    parts += ["\n".join(markdown(*cell_rows(found))), "![The ratio in every scenario](sweep.png)"]
    parts += ["## By attack", "Geometric means over the cells.", "\n".join(markdown(*attack_rows(found)))]
    for policy in OURS:
        parts += [f"## Where {policy} does worst", "\n".join(markdown(*worst_rows(found, policy)))]
    parts += [
        "## Every policy against the best published",
        wrapped(ENVELOPE),
        "\n".join(markdown(*envelope_rows(found))),
    ]
    parts += ["## Against one published policy at a time", "\n".join(markdown(*single_rows(found)))]
    parts += [
        "## Settings",
        wrapped(SETTINGS),
        "\n".join(wrapped(line, "  ") for line in _listed()),
        f"```\n{command}\n```",
    ]
    return "\n\n".join(parts) + "\n"


METHOD = (
    "Each number is a policy's mean regret over that of the best published policy in the same scenario: below 1 it "
    f"loses less. The best published is the one of least mean regret among {len(PUBLISHED)}, picked with hindsight in "
    "each scenario separately. Nobody could play it, and the pick includes its luck, so this favours the rivals. "
    "Intervals are of 95 %, paired over trials; they ignore the luck of that pick. Under attack: the geometric mean "
    "over the attacks of a cell."
)
ENVELOPE = (
    "The published ones can't be below 1 here, because they are compared with the best of them. The geometric means "
    "are over all cells, and under attack over all attacks."
)
SETTINGS = (
    "Unless a cell's name says otherwise, d = 5, K = 20, T = 1000, μ* is random on the unit sphere, and the noise is "
    "Gaussian with σ_t up to 0.05, which policies are told. Fixed: one decision set for all rounds. Fresh: another in "
    "every round. A flip goes on until its budget is spent; every attack stops when its budget is spent."
)


def verdict(found: Cells, policy: str) -> str:
    """How a policy does, with its worst cell and its worst scenario."""
    whole, cells = compare(found, policy), by_cell(found, policy)
    each = {case: ratio for case, ratio in ratios(found, policy).items() if case.attack != CLEAN}
    better, worse = (
        sum(test) for test in ([r.high < 1.0 for r in each.values()], [r.low > 1.0 for r in each.values()])
    )
    cell = max(cells, key=lambda name: cells[name].attacked.value)
    price = max(cells, key=lambda name: cells[name].clean.value)
    return (
        f"**{policy}**, over {len(cells)} cells: {ratio_words(whole.clean)} on clean data, "
        f"{ratio_words(whole.attacked)} under attack. Of {len(each)} attacked scenarios it is better than the best "
        f"published in {better} and worse in {worse}, by intervals that exclude 1. Worst cell: {cell}, with "
        f"{ratio_words(cells[cell].attacked)} under attack; on clean data: {price}, with "
        f"{ratio_words(cells[price].clean)}. Worst scenario: {whole.where.environment}, under {_attack(whole.where)}, "
        f"with {ratio_words(whole.worst)}."
    )


def _attack(case: Case) -> str:
    return "no attack" if case.attack == CLEAN else f"{case.attack} {case.corruption:g}"


def _worst(result: Comparison, *, cell: bool = False) -> str:
    place = f"{result.where.environment}: " if cell else ""
    return f"{place}{_attack(result.where)}, {ratio_words(result.worst)}"


def cell_rows(found: Cells) -> tuple[list[str], list[list[str]]]:
    """The header and rows of a table of the cells."""
    columns = [(policy, by_cell(found, policy)) for policy in OURS]
    header = ["cell"]
    for policy, _ in columns:
        header += [f"{policy}: clean", "under attack", "worst attack"]
    rows = []
    for cell in columns[0][1]:
        row = [cell]
        for _, scores in columns:
            row += [ratio_words(scores[cell].clean), ratio_words(scores[cell].attacked), _worst(scores[cell])]
        rows.append(row)
    return header, rows


def attack_rows(found: Cells) -> tuple[list[str], list[list[str]]]:
    """The header and rows of a table of the attacks, on fixed and on fresh decision sets."""
    kinds = [kind for kind in WORLDS if any(case.environment.startswith(kind) for case in found)]
    rows = []
    for attack in dict.fromkeys(_attack(case) for case in found):
        row = [attack]
        for policy in OURS:
            for kind in kinds:
                cases = [case for case in found if _attack(case) == attack and case.environment.startswith(kind)]
                row.append(ratio_words(geometric_ratio(pairs(found, policy, cases))))
        rows.append(row)
    return ["attack", *(f"{policy}: {kind}" for policy in OURS for kind in kinds)], rows


def worst_rows(found: Cells, policy: str, count: int = 12) -> tuple[list[str], list[list[str]]]:
    """The header and rows of a table of a policy's worst scenarios, clean ones included, with the regrets."""
    each = ratios(found, policy)
    rows = []
    for case in sorted(each, key=lambda case: -each[case].value)[:count]:
        first = rival(found, case)
        regrets = [f"{found[case][one].regret.mean():.1f}" for one in (policy, first)]
        rows.append([case.environment, _attack(case), ratio_words(each[case]), regrets[0], first, regrets[1]])
    return ["cell", "attack", "ratio", "its regret", "best published", "its regret"], rows


def envelope_rows(found: Cells) -> tuple[list[str], list[list[str]]]:
    """The header and rows of a table of every policy against the best published, the best under attack first."""
    whole = {policy: compare(found, policy) for policy in (*OURS, *PUBLISHED)}
    order = sorted(whole, key=lambda policy: whole[policy].attacked.value)
    rows = [
        [p, ratio_words(whole[p].clean), ratio_words(whole[p].attacked), _worst(whole[p], cell=True)] for p in order
    ]
    return ["policy", "clean", "under attack", "worst scenario"], rows


def single_rows(found: Cells) -> tuple[list[str], list[list[str]]]:
    """The header and rows of a table of our policies against each published one."""
    rows = []
    for policy in OURS:
        for other in PUBLISHED:
            result = compare(found, policy, other)
            words = [ratio_words(result.clean), ratio_words(result.attacked), _worst(result, cell=True)]
            rows.append([policy, other, *words])
    return ["policy", "over", "clean", "under attack", "worst scenario"], rows


def _listed() -> Iterator[str]:
    """The settings behind the names of cells, policies and attacks, a line each."""
    for kind, entries in (("cell", {**WORLDS, **FACTORS}), ("policy", {**OURS, **PUBLISHED})):
        yield from (f"- {kind} {name}: {dict(entry)}" for name, entry in entries.items())
    yield from (f"- attack {attack['name']}: {dict(attack)}" for attack in ATTACKS)


def as_csv(found: Cells) -> str:
    """The numbers behind the tables as CSV: each of our policies over each published one in every scenario."""
    sink = StringIO()
    out = csv.writer(sink, lineterminator="\n")
    out.writerow(["cell", "attack", "C", "policy", "over", "best_published", "ratio", "low", "high", "regret", "other"])
    for case, policies in found.items():
        first = rival(found, case)
        for policy in OURS:
            for other in PUBLISHED:
                numbers = [*mean_ratio(pairs(found, policy, [case], other))]
                numbers += [float(policies[one].regret.mean()) for one in (policy, other)]
                row = [case.environment, case.attack, case.corruption, policy, other, other == first]
                out.writerow([*row, *(f"{number:.6g}" for number in numbers)])
    return sink.getvalue()


# The picture.

_ROW = 0.172  # inches
_COLORS, _FAR = "PuOr_r", 8.0  # purple below 1, orange above, which the colour-blind can tell apart; full at 8 and 1/8


def picture(found: Cells) -> Figure:
    """The regret over that of the best published in every scenario: a panel for each of ours, cells by attacks."""
    from matplotlib.colors import LogNorm
    from matplotlib.figure import Figure

    from robandit.figures.pictures import FONT, WIDTH, color_bar

    cells = list(dict.fromkeys(case.environment for case in found))
    figure = Figure(figsize=(WIDTH, len(cells) * _ROW + 2.0), layout="constrained")
    grid = figure.add_gridspec(2, len(OURS), height_ratios=[len(cells) * _ROW, 0.09])
    norm = LogNorm(1.0 / _FAR, _FAR)
    for number, policy in enumerate(OURS):
        axes = figure.add_subplot(grid[0, number])
        axes.set_title(policy, fontsize=FONT + 1.0)
        shown = _panel(axes, {(c.environment, _attack(c)): r for c, r in ratios(found, policy).items()}, norm)
        axes.set_yticks(np.arange(len(cells)) + 0.5, cells if number == 0 else [""] * len(cells))
    bar = figure.add_subplot(grid[1, :])
    words = "regret over that of the best published policy, picked with hindsight\nbold: above 1 by its 95 % interval"
    color_bar(figure, shown, bar, words, extend="both")
    bar.set_xticks([2.0**power for power in range(-3, 4)], ["1/8", "1/4", "1/2", "1", "2", "4", "8"])
    bar.minorticks_off()
    return figure


def _panel(axes: Axes, each: Mapping[tuple[str, str], Ratio], norm: LogNorm) -> QuadMesh:
    """Draw a coloured cell with a number for each scenario, and name the attacks below."""
    from robandit.figures.pictures import FONT, heat_cells, number_cells

    rows, columns = (list(dict.fromkeys(key[part] for key in each)) for part in (0, 1))
    values = np.array([[each[row, column].value for column in columns] for row in rows])
    bold = np.array([[each[row, column].low > 1.0 for column in columns] for row in rows])
    shown = heat_cells(axes, values, norm, _COLORS)
    number_cells(axes, values, norm, _COLORS, bold, FONT - 1.0)
    axes.set(ylim=(len(rows), 0))
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=40, ha="right", rotation_mode="anchor")
    return shown
