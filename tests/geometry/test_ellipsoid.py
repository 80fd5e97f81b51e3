"""Tests of robandit.geometry.ellipsoid and .intersection against oracles that share no code with them.

The oracles stand in geometry_oracles.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from geometry_oracles import (
    HAS_EXTENDED,
    Body,
    Float,
    Planted,
    cholesky,
    cone_gap,
    cone_support,
    distance,
    dual_gap,
    dual_support,
    half_width,
    long,
    mp_gap,
    mp_support,
    plant,
    plant_touching,
    random_basis,
    random_precision,
    rounding_sensitivity,
    single_support,
    solve_lower_transposed,
    tip,
    unit,
    value_scale,
)
from hypothesis import given
from hypothesis import strategies as st

from observed import note, repeatable, worst
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.frame import Frame
from robandit.geometry.intersection import Intersection
from thinned import longer, thinned

pytestmark = pytest.mark.skipif(not HAS_EXTENDED, reason="the oracles need an 80-bit long double")

MILD, HARSH = 1e3, 1e8
TOLERANCE = {MILD: 1e-8, HARSH: 1e-6}
SHAPES = ("spread", "one_long_axis", "one_short_axis")
regimes = pytest.mark.parametrize("max_cond", [MILD, HARSH], ids=["mild", "harsh"])


# ----------------------------------------------------------------------------------------------- problems


@dataclass(frozen=True)
class Case:
    """What a random pair is made of; the arrays follow from the seed."""

    dim: int
    conds: tuple[float, float]
    shapes: tuple[str, str]
    shared_basis: bool
    ratio: float
    scale: float
    log_odds: float
    location: float
    seed: int

    @property
    def tolerance(self) -> float:
        """Allowed relative error at this conditioning."""
        return TOLERANCE[MILD] if max(self.conds) <= MILD else TOLERANCE[HARSH]

    @property
    def regime(self) -> str:
        """Name used in the error report."""
        return "cond<=1e3" if max(self.conds) <= MILD else "cond<=1e8"

    def rng(self) -> np.random.Generator:
        """A fresh generator; every method that uses one starts from the same seed."""
        return np.random.default_rng(self.seed)

    def precisions(self, rng: np.random.Generator) -> tuple[Float, Float]:
        """Two precision matrices, with one random eigenbasis each unless shared."""
        basis = random_basis(rng, self.dim) if self.shared_basis else None
        one, two = (
            self.scale * random_precision(rng, self.dim, cond, shape, basis)
            for cond, shape in zip(self.conds, self.shapes, strict=True)
        )
        return one, two

    @property
    def radii(self) -> tuple[float, float]:
        """Radii with the wanted ratio, both of order one in the geometric mean."""
        return 1.0 / np.sqrt(self.ratio), float(np.sqrt(self.ratio))

    @property
    def longest(self) -> float:
        """Longest semi-axis of the ellipsoid with the smaller radius."""
        return min(self.radii) / float(np.sqrt(self.scale))


def powers(low: float, high: float) -> st.SearchStrategy[float]:
    """10**x with x uniform between the two exponents, the ends included."""
    return st.floats(low, high, allow_nan=False).map(lambda x: float(10.0**x))


@st.composite
def cases(draw: st.DrawFn, max_cond: float, max_dim: int = 50, min_dim: int = 2) -> Case:
    """Pairs of ellipsoids; in the harsh regime at least one is conditioned worse than 1e3."""
    top = np.log10(max_cond)
    low = 0.0 if max_cond <= MILD else 4.0
    conds = [min(draw(powers(low, top)), max_cond), min(draw(powers(0.0, top)), max_cond)]
    if draw(st.booleans()):
        conds.reverse()
    if draw(st.booleans()):
        conds = [max_cond, max_cond]
    return Case(
        dim=draw(st.integers(min_dim, max_dim)),
        conds=(conds[0], conds[1]),
        shapes=(draw(st.sampled_from(SHAPES)), draw(st.sampled_from(SHAPES))),
        shared_basis=draw(st.sampled_from([False, False, True])),
        ratio=draw(powers(-3.0, 3.0)),
        scale=draw(powers(-4.0, 4.0)),
        log_odds=draw(st.floats(-8.0, 8.0)),
        location=draw(st.sampled_from([0.0, 0.0, 1.0, 100.0])),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


def planted_problem(case: Case) -> Planted:
    """The planted problem of a case."""
    rng = case.rng()
    precisions = case.precisions(rng)
    maximiser = case.location * case.longest * np.asarray(unit(rng, case.dim), dtype=np.float64)
    tau = 1.0 / (1.0 + np.exp(-case.log_odds))
    return plant(rng, precisions, case.radii, float(tau), maximiser)


def overlapping_pair(case: Case) -> tuple[Body, Body]:
    """Two ellipsoids with a common interior point, at relative depths drawn from (0, 1)."""
    rng = case.rng()
    common = case.location * case.longest * np.asarray(unit(rng, case.dim), dtype=np.float64)
    bodies = []
    for precision, radius in zip(case.precisions(rng), case.radii, strict=True):
        factor = cholesky(long(precision))
        offset = rng.uniform(0.0, 0.9) * radius * solve_lower_transposed(factor, unit(rng, case.dim))
        bodies.append(Body(np.asarray(common - offset, dtype=np.float64), precision, radius))
    return bodies[0], bodies[1]


def some_directions(rng: np.random.Generator, bodies: tuple[Body, Body], count: int) -> Float:
    """Directions from isotropic to aligned with the short axes of either ellipsoid."""
    dim = bodies[0].dim
    rows = []
    for k in range(count):
        u = np.asarray(unit(rng, dim), dtype=np.float64)
        rows.append(u if k % 3 == 2 else np.linalg.cholesky(bodies[k % 3].precision) @ u)
    return np.array(rows)


def ellipsoid(body: Body) -> Ellipsoid:
    """The package's object for a body."""
    return Ellipsoid(body.center, body.precision, body.radius)


def stacked(bodies: list[Body]) -> Ellipsoid:
    """A batch of bodies."""
    return Ellipsoid(
        np.stack([body.center for body in bodies]),
        np.stack([body.precision for body in bodies]),
        np.array([body.radius for body in bodies]),
    )


