"""Runs on every engine, and runs that are killed: the same bytes in the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from robandit.errors import ConfigError
from robandit.lab import engine
from robandit.lab.engine import Engine, carry_out
from robandit.lab.plan import Run
from robandit.lab.worker import work

CONFIG: dict[str, Any] = {
    "policies": [
        {"name": "oful", "radius_scale": 0.4},
        {"name": "multi-level-weighted-oful", "radius_scale": 0.004},
        {"name": "robust-weighted-oful", "radius_scale": 0.002},
        "greedy",
    ],
    "attacks": [{"name": "flip", "rounds": [0, 30]}, "ace", {"name": "random-flips", "budget": 5.0}],
    "environments": [{"name": "paper", "dim": 8}, "delayed"],
    "rounds": 150,
    "trials": 7,
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What one process makes of it in one go."""
    path = tmp_path_factory.mktemp("reference") / "run.parquet"
    carry_out(Run.read(CONFIG), path, engine=Engine(workers=1, batch=64))
    return path.read_bytes()


def run_with(tmp_path: Path, engine: Engine) -> bytes:
    path = tmp_path / "run.parquet"
    carry_out(Run.read(CONFIG), path, engine=engine)
    return path.read_bytes()


def test_engines_are_checked() -> None:
    with pytest.raises(ConfigError, match="unknown engine 'dusk'; did you mean 'dask'"):
        Engine(kind="dusk")
    with pytest.raises(ConfigError, match="the local engine has none"):
        Engine(address="tcp://somewhere")
    with pytest.raises(ValueError, match="workers must be an integer >= 1, got 0"):
        Engine(workers=0)


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask.distributed", None)
    with pytest.raises(ConfigError, match=r"pip install '\.\[dask\]'"), Engine(kind="dask").started():
        pass


def test_an_error_in_a_worker_reaches_the_user(tmp_path: Path) -> None:
    source = tmp_path / "broken.py"
    source.write_text(
        "from robandit.lab.attacks import Flip\n"
        "class Broken(Flip):\n"
        "    def corrupt(self, offer):\n"
        "        return None if offer.round < 3 else offer.means[:, :1]\n"
    )
    run = Run.read({**CONFIG, "attacks": [f"{source}:Broken"], "rounds": 5})
    for workers in (1, 2):
        with pytest.raises(ValueError, match="Broken.corrupt must give finite numbers of shape"):
            carry_out(run, tmp_path / "run.parquet", engine=Engine(workers=workers))
    assert not (tmp_path / "run.parquet").exists()


