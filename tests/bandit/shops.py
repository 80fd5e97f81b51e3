"""A shop with a known truth, for tests of `Bandit`."""

from __future__ import annotations

from typing import Any

import numpy as np

from robandit import Features

COLOURS = ("red", "green", "blue")


def products(rng: np.random.Generator, number: int) -> list[dict[str, Any]]:
    """Some products."""
    return [
        {"item": f"p{place}", "price": round(float(rng.uniform(0, 50)), 2), "colour": str(rng.choice(COLOURS))}
        for place in range(number)
    ]


def rate(product: dict[str, Any]) -> float:
    """How often a product is clicked: cheap and red sells."""
    return 0.45 - 0.006 * float(product["price"]) + 0.2 * (product["colour"] == "red")


def schema(**settings: Any) -> Features:
    """Features that are all known beforehand."""
    return Features(action={"price": (0, 50), "colour": list(COLOURS)}, id="item", **settings)


def open_schema(**settings: Any) -> Features:
    """Features whose scale is learnt as values come."""
    return Features(action={"price": float, "colour": list(COLOURS)}, id="item", **settings)
