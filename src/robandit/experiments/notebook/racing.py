"""`robandit.arena`: the protocol of `robandit arena race`, with policies and attacks of one's own.

>>> found = arena("greedy", "flip", "fresh sets", rounds=60, trials=4, tune_trials=2)
>>> sorted(row.policy for row in found.scores())
['Greedy', 'OFUL']
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from robandit.errors import ConfigError, nearest
from robandit.experiments import tune as tuner
from robandit.experiments.arena import race
from robandit.experiments.arena.race import Cells, Entrants, Score
from robandit.experiments.intervals import Ratio, ratio_words
from robandit.experiments.notebook.entries import Some, tables
from robandit.experiments.notebook.result import Simulation, play
from robandit.experiments.notebook.shown import Overview, Shown
from robandit.experiments.notebook.tuning import refuse_tuning_seed
from robandit.experiments.tune import Tuned
from robandit.lab.attacks import ATTACKS
from robandit.lab.catalogue import canonical
from robandit.lab.plan import read_entries

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class Race(Shown):
    """A finished race: its table, the scores, and pictures. A notebook shows the scores."""

    def __init__(self, entrants: Entrants, tuned: Mapping[str, Tuned], results: Mapping[str, Simulation]) -> None:
        self._entrants = entrants
        self.tuned = tuned
        """The tuning in each world."""
        self.results = results
        """The simulation of each world."""

    @cached_property
    def table(self) -> pa.Table:
        """All rows, as in the table of a simulation."""
        return pa.concat_tables([one.table for one in self.results.values()], promote_options="default")

    @cached_property
    def _cells(self) -> Cells:
        return race.cells(self.table)

    def scores(self, world: str | None = None) -> list[Score]:
        """The scores in one world or over all, the best policy first, relative to OFUL's regret without attack."""
        return race.scores(self._cells if world is None else self._of(world))

    def _of(self, world: str) -> Cells:
        if world not in self.results:
            raise ConfigError(f"there is no world {world!r}{nearest(world, self.results)}")
        return race.of_world(self._cells, world)

    def summary(self, world: str | None = None) -> Overview:
        """The scores as a table: regret relative to that of the same tuned OFUL where nobody lies."""
        told, scores = self._entrants.told, self.scores(world)
        rows: list[tuple[str, ...]] = [("policy", "under attack", "worst", "which is", "on clean data")]
        for row in scores:
            where = f"{row.where.attack}, C = {row.where.corruption:g}, {row.where.environment}"
            name = f"{row.policy} †" if row.policy in told else row.policy
            rows.append((name, ratio_words(row.attacked), ratio_words(row.worst), where, ratio_words(row.price)))
        exact = [
            {"policy": row.policy, "told": row.policy in told}
            | _columns("attacked", row.attacked)
            | _columns("worst", row.worst)
            | _columns("clean", row.price)
            for row in scores
        ]
        note = "† is told the corruption or who lies" if told else ""
        return Overview(pa.Table.from_pylist(exact), rows, note)

    def plot(self, world: str | None = None) -> Figure:
        """Draw the price of robustness over all worlds, or every attack of one world as a heat map."""
        from robandit.experiments.arena.pictures import heat_map, price

        told = self._entrants.told
        if world is None:
            return price(self.scores(), told)
        return heat_map(self._of(world), [row.policy for row in self.scores(world)], told)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table for pandas, polars and others that read Arrow."""
        return self.table.__arrow_c_stream__(requested_schema)

    def _title(self) -> str:
        return f"Regret relative to tuned OFUL's where nobody lies. Worlds: {', '.join(self.results)}"


def _columns(name: str, ratio: Ratio) -> dict[str, float]:
    return {name: ratio.value, f"{name}_low": ratio.low, f"{name}_high": ratio.high}


def arena(
    policies: Some = (),
    attacks: Some = (),
    environments: str | Iterable[str] = (),
    *,
    rounds: int = race.SETTING["rounds"],
    trials: int = race.SETTING["trials"],
    tune_trials: int = race.TUNE_TRIALS,
    seed: int = race.SETTING["seed"],
    workers: int | None = None,
    progress: bool = True,
    save: str | Path | None = None,
    force: bool = False,
) -> Race:
    """Race policies under attacks in the arena's worlds, each tuned in each world by one protocol on another seed.

    Policies and attacks are names of the arena's, or your own: classes, partials, objects or tables. By default all
    take part, which takes hours; OFUL, the yardstick, always does. Your own attack plays in every world, at both
    levels or at the ``budget`` that it has; the tuning knows only the arena's attacks. ``save`` is a folder, in which
    a race that was stopped continues.
    """
    refuse_tuning_seed(seed)
    entrants = _entrants(policies, attacks, [environments] if isinstance(environments, str) else list(environments))
    sizes = {"rounds": rounds, "trials": trials, "seed": seed}
    folder = None if save is None else Path(save)
    return _race(entrants, sizes, tune_trials, folder, workers=workers, progress=progress, force=force)


def _race(entrants: Entrants, sizes: Mapping[str, int], tune_trials: int, folder: Path | None, **how: Any) -> Race:
    """Tune and play in every world. The files in the folder are those of `robandit arena race`."""
    tuned: dict[str, Tuned] = {}
    results: dict[str, Simulation] = {}
    for number, world in enumerate(entrants.environments, 1):
        files = [folder and folder / f"arena-{name}{number}.parquet" for name in ("tune-", "")]
        trial = play(
            race.tuning_config(entrants, world, rounds=sizes["rounds"], trials=tune_trials), save=files[0], **how
        )
        tuned[world] = tuner.tune(trial.table, trial.config, race.grids(entrants), "mean")
        results[world] = play(race.config(entrants, world, tuned[world].scales, **sizes), save=files[1], **how)
    return Race(entrants, tuned, results)


def _entrants(policies: Some, attacks: Some, environments: list[str]) -> Entrants:
    """The arena's own entrants that are named, and those that the user brings."""
    names, own = _split("policies", policies, {label: settings["name"] for label, settings in race.CONTENDERS.items()})
    attack_names, own_attacks = _split("attacks", attacks, {name: name for name in ATTACKS})
    found = race.entrants_of(names, attack_names, environments, own, own_attacks)
    if clash := set(own) & set(race.CONTENDERS):
        raise ConfigError(f"policies: {clash.pop()} is one of the arena's; give yours another label")
    return found


def _split(kind: str, given: Some, known: Mapping[str, str]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """The names of the arena's own, and what the user brings, by label."""
    ours: list[str] = []
    theirs: list[dict[str, Any]] = []
    for table in tables(kind, given):
        name = table["name"]
        plain = len(table) == 1 and isinstance(name, str) and ":" not in name
        if plain and (name in known or canonical(kind, name) in known.values()):
            ours.append(name)
        else:
            theirs.append(table)
    entries = read_entries(kind, theirs) if theirs else []
    return ours, {entry.label: {k: v for k, v in entry.table().items() if k != "label"} for entry in entries}
