"""A shop under click fraud: a plain and a robust bandit, served side by side, see the same visitors.

    pip install '.[serve,client]' tqdm
    python examples/shop.py --hold          # watch the dashboard while it runs, and afterwards
    python examples/shop.py --seeds 20      # the table of docs/client.md, without a service; takes minutes

The shop has just opened. In each visit the bandit shows one of eight products with five features each. The reward is 1
for a click and 0 for none. After 8 % of the visits a rival's click farm arrives and stays for a fifth of all visits.
Seven visits of ten are then bots, and all bots come by way of the partner site. The shop can't tell bots from visitors:
a bot is shown what the bandit chooses, like everyone. It clicks on the rival's products, which genuine visitors like
least, and on nothing else. Then the bots are gone, and what they taught is still there.

The plain bandit is OFUL, with the best radius scale here of 1, 0.25 and 0.1. The robust bandit is CW-OFUL, which gives
little weight to the rewards of products that it knows little about. It is not told how much is corrupt. docs/client.md
shows what both lose over many seeds, and where robustness buys nothing.
"""

from __future__ import annotations

import argparse
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from robandit import Client, CorruptionMonitor
from robandit.policies import POLICIES
from robandit.wire.types import BanditSettings

WORTH = np.array([0.3, 0.5, 0.4, 0.2, -0.3])
"""Worth of the features to visitors: a constant, the fit to the visitor, the discount, the rating, and being the
rival's."""
PRODUCTS, RIVALS = 8, 0.25
"""Number of products on offer in a visit, and the share of them that are the rival's."""
SOURCES, TRAFFIC = ("web", "app", "search", "mail", "partner"), (0.25, 0.25, 0.25, 0.15, 0.1)
"""Sources of genuine visitors, and the share of each."""
PHASES = ("before", "during", "after")
ATTACK = 0.2
"""Share of the visits that fall into the attack."""
GROUP = 10
"""Number of visitors who come at the same time."""
COMMON = {"dim": 5, "noise_range": 1.0, "noise": 0.5, "sources": len(SOURCES), "intercept": False}
"""Settings of both bandits. A click is within 1 of its mean, and 1/2-sub-Gaussian; the features have a constant."""
SHOWN: dict[str, dict[str, Any]] = {
    "plain": {"policy": "oful", "radius_scale": 0.25},
    "robust": {"policy": "cw-oful", "radius_scale": 0.03},
}
MEASURED: dict[str, dict[str, Any]] = {
    "OFUL, scale 1": {"policy": "oful"},
    "OFUL, scale 0.25 (plain)": SHOWN["plain"],
    "OFUL, scale 0.1": {"policy": "oful", "radius_scale": 0.1},
    "Greedy": {"policy": "greedy"},
    "Quorum": {"policy": "quorum"},
    "CW-OFUL, scale 0.03 (robust)": SHOWN["robust"],
}


class Shop:
    """All visits, drawn beforehand, so that every bandit has the same visitors with the same luck."""

    def __init__(self, visits: int, seed: int, *, bots: float, quiet: float) -> None:
        rng = np.random.default_rng(seed)
        starts = (round(quiet * visits), round((quiet + ATTACK) * visits))
        self.phase = np.searchsorted(starts, np.arange(visits), side="right")
        self.starts = (0, *starts)
        rival = rng.random((visits, PRODUCTS, 1)) < RIVALS
        rest = rng.uniform(0.0, 1.0, (visits, PRODUCTS, 3))
        self.offers = np.concatenate([np.ones_like(rest[..., :1]), rest, rival], axis=-1) / np.sqrt(len(WORTH))
        self.means = self.offers @ WORTH
        self.bot = (self.phase == 1) & (rng.random(visits) < bots)
        self.source = np.where(self.bot, "partner", rng.choice(SOURCES, visits, p=TRAFFIC))
        self._rival, self._luck = rival[..., 0], rng.random(visits)

    def click(self, visit: int, product: int) -> float:
        """The reward, 1 or 0. A bot clicks on the rival's products, a visitor with the product's mean probability."""
        if self.bot[visit]:
            return float(self._rival[visit, product])
        return float(self._luck[visit] < self.means[visit, product])

    def genuine(self, shown: np.ndarray) -> tuple[list[float], float]:
        """Clicks per 1000 genuine visits in each phase if these products are shown, and the regret in all."""
        visits = np.arange(len(shown))
        clicks = self._luck < self.means[visits, shown]
        rates = [1000.0 * float(clicks[~self.bot & (self.phase == phase)].mean()) for phase in range(len(PHASES))]
        regret = (self.means.max(axis=1) - self.means[visits, shown])[~self.bot]
        return rates, float(regret.sum())

    def groups(self) -> Iterator[range]:
        """The visits in groups that come at the same time."""
        for start in range(0, len(self.phase), GROUP):
            yield range(start, min(start + GROUP, len(self.phase)))


