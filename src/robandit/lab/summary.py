"""Means and confidence intervals from the table of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from math import cos, exp, lgamma, nan, pi, sin, sqrt, tan
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from robandit.arrays import Floats
from robandit.lab.tails import Spread, spread

if TYPE_CHECKING:
    from pyarrow import Schema, Table

_ROUNDING = 1e-9
KEYS = ("environment", "attack", "strength", "C")
"""The columns that identify a scenario."""
CURVES = b"robandit.curves"
"""The key of a table's metadata under which it carries its curves."""


class Case(NamedTuple):
    """A scenario of a table. Its corruption is the label C, or None if the attack has no limit."""

    environment: str
    attack: str
    strength: str
    corruption: float | None


class Curve(NamedTuple):
    """A policy's regret in a scenario."""

    rounds: Floats
    """The rounds of the checkpoints."""
    mean: Floats
    """The mean regret over trials at each checkpoint."""
    half: Floats
    """Half the width of the 95 % interval of that mean; NaN if there is one trial."""
    trials: int
    """The number of trials."""
    realised: float
    """The mean corruption that the attack spent by the end, in the units of its budget."""
    empty: float
    """The mean number of rounds with an empty confidence set."""
    cascade: float
    """The mean number of levels climbed because of empty sets."""
    spread: Spread
    """How the regret is spread over trials at each checkpoint."""


class Proof(NamedTuple):
    """What a monitor had proved about a policy's rounds in a scenario by the end."""

    trials: int
    """The number of trials."""
    alarms: int
    """The number of trials in which it proved that there was corruption."""
    wrong: int
    """The number of trials in which, at some checkpoint, it claimed more corruption than there was."""
    lies: float
    """The mean number of rounds in which the reward was not the true one."""
    played: float
    """The mean corruption C_play."""
    proved: float
    """The mean corruption that was proved."""


Curves: TypeAlias = dict[Case, dict[str, Curve]]
"""The curves by scenario and policy."""


@cache
def t_quantile(level: float, freedom: int) -> float:
    """The q such that |t| ≤ q with probability ``level``, for Student's t with this many degrees of freedom.

    With t = √ν tan θ the density is proportional to cos^(ν−1) θ, and its integral is a finite sum (Abramowitz and
    Stegun, 26.7.3 and 26.7.4) that is concave in θ ≥ 0, so Newton's method climbs to the root from below.
    """
    odd = freedom % 2
    k = np.arange(2 + odd, freedom - 1, 2)
    slope = 2.0 / sqrt(pi) * exp(lgamma((freedom + 1) / 2) - lgamma(freedom / 2))  # at θ = 0
    angle, step = 0.0, 1.0
    while step > 1e-15 * angle:
        cosine = cos(angle)
        series = sin(angle) * (1.0 + np.cumprod((k - 1) / k * cosine**2).sum())
        probability = 2.0 / pi * (angle + (freedom > 1) * cosine * series) if odd else series
        step = float(level - probability) / (slope * cosine ** (freedom - 1))
        angle += step
    return sqrt(freedom) * tan(angle)


def summary(table: Table) -> Curves:
    """The curve of each policy in each scenario. Scenarios are in the table's order, with C ascending.

    A table that carries its curves, because its trials are too many, has them read.
    """
    if carried(table.schema) is not None:
        return _read_curves(table)
    from pyarrow.compute import VarianceOptions

    told = [name for name in ("empty", "cascade") if name in table.column_names]  # Multi-level's, if it is there
    means = [(name, "mean") for name in ("regret", "c_sup", "c_play", *told)]
    wanted = [*means, ("regret", "stddev", VarianceOptions(ddof=1)), ("regret", "count"), ("regret", "list")]
    groups = table.group_by([*KEYS, "policy", "round"], use_threads=False).aggregate(wanted)
    groups = groups.append_column("place", [np.arange(groups.num_rows)])
    regrets = [values.values.to_numpy() for values in groups["regret_list"]]  # as Python's numbers they would fill RAM
    rows: dict[Case, dict[str, list[dict[str, Any]]]] = {}
    ordered = groups.drop_columns("regret_list").sort_by([("C", "ascending"), ("round", "ascending")])  # null is last
    for row in ordered.to_pylist():
        row["regret_list"] = regrets[row["place"]]
        rows.setdefault(Case(*(row[key] for key in KEYS)), {}).setdefault(row["policy"], []).append(row)
    places, attacks, policies = (table[key].unique().to_pylist() for key in ("environment", "attack", "policy"))
    cases = sorted(rows, key=lambda case: (places.index(case.environment), attacks.index(case.attack)))
    return {case: {name: _curve(rows[case][name]) for name in policies if name in rows[case]} for case in cases}