def check_support(
    name: str, pair: tuple[Body, Body], direction: Float, reference: np.longdouble | float, tolerance: float
) -> None:
    """Compare one direction's value and maximiser with a reference value."""
    answer = Intersection(ellipsoid(pair[0]), ellipsoid(pair[1])).support(direction[None, :])
    value, point = answer.values[0], answer.points[0]
    assert answer.values.shape == (1,)
    assert answer.points.shape == (1, direction.shape[0])
    scale = value_scale(*pair, direction, reference)
    error = note(f"{name}: value", (np.longdouble(value) - np.longdouble(reference)) / scale)
    outside = max(distance(body, point) for body in pair) - 1
    note(f"{name}: maximiser outside by", max(outside, 0))
    gap = note(f"{name}: <a, maximiser> - value", (long(direction) @ long(point) - np.longdouble(value)) / scale)
    assert error <= tolerance
    assert outside <= tolerance
    assert gap <= tolerance


# ------------------------------------------------------------------------- the oracles against each other

AGREEMENT_CASES = [
    (dim, cond, ratio, shared, seed)
    for dim, cond, ratio, shared in [
        (2, 1e2, 1.0, False),
        (3, 1e3, 1e3, False),
        (5, 1e3, 1e-3, True),
        (2, 1e8, 1e-3, False),
        (5, 1e8, 1e3, False),
        (6, 1e8, 1.0, True),
    ]
    for seed in range(2)
]


def agreement_case(dim: int, cond: float, ratio: float, shared: bool, seed: int) -> Case:
    """A case for the comparisons between oracles."""
    return Case(dim, (cond, cond), ("spread", "spread"), shared, ratio, 1.0, 0.5 - seed, float(seed), seed)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("dim", "cond", "ratio", "shared", "seed"), thinned(AGREEMENT_CASES, fast=AGREEMENT_CASES[::2])
)
def test_oracles_planted_dual_and_mpmath_agree(dim: int, cond: float, ratio: float, shared: bool, seed: int) -> None:
    p = planted_problem(agreement_case(dim, cond, ratio, shared, seed))
    scale = value_scale(p.first, p.second, p.direction, p.value)
    limit = 1e-14 if cond <= MILD else 1e-9
    dual = dual_support(p.first, p.second, p.direction)
    precise = mp_support(p.first, p.second, p.direction)
    assert note(f"oracles {cond:.0e}: dual - planted", (dual - p.value) / scale) <= limit
    assert note(f"oracles {cond:.0e}: mpmath - planted", (precise - p.value) / scale) <= limit / 10
    gap = (dual_gap(p.first, p.second), mp_gap(p.first, p.second))
    assert note(f"oracles {cond:.0e}: dual gap - mpmath gap", gap[0] - gap[1]) <= limit


@pytest.mark.no_cover
@pytest.mark.parametrize("cond", [1.0, 1e3, 1e8])
def test_oracles_planted_and_dual_agree_in_fifty_dimensions(cond: float) -> None:
    p = planted_problem(agreement_case(50, cond, 30.0, False, 1))
    scale = value_scale(p.first, p.second, p.direction, p.value)
    error = (dual_support(p.first, p.second, p.direction) - p.value) / scale
    assert note(f"oracles {cond:.0e}, d=50: dual - planted", error) <= (1e-14 if cond <= MILD else 1e-9)


@pytest.mark.parametrize(("dim", "cond", "ratio"), [(2, 10.0, 1.0), (5, 1e2, 0.1), (10, 1e3, 10.0), (30, 1e2, 1.0)])
def test_oracles_cone_solver_agrees(dim: int, cond: float, ratio: float) -> None:
    p = planted_problem(agreement_case(dim, cond, ratio, False, 3))
    scale = value_scale(p.first, p.second, p.direction, p.value)
    cone = cone_support(p.first, p.second, p.direction)
    assert note("oracles: cone - planted", (cone - p.value) / scale) <= 1e-9
    assert note("oracles: cone gap - dual gap", cone_gap(p.first, p.second) - dual_gap(p.first, p.second)) <= 1e-9


@pytest.mark.no_cover
@pytest.mark.parametrize("stretch2", [0.25, 1 - 1e-6, 1 + 1e-6, 4.0])
@pytest.mark.parametrize("cond", [1e2, 1e8])
def test_oracles_touching_pairs_have_the_planted_gap(cond: float, stretch2: float) -> None:
    rng = np.random.default_rng(5)
    precisions = (random_precision(rng, 4, cond), random_precision(rng, 4, cond))
    pair = plant_touching(precisions, (1.0, 20.0), unit(rng, 4), float(np.sqrt(stretch2)))
    assert note("oracles: touching gap, dual", dual_gap(*pair) - stretch2) <= 1e-10
    assert note("oracles: touching gap, mpmath", mp_gap(*pair) - stretch2) <= 1e-10
    if cond <= MILD:
        assert abs(cone_gap(*pair) - stretch2) <= 1e-9
    if cond <= MILD and abs(stretch2 - 1) > 0.1:
        assert np.isneginf(cone_support(*pair, np.ones(4))) == (stretch2 > 1)


# ---------------------------------------------------------------------------- the tests can tell wrong from right


@regimes
@pytest.mark.parametrize("dim", [2, 10, 50])
def test_cheap_bounds_would_be_caught(dim: int, max_cond: float) -> None:
    """min(h1, h2) and the equal-weight mixture are upper bounds, but far outside the tolerances."""
    case = Case(dim, (max_cond, 10.0), ("spread", "spread"), False, 5.0, 1.0, 1.5, 0.0, 11)
    p = planted_problem(case)
    scale = value_scale(p.first, p.second, p.direction, p.value)
    cheap = min(single_support(p.first, p.direction), single_support(p.second, p.direction))
    assert (cheap - p.value) / scale > 1e3 * case.tolerance
    m1, m2 = long(p.first.center), long(p.second.center)
    shapes = [long(body.precision) / np.longdouble(body.radius) ** 2 for body in (p.first, p.second)]
    matrix = (shapes[0] + shapes[1]) / 2
    inverse = np.linalg.inv(np.asarray(matrix, dtype=np.float64))
    center = m1 + inverse @ (shapes[1] @ (m2 - m1)) / 2
    least = ((center - m1) @ shapes[0] @ (center - m1) + (center - m2) @ shapes[1] @ (center - m2)) / 2
    half = p.direction @ center + np.sqrt((1 - least) * (p.direction @ inverse @ p.direction))
    assert (half - p.value) / scale > 10 * case.tolerance


