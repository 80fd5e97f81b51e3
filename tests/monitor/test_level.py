"""How often clean streams are accused, linear or off by all of ζ, at δ = 0.05 and 0.5; and that this test can fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from monitor_oracles import Array
from scipy import stats

from robandit import CorruptionMonitor
from robandit.monitor.single_rounds import Rounds, prove_by_rounds
from thinned import thinned

ZETA = 0.1
WORLDS = ["linear", "sources", "signs", "halves", "days", "clicks", "constant", "constant clicks"]
CLICKS = ("clicks", "constant clicks")


def worlds(kind: str, rng: np.random.Generator, trials: int, t: int, rounds: int) -> tuple[Array, Array, str]:
    """Actions, honest rewards and the source of a round, in many streams at once: off by ±ζ all the time."""
    dim, source = 2, "a" if rng.random() < 0.5 else "b"
    axis = rng.integers(0, dim, trials)
    actions = np.eye(dim)[axis] * rng.choice([-1.0, 1.0], trials)[:, None]
    if kind in CLICKS:
        actions = np.abs(actions)
    if "constant" in kind:  # a column that stands out
        actions[:, 1] = 1.0
    if kind in CLICKS:
        clicked = rng.random(trials) < np.where(axis == 0, 0.05, 0.02)
        return actions, clicked.astype(float), source
    if kind == "sources":
        actions = np.abs(actions)
    way = actions.sum(axis=1)  # what bends all sums the same way
    side = {"linear": 0.0, "halves": 1.0 if 2 * t < rounds else -1.0, "days": float(np.sign(np.sin(t / 20.0)))}
    if kind in ("sources", "constant"):
        bias = np.full(trials, 1.0 if source == "a" else -1.0)  # +ζ in one source, −ζ in the other
    elif kind == "signs":
        bias = way if source == "a" else -way
    else:
        bias = side[kind] * way
    noise = 0.05 * rng.choice([-1.0, 1.0], trials)
    return actions, actions @ [0.6, -0.4] + ZETA * bias + noise, source


def accused(kind: str, trials: int, rounds: int, delta: float, **settings: Any) -> Array:
    """Whether each of many clean streams was ever accused."""
    rng = np.random.default_rng([WORLDS.index(kind), trials, rounds])
    known: dict[str, Any] = {"noise": 0.05, "misspecification": 0.0 if kind == "linear" else ZETA}
    if kind in CLICKS:
        known = {"reward_range": (0.0, 1.0), "highest_mean": 0.05}
    monitor = CorruptionMonitor(dim=2, trials=trials, sources=2, delta=delta, **known | settings)
    looks, wrong = {int(t) for t in np.geomspace(20, rounds, 8)}, np.zeros(trials, bool)
    for t in range(1, rounds + 1):
        actions, rewards, source = worlds(kind, rng, trials, t, rounds)
        monitor.observe(actions, rewards, source=source)
        if t in looks:
            wrong |= monitor.lower_bounds() > 0.0
    return wrong


def at_least(wrong: Array) -> float:
    """With 99 % confidence the probability of an accusation is no lower (Clopper and Pearson)."""
    hits = int(np.count_nonzero(wrong))
    return float(stats.beta.ppf(0.01, hits, len(wrong) - hits + 1)) if hits else 0.0


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", thinned(WORLDS, fast=["linear", "signs", "clicks", "constant clicks"]))
def test_clean_streams_are_seldom_accused(kind: str) -> None:
    for delta in (0.05, 0.5):
        assert at_least(accused(kind, 100, 200, delta)) <= delta


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.05, 0.5])
@pytest.mark.parametrize("kind", WORLDS)
def test_thousands_of_clean_streams_are_seldom_accused(kind: str, delta: float) -> None:
    wrong = accused(kind, 2000, 2000 if kind in CLICKS else 600, delta)
    print(f"{kind}, delta {delta}: {np.count_nonzero(wrong)} of {len(wrong)}")
    assert at_least(wrong) <= delta


@pytest.mark.parametrize(
    "kind", thinned(["sources", "signs", "halves", "days", "constant"], fast=["signs", "constant"])
)
@pytest.mark.no_cover
def test_a_tolerance_that_is_too_small_is_caught(kind: str) -> None:
    assert at_least(accused(kind, 100, 250, 0.05, misspecification=0.4 * ZETA)) > 0.5


@pytest.mark.parametrize("kind", thinned(["linear", "clicks", "constant clicks"], fast=["clicks"]))
@pytest.mark.no_cover
def test_a_radius_that_is_too_small_is_caught(kind: str) -> None:
    assert at_least(accused(kind, 100, 250, 0.05, radius_scale=0.25)) > 0.05


def excess(trials: int, delta: float, zeta: float, scale: float = 1.0) -> Array:
    """Whether single rounds accuse each of many clean streams, off by ±ζ."""
    rng, found = np.random.default_rng(7), []
    for _ in range(trials):
        actions = rng.choice([-1.0, 1.0], (300, 2))
        noise = 0.05 * rng.normal(size=300)
        bias = ZETA * rng.choice([-1.0, 1.0], 300)
        rounds = Rounds(actions, actions @ [0.6, -0.4] + bias + noise, np.full(300, 0.05), zeta)
        found.append(prove_by_rounds(rounds, delta, scale)[0] > 0.0)
    return np.array(found)


@pytest.mark.slow
@pytest.mark.parametrize("delta", [0.05, 0.5])
def test_single_rounds_seldom_accuse_clean_streams(delta: float) -> None:
    wrong = excess(2000, delta, ZETA)
    print(f"single rounds, delta {delta}: {np.count_nonzero(wrong)} of {len(wrong)}")
    assert at_least(wrong) <= delta


def test_single_rounds_without_the_tolerance_are_caught() -> None:
    assert at_least(excess(30, 0.05, 0.0)) > 0.5
