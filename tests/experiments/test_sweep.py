"""The sweep: its scores by hand, its settings, its picture, and all of it as a command."""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robandit import cli
from robandit.experiments.arena import insurance, sweep
from robandit.experiments.arena.race import Cell, Cells, cells
from robandit.experiments.arena.worlds import LEVELS
from robandit.lab.plan import Run
from robandit.lab.results import read
from robandit.lab.summary import Case

CLEAN, FLIP, TOP = (
    Case("here", *rest) for rest in (("none", "weak", 0.0), ("flip", "weak", 40.0), ("top-n", "strong", 60.0))
)
THERE, THERE_FLIP = Case("there", "none", "weak", 0.0), Case("there", "flip", "weak", 40.0)
T1 = 12.706204736  # Student's 97.5 % quantile with one degree of freedom


def made_up() -> Cells:
    """Two trials; the published policies are all alike but for Greedy and one OFUL."""
    regrets: dict[Case, tuple[list[float], ...]] = {  # of ours, ours insured, Greedy, OFUL × 0.25; 100 for the others
        CLEAN: ([3, 3], [6, 6], [2, 4], [9, 9]),
        FLIP: ([8, 8], [4, 4], [50, 50], [4, 4]),
        TOP: ([2, 2], [4, 4], [4, 4], [5, 5]),
        THERE: ([2, 2], [2, 2], [8, 8], [4, 4]),
        THERE_FLIP: ([4, 4], [4, 4], [8, 8], [9, 9]),
    }
    found: Cells = {}
    for case, (own, insured, greedy, oful) in regrets.items():
        rows = {policy: [100.0, 100.0] for policy in sweep.PUBLISHED}
        rows = {"Sceptic": own, "Sceptic, insured": insured, **rows, "Greedy": greedy, "OFUL × 0.25": oful}
        found[case] = {policy: Cell(np.array(each, float), 0.0) for policy, each in rows.items()}
    return found


def test_scores_by_hand() -> None:
    found = made_up()
    assert [sweep.rival(found, case) for case in (CLEAN, FLIP, TOP)] == ["Greedy", "OFUL × 0.25", "Greedy"]
    cells = sweep.by_cell(found, "Sceptic")
    here, there = cells["here"], cells["there"]
    assert here.clean.value == pytest.approx(1.0) and here.attacked.value == pytest.approx(1.0)  # √(2 · ½)
    assert here.worst == pytest.approx((2.0, 2.0, 2.0)) and here.where == FLIP
    assert (there.clean.value, there.attacked.value) == pytest.approx((0.5, 0.5))
    half = T1 * np.std([1 / 3, -1 / 3], ddof=1) / np.sqrt(2)  # (x_i − y_i) / 3
    assert sweep.ratios(found, "Sceptic")[CLEAN] == pytest.approx((1.0, 1.0 - half, 1.0 + half))
    whole = sweep.compare(found, "Sceptic")
    assert whole.clean.value == pytest.approx(0.5**0.5) and whole.attacked.value == pytest.approx(0.5 ** (1 / 3))
    alone = sweep.compare(found, "Sceptic", "Greedy")
    assert alone.attacked.value == pytest.approx((8 / 50 * 2 / 4 * 4 / 8) ** (1 / 3)) and alone.worst.value == 0.5


def test_published_policies_are_never_below_their_best() -> None:
    found = made_up()
    for policy in sweep.PUBLISHED:
        assert min(ratio.value for ratio in sweep.ratios(found, policy).values()) >= 1.0
    header, rows = sweep.envelope_rows(found)
    assert len(header) == 4 and rows[0][0] == "Sceptic" and len(rows) == len(sweep.OURS) + len(sweep.PUBLISHED)


def test_the_worst_is_named() -> None:
    found = made_up()
    words = sweep.verdict(found, "Sceptic")
    assert "better than the best published in 2 and worse in 1" in words and "Of 3 attacked scenarios" in words
    assert "Worst cell: here, with 1.00 [" in words
    assert words.endswith("Worst scenario: here, under flip 40, with 2.00 [2.00, 2.00].")
    header, rows = sweep.cell_rows(found)
    assert len(header) == 7 and [row[0] for row in rows] == ["here", "there"]
    assert rows[0][3] == "flip 40, 2.00 [2.00, 2.00]" and rows[0][6].startswith("flip 40, 1.00")
    first = sweep.worst_rows(found, "Sceptic", count=1)[1]
    assert first == [["here", "flip 40", "2.00 [2.00, 2.00]", "8.0", "OFUL × 0.25", "4.0"]]
    assert sweep.worst_rows(found, "Sceptic, insured")[1][0][:2] == ["here", "no attack"]