# ------------------------------------------------------------------------------------ with a service


@contextmanager
def service(url: str | None) -> Iterator[str]:
    """The address of a running service; without one, start one that ends with this program."""
    if url is not None:
        yield url
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "shop.db")
        command = [sys.executable, "-m", "robandit", "serve", "--store", store, "--port", port]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )  # Ctrl-C is for this program
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


def play(client: Client, names: Mapping[str, str], shop: Shop, pace: float | None) -> dict[str, np.ndarray]:
    """Let all visitors come, and return the products that each bandit showed them."""
    shown = {label: np.zeros(len(shop.phase), dtype=int) for label in names}

    def visit(label: str, group: range) -> None:
        for t in group:
            shown[label][t] = client.decide(names[label], shop.offers[t], f"visit-{t}", str(shop.source[t])).index
        client.rewards(names[label], {f"visit-{t}": shop.click(t, shown[label][t]) for t in group})

    start = time.monotonic()
    with ThreadPoolExecutor(len(names)) as pool, tqdm(total=len(shop.phase), unit=" visits") as bar:
        for group in shop.groups():
            if pace is not None:
                time.sleep(max(0.0, start + group.start / max(pace, 0.001) - time.monotonic()))
            bar.set_description(f"{PHASES[shop.phase[group.start]]} the attack", refresh=False)
            list(pool.map(visit, names, [group] * len(names)))
            bar.update(len(group))
    return shown


def show(client: Client, url: str, options: argparse.Namespace) -> None:
    """Create both bandits, let the visitors come, and print the result."""
    shop = Shop(options.visits, options.seed, bots=options.bots, quiet=options.quiet)
    mark = "" if options.url is None else f"-{int(time.time())}"  # the names may be taken there
    names = {label: f"shop-{label}{mark}" for label in SHOWN}
    for label, name in names.items():  # the first call also waits until the service is up
        client.create(name, **COMMON, **SHOWN[label], horizon=options.visits, seed=options.seed)
    print(f"The dashboard is at {url}/ and shows {' and '.join(names.values())}.")
    shown = play(client, names, shop, options.pace)
    time.sleep(2.5)  # the monitors are looked at once a second
    print(table(shop, shown))
    for label, name in names.items():
        print(f"\nThe monitor of the {label} bandit: {words(shop, client.status(name).certificate)}")


def table(shop: Shop, shown: Mapping[str, np.ndarray]) -> str:
    """Clicks and regret of both bandits, beside those of the best products."""
    lines = [f"\nGenuine clicks per 1000 genuine visits{'':8}{''.join(f'{phase:>9}' for phase in PHASES)}   regret"]
    best = {"the best products": shop.means.argmax(axis=1)}
    titles = {
        label: f"{label}: {setting['policy']}, scale {setting['radius_scale']}" for label, setting in SHOWN.items()
    }
    for title, products in (best | {titles[label]: products for label, products in shown.items()}).items():
        rates, regret = shop.genuine(products)
        lines.append(f"  {title:44}{''.join(f'{rate:9.0f}' for rate in rates)}{regret:9.0f}")
    return "\n".join(lines)


def words(shop: Shop, found: Any) -> str:
    """What a monitor proved, and when."""
    if found.alarm is None:
        return found.sentence
    first, last = shop.starts[1:]
    return f"alarm by visit {found.alarm}; the attack took visits {first + 1} to {last}. {found.sentence}"


# ------------------------------------------------------------------------------------ without one, for many seeds


@dataclass
class Runs:
    """The results of many shops, one row each."""

    rates: np.ndarray
    regret: np.ndarray
    alarms: list[int]
    """Visits at which the monitor first proved corruption, of the shops where it did."""
    blamed: int
    """Number of shops in which most of the corruption was put on the partner."""


