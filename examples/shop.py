"""A shop whose partner turns: a plain bandit and a quorum, served side by side, see the same visitors.

    pip install '.[serve,client]'
    python examples/shop.py --hold          # watch the dashboard while it runs, and afterwards

Visitors come by mail, by search, by the app and by a partner. In each visit a bandit shows one of four products, and
the reward is 1 for a click and 0 for none. After a quarter of the visits the partner's bots arrive. They click on the
partner's own products, which people like least, and on nothing else. The shop can't tell a bot from a person; it knows
the source alone.

The plain bandit is OFUL at a practical scale of its radius. The other one is told the same, but its sources vote.
"""

from __future__ import annotations

import argparse
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from robandit import Client, Features

FEATURES = Features(action={"price": (0, 50), "rating": (1, 5), "brand": ["house", "classic", "partner"]})
LIKED = {"house": 0.08, "classic": 0.0, "partner": -0.1}
"""What a brand adds to the click rate."""
ON_SHOW = 4
"""Number of products to choose from in a visit."""
SOURCES = {"search": 0.35, "mail": 0.2, "app": 0.2, "partner": 0.25}
"""Where visitors come from, and the share of each source."""
BOTS = 0.9
"""Share of bots among the partner's visitors, once they have arrived."""
BANDITS: dict[str, dict[str, Any]] = {
    "plain": {"policy": "oful", "radius_scale": 0.1},
    "quorum": {"policy": "quorum"},
}
TOGETHER = 20
"""Number of visitors who come before the shop hears what they clicked on."""


