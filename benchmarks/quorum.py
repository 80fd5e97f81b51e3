"""What each part of Quorum is worth: its regret with one part changed, in worlds with and without sources.

    python benchmarks/quorum.py                  the development set
    python benchmarks/quorum.py --held-out       the set on which a policy is judged once
    python benchmarks/quorum.py --honest         what it pays where nobody lies, in the held-out worlds of that kind
    python benchmarks/quorum.py --seen           the cases that were known before the first line was written
    python benchmarks/quorum.py --measured       flips of measured rewards, on which dissent and spells act
    python benchmarks/quorum.py --schedules      how often it votes, in the development set

`robandit.experiments.fraud` says what the two sets are. Plain ridge is Quorum that believes everybody, and plays with
the same width and the same measured noise.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import robandit
from robandit.arrays import Floats, Index, Ints
from robandit.experiments.fraud import development, held_out
from robandit.experiments.fraud.playing import BLIND, SOURCES, TOLD, uniform_regret
from robandit.experiments.fraud.scenario import NOBODY, FraudScenario
from robandit.experiments.fraud.scoring import Entrant, Regrets, geometric, material, parts, play_all
from robandit.experiments.intervals import ratio_words
from robandit.figures.tables import markdown
from robandit.lab.attacks import Bursts, Flip, NoAttack, RandomFlips
from robandit.lab.environments import Environment, Fresh, Paper
from robandit.lab.protocol import Scenario, simulate
from robandit.policies import ballots, dissent, groups, quorum, votes
from robandit.policies.votes import Evidence

TRIALS = 8


class PlainRidge(robandit.Quorum):
    """Quorum in which everybody is trusted."""

    def _evidence(self, due: Index, now: Ints) -> Evidence:
        evidence = super()._evidence(due, now)
        return evidence._replace(voice=np.where(evidence.slot >= 0, np.inf, 0.0))


class Change(NamedTuple):
    """Another value for a constant or a function of Quorum's."""

    module: ModuleType | type
    name: str
    value: Any


def _nothing(excess: Floats, roots: Floats, say: Floats) -> Floats:
    return np.zeros(len(excess))


ABLATIONS: dict[str, list[Change]] = {
    "as it is": [],
    "sources are not split in time": [Change(groups, "_SHORTEST", 10**9)],
    "newer rewards have no more say": [Change(quorum, "_NEWER", 0.0)],
    "no second test of sources": [Change(votes, "_second_test", lambda evidence, weights, *others: weights)],
    "a bad record does not count": [Change(votes, "_RECORD", 1e-9)],
    "no tolerance that half meets": [Change(votes, "met_by_half", _nothing)],
    "belief falls slowly (power 1)": [Change(votes, "_STEEP", 1.0)],
    "the noise is as declared": [Change(votes, "_PRIOR", 1e12)],
    "half the reach beyond the mean": [Change(ballots, "_REACH", 0.15)],
    "twice the reach beyond the mean": [Change(ballots, "_REACH", 0.6)],
    "no reward dissents alone": [Change(dissent, "_FAR", 1e9)],
    "dissent from 4 standard deviations on": [Change(dissent, "_FAR", 4.0)],
    "dissent from 7 standard deviations on": [Change(dissent, "_FAR", 7.0)],
    "clicks may dissent, too": [Change(dissent, "_REPEATED", 1.0)],
    "spells never end": [Change(groups.RoundGroups, "turn", lambda *_: None)],
    "the prior counts fully in the vote": [Change(votes, "_FAINT", 1.0)],
    "votes are four times as frequent": [
        Change(quorum, "_OFTEN", 20),
        Change(quorum, "_SOON", 2),
        Change(quorum, "_LATE", 100),
    ],
}
"""What is changed, by what that means."""


@contextmanager
def changed(changes: list[Change]) -> Iterator[None]:
    """Quorum with these changes."""
    before = [getattr(change.module, change.name) for change in changes]
    try:
        for change in changes:
            setattr(change.module, change.name, change.value)
        yield
    finally:
        for change, value in zip(changes, before, strict=True):
            setattr(change.module, change.name, value)


def yardsticks(scenarios: list[FraudScenario], trials: int) -> Regrets:
    """Quorum told who lies, and plain ridge."""
    entrants = {TOLD: Entrant(robandit.Quorum, TOLD), "plain": Entrant(PlainRidge, SOURCES)}
    return play_all(scenarios, entrants, trials)


