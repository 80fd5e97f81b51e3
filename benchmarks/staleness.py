"""What it costs in regret to decide on an old state: OFUL and Quorum, while nobody lies and while three sources do.

    python benchmarks/staleness.py --policy oful --age 0 1000 --rounds 20000

A decision that is made on a state ``age`` rounds old knows the rewards of all rounds but the last ``age``. So rewards
that all come that much later give the same decisions. Sets are fresh in every round: ten actions of six features from
visitors of ten sources. Under attack, three of them praise bad actions throughout. Every age sees the same worlds.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

import robandit
from robandit.arrays import Floats
from robandit.experiments.intervals import interval
from robandit.figures.tables import markdown
from robandit.lab.attacks import Attack, NoAttack, SourcePromote
from robandit.lab.environments import Fresh, Offer
from robandit.lab.protocol import Scenario, simulate
from robandit.streams import Draws

AGES, ROUNDS, TRIALS, SEED = (0, 10, 1000, 100_000), 300_000, 16, 23
POLICIES: dict[str, Any] = {"oful": partial(robandit.OFUL, radius_scale=0.1), "quorum": robandit.Quorum}
ATTACKS: dict[str, Attack] = {"clean": NoAttack(), "attacked": SourcePromote(liars=3)}


@dataclass(kw_only=True, frozen=True)
class Stale(Fresh):
    """A world in which every reward is learnt ``age`` rounds after its own."""

    age: int = 0

    def rounds(self, draw: Draws) -> Iterator[Offer]:
        late = np.full(len(draw), self.age)
        return (replace(offer, delay=late) for offer in super().rounds(draw))


def regret(policy: str, attack: str, age: int, rounds: int, trials: int) -> Floats:
    """The regret of each trial in the first and in the second half of the rounds, (2, trials)."""
    world = Stale(dim=6, actions=10, parameter="random", sigma_high=0.2, sources=10, age=age)
    scenario = Scenario(world, ATTACKS[attack], range(trials))
    ends = np.array([rounds // 2, rounds])
    found = simulate(policy=POLICIES[policy], scenarios=[scenario], rounds=rounds, seed=SEED, at=ends).regret
    return np.diff(found, axis=0, prepend=0.0)


def words(values: Floats) -> str:
    """A mean and half of its 95 % interval."""
    mean, half = interval(values)
    return f"{mean:,.0f} ± {half:,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policy", nargs="+", choices=POLICIES, default=list(POLICIES))
    parser.add_argument("--attack", nargs="+", choices=ATTACKS, default=list(ATTACKS))
    parser.add_argument("--age", nargs="+", type=int, default=AGES, help="in rounds (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each trial (default %(default)s)")
    parser.add_argument("--trials", type=int, default=TRIALS, help="default %(default)s")
    options = parser.parse_args()
    rows = []
    with threadpool_limits(1):
        for policy in options.policy:
            for attack in options.attack:
                fresh = regret(policy, attack, 0, options.rounds, options.trials)
                for age in options.age:
                    old = regret(policy, attack, age, options.rounds, options.trials) if age else fresh
                    more = [words(half) if age else "" for half in old - fresh]
                    rows.append([policy, attack, f"{age:,}", words(old[0]), more[0], words(old[1]), more[1]])
                    print(*rows[-1], sep=" | ", flush=True)
    print(f"\n{options.rounds:,} rounds, {options.trials} trials, 95 % intervals\n")
    print("\n".join(markdown(["policy", "", "age", "first half", "more", "second half", "more"], rows)))


if __name__ == "__main__":
    main()
