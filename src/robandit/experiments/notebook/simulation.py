"""`robandit.simulate`: policies in environments under attacks.

>>> result = simulate(["oful,radius_scale=0.1", "greedy"], "fresh,dim=5", "flip,rounds=30", rounds=200, trials=4)
>>> result.table.num_columns > 10, [row["policy"] for row in result.summary().table.to_pylist()]
(True, ['oful', 'greedy'])
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from robandit.experiments.notebook.entries import Some, tables
from robandit.experiments.notebook.result import Simulation, play
from robandit.experiments.notebook.tuning import Tuning, refuse_tuning_seed


def simulate(
    policies: Some | Tuning,
    environment: Some | None = None,
    attacks: Some | None = None,
    *,
    rounds: int | None = None,
    trials: int = 10,
    seed: int = 1,
    checkpoints: int = 100,
    monitor: bool | float = False,
    device: str = "cpu",
    workers: int | None = None,
    progress: bool = True,
    save: str | Path | None = None,
    force: bool = False,
) -> Simulation:
    """Let every policy play in every environment under every attack, ``trials`` times.

    Each is a name with settings as on the command line, a class (also your own), a partial, an object or a table: one,
    a list, or a dict of them by label. If ``policies`` is what `tune` returned, environment, attacks and rounds are
    those of the tuning unless they are given; by default they are ``paper``, ``none`` and 1000.

    The result depends on these and on ``seed``, not on ``workers``. On the ``device`` "cuda", a GPU, worlds are drawn
    from other streams. ``save`` is a Parquet file for the result; a run
    that was stopped continues there.
    """
    config = {"trials": trials, "seed": seed, "checkpoints": checkpoints, "monitor": monitor, "device": device}
    what = _what(policies, {"environments": environment, "attacks": attacks}, rounds, seed)
    return play(what | config, workers=workers, progress=progress, save=save, force=force)


def _what(policies: Some | Tuning, given: Mapping[str, Some | None], rounds: int | None, seed: int) -> dict[str, Any]:
    """The policies, environments, attacks and rounds of a run, as far as they are known."""
    own: dict[str, Any] = {kind: tables(kind, some) for kind, some in given.items() if some is not None}
    own |= {} if rounds is None else {"rounds": rounds}
    if not isinstance(policies, Tuning):
        return {"policies": tables("policies", policies), **own}
    refuse_tuning_seed(seed)
    return {"policies": policies.policies, **policies.setting, **own}
