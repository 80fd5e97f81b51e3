"""Nobody is named who does not stand out: the check against labels drawn at random."""

from __future__ import annotations

import numpy as np
import pytest

from robandit import CorruptionMonitor
from robandit.features.scaling import Scaling
from robandit.logs.audit import placebo
from robandit.logs.audit.placebo import Labelled, distances, read_labelled, stands_out
from robandit.logs.audit.stored import PIECE, StoredRounds


def world(seed: int, what: str, rounds: int = 1200) -> Labelled:
    """Rounds of four sources. The first has a fifth of them, and may flip a tenth of its rewards."""
    rng = np.random.default_rng(seed)
    actions = np.column_stack([rng.uniform(-1.0, 1.0, (rounds, 2)), np.ones(rounds)])
    sources = rng.choice(4, rounds, p=[0.2, 0.4, 0.3, 0.1])
    means = actions @ [0.5, 0.3, 0.4]
    if what == "drifts":
        means = means + 0.5 * actions[:, 0] * np.linspace(-1.0, 1.0, rounds)
    if what == "lies":
        means = np.where((sources == 0) & (rng.random(rounds) < 0.3), -means, means)
    return Labelled(actions, means + 0.05 * rng.normal(size=rounds), sources)


def slow_distance(rounds: Labelled, source: int) -> float:
    """From the definition, with explicit inverses."""
    X, y, own = rounds.actions, rounds.rewards, rounds.sources == source
    mu = np.linalg.lstsq(X, y, rcond=None)[0]
    rest = X[own].T @ (y[own] - X[own] @ mu)
    norm = np.linalg.inv(X[own].T @ X[own] + X.shape[1] / len(X) * X.T @ X)
    return float(rest @ norm @ rest)


def test_distances_are_what_they_say() -> None:
    rounds = world(1, "lies", 300)
    assert distances(rounds) == pytest.approx([slow_distance(rounds, place) for place in range(4)], rel=1e-8)
    empty = rounds._replace(sources=rounds.sources + (rounds.sources > 1))  # nobody has the number 2
    assert distances(empty)[2] == 0.0 and distances(empty)[4] == pytest.approx(distances(rounds)[3])


def test_who_lies_stands_out_and_nobody_else_does() -> None:
    for seed in range(10):
        rounds = world(seed, "lies")
        assert [stands_out(rounds, source) for source in range(4)] == [True, False, False, False]


@pytest.mark.no_cover
@pytest.mark.parametrize("what", ["clean", "drifts"])
def test_among_sources_that_are_alike_one_stands_out_one_time_in_fifty(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(placebo, "SHUFFLED", 4)  # one time in five, which can be seen
    found = [world(seed, what, 256) for seed in range(250)]
    out = sum(stands_out(rounds, int(distances(rounds).argmax())) for rounds in found)
    assert 0.12 * len(found) < out < 0.28 * len(found)  # 0.2, and three standard errors


def watched(seed: int, *, drift: float = 0.0, differs: float = 0.0) -> tuple[str | None, Labelled]:
    """Honest rewards that are declared to be exactly linear, and are not: who a monitor names, and the rounds."""
    rng, rounds = np.random.default_rng([seed, 5]), 6000
    actions = rng.normal(size=(rounds, 4))
    actions = np.column_stack([actions / np.linalg.norm(actions, axis=1, keepdims=True), np.ones(rounds)])
    sources = rng.integers(0, 5, rounds)
    means = actions @ [0.5, 0.3, -0.2, 0.4, 0.2] + drift * actions[:, 0] * np.linspace(-1.0, 1.0, rounds)
    means = means + differs * actions[:, 0] * (sources == 0)
    rewards = means + 0.05 * rng.normal(size=rounds)
    monitor = CorruptionMonitor(dim=5, noise=0.05, sources=10, block=1 << 13)  # sources alone, for speed
    monitor.observe_log(actions, rewards, source=sources.astype(str))
    return monitor.certificate().suspect, Labelled(actions, rewards, sources)


@pytest.mark.no_cover
def test_a_drift_that_was_declared_away_names_nobody() -> None:
    for seed in (10, 44):
        suspect, rounds = watched(seed, drift=0.35)
        assert suspect is not None and not stands_out(rounds, int(suspect))


@pytest.mark.slow
@pytest.mark.parametrize(("streams", "how"), [(150, {"drift": 0.35}), (20, {"differs": 0.1})])
def test_how_many_innocents_are_named(streams: int, how: dict[str, float]) -> None:
    found = [watched(seed, **how) for seed in range(streams)]
    named = [(int(suspect), rounds) for suspect, rounds in found if suspect is not None]
    left = sum(stands_out(rounds, suspect) for suspect, rounds in named)
    print(f"{how}: {len(named)} of {streams} named, {left} of them stand out")
    if "drift" in how:
        assert len(named) > 0.05 * streams and left <= 0.06 * streams  # 0.02, and three standard errors
    else:
        assert left == streams  # no shuffling tells a source that differs from one that lies


def test_a_long_log_is_read_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placebo, "_MOST", 1000)
    number, first = PIECE + 4321, 64
    with StoredRounds() as rounds:
        names = np.array(["a", "b", "c"], dtype=object)[np.arange(number) % 3]
        rounds.append(np.arange(float(number))[:, None], np.arange(float(number)), np.full(number, 2.0), names)
        scaling = Scaling(np.zeros(1), np.ones(1))
        found = read_labelled(rounds, scaling, lambda rewards: rewards, first=first, sources=2)
    step = -(-(number - first) // 1000)
    rows = np.arange(first, number, step)
    assert np.array_equal(found.rewards, rows / 2.0) and np.array_equal(found.actions[:, 0], rows / 2.0)
    assert np.array_equal(found.sources, rows % 3) and len(rows) <= 1000
