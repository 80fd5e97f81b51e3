"""Tests of the trust-region problem in robandit.geometry.secular against answers found in other ways.

max xᵀQx + 2⟨p, x⟩ over ‖x‖ ≤ 1 is judged by: optima planted through their optimality conditions; the dual
min_ν ν + pᵀ(νI − Q)⁻¹p, whose every value is a proven upper bound; a semidefinite program (S-procedure); the
eigenvalue formulation of Adachi, Iwata, Nakatsukasa and Takeda; and brute force.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import cvxpy
import mpmath
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize
from geometry_oracles import Float, random_basis
from hypothesis import given
from hypothesis import strategies as st

from observed import repeatable, surplus
from robandit.geometry.secular import maximise_in_ball, secular

pytestmark = pytest.mark.no_cover  # other tests run these lines, and more quickly

cp: Any = cvxpy  # which exports its functions without types
TOLERANCE = 1e-8  # relative, as asked of the optimality conditions
TINY = 1e-12  # relative, of values where the oracle is as good as that


# ----------------------------------------------------------------------------------------------- problems


@dataclass(frozen=True)
class Problem:
    """Maximise xᵀQx + 2⟨p, x⟩ over the unit ball; Q = V diag(values) Vᵀ, leading eigenvalue last."""

    quadratic: Float
    linear: Float
    vectors: Float
    values: Float

    @property
    def dim(self) -> int:
        return len(self.linear)

    @property
    def scale(self) -> float:
        """What errors are measured against."""
        return float(self.values[-1] + np.linalg.norm(self.linear)) or 1.0

    def value(self, x: Float) -> Float:
        """The objective, for points (..., d)."""
        return np.vecdot(x @ self.quadratic, x) + 2 * x @ self.linear


def problem(vectors: Float, values: Float, linear: Float) -> Problem:
    quadratic = (vectors * values) @ vectors.T
    return Problem((quadratic + quadratic.T) / 2, linear, vectors, values)


SPECTRA = ("random", "repeated", "nearly repeated", "rank one", "constant", "zero")


def spectrum(rng: np.random.Generator, dim: int, kind: str) -> Float:
    """Eigenvalues ≥ 0, rising."""
    values = np.sort(rng.uniform(0, 1, dim) ** rng.integers(1, 5))
    if kind == "repeated":
        values[-rng.integers(1, dim + 1) :] = 1.0
    elif kind == "nearly repeated":
        values[-rng.integers(1, dim + 1) :] = 1.0
        values[-1] += 1e-13
    elif kind == "rank one":
        values[:-1] = 0.0
    elif kind == "constant":
        values[:] = 1.0
    elif kind == "zero":
        values[:] = 0.0
    return values


@st.composite
def bodies(draw: st.DrawFn) -> tuple[np.random.Generator, Float, Float]:
    """A generator, eigenvectors and eigenvalues."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dim = draw(st.integers(1, 10))
    values = spectrum(rng, dim, draw(st.sampled_from(SPECTRA))) * 10.0 ** draw(st.integers(-6, 6))
    vectors = np.eye(dim) if draw(st.booleans()) else random_basis(rng, dim)
    return rng, vectors, values


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Easy, hard, nearly hard and degenerate problems."""
    rng, vectors, values = draw(bodies())
    dim = len(values)
    inner = rng.normal(size=dim) * 10.0 ** draw(st.integers(-12, 3)) * (values[-1] or 1.0)
    kind = draw(st.sampled_from(["easy", "zero", "hard", "nearly hard", "axis"]))
    if kind == "zero":
        inner[:] = 0.0
    elif kind == "hard":
        inner[values == values[-1]] = 0.0
    elif kind == "nearly hard":
        inner[-1] = 1e-12 * np.linalg.norm(inner)
    elif kind == "axis":
        inner[np.arange(dim) != rng.integers(dim)] = 0.0
    return problem(vectors, values, vectors @ inner)


@st.composite
def planted(draw: st.DrawFn) -> tuple[Problem, float]:
    """A problem and its value, known since x with ‖x‖ = 1 and (νI − Q)x = p, ν ≥ λ_max, is optimal.

    An excess of 0 is the hard case, one of 1e-12 nearly so.
    """
    rng, vectors, values = draw(bodies())
    x = rng.normal(size=len(values))
    if draw(st.booleans()):
        x[-1] *= 1e-6
    x /= np.linalg.norm(x)
    excess = draw(st.sampled_from([0.0, 1e-12, 1e-6, 1e-2, 1.0, 1e3])) * (values[-1] or 1.0)
    inner = (excess + values[-1] - values) * x
    return problem(vectors, values, vectors @ inner), float(np.sum(values * x**2) + 2 * inner @ x)


# ----------------------------------------------------------------------------------------------- oracles


def dual_bound(task: Problem) -> float:
    """min over ν > λ_max of ν + pᵀ(νI − Q)⁻¹p, a proven upper bound that strong duality makes tight; 30 digits."""
    with mpmath.workdps(30):
        values, vectors = mpmath.eigsy(mpmath.matrix(task.quadratic.tolist()))
        squares = [c**2 for c in (vectors.T * mpmath.matrix(task.linear.tolist()))]
        top, unit = max(values), mpmath.mpf(task.scale)

        def slope(excess: mpmath.mpf) -> mpmath.mpf:
            return 1 - sum(s / (top + excess - v) ** 2 for s, v in zip(squares, values, strict=True))

        low, high = mpmath.log(unit) - 60, mpmath.log(unit) + 2  # of log(ν − λ_max)
        for _ in range(90):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(mpmath.exp(middle)) < 0 else (low, middle)
        excess = mpmath.exp(high)
        return float(top + excess + sum(s / (top + excess - v) for s, v in zip(squares, values, strict=True)))


def semidefinite_bound(task: Problem) -> float:
    """The S-procedure: the least t with [[νI − Q, −p], [−pᵀ, t − ν]] ⪰ 0 for some ν ≥ 0."""
    nu, t = cp.Variable(nonneg=True), cp.Variable((1, 1))
    p = task.linear[:, None] / task.scale
    matrix = cp.bmat([[nu * np.eye(task.dim) - task.quadratic / task.scale, -p], [-p.T, t - nu]])
    search = cp.Problem(cp.Minimize(t[0, 0]), [matrix >> 0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "may be inaccurate" at these tolerances: the comparison decides
        search.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return float(t.value[0, 0]) * task.scale


def eigenvalue_multiplier(task: Problem) -> float:
    """ν as the largest real eigenvalue of [[Q, ppᵀ], [I, Q]]: no secular equation and no iteration of ours."""
    q, p = task.quadratic / task.scale, task.linear / task.scale
    found = scipy.linalg.eigvals(np.block([[q, np.outer(p, p)], [np.eye(task.dim), q]]))
    return float(found.real.max()) * task.scale


def brute_force(task: Problem, rng: np.random.Generator, starts: int = 500) -> float:
    """The best of many random points, each improved by x ← (Qx + p)/‖Qx + p‖, which never lowers a convex value."""
    x = rng.normal(size=(starts, task.dim))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    best = task.value(x).max()
    for _ in range(300):
        up = x @ task.quadratic + task.linear
        sizes = np.linalg.norm(up, axis=1, keepdims=True)
        x = np.where(sizes > 0, up / np.where(sizes > 0, sizes, 1.0), x)
    return float(max(best, task.value(x).max()))


def check_conditions(task: Problem, x: Float) -> None:
    """‖x‖ = 1, (νI − Q)x = p and ν ≥ λ_max: together they prove that x is a global maximiser."""
    assert surplus("‖x‖ − 1", abs(np.linalg.norm(x) - 1)) <= 1e-12
    up = task.quadratic @ x + task.linear
    nu = x @ up
    assert surplus("(νI − Q)x − p", np.linalg.norm(nu * x - up) / task.scale) <= TOLERANCE
    assert surplus("λ_max − ν", (np.linalg.eigvalsh(task.quadratic)[-1] - nu) / task.scale) <= TOLERANCE


# ------------------------------------------------------------------------------------------ trust region


@repeatable(250)
@given(task=problems())
def test_optimality_conditions(task: Problem) -> None:
    """In every case, hard ones included."""
    check_conditions(task, maximise_in_ball(task.quadratic, task.linear))


@repeatable(100)
@given(task=problems())
def test_value_equals_the_dual(task: Problem) -> None:
    """No gap between the value found and a proven upper bound."""
    value = task.value(maximise_in_ball(task.quadratic, task.linear))
    assert surplus("dual − value", abs(dual_bound(task) - value) / task.scale) <= TINY


@repeatable(250)
@given(case=planted())
def test_planted_optima(case: tuple[Problem, float]) -> None:
    """The value is known in advance."""
    task, value = case
    x = maximise_in_ball(task.quadratic, task.linear)
    assert surplus("planted − value", abs(task.value(x) - value) / task.scale) <= TINY
    check_conditions(task, x)


@repeatable(60)
@given(task=problems(), seed=st.integers(0, 1000))
def test_never_below_brute_force(task: Problem, seed: int) -> None:
    """Random points with local improvement find nothing better."""
    value = task.value(maximise_in_ball(task.quadratic, task.linear))
    better = brute_force(task, np.random.default_rng(seed)) - value
    assert surplus("brute force − value", better / task.scale) <= TINY


@pytest.mark.parametrize("seed", range(5))
def test_a_grid_in_the_plane(seed: int) -> None:
    """All directions of the plane, one by one."""
    rng = np.random.default_rng(seed)
    task = problem(random_basis(rng, 2), np.sort(rng.uniform(size=2)), 0.3 * rng.normal(size=2))
    angles = np.linspace(0, 2 * np.pi, 200_001)
    grid = task.value(np.stack([np.cos(angles), np.sin(angles)], axis=1)).max()
    value = task.value(maximise_in_ball(task.quadratic, task.linear))
    assert -1e-14 <= value - grid <= 1e-8


@pytest.mark.parametrize("dim", range(1, 11))
def test_against_a_semidefinite_program(dim: int) -> None:
    """The S-procedure is exact for a ball; two problems per dimension, the second of them hard."""
    rng = np.random.default_rng(dim)
    vectors, values = random_basis(rng, dim), np.sort(rng.uniform(size=dim))
    for hard in (False, True):
        inner = 0.3 * rng.normal(size=dim)
        inner[-1] *= not hard
        task = problem(vectors, values, vectors @ inner)
        value = task.value(maximise_in_ball(task.quadratic, task.linear))
        assert surplus("semidefinite − value", abs(semidefinite_bound(task) - value) / task.scale) <= TOLERANCE


@pytest.mark.parametrize("dim", range(1, 11))
def test_against_the_eigenvalue_formulation(dim: int) -> None:
    """The multiplier of easy problems, to the accuracy of an unsymmetric eigenvalue."""
    rng = np.random.default_rng(dim)
    for _ in range(20):
        task = problem(random_basis(rng, dim), np.sort(rng.uniform(size=dim)), rng.normal(size=dim))
        x = maximise_in_ball(task.quadratic, task.linear)
        nu = x @ (task.quadratic @ x + task.linear)
        assert surplus("ν against eigenvalues", abs(nu - eigenvalue_multiplier(task)) / task.scale) <= TOLERANCE


def test_one_dimension() -> None:
    """The interval: the end on p's side, either end if p = 0."""
    for p in (3.0, -3.0, 1e-200, -1e-200):
        assert maximise_in_ball(np.array([[2.0]]), np.array([p])).tolist() == [np.sign(p)]
    assert abs(maximise_in_ball(np.array([[2.0]]), np.zeros(1))[0]) == 1.0


