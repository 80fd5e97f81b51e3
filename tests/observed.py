"""What the numerical tests share: repeatable property tests, and a record of the largest errors seen."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

import numpy as np
from hypothesis import HealthCheck, settings

worst: dict[str, float] = defaultdict(float)
shares: dict[str, list[bool]] = defaultdict(list)


def note(name: str, error: object) -> float:
    """Record the largest error seen under a name (shown by ``pytest -s``) and return this one."""
    return surplus(name, np.abs(error))  # type: ignore[call-overload]


def surplus(name: str, difference: object) -> float:
    """The same for a difference that may be as negative as it likes."""
    size = float(np.max(difference))  # type: ignore[call-overload]
    worst[name] = max(worst[name], size)
    return size


def repeatable(examples: int) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Hypothesis settings under which every run draws the same examples."""
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=checks)


def summary() -> str:
    """The record as text."""
    lines = [f"  {name:<58s} {worst[name]:.2e}" for name in sorted(worst)]
    counts = [f"  {name:<58s} {sum(shares[name])} of {len(shares[name])}" for name in sorted(shares)]
    return "\n".join(["", "largest errors observed:", *lines, "certified:", *counts])
