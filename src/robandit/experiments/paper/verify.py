"""The theorems as numbers: every lemma and bound of the paper, held against runs at radius scale 1."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import nan
from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import Floats, Ints
from robandit.experiments.paper.theory import (
    ROUNDING,
    Lemma,
    OneRadiusWatcher,
    Watcher,
    clopper_pearson,
    gap_bound,
    known_bound,
    multi_level_bound,
)
from robandit.experiments.tune import interval
from robandit.inputs import integer, positive
from robandit.lab.attacks import ATTACKS, Attack
from robandit.lab.environments import Environment, Fresh, Paper
from robandit.lab.protocol import MakePolicy, Monitor, Scenario, Trace, Watch, checkpoints, rehearse, simulate
from robandit.monitor.monitor import CorruptionMonitor
from robandit.policies import OFUL, MultiLevelWeightedOFUL, RobustWeightedOFUL, WeightedOFUL
from robandit.policies.radius import Setting

HOLDS, FAILS, UNDECIDED, VACUOUS = "holds", "fails", "undecided", "vacuous"

# The claims, by what they say and the paper's label.
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
PROVED = "the monitor proves no more corruption than there was (docs/monitor.md)"

RADII = (ALPHA, BETA, GAMMA)
"""The claims about the paper's own radii."""
RUNS = 5
"""How many times `verify` plays all rounds: once for each policy, and once for the monitor."""
LOOKS = 20
"""Rounds at which the monitor looks, about."""
PAPER_SIZE: Mapping[str, int] = {"rounds": 10_000, "trials": 10, "dim": 20, "actions": 20}
"""The size of the paper's experiments, for those who have the minutes."""


class Row(NamedTuple):
    """A claim, checked in some trials of an environment under an attack. All of it is plain data."""

    claim: str
    attack: str
    environment: str
    corruption: float
    """The realised C, on average."""
    unit: str
    """What was checked: `trials`, `rounds`, or the `mean` over trials."""
    checked: int
    breaches: int
    required: float
    """The probability that the paper promises; 1 for what must hold always."""
    low: float
    """The 95 % Clopper–Pearson interval of the coverage, from this"""
    high: float
    """to this. NaN for what is not a matter of coverage."""
    ratio: float
    """The largest distance over radius, left over right, or regret over bound. Above 1 it is a breach."""
    verdict: str
    regret: float = nan
    """For a bound: the mean regret,"""
    bound: float = nan
    """the mean bound,"""
    ceiling: float = nan
    """and the most that any policy could have lost, on average."""

    def evidence(self) -> str:
        """The numbers in words."""
        if not np.isnan(self.bound):
            relation = "≥" if self.verdict == VACUOUS else "<"
            ratio = f"bound {self.bound:.3g} {relation} {self.ceiling:.3g}, the most that can be lost"
            return f"regret {self.regret:.3g}, {ratio}; ratio at most {self.ratio:.2g}"
        counted = f"{self.breaches} breaches in {self.checked} {self.unit}; ratio at most {self.ratio:.2g}"
        if np.isnan(self.low):
            return counted
        return f"{counted}; coverage [{self.low:.3f}, {self.high:.3f}], promised {self.required:.3g}"


class Verdicts(NamedTuple):
    """All rows, and the settings that they are from."""

    settings: Mapping[str, Any]
    rows: Sequence[Row]
    power: str = ""
    """What the monitor made of the attacks, in words."""

    def pooled(self) -> list[Row]:
        """A row for each claim over all environments and attacks, whose trials are different ones."""
        claims = list(dict.fromkeys(row.claim for row in self.rows))
        return [_pool([row for row in self.rows if row.claim == claim]) for claim in claims]


