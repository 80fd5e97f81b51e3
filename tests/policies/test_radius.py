"""The radii against the equations as printed, written out."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robandit.policies import radius


def setting(d: int, R: float, A: float, B: float, delta: float, lam: float, floor: float) -> radius.Setting:
    return radius.Setting(d, R, A, B, delta, lam, floor)


positive = st.floats(0.01, 100.0)
problems = st.tuples(st.integers(1, 200), positive, positive, positive, st.floats(1e-6, 0.9), positive)


@settings(derandomize=True, deadline=None)
@given(problems, st.integers(1, 10**7), st.floats(0.0, 1e6))
def test_alpha_as_printed(problem: tuple[int, float, float, float, float, float], t: int, corruption: float) -> None:
    d, R, A, B, delta, lam = problem
    log = math.log(4 * t**2 / delta)
    growth = math.log(((R + 1) ** 2 * lam + t * A**2) / ((R + 1) ** 2 * lam))
    printed = 8 * math.sqrt(d * growth * log) + 4 * math.sqrt(d) * log + corruption * math.sqrt(d) + math.sqrt(lam) * B
    ours = radius.alpha(setting(*problem, (R + 1) / math.sqrt(d)), t, corruption)
    assert ours == pytest.approx(printed, rel=1e-10)


@settings(derandomize=True, deadline=None)
@given(problems, st.integers(1, 10**6), st.integers(1, 30), st.integers(1, 10**6))
def test_beta_and_gamma_as_printed(
    problem: tuple[int, float, float, float, float, float], t: int, level: int, T: int
) -> None:
    d, R, A, B, delta, lam = problem
    growth = math.log(((R + 1) ** 2 * lam + t * A**2) / ((R + 1) ** 2 * lam))
    end, whole = math.sqrt(lam) * B, setting(*problem, (R + 1) / math.sqrt(d))
    log = math.log(4 * t**2 / delta)
    beta = 8 * math.sqrt(d * growth * log) + 4 * math.sqrt(d) * log + 2**level * math.sqrt(d) + end
    assert radius.beta(whole, t, level) == pytest.approx(beta, rel=1e-10)
    log = math.log(8 * t**2 * T / delta)
    c_bar = math.log(2 * level**2 / delta) + 3
    gamma = 8 * math.sqrt(d * growth * log) + 4 * math.sqrt(d) * log + c_bar * math.sqrt(d) + end
    assert radius.gamma(whole, t, level, T) == pytest.approx(gamma, rel=1e-10)


@settings(derandomize=True, deadline=None)
@given(problems, st.integers(1, 10**6), positive)
def test_weighted_oful_as_printed(problem: tuple[int, float, float, float, float, float], t: int, floor: float) -> None:
    d, R, A, B, delta, lam = problem
    log = math.log(4 * t**2 / delta)
    spread = 8 * math.sqrt(d * math.log(1 + t * A**2 / (floor**2 * d * lam)) * log)
    printed = spread + 4 * R / floor * log + math.sqrt(lam) * B
    assert radius.weighted_oful(setting(*problem, floor), t) == pytest.approx(printed, rel=1e-10)


def test_oful_as_printed() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(7, 3))
    sigma = 0.5 * np.eye(3) + rows.T @ rows
    printed = 0.3 * math.sqrt(2 * math.log(np.linalg.det(sigma) ** 0.5 * (0.5**3) ** -0.5 / 0.01)) + math.sqrt(0.5) * 2
    ours = radius.OFULRadius(setting(3, 0.3, 1.0, 2.0, 0.01, 0.5, 1.0))(np.array([np.linalg.slogdet(sigma)[1]]))
    assert ours == pytest.approx(printed, rel=1e-12)


def test_table_looks_up_what_would_be_computed() -> None:
    table = radius.Table(lambda t: np.log(t + 1.0))
    for t in ([1, 1, 1], [4095, 4096, 1], [10**7], [1, 5000, 9000]):
        assert np.array_equal(table(np.array(t)), np.log(np.array(t) + 1.0))
