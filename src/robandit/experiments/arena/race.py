"""The race of the arena: every policy under every attack in every world, tuned on other seeds, and the scores."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeAlias

import numpy as np

from robandit.arrays import Floats
from robandit.errors import ConfigError, nearest
from robandit.experiments.arena.worlds import CLEAN, ENVIRONMENTS, LEVELS, TUNING_ATTACKS, panels
from robandit.experiments.intervals import Pairs, Ratio, geometric_ratio, interval, mean_ratio
from robandit.experiments.tune import SEED, Grids, Tuned, grid_config
from robandit.lab.attacks import ATTACKS
from robandit.lab.catalogue import canonical, find, short
from robandit.lab.protocol import LABELLED
from robandit.lab.summary import KEYS, Case, last_round
from robandit.policies import POLICIES

if TYPE_CHECKING:
    from pyarrow import Table

    from robandit.lab.results import Result

# The settings.

SETTING: Mapping[str, int] = {"rounds": 2000, "trials": 100, "seed": 1}
TUNE_TRIALS, CHECKPOINTS = 10, 10
OFUL = "OFUL"
"""The policy of the clean oracle. All regrets are divided by its regret where nobody lies."""

CONTENDERS: Mapping[str, Mapping[str, Any]] = {
    OFUL: {"name": "oful"},
    "Weighted OFUL": {"name": "weighted-oful"},
    "Greedy": {"name": "greedy"},
    "Robust weighted OFUL told C": {"name": "robust-weighted-oful", "corruption": LABELLED},
    "Multi-level weighted OFUL": {"name": "multi-level-weighted-oful"},
    "CW-OFUL told C": {"name": "cw-oful", "corruption": LABELLED},
    "CW-OFUL": {"name": "cw-oful", "corruption": None},
    "Variance-aware CW-OFUL": {"name": "variance-aware-cw-oful", "corruption": None},
    "RobustBandit": {"name": "robust-bandit"},
    "RobustBandit without restarts": {"name": "robust-bandit", "restart": False},
    "Exp3P": {"name": "exp3p"},
    "Stochastic CORRAL": {"name": "stochastic-corral"},
    "COBE": {"name": "cobe"},
    "SAVE": {"name": "save"},
    "LinTS": {"name": "lin-ts"},
    "Robust LinTS": {"name": "robust-lin-ts", "corruption": None},
    "GAdaOFUL": {"name": "gadaoful", "corruption": None},
    "Discounted LinUCB 0.99": {"name": "discounted-lin-ucb", "discount": 0.99},
    "Discounted LinUCB 0.995": {"name": "discounted-lin-ucb", "discount": 0.995},
    "OFUL told the liars": {"name": "robandit.lab.oracles:OFULToldLiars"},
    "Quorum": {"name": "quorum"},
    "Quorum told the liars": {"name": "robandit.lab.oracles:QuorumToldLiars"},
}
"""The policies by label. The page names those that this version of the package lacks."""

GRID = tuple(4.0**-j for j in range(9))
"""The radius scales to try. The grid is coarser than that of `robandit paper tune` and reaches further down, because
some rivals have wider radii in theory than the paper."""
SLOW = {"Multi-level weighted OFUL": GRID[:6]}
"""Shorter grids. Below a thousandth Multi-level weighted OFUL cascades in nearly every round, at 20 times the cost."""


Own: TypeAlias = Mapping[str, Mapping[str, Any]]
"""Settings by label."""


class Entrants(NamedTuple):
    """The policies, attacks and worlds of a race."""

    policies: Mapping[str, Mapping[str, Any]]
    """The settings of each policy, by label."""
    attacks: Sequence[str]
    """The names of the attacks."""
    environments: Mapping[str, Mapping[str, Any]]
    """The settings of each world, by label."""
    missing: Sequence[str]
    """The policies of ``CONTENDERS`` that this version lacks."""
    own_attacks: Mapping[str, Mapping[str, Any]] = {}
    """The settings of attacks of the user's own, by label. They play in every world."""

    @property
    def told(self) -> set[str]:
        """The policies that are told C or who lies, which is unknown outside a simulation."""
        return {
            label
            for label, settings in self.policies.items()
            if settings.get("corruption") == LABELLED or hasattr(find("policies", settings["name"]), "told_liars")
        }

    @property
    def tuned(self) -> dict[str, Mapping[str, Any]]:
        """The policies whose radius scale is tuned."""
        return {label: settings for label, settings in self.policies.items() if _has_scale(settings)}