class Shop:
    """All visits, drawn beforehand, so that both bandits have the same visitors with the same luck."""

    def __init__(self, visits: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.visits, self.turns = visits, visits // 4
        self.shelves = [[product(rng, number) for number in range(ON_SHOW)] for _ in range(visits)]
        self.sources = rng.choice(list(SOURCES), visits, p=list(SOURCES.values())).tolist()
        late = np.arange(visits) >= self.turns
        self.bots = late & (np.array(self.sources) == "partner") & (rng.random(visits) < BOTS)
        self._luck = rng.random(visits)

    def click(self, visit: int, shown: int) -> float:
        """Whether the visitor clicks on the product shown: 1 or 0."""
        thing = self.shelves[visit][shown]
        return float(thing["brand"] == "partner" if self.bots[visit] else self._luck[visit] < rate(thing))

    def regret(self, visit: int, shown: int) -> float:
        """How many more clicks of people the best product would have earned on average."""
        rates = [rate(thing) for thing in self.shelves[visit]]
        return 0.0 if self.bots[visit] else max(rates) - rates[shown]

    def uniform_regret(self) -> float:
        """The regret in all of one who shows any product."""
        return sum(np.mean([self.regret(visit, shown) for shown in range(ON_SHOW)]) for visit in range(self.visits))


def product(rng: np.random.Generator, number: int) -> dict[str, Any]:
    """Something to show."""
    price, rating = float(rng.uniform(0, 50)), float(rng.uniform(1, 5))
    return {"id": f"product-{number}", "price": price, "rating": rating, "brand": str(rng.choice(list(LIKED)))}


def rate(thing: dict[str, Any]) -> float:
    """How often people click on a product, which no bandit knows."""
    return 0.25 - 0.003 * thing["price"] + 0.0375 * (thing["rating"] - 1.0) + LIKED[thing["brand"]]


def play(client: Client, shop: Shop, names: dict[str, str], pace: float | None) -> dict[str, float]:
    """Let all visitors come, say now and then how it goes, and return the regret of both bandits."""
    regret, start = dict.fromkeys(names, 0.0), time.monotonic()
    print(f"\n{'visits':>8}{'plain lost':>12}{'quorum lost':>13}   whom the quorum doubts")
    for first in range(0, shop.visits, TOGETHER):
        if pace:
            time.sleep(max(0.0, start + first / pace - time.monotonic()))
        group = range(first, min(first + TOGETHER, shop.visits))
        for label, name in names.items():
            clicks = {}
            for visit in group:
                chosen = client.decide(name, shop.shelves[visit], f"visit-{visit}", shop.sources[visit])
                clicks[chosen.decision_id] = shop.click(visit, chosen.index)
                regret[label] += shop.regret(visit, chosen.index)
            client.rewards(name, clicks)
        if shop.turns in group:
            print(f"{'':8}--- the partner's bots arrive ---")
        if 10 * group.stop // shop.visits > 10 * first // shop.visits:
            doubted = doubts(client, names["quorum"])
            print(f"{group.stop:8}{regret['plain']:12.0f}{regret['quorum']:13.0f}   {doubted}", flush=True)
    return regret


def doubts(client: Client, name: str) -> str:
    """Whom a quorum doubts, how much, and since when."""
    belief = client.status(name).belief
    found = [one for one in belief.sources if one.since is not None] if belief else []
    return ", ".join(f"{one.source} (weight {one.weight:.2f} since reward {one.since})" for one in found) or "nobody"


def show(client: Client, url: str, options: argparse.Namespace) -> None:
    """Create both bandits, let the visitors come, and print the result."""
    shop, mark = Shop(options.visits, options.seed), f"-{int(time.time())}" if options.url else ""
    names = {label: f"shop-{label}{mark}" for label in BANDITS}
    common = {"features": FEATURES, "rewards": "clicks", "horizon": options.visits, "sources": len(SOURCES)}
    common |= {"exploration": 0.0}  # so that only what is shown differs
    for label, settings in BANDITS.items():
        client.create(names[label], **common, **settings, seed=options.seed)
    print(f"The dashboard is at {url}/ and shows {' and '.join(names.values())}.")
    regret, uniform = play(client, shop, names, options.pace), shop.uniform_regret()
    print(f"\nClicks of people that were lost, in {shop.visits} visits. Showing any product would lose {uniform:.0f}.")
    for label, lost in regret.items():
        print(f"  {label:8}{lost:6.0f}, {100 * lost / uniform:3.0f} % of that")
        print(f"{'':10}{client.status(names[label]).certificate.sentence}")


@contextmanager
def service(url: str | None) -> Iterator[str]:
    """The address of a running service; without one, start one that ends with this program."""
    if url is not None:
        yield url
        return
    with TemporaryDirectory() as folder:
        store = str(Path(folder) / "shop.db")
        command = [sys.executable, "-m", "robandit", "serve", "--store", store, "--port", "0"]
        process = subprocess.Popen(  # in a session of its own, for Ctrl-C is for this program
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True, text=True
        )
        assert process.stdout is not None
        try:
            yield process.stdout.readline().partition(" at ")[2].partition("/,")[0]  # "The dashboard is at …/, all…"
        finally:
            process.terminate()
            process.wait()
            process.stdout.close()


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add, default = parser.add_argument, "(default %(default)s)"
    add("--visits", type=int, default=3000, help=f"number of visits, bots included {default}")
    add("--pace", type=float, help="visits a second, to watch them (default: as fast as it goes)")
    add("--seed", type=int, default=0, help=f"seed of the visitors and the bandits {default}")
    add("--hold", action="store_true", help="keep serving at the end, until Ctrl-C")
    add("--url", help="address of a running service (default: start one, and stop it afterwards)")
    add("--key", help="an admin's key, if that service needs one")
    options = parser.parse_args(arguments)
    if options.visits < 20:
        parser.error("--visits must be >= 20")
    return options


def main(arguments: list[str] | None = None) -> None:
    """Play the story once over HTTP."""
    options = parse(arguments)
    try:
        with service(options.url) as url, Client(url, key=options.key) as client:
            show(client, url, options)
            while options.hold:
                print(f"\nStill serving at {url}/ until Ctrl-C.", flush=True)
                time.sleep(1e6)
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the service ends with this program
    main()
