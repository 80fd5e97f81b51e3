"""Pictures of a result. Each takes the table, a row per trial and checkpoint, and returns a figure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from io import BytesIO
from math import ceil
from textwrap import fill
from typing import TYPE_CHECKING, Any, TypeAlias

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import QuadMesh
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator
from matplotlib.transforms import offset_copy
from numpy.typing import ArrayLike

from robandit.arrays import Bools, Floats
from robandit.figures.names import panel_titles, policy_names, scenario_name
from robandit.figures.numbers import span, three_digits, two_digits
from robandit.lab.summary import KEYS, Case, Curve, Curves, last_round, summary
from robandit.lab.tails import LEVELS

if TYPE_CHECKING:
    from pyarrow import Table

WIDTH = 7.0  # inches: the text of an A4 or letter page
FONT, LINE = 8.0, 0.14  # points, and the inches that a line of such text takes

# Okabe and Ito's colours without the yellow, which does not show on white. Seven, four and nine have no common factor,
# so the first 252 policies all look different, and the first 36 even in grey.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES: tuple[Any, ...] = ("-", (0, (4, 1.2)), (0, (1, 1)), (0, (5, 1.2, 1, 1.2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


Styles: TypeAlias = dict[str, dict[str, Any]]
"""The look of each policy."""
LevelShares: TypeAlias = dict[tuple[str, str], dict[Case, Floats]]
"""The share of each level in the rounds, by environment and policy, then by scenario."""


class Sheet(Figure):
    """A figure that a notebook shows. `savefig` saves it as PDF, PNG or SVG."""

    def _repr_png_(self) -> bytes:
        buffer = BytesIO()
        self.savefig(buffer, format="png", dpi=120)
        return buffer.getvalue()


def regret_curves(table: Table, bands: str = "interval") -> Figure:
    """The regret over the rounds, a panel for each scenario: its mean with the 95 % interval, or median and quantiles.

    ``bands`` are the ``interval`` of the mean, or the ``quantiles`` between which half and 90 % of the trials lie.
    """
    curves, styles = summary(table), _styles(table)
    if bands == "quantiles":
        curves = {case: {name: _middle(curve) for name, curve in these.items()} for case, these in curves.items()}
    figure, panels = _page(panel_titles(list(curves)), "round", "regret", policies=len(styles), rounds=True)
    _legend(figure, styles, curves, "; beside each panel, the regret at the end", _HOLDS[bands])
    for axes, these in zip(panels, curves.values(), strict=True):
        for policy, curve in these.items():
            axes.plot(curve.rounds, curve.mean, **styles[policy], markevery=(0.1, 0.3), label=policy)
            for low, high in _bands(curve, bands):
                axes.fill_between(curve.rounds, low, high, color=styles[policy]["color"], alpha=0.18, linewidth=0)
        axes.set(xlim=(0, max(curve.rounds[-1] for curve in these.values())), ylim=(0, None))
    figure.draw_without_rendering()  # for the height of the panels
    for axes, these in zip(panels, curves.values(), strict=True):
        _label_ends(figure, axes, these, styles)
    return figure


_HOLDS = {
    "interval": "mean of {} trials with its 95 % interval",
    "quantiles": "median of {} trials; bands hold half and 90 % of them",
}
"""What a legend says of the curves, by the kind of their bands."""


def _middle(curve: Curve) -> Curve:
    """The same curve with the median in the place of the mean."""
    return curve._replace(mean=curve.spread.quantile(0.5))


def _bands(curve: Curve, bands: str) -> list[tuple[Floats, Floats]]:
    """The lower and upper ends of the bands around a curve."""
    if bands == "interval":
        return [(curve.mean - curve.half, curve.mean + curve.half)]
    return [(curve.spread.quantile(low), curve.spread.quantile(1.0 - low)) for low in (0.05, 0.25)]


def tails(table: Table) -> Figure:
    """How the regret at the end is spread over trials, a panel for each scenario and a column for each policy.

    A thin bar holds 98 % of the trials, a wider one 80 %, the widest half of them; a white line is the median, a marker
    the mean, and a black one the mean of the worst 1 %.
    """
    curves, styles = summary(table), _styles(table)
    figure, panels = _page(panel_titles(list(curves)), "policy", "regret at the end", policies=len(styles))
    words = "{} trials: bars hold 98, 80 and 50 % of them; white: median; marker: mean; black: mean of the worst 1 %"
    _legend(figure, styles, curves, "", words)
    for axes, these in zip(panels, curves.values(), strict=True):
        for place, (policy, look) in enumerate(styles.items()):
            if policy in these:
                _bar_of(axes, place, these[policy], look)
        axes.set(xlim=(-0.7, len(styles) - 0.3), ylim=(0, None), xticks=[])
        axes.grid(visible=False, axis="x")
    return figure


def _bar_of(axes: Axes, place: int, curve: Curve, look: Mapping[str, Any]) -> None:
    """Draw how one policy's regret at the end is spread."""
    at = {level: float(curve.spread.quantile(level)[-1]) for level in LEVELS}
    for level, width, shade in ((0.01, 0.1, 0.4), (0.1, 0.35, 0.5), (0.25, 0.6, 0.8)):
        height = at[1.0 - level] - at[level]
        axes.bar(place, height, width, at[level], color=look["color"], alpha=shade, linewidth=0)
    axes.plot([place - 0.3, place + 0.3], [at[0.5], at[0.5]], color="white", linewidth=1.4)
    mean = {"marker": look["marker"], "color": look["color"], "markersize": 4.5, "markeredgecolor": "white"}
    axes.plot(place, curve.mean[-1], **mean, markeredgewidth=0.6, linestyle="")
    axes.plot(place, curve.spread.worst[-1], marker="_", color="black", markersize=9, markeredgewidth=1.6)


