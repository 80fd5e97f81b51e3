"""How long the policies of the arena take on this machine."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np

from robandit.experiments.arena.race import Entrants, grids, panels_of
from robandit.experiments.arena.race import config as evaluation_config
from robandit.experiments.arena.worlds import LEVELS, TUNING_ATTACKS, attacks, panels
from robandit.lab.catalogue import find
from robandit.lab.plan import Run
from robandit.lab.protocol import Scenario, simulate
from robandit.policies import Policy

BATCH, ROUNDS, SLICES = 64, 200, 3
UNDER = ("flip", LEVELS[-1])
"""The attack and its budget in the rounds that are timed."""

Times = Mapping[str, Mapping[str, float]]
"""Microseconds per round and trial for each world and policy."""


def times(configs: Sequence[Mapping[str, Any]], path: Path, *, anew: bool) -> tuple[Times, bytes]:
    """The times of these evaluations, and the file that holds them.

    They are read from ``path`` if they are there, unless ``anew``. They stay out of the table, because no two runs
    take the same time.
    """
    asked = {
        "measured": f"processor time in one process, {BATCH} trials at once, under {UNDER[0]} at C = {UNDER[1]:g}; "
        f"choose and update alone, the best of {SLICES} slices",
        "policies": [[config["environments"], config["policies"], config["rounds"]] for config in configs],
    }
    if path.exists() and not anew:
        data = path.read_bytes()
        held = json.loads(data)
        if {key: held.get(key) for key in asked} == json.loads(json.dumps(asked)):
            return held["microseconds"], data
    found = {config["environments"][0]["label"]: measure(config, min(ROUNDS, config["rounds"])) for config in configs}
    told = {"machine": f"{platform.machine()}, {platform.system()}", **asked, "microseconds": found}
    return found, (json.dumps(told, indent=1, ensure_ascii=False) + "\n").encode()


_SCALES = (2.0**-4, 2.0**-10)  # radius scales of a forecast: Multi-level takes far longer at small ones
_AROUND = 3.0  # microseconds per round and trial for the environment, the attack and the records


def forecast(entrants: Entrants, *, rounds: int, trials: int, seed: int, tune_trials: int, workers: int) -> list[str]:
    """How much there is to do and about how long it takes, in words. A few rounds of each policy are timed for it."""
    microseconds, tuned, judged, number = 0.0, 0, 0, 0
    for world, scale in product(entrants.environments, _SCALES):
        settings = entrants.environments[world]
        tuning = len(panels(settings, rounds, TUNING_ATTACKS)) * tune_trials * rounds
        hostile = len(panels_of(entrants, world, rounds))
        judging, scales = hostile * trials * rounds, dict.fromkeys(entrants.tuned, scale)
        work = {policy: judging + tuning * len(grids(entrants).get(policy, ())) for policy in entrants.policies}
        evaluation = evaluation_config(entrants, world, scales, rounds=rounds, trials=trials, seed=seed)
        for policy, each in measure(evaluation, min(50, rounds), slices=1).items():
            microseconds += (each + _AROUND) * work[policy] / len(_SCALES)
        judged += len(work) * judging // len(_SCALES)
        tuned += (sum(work.values()) - len(work) * judging) // len(_SCALES)
        number = max(number, hostile)
    lines = [
        f"{len(entrants.policies)} policies, up to {number} attacks and levels, worlds: {len(entrants.environments)}; "
        f"{tuned / 1e6:.3g} million rounds of tuning, {judged / 1e6:.3g} million of evaluation",
        f"about {microseconds / 6e7 / workers:.2g} minutes on {workers} of these cores, if nothing is there yet",
    ]
    return lines + ([f"not in this version: {', '.join(entrants.missing)}"] if entrants.missing else [])


def measure(config: Mapping[str, Any], rounds: int, slices: int = SLICES) -> dict[str, float]:
    """Microseconds per round and trial for every policy of an evaluation."""
    from threadpoolctl import threadpool_limits

    hostile = [one for one in attacks(config["rounds"], [UNDER[0]]) if one["budget"] == UNDER[1]]
    run = Run.read({**config, "attacks": hostile})
    world = find("environments", run.environments[0].kind)(**run.environments[0].settings)
    attack = find("attacks", run.attacks[0].kind)(**run.attacks[0].settings)
    scenario = Scenario(world, attack, range(BATCH))
    found = {}
    with threadpool_limits(1):  # as in the engines
        for entry in run.policies:
            seconds = []
            for _ in range(slices):
                clock = Clock(find("policies", entry.kind))
                policy = partial(clock.policy, **entry.settings)
                simulate(policy=policy, scenarios=[scenario], rounds=rounds, seed=run.seed, at=np.array([rounds]))
                seconds.append(clock.seconds)
            found[entry.label] = round(1e6 * min(seconds) / (rounds * BATCH), 2)
    return found


class Clock:
    """Makes a subclass of a policy and adds up the time of its `choose` and `update`."""

    def __init__(self, kind: type[Policy]) -> None:
        self.seconds = 0.0
        methods = {name: self._timed(getattr(kind, name)) for name in ("choose", "update")}
        self.policy: type[Policy] = type(kind.__name__, (kind,), methods)

    def _timed(self, method: Any) -> Any:
        def call(*args: Any, **settings: Any) -> Any:
            start = thread_time()
            try:
                return method(*args, **settings)
            finally:
                self.seconds += thread_time() - start

        return call
