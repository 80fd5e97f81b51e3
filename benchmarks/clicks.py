"""The regret of Quorum, which `recommend` answers, on clicks: beside OFUL, CW-OFUL and Greedy, without its sources.

The rivals' scales and the worlds were fixed and committed before any policy was judged here. Quorum's constants were
not chosen on them: those of the default before it were, on `DEVELOPED`, and it was judged on `JUDGED`, twice.

    python benchmarks/clicks.py              the table of docs/evidence/quorum.md: what is judged
    python benchmarks/clicks.py --develop    the same for the worlds on which constants may be chosen
    python benchmarks/clicks.py --lies 100   the same where the first 100 clicks are inverted
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import robandit
from robandit.arrays import Floats, Index
from robandit.experiments.intervals import geometric_ratio, ratio_words

TRIALS = 100
SETS = ("fresh", "alternating", "fixed")
CATALOGUE = 500
"""The number of products from which fresh sets are drawn. Alternating sets are two by turns, and a fixed set is one."""
RATES, APART = (0.02, 0.40), 0.10
"""Where the lowest and the highest rate of a trial's products are drawn from, and how far apart they are at least."""
NOISE = 0.5
"""The R that the rivals are told: clicks are ½-sub-Gaussian."""

Make = Callable[..., robandit.Policy]
RIVALS: dict[str, Make] = {
    **{f"OFUL {s:g}": partial(robandit.OFUL, radius_scale=s) for s in (0.01, 0.03, 0.1, 0.3, 1.0)},
    **{f"CW-OFUL {s:g}": partial(robandit.CWOFUL, corruption=None, radius_scale=s) for s in (0.01, 0.03, 0.1, 0.3)},
    "Greedy": robandit.Greedy,
}


class Cell(NamedTuple):
    """A kind of world."""

    dim: int
    actions: int
    sets: str
    horizon: int
    seed: int


DEVELOPED = [Cell(*cell, 2000, 1) for cell in product((4, 8, 16), (4, 16), SETS)]
JUDGED = [Cell(*cell, 2500, 2) for cell in product((5, 10, 20), (5, 20), SETS)]


class Products:
    """Products of random features and a random taste, (B, N, d) and (B, N): a constant first, and no norm above 1."""

    def __init__(self, cell: Cell, trials: int = TRIALS) -> None:
        self._cell, self._rng = cell, np.random.default_rng([cell.seed, cell.dim, cell.actions, SETS.index(cell.sets)])
        number = {"fresh": CATALOGUE, "alternating": 2 * cell.actions, "fixed": cell.actions}[cell.sets]
        plain = self._rng.uniform(-1.0, 1.0, (trials, number, cell.dim - 1))
        worth = np.matvec(plain, self._rng.normal(size=(trials, cell.dim - 1)))
        low, high = self._ends(trials)
        least, most = worth.min(axis=1, keepdims=True), worth.max(axis=1, keepdims=True)
        self.rates: Floats = low + (high - low) * (worth - least) / (most - least)
        self.actions: Floats = np.concatenate([np.ones((trials, number, 1)), plain], axis=2) / cell.dim**0.5

    def _ends(self, trials: int) -> tuple[Floats, Floats]:
        ends = np.sort(self._rng.uniform(*RATES, (trials, 50, 2)), axis=2)
        first = (ends[..., 1] - ends[..., 0] >= APART).argmax(axis=1)
        chosen = ends[np.arange(trials), first]
        return chosen[:, :1], chosen[:, 1:]

    def rounds(self) -> Iterator[tuple[Index, Floats]]:
        """For every round the products on offer, (B, K), and the visitors' luck, (B,)."""
        trials, count = len(self.rates), self._cell.actions
        for t in range(self._cell.horizon):
            if self._cell.sets == "fresh":
                places = self._rng.random((trials, CATALOGUE)).argpartition(count, axis=1)[:, :count]
            else:
                start = count * (t % 2 if self._cell.sets == "alternating" else 0)
                places = np.broadcast_to(np.arange(start, start + count), (trials, count))
            yield places, self._rng.random(trials)


def regret(cell: Cell, policy: robandit.Policy, trials: int = TRIALS, lies: int = 0) -> Floats:
    """The regret of a policy in every trial, (B,). All policies have the same products and the same luck.

    In the first rounds, as many as there are ``lies``, a click is reported as none, and none as a click.
    """
    products, rows, lost = Products(cell, trials), np.arange(trials)[:, None], np.zeros(trials)
    for t, (places, luck) in enumerate(products.rounds()):
        decision = policy.choose(products.actions[rows, places])
        rates = products.rates[rows, places]
        rate = rates[rows[:, 0], decision.index]
        policy.update(decision, ((luck < rate) == (t >= lies)).astype(float))
        lost += rates.max(axis=1) - rate
    return lost


def rivals(cell: Cell, trials: int = TRIALS, lies: int = 0) -> dict[str, Floats]:
    """The regret of every rival in every trial."""
    given = {"dim": cell.dim, "noise_range": NOISE, "trials": trials, "seed": cell.seed}
    found = {}
    for name, make in RIVALS.items():
        more = {"horizon": cell.horizon} if name.startswith("CW") else {}
        found[name] = regret(cell, make(**given, **more), trials, lies)
    return found


def recommended(cell: Cell, trials: int = TRIALS) -> robandit.Policy:
    """The policy that is recommended for clicks in a world."""
    choice = robandit.recommend(rewards="clicks", dim=cell.dim, fixed_sets=cell.sets == "fixed")
    return choice.make(trials=trials, seed=cell.seed)


def judge(cells: list[Cell], trials: int = TRIALS, lies: int = 0) -> None:
    """Print the regret of the recommendation and of the best rival of every cell."""
    print("| d | K | sets | best rival | its regret | Quorum | ratio |\n|---|---|---|---|---|---|---|")
    pairs = []
    for cell in cells:
        best, theirs = min(rivals(cell, trials, lies).items(), key=lambda item: item[1].mean())
        ours = regret(cell, recommended(cell, trials), trials, lies)
        pairs.append((ours, theirs))
        told = f"{best} | {theirs.mean():.1f} | {ours.mean():.1f} | {ratio_words(geometric_ratio(pairs[-1:]))}"
        print(f"| {cell.dim} | {cell.actions} | {cell.sets} | {told} |", flush=True)
    print(f"\nGeometric mean of the ratios: {ratio_words(geometric_ratio(pairs))}")


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--develop", action="store_true", help="the worlds on which constants may be chosen")
    parser.add_argument("--lies", type=int, default=0, help="how many clicks are inverted at first (default: none)")
    parser.add_argument("--trials", type=int, default=TRIALS, help="trials of each world (default: %(default)s)")
    options = parser.parse_args()
    with threadpool_limits(1):
        judge(DEVELOPED if options.develop else JUDGED, options.trials, options.lies)


if __name__ == "__main__":
    main()
