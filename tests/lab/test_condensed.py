"""A run that was summed up becomes a result like any other: its rows, curves, pictures and verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robandit
from robandit import cli
from robandit.arrays import Floats
from robandit.errors import ConfigError
from robandit.experiments.paper import figure1
from robandit.figures.pictures import PICTURES
from robandit.files import ResultExists
from robandit.lab import results
from robandit.lab.condensed import load_condensed
from robandit.lab.gpu.condense import condense, save_condensed
from robandit.lab.gpu.launch import COLUMNS
from robandit.lab.plan import Run
from robandit.lab.summary import summary
from robandit.lab.tails import spread

RUN = Run.read(
    {
        "policies": ["greedy", {"name": "oful", "radius_scale": 0.1, "label": "OFUL"}],
        "environments": [{"name": "paper", "dim": 3, "actions": 4}],
        "attacks": [{"name": "flip", "rounds": [0, 4]}],
        "rounds": 30,
        "trials": 300,
        "checkpoints": 4,
        "device": "cuda",
    }
)


def condensed() -> tuple[dict[str, Any], Floats]:
    """What a GPU would leave of some made-up regrets, and the regrets: (P, S, checkpoints, trials)."""
    at = np.array([1, 3, 10, 30])
    regret = np.random.default_rng(3).exponential(size=(2, 2, 4, 300)).cumsum(axis=2)
    mean = np.zeros((2, 2, 4, len(COLUMNS)))
    mean[..., 0], mean[..., COLUMNS.index("c_sup")] = regret.mean(axis=3), np.arange(4)
    spreads = [[spread(values) for values in row] for row in regret]
    held = {
        "mean": mean,
        "deviation": regret.std(axis=3, ddof=1),
        "quantiles": np.array([[one.quantiles for one in row] for row in spreads]),
        "worst": np.array([[one.worst for one in row] for row in spreads]),
        "ends": regret[:, :, -1],
        "empty": np.array([[0.0, 0.0], [0.0, 2.5]]),
        "cascade": np.zeros((2, 2)),
        "round": at,
        "config": np.array(json.dumps(RUN.plain())),
        "version": np.array(robandit.__version__),
        "columns": np.array(json.dumps(COLUMNS)),
    }
    return held, regret


@pytest.fixture
def source(tmp_path: Path) -> Path:
    save_condensed(tmp_path / "run.npz", condensed()[0])
    return tmp_path / "run.npz"


def test_curves_and_ends_are_those_of_the_trials(source: Path, tmp_path: Path) -> None:
    _, regret = condensed()
    result = load_condensed(source, tmp_path / "new" / "run.parquet")
    assert result.config == RUN.plain() and result.last_round().equals(result.table)
    for table in (result.table, result.last_round()):
        for column, (case, policies) in enumerate(summary(table).items()):
            assert (case.attack, case.corruption) == ("flip", 8.0 * column)
            for row, curve in enumerate(policies.values()):
                assert curve.rounds.tolist() == [1, 3, 10, 30] and curve.trials == 300 and curve.realised == 3.0
                assert curve.empty == 2.5 * row * column
                assert curve.mean == pytest.approx(regret[row, column].mean(axis=1))
                assert curve.spread.worst == pytest.approx(spread(regret[row, column]).worst)
    ends = result.table.filter(np.array(result.table["policy"]) == "OFUL")["regret"].to_numpy()
    assert ends == pytest.approx(regret[1, :, -1].ravel())
    found = figure1.judge(result.table, [figure1.Claim(8, "OFUL", "greedy", 1.0, True, "{}")])
    difference = regret[1, 1, -1] - regret[0, 1, -1]
    assert (found[0].low + found[0].high) / 2 == pytest.approx(difference.mean())


def test_its_pictures_are_drawn_and_its_file_is_known_again(source: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.parquet"
    assert cli.main(["simulate", "--from", str(source), "--out", str(out)]) == 0
    assert cli.main(["simulate", "--from", str(source), "--out", str(out)]) == 0  # the same again
    assert cli.main(["plot", str(out)]) == 0
    assert {path.stem for path in tmp_path.glob("*.png")} == {f"run-{name}" for name in PICTURES if name != "levels"}
    shown = robandit.Simulation.load(out)
    assert shown.summary().table["trials"].to_pylist() == 4 * [300]
    assert results.find_result(out, RUN)


def test_another_run_or_another_file_is_refused(source: Path, tmp_path: Path) -> None:
    other = Run.read(RUN.plain() | {"seed": 2})
    with pytest.raises(ResultExists, match="holds another run"):
        load_condensed(source, tmp_path / "run.parquet", wanted=other)
    (tmp_path / "no.npz").write_bytes(b"PK no")
    with pytest.raises(ConfigError, match="is not a condensed result"):
        load_condensed(tmp_path / "no.npz", tmp_path / "run.parquet")
    assert not (tmp_path / "run.parquet").exists()
    with pytest.raises(ConfigError, match="say --device cuda, or --out run.parquet"):
        condense(Run.read({"policies": ["greedy"]}))


def test_a_table_shows_the_curves_of_what_is_left_in_it(source: Path, tmp_path: Path) -> None:
    table = load_condensed(source, tmp_path / "run.parquet").table
    some = table.filter((np.array(table["policy"]) == "OFUL") & (np.array(table["C"]) == 0.0))
    ((case, policies),) = summary(some).items()
    assert case.corruption == 0.0 and list(policies) == ["OFUL"]