def largest_ratio(verdicts: Verdicts, claims: Sequence[str] = RADII) -> float:
    """The largest distance over radius, of the paper's radii. `verify` with a ``shrink`` below it reports breaches."""
    return max(row.ratio for row in verdicts.rows if row.claim in claims)


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
) -> Verdicts:
    """Hold the paper's lemmas and bounds against ``trials`` trials of every weak attack in two environments.

    C is the realised one, of each trial. ``shrink`` multiplies every radius in the checks, and none of the policies'.
    ``progress`` is called with the number of rounds played since the last call, `RUNS` times ``rounds`` in all.
    ``multi_level`` can be a variant of one's own.
    """
    _check(rounds, trials, delta, shrink)
    settings = {"rounds": rounds, "trials": trials, "dim": dim, "actions": actions, "delta": delta, "seed": seed}
    cells = _cells(rounds, trials, {"paper": Paper(dim=dim, actions=actions), "fresh": Fresh(dim=dim, actions=actions)})
    play = partial(_play, rounds=rounds, delta=delta, seed=seed, progress=progress)
    corruption = rehearse([cell.scenario for cell in cells], rounds, seed)
    cells = [cell._replace(corruption=float(corruption[part].mean())) for cell, part in _parts(cells)]
    setting = _setting(cells[0].scenario.environment, delta)

    watcher = Watcher(setting, rounds, corruption, shrink)
    rows = _multi_level_rows(cells, watcher, play(multi_level, cells, watcher), setting, rounds, corruption)
    known = OneRadiusWatcher(len(corruption), shrink)
    trace = play(partial(RobustWeightedOFUL, corruption=corruption.tolist()), cells, known)
    rows += _known_rows(cells, known, trace, setting, rounds, corruption)
    clean = [cell for cell in cells if cell.attack == "none"]
    for policy, claim in ((OFUL, OFUL_RADIUS), (WeightedOFUL, WEIGHTED_RADIUS)):
        watch = OneRadiusWatcher(len(clean) * trials, shrink)
        play(policy, clean, watch)
        rows += [coverage(claim, cell, watch.ratio[part], 1.0 - delta) for cell, part in _parts(clean)]
    monitor = partial(CorruptionMonitor, delta=delta, radius_scale=shrink)
    trace = play(OFUL, cells, None, at=checkpoints(rounds, LOOKS), monitor=monitor)
    rows += _monitor_rows(cells, trace, 1.0 - delta)
    return Verdicts(settings | {"shrink": shrink}, rows, _power(trace))


def _check(rounds: int, trials: int, delta: float, shrink: float) -> None:
    integer("rounds", rounds, least=2)  # one round has no level ℓ* ≥ 2
    integer("trials", trials, least=1)
    positive("shrink", shrink)
    if positive("delta", delta) >= 1.0 / 3.0:
        raise ValueError(f"delta must be below 1/3, as lemma sec6:confidence asks, got {delta!r}")


class Cell(NamedTuple):
    """Some trials of an environment under an attack, by name."""

    environment: str
    attack: str
    scenario: Scenario
    corruption: float = nan
    """The realised C, on average."""

    def row(self, claim: str, *rest: Any, **more: Any) -> Row:
        """A row about these trials."""
        return Row(claim, self.attack, self.environment, self.corruption, *rest, **more)


def _cells(rounds: int, trials: int, worlds: Mapping[str, Environment]) -> list[Cell]:
    """Every weak attack in every environment, each on trials of its own, so that all of them are independent."""
    attacks = weak_attacks(rounds)
    pairs = [(world, attack) for world in worlds for attack in attacks]
    return [
        Cell(
            world,
            attack,
            Scenario(worlds[world].facing(attacks[attack]), attacks[attack], range(i * trials, (i + 1) * trials)),
        )
        for i, (world, attack) in enumerate(pairs)
    ]


