"""Tuning, the paper's claims, and the experiments that rerun it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from tables import result

from robandit import cli
from robandit.errors import ConfigError
from robandit.experiments.paper import figure1, variance
from robandit.experiments.tune import (
    GRID,
    SEED,
    Tuned,
    final_regret,
    grid_config,
    label,
    sensitivity,
    shipped,
    tune,
)
from robandit.lab.plan import Run
from robandit.lab.results import read


def table(regrets: dict[str, dict[float, list[float]]]) -> pa.Table:
    """A result with these regrets at the end, by policy and C."""
    rows = [
        {
            "policy": policy,
            "environment": "paper",
            "attack": "flip",
            "strength": "weak",
            "C": corruption,
            "trial": trial,
            "round": round_,
            "regret": regret * round_ / 100,
            "c_sup": corruption / 5,
            "c_play": 0.0,
        }
        for policy, panels in regrets.items()
        for corruption, trials in panels.items()
        for trial, regret in enumerate(trials)
        for round_ in (1, 10, 100)
    ]
    return result(rows)


def test_the_end_is_read_panel_by_panel() -> None:
    found = final_regret(table({"a": {0: [1, 2], 60: [3, 4]}, "b": {0: [5, 6], 60: [7, 8]}}))
    assert found["b"].tolist() == [[5, 6], [7, 8]]


def test_the_best_scale_by_each_objective() -> None:
    regrets = {
        label("p", 1.0): {0.0: [10.0, 12.0], 60.0: [10.0, 12.0]},  # mean 11, worst 11
        label("p", 0.5): {0.0: [1.0, 1.0], 60.0: [14.0, 16.0]},  # mean 8, worst 15
    }
    config = {"rounds": 100, "policies": ["p"]}
    by_mean = tune(table(regrets), config, {"p": (1.0, 0.5)}, "mean")
    assert by_mean.scales == {"p": 0.5} and by_mean.curves["p"][0].panels == [11.0, 11.0]
    assert by_mean.curves["p"][1].regret == 8.0 and by_mean.made_from == {"rounds": 100}
    assert tune(table(regrets), config, {"p": (1.0, 0.5)}, "worst").scales == {"p": 1.0}
    assert Tuned.from_json(by_mean.to_json()) == by_mean
    with pytest.raises(ConfigError, match="unknown objective 'means'; did you mean 'mean'"):
        tune(table(regrets), config, {"p": (1.0, 0.5)}, "means")
    with pytest.raises(ConfigError, match="not a file of tuned scales"):
        Tuned.from_json("[1]")


def test_the_shipped_scales_are_the_best_of_their_own_curves() -> None:
    tuned = shipped()
    assert tuned.scales.keys() == figure1.POLICIES.keys() - {figure1.GREEDY}
    for policy, points in tuned.curves.items():
        assert [point.scale for point in points] == list(GRID)
        best = min(points, key=lambda point: point.regret)
        assert tuned.scales[policy] == best.scale
        assert best.regret == pytest.approx(np.mean(best.panels))
        assert best is not points[-1], f"the best scale of {policy} may lie below the grid"
    assert tuned.made_from["seed"] == SEED != figure1.SETTING["seed"]
    assert len(sensitivity(tuned).axes[0].lines) >= 2 * len(tuned.curves)


@pytest.mark.slow
def test_the_shipped_curves_come_out_again() -> None:
    """One point of one curve, all trials: the same numbers to the last bit on the same machine, to 1e-6 on any."""
    policies = {figure1.WEIGHTED: figure1.POLICIES[figure1.WEIGHTED]}
    held = shipped()
    base = {key: held.made_from[key] for key in ("rounds", "trials", "seed")} | {"checkpoints": 2}
    run = Run.read(grid_config(base | figure1.world(), policies, dict.fromkeys(policies, (2.0**-6,))))
    from robandit.lab.results import tabulate

    found = pa.concat_tables([tabulate(task, task.run()) for task in run.tasks(96)])
    again = tune(found, run.plain(), dict.fromkeys(policies, (2.0**-6,)), "mean").curves[figure1.WEIGHTED][0]
    then = next(point for point in held.curves[figure1.WEIGHTED] if point.scale == 2.0**-6)
    assert again.regret == pytest.approx(then.regret, rel=1e-6)


def test_verdicts_follow_the_paired_interval() -> None:
    rng = np.random.default_rng(1)
    common = rng.normal(0, 50, 40)  # what trials have in common cancels
    right = (100 + common).tolist()
    claim = figure1.Claim(180, "l", "r", 1.0, False, "l beats {}")
    for shift, verdict in ((-5.0, "holds"), (5.0, "does not hold"), (0.0, "undecided")):
        wobble = np.tile([1.0, -1.0], 20)
        left = (100 + common + shift + wobble).tolist()
        (found,) = figure1.judge(table({"l": {180: left}, "r": {180: right}}), [claim])
        assert found.verdict == verdict
        opposite = {"holds": "does not hold", "does not hold": "holds"}.get(verdict, verdict)
        (reversed_,) = figure1.judge(table({"l": {180: left}, "r": {180: right}}), [claim._replace(worse=True)])
        assert reversed_.verdict == opposite
        difference = np.array(left) - np.array(right)
        low, high = stats.t.interval(0.95, 39, difference.mean(), stats.sem(difference))
        assert (found.low, found.high) == pytest.approx((low, high))


def test_one_trial_decides_nothing_and_factors_count() -> None:
    claim = figure1.Claim(0, "l", "r", 0.8, False, "l beats {} by far")
    (found,) = figure1.judge(table({"l": {0: [1.0]}, "r": {0: [100.0]}}), [claim])
    assert found.verdict == "undecided" and "one trial" in found.evidence()
    (found,) = figure1.judge(table({"l": {0: [85.0, 86.0]}, "r": {0: [100.0, 101.0]}}), [claim])
    assert found.verdict == "does not hold"
    assert "0.8 times" in claim.text() and "r" in claim.text()
    assert figure1.judge(table({"l": {60: [1.0]}, "r": {60: [1.0]}}), [claim]) == []  # not in the table


def test_all_of_the_papers_observations_are_there() -> None:
    said = {(claim.corruption, claim.left, claim.right, claim.worse) for claim in figure1.CLAIMS}
    assert (0, figure1.MULTI, figure1.WEIGHTED, True) in said and (0, figure1.MULTI, figure1.OFUL, True) in said
    assert (0, figure1.WEIGHTED, figure1.OFUL, False) in said
    for corruption in (180, 300, 600, 900):
        for other in (figure1.OFUL, figure1.WEIGHTED, figure1.GREEDY, figure1.ROBUST):
            assert (corruption, figure1.MULTI, other, False) in said


def test_growth_is_the_slope_on_logarithmic_axes() -> None:
    panels = {c: [c**1.5 + 1e-9] * 2 for c in (60.0, 180.0, 900.0)}
    slopes = {(s.policy, s.of): s for s in figure1.growth(table({figure1.MULTI: panels}))}
    assert slopes[(figure1.MULTI, "C")].exponent == pytest.approx(1.5)
    assert slopes[(figure1.MULTI, "C")].theorem == "2"
    assert slopes[(figure1.MULTI, "T at C = 180")].theorem == "1/2"
    others = figure1.growth(
        table(
            {figure1.OFUL: {0.0: [1.0, 2.0], 180.0: [1.0, 2.0]}, figure1.GREEDY: {0.0: [3.0, 4.0], 180.0: [1.0, 2.0]}}
        )
    )
    assert [slope.theorem for slope in others] == ["1/2", "none", "none", "none"]
    assert slopes[(figure1.MULTI, "T at C = 180")].exponent == pytest.approx(1.0)  # regret · round / 100
    assert len(figure1.growth_picture(table({figure1.MULTI: panels})).axes) == 2


SMALL = ["--rounds", "60", "--trials", "3", "--workers", "1"]


def test_figure1_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "paper",
        "figure1",
        *SMALL,
        "--dim",
        "3",
        "--actions",
        "4",
        "--flips",
        "0,90",
        "--out",
        str(tmp_path / "f"),
    ]
    assert cli.main(command) == 0
    made = {path.name for path in (tmp_path / "f").iterdir()}
    assert made == {"figure1.parquet", "figure1.png", "figure1.pdf", "figure1.md"}
    text = (tmp_path / "f" / "figure1.md").read_text()
    assert "| realised C |" in text and "C = 180: Multi-level outperforms OFUL by a large margin" in text
    before = {path.name: path.read_bytes() for path in (tmp_path / "f").iterdir()}
    assert cli.main(command) == 0  # again: nothing changes
    assert {path.name: path.read_bytes() for path in (tmp_path / "f").iterdir()} == before
    held = read(tmp_path / "f" / "figure1.parquet").config["policies"]
    assert {entry["label"]: entry.get("radius_scale") for entry in held}[figure1.OFUL] == shipped().scales[figure1.OFUL]
    assert cli.main([*command, "--radius", "theory"]) == 2
    assert cli.main([*command, "--radius", "theory", "--force"]) == 0
    assert cli.main([*command, "--seed", str(SEED)]) == 2
    assert f"seed {SEED} is the one that the radius scales were tuned on" in capsys.readouterr().err


def test_tune_as_a_command_feeds_figure1(tmp_path: Path) -> None:
    out = str(tmp_path / "t")
    world = ["--dim", "3", "--actions", "4", "--flips", "0,5"]
    assert cli.main(["paper", "tune", *SMALL, *world, "--grid", "1,0.1", "--out", out]) == 0
    scales = tmp_path / "t" / "scales.json"
    assert set(Tuned.from_json(scales.read_text()).scales.values()) <= {1.0, 0.1}
    assert (tmp_path / "t" / "tune.png").exists()
    command = ["paper", "figure1", *SMALL, *world, "--scales", str(scales), "--out", str(tmp_path / "f")]
    assert cli.main(command) == 0
    assert cli.main([*command[:-1], str(tmp_path / "g"), "--scales", "missing.json"]) == 2
    assert not (tmp_path / "g").exists()


@pytest.mark.no_cover
def test_more_trials_change_no_trial(tmp_path: Path) -> None:
    def regrets(trials: int) -> dict[tuple[Any, ...], float]:
        folder = tmp_path / str(trials)
        arguments = ["--rounds", "40", "--trials", str(trials), "--workers", "1", "--flips", "0,30", "--dim", "4"]
        assert cli.main(["paper", "figure1", *arguments, "--out", str(folder)]) == 0
        rows = read(folder / "figure1.parquet").table.to_pylist()
        return {(r["policy"], r["C"], r["trial"], r["round"]): r["regret"] for r in rows}

    few, many = regrets(3), regrets(6)
    assert few.items() <= many.items() and len(many) == 2 * len(few)


def test_variance_weighting_as_a_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["paper", "variance", *SMALL, "--out", str(tmp_path)]) == 0
    assert "told R" in (tmp_path / "variance.md").read_text()
    scales = variance.choose(read(tmp_path / "variance-tune.parquet").table)
    assert set(scales) == {variance.TOLD, variance.HIDDEN}


def test_verify_and_report_as_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, few = str(tmp_path / "o"), ["--rounds", "30", "--trials", "3", "--dim", "3", "--actions", "4"]
    assert cli.main(["paper", "report", "--out", out]) == 2
    assert "robandit paper figure1 --out" in capsys.readouterr().err
    assert (
        cli.main(["paper", "figure1", *SMALL, "--dim", "3", "--actions", "4", "--flips", "0,30,90", "--out", out]) == 0
    )
    assert cli.main(["paper", "verify", *few, "--out", out]) == 0
    assert "holds" in capsys.readouterr().out
    assert cli.main(["paper", "report", "--out", out]) == 0
    page = (tmp_path / "o" / "report.html").read_text(encoding="utf-8")
    for words in (
        "The paper's claims",
        "sec6:confidence",
        "<span>tune</span>",
        "vacuous",
        "There is no variance.md here.",
    ):
        assert words.replace("'", "&#x27;") in page or words in page
    assert cli.main(["paper", "report", "--out", out]) == 0  # the same page again: nothing to replace


def test_verify_can_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--rounds", "30", "--trials", "3", "--dim", "3", "--actions", "4"]
    assert cli.main(["paper", "verify", *few, "--out", str(tmp_path)]) == 0
    found = json.loads((tmp_path / "verify.json").read_text())
    shrink = 0.9 * found["largest ratio"]
    assert cli.main(["paper", "verify", *few, "--shrink", str(shrink), "--out", str(tmp_path / "shrunk")]) == 1
    said = capsys.readouterr()
    assert "fails" in said.out and "a claim of the paper is breached" in said.err