def test_check_support_rejects_a_wrong_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison used below fails when the implementation returns the cheap bound."""

    @dataclass
    class Answer:
        values: Float
        points: Float

    def cheap(self: Intersection, directions: Float) -> Answer:
        first = ellipsoid(p.first).support(directions)
        second = ellipsoid(p.second).support(directions)
        use = first.values < second.values
        return Answer(np.minimum(first.values, second.values), np.where(use[:, None], first.points, second.points))

    p = planted_problem(Case(5, (10.0, 10.0), ("spread", "spread"), False, 1.0, 1.0, 0.0, 0.0, 1))
    monkeypatch.setattr(Intersection, "support", cheap)
    with pytest.raises(AssertionError):
        check_support("deliberately wrong", (p.first, p.second), p.direction, p.value, 1e-6)
    for name in [name for name in worst if name.startswith("deliberately")]:
        del worst[name]


# ------------------------------------------------------------------------------------------- one ellipsoid


@pytest.mark.no_cover
@regimes
def test_single_support_and_distance(max_cond: float) -> None:
    @repeatable(40)
    @given(case=cases(max_cond, min_dim=1))
    def run(case: Case) -> None:
        pair = overlapping_pair(case)
        body = pair[0]
        directions = some_directions(case.rng(), pair, 4)
        answer = ellipsoid(body).support(directions)
        assert answer.values.shape == (4,)
        assert answer.points.shape == (4, case.dim)
        for a, value, point in zip(directions, answer.values, answer.points, strict=True):
            exact = single_support(body, a)
            scale = max(np.abs(exact), half_width(body, a))
            assert note(f"single {case.regime}: value", (value - exact) / scale) <= case.tolerance
            assert note(f"single {case.regime}: attained", (long(a) @ long(point) - value) / scale) <= case.tolerance
            assert note(f"single {case.regime}: on boundary", distance(body, point) - 1) <= case.tolerance
        rng = case.rng()
        probes = body.center + case.longest * 10.0 ** rng.uniform(-3, 1, (5, 1)) * rng.standard_normal((5, case.dim))
        measured = ellipsoid(body).distance(probes)
        assert measured.shape == (5,)
        for probe, got in zip(probes, measured, strict=True):
            exact = distance(body, probe)
            assert note(f"single {case.regime}: distance", (got - exact) / exact) <= case.tolerance

    run()


def test_single_attributes_and_center() -> None:
    rng = np.random.default_rng(0)
    body = Body(rng.standard_normal(4), random_precision(rng, 4, 50.0), 2.5)
    e = ellipsoid(body)
    assert e.dim == 4
    np.testing.assert_array_equal(e.center, body.center)
    np.testing.assert_allclose(e.precision, body.precision, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(e.root @ e.root.T @ body.precision, np.eye(4), atol=1e-12)
    assert float(e.radius) == 2.5
    assert e.distance(body.center[None, :])[0] == 0.0


def test_single_zero_direction_is_zero() -> None:
    rng = np.random.default_rng(1)
    body = Body(rng.standard_normal(6), random_precision(rng, 6, 1e4), 3.0)
    answer = ellipsoid(body).support(np.zeros((2, 6)))
    assert np.array_equal(answer.values, np.zeros(2))
    assert all(distance(body, point) <= 1 + 1e-12 for point in answer.points)


@pytest.mark.parametrize("dim", [1, 3, 20])
@pytest.mark.parametrize("kind", ["lower", "symmetric", "general"])
def test_from_root_is_the_same_set(dim: int, kind: str) -> None:
    rng = np.random.default_rng(dim)
    precision = random_precision(rng, dim, 100.0)
    root = np.linalg.cholesky(np.linalg.inv(precision))
    if kind == "symmetric":
        values, vectors = np.linalg.eigh(precision)
        root = (vectors / np.sqrt(values)) @ vectors.T
    elif kind == "general":
        root = root @ random_basis(rng, dim)
    center, directions = rng.standard_normal(dim), rng.standard_normal((7, dim))
    e = Ellipsoid.from_root(center, root, np.array(0.7))
    plain = Ellipsoid(center, precision, 0.7)
    exact = directions @ center + 0.7 * np.linalg.norm(directions @ root, axis=-1)
    np.testing.assert_allclose(e.support(directions).values, exact, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(e.support(directions).values, plain.support(directions).values, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(e.distance(directions), plain.distance(directions), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(e.precision, precision, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(e.root @ e.root.T @ precision, np.eye(dim), atol=1e-12)


def test_from_root_takes_a_plain_number_as_radius() -> None:
    e = Ellipsoid.from_root(np.zeros(2), np.eye(2), 0.7)
    np.testing.assert_allclose(e.support(np.eye(2)).values, [0.7, 0.7])


# -------------------------------------------------------------------------------------------- intersections


@pytest.mark.no_cover
@pytest.mark.parametrize("examples", longer(100, 200))
@regimes
def test_intersection_support_on_planted_problems(max_cond: float, examples: int) -> None:
    @repeatable(examples)
    @given(case=cases(max_cond))
    def run(case: Case) -> None:
        p = planted_problem(case)
        check_support(f"planted {case.regime}", (p.first, p.second), p.direction, p.value, case.tolerance)

    run()


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ratio", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("dim", [2, 3, 10, 50])
def test_intersection_support_on_unrelated_ill_conditioned_pairs(dim: int, ratio: float, seed: int) -> None:
    case = Case(dim, (HARSH, HARSH), ("spread", "spread"), False, ratio, 1.0, 0.7 * (seed - 1.5), 0.0, seed)
    p = planted_problem(case)
    check_support("unrelated, both 1e8", (p.first, p.second), p.direction, p.value, case.tolerance)


@pytest.mark.no_cover
@pytest.mark.parametrize("examples", longer(12, 30))
@regimes
def test_intersection_support_in_given_directions(max_cond: float, examples: int) -> None:
    """Directions that nobody planted (one or both constraints tight), against the dual oracle."""

    @repeatable(examples)
    @given(case=cases(max_cond, max_dim=16))
    def run(case: Case) -> None:
        pair = overlapping_pair(case)
        for a in some_directions(case.rng(), pair, 3):
            check_support(f"free {case.regime}", pair, a, dual_support(*pair, a), case.tolerance)

    run()


def tips_problem(seed: int, max_cond: float) -> tuple[Case, Planted]:
    """A maximiser planted near the tips of axes, with weights and radii at the ends of their ranges."""
    rng = np.random.default_rng(seed)
    conds = (max_cond, float(max_cond ** rng.uniform(0, 1)))
    shapes = (SHAPES[rng.integers(3)], SHAPES[rng.integers(3)])
    ratio, log_odds = float(rng.choice([1e-3, 1.0, 1e3])), float(rng.uniform(-12, 12))
    case = Case(int(rng.integers(2, 11)), conds, shapes, bool(rng.integers(2)), ratio, 1.0, log_odds, 0.0, seed)
    precisions = case.precisions(rng)
    blur = float(10.0 ** rng.uniform(-6, 0))
    one, two = (tip(rng, precision, bool(rng.integers(2)), blur) for precision in precisions)
    tau = float(1.0 / (1.0 + np.exp(-log_odds)))
    return case, plant(rng, precisions, case.radii, tau, np.zeros(case.dim), (one, two))


@pytest.mark.no_cover
@regimes
def test_intersection_support_at_the_tips_of_axes(max_cond: float) -> None:
    """Maximisers at the tips of axes, where the problem itself can be ill-conditioned.

    There a rounding of the precisions can move the exact value by more than the tolerance, or even empty the
    set; the error may then reach a small multiple of what half an ulp in the inputs does, and no more.
    """
    excused = 0
    for seed in range(300):
        case, p = tips_problem(seed, max_cond)
        name = f"tips {case.regime}"
        scale = value_scale(p.first, p.second, p.direction, p.value)
        answer = Intersection(ellipsoid(p.first), ellipsoid(p.second)).support(p.direction[None, :])
        if np.isneginf(answer.values[0]):  # taken for empty, which may be only where it nearly is
            excused += 1
            assert note(f"{name}: 1 − max g of what was taken for empty", 1 - dual_gap(p.first, p.second)) <= 1e-7
            continue
        error = np.abs(np.longdouble(answer.values[0]) - p.value) / scale
        if not error <= case.tolerance:
            excused += 1
            floor = rounding_sensitivity(p.first, p.second, p.direction) / scale
            if not np.isfinite(floor):
                continue
            assert note(f"{name}: excess error over what half an ulp does", error / floor) <= 100
        else:
            note(f"{name}: value, where not excused", error)
        outside = max(distance(body, answer.points[0]) for body in (p.first, p.second)) - 1
        note(f"{name}: maximiser outside by", max(outside, 0))
        assert outside <= case.tolerance
    note(f"tips cond<={max_cond:.0e}: problems of 300 excused as ill-conditioned", excused)
    assert excused <= (0 if max_cond <= MILD else 30)


@pytest.mark.parametrize("dim", [2, 5, 12])
def test_intersection_support_against_the_cone_solver(dim: int) -> None:
    case = Case(dim, (100.0, 30.0), ("spread", "spread"), False, 2.0, 1.0, 0.0, 1.0, dim)
    pair = overlapping_pair(case)
    for a in some_directions(case.rng(), pair, 3):
        check_support("cone solver", pair, a, cone_support(*pair, a), 1e-8)


def test_intersection_support_of_two_discs() -> None:
    """Unit discs one apart: the lens' corner is at height sqrt(3)/2, its ends at 0 and 1."""
    one = Ellipsoid(np.zeros(2), np.eye(2), 1.0)
    two = Ellipsoid(np.array([1.0, 0.0]), np.eye(2), 1.0)
    answer = Intersection(one, two).support(np.array([[0.0, 1.0], [1.0, 0.0], [-1.0, 0.0], [0.0, -2.0]]))
    np.testing.assert_allclose(answer.values, [np.sqrt(0.75), 1.0, 0.0, np.sqrt(3.0)], atol=1e-12)
    np.testing.assert_allclose(answer.points[0], [0.5, np.sqrt(0.75)], atol=1e-9)
    np.testing.assert_allclose(answer.points[1:3], [[1.0, 0.0], [0.0, 0.0]], atol=1e-9)


