"""The theorems as numbers: every lemma and bound of the paper, checked in runs at radius scale 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.experiments.paper.theory import (
    ROUNDING,
    OneRadiusWatcher,
    Watcher,
    gap_bound,
    known_bound,
    multi_level_bound,
)
from robandit.experiments.paper.verdicts import (
    ClaimRow,
    TrialGroup,
    coverage,
    mean_bound,
    path_bound,
    per_round,
    pool,
)
from robandit.inputs import integer, positive
from robandit.lab.attacks import ON_ALL_TRAFFIC, Attack
from robandit.lab.environments import Environment, Fresh, Paper
from robandit.lab.protocol import MakePolicy, Scenario, Trace, Watch, checkpoints, rehearse, simulate
from robandit.monitor.monitor import CorruptionMonitor
from robandit.policies import OFUL, MultiLevelWeightedOFUL, RobustWeightedOFUL, WeightedOFUL
from robandit.policies.radius import Setting

# The claims, each with the paper's label.
EVENT = "μ* within β and γ of all levels ≥ ℓ*: the event E_1 (sec6:confidence)"
BETA = "μ* within β_{t,ℓ} (confidence:gl)"
GAMMA = "μ* within γ_{t,ℓ} (confidence:sb)"
CORRUPTION = "corruption of each level ≥ ℓ* at most C̄_ℓ (sec6:sb-corrupt-bandit)"
LOW = "regret of a round with f(t) ≤ ℓ* (sec6:error:ell)"
HIGH = "regret of a round with f(t) > ℓ* (sec6:error:ell2)"
ALPHA = "μ* within α_t, C known (lemma:oful1)"
OFUL_RADIUS = "μ* within OFUL's radius, no attack (Abbasi-Yadkori et al. 2011)"
WEIGHTED_RADIUS = "μ* within Weighted OFUL's radius, no attack (Zhou et al. 2021)"
KNOWN_BOUND = "regret bound, C known (thm:alg:1)"
MULTI_BOUND = "mean regret bound, C unknown (thm:regret)"
GAP_BOUND = "mean regret bound by the gap, C unknown (thm:gap dependent regret)"
PROVED = "the monitor proves no more corruption than there was (docs/ideas/monitor.md)"

RADII = (ALPHA, BETA, GAMMA)
"""The claims about the paper's radii."""
RUNS = 5
"""How often `verify` plays all rounds: once for each of four policies, and once for the monitor."""
LOOKS = 20
"""About how often the monitor looks."""
PAPER_SIZE: Mapping[str, int] = {"rounds": 10_000, "trials": 10, "dim": 20, "actions": 20}
"""The size of the paper's experiments, which takes minutes."""


class Verification(NamedTuple):
    """The rows of all claims, and the settings of the run."""

    settings: Mapping[str, Any]
    rows: Sequence[ClaimRow]
    power: str = ""
    """How much of the corruption the monitor found, in words."""

    def pooled(self) -> list[ClaimRow]:
        """One row for each claim, over all environments and attacks, which have different trials."""
        claims = list(dict.fromkeys(row.claim for row in self.rows))
        return [pool([row for row in self.rows if row.claim == claim]) for claim in claims]


def largest_ratio(found: Verification, claims: Sequence[str] = RADII) -> float:
    """The largest distance over radius, of the paper's radii. A ``shrink`` below it gives breaches."""
    return max(row.ratio for row in found.rows if row.claim in claims)


def verify(
    *,
    rounds: int = 1000,
    trials: int = 80,
    dim: int = 5,
    actions: int = 10,
    delta: float = 0.05,
    seed: int = 1,
    shrink: float = 1.0,
    progress: Callable[[int], object] | None = None,
    multi_level: type[MultiLevelWeightedOFUL] = MultiLevelWeightedOFUL,
) -> Verification:
    """Check the paper's lemmas and bounds in ``trials`` trials of every weak attack in two environments.

    C is the realised corruption of each trial. ``shrink`` multiplies every radius in the checks, and none of the
    policies'. ``progress`` is called with the number of rounds played since the last call, `RUNS` times ``rounds`` in
    all. ``multi_level`` can be your own variant.
    """
    _check(rounds, trials, delta, shrink)
    settings = {"rounds": rounds, "trials": trials, "dim": dim, "actions": actions, "delta": delta, "seed": seed}
    worlds = {"paper": Paper(dim=dim, actions=actions), "fresh": Fresh(dim=dim, actions=actions)}
    stage = _stage(_groups(rounds, trials, worlds), rounds, delta, seed, shrink, progress)
    rows = _multi_level_rows(stage, multi_level) + _known_rows(stage)
    rows += _clean_rows(stage, OFUL, OFUL_RADIUS) + _clean_rows(stage, WeightedOFUL, WEIGHTED_RADIUS)
    monitored = stage.monitor(OFUL)
    rows += _monitor_rows(stage, monitored)
    return Verification(settings | {"shrink": shrink}, rows, _power(monitored))


