"""The first program that a practitioner writes: at most twelve lines, and it beats uniform play."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import robandit

FOLDER = Path(__file__).parents[2] / "examples"


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """What the generator of visits knows; its file is in the current folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["visits.py", "visits.csv"])
    return runpy.run_path(str(FOLDER / "visits.py"), run_name="__main__")


@pytest.mark.no_cover
def test_the_first_program_beats_uniform_play(shop: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """By the true rates of what it picks: after half of the visits, at least 80 % of what is to be gained."""
    lines = [line for line in (FOLDER / "first_program.py").read_text(encoding="utf-8").splitlines() if line]
    assert len(lines) <= 12
    picked: list[tuple[str, str]] = []

    class Recorded(robandit.Bandit):
        def choose(self, candidates: Any, context: Any = None, source: Any = None) -> robandit.Pick:
            pick = super().choose(candidates, context, source)
            picked.append((context["user"], pick.id))
            return pick

    monkeypatch.setattr(robandit, "Bandit", Recorded)
    runpy.run_path(str(FOLDER / "first_program.py"))
    late = picked[len(picked) // 2 :]
    rate, items = shop["rate"], shop["PRODUCTS"]
    rates = np.array([[rate(user, item) for item in items] for user, _ in late])
    ours, uniform, best = np.mean([rate(*one) for one in late]), rates.mean(), rates.max(axis=1).mean()
    print(f"\nclicks per visit: {ours:.3f}, uniform play {uniform:.3f}, the best {best:.3f}")
    assert ours - uniform > 0.8 * (best - uniform)
