"""Runs on the device: the same tables as on the CPU, whatever the batch, and the same distributions."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import interpreted  # noqa: F401  before the kernels are imported
import numpy as np
import pytest

import robandit
from robandit.lab.condensed import load_condensed
from robandit.lab.engine import Engine, carry_out
from robandit.lab.gpu.condense import condense, save_condensed
from robandit.lab.plan import Run
from robandit.lab.summary import summary

pytestmark = pytest.mark.gpu
CONFIG: dict[str, Any] = {
    "policies": ["greedy", {"name": "multi-level-weighted-oful", "radius_scale": 0.002, "label": "levels"}],
    "environments": [{"name": "paper", "dim": 3, "actions": 4, "parameter": "random"}],
    "attacks": [{"name": "flip", "rounds": [0, 4]}],
    "rounds": 12,
    "trials": 3,
    "checkpoints": 4,
    "device": "cuda",
}


def test_tables_are_the_same_whatever_the_batch(tmp_path: Path) -> None:
    whole = carry_out(Run.read(CONFIG), tmp_path / "whole.parquet")
    cut = carry_out(Run.read(CONFIG), tmp_path / "cut.parquet", engine=Engine(batch=2))
    assert whole.table == cut.table
    assert (whole.config["device"], whole.config["precision"]) == ("cuda", "float32")
    assert whole.table.num_rows == 2 * 2 * 3 * 4


def test_tables_are_those_of_the_cpu_up_to_their_worlds() -> None:
    here, there = (robandit.simulate("greedy", "fresh,dim=3,actions=4", rounds=8, trials=2, device=device)
                   for device in ("cpu", "cuda"))  # fmt: skip
    assert here.table.schema == there.table.schema
    for name in ("policy", "environment", "attack", "strength", "C", "trial", "round", "updates", "lies"):
        assert here.table[name] == there.table[name]


def test_tables_have_the_columns_of_sources() -> None:
    world, lies = "clicks,dim=3,actions=4,sources=3,skew=1,zeta=0.1", "source-promote,liars=1,first=1,begin=3"
    given: dict[str, Any] = {"attacks": lies, "rounds": 25, "trials": 3, "checkpoints": 25}
    here, there = (robandit.simulate("greedy", world, device=device, **given) for device in ("cpu", "cuda"))
    assert here.table.schema == there.table.schema
    rows = there.table.to_pylist()
    assert {row["source"] for row in rows} == {0, 1, 2}
    for last, row in pairwise(rows):
        assert sum(row["lies_by_source"]) == row["lies"] == row["lies_by_source"][1]  # the others are honest
        if row["round"] == last["round"] + 1 and row["lies"] > last["lies"]:
            assert row["source"] == 1 and row["round"] >= 3
    assert rows[-1]["lies"] > 0


def test_worlds_with_sources_are_summed_up_without_them(tmp_path: Path) -> None:
    run = Run.read(CONFIG | {"environments": [{"name": "clicks", "sources": [0, 2]}], "attacks": ["source-flip"]})
    held = condense(run)
    assert held["mean"].shape == (2, 2, 4, 7)
    save_condensed(tmp_path / "run.npz", held)
    assert load_condensed(tmp_path / "run.npz", tmp_path / "run.parquet").table.num_rows == 2 * 2 * 3


def test_levels_are_counted(tmp_path: Path) -> None:
    table = carry_out(Run.read(CONFIG), tmp_path / "run.parquet").table
    rows = [row for row in table.to_pylist() if row["policy"] == "levels"]
    assert rows and all(len(row["level_use"]) == 5 and sum(row["level_use"]) == row["round"] for row in rows)
    assert max(row["empty"] for row in rows) > 0 and max(row["cascade"] for row in rows) > 0


def test_a_quorum_counts_as_on_the_cpu(tmp_path: Path) -> None:
    config = {**CONFIG, "policies": ["quorum"]}
    whole = carry_out(Run.read(config), tmp_path / "whole.parquet").table
    assert whole == carry_out(Run.read(config), tmp_path / "cut.parquet", engine=Engine(batch=2)).table
    there = carry_out(Run.read({**config, "device": "cpu"}), tmp_path / "cpu.parquet").table
    assert whole.schema.names == there.schema.names
    assert whole["votes"] == there["votes"] and {"doubted", "dismissed"} <= set(whole.schema.names)


def test_policies_see_the_same_worlds(tmp_path: Path) -> None:
    table = carry_out(Run.read(CONFIG), tmp_path / "run.parquet").table
    gaps = [table.filter(np.array(table["policy"]) == name)["gap"] for name in ("greedy", "levels")]
    assert gaps[0] == gaps[1]


def test_what_is_summed_up_is_the_summary_of_the_table(tmp_path: Path) -> None:
    run = Run.read(CONFIG)
    save_condensed(tmp_path / "run.npz", condense(run))
    short = summary(load_condensed(tmp_path / "run.npz", tmp_path / "short.parquet", wanted=run).table)
    long = summary(carry_out(run, tmp_path / "long.parquet").table)
    assert list(short) == list(long)
    for case, policies in long.items():
        assert list(short[case]) == list(policies)
        for name, curve in policies.items():
            ours = short[case][name]
            assert ours.trials == curve.trials
            assert (ours[4:7]) == pytest.approx(curve[4:7])  # corruption, empty sets, levels climbed
            for one, other in zip((*ours[:3], *ours.spread), (*curve[:3], *curve.spread), strict=True):
                assert one == pytest.approx(other, rel=1e-6)


_WITHOUT = """
import sys
sys.modules.update(dict.fromkeys(("pyarrow", "joblib", "tqdm", "matplotlib", "threadpoolctl", "scipy")))
from robandit.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_machine_with_pytorch_alone_sums_a_run_up(tmp_path: Path) -> None:
    words = ["simulate", "--policy", "greedy", "--environment", "paper,dim=3,actions=4", "--rounds", "3"]
    words += ["--trials", "2", "--device", "cuda", "--out", str(tmp_path / "run.npz")]
    done = subprocess.run([sys.executable, "-c", _WITHOUT, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "6 rounds in" in done.stdout
    again = subprocess.run([sys.executable, "-c", _WITHOUT, *words[:-1], "run.parquet"], capture_output=True, text=True)
    assert again.returncode == 2 and "pip install" in again.stderr
    assert load_condensed(tmp_path / "run.npz", tmp_path / "run.parquet").table.num_rows == 2
