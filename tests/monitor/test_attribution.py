"""Who is named: the liar or nobody, whatever share of the traffic is the liar's."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from robandit import CorruptionMonitor
from thinned import thinned

NAMES = [f"s{place}" for place in range(10)]


class Outcome(NamedTuple):
    """Of how many streams something was proved, and the right or a wrong source named."""

    streams: int
    proved: int
    right: int
    wrong: int


def play(seed: int, share: float, number: int, kind: str) -> tuple[str | None, float]:
    """A stream with a source that lies, `s0`, in this share of the traffic: who is named, and how much is proved."""
    rng, rounds, dim = np.random.default_rng([seed, number]), 6000, 5
    lying = rng.random(rounds) < share
    source = np.where(lying, "s0", np.array(NAMES)[rng.integers(1, number, rounds)])
    actions = rng.normal(size=(rounds, dim))
    actions /= np.linalg.norm(actions, axis=1, keepdims=True)
    settings: dict[str, Any] = {"noise": 0.05}
    if kind == "clicks":
        actions = np.column_stack([np.abs(actions[:, 1:]), np.ones(rounds)])
        rewards = (rng.random(rounds) < actions @ np.array([0.1, 0.1, 0.05, 0.0, 0.05])).astype(float)
        rewards[lying & (actions[:, 0] > 0.4) & (rng.random(rounds) < rng.uniform(0.2, 1.0))] = 1.0  # bots click
        settings = {"reward_range": (0.0, 1.0)}
    else:
        mu = rng.normal(size=dim)
        means = actions @ (mu / np.linalg.norm(mu))
        part = 1.0 if kind == "flips" else rng.uniform(0.01, 0.3)
        means = np.where(lying & (rng.random(rounds) < part), -means, means)
        rewards = means + 0.05 * rng.normal(size=rounds)
    monitor = CorruptionMonitor(dim=dim, sources=number, block=1 << 13, **settings)  # sources alone, for speed
    monitor.observe_log(actions, rewards, source=source)
    found = monitor.certificate()
    return found.suspect, found.lower_bound


def outcome(streams: int, share: float, number: int, kind: str) -> Outcome:
    found = [play(seed, share, number, kind) for seed in range(streams)]
    named = [suspect for suspect, _ in found if suspect is not None]
    right = sum(suspect == "s0" for suspect in named)
    return Outcome(streams, sum(proved > 0.0 for _, proved in found), right, len(named) - right)


CELLS = [(share, number, kind) for kind in ("flips", "some", "clicks") for number in (3, 10) for share in (0.1, 0.3)]


@pytest.mark.parametrize(("share", "number", "kind"), CELLS[::6])
@pytest.mark.no_cover
def test_the_liar_is_named(share: float, number: int, kind: str) -> None:
    found = outcome(3, share, number, kind)
    assert found.wrong == 0 and found.proved > 0 and found.right >= 0.8 * found.proved


@pytest.mark.parametrize("number", thinned([2, 3, 10], fast=[2, 3]))
@pytest.mark.no_cover
def test_nobody_is_named_where_the_liar_has_most_of_the_traffic(number: int) -> None:
    found = outcome(2, 0.7, number, "flips")
    assert (found.proved, found.right, found.wrong) == (2, 0, 0)


@pytest.mark.no_cover
def test_two_sources_can_not_be_told_apart() -> None:
    found = outcome(5, 0.1, 2, "flips")
    assert (found.proved, found.right, found.wrong) == (5, 0, 0)


@pytest.mark.no_cover
def test_an_honest_drift_names_nobody() -> None:
    rng = np.random.default_rng(3)
    actions = rng.normal(size=(6000, 3))
    mean = actions @ [0.6, 0.3, 0.5] * np.linspace(1.0, 0.5, 6000)
    source = np.where(np.arange(6000) > 3000 * rng.random(6000), "new", rng.choice(["a", "b"], 6000))
    monitor = CorruptionMonitor(dim=3, noise=0.05, sources=4)
    monitor.observe_log(actions, mean + 0.05 * rng.normal(size=6000), source=source)
    found = monitor.certificate()
    assert found.lower_bound > 0.0 and found.suspect is None


@pytest.mark.slow
@pytest.mark.parametrize(("share", "number", "kind"), CELLS)
def test_the_liar_is_named_in_many_streams(share: float, number: int, kind: str) -> None:
    found = outcome(300, share, number, kind)
    assert found.wrong <= 6 and found.right >= 0.8 * found.proved


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["flips", "some", "clicks"])
@pytest.mark.parametrize("number", [2, 3, 10])
def test_in_many_streams_nobody_is_named_where_the_liar_has_most_of_the_traffic(number: int, kind: str) -> None:
    found = outcome(300, 0.7, number, kind)
    assert found.right + found.wrong <= 6