def test_attacks_apart_by_kind_of_cell() -> None:
    names = {"here": "fixed, d = 2", "there": "fresh"}
    found = {
        case._replace(environment=names[case.environment]): rest for case, rest in made_up().items() if case != TOP
    }
    header, rows = sweep.attack_rows(found)
    assert header[1:3] == ["Sceptic: fixed", "Sceptic: fresh"] and [row[0] for row in rows] == ["no attack", "flip 40"]
    assert rows[1][1:] == ["2.00 [2.00, 2.00]", "0.50 [0.50, 0.50]", "1.00 [1.00, 1.00]", "0.50 [0.50, 0.50]"]


def test_all_numbers_are_in_the_table_of_them() -> None:
    rows = list(csv.DictReader(StringIO(sweep.as_csv(made_up()))))
    assert len(rows) == 5 * len(sweep.OURS) * len(sweep.PUBLISHED)
    best = [row for row in rows if row["best_published"] == "True"]
    assert len(best) == 5 * len(sweep.OURS)
    (one,) = (row for row in best if (row["cell"], row["attack"], row["policy"]) == ("here", "flip", "Sceptic"))
    assert (one["over"], one["ratio"], one["regret"], one["other"], one["C"]) == ("OFUL × 0.25", "2", "8", "4", "40.0")


def test_the_picture_has_a_number_for_every_scenario() -> None:
    found = {case: policies for case, policies in made_up().items() if case != TOP}
    figure = sweep.picture(found)
    left, right, _ = figure.axes
    assert [text.get_text() for text in left.texts] == ["1.0", "2.0", "0.50", "0.50"]
    assert [text.get_text() for text in left.texts if text.get_fontweight() == "bold"] == ["2.0"]
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["here", "there"]
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["no attack", "flip 40"]


@pytest.mark.parametrize("cell", [*sweep.CELLS, *sweep.LONG])
def test_every_cell_is_a_run(cell: str) -> None:
    run = Run.read(sweep.config(cell, trials=20, seed=3))
    (world,) = run.environments
    assert world.label == cell and (cell == "fixed, even μ*") == (world.settings["parameter"] == "even")
    assert cell.startswith("fixed") == (world.settings["fresh_rounds"] == 0)
    assert (run.rounds > 10_000) <= (cell in sweep.LONG)
    assert not {attack.settings.get("budget") for attack in run.attacks} & set(LEVELS)  # of development
    assert {attack.settings["rounds"] for attack in run.attacks if attack.kind == "flip"} == {run.rounds}


def test_every_factor_is_there() -> None:
    cells = [*sweep.CELLS, *sweep.LONG]
    assert len(set(cells)) == len(cells)
    for factor in sweep.FACTORS:
        assert any(cell == f"fixed, {factor}" for cell in cells)


SMALL = ["--trials", "2", "--workers", "1"]


def test_the_sweep_as_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "CELLS", ("fixed, d = 2, K = 5", "fresh, clicks"))
    monkeypatch.setattr(sweep, "LONG", ("fixed, T = 10⁵",))
    worlds: dict[str, Any] = {name: {**world, "rounds": 30} for name, world in sweep.WORLDS.items()}
    monkeypatch.setattr(sweep, "WORLDS", worlds)
    monkeypatch.setattr(sweep, "FACTORS", {**sweep.FACTORS, "T = 10⁵": {"rounds": 40}})
    out = tmp_path / "out"
    assert cli.main(["arena", "sweep", *SMALL, "--out", str(out)]) == 0
    made = {"sweep-1.parquet", "sweep-2.parquet", "sweep.md", "sweep.csv", "sweep.png"}
    assert {path.name for path in out.iterdir()} == made
    said, text = capsys.readouterr().out, (out / "sweep.md").read_text()
    assert text in said
    assert "\nrobandit arena sweep --trials 2 --seed 3\n" in text
    for words in ("hindsight", "| fixed, d = 2, K = 5 |", "Worst cell: "):
        assert words in " ".join(text.split())
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    assert cli.main(["arena", "sweep", *SMALL, "--out", str(out)]) == 0  # again: nothing changes
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    assert cli.main(["arena", "sweep", *SMALL, "--long", "--out", str(tmp_path / "long")]) == 0
    assert "| fixed, T = 10⁵ |" in (tmp_path / "long" / "sweep.md").read_text()


def test_insurance_from_end_to_end(tmp_path: Path) -> None:
    assert (
        cli.main(["arena", "insurance", "--rounds", "60", "--trials", "3", "--out", str(tmp_path), "--workers", "1"])
        == 0
    )
    text = (tmp_path / "insurance.md").read_text()
    assert text.startswith("| insurance | no attack | flips in the first 8 rounds |")
    assert text.count("\n") == 2 + len(insurance.INSURANCE)
    found = cells(read(tmp_path / "insurance.parquet").table)
    clean = next(policies for case, policies in found.items() if case.attack == "none")
    assert f"| 0.5 | {clean['insurance 0.5'].regret.mean():.0f} ± " in text
    axes = insurance.picture(read(tmp_path / "insurance.parquet").table).axes[0]
    assert len(axes.lines) == len(insurance.ATTACKS) - 1
