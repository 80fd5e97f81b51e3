"""One tuning protocol for all policies: try every radius scale of a grid on a seed of its own, keep the best."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from robandit.arrays import Floats
from robandit.errors import ConfigError, nearest
from robandit.experiments.intervals import interval
from robandit.lab.summary import last_round

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pyarrow import Table

GRID = tuple(2.0**-j for j in range(11))
"""The radius scales to try: from 1, the theory, down to 1/1024, each half of the one before."""
SEED = 101
"""The seed of the tuning. No evaluation may use it."""
OBJECTIVES = ("mean", "worst")
"""What the tuning minimises: the regret at the end, averaged over the panels or in the worst panel."""


@dataclass(frozen=True)
class Point:
    """How a policy does at one scale."""

    scale: float
    regret: float
    """The objective."""
    half: float
    """Half of the objective's 95 % interval."""
    panels: Sequence[float]
    """The mean regret in each panel."""


@dataclass(frozen=True)
class Tuned:
    """The scale of each policy, and the numbers it was chosen by."""

    objective: str
    scales: Mapping[str, float]
    curves: Mapping[str, Sequence[Point]]
    made_from: Mapping[str, Any] = field(default_factory=dict)
    """The rounds, trials, seed, environments and attacks of the tuning run."""

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Tuned:
        try:
            held = json.loads(text)
            curves = {name: tuple(Point(**point) for point in points) for name, points in held.pop("curves").items()}
            return cls(curves=curves, **held)
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(f"not a file of tuned scales: {error}") from error


def shipped() -> Tuned:
    """The scales that ship with the package, for the policies of Figure 1. `robandit paper tune` makes them anew."""
    return Tuned.from_json(files("robandit.experiments").joinpath("scales.json").read_text(encoding="utf-8"))


def label(policy: str, scale: float) -> str:
    """The name of a policy at a scale in the table of a tuning run."""
    return f"{policy} × {scale:.6g}"


Grids: TypeAlias = Mapping[str, Sequence[float]]
"""The scales to try for each policy."""


def grid_config(base: Mapping[str, Any], policies: Mapping[str, Mapping[str, Any]], grids: Grids) -> Any:
    """The settings of a tuning run: every policy at every scale of its grid."""
    entries = [
        {**settings, "label": label(policy, scale), "radius_scale": scale}
        for policy, settings in policies.items()
        for scale in grids[policy]
    ]
    return {**base, "policies": entries}


def tune(table: Table, config: Mapping[str, Any], grids: Grids, objective: str) -> Tuned:
    """The best scale of each policy, from the table of a tuning run."""
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
    """Each policy's regret at the end, (panels, trials), with the panels in the order of the table."""
    scenario = ["policy", "environment", "attack", "C"]
    groups = last_round(table).group_by(scenario, use_threads=False).aggregate([("regret", "list")])
    found: dict[str, list[Floats]] = {}
    for policy, regrets in zip(groups["policy"].to_pylist(), groups["regret_list"], strict=True):
        found.setdefault(policy, []).append(regrets.values.to_numpy())
    return {policy: np.array(panels) for policy, panels in found.items()}


def _point(scale: float, regret: Floats, objective: str) -> Point:
    panels = regret.mean(axis=1)
    mean, half = interval(regret.mean(axis=0) if objective == "mean" else regret[panels.argmax()])
    return Point(scale, mean, half, [float(panel) for panel in panels])


def sensitivity(tuned: Tuned) -> Figure:
    """A picture of the objective against the scale: a line for each policy, with a ring around its best scale."""
    from robandit.figures.names import policy_names
    from robandit.figures.pictures import FONT, log_panels, style

    names = policy_names(tuned.curves)
    over = "mean over the scenarios" if tuned.objective == "mean" else "in the worst scenario"
    figure, (axes,) = log_panels([""], [("radius scale (1 is the theory)", f"regret at the end, {over}")], height=4.4)
    for number, (policy, points) in enumerate(tuned.curves.items()):
        x, y, half = (np.array([getattr(point, name) for point in points]) for name in ("scale", "regret", "half"))
        axes.errorbar(x, y, np.nan_to_num(half), **style(number), label=f"{names[policy]}: {tuned.scales[policy]:.3g}")
        best = int(np.argmin(y))
        axes.plot(x[best], y[best], "o", markersize=12, fillstyle="none", color="#262626", markeredgewidth=0.8)
    title = "policy: the scale chosen (ringed)"
    look: dict[str, Any] = {"frameon": False, "fontsize": FONT, "title_fontsize": FONT}
    figure.legend(title=title, loc="outside lower center", ncols=2, **look)
    return figure
