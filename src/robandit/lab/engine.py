"""The engine: carries out a run through joblib, on the cores of this machine or on a Dask or Ray cluster."""

from __future__ import annotations

import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from heapq import heapreplace
from itertools import chain
from pathlib import Path
from typing import Any, TypeAlias

import joblib
import numpy as np
from tqdm import tqdm

from robandit.errors import ConfigError, install, nearest
from robandit.inputs import integer
from robandit.lab.catalogue import find
from robandit.lab.gpu.plan import CPU
from robandit.lab.plan import Run, Task
from robandit.lab.protocol import Trace, checkpoints
from robandit.lab.results import Result, Workspace, find_result, read, tabulate
from robandit.lab.worker import work

ENGINES = ("local", "dask", "ray")
"""The kinds of engine."""

Say: TypeAlias = Callable[[str], object]
"""Tells the user something."""
MakeBar: TypeAlias = Callable[..., Any]
"""Makes a progress bar from keywords, as `tqdm.tqdm` does."""

_LARGEST_BATCH = 128  # trials; larger batches are no faster
_SMALLEST_BATCH = 32  # trials; in smaller batches Python takes most of the time
_GROUPS_EACH = 8  # groups of tasks for each worker at least, so that all end at about the same time
_MINUTES = 50_000_000  # rounds of OFUL: what a group may take where that leaves fewer groups
_WORLD = 0.4  # about what a round of the world takes that a group shares, in rounds of OFUL
_ROWS_ON_A_GPU = 2_000_000  # of a piece of work: a table of some 300 MB, and more trials than a GPU plays at a time
_LONG = 20_000  # rounds; in longer runs smaller batches are allowed, so that no piece takes for ever


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Where a run is carried out."""

    kind: str = "local"
    """Kind of engine: `local`, `dask` or `ray`."""
    workers: int | None = None
    """Number of worker processes. By default all cores are used."""
    address: str | None = None
    """Address of a running Dask scheduler or Ray cluster. By default one is started here for this run."""
    batch: int | None = None
    """Number of trials in a piece of work. By default it is chosen for speed; it changes no result."""
    bar: MakeBar | None = None
    """Maker of the progress bar. By default there is a bar on a terminal."""

    def __post_init__(self) -> None:
        if self.kind not in ENGINES:
            raise ConfigError(f"unknown engine {self.kind!r}{nearest(self.kind, ENGINES)}")
        for name in ("workers", "batch"):
            if getattr(self, name) is not None:
                try:
                    integer(name, getattr(self, name), least=1)
                except ValueError as error:
                    raise ConfigError(str(error)) from None
        if self.address is not None and self.kind == "local":
            raise ConfigError("an address is for --engine dask or ray; the local engine has none")

    def fit_for(self, run: Run) -> Engine:
        """The same for a run on a GPU, which one process of this machine drives; a cluster has one for each GPU."""
        if run.device == CPU:
            return self
        most = max(1, _ROWS_ON_A_GPU // len(checkpoints(run.rounds, run.checkpoints)))
        workers = 1 if self.kind == "local" else self.workers
        return replace(self, workers=workers, batch=self.batch or most)

    @contextmanager
    def started(self) -> Iterator[int]:
        """Set up joblib to work there. Gives the number of workers."""
        with {"local": self._local, "dask": self._dask, "ray": self._ray}[self.kind]() as workers:
            yield workers

    @contextmanager
    def _local(self) -> Iterator[int]:
        workers = self.workers or joblib.cpu_count()
        with joblib.parallel_config(backend="loky", n_jobs=workers, inner_max_num_threads=1):
            yield workers

    @contextmanager
    def _dask(self) -> Iterator[int]:
        client_class = _extra("dask.distributed", "dask").Client
        local = {"n_workers": self.workers, "threads_per_worker": 1, "dashboard_address": None}
        with client_class(self.address) if self.address else client_class(**local) as client:
            workers = self.workers or sum(client.ncores().values())
            with joblib.parallel_config(backend="dask", n_jobs=workers, client=client):
                yield workers

    @contextmanager
    def _ray(self) -> Iterator[int]:
        ray, bridge = _extra("ray", "ray"), _extra("ray.util.joblib", "ray")
        local = {} if self.address else {"num_cpus": self.workers, "include_dashboard": False}
        ray.init(address=self.address or "local", log_to_driver=False, logging_level="error", **local)
        try:
            bridge.register_ray()
            workers = self.workers or int(ray.cluster_resources()["CPU"])
            with joblib.parallel_config(backend="ray", n_jobs=workers):
                yield workers
        finally:
            ray.shutdown()

    def results(self, tasks: Mapping[int, Task], workers: int, meter: Path | None) -> Iterator[tuple[int, Trace]]:
        """Run the tasks, the longest first, and yield their numbers and results in the order in which they finish."""
        groups = _groups(tasks, workers)
        if workers == 1 or len(groups) == 1:
            yield from chain.from_iterable(work(group, meter) for group in groups)
            return
        calls = [joblib.delayed(work)(group, meter, orphans_stop=True) for group in groups]
        if self.kind == "ray":  # whose bridge to joblib gives results in lists only
            for first in range(0, len(calls), 2 * workers):
                yield from chain.from_iterable(joblib.Parallel(batch_size=1)(calls[first : first + 2 * workers]))
        else:  # one group at a time: they are large, and a lost worker should lose little
            parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1)
            yield from chain.from_iterable(parallel(calls))


def _groups(tasks: Mapping[int, Task], workers: int) -> list[dict[int, Task]]:
    """Groups of tasks that share their worlds, the longest first: few and large, but enough for all workers.

    In a run of minutes there is little to lose with a worker: then groups may be larger, if that is expected to end
    sooner.
    """
    cost = {number: task.size * find("policies", task.policy.kind).cost for number, task in tasks.items()}
    worlds = {number: repr(task.scenarios) for number, task in tasks.items()}
    smallest = sum(cost.values()) / (_GROUPS_EACH * workers)
    caps = [smallest, *(smallest * larger for larger in (2, 4, _GROUPS_EACH) if smallest * larger <= _MINUTES)]

    def effort(groups: Sequence[Sequence[int]]) -> float:
        """The expected time of the run, and of all workers together if all were busy to the end."""
        each = [sum(cost[number] for number in group) + _WORLD * tasks[group[0]].size for group in groups]
        busy = [0.0] * workers
        for seconds in each:
            heapreplace(busy, busy[0] + seconds)
        return max(busy) + sum(each) / workers

    found = min((_up_to(cap, cost, worlds) for cap in caps), key=effort)
    return [{number: tasks[number] for number in group} for group in found]


def _up_to(most: float, cost: Mapping[int, float], worlds: Mapping[int, str]) -> list[list[int]]:
    """The numbers of tasks in groups that share their worlds and cost up to so much, the longest first."""
    found: list[list[int]] = []
    open_groups: dict[str, list[int]] = {}
    for number in sorted(cost, key=lambda number: -cost[number]):
        group = open_groups.get(worlds[number])
        if group is None or sum(cost[other] for other in group) + cost[number] > most:
            group = open_groups[worlds[number]] = []
            found.append(group)
        group.append(number)
    found.sort(key=lambda group: -sum(cost[number] for number in group))
    return found


def _extra(module: str, extra: str) -> Any:
    """Import a module that is not installed by default."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"the {extra} engine needs more packages: {install(extra)} ({error})") from error


