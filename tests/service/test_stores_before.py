"""A store from before there were checksums opens, migrates and folds the same, whatever its policies."""

from __future__ import annotations

import gzip
import hashlib
import importlib.util
import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served import check_fold, log_of, working

from robandit.cli import main
from robandit.service.hub import Hub
from robandit.service.learning.learner import Learner
from robandit.service.stores.sqlite import SQLiteStore

BEFORE = Path(__file__).parent / "stores_before"
TOLD: dict[str, Any] = json.loads((BEFORE / "store_1.json").read_text(encoding="utf-8"))


def made_by() -> Any:
    """The script that made the store, whose offers are asked for again."""
    spec = importlib.util.spec_from_file_location("make_1", BEFORE / "make_1.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A copy of the store, as the old code left it: without checksums, with snapshots in the middle of the logs."""
    path = tmp_path / "log.db"
    path.write_bytes(gzip.decompress((BEFORE / "store_1.db.gz").read_bytes()))
    return path


def start(path: Path) -> Hub:
    """Start at the time when the old code stopped; windows stay as they are."""
    return Hub(SQLiteStore(path, clock=lambda: TOLD["now"]), ticks=lambda: 0.0)


def check_told(hub: Hub, name: str, learner: Learner) -> None:
    """A state is the one that the old code had: all that it showed, and what it would have decided next."""
    told, status = TOLD["bandits"][name], hub.status(name)
    counts = [learner.place, learner.policy.rounds, learner.rewards, learner.defaults, learner.lost]
    assert [*counts, learner.monitor.rounds] == told["counts"]
    assert list(learner.pending) == told["pending"] and learner.clock == told["clock"]
    assert [list(one) for one in sorted(learner.levels.items())] == told["levels"]
    assert [list(one) for one in learner.recent] == told["recent"]
    np.testing.assert_allclose(status.estimate, told["estimate"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(status.uncertainty, told["uncertainty"], rtol=1e-9)
    for found, said in zip(made_by().next_ones(learner, name), told["next"], strict=True):
        assert found[:2] == said[:2]
        np.testing.assert_allclose(found[2:], said[2:], rtol=1e-9)


@pytest.mark.no_cover
def test_it_opens_and_its_logs_are_the_same(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    hub = start(path)
    assert set(hub.bandits) == set(TOLD["bandits"])
    for name, told in TOLD["bandits"].items():
        lines = hub._store.page(hub.bandits[name].record.number, 0)
        assert hashlib.sha256(b"\n".join(lines)).hexdigest() == told["log"]
    hub._store.close()
    check_fold(SQLiteStore(path))
    assert main(["check", str(path)]) == 0 and "Nothing is damaged" in capsys.readouterr().out


def test_it_folds_the_same(path: Path) -> None:
    """When it is opened, from the whole log, and once it is migrated."""
    hub = start(path)
    for name, bandit in hub.bandits.items():
        fresh = Learner(bandit.settings, bandit.record.seed)
        for event in log_of(hub, name):
            fresh.apply(event)
        assert fresh.digest() == bandit.learner.digest()
        check_told(hub, name, fresh)
    hub.stop()
    hub = start(path)
    for name, bandit in hub.bandits.items():
        check_told(hub, name, bandit.learner)
    hub._store.close()


@pytest.mark.no_cover
def test_retries_get_the_old_answers(path: Path) -> None:
    """And decide nothing."""
    hub, offer = start(path), made_by().offer
    asked = [partial(hub.decide, name, offer(name, number)) for name in hub.bandits for number in range(30)]
    found = iter(working(hub, *asked))
    for name, bandit in hub.bandits.items():
        told = TOLD["bandits"][name]
        answers = [next(found) for _ in range(30)]
        assert [[one.action_id, one.index, one.propensity, one.round] for one in answers] == told["answers"]
        assert bandit.learner.place == told["counts"][0]
    hub._store.close()