def test_intersection_support_when_the_inner_one_touches_from_inside() -> None:
    one = Ellipsoid(np.zeros(3), np.eye(3), 1.0)
    two = Ellipsoid(np.array([0.5, 0.0, 0.0]), np.eye(3), 0.5)
    both = Intersection(one, two)
    directions = np.random.default_rng(0).standard_normal((20, 3))
    directions[0] = [1.0, 0.0, 0.0]
    assert not both.is_empty()
    np.testing.assert_allclose(both.support(directions).values, two.support(directions).values, rtol=1e-8)


@pytest.mark.no_cover
@repeatable(30)
@given(case=cases(MILD, max_dim=10), depth=st.sampled_from([1e-2, 1e-4, 1e-6]))
def test_intersection_support_of_a_thin_lens(case: Case, depth: float) -> None:
    """Lenses with 1 - max_tau g = depth."""
    rng = case.rng()
    pair = plant_touching(case.precisions(rng), case.radii, unit(rng, case.dim), float(np.sqrt(1 - depth)))
    a = some_directions(rng, pair, 1)[0]
    check_support(f"lens of depth {depth:.0e}", pair, a, dual_support(*pair, a), case.tolerance)


@pytest.mark.no_cover
@regimes
def test_intersection_of_nested_pairs_is_the_inner_one(max_cond: float) -> None:
    @repeatable(30)
    @given(case=cases(max_cond, min_dim=1), inner_first=st.booleans())
    def run(case: Case, inner_first: bool) -> None:
        inner, outer = overlapping_pair(case)
        # q_outer <= lambda_max * |x - m|^2 / r^2, and |x - m| is at most the distance plus inner's longest axis
        eigenvalues = np.linalg.eigvalsh(outer.precision)[-1], np.linalg.eigvalsh(inner.precision)[0]
        reach = np.linalg.norm(inner.center - outer.center) + inner.radius / np.sqrt(eigenvalues[1])
        outer = Body(outer.center, outer.precision, float(1.1 * reach * np.sqrt(eigenvalues[0])))
        pair = (inner, outer) if inner_first else (outer, inner)
        assert not Intersection(ellipsoid(pair[0]), ellipsoid(pair[1])).is_empty()
        for a in some_directions(case.rng(), pair, 2):
            check_support(f"nested {case.regime}", pair, a, single_support(inner, a), case.tolerance)

    run()