def entrants_of(
    policies: Sequence[str] = (),
    attacks: Sequence[str] = (),
    environments: Sequence[str] = (),
    own_policies: Own | None = None,
    own_attacks: Own | None = None,
) -> Entrants:
    """All entrants, or those named by label or name. A policy or an attack of your own is `file.py:Class`.

    OFUL and the attack 'none' are always included, because the clean oracle needs them.

    >>> list(entrants_of(policies=["greedy"], attacks=["flip"]).policies)
    ['OFUL', 'Greedy']
    """
    missing = [label for label, one in CONTENDERS.items() if one["name"] not in POLICIES and ":" not in one["name"]]
    there = {label: settings for label, settings in CONTENDERS.items() if label not in missing}
    mine = _by_place(policies) | dict(own_policies or {})
    chosen = _pick("policies", policies, there, missing, also=mine)
    bribes = _by_place(attacks) | dict(own_attacks or {})
    hostile = _pick("attacks", attacks, {name: {"name": name} for name in ATTACKS}, [], also=bribes)
    if set(hostile) <= {CLEAN} and not bribes:
        raise ConfigError(f"attacks must have at least one beside {CLEAN!r}")
    worlds = _pick("environments", environments, ENVIRONMENTS, [])
    fit = {label: world for label, world in worlds.items() if bribes or panels(world, 1, {*hostile} - {CLEAN})}
    if not fit or (environments and fit != worlds):
        unfit = ", ".join(label for label in worlds if label not in fit)
        raise ConfigError(f"attacks: none of {', '.join(hostile)} is raced in {unfit}")
    names = list(dict.fromkeys([CLEAN, *hostile]))
    return Entrants({OFUL: CONTENDERS[OFUL]} | chosen | mine, names, fit, missing, bribes)


