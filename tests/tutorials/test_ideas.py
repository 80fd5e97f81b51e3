"""The pictures that explain show what their captions say."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robandit import Quorum

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.tutorials


def drawing(name: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A script of benchmarks/."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module(name)


def test_one_command_draws_all_of_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sys, "argv", ["ideas.py", str(tmp_path)])
    drawing("ideas", monkeypatch).main()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {path.name for path in (ROOT / "docs" / "figures").glob("idea-*.png")}


def test_two_levels_are_refused_and_the_third_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of an empty intersection all of one ellipsoid lies on one side of the line; another has points of both."""
    levels = drawing("draw_levels", monkeypatch)
    policy = levels.played()
    sets = [policy.candidate(level) for level in (1, 2, 3)]
    assert [bool(np.all(both.is_empty())) for both in sets] == [True, True, False]
    for both in sets[:2]:
        point, along = levels.between(both)
        normal = np.array([-along[1], along[0]])
        first, second = (np.sign((levels.boundary(body) - point) @ normal) for body in (both.first, both.second))
        assert abs(first.sum()) == len(first) and (second == -first).all()
    for body in (sets[2].first, sets[2].second):
        assert (body.distance(levels.lens(sets[2])[None])[0] <= 1.0 + 1e-9).all()


def test_only_the_partner_disagrees_once_he_has_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = drawing("draw_quorum", monkeypatch)
    run = quorum.played(Quorum(dim=len(quorum.TASTE), noise_range=1.0, seed=7))
    places, _, last, believed = quorum._spans(run.policy)
    far = quorum.disagreement(run.policy)
    lying = (places == quorum.SOURCES.index("partner")) & (last > quorum.TURNS)
    assert far[lying].min() > 2.0 and far[~lying].max() <= 1.0
    assert not believed[lying].any() and believed[places != quorum.SOURCES.index("partner")].all()


def test_the_proof_stays_below_what_was_altered(monkeypatch: pytest.MonkeyPatch) -> None:
    monitor = drawing("draw_monitor", monkeypatch)
    for noise in monitor.NOISES:
        told, clean = monitor.watched(noise, monitor.LIES), monitor.watched(noise, ())
        assert (told.proved <= told.true).all() and told.proved[-1] > 5.0
        assert (np.diff(told.proved) >= 0.0).all()
        assert not clean.proved.any() and not clean.true.any()