def alone(shops: Sequence[Shop], setting: Mapping[str, Any], seed: int = 0) -> Runs:
    """Play without HTTP, all shops at once. A monitor is looked at whenever it has seen a tenth more."""
    visits, rows = len(shops[0].phase), np.arange(len(shops))
    settings = BanditSettings(**COMMON, **setting, horizon=visits)
    policy = POLICIES[settings.policy](**settings.for_policy(), trials=len(shops), seed=seed)
    monitor, seen = CorruptionMonitor(**settings.for_monitor(), trials=len(shops)), 0
    shown = np.zeros((len(shops), visits), dtype=int)
    for group in shops[0].groups():
        offers = {t: np.stack([shop.offers[t] for shop in shops]) for t in group}
        decisions = {t: policy.choose(offers[t]) for t in group}
        for t, decision in decisions.items():
            shown[:, t] = decision.index
            clicks = np.array([shop.click(t, shown[row, t]) for row, shop in enumerate(shops)])
            policy.update(decision, clicks)
            monitor.observe(offers[t][rows, shown[:, t]], clicks, source=[str(shop.source[t]) for shop in shops])
        if monitor.rounds > 1.1 * seen or group.stop == visits:
            seen, found = monitor.rounds, monitor.certificate()
    rates, regret = zip(*(shop.genuine(products) for shop, products in zip(shops, shown, strict=True)), strict=True)
    alarms = [one.alarm for one in found if one.alarm is not None]
    blamed = sum(bool(one.sources) and one.sources[0].name == "partner" for one in found)
    return Runs(np.array(rates), np.array(regret)[:, None], alarms, blamed)


def measure(visits: int, seeds: range, bots: float, quiet: float) -> None:
    """Print the table of docs/client.md."""
    print("| policy | before | during | after | regret | alarms | partner blamed | first alarm, median visit |")
    print("|---|---|---|---|---|---|---|---|")
    shops = [Shop(visits, seed, bots=bots, quiet=quiet) for seed in seeds]
    best = np.array([shop.genuine(shop.means.argmax(axis=1))[0] for shop in shops])
    print(f"| the best products | {spread(best)} | 0 | | | |")
    for title, setting in tqdm(MEASURED.items()):
        runs = alone(shops, setting)
        counts = f"{len(runs.alarms)}/{len(seeds)} | {runs.blamed}/{len(seeds)}"
        first = f"{np.median(runs.alarms):.0f}" if runs.alarms else ""
        print(f"| {title} | {spread(runs.rates)} | {spread(runs.regret)} | {counts} | {first} |", flush=True)


def spread(numbers: np.ndarray) -> str:
    """Mean ± standard deviation of every column."""
    return " | ".join(f"{column.mean():.0f} ± {column.std(ddof=1):.0f}" for column in numbers.T)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """The options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add, default = parser.add_argument, "(default %(default)s)"
    add("--visits", type=int, default=5000, help=f"number of visits, bots included {default}")
    add("--pace", type=float, help="visits a second, to watch them (default: as fast as it goes)")
    add("--seed", type=int, default=0, help=f"seed of the visitors and the bandits {default}")
    add("--bots", type=float, default=0.7, help=f"share of bots among the visits of the attack {default}")
    add("--quiet", type=float, default=0.08, help=f"share of the visits before the attack {default}")
    add("--hold", action="store_true", help="keep serving at the end, until Ctrl-C")
    add("--url", help="address of a running service (default: start one, and stop it afterwards)")
    add("--key", help="an admin's key, if that service needs one")
    add("--seeds", type=int, help="measure over this many seeds, from --seed on, without a service")
    options = parser.parse_args(arguments)
    if options.visits < 100 or not (0.0 <= options.bots < 1.0 and 0.05 <= options.quiet <= 0.75):
        parser.error("--visits must be >= 100, --bots at least 0 and below 1, --quiet from 0.05 to 0.75")
    return options


def main(arguments: list[str] | None = None) -> None:
    """Play the story once over HTTP, or measure it over many seeds."""
    options = parse(arguments)
    if options.seeds is not None:
        measure(options.visits, range(options.seed, options.seed + options.seeds), options.bots, options.quiet)
        return
    try:
        with service(options.url) as url, Client(url, key=options.key) as client:
            show(client, url, options)
            while options.hold:
                print(f"\nStill serving at {url}/ until Ctrl-C.")
                time.sleep(1e6)
    except KeyboardInterrupt:
        print()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the service ends with this program
    main()
