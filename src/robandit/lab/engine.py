"""The engine: carries out a run through joblib, on the cores of this machine or on a Dask or Ray cluster."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import joblib
import numpy as np
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from robandit.errors import ConfigError, nearest
from robandit.inputs import integer
from robandit.lab.catalogue import find
from robandit.lab.plan import Run, Task
from robandit.lab.protocol import Trace, checkpoints
from robandit.lab.results import Result, Workspace, find_result, read, tabulate

ENGINES = ("local", "dask", "ray")
"""The kinds of engine."""

Say: TypeAlias = Callable[[str], object]
"""Tells the user something."""

_LARGEST_BATCH = 128  # trials; larger batches are no faster
_SMALLEST_BATCH = 32  # trials; in smaller batches Python takes most of the time
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
        order = sorted(tasks, key=lambda number: -tasks[number].size * find("policies", tasks[number].policy.kind).cost)
        if workers == 1 or len(order) == 1:
            yield from (_work(number, tasks[number], meter) for number in order)
            return
        calls = [joblib.delayed(_work)(number, tasks[number], meter, orphans_stop=True) for number in order]
        if self.kind == "ray":  # whose bridge to joblib gives results in lists only
            for first in range(0, len(calls), 2 * workers):
                yield from joblib.Parallel(batch_size=1)(calls[first : first + 2 * workers])
        else:  # one task at a time: they are large, and a lost worker should lose little
            yield from joblib.Parallel(return_as="generator_unordered", batch_size=1)(calls)


def _extra(module: str, extra: str) -> Any:
    """Import a module that is not installed by default."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"the {extra} engine needs more packages: pip install 'robandit[{extra}]' ({error})"
        ) from error


def carry_out(
    run: Run, out: Path, *, engine: Engine | None = None, force: bool = False, say: Say = lambda text: None
) -> Result:
    """Carry out a run, or the rest of it, and save its table at ``out``.

    A run that was stopped is continued, and one that is complete is read. Anything else at ``out`` is an error, unless
    ``force`` replaces it. ``say`` is called with messages for the user. The table is not held in memory: finished
    pieces are on disk, and the result reads its rows when it is asked for them.
    """
    if out.is_dir() or not out.name:
        raise ConfigError(f"{out} is a folder; say in which file to save the result, such as {out / 'run.parquet'}")
    engine, workspace = engine or Engine(), Workspace(out, run)
    force = force or workspace.forced()
    if not force and find_result(out, run):
        workspace.tidy()
        say(f"{out} holds this run already")
        return read(out)
    with engine.started() as workers, workspace.open(engine.batch or _good_batch(run, workers), force=force) as batch:
        tasks = run.tasks(batch)
        done = _done(run, tasks, workspace, say)
        left = {number: task for number, task in enumerate(tasks) if number not in done}
        with _bar(run, left, workspace.meter) as meter:
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


def _work(number: int, task: Task, meter: Path | None, orphans_stop: bool = False) -> tuple[int, Trace]:
    """Run a task in a worker. With ``orphans_stop`` the process ends when the one that started it is killed."""
    counts = np.memmap(meter, dtype=np.int64, mode="r+") if meter is not None and meter.exists() else None
    parent = os.getppid()

    def count(rounds: int) -> None:
        if orphans_stop and os.getppid() != parent:
            os._exit(1)
        if counts is not None:
            counts[number] += rounds * (task.size // task.rounds)

    if counts is not None:
        counts[number] = 0  # it may have been begun before, by a worker that was lost
    with threadpool_limits(1):
        return number, task.run(count)


@contextmanager
def _bar(run: Run, left: dict[int, Task], meter: Path) -> Iterator[Path | None]:
    """Show a progress bar and give the file in which workers count rounds; None if nobody looks."""
    if not left or not sys.stderr.isatty():
        yield None
        return
    counts = np.memmap(meter, dtype=np.int64, mode="w+", shape=(max(left) + 1,))
    done = run.size - sum(task.size for task in left.values())
    over = threading.Event()
    with tqdm(total=run.size, initial=done, unit=" rounds", unit_scale=True, smoothing=0.1) as bar:

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
