"""Results whose checkpoints are summed up over trials: the table has each trial's end, and carries the curves.

A GPU plays more trials than a table of all their checkpoints could hold (`lab.gpu.condense`). `summary` reads the
curves from the table's metadata, so that pictures, tables and verdicts are drawn from such a table as from any other.
"""

from __future__ import annotations

import json
from itertools import product
from math import nan, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np

from robandit.errors import ConfigError
from robandit.files import ResultExists, write_file
from robandit.lab.plan import Run, make_scenario
from robandit.lab.summary import Case, Curve, Curves, carry, t_quantile
from robandit.lab.tails import Spread

if TYPE_CHECKING:
    from pyarrow import Table

    from robandit.lab.results import Result


def read_condensed(path: Path) -> tuple[Run, dict[str, Any]]:
    """The run that such a file is from, and its arrays by name."""
    try:
        with np.load(path, allow_pickle=False) as file:
            held = dict(file)
        return Run.read(json.loads(str(held["config"]))), held
    except (BadZipFile, KeyError, ValueError, EOFError) as error:
        raise ConfigError(f"{path} is not a condensed result of robandit: {error}") from None


def tabulate_condensed(run: Run, held: dict[str, Any]) -> Table:
    """A row for each policy, scenario and trial, at the last round, and the curves."""
    import pyarrow as pa

    from robandit.lab.results import SCHEMA

    cases = _cases(run)
    rows = list(product([entry.label for entry in run.policies], cases))
    every = np.repeat(np.arange(len(rows)), run.trials)
    named: dict[str, list[Any]] = {"policy": [policy for policy, _ in rows]}
    names = ("environment", "attack", "strength", "C")
    named |= {name: [case[place] for _, case in rows] for place, name in enumerate(names)}
    columns = {name: pa.array(values, SCHEMA.field(name).type).take(every) for name, values in named.items()}
    columns["trial"] = pa.array(np.tile(np.arange(run.trials), len(rows)))
    columns["round"] = pa.array(np.full(len(every), run.rounds))
    columns["regret"] = pa.array(held["ends"].astype(float).ravel())
    missing = {field.name: pa.nulls(len(every), field.type) for field in SCHEMA if field.name not in columns}
    return carry(pa.table(columns | missing, schema=SCHEMA), curves_of(run, held))


def _cases(run: Run) -> list[Case]:
    """The scenarios, in the order of the run."""
    found = []
    for world, attack in product(run.environments, run.attacks):
        adversary = make_scenario(world, attack)[1]
        found.append(Case(world.label, attack.label, adversary.strength, adversary.label))
    return found


def curves_of(run: Run, held: dict[str, Any]) -> Curves:
    """The curve of each policy in each scenario."""
    return {
        case: {policy.label: _curve(run.trials, case, held, (row, column)) for row, policy in enumerate(run.policies)}
        for column, case in enumerate(_cases(run))
    }


def _curve(trials: int, case: Case, held: dict[str, Any], at: tuple[int, int]) -> Curve:
    means = dict(zip(json.loads(str(held["columns"])), held["mean"][at].T, strict=True))
    half = held["deviation"][at] * (t_quantile(0.95, trials - 1) / sqrt(trials) if trials > 1 else nan)
    return Curve(
        rounds=held["round"].astype(float),
        mean=means["regret"],
        half=half,
        trials=trials,
        realised=float(means["c_play" if case.strength == "strong" else "c_sup"][-1]),
        empty=float(held["empty"][at]),
        cascade=float(held["cascade"][at]),
        spread=Spread(held["quantiles"][at], held["worst"][at]),
    )


def load_condensed(source: Path, out: Path, *, wanted: Run | None = None, force: bool = False) -> Result:
    """Make a result at ``out`` of a condensed file, and read it. ``wanted`` is the run that it must hold."""
    from robandit.lab.results import find_result, read, stamp, write

    run, held = read_condensed(source)
    if wanted is not None and wanted != run:
        raise ResultExists(f"{source} holds another run than this one; give the same options as when it was made")
    if not force and find_result(out, run):
        return read(out)
    table = tabulate_condensed(run, held)
    out.parent.mkdir(parents=True, exist_ok=True)
    write_file(out, lambda file: write(file, [table], [table.schema], stamp(run)), replace=force)
    return read(out)