def _label_ends(figure: Figure, axes: Axes, curves: Mapping[str, Curve], styles: Styles) -> None:
    """Write each policy's marker and mean at the end beside a panel, with a line to its curve."""
    order = sorted(curves, key=lambda policy: float(curves[policy].mean[-1]))
    y = np.array([curves[policy].mean[-1] for policy in order]) / axes.get_ylim()[1]
    marker, text = (offset_copy(axes.transAxes, figure, x=x, units="points") for x in (10, 14))
    for policy, place in zip(order, spread_apart(y, 1.1 * FONT * figure.dpi / 72 / axes.bbox.height), strict=True):
        style, end = styles[policy], (curves[policy].rounds[-1], curves[policy].mean[-1])
        tie = {"arrowstyle": "-", "color": style["color"], "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", end, (1, place), textcoords=marker, arrowprops=tie, annotation_clip=False)
        axes.plot(1, place, **{**style, "linestyle": ""}, transform=marker, clip_on=False)
        axes.text(1, place, three_digits(end[1]), transform=text, va="center_baseline", fontsize=FONT)


def spread_apart(wanted: Floats, gap: float) -> Floats:
    """Places on [0, 1] at least ``gap`` apart, as close as can be to the ``wanted`` ones, which ascend.

    The largest move is the least possible.
    """
    steps = gap * np.arange(len(wanted))
    free = wanted - steps  # made to ascend below, by isotonic regression in the largest distance
    up, down = np.maximum.accumulate(free), np.minimum.accumulate(free[::-1])[::-1]
    return np.clip((up + down) / 2, 0.0, max(0.0, 1.0 - steps[-1])) + steps


