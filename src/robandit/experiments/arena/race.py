"""The arena: every policy under every attack in three worlds, tuned by one protocol on other seeds, and the scores."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, fields
from io import BytesIO
from math import exp
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from robandit.arrays import Floats
from robandit.errors import ConfigError, nearest
from robandit.experiments.tune import SEED, Grids, Tuned, grid_config, interval
from robandit.lab.attacks import ATTACKS
from robandit.lab.catalogue import canonical, find, short
from robandit.lab.protocol import LABELLED
from robandit.lab.summary import KEYS, Case
from robandit.policies import POLICIES

if TYPE_CHECKING:
    from pyarrow import Table

    from robandit.lab.results import Result

# The settings.

SETTING: Mapping[str, int] = {"rounds": 2000, "trials": 50, "seed": 1}
TUNE_TRIALS, CHECKPOINTS = 16, 10
LEVELS = (25.0, 100.0)
"""The budgets of every attack: C_sup of a weak one, C_play of a strong one."""
CLEAN, OFUL = "none", "OFUL"
"""The attack and the policy of the clean oracle, to whose regret all regrets are put in proportion."""

ENVIRONMENTS: Mapping[str, Mapping[str, Any]] = {
    # Its fresh rounds are said here, or they would depend on the attack.
    "fixed after 100 rounds": {"name": "paper", "dim": 20, "actions": 20, "fresh_rounds": 100},
    "fresh sets": {"name": "fresh", "dim": 5, "actions": 20},
    "varying noise": {"name": "heteroscedastic", "dim": 5, "actions": 10},
}

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
    # Ours comes as it is: a radius scale that is said here is not tuned.
    "Sceptic": {"name": "sceptic", "radius_scale": 0.001},
    "Sceptic, insured": {"name": "sceptic", "radius_scale": 0.001, "insurance": 1.0},
}
"""By label. Those that this version of the package does not have are left out, and said to be."""

TUNING_ATTACKS = (CLEAN, "flip", "suppress-best", "oracle-target", "stealth")
"""The panels of the tuning, at both levels. They do not depend on what is evaluated."""

GRID = tuple(4.0**-j for j in range(9))
"""The radius scales to try: coarser than those of `paper tune` and further down, for the theory's constants of some
rivals are wider than the paper's."""
SLOW = {"Multi-level weighted OFUL": GRID[:6]}
"""Below a thousandth nearly every round of Multi-level weighted OFUL is a cascade, and a hundred times as slow."""


