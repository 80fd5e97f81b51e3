"""Writes visits.csv: who visited a shop, which product was shown, drawn at random, and whether it was clicked.

    python examples/visits.py visits.csv

The clicks are made up, by rates that this file knows and a learner does not.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import numpy as np

PRODUCTS = {
    "atlas": ("books", 32.0),
    "novel": ("books", 9.5),
    "comic": ("books", 12.0),
    "drill": ("tools", 45.0),
    "hammer": ("tools", 14.0),
    "saw": ("tools", 22.0),
    "puzzle": ("toys", 16.0),
    "kite": ("toys", 11.0),
    "robot": ("toys", 48.0),
    "yo-yo": ("toys", 4.0),
}
"""The category and the price of every product."""
USERS, AFFILIATES = ("student", "parent", "builder"), ("search", "mail", "partner-7")
TASTE = {("student", "books"): 0.12, ("parent", "toys"): 0.16, ("builder", "tools"): 0.18}
"""What is added to the rate of clicks where a user likes a category."""


def rate(user: str, item: str) -> float:
    """How often a user clicks on a product."""
    category, price = PRODUCTS[item]
    return 0.14 - 0.0015 * price + TASTE.get((user, category), 0.0)


def write(path: Path, number: int = 12_000, seed: int = 1) -> None:
    """Write so many visits."""
    rng = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["user", "item", "category", "price", "click", "affiliate"])
        for _ in range(number):
            user, item = str(rng.choice(USERS)), str(rng.choice(list(PRODUCTS)))
            click = int(rng.random() < rate(user, item))
            rows.writerow([user, item, *PRODUCTS[item], click, rng.choice(AFFILIATES)])


if __name__ == "__main__":
    write(Path(sys.argv[1]))