@pytest.mark.no_cover
@regimes
def test_intersection_of_identical_pairs_is_either(max_cond: float) -> None:
    @repeatable(30)
    @given(case=cases(max_cond, min_dim=1))
    def run(case: Case) -> None:
        body = overlapping_pair(case)[0]
        assert not Intersection(ellipsoid(body), ellipsoid(body)).is_empty()
        for a in some_directions(case.rng(), (body, body), 2):
            check_support(f"identical {case.regime}", (body, body), a, single_support(body, a), case.tolerance)

    run()


@pytest.mark.no_cover
@regimes
def test_intersection_zero_direction_is_zero(max_cond: float) -> None:
    @repeatable(20)
    @given(case=cases(max_cond, min_dim=1))
    def run(case: Case) -> None:
        pair = overlapping_pair(case)
        both = Intersection(ellipsoid(pair[0]), ellipsoid(pair[1]))
        answer = both.support(np.zeros((1, case.dim)))
        assert answer.values[0] == 0.0
        outside = max(distance(body, answer.points[0]) for body in pair) - 1
        note(f"zero direction {case.regime}: point outside by", max(outside, 0))
        assert outside <= case.tolerance

    run()


@pytest.mark.no_cover
@repeatable(150)
@given(
    centers=st.tuples(st.floats(-10, 10), st.floats(-10, 10)),
    precisions=st.tuples(powers(-3, 3), powers(-3, 3)),
    radii=st.tuples(powers(-1.5, 1.5), powers(-1.5, 1.5)),
    slope=powers(-2, 2),
)
def test_intersection_in_one_dimension_is_interval_arithmetic(
    centers: tuple[float, float], precisions: tuple[float, float], radii: tuple[float, float], slope: float
) -> None:
    halves = [r / np.sqrt(p) for r, p in zip(radii, precisions, strict=True)]
    low = max(c - h for c, h in zip(centers, halves, strict=True))
    high = min(c + h for c, h in zip(centers, halves, strict=True))
    one, two = (
        Ellipsoid(np.array([c]), np.array([[p]]), r) for c, p, r in zip(centers, precisions, radii, strict=True)
    )
    both = Intersection(one, two)
    answer = both.support(np.array([[slope], [-slope], [0.0]]))
    if abs(high - low) <= 1e-9 * max(halves):
        return
    assert bool(both.is_empty()) == (high < low)
    if high < low:
        assert np.all(np.isneginf(answer.values))
        assert np.all(np.isnan(answer.points))
        return
    exact = np.array([high * slope, -low * slope, 0.0])
    scale = np.maximum(np.abs(exact), slope * min(halves))
    assert np.all(np.abs(answer.values - exact) <= 1e-8 * scale)
    note("one dimension: value", np.max(np.abs(answer.values - exact) / scale))
    assert np.all(np.abs(answer.points[:2, 0] - [high, low]) <= 1e-8 * scale[:2] / slope)


@pytest.mark.no_cover
@repeatable(25)
@given(case=cases(HARSH, min_dim=1), count=st.integers(1, 8))
def test_intersection_support_lies_between_its_obvious_bounds(case: Case, count: int) -> None:
    """Never above either ellipsoid's support, never below a common point, symmetric in the two."""
    pair = overlapping_pair(case)
    one, two = ellipsoid(pair[0]), ellipsoid(pair[1])
    directions = some_directions(case.rng(), pair, count)
    answer, swapped = Intersection(one, two).support(directions), Intersection(two, one).support(directions)
    cheap = np.minimum(one.support(directions).values, two.support(directions).values)
    scale = [float(value_scale(*pair, a, v)) for a, v in zip(directions, answer.values, strict=True)]
    assert np.all(answer.values <= cheap + case.tolerance * np.array(scale))
    assert np.all(np.abs(answer.values - swapped.values) <= 2 * case.tolerance * np.array(scale))
    assert np.all(answer.values[:, None] >= directions @ answer.points.T - case.tolerance * np.array(scale)[:, None])


# ------------------------------------------------------------------------------------------------ emptiness


@pytest.mark.no_cover
@pytest.mark.parametrize("examples", longer(40, 80))
@regimes
def test_emptiness_of_barely_touching_pairs(max_cond: float, examples: int) -> None:
    """max_tau g = 1 - 1e-6 is not empty and 1 + 1e-6 is."""

    @repeatable(examples)
    @given(case=cases(max_cond), short=st.booleans(), margin=st.sampled_from([-1e-6, 1e-6]))
    def run(case: Case, short: bool, margin: float) -> None:
        rng = case.rng()
        precisions = case.precisions(rng)
        normal = unit(rng, case.dim)
        if short:
            normal = cholesky(long(precisions[0])) @ normal
        pair = plant_touching(precisions, case.radii, normal, float(np.sqrt(1 + margin)))
        both = Intersection(ellipsoid(pair[0]), ellipsoid(pair[1]))
        assert bool(both.is_empty()) == (margin > 0)
        answer = both.support(np.asarray(normal, dtype=np.float64)[None, :])
        assert np.isneginf(answer.values[0]) == (margin > 0)
        assert np.all(np.isnan(answer.points)) == (margin > 0)

    run()


