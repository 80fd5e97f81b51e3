"""The pictures of the arena: a heat map for each world, and the price of robustness against its gain."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.transforms import offset_copy

from robandit.experiments.arena.race import Cells, Score, best, relative
from robandit.experiments.arena.worlds import CLEAN
from robandit.figures.names import scenario_name
from robandit.figures.numbers import two_digits
from robandit.figures.pictures import (
    FONT,
    WIDTH,
    Sheet,
    color_bar,
    heat_cells,
    log_panels,
    number_cells,
    spread_apart,
    style,
)
from robandit.lab.summary import Case

_ROW, _LABELS = 0.172, 1.45  # inches: a row of cells, and the title and the names of the attacks around a panel
_COLORS = "cividis_r"  # looks the same to the colour-blind; dark means a large regret


def marked(policy: str, told: Collection[str]) -> str:
    """A policy's name, with a dagger if it is told C."""
    return f"{policy} †" if policy in told else policy


def heat_map(found: Cells, order: Sequence[str], told: Collection[str]) -> Figure:
    """The relative regret in every scenario of one world: a panel for each level, with a row for each policy."""
    levels = sorted({case.corruption for case in found if case.attack != CLEAN and case.corruption is not None})
    panels = [_columns(found, level) for level in levels]
    values = [
        np.array([[relative(found, case, policy).value for case in columns] for policy in order]) for columns in panels
    ]
    height = len(levels) * (len(order) * _ROW + _LABELS) + 0.5
    figure = Sheet(figsize=(WIDTH, height), layout="constrained")
    *rows, bar = figure.subplots(len(levels) + 1, height_ratios=[*[len(order) * _ROW] * len(levels), 0.08])
    norm = LogNorm(min(map(np.min, values)), max(max(map(np.max, values)), 1.001 * min(map(np.min, values))))
    for axes, level, columns, these in zip(rows, levels, panels, values, strict=True):
        shown = heat_cells(axes, these, norm, _COLORS)
        winners = [best(found[case], told) for case in columns]
        bold = np.array([[winner == policy for winner in winners] for policy in order])
        number_cells(axes, these, norm, _COLORS, bold, FONT - 0.5)
        _name_columns(figure, axes, columns)
        axes.set_yticks(np.arange(len(order)) + 0.5, [marked(policy, told) for policy in order])
        axes.set_title(f"C = {level:g}", loc="left", fontsize=FONT, x=-0.02, ha="right")
        axes.set(ylim=(len(order), 0))
    words = "regret at the end, relative to OFUL's without attack; bold: the best not told C"
    color_bar(figure, shown, bar, words, format=lambda value, _: two_digits(value))
    bar.xaxis.set_minor_formatter("")
    return figure


def _columns(found: Cells, level: float) -> list[Case]:
    """The scenarios of a panel: the clean one, the weak attacks, the strong ones."""
    these = [case for case in found if case.attack == CLEAN or case.corruption == level]
    return sorted(these, key=lambda case: (case.attack != CLEAN, case.strength == "strong"))


def _name_columns(figure: Figure, axes: Axes, columns: Sequence[Case]) -> None:
    """Write the attacks below a panel, and above it which are weak and which are strong, with a thicker line."""
    names = [scenario_name(case.attack) for case in columns]
    axes.set_xticks(np.arange(len(names)) + 0.5, names, rotation=40, ha="right", rotation_mode="anchor")
    kinds = groupby(enumerate(columns), key=lambda pair: "" if pair[1].attack == CLEAN else pair[1].strength)
    for kind, members in kinds:
        places = [place for place, _ in members]
        if not kind:
            continue
        aside = offset_copy(axes.get_xaxis_transform(), figure, y=3, units="points")
        line: dict[str, Any] = {"color": "black", "linewidth": 2.0 if kind == "strong" else 0.6, "clip_on": False}
        axes.plot([places[0] + 0.08, places[-1] + 0.92], [1, 1], transform=aside, **line)
        words = f"{kind}: {'sees' if kind == 'strong' else 'does not see'} the action" if len(places) > 3 else kind
        above = offset_copy(axes.get_xaxis_transform(), figure, y=7, units="points")
        axes.text((places[0] + places[-1] + 1) / 2, 1, words, transform=above, ha="center", fontsize=FONT)


def price(rows: Sequence[Score], told: Collection[str]) -> Figure:
    """The regret on clean data against the regret under attack: a named point for each policy."""
    labels = [("on clean data, relative to OFUL's regret", "under attack, relative to OFUL's regret without")]
    figure, (axes,) = log_panels([""], labels, height=max(3.6, 0.8 + 0.17 * len(rows)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(mpl.ticker.LogLocator(subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        axis.set_major_formatter(lambda value, _: f"{value:g}")
        axis.set_minor_formatter(lambda value, _: "")
    ordered = sorted(rows, key=lambda row: row.attacked.value)
    for number, row in enumerate(ordered):
        (x, *across), (y, *up) = row.price, row.attacked
        reach = [[[value - low], [high - value]] for value, (low, high) in ((x, across), (y, up))]
        look = {**style(number), "linestyle": "", "elinewidth": 0.7}
        axes.errorbar(x, y, np.nan_to_num(reach[1]), np.nan_to_num(reach[0]), **look)
    axes.margins(0.06)
    longest = max(len(marked(row.policy, told)) for row in rows)
    figure.set_layout_engine("constrained", rect=(0.0, 0.0, 1.0 - (4.3 * longest + 26.0) / (72.0 * WIDTH), 1.0))
    figure.draw_without_rendering()  # for the height of the panel
    _name_points(figure, axes, ordered, told)
    return figure


def _name_points(figure: Figure, axes: Axes, rows: Sequence[Score], told: Collection[str]) -> None:
    """Write each policy's marker and name to the right, with a line to its point."""
    heights = axes.transAxes.inverted().transform(
        axes.transData.transform([(r.price.value, r.attacked.value) for r in rows])
    )
    places = spread_apart(heights[:, 1], 1.25 * FONT * figure.dpi / 72 / axes.bbox.height)
    marker, text = (offset_copy(axes.transAxes, figure, x=x, units="points") for x in (14, 20))
    for number, (row, place) in enumerate(zip(rows, places, strict=True)):
        look = style(number)
        tie = {"arrowstyle": "-", "color": look["color"], "linewidth": 0.5, "alpha": 0.6, "shrinkA": 3, "shrinkB": 3}
        point = row.price.value, row.attacked.value
        axes.annotate("", point, (1, place), textcoords=marker, arrowprops=tie, annotation_clip=False)
        axes.plot(1, place, **{**look, "linestyle": ""}, transform=marker, clip_on=False)
        name = axes.text(1, place, marked(row.policy, told), transform=text, va="center_baseline", fontsize=FONT)
        name.set_in_layout(False)
