"""How the proof of a corruption monitor grows beside what was altered, and that a clean stream proves nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure

from robandit import CorruptionMonitor
from robandit.arrays import Floats, Ints
from robandit.figures.pictures import COLORS, FONT, WIDTH

TRUTH = np.array([0.6, 0.3, 0.5])
ROUNDS, LIES = 1500, (range(300, 375), range(900, 975))
NOISES = 0.05, 0.2
LOOKS = 50
SEED = 7


class Growth(NamedTuple):
    """What there was and what was proved, at each look."""

    rounds: Ints
    true: Floats
    proved: Floats


def watched(noise: float, lies: Sequence[range], seed: int = SEED) -> Growth:
    """A stream of random actions; in some rounds the reward reported is the opposite of the true one."""
    rng = np.random.default_rng(seed)
    monitor = CorruptionMonitor(dim=len(TRUTH), noise=noise)
    looks = np.linspace(0, ROUNDS, LOOKS + 1).astype(np.int64)[1:]
    altered, true, proved = 0.0, [], []
    for t in range(ROUNDS):
        lie = any(t in span for span in lies)
        action = rng.uniform(-0.5, 0.5, len(TRUTH))
        reward = action @ TRUTH + rng.normal(0.0, noise)
        altered += 2.0 * abs(reward) * lie
        monitor.observe(action, -reward if lie else reward)
        if t + 1 in looks:
            true.append(altered)
            proved.append(float(monitor.lower_bounds()[0]))
    return Growth(looks, np.array(true), np.array(proved))


def growth() -> Figure:
    """A panel for each size of the noise."""
    figure = Figure(figsize=(WIDTH, 3.0), layout="constrained")
    for axes, noise in zip(figure.subplots(1, len(NOISES), sharey=True), NOISES, strict=True):
        told, clean = watched(noise, LIES), watched(noise, ())
        for span in LIES:
            label = "somebody lies" if span is LIES[0] else None
            axes.axvspan(span.start, span.stop, color="0.9", linewidth=0, label=label)
        axes.plot(told.rounds, told.true, color="black", linestyle="--", label="altered, in truth")
        axes.plot(told.rounds, told.proved, color=COLORS[1], label="proved")
        axes.plot(clean.rounds, clean.proved, color=COLORS[0], label="proved where nobody lies")
        axes.text(ROUNDS, told.true[-1] - 2, f"{told.true[-1]:.0f}", fontsize=FONT, ha="right", va="top")
        axes.text(
            ROUNDS, told.proved[-1] - 2, f"{told.proved[-1]:.0f}", fontsize=FONT, ha="right", va="top", color=COLORS[1]
        )
        axes.set_title(f"noise {noise:g}", fontsize=FONT + 1, loc="left")
        axes.set_xlabel("round", fontsize=FONT)
        axes.tick_params(labelsize=FONT)
        axes.spines[["top", "right"]].set_visible(False)
        axes.set(xlim=(0, ROUNDS), ylim=(-1.5, 1.05 * max(told.true[-1], axes.get_ylim()[1])))
    figure.axes[0].set_ylabel("sum of alterations |c|", fontsize=FONT)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=FONT, frameon=False)
    return figure
