"""A forest plot: each policy's value by each estimator, beside the logged policy's own."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.figure import Figure

from robandit.figures.pictures import COLORS, FONT, WIDTH
from robandit.logs.evaluate.evaluation import LOGGED, Evaluation, EvaluationRow

_LOOKS = {"mean": ("#000000", "D"), "IPS": (COLORS[1], "o"), "SNIPS": (COLORS[2], "s"), "DR": (COLORS[0], "^")}


def forest(found: Evaluation) -> Figure:
    """Draw the picture. Finite-sample intervals are thin lines."""
    rows = found.rows
    figure = Figure(figsize=(WIDTH, 0.8 + 0.2 * len(rows)), layout="constrained")
    axes = figure.add_subplot()
    own = rows[0].value
    axes.axvspan(own.low, own.high, color="#e4e4e4", linewidth=0)
    axes.axvline(own.value, color="#56606B", linewidth=1, linestyle=(0, (4, 2)))
    for place, row in enumerate(rows):
        color, marker = _LOOKS[row.estimator]
        if row.sure is not None:
            axes.plot(row.sure[1:], [place] * 2, color=color, linewidth=0.6)
        axes.plot(row.value[1:], [place] * 2, color=color, linewidth=2.0)
        axes.plot(row.value.value, place, marker, color=color, markersize=4.5)
    axes.set_yticks(range(len(rows)), _labels(rows), parse_math=False)
    axes.tick_params(labelsize=FONT, length=2.5)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    thin = "; thin: the finite-sample one" if any(row.sure for row in rows) else ""
    axes.set_xlabel(f"mean reward of a decision, and its {100 * found.confidence:g} % interval{thin}", fontsize=FONT)
    return figure


def _labels(rows: Sequence[EvaluationRow]) -> list[str]:
    return [LOGGED if row.policy == LOGGED else f"{row.policy}, {row.estimator}" for row in rows]