def ablation(scenarios: list[FraudScenario], trials: int) -> None:
    """Print Quorum's regret with each change: over its own when told who lies, and over plain ridge's elsewhere."""
    uniform, titles = np.stack([uniform_regret(scenario, trials) for scenario in scenarios]), parts(scenarios)
    below = material(yardsticks(scenarios, trials), uniform)
    heads = ["change", *(f"{part.title} ({len(part.places)})" for part in titles)]
    print("\n".join(markdown(heads, [])), flush=True)
    for name, changes in ABLATIONS.items():
        with changed(changes):
            own = material(play_all(scenarios, {name: Entrant(robandit.Quorum, SOURCES)}, trials), uniform)[name]
        cells = []
        for part in titles:
            other = below[TOLD if part.title == "with sources, attacked" else "plain"]
            cells.append(words(own[part.places], other[part.places]))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def honest(trials: int) -> None:
    """Print Quorum's regret over plain ridge's in the held-out worlds in which nobody lies."""
    scenarios = [scenario for scenario in held_out.SCENARIOS if scenario.lie == NOBODY]
    entrants = {"own": Entrant(robandit.Quorum, SOURCES), "plain": Entrant(PlainRidge, SOURCES)}
    uniform = np.stack([uniform_regret(scenario, trials) for scenario in scenarios])
    found = material(play_all(scenarios, entrants, trials), uniform)
    for part in parts(scenarios):
        if part.places:
            cell = words(found["own"][part.places], found["plain"][part.places])
            print(f"{part.title}, {len(part.places)} worlds: {cell}")


def words(above: Floats, below: Floats) -> str:
    """The geometric mean of the ratios with its interval, and the worst."""
    return f"{ratio_words(geometric(above, below))}; {(above / below).max():.1f}"


FLIPPED: dict[str, tuple[Environment, Any]] = {
    "paper, clean": (Paper(), NoAttack),
    "paper, first 90": (Paper(), partial(Flip, rounds=90)),
    "paper, first 450": (Paper(), partial(Flip, rounds=450)),
    "paper, one in ten": (Paper(), partial(RandomFlips, budget=None)),
    "paper, in bursts": (Paper(), partial(Bursts, budget=None, period=500, length=50)),
    "short μ*, first 450": (Fresh(dim=5, parameter="random", shortest=0.2, longest=0.7), partial(Flip, rounds=450)),
}
"""Worlds with measured rewards and one attack on all of the traffic."""
ACTING = ("as it is", "newer rewards", "no reward", "dissent from", "spells never", "the prior")
"""The changes that matter where nobody tells the sources and rewards are measured."""


def measured(trials: int, rounds: int = 10_000, seed: int = 41) -> None:
    """Print the mean regret with its standard error under flips of measured rewards; another seed than in tuning."""
    chosen = {name: changes for name, changes in ABLATIONS.items() if name.startswith(ACTING)}
    print("\n".join(markdown(["change", *FLIPPED], [])), flush=True)
    for name, changes in chosen.items():
        cells = []
        for environment, attack in FLIPPED.values():
            with changed(changes):
                scenario = Scenario(environment, attack(), range(trials))
                trace = simulate(policy=robandit.Quorum, scenarios=[scenario], rounds=rounds, seed=seed)
            lost = trace.regret[-1]
            cells.append(f"{lost.mean():.0f} ± {lost.std(ddof=1) / len(lost) ** 0.5:.0f}")
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


SCHEDULES = ((20, 2, 100), (10, 2, 200), (8, 2, 400), (6, 2, 200), (5, 2, 400), (4, 8, 400), (3, 8, 400))
"""Which part of the rewards so far comes between two votes, the least number of them, and the most."""