def _curve(rows: Sequence[Mapping[str, Any]]) -> Curve:
    """The curve from one row for each checkpoint."""
    end, n = rows[-1], rows[-1]["regret_count"]
    spent = end["c_play_mean" if end["strength"] == "strong" else "c_sup_mean"]  # in the units of its budget
    names = ("round", "regret_mean", "regret_stddev")
    rounds, mean, deviation = (np.array([row[name] for row in rows], float) for name in names)
    half = deviation * (t_quantile(0.95, n - 1) / sqrt(n) if n > 1 else nan)
    climbed = end.get("empty_mean") or 0.0, end.get("cascade_mean") or 0.0
    return Curve(rounds, mean, half, n, spent, *climbed, spread(np.array([row["regret_list"] for row in rows], float)))


def carry(table: Table, curves: Curves) -> Table:
    """The table with its curves in its metadata, for `summary` to find."""
    plain = [[*case, policy, *_plain(curve)] for case, policies in curves.items() for policy, curve in policies.items()]
    return table.replace_schema_metadata({CURVES: json.dumps(plain)})


def carried(schema: Schema) -> dict[bytes, bytes] | None:
    """The metadata that must stay with a table: its curves, if it carries any."""
    found = (schema.metadata or {}).get(CURVES)
    return None if found is None else {CURVES: found}


def _plain(curve: Curve) -> list[Any]:
    whole = [*curve[:-1], *curve.spread]
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in whole]


def _read_curves(table: Table) -> Curves:
    """The curves that a table carries, of the scenarios and policies that are still in it."""
    curves: Curves = {}
    present = table.select([*KEYS, "policy"]).group_by([*KEYS, "policy"], use_threads=False).aggregate([])
    rows = {tuple(row[key] for key in (*KEYS, "policy")) for row in present.to_pylist()}
    for environment, attack, strength, corruption, policy, *columns in json.loads(table.schema.metadata[CURVES]):
        case = Case(environment, attack, strength, corruption)
        if (*case, policy) in rows:
            rounds, mean, half, trials, realised, empty, cascade, *spreads = columns
            ends = trials, realised, empty, cascade, Spread(*map(np.array, spreads))
            found = Curve(np.array(rounds, float), np.array(mean, float), np.array(half, float), *ends)
            curves.setdefault(case, {})[policy] = found
    return curves


def proofs(table: Table) -> dict[Case, dict[str, Proof]]:
    """What a monitor proved about each policy in each scenario; empty if no monitor ran."""
    from pyarrow.compute import field, greater, multiply

    group, amounts = [*KEYS, "policy"], ("lies", "c_play", "proved")
    seen = table.select([*group, "trial", *amounts]).filter(field("proved").is_valid())
    seen = seen.append_column("wrong", greater(seen["proved"], multiply(seen["c_play"], 1.0 + _ROUNDING)))
    wanted = [*((name, "last") for name in amounts), ("wrong", "any")]
    trials = seen.group_by([*group, "trial"], use_threads=False).aggregate(wanted)
    trials = trials.append_column("alarm", greater(trials["proved_last"], 0.0))
    wanted = [
        ("trial", "count"),
        ("alarm", "sum"),
        ("wrong_any", "sum"),
        *((f"{name}_last", "mean") for name in amounts),
    ]
    found: dict[Case, dict[str, Proof]] = {}
    for row in trials.group_by(group, use_threads=False).aggregate(wanted).to_pylist():
        proof = Proof(*(row[f"{name}_{what}"] for name, what in wanted))
        found.setdefault(Case(*(row[key] for key in KEYS)), {})[row["policy"]] = proof
    return found


def last_round(table: Table) -> Table:
    """The rows of the last round of a result."""
    from pyarrow.compute import field
    from pyarrow.compute import max as largest

    return table.filter(field("round") == largest(table["round"]))