def attacks(rounds: int, names: Collection[str] = tuple(ATTACKS)) -> list[dict[str, Any]]:
    """These attacks at both levels, on schedules that leave time to spend 100 within 2000 rounds in each world."""
    schedules: dict[str, dict[str, Any]] = {
        "flip": {"rounds": rounds},  # until the budget is spent
        "random-flips": {"probability": 0.2},
        "periodic": {"every": 5},
        "late": {"begin": rounds // 2 + 1},
        "bursts": {"period": 100, "length": 20},
        "suppress-best": {"margin": 0.08},
    }
    # A bias of σ_t in every round spends 33 where σ_t is at most 0.05: it takes four times that for 100.
    by_level = {"stealth": {level: {"share": level / 25.0} for level in LEVELS}}
    wanted = [name for name in ATTACKS if name in names and name != CLEAN]
    clean = [{"name": CLEAN}] if CLEAN in names else []
    return clean + [
        {"name": name, "budget": level, **schedules.get(name, {}), **by_level.get(name, {}).get(level, {})}
        for name in wanted
        for level in LEVELS
    ]


class Field(NamedTuple):
    """Who meets whom: policies and worlds by label, attacks by name."""

    policies: Mapping[str, Mapping[str, Any]]
    attacks: Sequence[str]
    environments: Mapping[str, Mapping[str, Any]]
    missing: Sequence[str]
    """Policies of the list that this version does not have."""

    @property
    def told(self) -> set[str]:
        """Policies that are told C, which nobody is in life."""
        return {label for label, settings in self.policies.items() if settings.get("corruption") == LABELLED}

    @property
    def tuned(self) -> dict[str, Mapping[str, Any]]:
        """Policies that have a radius scale."""
        return {label: settings for label, settings in self.policies.items() if _has_scale(settings)}


def field_of(policies: Sequence[str] = (), attacks: Sequence[str] = (), environments: Sequence[str] = ()) -> Field:
    """All there are, or these: by label or name, a policy of one's own as `file.py:Class`.

    What the clean oracle needs is always there.

    >>> list(field_of(policies=["greedy"], attacks=["flip"]).policies)
    ['OFUL', 'Greedy']
    """
    missing = [label for label, settings in CONTENDERS.items() if settings["name"] not in POLICIES]
    there = {label: settings for label, settings in CONTENDERS.items() if label not in missing}
    there |= {short(own): {"name": own} for own in policies if ":" in own}
    chosen = _pick("policies", [short(policy) for policy in policies], there, missing)
    hostile = _pick("attacks", attacks, {name: {"name": name} for name in ATTACKS}, [])
    if set(hostile) <= {CLEAN}:
        raise ConfigError(f"attacks must have at least one beside {CLEAN!r}")
    worlds = _pick("environments", environments, ENVIRONMENTS, [])
    return Field({OFUL: CONTENDERS[OFUL]} | chosen, list(dict.fromkeys([CLEAN, *hostile])), worlds, missing)


def _pick(kind: str, wanted: Sequence[str], there: Mapping[str, Any], missing: Sequence[str]) -> dict[str, Any]:
    """Those that are wanted, all if nothing is said, in the order of the list."""
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
    """Whether a policy has a radius scale that is left to the tuning."""
    known = {item.name for item in fields(find("policies", settings["name"]))}
    return "radius_scale" in known and "radius_scale" not in settings


def grids(field: Field) -> Grids:
    """The radius scales to try for each policy."""
    return {policy: SLOW.get(policy, GRID) for policy in field.tuned}


Scales: TypeAlias = Mapping[str, float]


def tuning_config(field: Field, environment: str, *, rounds: int, trials: int) -> dict[str, Any]:
    """The tuning run of one world: every policy at every scale, on the tuning seed."""
    base = {"rounds": rounds, "trials": trials, "seed": SEED, "checkpoints": 2}
    panels = attacks(rounds, TUNING_ATTACKS)
    world = [{**field.environments[environment], "label": environment}]
    return grid_config({**base, "attacks": panels, "environments": world}, field.tuned, grids(field))


def config(field: Field, environment: str, scales: Scales, **numbers: int) -> dict[str, Any]:
    """The evaluation in one world, every policy at its scale there."""
    return {
        **SETTING,
        **numbers,
        "checkpoints": CHECKPOINTS,
        "environments": [{**field.environments[environment], "label": environment}],
        "attacks": attacks(numbers.get("rounds", SETTING["rounds"]), field.attacks),
        "policies": [
            {**settings, "label": label} | ({"radius_scale": scales[label]} if label in scales else {})
            for label, settings in field.policies.items()
        ],
    }


def at_the_edge(scales: Scales) -> list[str]:
    """The policies whose scale is the first or the last of the grid: the best may lie beyond."""
    ends = {policy: SLOW.get(policy, GRID) for policy in scales}
    return [policy for policy, scale in scales.items() if scale in (ends[policy][0], ends[policy][-1])]


def scales_json(tuned: Mapping[str, Tuned]) -> bytes:
    """The tuning of all worlds, with all that the scales were chosen from."""
    return (
        json.dumps({world: asdict(one) for world, one in tuned.items()}, indent=1, ensure_ascii=False) + "\n"
    ).encode()


def together(results: Sequence[Result]) -> bytes:
    """The evaluations of all worlds as one tidy table, a Parquet file that `robandit.lab.results.read` reads."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    first = results[0].config
    whole = {**first, "environments": [world for one in results for world in one.config["environments"]]}
    whole["policies"] = {one.config["environments"][0]["label"]: one.config["policies"] for one in results}
    about = {"version": results[0].version, "config": whole}
    table = pa.concat_tables([one.table for one in results]).combine_chunks()
    sink = BytesIO()
    pq.write_table(table.replace_schema_metadata({"robandit": json.dumps(about)}), sink, compression="zstd")
    return sink.getvalue()


# The scores.


class Cell(NamedTuple):
    """A policy in a scenario: its regret at the end, (trials,), and what the attack spent, on average."""

    regret: Floats
    spent: float


Cells: TypeAlias = dict[Case, dict[str, Cell]]


def cells(table: Table) -> Cells:
    """The end of every trial, by scenario and policy, both in the order of the table."""
    from pyarrow.compute import field as column
    from pyarrow.compute import max as largest

    last = table.filter(column("round") == largest(table["round"]))
    found: dict[Case, dict[str, list[tuple[float, float]]]] = {}
    for row in last.select([*KEYS, "policy", "regret", "c_sup", "c_play"]).to_pylist():
        spent = row["c_play" if row["strength"] == "strong" else "c_sup"]  # what its budget is counted in
        policies = found.setdefault(Case(*(row[key] for key in KEYS)), {})
        policies.setdefault(row["policy"], []).append((row["regret"], spent))
    ends = {case: {policy: np.array(rows) for policy, rows in rest.items()} for case, rest in found.items()}
    return {
        case: {policy: Cell(end[:, 0], float(end[:, 1].mean())) for policy, end in rest.items()}
        for case, rest in ends.items()
    }


class Ratio(NamedTuple):
    """A ratio of mean regrets and its 95 % interval, which is nan from one trial."""

    value: float
    low: float
    high: float


Pairs: TypeAlias = Sequence[tuple[Floats, Floats]]
"""Regrets of the same trials, (n,) each: those of interest, and those to compare with."""


def _linearised(x: Floats, y: Floats) -> tuple[float, Floats]:
    """The ratio ρ of the means, and what each trial moves it by: (x_i − ρ y_i) / ȳ."""
    below = max(float(y.mean()), 1e-300)
    rho = float(x.mean()) / below
    return rho, (x - rho * y) / below


def mean_ratio(pairs: Pairs) -> Ratio:
    """The mean of some ratios."""
    parts = [_linearised(x, y) for x, y in pairs]
    value, half = float(np.mean([rho for rho, _ in parts])), interval(np.mean([moves for _, moves in parts], axis=0))[1]
    return Ratio(value, value - half, value + half)


def geometric_ratio(pairs: Pairs) -> Ratio:
    """The geometric mean of some ratios; its interval is that of the mean logarithm."""
    parts = [(max(rho, 1e-300), moves) for rho, moves in (_linearised(x, y) for x, y in pairs)]
    log = float(np.mean([np.log(rho) for rho, _ in parts]))
    half = interval(np.mean([moves / rho for rho, moves in parts], axis=0))[1]
    return Ratio(exp(log), exp(log - half), exp(log + half))


class Score(NamedTuple):
    """A policy's regret relative to that of the clean oracle, in one world or in all."""

    policy: str
    attacked: Ratio
    """The geometric mean over the attacks and levels, by which policies are ranked: unlike the mean it does not hang
    on what one divides by, nor on the one attack that ruins everybody."""
    mean: Ratio
    worst: Ratio
    where: Case
    """The worst scenario."""
    price: Ratio
    """On clean data."""


def pairs_of(found: Cells, policy: str, cases: Sequence[Case]) -> Pairs:
    """The policy's regret in some scenarios, and the clean oracle's in the same worlds and trials."""
    clean = {case.environment: policies[OFUL].regret for case, policies in found.items() if case.attack == CLEAN}
    return [(found[case][policy].regret, clean[case.environment]) for case in cases]


def relative(found: Cells, case: Case, policy: str) -> Ratio:
    """The policy's regret in a scenario, relative to the clean oracle's."""
    return mean_ratio(pairs_of(found, policy, [case]))


def scores(found: Cells) -> list[Score]:
    """Every policy's scores over these scenarios, the best first."""
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
    """The scores of every world as JSON, the best policy first: what `robandit.recommend` goes by."""
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
    held = {**numbers, "attacks": len({case.attack for case in found} - {CLEAN}), "worlds": worlds}
    return (json.dumps(held, indent=1, ensure_ascii=False) + "\n").encode()


def of_world(found: Cells, environment: str) -> Cells:
    """The scenarios of one world."""
    return {case: policies for case, policies in found.items() if case.environment == environment}


def best(policies: Mapping[str, Cell], told: Collection[str]) -> str:
    """The policy of least regret in a scenario, of those that are not told C."""
    return min((policy for policy in policies if policy not in told), key=lambda one: policies[one].regret.mean())


class Standing(NamedTuple):
    """How a policy does in a scenario beside the best of those that are not told C."""

    case: Case
    best: str
    factor: float
    """Its regret over that of the best."""
    among_best: bool
    """No worse, or not by more than half the 95 % interval of the difference, paired over trials."""


def standings(found: Cells, policy: str, told: Collection[str]) -> list[Standing]:
    """How the policy does in every scenario."""
    rows = []
    for case, policies in found.items():
        first = best(policies, told)
        own, other = policies[policy].regret, policies[first].regret
        excess, half = interval(own - other)
        factor = _linearised(own, other)[0]
        rows.append(Standing(case, first, factor, excess <= 0.0 or excess <= half))
    return rows
