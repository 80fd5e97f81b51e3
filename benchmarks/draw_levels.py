"""The cascade of Multi-level weighted OFUL in two dimensions: which sets are empty, and which one is used."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from robandit import Ellipsoid, Intersection, MultiLevelWeightedOFUL
from robandit.arrays import Floats
from robandit.figures.pictures import COLORS, FONT, WIDTH

TRUTH = np.array([0.6, 0.3])
ROUNDS, LIES = 60, 20
SCALE = 0.002  # of the radii: at scale 1 all sets are far larger than what they differ by
SEED = 2  # a run in which levels 1 and 2 are refused; one of the first four was empty in 36 runs of 60
SHOWN = 3  # levels


def played(seed: int = SEED) -> MultiLevelWeightedOFUL:
    """A policy that was told the opposite of the truth in the first rounds, and the truth ever since."""
    rng = np.random.default_rng(seed)
    policy = MultiLevelWeightedOFUL(dim=2, horizon=600, noise_range=0.5, radius_scale=SCALE, seed=seed)
    for t in range(ROUNDS):
        angles, lengths = rng.uniform(0, 2 * np.pi, 8), rng.uniform(0.5, 1, (8, 1))
        decision = policy.choose(np.stack([np.cos(angles), np.sin(angles)], axis=1) * lengths, sigma=0.1)
        mean = decision.action @ TRUTH
        noise = np.clip(0.1 * rng.normal(), -0.5, 0.5)
        policy.update(decision, -mean if t < LIES else mean + noise)
    return policy


def levels(policy: MultiLevelWeightedOFUL | None = None) -> Figure:
    """A panel for each of the first levels: the two ellipsoids, and their intersection or the line between them."""
    policy = policy or played()
    sets = [policy.candidate(level) for level in range(1, SHOWN + 1)]
    empty = [bool(np.all(both.is_empty())) for both in sets]
    figure = Figure(figsize=(WIDTH, 3.0), layout="constrained")
    for place, (axes, both) in enumerate(zip(figure.subplots(1, SHOWN, sharex=True, sharey=True), sets, strict=True)):
        _panel(axes, both, empty[place])
        told = "empty: refused" if empty[place] else "used" if all(empty[:place]) else "not empty"
        axes.set_title(f"level {place + 1}: {told}", fontsize=FONT + 1, loc="left")
        axes.set_xlabel("first coordinate of μ", fontsize=FONT)
        axes.tick_params(labelsize=FONT)
        axes.set_aspect("equal")
        axes.plot(*TRUTH, "*", color="black", markersize=9, linestyle="", label="the truth")
    outlines = np.concatenate([boundary(body) for both in sets for body in (both.first, both.second)] + [TRUTH[None]])
    low, high = outlines.min(axis=0) - 0.04, outlines.max(axis=0) + 0.04
    figure.axes[0].set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    figure.axes[0].set_ylabel("second coordinate of μ", fontsize=FONT)
    handles, labels = figure.axes[-1].get_legend_handles_labels()
    line = figure.axes[0].get_legend_handles_labels()
    known = dict(zip(line[1] + labels, line[0] + handles, strict=True))
    figure.legend(known.values(), known.keys(), loc="outside lower center", ncols=3, fontsize=FONT, frameon=False)
    return figure


def boundary(body: Ellipsoid, points: int = 400) -> Floats:
    """Points around an ellipse."""
    angles = np.linspace(0, 2 * np.pi, points)
    circle = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    center, root = body.center.reshape(2), body.root.reshape(2, 2)
    return center + float(np.max(body.radius)) * circle @ root.T


def lens(both: Intersection, points: int = 720) -> Floats:
    """Points around an intersection: its maximisers in all directions, (points, 2)."""
    angles = np.linspace(0, 2 * np.pi, points)
    directions = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    return both.support(directions.reshape((1,) * (both.first.center.ndim - 1) + directions.shape)).points.reshape(
        -1, 2
    )


def between(both: Intersection) -> tuple[Floats, Floats]:
    """A point and a direction of a line with all of one ellipsoid on its one side, and the other on the other side."""
    normal = both[None].separators()[0] if both.first.center.ndim == 1 else both.separators()[0]
    ends = []
    for body, sign in ((both.first, 1.0), (both.second, -1.0)):
        root = body.root.reshape(2, 2)
        ends.append(
            normal @ body.center.reshape(2) + sign * float(np.max(body.radius)) * np.linalg.norm(root.T @ normal)
        )
    assert ends[0] < ends[1], "the direction does not separate the two"
    point = normal * np.mean(ends) / (normal @ normal)
    return point, np.array([-normal[1], normal[0]]) / np.linalg.norm(normal)


def _panel(axes: Axes, both: Intersection, empty: bool) -> None:
    looks = ((both.first, COLORS[0], "from all rounds"), (both.second, COLORS[1], "from the rounds of this level"))
    for body, color, label in looks:
        axes.fill(*boundary(body).T, facecolor=color, edgecolor=color, alpha=0.25, linewidth=0)
        axes.plot(*boundary(body).T, color=color, linewidth=1.4, label=label)
    if empty:
        (x, y), (dx, dy) = (array.tolist() for array in between(both))
        look: dict[str, Any] = {"color": "black", "linewidth": 1.2, "linestyle": (0, (4, 2))}
        axes.axline((x, y), (x + dx, y + dy), **look, label="proof: a line between")
    else:
        axes.fill(*lens(both).T, facecolor=COLORS[2], edgecolor="none", alpha=0.9, label="in both")