def test_only_workers_stop_when_their_parent_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in its own process outlives the terminal that it was started from."""
    task = Run.read({"policies": ["greedy"], "rounds": 600, "trials": 2}).tasks(64)[0]
    parents = iter(range(100))
    stopped: list[int] = []
    monkeypatch.setattr("os.getppid", lambda: next(parents))
    monkeypatch.setattr("os._exit", stopped.append)
    work({0: task}, None)
    assert stopped == []
    work({0: task}, None, orphans_stop=True)
    assert stopped


def test_a_worker_starts_without_what_only_the_engine_needs() -> None:
    code = "import sys, robandit.lab.worker; print(*{'pyarrow', 'joblib', 'tqdm', 'matplotlib'} & {*sys.modules})"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


@pytest.mark.engines
@pytest.mark.parametrize(("workers", "batch"), [(2, 1), (1, 7), (2, 7), (2, 64)])
def test_the_cores_of_this_machine(workers: int, batch: int, tmp_path: Path, reference: bytes) -> None:
    assert run_with(tmp_path, Engine(workers=workers, batch=batch)) == reference


@pytest.mark.engines
@pytest.mark.filterwarnings("default")  # those of the clusters are theirs
@pytest.mark.parametrize("batch", [7, 64])
def test_a_local_dask_cluster(batch: int, tmp_path: Path, reference: bytes) -> None:
    assert run_with(tmp_path, Engine(kind="dask", workers=2, batch=batch)) == reference


@pytest.mark.engines
@pytest.mark.filterwarnings("default")  # those of the clusters are theirs
def test_a_dask_cluster_by_address_that_loses_a_worker(tmp_path: Path, reference: bytes) -> None:
    from dask import distributed

    cluster_class: Any = distributed.LocalCluster
    with cluster_class(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        killed: list[int] = []

        def kill() -> None:
            folder = tmp_path / "run.parquet.parts"
            while len(list(folder.glob("*.parquet"))) < 4:  # in the midst of it
                time.sleep(0.01)
            process = next(iter(cluster.workers.values())).process
            os.kill(process.pid, signal.SIGKILL)
            killed.append(process.pid)

        killer = threading.Thread(target=kill)
        killer.start()
        got = run_with(tmp_path, Engine(kind="dask", address=cluster.scheduler_address, batch=4))
        killer.join()
    assert killed
    assert got == reference


@pytest.mark.engines
@pytest.mark.filterwarnings("default")  # those of the clusters are theirs
def test_a_local_ray_cluster(tmp_path: Path, reference: bytes) -> None:
    assert run_with(tmp_path, Engine(kind="ray", workers=2, batch=16)) == reference


COMMAND = """
[[policies]]
name = "oful"
radius_scale = 0.4
[[policies]]
name = "multi-level-weighted-oful"
radius_scale = 0.004
[[attacks]]
name = "flip"
rounds = [0, 30]
"""


KILLS = int(os.environ.get("ROBANDIT_KILLS", "8"))


def pieces(run: Path) -> int:
    return len(list(run.with_name("run.parquet.parts").glob("*.parquet")))


def wait_for_a_moment(process: subprocess.Popen[bytes], run: Path, moments: random.Random) -> bool:
    """Wait until some more pieces are done, or none while it starts, and a little; return whether it still runs.

    Were moments counted in seconds, a slow machine could kill every process before its first piece, and never end.
    """
    enough = pieces(run) + moments.randrange(9)
    while process.poll() is None and pieces(run) < enough:
        time.sleep(0.01)
    with suppress(subprocess.TimeoutExpired):
        process.wait(moments.uniform(0.0, 0.5))
    return process.returncode is None


@pytest.mark.engines
def test_kill_minus_nine_at_random_moments(tmp_path: Path) -> None:
    config, whole, path = tmp_path / "run.toml", tmp_path / "whole.parquet", tmp_path / "run.parquet"
    config.write_text("rounds = 1500\ntrials = 40\n" + COMMAND)
    command = [sys.executable, "-m", "robandit", "simulate", "--config", str(config), "--batch", "4", "--workers", "2"]
    subprocess.run([*command, "--out", str(whole)], check=True, capture_output=True)
    moments, kills, done, seen = random.Random(1), 0, 0, 0
    while kills < KILLS or not done:
        process = subprocess.Popen(
            [*command, "--out", str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        if wait_for_a_moment(process, path, moments):
            os.killpg(process.pid, signal.SIGKILL)  # its workers too, as a power cut would
            process.wait()
            kills += 1
            assert pieces(path) >= seen or path.exists(), "a finished piece was lost"
            seen = pieces(path)
            continue
        assert process.returncode == 0
        assert path.read_bytes() == whole.read_bytes()
        assert not (tmp_path / "run.parquet.parts").exists()
        path.unlink()  # and once more, to be killed elsewhere
        done, seen = done + 1, 0
    print(f"killed {kills} times in {done} runs of 40 pieces, each of which ended like one that was left alone")


def groups_of(rounds: int, workers: int) -> list[list[str]]:
    """The policies of each group of a run of one world, in which Multi-level counts for three others."""
    names = ["oful", "multi-level-weighted-oful", "lin-ts", "greedy", "robust-weighted-oful"]
    run = Run.read({"policies": names, "attacks": [{"name": "flip", "rounds": [0, 30]}], "rounds": rounds})
    tasks = dict(enumerate(run.tasks(64)))
    found = engine._groups(tasks, workers)
    assert sorted(number for group in found for number in group) == sorted(tasks)
    return [[str(task.policy.kind) for task in group.values()] for group in found]


def test_short_runs_draw_their_world_as_seldom_as_the_workers_allow() -> None:
    assert [len(group) for group in groups_of(10_000, workers=1)] == [5]
    assert groups_of(10_000, workers=2)[0] == ["multi-level-weighted-oful"]
    assert sorted(len(group) for group in groups_of(10_000, workers=2)) == [1, 1, 3]
    assert [len(group) for group in groups_of(10_000, workers=4)] == [1, 1, 1, 1, 1]


def test_long_runs_are_cut_into_small_groups_so_that_a_lost_worker_loses_little() -> None:
    assert [len(group) for group in groups_of(10_000_000, workers=2)] == [1, 1, 1, 1, 1]