@pytest.mark.no_cover
@regimes
def test_emptiness_of_clearly_disjoint_and_overlapping_pairs(max_cond: float) -> None:
    @repeatable(40)
    @given(case=cases(max_cond), stretch=powers(0.05, 6.0))
    def run(case: Case, stretch: float) -> None:
        rng = case.rng()
        pair = plant_touching(case.precisions(rng), case.radii, unit(rng, case.dim), stretch)
        apart = Intersection(ellipsoid(pair[0]), ellipsoid(pair[1]))
        assert bool(apart.is_empty())
        answer = apart.support(rng.standard_normal((3, case.dim)))
        assert np.all(np.isneginf(answer.values))
        assert np.all(np.isnan(answer.points))
        pair = overlapping_pair(case)
        assert not bool(Intersection(ellipsoid(pair[0]), ellipsoid(pair[1])).is_empty())

    run()


@pytest.mark.no_cover
@pytest.mark.parametrize("ratio", thinned([1e-3, 1.0, 1e3], fast=[1.0]))
def test_emptiness_agrees_with_the_dual_oracle(ratio: float) -> None:
    """Random pairs around the boundary between the two answers."""
    seen = set()
    for seed in range(30):
        rng = np.random.default_rng(seed)
        dim = int(rng.integers(1, 9))
        first = Body(np.zeros(dim), random_precision(rng, dim, 1e3), 1.0)
        second = Body(rng.standard_normal(dim), random_precision(rng, dim, 1e5), ratio)
        gap = dual_gap(first, second)
        reach = float(np.sqrt(gap)) * rng.uniform(0.98, 1.02)
        first, second = (Body(body.center, body.precision, body.radius * reach) for body in (first, second))
        empty = bool(dual_gap(first, second) > 1)
        seen.add(empty)
        assert bool(Intersection(ellipsoid(first), ellipsoid(second)).is_empty()) == empty
    assert seen == {False, True}


def test_concentric_pairs_are_never_empty() -> None:
    rng = np.random.default_rng(4)
    center = rng.standard_normal(5)
    one = Ellipsoid(center, random_precision(rng, 5, 1e8), 1e-3)
    two = Ellipsoid(center, random_precision(rng, 5, 1e8), 1e3)
    assert not Intersection(one, two).is_empty()


# --------------------------------------------------------------------------------------------------- batches


def mixed_pairs(rng: np.random.Generator, dim: int, count: int) -> list[tuple[Body, Body]]:
    """Overlapping, disjoint, nested and identical pairs, of mixed conditioning."""
    pairs = []
    for k in range(count):
        conds = (10.0 ** rng.uniform(0, 6), 10.0 ** rng.uniform(0, 6))
        ratio = 10.0 ** rng.uniform(-2, 2)
        seed = int(rng.integers(2**31))
        case = Case(dim, conds, ("spread", "spread"), False, ratio, 1.0, 0.0, float(k % 2), seed)
        pair = overlapping_pair(case)
        if k % 5 == 1:
            pair = plant_touching((pair[0].precision, pair[1].precision), case.radii, unit(rng, dim), 1.5)
        elif k % 5 == 2:
            pair = (pair[0], Body(pair[0].center, pair[0].precision, 2.0 * pair[0].radius))
        elif k % 5 == 3:
            pair = (pair[0], pair[0])
        pairs.append(pair)
    return pairs


@pytest.mark.parametrize("count", [1, 2, 7, 16])
@pytest.mark.parametrize("dim", [1, 2, 3, 8, 17, 50])
@pytest.mark.no_cover
def test_batch_equals_singles_bit_for_bit(dim: int, count: int) -> None:
    rng = np.random.default_rng(100 * dim + count)
    pairs = mixed_pairs(rng, dim, count)
    directions = np.stack([np.vstack([some_directions(rng, pair, 5), np.zeros(dim)]) for pair in pairs])
    one, two = stacked([pair[0] for pair in pairs]), stacked([pair[1] for pair in pairs])
    both = Intersection(one, two)
    support, single = both.support(directions), one.support(directions)
    gaps, empty = one.distance(directions), both.is_empty()
    mask, best = both.argmax(directions)
    assert support.values.shape == mask.shape == gaps.shape == (count, 6)
    assert support.points.shape == (count, 6, dim)
    assert best.shape == empty.shape == (count,)
    assert empty.dtype == mask.dtype == np.bool_
    for b, pair in enumerate(pairs):
        alone = Intersection(ellipsoid(pair[0]), ellipsoid(pair[1]))
        lone_support, lone_single = alone.support(directions[b]), ellipsoid(pair[0]).support(directions[b])
        lone_mask, lone_best = alone.argmax(directions[b])
        assert np.array_equal(support.values[b], lone_support.values)
        assert np.array_equal(support.points[b], lone_support.points, equal_nan=True)
        assert np.array_equal(single.values[b], lone_single.values)
        assert np.array_equal(single.points[b], lone_single.points)
        assert np.array_equal(gaps[b], ellipsoid(pair[0]).distance(directions[b]))
        assert np.array_equal(empty[b], alone.is_empty())
        assert np.array_equal(mask[b], lone_mask)
        assert np.array_equal(best[b], lone_best)


@pytest.mark.parametrize("dim", [2, 9])
def test_batch_of_roots_equals_singles_bit_for_bit(dim: int) -> None:
    rng = np.random.default_rng(dim)
    roots = np.linalg.cholesky(np.stack([random_precision(rng, dim, 1e3) for _ in range(6)]))
    centers, radii = 0.3 * rng.standard_normal((6, dim)), rng.uniform(1, 2, 6)
    directions = rng.standard_normal((3, 4, dim))
    first = Ellipsoid.from_root(centers[:3], roots[:3], radii[:3])
    second = Ellipsoid.from_root(centers[3:], roots[3:], radii[3:])
    answer = Intersection(first, second).support(directions)
    for b in range(3):
        one = Ellipsoid.from_root(centers[b], roots[b], radii[b])
        two = Ellipsoid.from_root(centers[3 + b], roots[3 + b], radii[3 + b])
        assert np.array_equal(answer.values[b], Intersection(one, two).support(directions[b]).values)
        assert np.array_equal(first.precision[b], one.precision)


