"""Norms in which one column stands out: their lengths, their radii for rare events, and what they are for."""

from __future__ import annotations

import math

import numpy as np
import pytest
from monitor_oracles import POWERS, Array, SlowGroup, prior, rank
from test_contradiction import as_groups

from robandit import CorruptionMonitor
from robandit.monitor.norms import _stretched
from robandit.monitor.radii import Assumptions, RareEvents, Spectra
from thinned import longer

BLUNT = 1.0 / 16.0


def spectra(group: SlowGroup, assumed: Assumptions) -> tuple[Spectra, SlowGroup, Array, int]:
    """The norms of one group, the group in their coordinates, their factors, and the column that stands out."""
    own, _, guess, stretch = _stretched(as_groups([[group]]), assumed, np.zeros((1, group.dim)))
    factor = stretch.factor[0, 0]
    scaled = SlowGroup(group.actions * factor, group.rewards, group.scales, group.length, float(own.share[0, 0]))
    return Spectra(own, assumed, guess, stretch), scaled, factor, int(stretch.column[0])


def features(rng: np.random.Generator, rounds: int, size: float) -> Array:
    """Columns of all kinds, one of them constant, and one ``size`` times as large as that."""
    return np.column_stack(
        [size * rng.uniform(-1.0, 1.0, rounds), np.ones(rounds), rng.integers(0, 2, rounds), rng.normal(size=rounds)]
    )


@pytest.mark.parametrize("size", [0.01, 1.0, 30.0, 1e4, 1e9])
def test_a_constant_is_found_and_no_lie_moves_more_than_kappa(size: float) -> None:
    rng = np.random.default_rng(int(size))
    for rounds in (1, 5, 300):
        group = SlowGroup(features(rng, rounds, size), np.zeros(rounds), np.full(rounds, 0.5), 64.0, 0.25)
        found, scaled, factor, column = spectra(group, Assumptions(noise=0.5, delta=0.05))
        assert factor[column] == 1.0 and (np.delete(factor, column) <= 2.0**-7).all()
        if rounds == 300:
            assert column == 1
        for place, power in enumerate(POWERS):
            exact = scaled.leverage(scaled.lam(power, 0.5))
            assert exact * (1 - 1e-9) <= found._slope[0, 0, place]
            if rounds == 300 and power >= 0 and size <= 30.0:  # where it is used
                assert found._slope[0, 0, place] <= 1.1 * exact


def test_the_shares_of_all_columns_and_steps_add_up_to_a_quarter() -> None:
    for dim in (1, 2, 7):
        total = sum(0.25 * rank(dim - 1 - column) * rank(step) for column in range(dim) for step in range(7))
        assert total <= 0.25
    rng = np.random.default_rng(1)
    for column in range(4):
        actions = rng.uniform(-1.0, 1.0, (50, 4))
        actions[:, column] = 3.0
        for size, step in ((1.0, 0), (100.0, 2)):
            large = actions * np.where(np.arange(4) == column, 1.0, size)
            group = SlowGroup(large, np.zeros(50), np.ones(50), 64.0, 0.25)
            found = spectra(group, Assumptions(noise=1.0, delta=0.05))
            assert found[3] == column
            assert found[1].share == pytest.approx(0.25 * 0.25 * rank(3 - column) * rank(step - (size == 100.0)))


def slow_radius(group: SlowGroup, column: int, rest: float, rare: RareEvents, lam: float, failure: float) -> float:
    """The least radius of all that hold, m by m, in the group's own coordinates: other directions count a sixteenth."""
    paid = group.rho(lam, failure) ** 2
    found = [math.sqrt(paid + 2.0 * math.log(4.0))]
    inverse, weight = np.linalg.inv(group.gram + lam * np.eye(group.dim)), rare.scale**-2.0
    blunt = np.full(group.dim, BLUNT)
    blunt[column] = 1.0
    across, widest = float(np.linalg.norm(np.delete(inverse[column], column))), float(np.linalg.eigvalsh(inverse)[-1])
    spread = min(widest, float(inverse[column, column]) + 2.0 * BLUNT * across + BLUNT**2 * widest)
    assert spread >= np.linalg.eigvalsh(inverse * blunt * blunt[:, None])[-1] * (1 - 1e-9)
    longest = math.hypot(float(group.peaks[column]), rest / BLUNT) / weight
    assert longest >= np.linalg.norm(group.actions / blunt, axis=1).max() * (1 - 1e-9)
    for step in (0.5, 1.0, 2.0):
        growth = 2.0 * (math.exp(step) - 1.0 - step) / step**2
        gain = rare.scale**2 / (rare.width**2 * rare.share * growth)
        power = math.floor(math.log2(step / longest))
        room = 0.5 * (2.0**power / (gain * weight * rare.width)) * math.sqrt(gain / spread)
        ratio = max(1.0, room**2 / group.dim)
        inside = 1.0 - math.exp(-0.5 * group.dim * (ratio - 1.0 - math.log(ratio)))
        own = math.sqrt(paid + 2.0 * math.log(1.0 / (0.25 * prior(power) * max(inside, 0.5))))
        if gain > 1.0 and own <= room and inside >= 0.5:
            found.append(own / math.sqrt(gain))
    return min(found)


@pytest.mark.parametrize("rounds", [50, 2000, 60_000])
def test_the_radius_for_rare_events_is_the_least_that_holds(rounds: int) -> None:
    rare, rng = RareEvents(1.0, 0.05), np.random.default_rng(rounds)
    actions = np.column_stack([rng.uniform(0.0, 1.0, (rounds, 3)), np.ones(rounds)])
    group = SlowGroup(actions, np.zeros(rounds), np.full(rounds, rare.scale), 1024.0, 0.25)
    assumed = Assumptions(noise=rare.scale, delta=0.05, parameter_bound=1e-9, rare=rare)
    found, scaled, _, column = spectra(group, assumed)
    slow = []
    for power in POWERS:
        lam, failure = scaled.lam(power, rare.scale), 0.05 * scaled.share * prior(power)
        slow.append(slow_radius(scaled, column, group.reach / 128.0, rare, lam, failure))
    assert found._radius[0, 0] == pytest.approx(slow, rel=1e-6)


def clicks(seed: int, rounds: int, bots: float) -> tuple[Array, Array, Array, float]:
    """Clicks of three publishers, one of them with bots who click on some ads; and how many clicks they add."""
    rng = np.random.default_rng([seed, rounds])
    actions = np.column_stack([rng.uniform(0.0, 1.0, (rounds, 3)), np.ones(rounds)])
    publisher, honest = rng.integers(0, 3, rounds), rng.random(rounds) < 0.05 * (actions @ [0.3, 0.2, 0.1, 0.4])
    clicked = honest | ((publisher == 2) & (actions[:, 0] > 0.5) & (rng.random(rounds) < bots))
    return actions, clicked.astype(float), publisher.astype(str), float((clicked & ~honest).sum())


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("rounds", "bots", "least"), longer((20_000, 0.3, 0.65), (60_000, 0.1, 0.45), (60_000, 0.3, 0.8))
)
def test_most_of_the_clicks_that_bots_add_are_proved(rounds: int, bots: float, least: float) -> None:
    actions, rewards, publisher, added = clicks(1, rounds, bots)
    monitor = CorruptionMonitor(dim=4, sources=3, block=1 << 20, reward_range=(0.0, 1.0), highest_mean=0.05)
    monitor.observe_log(actions, rewards, source=publisher)
    assert least * added < monitor.certificate().lower_bound < added
    assert monitor.certificate().suspect == "2"