@pytest.mark.parametrize("dim", [1, 2, 5, 10])
def test_linear_objectives(dim: int) -> None:
    """Q = 0: x = p/‖p‖; p = 0 as well: any unit vector."""
    p = np.random.default_rng(dim).normal(size=dim)
    for size in (1e-150, 1e-12, 1.0, 1e12):
        np.testing.assert_allclose(maximise_in_ball(np.zeros((dim, dim)), size * p), p / np.linalg.norm(p), rtol=1e-13)
    x = maximise_in_ball(np.zeros((dim, dim)), np.zeros(dim))
    assert abs(np.linalg.norm(x) - 1) <= 1e-12


@pytest.mark.parametrize("dim", [2, 5, 10])
@pytest.mark.parametrize("repeats", [1, 2])
def test_hard_case_by_hand(dim: int, repeats: int) -> None:
    """Q = diag(0, …, 1), p = e₀/2: x₀ = ½, the rest of the norm in the leading eigenspace; the value is 5/4."""
    values = np.zeros(dim)
    values[-repeats:] = 1.0
    if repeats == dim:  # then p is in the leading eigenspace: ν = 3/2, x = e₀
        expected, first = 2.0, 1.0
    else:
        expected, first = 1.25, 0.5
    task = problem(np.eye(dim), values, 0.5 * np.eye(dim)[0])
    x = maximise_in_ball(task.quadratic, task.linear)
    assert x[0] == pytest.approx(first, abs=1e-14)
    assert task.value(x) == pytest.approx(expected, abs=1e-14)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_nearly_hard_takes_the_side_of_the_linear_term(sign: float) -> None:
    """A component of 1e-12 along the leading eigenvector decides between two almost equal optima."""
    values = np.array([0.1, 0.4, 1.0])
    task = problem(np.eye(3), values, np.array([0.2, -0.1, sign * 1e-12]))
    x = maximise_in_ball(task.quadratic, task.linear)
    check_conditions(task, x)
    assert np.sign(x[2]) == sign
    assert x[:2] == pytest.approx([0.2 / 0.9, -0.1 / 0.6], rel=1e-10)


