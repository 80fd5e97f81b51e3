"""Attacks that know the code: the regret of policies under them, over that of the same policy told who lies.

    python benchmarks/adaptive.py                        OFUL and Quorum
    python benchmarks/adaptive.py --policy mine.py:Mine  also a policy of your own, which is told the sources

Each attack has about 30 % of the traffic. The worlds are clicks and continuous rewards, fresh sets and one that stays.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from threadpoolctl import threadpool_limits

import robandit
from robandit.experiments.intervals import mean_ratio, ratio_words
from robandit.figures.tables import markdown
from robandit.lab.attacks import Attack, Framing, InsideTolerance, NoAttack, SourceFlip, SourcePromote, SourceSuppress
from robandit.lab.catalogue import find, short
from robandit.lab.environments import Clicks, Environment, Fresh
from robandit.lab.protocol import Scenario, simulate

ROUNDS, TRIALS, SEED = 3000, 16, 19
WORLDS: dict[str, Environment] = {
    "clicks, fresh sets": Clicks(),
    "clicks, one set": Clicks(fresh_rounds=0),
    "continuous, fresh sets": Fresh(dim=6, actions=10, parameter="random", sigma_high=0.2),
}


class Case(NamedTuple):
    """An attack and the traffic that it needs."""

    attack: Attack
    traffic: dict[str, Any]


TEN: dict[str, Any] = {"sources": 10}
ATTACKS: dict[str, Case] = {
    "nobody lies": Case(NoAttack(), TEN),
    "promotes, plainly": Case(SourcePromote(liars=3), TEN),
    "190 tiny sources": Case(SourcePromote(liars=190, first=10), {"sources": 200, "skew": 1.3}),
    "sleeps half of the time": Case(SourcePromote(liars=3, begin=ROUNDS // 2), TEN),
    "oscillates, every 25 rounds": Case(SourceFlip(liars=3, move_every=25), TEN),
    "moves on, every 400 rounds": Case(SourceFlip(liars=3, move_every=400), TEN),
    "just inside the tolerance": Case(InsideTolerance(liars=3), TEN),
    "frames an honest source": Case(Framing(liars=3), TEN),
    "suppresses the best": Case(SourceSuppress(liars=3), TEN),
}
POLICIES: dict[str, Any] = {"OFUL 0.1": partial(robandit.OFUL, radius_scale=0.1), "Quorum": robandit.Quorum}


def told(make: Any) -> Any:
    """The same policy told who lies."""
    kind: Any = make.func if isinstance(make, partial) else make
    wise = type(f"{kind.__name__}ToldLiars", (kind,), {"told_liars": True})
    return partial(wise, **make.keywords) if isinstance(make, partial) else wise


def ratio(make: Any, world: Environment, case: Case, trials: int) -> str:
    """The regret under an attack, relative to that of the same policy told who lies."""
    scenario = Scenario(replace(world, **case.traffic), case.attack, range(trials))
    play: dict[str, Any] = {"scenarios": [scenario], "rounds": ROUNDS, "seed": SEED}
    own, oracle = (simulate(policy=one, **play).regret[-1] for one in (make, told(make)))
    return f"{own.mean():.0f}: {ratio_words(mean_ratio([(own, oracle)]))}"


def main() -> None:
    """Print a table for each world."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", action="append", default=[], help="a name, or file.py:Class; may be repeated")
    parser.add_argument("--trials", type=int, default=TRIALS, help="trials of each scenario (default %(default)s)")
    options = parser.parse_args()
    policies = POLICIES | {short(name): find("policies", name) for name in options.policy}
    with threadpool_limits(1):
        for label, world in WORLDS.items():
            rows = [
                [name, *(ratio(make, world, case, options.trials) for make in policies.values())]
                for name, case in ATTACKS.items()
            ]
            print(f"\n{label}: regret, and its ratio to that of the same policy told who lies\n")
            print("\n".join(markdown(["attack", *policies], rows)), flush=True)


if __name__ == "__main__":
    main()
