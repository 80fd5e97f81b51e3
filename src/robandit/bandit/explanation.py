"""Which features spoke for a choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from robandit.arrays import Floats


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What each feature adds to the expected reward of a choice, and what it adds to that of the next best."""

    id: Any
    """The candidate that was chosen."""
    expected: float
    """Its expected reward by what is known now: the lowest reward plus all contributions."""
    contributions: dict[str, float]
    """What each feature adds to it, in units of reward: the largest first, without those that add nothing."""
    runner_up: Any
    """The best of the others by expected reward; None if there was no other."""
    runner_up_expected: float | None
    """The expected reward of the runner-up."""
    difference: dict[str, float]
    """What each feature contributes more to the choice than to the runner-up; the largest first."""

    def __str__(self) -> str:
        lines = [f"{self.id}: expected reward {self.expected:.4g}"]
        lines += [f"  {value:+.4g}  {name}" for name, value in self.contributions.items()]
        if self.runner_up is not None:
            lines += [f"beside {self.runner_up}: expected reward {self.runner_up_expected:.4g}"]
            lines += [f"  {value:+.4g}  {name}" for name, value in self.difference.items()]
        return "\n".join(lines)


def explained(ids: Sequence[Any], index: int, parts: Floats, lowest: float, names: Sequence[str]) -> Explanation:
    """The explanation of a choice, given what each feature contributes to each candidate, (K, d)."""
    expected = lowest + parts.sum(axis=1)
    others = np.delete(np.arange(len(parts)), index)
    rival = int(others[expected[others].argmax()]) if others.size else None
    return Explanation(
        id=ids[index],
        expected=float(expected[index]),
        contributions=_largest_first(names, parts[index]),
        runner_up=None if rival is None else ids[rival],
        runner_up_expected=None if rival is None else float(expected[rival]),
        difference={} if rival is None else _largest_first(names, parts[index] - parts[rival]),
    )


def _largest_first(names: Sequence[str], values: Floats) -> dict[str, float]:
    order = np.argsort(-np.abs(values), kind="stable")
    return {names[place]: float(values[place]) for place in order.tolist() if values[place] != 0.0}