def _check(rounds: int, trials: int, delta: float, shrink: float) -> None:
    integer("rounds", rounds, least=2)  # one round has no level ℓ* ≥ 2
    integer("trials", trials, least=1)
    positive("shrink", shrink)
    if positive("delta", delta) >= 1.0 / 3.0:
        raise ValueError(f"delta must be below 1/3, as lemma sec6:confidence asks, got {delta!r}")


def _groups(rounds: int, trials: int, worlds: Mapping[str, Environment]) -> list[TrialGroup]:
    """Every weak attack in every environment, each on its own trials, so that all groups are independent."""
    attacks = weak_attacks(rounds)
    groups = []
    for i, (world, attack) in enumerate(product(worlds, attacks)):
        own = range(i * trials, (i + 1) * trials)
        scenario = Scenario(worlds[world].facing(attacks[attack]), attacks[attack], own)
        groups.append(TrialGroup(world, attack, scenario))
    return groups


def weak_attacks(rounds: int) -> dict[str, Attack]:
    """Every weak attack, with a schedule that fits the rounds.

    The budget is a power of two, at most a fiftieth of the rounds: a level ℓ* that just covers C, 2^ℓ* = C, is the
    hardest case for the lemmas. The paper's own attack has a number of rounds instead of a budget.
    """
    budget = 2.0 ** max(1, (rounds // 50).bit_length() - 1)
    short = max(1, rounds // 40)
    settings: dict[str, dict[str, Any]] = {
        "none": {"budget": None},
        "flip": {"budget": None, "rounds": short},
        "late": {"begin": rounds // 2 + 1},
        "bursts": {"period": 10 * short, "length": short},
    }
    weak = {name: kind for name, kind in ON_ALL_TRAFFIC.items() if kind.strength == "weak"}
    return {name: kind(**{"budget": budget} | settings.get(name, {})) for name, kind in weak.items()}


def _setting(environment: Environment, delta: float) -> Setting:
    """The constants of the paper's radii: λ = 1/B² and the floor (R+1)/√d."""
    return Setting(
        dim=environment.dim,
        noise_range=environment.noise_range,
        action_bound=environment.action_bound,
        parameter_bound=environment.parameter_bound,
        delta=delta,
        regularization=environment.parameter_bound**-2.0,
        sigma_floor=(environment.noise_range + 1.0) / environment.dim**0.5,
    )


class Stage(NamedTuple):
    """The trials that every policy plays, and the settings of the play."""

    groups: Sequence[TrialGroup]
    corruption: Floats
    """The realised C of each trial, (B,)."""
    setting: Setting
    rounds: int
    seed: int
    shrink: float
    progress: Callable[[int], object] | None

    def play(self, policy: MakePolicy, watch: Watch) -> Trace:
        """Play all rounds with a watcher."""
        return self._simulate(policy, np.array([self.rounds]), watch=watch)

    def monitor(self, policy: MakePolicy) -> Trace:
        """Play all rounds with the corruption monitor."""
        monitor = partial(CorruptionMonitor, delta=self.setting.delta, radius_scale=self.shrink)
        return self._simulate(policy, checkpoints(self.rounds, LOOKS), monitor=monitor)

    def _simulate(self, policy: MakePolicy, at: Ints, **more: Any) -> Trace:
        return simulate(
            policy=partial(policy, delta=self.setting.delta),
            scenarios=[group.scenario for group in self.groups],
            rounds=self.rounds,
            seed=self.seed,
            at=at,
            progress=self.progress,
            **more,
        )

    def parts(self) -> Iterator[tuple[TrialGroup, slice]]:
        """Each group and the slice of its trials."""
        size = len(self.groups[0].scenario.trials)
        return ((group, slice(i * size, (i + 1) * size)) for i, group in enumerate(self.groups))

    def clean(self) -> Stage:
        """The stage without the attacked groups."""
        parts = [(group, self.corruption[part]) for group, part in self.parts() if group.attack == "none"]
        return self._replace(groups=[group for group, _ in parts], corruption=np.concatenate([own for _, own in parts]))


def _stage(groups: Sequence[TrialGroup], rounds: int, delta: float, seed: int, shrink: float, progress: Any) -> Stage:
    """The stage, after a rehearsal that finds the realised C."""
    corruption = rehearse([group.scenario for group in groups], rounds, seed)
    setting = _setting(groups[0].scenario.environment, delta)
    stage = Stage(groups, corruption, setting, rounds, seed, shrink, progress)
    return stage._replace(
        groups=[group._replace(corruption=float(corruption[part].mean())) for group, part in stage.parts()]
    )


def _multi_level_rows(stage: Stage, policy: MakePolicy) -> list[ClaimRow]:
    setting, rounds, corruption = stage.setting, stage.rounds, stage.corruption
    watcher = Watcher(setting, rounds, corruption, stage.shrink)
    trace = stage.play(policy, watcher)
    delta, totals = setting.delta, watcher.totals
    bounds = {
        MULTI_BOUND: multi_level_bound(setting, rounds, corruption, totals.sigma_squares),
        GAP_BOUND: gap_bound(setting, rounds, corruption, totals.sigma_max, trace.smallest_gap[-1]),
    }
    outside = 6.0 * delta * rounds  # the bounds are for E_1; outside, with probability 3δ, a round costs 2 at most
    rows = []
    for group, part in stage.parts():
        rows += [
            coverage(EVENT, group, np.maximum(watcher.beta, watcher.gamma)[part], 1.0 - 3.0 * delta),
            coverage(BETA, group, watcher.beta[part], 1.0 - delta),
            coverage(GAMMA, group, watcher.gamma[part], 1.0 - 2.0 * delta),
            coverage(CORRUPTION, group, watcher.corruption[part], 1.0 - delta),
            per_round(LOW, group, watcher.low, part),
            per_round(HIGH, group, watcher.high, part),
        ]
        rows += [
            mean_bound(claim, group, trace.regret[-1, part], bound[part] + outside, totals.ceiling[part])
            for claim, bound in bounds.items()
        ]
    return rows


def _known_rows(stage: Stage) -> list[ClaimRow]:
    watcher = OneRadiusWatcher(len(stage.corruption), stage.shrink)
    trace = stage.play(partial(RobustWeightedOFUL, corruption=stage.corruption.tolist()), watcher)
    totals, required = watcher.totals, 1.0 - stage.setting.delta
    bound = known_bound(stage.setting, stage.rounds, stage.corruption, totals.sigma_squares)
    rows = []
    for group, part in stage.parts():
        rows.append(coverage(ALPHA, group, watcher.ratio[part], required))
        rows.append(path_bound(KNOWN_BOUND, group, trace.regret[-1, part], bound[part], totals.ceiling[part], required))
    return rows


def _clean_rows(stage: Stage, policy: MakePolicy, claim: str) -> list[ClaimRow]:
    """Rows on the radius of a policy that is not robust, without attack."""
    clean = stage.clean()
    watcher = OneRadiusWatcher(len(clean.corruption), stage.shrink)
    clean.play(policy, watcher)
    required = 1.0 - stage.setting.delta
    return [coverage(claim, group, watcher.ratio[part], required) for group, part in clean.parts()]


def _monitor_rows(stage: Stage, trace: Trace) -> list[ClaimRow]:
    """Rows on whether the monitor ever proved more than there was. Without lies, any proof is too much."""
    excess = trace.proved > trace.c_play * (1.0 + ROUNDING)
    share = trace.proved / np.maximum(trace.c_play, 1e-9)
    ratio = np.where(excess, np.maximum(share, 2.0), np.minimum(share, 1.0)).max(axis=0)
    return [coverage(PROVED, group, ratio[part], 1.0 - stage.setting.delta) for group, part in stage.parts()]


def _power(trace: Trace) -> str:
    lied = trace.c_play[-1] > 0.0
    alarms, number = int((trace.proved[-1] > 0.0)[lied].sum()), int(lied.sum())
    share = trace.proved[-1][lied].sum() / trace.c_play[-1][lied].sum() if number else 0.0
    proved = f"proved {share:.3f} of their corruption"
    return f"The corruption monitor raised an alarm in {alarms} of {number} attacked trials, and {proved}."
