"""The radii of rare events: the inequalities that they rest on, and the definition done slowly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from monitor_oracles import POWERS, SlowGroup, prior
from scipy import stats
from test_contradiction import as_groups

from robandit import CorruptionMonitor
from robandit.monitor.radii import Assumptions, RareEvents, Spectra


def log_moment(rate: float, exponent: float) -> float:
    """log E exp(y(X − q)) for a click X of rate q."""
    return math.log1p(rate * math.expm1(exponent)) - exponent * rate


@pytest.mark.no_cover
@pytest.mark.parametrize("cap", [0.01, 0.05, 0.2, 0.45, 0.5, 0.9])
def test_the_scale_is_sub_gaussian_for_every_rate_below_the_cap(cap: float) -> None:
    scale = RareEvents(1.0, cap).scale
    worst = 0.0
    for rate in np.linspace(1e-4, cap, 200).tolist():
        for exponent in (*np.linspace(-12.0, -0.01, 200).tolist(), *np.linspace(0.01, 12.0, 200).tolist()):
            worst = max(worst, 2.0 * log_moment(rate, exponent) / exponent**2)
    assert worst <= scale**2 * (1.0 + 1e-9) and worst > 0.97 * scale**2
    assert RareEvents(3.0, cap).scale == pytest.approx(3.0 * scale)


@pytest.mark.parametrize("step", [0.25, 0.5, 1.0, 2.0])
def test_small_exponents_see_the_variance_alone(step: float) -> None:
    cap, growth = 0.05, 2.0 * (math.exp(step) - 1.0 - step) / step**2
    for rate in np.linspace(1e-4, cap, 50).tolist():
        for exponent in np.linspace(-step, step, 101).tolist():
            assert log_moment(rate, exponent) <= 0.5 * cap * growth * exponent**2 + 1e-12


def slow_radius(group: SlowGroup, rare: RareEvents, lam: float, failure: float) -> float:
    """The least radius of all that hold, m by m."""
    paid = group.rho(lam, failure) ** 2
    found = [math.sqrt(paid + 2.0 * math.log(4.0))]  # a quarter of δ, where all three m are worth it
    least, weight = float(np.linalg.eigvalsh(group.gram)[0]), rare.scale**-2.0
    for step in (0.5, 1.0, 2.0):
        growth = 2.0 * (math.exp(step) - 1.0 - step) / step**2
        gain = rare.scale**2 / (rare.width**2 * rare.share * growth)  # s²/s_m²
        power = math.floor(math.log2(step * weight / group.reach))  # r = 2^i/(w_m W), so that w_m r ‖a‖ W ≤ m
        room = 0.5 * (2.0**power / (gain * weight * rare.width)) * math.sqrt(gain * (least + lam))
        ratio = max(1.0, room**2 / group.dim)
        inside = 1.0 - math.exp(-0.5 * group.dim * (ratio - 1.0 - math.log(ratio)))
        assert inside <= stats.chi2.cdf(room**2, group.dim)
        own = math.sqrt(paid + 2.0 * math.log(1.0 / (0.25 * prior(power) * max(inside, 0.5))))
        if gain > 1.0 and own <= room and inside >= 0.5:
            found.append(own / math.sqrt(gain))  # in the units of V with the weights 1/s²
    return min(found)


@pytest.mark.parametrize("rounds", [50, 2000, 60_000])
@pytest.mark.parametrize("width", [1.0, 4.0])
def test_the_radius_is_the_least_that_holds(rounds: int, width: float) -> None:
    rare, rng = RareEvents(width, 0.05), np.random.default_rng(rounds)
    actions = rng.uniform(0.0, 1.0, (rounds, 3))
    group = SlowGroup(
        actions, np.where(rng.random(rounds) < 0.03, width, 0.0), np.full(rounds, rare.scale), 1024.0, 0.25
    )
    assumed = Assumptions(noise=rare.scale, delta=0.05, parameter_bound=1e-9, rare=rare)
    found = Spectra(as_groups([[group]]), assumed, np.zeros((1, 3)))._radius[0, 0]
    slow = [slow_radius(group, rare, group.lam(j, rare.scale), 0.05 * 0.25 * prior(j)) for j in POWERS]
    assert found == pytest.approx(slow, rel=1e-6)
    plain = [group.rho(group.lam(j, rare.scale), 0.05 * 0.25 * prior(j)) for j in POWERS]
    assert min(np.array(slow) / plain) < 0.85  # although δ is shared


def test_a_cap_needs_a_range_and_no_noise() -> None:
    with pytest.raises(ValueError, match="highest_mean needs reward_range"):
        CorruptionMonitor(dim=1, noise=0.5, highest_mean=0.05)
    with pytest.raises(ValueError, match="takes the place of noise"):
        CorruptionMonitor(dim=1, noise=0.5, highest_mean=0.05, reward_range=(0, 1))
    with pytest.raises(ValueError, match="highest_mean, as a share of the range"):
        CorruptionMonitor(dim=1, highest_mean=1.5, reward_range=(0, 1))
    monitor = CorruptionMonitor(dim=1, highest_mean=12.5, reward_range=(10, 60))
    assert monitor.noise_scale == pytest.approx(50 * 0.3911, rel=1e-3)
    with pytest.raises(ValueError, match="sigma can't be given with highest_mean"):
        monitor.observe([1.0], 10.0, sigma=1.0)
    again = CorruptionMonitor.from_state(monitor.state())
    assert again.noise_scale == monitor.noise_scale and again.noise is None
