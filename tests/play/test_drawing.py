"""The recorded game: the page about it, the file, and the animated picture."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

from robandit.cli import main
from robandit.lab.results import read
from robandit.play.worlds import POLICIES

ROOT = Path(__file__).parents[2]
ATTACK = ROOT / "examples" / "attack.toml"
DRAWING = runpy.run_path(str(ROOT / "benchmarks" / "draw_play.py"))


def test_the_recorded_game_has_the_lies_of_the_page() -> None:
    game, script = DRAWING["recorded"](ATTACK)
    assert [(s.begin, s.end, s.kind, s.source) for s in script.stretches] == [
        (401, 900, "promote", None),
        (1801, 3600, "flip", 3),
    ]
    assert all(f"{number:,}" in page() for number in (401, 900, 1801, 3600)) and game.rounds == 4000


def page() -> str:
    return (ROOT / "docs" / "how-to" / "play.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_recorded_game_is_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the page gives the regrets that the head of the file has."""
    (command,) = re.findall(r"^robandit (simulate --config .*)$", page(), re.MULTILINE)
    monkeypatch.chdir(ROOT)
    (attack,) = tomllib.loads(ATTACK.read_text(encoding="utf-8"))["attacks"]
    out, told = tmp_path / "run.parquet", ",".join(f"{key}={value}" for key, value in attack.items() if key != "name")
    beside = ["--attack", f"{attack['name']},{told}", "--attack", "none"]  # its own attack, and nobody's
    assert main([*command.split(), *beside, "--out", str(out), "--workers", "1"]) == 0
    rows = [row for row in read(out).table.to_pylist() if row["round"] == 4000]
    regret = {(row["policy"], row["attack"]): row["regret"] for row in rows}
    assert {row["c_sup"] for row in rows} == {300.0, 0.0}
    said = re.findall(r"([A-Z][\w -]*?) (\d+\.\d)[,.]", re.sub(r"\n# ", " ", ATTACK.read_text(encoding="utf-8")))
    lost = {name.strip(): float(value) for name, value in said}
    for label in POLICIES:
        assert round(regret[label, "recorded"] - regret[label, "none"], 1) == lost[label]


def test_the_picture_moves(tmp_path: Path) -> None:
    text = re.sub(r"lies = .*", 'lies = "21-60 promote; 61-80 flip from 3"', ATTACK.read_text(encoding="utf-8"))
    (tmp_path / "run.toml").write_text(text.replace("rounds = 4000", "rounds = 100"), encoding="utf-8")
    first, second = DRAWING["animated"](tmp_path / "run.toml", frames=2)
    assert first.size == second.size == (840, 520) and first.tobytes() != second.tobytes()
    (tmp_path / "run.toml").write_text(text.replace("dim = 6", "dim = 5"), encoding="utf-8")
    with pytest.raises(ValueError, match="no run that `robandit play` has saved"):
        DRAWING["recorded"](tmp_path / "run.toml")
