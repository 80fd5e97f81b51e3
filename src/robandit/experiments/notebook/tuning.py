"""`robandit.tune`: the radius scale of each policy, chosen on a seed that no result uses.

>>> tuned = tune(["oful", "greedy"], "fresh,dim=5", "flip,rounds=30", rounds=100, trials=4, grid=[1.0, 0.1])
>>> list(tuned.scales), [policy["name"] for policy in tuned.policies]
(['oful'], ['oful', 'greedy'])
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from robandit.errors import ConfigError, nearest
from robandit.experiments import tune as tuner
from robandit.experiments.notebook.entries import Some, tables
from robandit.experiments.notebook.result import play
from robandit.experiments.notebook.shown import Overview, Shown
from robandit.experiments.tune import GRID, OBJECTIVES, SEED, Grids, Tuned
from robandit.figures.numbers import mean_half
from robandit.lab.catalogue import find
from robandit.lab.plan import Entry, read_entries

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, repr=False, eq=False)
class Tuning(Shown):
    """Tuned policies, which `robandit.simulate` takes as they are. A notebook shows their scales."""

    policies: Sequence[Mapping[str, Any]]
    """The policies as tables, each with its best radius scale. Those without a scale are unchanged."""
    tuned: Tuned
    """The numbers that the scales were chosen by."""
    setting: Mapping[str, Any]
    """The environments, attacks and rounds of the tuning."""

    @property
    def scales(self) -> Mapping[str, float]:
        """The best radius scale of each policy."""
        return self.tuned.scales

    @property
    def at_the_edge(self) -> list[str]:
        """The policies whose best scale is the first or the last of the grid, so that a better one may lie beyond."""
        ends = {policy: {points[0].scale, points[-1].scale} for policy, points in self.tuned.curves.items()}
        return [policy for policy, scale in self.scales.items() if scale in ends[policy]]

    def summary(self) -> Overview:
        """The best scale of each policy, and the regret there with its 95 % interval."""
        rows: list[tuple[str, ...]] = [("policy", "radius scale", "regret")]
        exact = []
        for policy, points in self.tuned.curves.items():
            best = next(point for point in points if point.scale == self.scales[policy])
            rows.append((policy, f"{best.scale:.3g}", mean_half(best.regret, best.half, 1)))
            exact.append({"policy": policy, "radius_scale": best.scale, "regret_mean": best.regret})
        edge = ", ".join(self.at_the_edge)
        return Overview(pa.Table.from_pylist(exact), rows, f"At the edge of the grid: {edge}" if edge else "")

    def plot(self) -> Figure:
        """Draw the regret against the scale, a line for each policy."""
        return tuner.sensitivity(self.tuned)

    def _title(self) -> str:
        made = self.tuned.made_from
        return f"Radius scales, tuned on {made['trials']} trials of {made['rounds']} rounds, seed {made['seed']}"


def tune(
    policies: Some,
    environment: Some = "paper",
    attacks: Some = "none",
    *,
    rounds: int = 1000,
    trials: int = 10,
    grid: Sequence[float] = GRID,
    objective: str = "mean",
    device: str = "cpu",
    workers: int | None = None,
    progress: bool = True,
) -> Tuning:
    """Find the radius scale of least regret for each policy, over these environments and attacks.

    Every scale of the ``grid`` is played on the tuning seed, which `simulate` then refuses. ``objective`` is the
    ``mean`` regret over the scenarios, or the regret in the ``worst`` of them. A policy whose ``radius_scale`` is set,
    or that has none, is not tuned. On the ``device`` "cuda", a GPU, worlds are drawn from other streams.
    """
    if objective not in OBJECTIVES:
        raise ConfigError(f"unknown objective {objective!r}{nearest(objective, OBJECTIVES)}")
    entries = read_entries("policies", tables("policies", policies))
    grids = {entry.label: [float(scale) for scale in grid] for entry in entries if _has_scale(entry)}
    setting: dict[str, Any] = {"environments": tables("environments", environment), "rounds": rounds}
    setting["attacks"] = tables("attacks", attacks)
    how = {"trials": trials, "device": device}
    found = _search(entries, grids, setting | how, objective, workers=workers, progress=progress)
    return Tuning([entry.table() | _scale(found, entry.label) for entry in entries], found, setting)


def _search(entries: Sequence[Entry], grids: Grids, setting: Mapping[str, Any], objective: str, **how: Any) -> Tuned:
    """The best scale of each policy that has a grid."""
    if not grids or not all(grids.values()):
        raise ConfigError("policies: none of these has a radius_scale that is left open, or the grid is empty")
    base = {**setting, "seed": SEED, "checkpoints": 2}
    searched = {entry.label: entry.table() for entry in entries if entry.label in grids}
    played = play(tuner.grid_config(base, searched, grids), **how)
    return tuner.tune(played.table, played.config, grids, objective)


def refuse_tuning_seed(seed: int) -> None:
    """No result may use the seed of the tuning."""
    if seed == SEED:
        raise ConfigError(f"seed {SEED} is the one that the radius scales are tuned on; choose another")


def _has_scale(entry: Entry) -> bool:
    """Whether a policy has a radius scale and its settings leave it open."""
    known = {item.name for item in fields(find("policies", entry.kind))}
    return "radius_scale" in known and "radius_scale" not in entry.settings


def _scale(found: Tuned, label: str) -> dict[str, float]:
    return {"radius_scale": found.scales[label]} if label in found.scales else {}
