"""The proof by single rounds against a linear program, its bound on honest excess, and whether it keeps its word."""

from __future__ import annotations

import numpy as np
import pytest
from monitor_oracles import Array
from scipy import integrate, optimize, stats

from robandit.monitor import single_rounds
from robandit.monitor.single_rounds import Rounds, honest_excess, prove_by_rounds


def stream(seed: int, lies: int, *, rounds: int = 400, dim: int = 4, noise: float = 0.05) -> tuple[Rounds, float]:
    """Rounds of which some, drawn at random, have the other sign; and Σ|c|."""
    rng = np.random.default_rng([seed, lies])
    actions, mu = rng.normal(size=(rounds, dim)), rng.normal(size=dim)
    actions /= np.linalg.norm(actions, axis=1, keepdims=True)
    means = actions @ (mu / np.linalg.norm(mu))
    altered = np.zeros(rounds)
    altered[rng.permutation(rounds)[:lies]] = -2.0
    rewards = means * (1.0 + altered) + noise * rng.normal(size=rounds)
    return Rounds(actions, rewards, np.full(rounds, noise)), float(np.abs(altered * means).sum())


def least(rounds: Rounds, tolerance: float) -> float:
    """min Σ x over x ≥ ±(r − ⟨a, μ⟩) − ζ − ks, x ≥ 0, by a simplex method."""
    n, d = rounds.actions.shape
    slack = rounds.misspecification + tolerance * rounds.noise
    limits = np.block([[-rounds.actions, -np.eye(n)], [rounds.actions, -np.eye(n)]])
    right = np.concatenate([slack - rounds.rewards, slack + rounds.rewards])
    cost = np.concatenate([np.zeros(d), np.ones(n)])
    ends = [(None, None)] * d + [(0.0, None)] * n
    return float(optimize.linprog(cost, limits, right, bounds=ends, method="highs").fun)


@pytest.mark.parametrize("zeta", [0.0, 0.05])
@pytest.mark.parametrize("lies", [0, 5, 40, 120])
def test_the_dual_value_is_the_minimum_of_a_linear_program(lies: int, zeta: float) -> None:
    rounds = stream(lies, lies)[0]._replace(misspecification=zeta)
    square = rounds.actions.T @ rounds.actions
    for tolerance in (2.0, 3.0, 4.0):
        point = single_rounds._descend(rounds, np.zeros(4), tolerance, square)
        found, optimum = single_rounds._dual(rounds, point, tolerance, square), least(rounds, tolerance)
        assert found <= optimum * (1 + 1e-9) + 1e-9
        assert found >= 0.98 * optimum - 0.02  # the hinges are a little smooth


@pytest.mark.parametrize("seed", range(5))
def test_any_point_gives_a_value_below_the_minimum(seed: int) -> None:
    rounds, rng = stream(seed, 60)[0], np.random.default_rng(seed)
    square, optimum = rounds.actions.T @ rounds.actions, least(rounds, 2.0)
    for size in (0.0, 0.01, 0.3, 3.0):
        point = single_rounds._descend(rounds, np.zeros(4), 2.0, square) + size * rng.normal(size=4)
        assert single_rounds._dual(rounds, point, 2.0, square) <= optimum * (1 + 1e-9)


def test_the_moment_of_the_excess_is_bounded() -> None:
    for rate in (0.5, 1.0, 3.0):
        for tolerance in (2.0, 3.5):
            # The worst tail that a sub-Gaussian variable may have is 2 exp(−x²/2); a normal one is far inside.
            worst, _ = integrate.quad(
                lambda x, u=rate, k=tolerance: u * np.exp(u * x) * 2.0 * np.exp(-((k + x) ** 2) / 2.0), 0.0, 40.0
            )
            assert single_rounds._moment(rate, tolerance) == pytest.approx(1.0 + worst, rel=1e-6)
    normal = stats.norm.expect(lambda z: np.exp(np.maximum(np.abs(z) - 2.0, 0.0)), lb=-30.0, ub=30.0)
    assert normal < single_rounds._moment(1.0, 2.0)


def test_many_scales_are_rounded_up() -> None:
    noise = np.linspace(0.1, 1.0, 5000)
    few = np.repeat(np.linspace(0.1, 1.0, 500), 10)
    assert honest_excess(few, 2.5, 0.01) <= honest_excess(noise, 2.5, 0.01) <= 1.2 * honest_excess(few, 2.5, 0.01)


def shares(trials: int, delta: float, lies: int, scale: float = 1.0) -> Array:
    """How much is proved, for each of many streams, in units of what is true; above 1 is too much."""
    found = []
    for seed in range(trials):
        rounds, truth = stream(seed, lies, rounds=300)
        found.append(prove_by_rounds(rounds, delta, scale)[0] / max(truth, 1e-3))
    return np.array(found)


def test_scattered_lies_are_found() -> None:
    found = shares(20, 0.01, 15)
    assert np.median(found) > 0.5 and found.max() < 1.0


def test_clean_rounds_prove_nothing_and_a_broken_bound_is_caught() -> None:
    assert not shares(60, 0.5, 0).any()
    assert (shares(20, 0.5, 0, scale=0.01) > 0).mean() > 0.5