def weak_attacks(rounds: int) -> dict[str, Attack]:
    """Every weak attack, with a schedule that fits the rounds.

    The budget is a power of two, up to a fiftieth of the rounds: a level ℓ* that just covers C, 2^ℓ* = C, is the
    hardest case for the lemmas. The paper's own attack has no budget, but a number of rounds.
    """
    budget = 2.0 ** max(1, (rounds // 50).bit_length() - 1)
    short = max(1, rounds // 40)
    settings: dict[str, dict[str, Any]] = {
        "none": {"budget": None},
        "flip": {"budget": None, "rounds": short},
        "late": {"begin": rounds // 2 + 1},
        "bursts": {"period": 10 * short, "length": short},
    }
    weak = {name: kind for name, kind in ATTACKS.items() if kind.strength == "weak"}
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


def _play(
    policy: MakePolicy,
    cells: Sequence[Cell],
    watch: Watch | None,
    *,
    rounds: int,
    delta: float,
    seed: int,
    progress: Any,
    at: Ints | None = None,
    monitor: Monitor = False,
) -> Trace:
    return simulate(
        policy=partial(policy, delta=delta),
        scenarios=[cell.scenario for cell in cells],
        rounds=rounds,
        seed=seed,
        at=np.array([rounds]) if at is None else at,
        progress=progress,
        watch=watch,
        monitor=monitor,
    )


def _parts(cells: Sequence[Cell]) -> Iterator[tuple[Cell, slice]]:
    """Each cell and where its trials are."""
    size = len(cells[0].scenario.trials)
    return ((cell, slice(i * size, (i + 1) * size)) for i, cell in enumerate(cells))


def _multi_level_rows(
    cells: Sequence[Cell], watcher: Watcher, trace: Trace, setting: Setting, rounds: int, corruption: Floats
) -> list[Row]:
    delta, tally = setting.delta, watcher.tally
    bounds = {
        MULTI_BOUND: multi_level_bound(setting, rounds, corruption, tally.sigma_squares),
        GAP_BOUND: gap_bound(setting, rounds, corruption, tally.sigma_max, trace.smallest_gap[-1]),
    }
    outside = 6.0 * delta * rounds  # the bounds are for E_1; outside, with probability 3δ, a round costs 2 at most
    rows = []
    for cell, part in _parts(cells):
        rows += [
            coverage(EVENT, cell, np.maximum(watcher.beta, watcher.gamma)[part], 1.0 - 3.0 * delta),
            coverage(BETA, cell, watcher.beta[part], 1.0 - delta),
            coverage(GAMMA, cell, watcher.gamma[part], 1.0 - 2.0 * delta),
            coverage(CORRUPTION, cell, watcher.corruption[part], 1.0 - delta),
            per_round(LOW, cell, watcher.low, part),
            per_round(HIGH, cell, watcher.high, part),
        ]
        rows += [
            mean_bound(claim, cell, trace.regret[-1, part], bound[part] + outside, tally.ceiling[part])
            for claim, bound in bounds.items()
        ]
    return rows


def _known_rows(
    cells: Sequence[Cell], watcher: OneRadiusWatcher, trace: Trace, setting: Setting, rounds: int, corruption: Floats
) -> list[Row]:
    tally, required = watcher.tally, 1.0 - setting.delta
    bound = known_bound(setting, rounds, corruption, tally.sigma_squares)
    rows = []
    for cell, part in _parts(cells):
        rows.append(coverage(ALPHA, cell, watcher.ratio[part], required))
        rows.append(path_bound(KNOWN_BOUND, cell, trace.regret[-1, part], bound[part], tally.ceiling[part], required))
    return rows


def _monitor_rows(cells: Sequence[Cell], trace: Trace, required: float) -> list[Row]:
    """Whether what was proved at any look exceeds what was there: anything does where nobody lied."""
    excess = trace.proved > trace.c_play * (1.0 + ROUNDING)
    share = trace.proved / np.maximum(trace.c_play, 1e-9)
    ratio = np.where(excess, np.maximum(share, 2.0), np.minimum(share, 1.0)).max(axis=0)
    return [coverage(PROVED, cell, ratio[part], required) for cell, part in _parts(cells)]


def _power(trace: Trace) -> str:
    lied = trace.c_play[-1] > 0.0
    alarms, number = int((trace.proved[-1] > 0.0)[lied].sum()), int(lied.sum())
    share = trace.proved[-1][lied].sum() / trace.c_play[-1][lied].sum() if number else 0.0
    proved = f"proved {share:.3f} of their corruption"
    return f"The corruption monitor raised an alarm in {alarms} of {number} attacked trials, and {proved}."


# Verdicts.


def coverage(claim: str, cell: Cell, ratio: Floats, required: float) -> Row:
    """A row on how many trials stay within, of largest ratios (n,)."""
    breaches = int(np.count_nonzero(~(ratio <= 1.0)))
    low, high, verdict = judge_coverage(breaches, len(ratio), required)
    return cell.row(claim, "trials", len(ratio), breaches, required, low, high, float(ratio.max()), verdict)


def judge_coverage(breaches: int, checked: int, required: float) -> tuple[float, float, str]:
    """The interval of the coverage, and the verdict: it lies on one side of what is required, or there is no breach.

    >>> [judge_coverage(breaches, 80, 0.85)[2] for breaches in (0, 4, 12, 30)]
    ['holds', 'holds', 'undecided', 'fails']
    """
    low, high = clopper_pearson(checked - breaches, checked)
    if breaches == 0 or low >= required:
        return low, high, HOLDS
    return low, high, FAILS if high < required else UNDECIDED


def per_round(claim: str, cell: Cell, lemma: Lemma, part: slice) -> Row:
    """A row on a lemma that must hold in every round of the good event: one violation is too much."""
    checked, breaches = int(lemma.checks[part].sum()), int(lemma.violations[part].sum())
    verdict = FAILS if breaches else HOLDS if checked else UNDECIDED
    ratio = float(lemma.ratio[part].max())
    return cell.row(claim, "rounds", checked, breaches, 1.0, nan, nan, ratio, verdict)


def path_bound(claim: str, cell: Cell, regret: Floats, bound: Floats, ceiling: Floats, required: float) -> Row:
    """A row on a bound that holds path by path; vacuous if it is above what any policy could lose."""
    row = coverage(claim, cell, regret / bound, required)
    return row._replace(
        verdict=VACUOUS if (bound >= ceiling).all() else row.verdict,
        regret=float(regret.mean()),
        bound=float(bound.mean()),
        ceiling=float(ceiling.mean()),
    )


def mean_bound(claim: str, cell: Cell, regret: Floats, bound: Floats, ceiling: Floats) -> Row:
    """A row on a bound on the mean regret, by the 95 % interval of regret − bound; vacuous as above."""
    excess, half = interval(regret - bound)
    verdict = HOLDS if excess + half < 0.0 else FAILS if excess - half > 0.0 else UNDECIDED
    means = float(regret.mean()), float(bound.mean()), float(ceiling.mean())
    if means[1] >= means[2]:
        verdict = VACUOUS
    breaches, ratio = int(excess > 0.0), means[0] / means[1]
    return cell.row(claim, "mean", len(regret), breaches, 1.0, nan, nan, ratio, verdict, *means)


def _pool(rows: Sequence[Row]) -> Row:
    """Rows on one claim as one: counts add up, the worst ratio stands, and a failure anywhere is one of the whole."""
    worst = max(rows, key=lambda row: row.ratio)
    checked, breaches = sum(row.checked for row in rows), sum(row.breaches for row in rows)
    found = {row.verdict for row in rows}
    verdict = next(each for each in (FAILS, UNDECIDED, HOLDS, VACUOUS) if each in found)
    low, high = worst.low, worst.high
    if worst.unit == "trials":
        low, high, together = judge_coverage(breaches, checked, worst.required)
        verdict = verdict if verdict in (FAILS, VACUOUS) else together  # more trials may decide
    return worst._replace(
        attack="all",
        environment="all",
        corruption=float(np.mean([row.corruption for row in rows])),
        checked=checked,
        breaches=breaches,
        low=low,
        high=high,
        verdict=verdict,
    )
