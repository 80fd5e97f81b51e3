"""The shop that both programs of a pair play: the same visitors, and the same luck for every product.

Its products and click rates are those of examples/visits.py. It is played honestly, and with bots that come after 500
visits. They are nine of ten visitors of partner-7, click on tools, and on nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

sys.path.append(str(Path(__file__).parents[1]))

from visits import AFFILIATES, PRODUCTS, USERS, rate

SHELF: list[dict[str, Any]] = [
    {"item": item, "category": category, "price": price} for item, (category, price) in PRODUCTS.items()
]
"""What can be shown, as records."""
ITEMS = list(PRODUCTS)


class Visit(NamedTuple):
    """Somebody who looks at one product."""

    user: str
    source: str
    bot: bool
    luck: float

    def click(self, item: str) -> int:
        """Whether this visitor clicks on a product."""
        return int(PRODUCTS[item][0] == "tools" if self.bot else self.luck < rate(self.user, item))


Program: TypeAlias = Callable[[Sequence[Visit]], list[str]]
"""Shows every visitor one product and learns from the click; what it has shown."""


def visits(bots: bool, seed: int, number: int = 2000) -> list[Visit]:
    """The visitors. Without bots the same people come."""
    rng = np.random.default_rng(seed)
    found = []
    for place in range(number):
        user, source = str(rng.choice(USERS)), str(rng.choice(AFFILIATES))
        chance, luck = rng.random(2).tolist()
        found.append(Visit(user, source, bots and place >= 500 and source == "partner-7" and chance < 0.9, luck))
    return found


def compare(programs: dict[str, Program]) -> None:
    """Print how many of 100 people click on what each program shows them, by the true rates: the mean of three runs."""
    honest, attacked = ([visits(bots, seed) for seed in (1, 2, 3)] for bots in (False, True))
    print(f"{'clicks of 100 people':<24}{'honest':>8}{'bots':>8}")
    for name, program in (programs | {"at random": at_random, "the best": the_best}).items():
        means = (np.mean([rate_of(crowd, program(crowd)) for crowd in crowds]) for crowds in (honest, attacked))
        print(f"{name:<24}" + "".join(f"{100.0 * mean:>8.1f}" for mean in means))


def at_random(crowd: Sequence[Visit]) -> list[str]:
    """Show anything."""
    return np.random.default_rng(1).choice(ITEMS, len(crowd)).tolist()


def the_best(crowd: Sequence[Visit]) -> list[str]:
    """Show what each user likes best, which only this file knows."""
    return [max(ITEMS, key=lambda item: rate(visit.user, item)) for visit in crowd]


def rate_of(crowd: Sequence[Visit], shown: Sequence[str]) -> float:
    """The mean of the true click rates of what people were shown; bots don't count."""
    pairs = zip(crowd, shown, strict=True)
    return float(np.mean([rate(visit.user, item) for visit, item in pairs if not visit.bot]))
