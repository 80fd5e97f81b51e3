"""One tuning protocol for all policies: the radius scale on a logarithmic grid, by one objective, on its own seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from math import sqrt
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from robandit.arrays import Floats
from robandit.errors import ConfigError, nearest
from robandit.lab.summary import t_quantile

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyarrow import Table

GRID = tuple(2.0**-j for j in range(11))
"""From 1, the theory, down to about a thousandth, in steps of two."""
SEED = 101
"""Of tuning. No evaluation may use it."""
OBJECTIVES = ("mean", "worst")
"""Of the regret at the end: its mean over the panels, or that of the worst panel."""


@dataclass(frozen=True)
class Point:
    """A policy at one scale: the objective, half of its 95 % interval, and the mean regret in each panel."""

    scale: float
    regret: float
    half: float
    panels: Sequence[float]


@dataclass(frozen=True)
class Tuned:
    """The scale of each policy, and all that it was chosen from."""

    objective: str
    scales: Mapping[str, float]
    curves: Mapping[str, Sequence[Point]]
    made_from: Mapping[str, Any] = field(default_factory=dict)
    """Rounds, trials, seed, environments and attacks of the runs."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Tuned:
        try:
            held = json.loads(text)
            curves = {name: tuple(Point(**point) for point in points) for name, points in held.pop("curves").items()}
            return cls(curves=curves, **held)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"this is no file of tuned scales: {error}") from error


def shipped() -> Tuned:
    """The scales that come with the package, for the policies of Figure 1; `robandit paper tune` makes them again."""
    return Tuned.from_json(files("robandit.experiments").joinpath("scales.json").read_text(encoding="utf-8"))


def label(policy: str, scale: float) -> str:
    """What a tuning run's table calls a policy at a scale."""
    return f"{policy} × {scale:.6g}"


Grids: TypeAlias = Mapping[str, Sequence[float]]
"""The scales to try, by policy."""


def grid_config(base: Mapping[str, Any], policies: Mapping[str, Mapping[str, Any]], grids: Grids) -> Any:
    """The configuration of a tuning run: every policy at every scale of its grid."""
    entries = [
        {**settings, "label": label(policy, scale), "radius_scale": scale}
        for policy, settings in policies.items()
        for scale in grids[policy]
    ]
    return {**base, "policies": entries}


def tune(table: Table, config: Mapping[str, Any], grids: Grids, objective: str) -> Tuned:
    """Read the best scale of each policy off the table of a tuning run."""
    if objective not in OBJECTIVES:
        raise ConfigError(f"unknown objective {objective!r}{nearest(objective, OBJECTIVES)}")
    regret = final_regret(table)
    curves = {
        policy: tuple(_point(scale, regret[label(policy, scale)], objective) for scale in grid)
        for policy, grid in grids.items()
    }
    scales = {policy: min(points, key=lambda point: point.regret).scale for policy, points in curves.items()}
    return Tuned(objective, scales, curves, {key: value for key, value in config.items() if key != "policies"})


def final_regret(table: Table) -> dict[str, Floats]:
    """Each policy's regret at the end, (panels, trials), panels in the order of the table."""
    from pyarrow.compute import field as column
    from pyarrow.compute import max as largest

    last = table.filter(column("round") == largest(table["round"]))
    found: dict[str, dict[tuple[Any, ...], list[float]]] = {}
    for row in last.select(["policy", "environment", "attack", "C", "trial", "regret"]).to_pylist():
        panel = row["environment"], row["attack"], row["C"]
        found.setdefault(row["policy"], {}).setdefault(panel, []).append(row["regret"])
    return {policy: np.array(list(panels.values())) for policy, panels in found.items()}


def interval(values: Floats) -> tuple[float, float]:
    """The mean of some trials, and half of its 95 % t interval: nan for a single one."""
    n = len(values)
    half = t_quantile(0.95, n - 1) * float(values.std(ddof=1)) / sqrt(n) if n > 1 else float("nan")
    return float(values.mean()), half


def _point(scale: float, regret: Floats, objective: str) -> Point:
    panels = regret.mean(axis=1)
    mean, half = interval(regret.mean(axis=0) if objective == "mean" else regret[panels.argmax()])
    return Point(scale, mean, half, [float(panel) for panel in panels])


def sensitivity(tuned: Tuned) -> Figure:
    """The objective against the scale, a line for each policy, its best scale ringed."""
    from robandit.figures.pictures import FONT, log_panels, style

    over = "mean over the panels" if tuned.objective == "mean" else "worst panel"
    figure, (axes,) = log_panels([""], [("radius scale (1 is the theory)", f"regret at the end, {over}")], height=4.4)
    for number, (policy, points) in enumerate(tuned.curves.items()):
        x, y, half = (np.array([getattr(point, name) for point in points]) for name in ("scale", "regret", "half"))
        axes.errorbar(x, y, np.nan_to_num(half), **style(number), label=f"{policy}: {tuned.scales[policy]:.3g}")
        best = int(np.argmin(y))
        axes.plot(x[best], y[best], "o", markersize=12, fillstyle="none", color="#262626", markeredgewidth=0.8)
    title = "policy: the scale chosen (ringed)"
    look: dict[str, Any] = {"frameon": False, "fontsize": FONT, "title_fontsize": FONT}
    figure.legend(title=title, loc="outside lower center", ncols=2, **look)
    return figure
