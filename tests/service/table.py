"""A small table of visits as people have them, and the shop that it comes from."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np

from robandit.features import Features

ITEMS: dict[str, dict[str, Any]] = {f"item{k}": {"category": "abc"[k % 3], "price": 5.0 + 4.0 * k} for k in range(9)}
AFFILIATES = ("search", "mail", "blog")
LIKES = {"a": 0.45, "b": 0.15, "c": 0.05}
"""How much visitors like each category, before the price."""


def features() -> Features:
    return Features(action={"price": (0, 50), "category": ["a", "b", "c"]}, context={"age": (18, 80)})


def rate(item: str) -> float:
    """The probability of a click: linear in what the features see."""
    return float(LIKES[ITEMS[item]["category"]] + 0.004 * (40.0 - ITEMS[item]["price"]))


def visits(number: int, seed: int = 0) -> list[dict[str, Any]]:
    """Visits in which somebody chose the item at random: user, age, item, category, price, affiliate, click."""
    rng = np.random.default_rng(seed)
    found = []
    for k in range(number):
        item = f"item{rng.integers(len(ITEMS))}"
        row = {"user": f"u{k}", "age": int(rng.integers(18, 80)), "item": item, **ITEMS[item]}
        found.append(row | {"affiliate": AFFILIATES[k % 3], "click": int(rng.random() < rate(item))})
    return found


def write_csv(path: Path, rows: list[dict[str, Any]]) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path
