"""Policies against fraud: the regret of each over that of the same policy told who lies, and over the best rival.

    python benchmarks/fraud.py                        the development set
    python benchmarks/fraud.py --policy mine.py:Mine  also a policy of your own, which is told the sources
    python benchmarks/fraud.py --held-out             the set on which a policy is judged once

`robandit.experiments.fraud` says what the two sets are. OFUL's and CW-OFUL's scales are all tried; the best in
hindsight, scenario by scenario, is the yardstick where there are no sources.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import robandit
from robandit.arrays import Floats
from robandit.experiments.fraud import development, held_out
from robandit.experiments.fraud.playing import BLIND, SOURCES, TOLD, TRIALS, uniform_regret
from robandit.experiments.fraud.scenario import FraudScenario
from robandit.experiments.fraud.scoring import Entrant, Part, best_in_hindsight, geometric, material, parts, play_all
from robandit.experiments.intervals import ratio_words
from robandit.figures.tables import markdown
from robandit.files import write_file
from robandit.lab.catalogue import find, short

SCALES = (0.01, 0.03, 0.1, 0.3)
RIVALS: dict[str, Any] = {
    **{f"OFUL {s:g}": partial(robandit.OFUL, radius_scale=s) for s in SCALES},
    **{f"CW-OFUL {s:g}": partial(robandit.CWOFUL, corruption=None, radius_scale=s) for s in SCALES},
    **{f"Discounted {g:g}": partial(robandit.DiscountedLinUCB, discount=g, radius_scale=0.1) for g in (0.99, 0.995)},
    "Greedy": robandit.Greedy,
}
"""The rivals, which are blind to sources."""
Means = Mapping[str, Floats]
"""The mean regret of each entrant, (scenarios,)."""
REFERENCE = "OFUL 0.1"
"""The policy that is also told who lies, as the yardstick of policies that are not."""
UNIFORM = "uniform play"


def entrants_of(policies: list[str]) -> dict[str, Entrant]:
    """The rivals, the oracle, and the policies of the command line, told the sources, blind, and told who lies."""
    found = {label: Entrant(make, BLIND) for label, make in RIVALS.items()}
    found[f"{REFERENCE}, {TOLD}"] = Entrant(RIVALS[REFERENCE], TOLD)
    for name in policies:
        make = find("policies", name)
        found |= {f"{short(name)}, {view}": Entrant(make, view) for view in (SOURCES, BLIND, TOLD)}
    return found


def table(scenarios: list[FraudScenario], means: Means) -> str:
    """The ratio of every entrant in each part, and its worst."""
    rivals, told = best_in_hindsight(means, RIVALS), f"{REFERENCE}, {TOLD}"
    rows = []
    for label, own in means.items():
        oracle = means.get(f"{label.split(',')[0]}, {TOLD}", means[told])
        below = [oracle if part.title == "with sources, attacked" else rivals for part in parts(scenarios)]
        rows.append([label, *(_words(own, other, part) for other, part in zip(below, parts(scenarios), strict=True))])
    heads = (f"{part.title} ({len(part.places)})" for part in parts(scenarios))
    return "\n".join(markdown(["policy", *heads], rows))


def against(scenarios: list[FraudScenario], means: Means, label: str) -> str:
    """The ratio of one entrant to each other one in each part, and in the worst scenario."""
    rows = [
        [other, *(_words(means[label], theirs, part) for part in parts(scenarios))] for other, theirs in means.items()
    ]
    return "\n".join(markdown([f"{label} over", *(part.title for part in parts(scenarios))], rows))


def kinds(scenarios: list[FraudScenario], means: Means, label: str) -> str:
    """The ratio of one entrant by kind of lie: to the oracle with sources, to the best rival without."""
    told, rivals = means[f"{label.split(',')[0]}, {TOLD}"], best_in_hindsight(means, RIVALS)
    rows = []
    for sourced, kind in dict.fromkeys((one.has_sources, one.kind) for one in scenarios):
        places = [i for i, one in enumerate(scenarios) if (one.has_sources, one.kind) == (sourced, kind)]
        below = told if sourced else rivals
        rows.append([kind, "yes" if sourced else "no", _words(means[label], below, Part(kind, places))])
    return "\n".join(markdown(["lie", "sources", "ratio; worst"], rows))


def _words(above: Floats, below: Floats, part: Part) -> str:
    above, below = above[part.places], below[part.places]
    return f"{ratio_words(geometric(above, below))}; {(above / below).max():.1f}"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", action="store_true", help="the set on which a policy is judged once")
    parser.add_argument("--policy", action="append", default=[], help="a name, or file.py:Class; may be repeated")
    parser.add_argument("--trials", type=int, default=TRIALS, help="trials of each scenario (default %(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (default %(default)s)")
    parser.add_argument("--json", type=Path, help="write all regrets here")
    options = parser.parse_args()
    scenarios = (held_out if options.held_out else development).SCENARIOS
    with threadpool_limits(1):
        regrets = play_all(scenarios, entrants_of(options.policy), options.trials, options.workers)
        regrets[UNIFORM] = np.stack([uniform_regret(scenario, options.trials) for scenario in scenarios])
    means = material(regrets, regrets[UNIFORM])
    if options.json:
        held = {label: regret.round(3).tolist() for label, regret in regrets.items()}
        write_file(options.json, json.dumps(held).encode())
    print("Geometric mean of the ratios [95 % over scenarios]; the worst ratio. Attacked with sources: over the same")
    print(f"policy {TOLD} ({REFERENCE} for the rivals). Elsewhere: over the best rival in hindsight. No mean regret")
    print("counts less than 1 % of that of uniform play.\n")
    print(table(scenarios, means))
    for name in options.policy:
        print(f"\n{short(name)} beside each of the others: geometric mean [95 % over scenarios]; the worst ratio\n")
        print(against(scenarios, means, f"{short(name)}, {SOURCES}"))
        print(f"\n{short(name)} by kind of lie: over itself {TOLD}, or over the best rival in hindsight\n")
        print(kinds(scenarios, means, f"{short(name)}, {SOURCES}"))


if __name__ == "__main__":
    main()
