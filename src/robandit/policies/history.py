"""What a history says of a problem: how many features, what rewards can be, how noisy they are, who sends traffic."""

from __future__ import annotations

from typing import Any

import numpy as np

from robandit.arrays import Floats
from robandit.features import Features
from robandit.features.tables import read_table
from robandit.rewards import Rewards


def read_history(
    history: Any, *, reward: str | None, features: Features | None, source: str | None, rewards: Any
) -> dict[str, Any]:
    """The settings of a `Situation` that a table with a row for each reward implies."""
    table = read_table(history)
    if reward is None:
        raise ValueError(f"name the column of the rewards: reward='…'; there are {', '.join(sorted(table.names))}")
    values = table.numbers(reward)
    if np.isnan(values).any():
        raise ValueError(f"row {int(np.isnan(values).argmax())}: {reward} is missing; leave out rows without a reward")
    declared = _guess(reward, values) if rewards is None else Rewards.read(rewards)
    for value in (values.min(), values.max()):
        declared.check(float(value), reward)
    known = Features.fit(table, reward=reward, source=source) if features is None else features
    rows = known.rows(table)
    return {
        "dim": known.dim,
        "rewards": declared,
        "sigma": residual(rows, values),
        "sources": None if source is None else len(table.labels(source)[0]),
    }


def _guess(reward: str, values: Floats) -> Rewards:
    """Clicks, if the rewards are 0 and 1; otherwise the range that occurred."""
    if np.isin(values, (0.0, 1.0)).all():
        return Rewards()
    if values.min() == values.max():
        raise ValueError(f"{reward} is {values[0]:g} in all rows: declare the range with rewards=(lowest, highest)")
    return Rewards(low=float(values.min()), high=float(values.max()))


def residual(rows: Floats, rewards: Floats) -> float | None:
    """The standard deviation (n − rank degrees of freedom) that a linear model of rows (n, d) leaves; None if none."""
    parameter, _, rank, _ = np.linalg.lstsq(rows, rewards)
    free = len(rewards) - int(rank)
    return None if free <= 0 else float(np.linalg.norm(rewards - rows @ parameter)) / free**0.5