def _by_place(names: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Those of these names that say where a class is, by the name of the class."""
    return {short(name): {"name": name} for name in names if ":" in name}


def _pick(
    kind: str, names: Sequence[str], there: Mapping[str, Any], missing: Sequence[str], also: Own | None = None
) -> dict[str, Any]:
    """The ones that are named, in the order of the list; all of them if nothing is, and the user brings none."""
    wanted = [name for name in names if ":" not in name]
    if also and not wanted:
        return {}
    for one in wanted:
        if one in missing:
            raise ConfigError(f"{kind}: {one} is not in this version")
        if not any(_is(kind, one, label, settings) for label, settings in there.items()):
            raise ConfigError(f"{kind}: unknown {one!r}{nearest(one, there)}")
    return {
        label: settings
        for label, settings in there.items()
        if not wanted or any(_is(kind, one, label, settings) for one in wanted)
    }


def _is(kind: str, word: str, label: str, settings: Mapping[str, Any]) -> bool:
    return word == label or canonical(kind, word) == settings["name"]


def _has_scale(settings: Mapping[str, Any]) -> bool:
    """Whether a policy has a radius scale and its settings leave it open."""
    known = {item.name for item in fields(find("policies", settings["name"]))}
    return "radius_scale" in known and "radius_scale" not in settings


def grids(entrants: Entrants) -> Grids:
    """The radius scales to try for each policy."""
    return {policy: SLOW.get(policy, GRID) for policy in entrants.tuned}


Scales: TypeAlias = Mapping[str, float]
"""The radius scale of each policy."""


def tuning_config(entrants: Entrants, environment: str, *, rounds: int, trials: int) -> dict[str, Any]:
    """The settings of the tuning run of one world: every policy at every scale, on the tuning seed."""
    settings = entrants.environments[environment]
    base: dict[str, Any] = {"rounds": rounds, "trials": trials, "seed": SEED, "checkpoints": 2}
    base |= {"attacks": panels(settings, rounds, TUNING_ATTACKS), "environments": [{**settings, "label": environment}]}
    return grid_config(base, entrants.tuned, grids(entrants))


def config(entrants: Entrants, environment: str, scales: Scales, **numbers: int) -> dict[str, Any]:
    """The settings of the evaluation in one world, with every policy at its scale there."""
    world = entrants.environments[environment]
    return {
        **SETTING,
        **numbers,
        "checkpoints": CHECKPOINTS,
        "environments": [{**world, "label": environment}],
        "attacks": panels_of(entrants, environment, numbers.get("rounds", SETTING["rounds"])),
        "policies": [
            {**settings, "label": label} | ({"radius_scale": scales[label]} if label in scales else {})
            for label, settings in entrants.policies.items()
        ],
    }


def panels_of(entrants: Entrants, environment: str, rounds: int) -> list[dict[str, Any]]:
    """The attacks of one world: the arena's, then the user's own at both levels, or at the budget that they have."""
    own = [
        {**settings, "label": label, "budget": budget}
        for label, settings in entrants.own_attacks.items()
        for budget in (LEVELS if settings.get("budget") is None else [settings["budget"]])
    ]
    return panels(entrants.environments[environment], rounds, entrants.attacks) + own


def at_the_edge(scales: Scales) -> list[str]:
    """The policies whose scale is the first or the last of the grid. Their best scale may lie beyond it."""
    ends = {policy: SLOW.get(policy, GRID) for policy in scales}
    return [policy for policy, scale in scales.items() if scale in (ends[policy][0], ends[policy][-1])]


def scales_json(tuned: Mapping[str, Tuned]) -> bytes:
    """The tuning of all worlds as JSON, with the numbers that the scales were chosen by."""
    return (
        json.dumps({world: asdict(one) for world, one in tuned.items()}, indent=1, ensure_ascii=False) + "\n"
    ).encode()


def write_together(results: Sequence[Result], file: BinaryIO) -> None:
    """Write the evaluations of all worlds as one Parquet file, which `robandit.lab.results.read` reads."""
    from robandit.lab.results import write

    first = results[0].config
    whole = {**first, "environments": [world for one in results for world in one.config["environments"]]}
    whole["policies"] = {one.config["environments"][0]["label"]: one.config["policies"] for one in results}
    about = {"version": results[0].version, "config": whole}
    write(file, (rows for one in results for rows in one.row_groups()), [one.schema for one in results], about)


# The scores.


class Cell(NamedTuple):
    """The result of a policy in a scenario."""

    regret: Floats
    """The regret at the end of each trial, (trials,)."""
    spent: float
    """How much corruption the attack spent, averaged over the trials."""


Cells: TypeAlias = dict[Case, dict[str, Cell]]
"""The results by scenario and policy."""


def cells(table: Table) -> Cells:
    """The results at the last round, with scenarios and policies in the order of the table."""
    found: dict[Case, dict[str, list[tuple[float, float]]]] = {}
    for row in last_round(table).select([*KEYS, "policy", "regret", "c_sup", "c_play"]).to_pylist():
        spent = row["c_play" if row["strength"] == "strong" else "c_sup"]  # the measure of its budget
        policies = found.setdefault(Case(*(row[key] for key in KEYS)), {})
        policies.setdefault(row["policy"], []).append((row["regret"], spent))
    ends = {case: {policy: np.array(rows) for policy, rows in rest.items()} for case, rest in found.items()}
    return {
        case: {policy: Cell(end[:, 0], float(end[:, 1].mean())) for policy, end in rest.items()}
        for case, rest in ends.items()
    }


class Score(NamedTuple):
    """A policy's regret relative to that of the clean oracle, in one world or in all."""

    policy: str
    attacked: Ratio
    """The geometric mean over attacks and levels, which ranks the policies. Unlike the mean it depends neither on the
    choice of the divisor nor on a single attack that ruins every policy."""
    mean: Ratio
    """The mean over attacks and levels."""
    worst: Ratio
    """The ratio in the worst scenario."""
    where: Case
    """The worst scenario."""
    price: Ratio
    """The ratio on clean data."""


def pairs_of(found: Cells, policy: str, cases: Sequence[Case]) -> Pairs:
    """The policy's regret in these scenarios, and the clean oracle's in the same worlds and trials."""
    clean = {case.environment: policies[OFUL].regret for case, policies in found.items() if case.attack == CLEAN}
    return [(found[case][policy].regret, clean[case.environment]) for case in cases]


def relative(found: Cells, case: Case, policy: str) -> Ratio:
    """The policy's regret in a scenario, relative to the clean oracle's."""
    return mean_ratio(pairs_of(found, policy, [case]))


def scores(found: Cells) -> list[Score]:
    """The score of every policy over these scenarios, the best policy first."""
    hostile = [case for case in found if case.attack != CLEAN]
    clean = [case for case in found if case.attack == CLEAN]
    rows = []
    for policy in found[hostile[0]]:
        pairs = pairs_of(found, policy, hostile)
        worst, where = max((relative(found, case, policy), case) for case in hostile)
        price = geometric_ratio(pairs_of(found, policy, clean))
        rows.append(Score(policy, geometric_ratio(pairs), mean_ratio(pairs), worst, where, price))
    return sorted(rows, key=lambda score: score.attacked.value)


def evidence(found: Cells, configs: Sequence[Mapping[str, Any]], told: Collection[str]) -> bytes:
    """The scores in every world as JSON, the best policy first. `robandit.recommend` reads them."""
    worlds = {}
    for config in configs:
        world = config["environments"][0]["label"]
        settings = {entry["label"]: {k: v for k, v in entry.items() if k != "label"} for entry in config["policies"]}
        worlds[world] = [
            {"label": row.policy, "told": row.policy in told, "settings": settings[row.policy]}
            | {name: [round(number, 4) for number in getattr(row, name)] for name in ("attacked", "worst", "price")}
            | {"where": f"{row.where.attack} at C = {row.where.corruption:g}"}
            for row in scores(of_world(found, world))
        ]
    numbers = {name: configs[0][name] for name in ("rounds", "trials", "seed")}
    most = max(len({case.attack for case in of_world(found, world)} - {CLEAN}) for world in worlds)
    held = {**numbers, "attacks": most, "worlds": worlds}
    return (json.dumps(held, indent=1, ensure_ascii=False) + "\n").encode()


def of_world(found: Cells, environment: str) -> Cells:
    """The scenarios of one world."""
    return {case: policies for case, policies in found.items() if case.environment == environment}


def best(policies: Mapping[str, Cell], told: Collection[str]) -> str:
    """The policy of least mean regret in a scenario, among those not told C."""
    return min((policy for policy in policies if policy not in told), key=lambda one: policies[one].regret.mean())


class Standing(NamedTuple):
    """How a policy compares in a scenario with the best policy not told C."""

    case: Case
    best: str
    """The best policy not told C."""
    factor: float
    """The policy's regret over that of the best."""
    among_best: bool
    """Whether the policy is behind by at most half of the 95 % interval of the difference, paired over trials."""


def standings(found: Cells, policy: str, told: Collection[str]) -> list[Standing]:
    """How the policy compares with the best in every scenario."""
    rows = []
    for case, policies in found.items():
        first = best(policies, told)
        own, other = policies[policy].regret, policies[first].regret
        excess, half = interval(own - other)
        factor = mean_ratio([(own, other)]).value
        rows.append(Standing(case, first, factor, excess <= 0.0 or excess <= half))
    return rows