def regret_against_corruption(table: Table) -> Figure:
    """The regret at the end against C, a panel for each attack."""
    curves, styles = summary(table), _styles(table)
    groups = _by_attack(curves)
    if not groups:
        empty = Sheet(figsize=(WIDTH, 1.0))
        empty.text(0.5, 0.5, "No attack here has a limit C on its corruption.", ha="center", va="center")
        return empty
    names = panel_titles([cases[-1] for cases in groups], corruption=False)
    figure, panels = _page(names, "corruption C", "regret at the end", policies=len(styles))
    _legend(figure, styles, curves)
    for axes, cases in zip(panels, groups, strict=True):
        apart = 12.0 if len(cases) == 1 else min(2.0, 10.0 / len(styles))  # points, lest one policy hide another
        for place, (policy, style) in enumerate(styles.items()):
            ends = [(case.corruption, curves[case][policy]) for case in cases if policy in curves[case]]
            x, mean, half = np.array([(C, end.mean[-1], end.half[-1]) for C, end in ends], float).reshape(-1, 3).T
            aside = offset_copy(axes.transData, figure, x=apart * (place - (len(styles) - 1) / 2), units="points")
            for artist in axes.errorbar(x, mean, half, **style, label=policy, elinewidth=0.8).get_children():
                artist.set_transform(aside)
        axes.set(xmargin=0.08, ylim=(0, None))
        if len(cases) == 1:
            axes.set_xticks([cases[0].corruption or 0.0])
    return figure


def _by_attack(curves: Curves) -> list[list[Case]]:
    """The scenarios of each panel. The clean one is C = 0 of every attack; without attacks it has its own panel."""
    panels: dict[tuple[str, str], list[Case]] = {}
    for case in curves:
        if case.corruption is not None:
            clean = [other for other in curves if case.corruption > 0 and other[:2] == (case.environment, "none")]
            panels.setdefault(case[:2], clean).append(case)
    attacked = {environment for environment, attack in panels if attack != "none"}
    return [cases for (where, attack), cases in panels.items() if attack != "none" or where not in attacked]


def level_use(table: Table) -> Figure | None:
    """How often each level was used, a heat map for each policy with levels, and how often its set was empty."""
    curves, maps = summary(table), _level_shares(table)
    if not maps:
        return None
    labels = dict(zip(curves, panel_titles([case._replace(environment="") for case in curves]), strict=True))
    figure, panels, bar = _level_page(maps, longest_label=max(map(len, labels.values())))
    least = min(share[share > 0].min() for shares in maps.values() for share in shares.values())
    norm = LogNorm(10.0 ** min(-1.0, np.floor(np.log10(least))), 1.0)
    for axes, ((_, policy), shares) in zip(panels, maps.items(), strict=True):
        rows = {case: curves[case][policy] for case in curves if case in shares}
        seen = np.ma.masked_equal([shares[case] for case in rows], 0.0)
        edges = np.arange(seen.shape[1] + 1) + 0.5, np.arange(len(rows) + 1) - 0.5
        cells = heat_cells(axes, seen, norm, "cividis_r", edges)
        axes.set(xticks=range(1, seen.shape[1] + 1, ceil(seen.shape[1] / 24)), ylim=(len(rows) - 0.5, -0.5))
        axes.set_yticks(range(len(rows)), [labels[case] for case in rows])
        _counts_beside(figure, axes, rows.values())
    panels[-1].set_xlabel("level", fontsize=FONT)
    color_bar(figure, cells, bar, "share of rounds (blank: never)")
    return figure


def _level_page(maps: LevelShares, longest_label: int) -> tuple[Figure, list[Axes], Axes]:
    """A page with a titled panel for each map, and the axes of the colour bar below them."""
    wide = max(24, int(17 * (WIDTH - 1.4)) - longest_label)  # the letters that the labels and the counts leave
    names, alone = policy_names(policy for _, policy in maps), len({place for place, _ in maps}) == 1
    wholes = [names[policy] if alone else f"{scenario_name(place)}: {names[policy]}" for place, policy in maps]
    headings = [fill(whole, wide) for whole in wholes]
    sizes = [1.25 * LINE * len(shares) for shares in maps.values()]
    height = sum(sizes) + sum(LINE * max(2, title.count("\n") + 1) + 0.32 for title in headings) + 0.6
    figure = Sheet(figsize=(WIDTH, height), layout="constrained")
    *panels, bar = figure.subplots(len(sizes) + 1, height_ratios=[*sizes, 0.08])
    for axes, title in zip(panels, headings, strict=True):
        axes.set_title(title, loc="left", fontsize=FONT)
    return figure, panels, bar