@pytest.mark.parametrize("dim", [1, 2, 3, 7, 10])
def test_a_batch_equals_its_members_singly(dim: int) -> None:
    """Bit for bit, whatever else is in the batch, with any number of batch axes."""
    rng = np.random.default_rng(dim)
    tasks = []
    for i in range(24):
        vectors, values = random_basis(rng, dim), spectrum(rng, dim, SPECTRA[i % len(SPECTRA)])
        inner = rng.normal(size=dim) * 10.0 ** rng.integers(-12, 3)
        inner[-1] *= rng.choice([0.0, 1e-12, 1.0])
        tasks.append(problem(vectors, values, vectors @ inner))
    quadratic, linear = np.stack([t.quadratic for t in tasks]), np.stack([t.linear for t in tasks])
    before = quadratic.copy(), linear.copy()
    batch = maximise_in_ball(quadratic, linear)
    np.testing.assert_array_equal(batch, np.stack([maximise_in_ball(t.quadratic, t.linear) for t in tasks]))
    folded = maximise_in_ball(quadratic.reshape(4, 6, dim, dim), linear.reshape(4, 6, dim))
    np.testing.assert_array_equal(batch.reshape(4, 6, dim), folded)
    np.testing.assert_array_equal(quadratic, before[0])
    np.testing.assert_array_equal(linear, before[1])