def schedules(scenarios: list[FraudScenario], trials: int) -> None:
    """Print Quorum's regret with each schedule of its votes, over that with the first one."""
    uniform = np.stack([uniform_regret(scenario, trials) for scenario in scenarios])
    titles = [part for part in parts(scenarios) if part.places]
    heads = ["part of the rewards, least, most", "all", *(f"{part.title} ({len(part.places)})" for part in titles)]
    print("\n".join(markdown(heads, [])), flush=True)
    found: list[Floats] = []
    for schedule in SCHEDULES:
        names = zip(("_OFTEN", "_SOON", "_LATE"), schedule, strict=True)
        with changed([Change(quorum, name, value) for name, value in names]):
            regrets = play_all(scenarios, {"own": Entrant(robandit.Quorum, SOURCES)}, trials)
        found.append(material(regrets, uniform)["own"])
        places_of = [list(range(len(scenarios))), *(part.places for part in titles)]
        cells = [words(found[-1][places], found[0][places]) for places in places_of]
        print(f"| {', '.join(map(str, schedule))} | {' | '.join(cells)} |", flush=True)


class SeenCase(NamedTuple):
    """Clicks, d = 6, ten fresh actions, 3000 rounds; liars click on what is below the median and on nothing else."""

    shares: tuple[float, ...]
    liars: int

    @property
    def title(self) -> str:
        return f"{len(self.shares)}, {self.liars}, {100 * sum(self.shares[: self.liars]):.0f} %"


SEEN = (
    SeenCase((0.1,) * 10, 3),
    SeenCase((0.25,) * 4, 1),
    SeenCase((0.4, 0.2, 0.2, 0.2), 1),
    SeenCase((0.05,) * 20, 9),
    SeenCase((0.1,) * 10, 0),
)


def seen_regret(case: SeenCase, make: Any, view: str, trials: int = 12, rounds: int = 3000) -> Floats:
    """The regret of a policy in one of the seen cases, (trials,)."""
    rng, rows = np.random.default_rng(77), np.arange(trials)
    policy = make(dim=6, noise_range=0.5, seed=0, trials=trials)
    taste = rng.normal(size=(trials, 5))
    taste /= np.linalg.norm(taste, axis=1, keepdims=True)
    lost = np.zeros(trials)
    for _ in range(rounds):
        features = rng.normal(size=(trials, 10, 5))
        features /= np.linalg.norm(features, axis=2, keepdims=True)
        actions = np.concatenate([np.ones((trials, 10, 1)), features], axis=2) / 2**0.5
        means = 0.3 + 0.28 * np.matvec(features, taste)
        source, luck = rng.choice(len(case.shares), trials, p=case.shares), rng.random(trials)
        decision = policy.choose(actions, source=None if view == BLIND else source)
        mean, lies = means[rows, decision.index], source < case.liars
        below = (means > mean[:, None]).sum(axis=1) >= 5
        reward = np.where(lies, below, luck < mean).astype(float)
        policy.update(decision, reward, mask=~lies if view == TOLD else None)
        lost += means.max(axis=1) - mean
    return lost


def seen() -> None:
    """Print the seen cases."""
    entrants = {
        "plain ridge": (PlainRidge, BLIND),
        "CW-OFUL 0.03": (partial(robandit.CWOFUL, horizon=3000, radius_scale=0.03), BLIND),
        "Quorum": (robandit.Quorum, SOURCES),
        "Quorum told who lies": (robandit.Quorum, TOLD),
    }
    rows = []
    for case in SEEN:
        found = [seen_regret(case, make, view) for make, view in entrants.values()]
        rows.append([case.title, *(f"{x.mean():.0f} ± {x.std() / len(x) ** 0.5:.0f}" for x in found)])
    print("\n".join(markdown(["sources, liars, their share", *entrants], rows)))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--held-out", action="store_true", help="the set on which a policy is judged once")
    parser.add_argument("--honest", action="store_true", help="what it pays where nobody lies")
    parser.add_argument("--seen", action="store_true", help="the cases that were known before")
    parser.add_argument("--measured", action="store_true", help="flips of measured rewards")
    parser.add_argument("--schedules", action="store_true", help="how often it votes")
    parser.add_argument("--trials", type=int, default=TRIALS, help="trials of each scenario (default %(default)s)")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="only every N-th scenario, to save time")
    options = parser.parse_args()
    with threadpool_limits(1):
        if options.seen:
            seen()
        elif options.honest:
            honest(options.trials)
        elif options.measured:
            measured(options.trials)
        elif options.schedules:
            schedules(development.SCENARIOS[:: options.every], options.trials)
        else:
            ablation((held_out if options.held_out else development).SCENARIOS[:: options.every], options.trials)


if __name__ == "__main__":
    main()