# ---------------------------------------------------------------------------------------------------- argmax


def check_argmax(both: Intersection, directions: Float, pair: tuple[Body, Body]) -> None:
    """Compare the best-first search with the full table of values."""
    values = both.support(directions).values
    mask, best = both.argmax(directions)
    assert mask.shape == values.shape
    assert mask.dtype == np.bool_
    top = int(np.argmax(values))
    scale = float(value_scale(*pair, directions[top], values[top]))
    assert note("argmax: value - max of support", (best - values[top]) / scale) <= 1e-12
    assert mask[top]
    assert np.all(values[mask] >= values[top] - 1e-11 * scale)
    assert np.all(mask[values == values[top]])


@pytest.mark.no_cover
@regimes
def test_argmax_agrees_with_support(max_cond: float) -> None:
    @repeatable(60)
    @given(case=cases(max_cond, min_dim=1, max_dim=20), count=st.integers(1, 40), isotropic=st.booleans())
    def run(case: Case, count: int, isotropic: bool) -> None:
        pair = overlapping_pair(case)
        rng = case.rng()
        directions = some_directions(rng, pair, count)
        if isotropic:
            directions = rng.standard_normal((count, case.dim))
        check_argmax(Intersection(ellipsoid(pair[0]), ellipsoid(pair[1])), directions, pair)

    run()


@repeatable(40)
@given(case=cases(HARSH, min_dim=1, max_dim=20), count=st.integers(1, 12), copies=st.integers(2, 4))
def test_argmax_marks_every_tie(case: Case, count: int, copies: int) -> None:
    pair = overlapping_pair(case)
    directions = some_directions(case.rng(), pair, count)
    both = Intersection(ellipsoid(pair[0]), ellipsoid(pair[1]))
    tiled = np.tile(directions, (copies, 1))
    mask, best = both.argmax(tiled)
    check_argmax(both, tiled, pair)
    assert np.array_equal(mask.reshape(copies, count), np.tile(mask[:count], (copies, 1)))
    top = int(np.argmax(both.support(directions).values))
    assert abs(best - both.argmax(directions)[1]) <= 1e-12 * value_scale(*pair, directions[top], float(best))


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", range(20))
def test_argmax_marks_every_tie_at_a_value_near_zero(seed: int) -> None:
    """Copies of one direction tie whatever the value; here it is zero up to rounding."""
    p = planted_problem(Case(3, (10.0, 10.0), ("spread", "spread"), False, 1.0, 1.0, 0.3, 0.0, seed))
    mask, _ = Intersection(ellipsoid(p.first), ellipsoid(p.second)).argmax(np.tile(p.direction, (3, 1)))
    assert mask.all()


def test_argmax_when_all_values_are_negative_or_zero() -> None:
    pair = (Body(np.array([-9.0, 0.0]), np.eye(2), 1.0), Body(np.array([-8.5, 0.5]), np.eye(2), 1.0))
    both = Intersection(ellipsoid(pair[0]), ellipsoid(pair[1]))
    check_argmax(both, np.array([[1.0, 0.0], [2.0, 0.1], [3.0, 0.0], [1.0, 0.0]]), pair)
    mask, best = both.argmax(np.array([[1.0, 0.0], [0.0, 0.0]]))
    assert mask.tolist() == [False, True]
    assert best == 0.0


def test_argmax_of_an_empty_intersection_is_minus_infinity() -> None:
    one, two = Ellipsoid(np.zeros(2), np.eye(2), 1.0), Ellipsoid(np.array([5.0, 0.0]), np.eye(2), 1.0)
    mask, best = Intersection(one, two).argmax(np.eye(2))
    assert np.isneginf(best)
    assert mask.shape == (2,)


# ------------------------------------------------------------------------------------------------- interface


def test_inputs_are_not_modified() -> None:
    rng = np.random.default_rng(8)
    arrays = {
        "center": rng.standard_normal((2, 3, 4)),
        "precision": np.stack([[random_precision(rng, 4, 100.0) for _ in range(3)] for _ in range(2)]),
        "radius": rng.uniform(2, 3, (2, 3)),
        "directions": rng.standard_normal((3, 5, 4)),
    }
    before = {name: array.copy() for name, array in arrays.items()}
    for writeable in (True, False):
        for array in arrays.values():
            array.flags.writeable = writeable
        one, two = (
            Ellipsoid(c, p, r) for c, p, r in zip(arrays["center"], arrays["precision"], arrays["radius"], strict=True)
        )
        root = Ellipsoid.from_root(arrays["center"][0], arrays["precision"][0], arrays["radius"][0])
        for shape in (one, root):
            shape.support(arrays["directions"])
            shape.distance(arrays["directions"])
        both = Intersection(one, two)
        both.is_empty()
        both.support(arrays["directions"])
        both.argmax(arrays["directions"])
        for name, array in arrays.items():
            assert np.array_equal(array, before[name]), name


EYE, ZERO = np.eye(2), np.zeros(2)
NAN_MATRIX = np.array([[np.nan, 0.0], [0.0, 1.0]])
GOOD = (np.zeros((3, 2)), np.stack([EYE] * 3), np.ones(3))

BAD_ELLIPSOIDS: dict[str, tuple[tuple[Any, Any, Any], str]] = {
    "indefinite precision": ((ZERO, np.diag([1.0, -1.0]), 1.0), "precision"),
    "singular precision": ((ZERO, np.diag([1.0, 0.0]), 1.0), "precision"),
    "zero precision": ((ZERO, np.zeros((2, 2)), 1.0), "precision"),
    "asymmetric precision": ((ZERO, np.array([[2.0, 1.0], [0.0, 2.0]]), 1.0), "precision"),
    "nan in precision": ((ZERO, NAN_MATRIX, 1.0), "precision"),
    "one bad precision of a batch": ((GOOD[0], np.stack([EYE, -EYE, EYE]), GOOD[2]), "precision"),
    "precision not square": ((ZERO, np.ones((2, 3)), 1.0), "precision"),
    "precision of another dimension": ((ZERO, np.eye(3), 1.0), "precision|center"),
    "precision of another batch": ((GOOD[0], np.stack([EYE] * 2), GOOD[2]), "precision|center"),
    "precision is a vector": ((ZERO, ZERO, 1.0), "precision"),
    "center is a number": ((np.float64(0.0), EYE, 1.0), "center"),
    "nan in center": ((np.array([0.0, np.nan]), EYE, 1.0), "center"),
    "negative radius": ((ZERO, EYE, -1.0), "radius"),
    "nan radius": ((ZERO, EYE, np.nan), "radius"),
    "one negative radius of a batch": ((*GOOD[:2], np.array([1.0, -1.0, 1.0])), "radius"),
    "radius of another batch": ((*GOOD[:2], np.ones(2)), "radius"),
}