# -------------------------------------------------------------------------------------- secular equation


@st.composite
def equations(draw: st.DrawFn) -> tuple[Float, Float]:
    """c and p ≥ 0, over many orders of magnitude, with zeros among them."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dim = draw(st.integers(1, 10))
    span = draw(st.integers(0, 12))
    c = rng.choice([-1, 1], size=dim) * 10.0 ** rng.uniform(-span, span / 4, size=dim)
    p = 10.0 ** rng.uniform(-span, span / 4, size=dim)
    c[rng.random(dim) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = 0.0
    p[rng.random(dim) < draw(st.sampled_from([0.0, 0.3, 1.0]))] = 0.0
    return c, p


@repeatable(250)
@given(equation=equations())
def test_secular_root(equation: tuple[Float, Float]) -> None:
    """Σ (c/(ρ + p))² = 1 at ρ > 0; at ρ = 0 the sum is at most 1."""
    c, p = equation
    rho = float(secular(c[None], p[None])[0])
    assert rho >= 0
    with np.errstate(divide="ignore"):
        total = np.sum(np.where(c == 0, 0.0, (c / np.where(c == 0, 1.0, rho + p)) ** 2))
    if rho > 0:
        assert surplus("secular: |sum − 1|", abs(total - 1)) <= 1e-12
    else:
        assert total <= 1 + 1e-12


@repeatable(100)
@given(equation=equations())
def test_secular_root_against_brentq(equation: tuple[Float, Float]) -> None:
    """A bracketing method that needs no derivative finds the same ρ."""
    c, p = equation
    rho, size = float(secular(c[None], p[None])[0]), float(np.linalg.norm(c))
    if rho > 0:
        low = float(np.maximum(np.abs(c) - p, 0).max()) * (1 - 1e-9)
        used = c != 0

        def excess(x: float) -> float:
            return float(np.sum((c[used] / (x + p[used])) ** 2)) - 1

        low = low or 1e-300
        found = scipy.optimize.brentq(excess, low, size * (1 + 1e-9), xtol=1e-300, rtol=1e-14, maxiter=5000)
        assert surplus("secular: ρ against brentq", abs(rho - found) / max(rho, 1e-3 * float(p[used].min()))) <= 1e-9