def _counts_beside(figure: Figure, axes: Axes, curves: Iterable[Curve]) -> None:
    """Write to the right of each row how many sets were empty and how many steps the cascade took."""
    rows = list(curves)
    for x, heading, field in ((38, "empty\nsets", "empty"), (80, "cascade\nsteps", "cascade")):
        beside = offset_copy(axes.get_yaxis_transform(), figure, x=x, units="points")
        axes.text(1, -0.6, heading, transform=beside, ha="right", va="bottom", fontsize=FONT)
        for y, curve in enumerate(rows):
            count = three_digits(getattr(curve, field))
            axes.text(1, y, count, transform=beside, ha="right", va="center_baseline", fontsize=FONT)


def _level_shares(table: Table) -> LevelShares:
    """The share of each level in the rounds of all trials, for each policy with levels."""
    from pyarrow.compute import field, list_value_length

    uses: dict[tuple[str, str], dict[Case, Floats]] = {}
    for row in last_round(table).filter(list_value_length(field("level_use")) > 0).to_pylist():
        cases, case = uses.setdefault((row["environment"], row["policy"]), {}), Case(*(row[key] for key in KEYS))
        cases[case] = cases.get(case, np.zeros(1)) + np.array(row["level_use"], float)
    return {key: {case: use / use.sum() for case, use in cases.items()} for key, cases in uses.items()}


def heat_cells(axes: Axes, values: Floats, norm: LogNorm, colors: str, edges: Sequence[ArrayLike] = ()) -> QuadMesh:
    """Colour a cell for each value, without frame and ticks; ``edges`` say where the cells are, if not at 0, 1, …."""
    cells = axes.pcolormesh(*edges, values, norm=norm, cmap=colors, edgecolors="white", linewidth=1)
    axes.spines[:].set_visible(False)
    axes.tick_params(labelsize=FONT, length=0)
    return cells


def number_cells(axes: Axes, values: Floats, norm: LogNorm, colors: str, bold: Bools, size: float) -> None:
    """Write each value into its cell, in black or white, whichever can be read there."""
    shades = mpl.colormaps[colors](norm(values))
    for (y, x), value in np.ndenumerate(values):
        light = float(shades[y, x, :3] @ [0.299, 0.587, 0.114])  # how bright the cell is to the eye
        look: dict[str, Any] = {"color": "black" if light > 0.5 else "white", "fontsize": size}
        weight = "bold" if bold[y, x] else "normal"
        axes.text(x + 0.5, y + 0.5, two_digits(value), ha="center", va="center", weight=weight, **look)


def color_bar(figure: Figure, cells: QuadMesh, bar: Axes, words: str, **settings: Any) -> None:
    """Draw the key of a heat map's colours on the axes ``bar``."""
    figure.colorbar(cells, cax=bar, orientation="horizontal", **settings)
    bar.set_xlabel(words, fontsize=FONT)
    bar.tick_params(labelsize=FONT)


def style(number: int) -> dict[str, Any]:
    """The look of the n-th policy."""
    look = {"linewidth": 1.3, "markersize": 4.5, "markeredgewidth": 0}
    return {"color": COLORS[number % 7], "linestyle": DASHES[number % 4], "marker": MARKERS[number % 9], **look}