@pytest.mark.parametrize("name", BAD_ELLIPSOIDS)
def test_bad_ellipsoids_are_refused(name: str) -> None:
    arguments, offender = BAD_ELLIPSOIDS[name]
    with pytest.raises(ValueError, match=f"(?i){offender}"):
        Ellipsoid(*arguments)


BAD_DIRECTIONS = {
    "another dimension": np.ones((4, 3)),
    "no axis of directions": np.ones(2),
    "nan": np.array([[1.0, np.nan]]),
}


@pytest.mark.parametrize("name", BAD_DIRECTIONS)
def test_bad_directions_and_points_are_refused(name: str) -> None:
    e = Ellipsoid(ZERO, EYE, 1.0)
    both = Intersection(e, Ellipsoid(ZERO, EYE, 2.0))
    for method in (e.support, both.support):
        with pytest.raises(ValueError, match="(?i)direction"):
            method(BAD_DIRECTIONS[name])
    with pytest.raises(ValueError, match="(?i)point"):
        e.distance(BAD_DIRECTIONS[name])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (Body(ZERO, EYE, 1.0), Body(np.zeros(3), np.eye(3), 1.0)),
        (Body(ZERO, EYE, 1.0), Body(*GOOD)),  # type: ignore[arg-type]
        (Body(GOOD[0][:2], GOOD[1][:2], GOOD[2][:2]), Body(*GOOD)),  # type: ignore[arg-type]
    ],
    ids=["dimensions", "single and batch", "batches"],
)
def test_mismatched_pairs_are_refused(first: Body, second: Body) -> None:
    with pytest.raises(ValueError, match="(?i)batch|dim|shape"):
        Intersection(ellipsoid(first), ellipsoid(second))


# ----------------------------------------------------------------------------------------- separating directions


@pytest.mark.no_cover
@regimes
def test_a_separating_direction_proves_what_is_empty_and_nothing_else(max_cond: float) -> None:
    @repeatable(60)
    @given(case=cases(max_cond), stretch=st.sampled_from([1.0 + 1e-4, 1.1, 3.0]))
    def run(case: Case, stretch: float) -> None:
        rng = case.rng()
        normal = unit(rng, case.dim)
        pair = plant_touching(case.precisions(rng), case.radii, normal, stretch)
        apart = Intersection(stacked([pair[0]]), stacked([pair[1]]))
        assert apart.separated(apart.separators()).all()
        planted = np.asarray(normal, dtype=np.float64)[None]
        assert apart.separated(planted).all() and not apart.separated(-planted).any()
        pair = plant_touching(case.precisions(rng), case.radii, normal, 1.0 - 1e-9)
        touching = Intersection(stacked([pair[0]]), stacked([pair[1]]))
        probes = np.vstack([planted, -planted, touching.separators(), rng.standard_normal((5, case.dim))])
        assert not any(touching.separated(probe[None]).any() for probe in probes)

    run()


def test_copies_of_the_best_direction_are_no_hard_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """The inner ellipsoid's best direction stands several times in the set: all of them tie, at the price of one."""
    rng = np.random.default_rng(6)
    inner = Ellipsoid(np.zeros((3, 4)), np.stack([random_precision(rng, 4, 10.0) for _ in range(3)]), np.ones(3))
    outer = Ellipsoid(np.zeros((3, 4)), np.stack([np.eye(4)] * 3), np.full(3, 100.0))
    directions = np.tile(rng.standard_normal((3, 5, 4)), (1, 2, 1))
    monkeypatch.setattr(Intersection, "_best_first", None)  # which would be called in a hard case
    mask, best = Intersection(inner, outer).argmax(directions)
    assert np.array_equal(mask.sum(axis=1), [2, 2, 2]) and np.array_equal(mask[:, :5], mask[:, 5:])
    assert np.array_equal(best, inner.support(directions).values.max(axis=1))


@pytest.mark.no_cover
@regimes
def test_frames_by_eigenvalues_agree_with_those_by_singular_values(max_cond: float) -> None:
    """Wherever eigenvalues are trusted; in the mild regime that is often."""
    trusted = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        conds = float(max_cond ** rng.uniform(0, 1)), float(max_cond ** rng.uniform(0, 1))
        ratio, odds = float(10.0 ** rng.uniform(-1, 1)), float(rng.uniform(-3, 3))
        case = Case(int(rng.integers(1, 21)), conds, ("spread", "spread"), False, ratio, 1.0, odds, 1.0, seed)
        pair = overlapping_pair(case)
        one, two = stacked([pair[0]]), stacked([pair[1]])
        frame, by_svd = Frame.of(one, two), Frame.of(one, Ellipsoid.from_root(two.center, two.root, two.radius))
        trusted += not np.array_equal(frame.axes, by_svd.axes)
        directions = some_directions(rng, pair, 6)
        scale = np.array([float(value_scale(*pair, a, 0.0)) for a in directions])
        rows, places = np.zeros(6, dtype=int), np.arange(6)
        quick, sure = (use.peaks(use.sight(directions[None]), rows, places).values for use in (frame, by_svd))
        error = np.max(np.abs(quick - sure) / np.maximum(scale, np.abs(sure)))
        assert note(f"frames, {max_cond:.0e}: value", error) <= 1e-9
    assert trusted > (100 if max_cond <= MILD else 20)