def carry_out(
    run: Run, out: Path | str, *, engine: Engine | None = None, force: bool = False, say: Say = lambda text: None
) -> Result:
    """Carry out a run, or the rest of it, and save its table at ``out``.

    A run that was stopped is continued, and one that is complete is read. Anything else at ``out`` is an error, unless
    ``force`` replaces it. ``say`` is called with messages for the user. The table is not held in memory: finished
    pieces are on disk, and the result reads its rows when it is asked for them.
    """
    out = Path(out)
    if out.is_dir() or not out.name:
        raise ConfigError(f"{out} is a folder; say in which file to save the result, such as {out / 'run.parquet'}")
    engine, workspace = (engine or Engine()).fit_for(run), Workspace(out, run)
    force = force or workspace.forced()
    if not force and find_result(out, run):
        workspace.tidy()
        say(f"{out} holds this run already")
        return read(out)
    with engine.started() as workers, workspace.open(engine.batch or _good_batch(run, workers), force=force) as batch:
        tasks = run.tasks(batch)
        done = _done(run, tasks, workspace, say)
        left = {number: task for number, task in enumerate(tasks) if number not in done}
        with _bar(run, left, workspace.meter, engine.bar) as meter:
            for number, trace in engine.results(left, workers, meter):
                workspace.save(number, tabulate(tasks[number], trace))
        workspace.finish(replace=force)
    return read(out)


def _done(run: Run, tasks: Sequence[Task], workspace: Workspace, say: Say) -> set[int]:
    """The numbers of the tasks that were finished before."""
    rows = [len(checkpoints(run.rounds, run.checkpoints)) * task.size // run.rounds for task in tasks]
    done, damaged = workspace.find(rows)
    if done or damaged:
        left = len(tasks) - len(done)
        say(f"going on with {left} of {len(tasks)} pieces" + (f"; {damaged} were damaged" if damaged else ""))
    return done


def _good_batch(run: Run, workers: int) -> int:
    """The number of trials in a batch: many enough for fast arithmetic, few enough that all workers have work."""
    trials = run.size // run.rounds
    smallest = max(1, min(_SMALLEST_BATCH, _SMALLEST_BATCH * _LONG // run.rounds))
    return max(smallest, min(_LARGEST_BATCH, -(-trials // (2 * workers))))


@contextmanager
def _bar(run: Run, left: dict[int, Task], meter: Path, make: MakeBar | None = None) -> Iterator[Path | None]:
    """Show a progress bar and give the file in which workers count rounds; None if nobody looks."""
    make = make or (tqdm if sys.stderr.isatty() else None)
    if not left or make is None:
        yield None
        return
    counts = np.memmap(meter, dtype=np.int64, mode="w+", shape=(max(left) + 1,))
    done = run.size - sum(task.size for task in left.values())
    over = threading.Event()
    with make(total=run.size, initial=done, unit=" rounds", unit_scale=True, smoothing=0.1) as bar:

        def watch() -> None:
            while not over.wait(0.2):
                bar.update(done + int(counts.sum()) - bar.n)

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield meter
            over.set()
            watcher.join()
            bar.update(run.size - bar.n)
        finally:
            over.set()
            watcher.join()