def log_panels(
    titles: Sequence[str], labels: Sequence[tuple[str, str]], height: float = 3.6
) -> tuple[Figure, list[Axes]]:
    """A page of empty panels side by side, with logarithmic axes and the labels (x, y) of each."""
    figure = Sheet(figsize=(WIDTH, height), layout="constrained")
    panels = [figure.add_subplot(1, len(titles), place + 1) for place in range(len(titles))]
    for axes, title, (x, y) in zip(panels, titles, labels, strict=True):
        axes.set(xscale="log", yscale="log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(lambda value, _: three_digits(value))
        axes.yaxis.set_minor_formatter(lambda value, _: "")
        axes.set_title(title, loc="left", fontsize=FONT)
        axes.set_xlabel(x, fontsize=FONT)
        axes.set_ylabel(y, fontsize=FONT)
        axes.tick_params(labelsize=FONT, length=2.5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#e4e4e4", linewidth=0.5)
    return figure, panels


def _styles(table: Table) -> Styles:
    """A look for each policy, the same in all pictures of a table."""
    return {policy: style(number) for number, policy in enumerate(table["policy"].unique().to_pylist())}


def _page(titles: Sequence[str], x: str, y: str, *, policies: int, rounds: bool = False) -> tuple[Figure, list[Axes]]:
    """A page of empty panels, each high enough for one number per policy beside it."""
    number = len(titles)
    columns = number if number < 4 else 2 if number == 4 else 3 if number < 10 else 4
    rows, width = ceil(number / columns), WIDTH / columns
    letters = int(15.5 * (width - 0.1))
    wrapped = ["\n".join(fill(line, letters, break_on_hyphens=False) for line in t.split("\n")) for t in titles]
    lines = max(title.count("\n") for title in wrapped) + (1 if rounds else 2)
    begin = -0.2 if columns < 3 else -0.3  # above the numbers of the y axis, and not above its label
    height = max((3.0, 2.1, 1.5, 1.0)[columns - 1], 0.124 * policies) + LINE * lines + 0.1
    figure = Sheet(figsize=(WIDTH, rows * height + 0.5), layout="constrained")
    figure.supxlabel(x, fontsize=FONT)
    figure.supylabel(y, fontsize=FONT)
    panels = [figure.add_subplot(rows, columns, place) for place in range(1, number + 1)]
    for place, (axes, title) in enumerate(zip(panels, wrapped, strict=True)):
        axes.set_title(title, loc="left", fontsize=FONT, x=begin / (width - 0.7))
        axes.tick_params(labelsize=FONT, length=2.5)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(color="#e4e4e4", linewidth=0.5)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(nbins=(6, 5, 4, 3)[columns - 1], steps=[1, 2, 2.5, 5, 10]))
            axis.set_major_formatter(lambda value, _: three_digits(value))
        if rounds:
            axes.xaxis.set_major_formatter(lambda t, _: f"{t / 1e3:g}k" if 1e3 <= t < 1e6 else three_digits(t))
            axes.tick_params(labelbottom=place + columns >= number)
    return figure, panels


def _legend(figure: Figure, styles: Styles, curves: Curves, note: str = "", words: str = "") -> None:
    """Add one legend for the whole page, and make the page higher by the legend's height. ``words`` take the trials."""
    trials = span(curve.trials for these in curves.values() for curve in these.values())
    title = ("one trial" if trials == "1" else (words or _HOLDS["interval"]).format(trials)) + note
    labels = [fill(name, 90) for name in policy_names(styles).values()]
    lines = [label.split("\n") for label in labels]
    longest = max(len(line) for label in lines for line in label)
    rows = ceil(len(labels) / max(1, int(72 * WIDTH / (4.6 * longest + 45))))
    handles = [Line2D([], [], **style) for style in styles.values()]
    look = {"fontsize": FONT, "title_fontsize": FONT, "frameon": False, "handlelength": 3.2, "columnspacing": 1.5}
    figure.legend(handles, labels, title=title, loc="outside upper center", ncols=ceil(len(labels) / rows), **look)
    figure.set_figheight(figure.get_figheight() + 1.25 * LINE * (rows * max(map(len, lines)) + 1) + 0.1)


PICTURES: dict[str, Callable[[Table], Figure | None]] = {
    "regret": regret_curves,
    "corruption": regret_against_corruption,
    "levels": level_use,
    "tails": tails,
}
"""The pictures of any result, by name."""
