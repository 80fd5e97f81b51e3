"""Runs with more trials than a table has room for: summed up on the device, and kept as an ``npz`` file.

The file has the regret of every trial at the end, and of the checkpoints the means, quantiles and worst trials alone:
megabytes, where a table of every trial at every checkpoint would have gigabytes. NumPy and PyTorch are enough to write
it. `lab.condensed` makes a result of it, with a table and pictures.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from io import BytesIO
from itertools import product
from math import nan
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import robandit
from robandit.errors import ConfigError
from robandit.files import save_file
from robandit.lab.gpu.launch import COLUMNS, Device, Played, play, whole
from robandit.lab.gpu.plan import CPU, plan
from robandit.lab.gpu.quorum import most_lanes
from robandit.lab.plan import Run, make_policy, make_scenario
from robandit.lab.protocol import Scenario, checkpoints
from robandit.lab.tails import LEVELS, number_of_worst

Condensed: TypeAlias = dict[str, Any]
"""Arrays by name, over policies and scenarios in the order of the run, (P, S, …), and its configuration as JSON."""

_LANES = 1 << 17  # trials of a launch: several times what a GPU holds at once, and some 600 MB of state


def condense(run: Run, progress: Callable[[int], object] | None = None) -> Condensed:
    """Play a run and sum it up. ``progress`` gets the rounds over all trials since the last call."""
    if run.device == CPU:
        raise ConfigError("an npz file is what a run on a GPU is summed up in; say --device cuda, or --out run.parquet")
    device, at = Device.find(), checkpoints(run.rounds, run.checkpoints)
    found: dict[str, list[Any]] = {}
    for policy, (world, attack) in product(run.policies, product(run.environments, run.attacks)):
        scenario = Scenario(*make_scenario(world, attack), range(run.trials))
        what = plan(make_policy(policy), scenario, run.rounds, run.seed)
        lanes = _LANES if what.quorum is None else most_lanes(what.quorum, _LANES)
        chunks = [range(first, min(first + lanes, run.trials)) for first in range(0, run.trials, lanes)]
        parts = [play(what, chunk, run.rounds, run.seed, at, device) for chunk in chunks]
        kept = summed_up(whole(parts, device)[:, : len(COLUMNS)], device)
        kept |= _climbed(parts, what.policy_kind.levels, device)
        for name, values in kept.items():
            found.setdefault(name, []).append(values)
        if progress is not None:
            progress(run.rounds * run.trials)
    shape = len(run.policies), len(run.environments) * len(run.attacks)
    arrays = {name: np.stack(values).reshape(*shape, *values[0].shape) for name, values in found.items()}
    told = {"config": json.dumps(run.plain()), "version": robandit.__version__, "columns": json.dumps(COLUMNS)}
    return {**arrays, "round": at, **{name: np.array(text) for name, text in told.items()}}


def summed_up(columns: Any, device: Device) -> dict[str, Any]:
    """What is kept of (checkpoints, `COLUMNS`, B): means, and how the regret is spread, and its end in each trial."""
    regret, trials = columns[:, 0], columns.shape[2]
    ordered = regret.sort(dim=1).values.double()
    places = device.array(np.array(LEVELS) * (trials - 1), "float64")  # between order statistics, as np.quantile does
    below = places.floor().long()
    low, high = ordered[:, below], ordered[:, (below + 1).clamp(max=trials - 1)]
    deviation = regret.double().std(dim=1) if trials > 1 else device.filled((len(regret),), nan, "float64")
    found = {
        "mean": columns.double().mean(dim=2),
        "deviation": deviation,
        "quantiles": low + (places - below) * (high - low),
        "worst": ordered[:, -number_of_worst(trials) :].mean(dim=1),
        "ends": regret[-1],
    }
    return {name: values.cpu().numpy() for name, values in found.items()}


def _climbed(parts: list[Played], levels: int, device: Device) -> dict[str, Any]:
    """The mean numbers of empty sets and of levels climbed by the end; none of either without levels."""
    if not levels:
        return {"empty": np.zeros(()), "cascade": np.zeros(())}
    used = device.torch.cat([part.used[-2] for part in parts]).double().mean(dim=0).cpu().numpy()
    return {"empty": used[0], "cascade": used[levels + 1]}


def save_condensed(path: Path, held: Condensed, *, force: bool = False) -> None:
    """Write the arrays into one file, all or nothing. Only ``force`` replaces another file."""
    buffer = BytesIO()
    np.savez_compressed(buffer, **held)
    save_file(path, buffer.getvalue(), force=force)
