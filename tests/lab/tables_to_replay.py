"""Made-up decisions of people whose clicks follow a logistic model."""

from __future__ import annotations

from typing import Any

import numpy as np


def made_up(decisions: int, *, most: int = 4, fewest: int | None = None, seed: int = 3) -> dict[str, Any]:
    """A long table: two numbers and a colour for each action, who decided, when, and whether they clicked."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(fewest or most, most + 1, decisions)
    decision = np.repeat(np.arange(decisions), sizes)
    x, colour = rng.normal(size=(len(decision), 2)), rng.integers(0, 3, len(decision))
    chance = 1.0 / (1.0 + np.exp(-1.5 * (x[:, 0] - 0.5 * x[:, 1] + 0.4 * (colour == 1))))
    return {
        "round": decision,
        "x0": x[:, 0],
        "x1": x[:, 1],
        "colour": np.array(["red", "blue", "green"])[colour],
        "reward": (rng.random(len(decision)) < chance).astype(float),
        "who": decision % max(2, decisions // 5),
    }
