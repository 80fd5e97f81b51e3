"""Tests of robandit.geometry.regions: decision sets, and the joint optimum over action and parameter.

Answers come from brute force (dense random search with local improvement), from a dual bound, from enumeration of
corners or angles, and from cases that can be done by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from geometry_oracles import Body, Float, dual_support, random_basis, random_precision
from hypothesis import given
from hypothesis import strategies as st

from observed import repeatable, shares, surplus
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.intersection import Intersection
from robandit.geometry.regions import Ball, Box, Optimum, Polytope, Region, optimise
from robandit.geometry.ridge import Ridge
from thinned import longer, thinned, untraced

SLACK = 1e-9  # relative: what a search may find above the optimum, and what "certified" promises
CLOSE = 1e-10  # relative, of values against an oracle
DENSE = 20_000

Confidence = Ellipsoid | Intersection


# ------------------------------------------------------------------------------------- confidence sets


def stack(bodies: list[Body]) -> Ellipsoid:
    """Single ellipsoids as one batch."""
    parts = zip(*((body.center, body.precision, body.radius) for body in bodies), strict=True)
    return Ellipsoid(*(np.stack(part) for part in parts))


def meeting(rng: np.random.Generator, dim: int, cond: float, shift: float) -> tuple[Body, Body]:
    """Two ellipsoids around a common point, at most 0.95 of the way to their boundaries."""
    common, pair = shift * rng.normal(size=dim) / np.sqrt(dim), []
    for _ in range(2):
        precision, radius = random_precision(rng, dim, cond), 10.0 ** rng.uniform(-0.5, 0.5) * cond**0.25
        out = np.linalg.solve(np.linalg.cholesky(precision).T, rng.normal(size=dim))
        out *= rng.uniform(0, 0.95) * radius / np.sqrt(out @ precision @ out)
        pair.append(Body(common + out, precision, radius))
    return pair[0], pair[1]


def random_pairs(rng: np.random.Generator, n: int, dim: int) -> Intersection:
    """Pairs of unrelated ellipsoids, condition 1 to 10⁴, around zero or far from it."""
    pairs = [meeting(rng, dim, 10.0 ** rng.uniform(0, 4), 10.0 ** rng.uniform(-2, 1)) for _ in range(n)]
    return Intersection(stack([pair[0] for pair in pairs]), stack([pair[1] for pair in pairs]))


def round_pairs(rng: np.random.Generator, n: int, dim: int) -> Intersection:
    """Pairs of nearly round ellipsoids around nearly zero, as a policy has them in its first rounds."""
    bodies = [
        [
            Body(1e-3 * rng.normal(size=dim), random_precision(rng, dim, 1.0 + 10.0 ** rng.uniform(-3, 0)), 1.0)
            for _ in range(n)
        ]
        for _ in range(2)
    ]
    return Intersection(stack(bodies[0]), stack(bodies[1]))


def learnt_pairs(rng: np.random.Generator, n: int, dim: int) -> Intersection:
    """The sets of Multi-level: a global regression, and a level that saw a part of it; the truth lies in both."""
    whole, level = (Ridge(rows=n, dim=dim, regularization=1.0) for _ in range(2))
    parameter = rng.normal(size=(n, dim)) / np.sqrt(dim)
    for _ in range(rng.integers(1, 200)):
        a = rng.normal(size=(n, dim)) / np.sqrt(dim)
        r = np.vecdot(a, parameter) + 0.3 * rng.normal(size=n)
        w = 10.0 ** rng.uniform(-1, 2, size=n)
        whole.update(a, r, w)
        level.update(a, r, w * (rng.random(n) < 0.3))
    one = np.ones(n)
    distances = [Ellipsoid.around(ridge, one).distance(parameter[:, None])[:, 0] for ridge in (whole, level)]
    beta, gamma = (distance * rng.uniform(1.05, 3, size=n) for distance in distances)
    return Intersection(Ellipsoid.around(whole, beta), Ellipsoid.around(level, gamma))


FAMILIES = {"random": random_pairs, "nearly round": round_pairs, "learnt": learnt_pairs}


def size_of(confidence: Confidence) -> int:
    return len(confidence.first.center if isinstance(confidence, Intersection) else confidence.center)


def widths(confidence: Ellipsoid, actions: Float) -> Float:
    """Support values of one batch of ellipsoids by the textbook formula, for actions (n, K, d)."""
    solved = np.linalg.solve(confidence.precision, np.swapaxes(actions, 1, 2))
    half = np.sqrt(np.einsum("nkd,ndk->nk", actions, solved))
    return np.einsum("nkd,nd->nk", actions, confidence.center) + confidence.radius[:, None] * half


# --------------------------------------------------------------------------------------------- regions


def make_region(rng: np.random.Generator, kind: str, dim: int) -> Region:
    if kind == "ball":
        return Ball(dim, radius=10.0 ** rng.uniform(-1, 1))
    if kind == "box":
        low = rng.normal(size=dim) - 1.0
        return Box(low, low + rng.uniform(0, 2, size=dim))
    if kind == "cube":
        return Box(-np.ones(dim), np.ones(dim))
    center = np.zeros(dim) if kind == "centred" else 0.5 * rng.normal(size=dim)
    return Ellipsoid(center, random_precision(rng, dim, 10.0 ** rng.uniform(0, 2)), 10.0 ** rng.uniform(-0.5, 0.5))


def sample(rng: np.random.Generator, region: Region, count: int) -> Float:
    """Actions of a region (count, d): one half on its boundary, or corners of a box; the other half anywhere."""
    half = count // 2
    if isinstance(region, Box):
        shares = rng.uniform(size=(count, region.dim))
        shares[:half] = shares[:half] > 0.5
        return region.low + shares * (region.high - region.low)
    unit = rng.normal(size=(count, region.dim))
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    unit[half:] *= rng.uniform(size=(count - half, 1)) ** (1 / region.dim)
    factor = np.linalg.cholesky(region.precision)
    return region.center + region.radius * np.linalg.solve(factor.T, unit.T).T


def highest(region: Region, directions: Float) -> Float:
    """The action that is best for each parameter, written out anew; parameters (..., d)."""
    if isinstance(region, Box):
        return np.where(directions > 0, region.high, region.low)
    lifted = np.linalg.solve(region.precision, directions.reshape(-1, region.dim).T).T.reshape(directions.shape)
    return region.center + region.radius * lifted / np.sqrt(np.vecdot(lifted, directions))[..., None]


def excess(region: Region, points: Float) -> float:
    """How far outside of the region points (n, d) are, relative to its size; ≤ 0 inside."""
    if isinstance(region, Box):
        out = np.maximum(region.low - points, points - region.high)
        return float(out.max() / (1.0 + np.abs(region.high).max()))
    offsets = points - region.center
    return float((np.sqrt(np.vecdot(offsets @ region.precision, offsets)) / region.radius).max() - 1.0)


# ---------------------------------------------------------------------------------------------- search


def improve(region: Region, confidence: Confidence, actions: Float, steps: int) -> Float:
    """Values (n, K) after improving actions (n, K, d) over the parameter and the action in turn."""
    for _ in range(steps):
        actions = highest(region, confidence.support(actions).points)
    return confidence.support(actions).values


def search(rng: np.random.Generator, region: Region, confidence: Confidence, found: Optimum) -> Float:
    """The best of a dense random search, of local searches from its best points and others, and from ``found``."""
    assert found.points is not None
    n = size_of(confidence)
    dense = np.broadcast_to(sample(rng, region, DENSE), (n, DENSE, region.dim))
    values = confidence.support(dense).values
    top = np.argpartition(values, -40, axis=1)[:, -40:]
    starts = np.concatenate([np.take_along_axis(dense, top[..., None], axis=1), dense[:, :80]], axis=1)
    local = improve(region, confidence, starts, 25)
    onward = improve(region, confidence, found.points[:, None, :], 500)
    return np.concatenate([values, local, onward], axis=1).max(axis=1)


def check_found(region: Region, confidence: Confidence, found: Optimum) -> None:
    """The point returned lies in the region, and its own value is the one returned."""
    assert found.maximisers is None
    assert found.points is not None and found.points.shape == (size_of(confidence), region.dim)
    assert surplus("point outside of region", excess(region, found.points)) <= 1e-12
    again = confidence.support(found.points[:, None, :]).values[:, 0]
    assert surplus("value against its point's", np.abs(again - found.values) / np.abs(found.values)) <= 1e-12


def compare(rng: np.random.Generator, region: Region, confidence: Confidence, label: str) -> None:
    """Nothing beats the optimum, above all where it is certified."""
    found = optimise(region, confidence)
    check_found(region, confidence, found)
    shares[label] += found.certified.tolist()
    better = (search(rng, region, confidence, found) - found.values) / np.abs(found.values)
    assert surplus(f"search − certified value, {label}", better[found.certified].max(initial=0.0)) <= SLACK
    assert surplus(f"search − value, {label}", better) <= SLACK


ellipsoids = pytest.mark.parametrize("kind", ["ball", "centred", "off-centre"])
families = pytest.mark.parametrize("family", FAMILIES)


@pytest.mark.no_cover
@pytest.mark.parametrize("dim", [1, 3, 12])
@ellipsoids
@families
def test_ellipsoids_with_one_ellipsoid(kind: str, family: str, dim: int) -> None:
    """Around zero always certified."""
    rng = np.random.default_rng(dim)
    region, confidence = make_region(rng, kind, dim), FAMILIES[family](rng, 3, dim).first
    compare(rng, region, confidence, f"{kind}, one ellipsoid, {family}")
    if kind != "off-centre":
        assert optimise(region, confidence).certified.all()


@pytest.mark.no_cover
@pytest.mark.parametrize("dim", thinned([1, 3, 5, 12], fast=[1, 5]))
@ellipsoids
@families
def test_ellipsoids_with_an_intersection(kind: str, family: str, dim: int) -> None:
    """Ball, centred and off-centre ellipsoid."""
    rng = np.random.default_rng(dim)
    compare(rng, make_region(rng, kind, dim), FAMILIES[family](rng, 3, dim), f"{kind}, intersection, {family}")


@pytest.mark.no_cover
@pytest.mark.parametrize("dim", longer(13, 16))
@pytest.mark.parametrize("kind", ["box", "cube"])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("family", ["random", "learnt"])
def test_boxes_of_many_corners(kind: str, number: int, family: str, dim: int) -> None:
    """With one ellipsoid and with an intersection; the search sees most of the corners at d = 13."""
    rng = np.random.default_rng(dim)
    pairs = FAMILIES[family](rng, 3, dim)
    compare(rng, make_region(rng, kind, dim), pairs if number == 2 else pairs.first, f"{kind}, {number}, {family}")


@pytest.mark.no_cover
@pytest.mark.parametrize("dim", [1, 2, 5, 9, 12])
@pytest.mark.parametrize("kind", ["box", "cube"])
@families
def test_boxes_of_few_corners(kind: str, family: str, dim: int) -> None:
    """Every corner looked at here too: exact, and always certified."""
    rng = np.random.default_rng(dim)
    region, pairs = make_region(rng, kind, dim), FAMILIES[family](rng, 3, dim)
    assert isinstance(region, Box)
    corners = np.array(list(product(*zip(region.low, region.high, strict=True))))
    corners = np.broadcast_to(corners, (size_of(pairs), *corners.shape))
    for confidence, values in ((pairs.first, widths(pairs.first, corners)), (pairs, pairs.support(corners).values)):
        found = optimise(region, confidence)
        check_found(region, confidence, found)
        assert found.certified.all()
        off = np.abs(found.values - values.max(axis=1)) / np.abs(found.values)
        assert surplus("box of few corners", off) <= CLOSE


@pytest.mark.slow
def test_certified_share_of_the_ball() -> None:
    """Counted on many more trials, at the sizes that policies have; printed."""
    rng = np.random.default_rng(0)
    for family, make in FAMILIES.items():
        for dim in (2, 5, 10, 20):
            found = optimise(Ball(dim), make(rng, 8, dim))
            shares[f"ball, intersection, {family}, d = {dim}"] += found.certified.tolist()


# --------------------------------------------------------------------- the plane, angle by angle


def best_angle(region: Ellipsoid, confidence: Intersection) -> Float:
    """The best value on the boundary: a grid of angles, refined three times around its best."""
    n, reach = size_of(confidence), region.radius * np.linalg.inv(np.linalg.cholesky(region.precision))
    angles, span = np.broadcast_to(np.linspace(0, 2 * np.pi, 2001), (n, 2001)), np.pi / 1000
    for _ in range(4):
        actions = region.center + np.stack([np.cos(angles), np.sin(angles)], axis=-1) @ reach
        values = confidence.support(actions).values
        best = np.take_along_axis(angles, values.argmax(axis=1)[:, None], axis=1)
        angles, span = best + np.linspace(-span, span, 101), span / 50
    return values.max(axis=1)


@pytest.mark.no_cover
@pytest.mark.parametrize("seed", longer(0, 1))
@pytest.mark.parametrize("kind", ["ball", "off-centre"])
@families
def test_the_plane_with_an_intersection(family: str, kind: str, seed: int) -> None:
    """In the plane the truth is known: no certificate is wrong, and no value falls short of it."""
    rng = np.random.default_rng(seed)
    confidence, region = FAMILIES[family](rng, 40, 2), make_region(rng, kind, 2)
    assert isinstance(region, Ellipsoid)
    found, truth = optimise(region, confidence), best_angle(region, confidence)
    shortfall = (truth - found.values) / np.abs(truth)
    shares[f"plane: {kind}, intersection, {family}"] += found.certified.tolist()
    assert surplus(f"plane: truth − certified, {kind}, {family}", shortfall[found.certified].max(initial=0.0)) <= SLACK
    assert surplus(f"plane: truth − value, {kind}, {family}", shortfall) <= SLACK


@pytest.mark.parametrize("gap", [0.0, 1e-12, 1e-9, 1e-7, 1e-5, 1e-3])
def test_two_rival_tips(gap: float) -> None:
    """A cross of two thin ellipses, whose tips differ by a little: the lower one must not be certified."""
    thin = np.array([1.0, 100.0])
    first = Ellipsoid(np.zeros((1, 2)), np.diag(1 / thin**2)[None], np.ones(1))
    second = Ellipsoid(np.array([[gap, 0.0]]), np.diag(1 / thin[::-1] ** 2)[None], np.ones(1))
    confidence = Intersection(first, second)
    found, truth = optimise(Ball(2), confidence), best_angle(Ball(2), confidence)
    assert (truth <= found.values * (1 + SLACK)).all()


# ----------------------------------------------------------------------- the ball and one ellipsoid


def farthest_norm(center: Float, covariance: Float) -> float:
    """max ‖x‖ over {center + covariance^½ u, ‖u‖ ≤ 1}, by its dual: the root of min_ν ν + Σ c² ν/(ν − q), ν ≥ max q."""
    q, vectors = np.linalg.eigh(covariance)
    squares, top = (center @ vectors) ** 2, q[-1]
    low, high = -80.0, np.log1p(np.sqrt(squares.sum() / top)) + 5.0  # of log(ν/top − 1)
    for _ in range(100):
        middle = (low + high) / 2
        falling = np.sum(squares * q / (top - q + top * np.exp(middle)) ** 2) > 1
        low, high = (middle, high) if falling else (low, middle)
    nu = top * (1 + np.exp(high))
    return float(np.sqrt(nu + np.sum(squares * nu / (top - q + top * np.exp(high)))))


@st.composite
def balls(draw: st.DrawFn) -> tuple[float, Body]:
    """The radius of a ball and an ellipsoid; some centres zero, some orthogonal to the longest axis, or nearly."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    dim = draw(st.integers(1, 10))
    shape = draw(st.sampled_from(["spread", "one_long_axis", "one_short_axis"]))
    basis = random_basis(rng, dim)
    precision = random_precision(rng, dim, 10.0 ** draw(st.floats(0, 4)), shape, basis)
    inner = rng.normal(size=dim) * 10.0 ** draw(st.integers(-6, 2))
    longest = np.linalg.eigvalsh(precision)[0] * (1 + 1e-6) >= np.diag(basis.T @ precision @ basis)
    inner[longest] *= draw(st.sampled_from([0.0, 1e-12, 1.0]))
    inner *= draw(st.sampled_from([0.0, 1.0, 1.0]))
    return 10.0 ** draw(st.floats(-2, 2)), Body(basis @ inner, precision, 10.0 ** draw(st.floats(-2, 2)))


@pytest.mark.no_cover
@repeatable(200)
@given(case=balls())
def test_ball_and_ellipsoid_against_the_dual(case: tuple[float, Body]) -> None:
    """Easy and hard cases; the set of actions around zero, the answer certified."""
    size, body = case
    region, confidence = Ball(body.dim, size), stack([body])
    found = optimise(region, confidence)
    check_found(region, confidence, found)
    exact = farthest_norm(body.center, np.asarray(body.radius**2 * np.linalg.inv(body.precision), dtype=float))
    assert surplus("ball and ellipsoid", abs(found.values[0] / (size * exact) - 1)) <= CLOSE
    assert found.certified.all()


@pytest.mark.no_cover
@repeatable(100)
@given(case=balls(), seed=st.integers(0, 1000))
def test_centred_ellipsoid_and_ellipsoid_against_the_dual(case: tuple[float, Body], seed: int) -> None:
    """The same after a linear change of variables."""
    size, body = case
    actions = random_precision(np.random.default_rng(seed), body.dim, 1e2)
    region, confidence = Ellipsoid(np.zeros(body.dim), actions, size), stack([body])
    found = optimise(region, confidence)
    check_found(region, confidence, found)
    reach = size * np.linalg.inv(np.linalg.cholesky(actions))
    exact = farthest_norm(reach @ body.center, body.radius**2 * reach @ np.linalg.solve(body.precision, reach.T))
    assert surplus("centred ellipsoid and ellipsoid", abs(found.values[0] / exact - 1)) <= CLOSE
    assert found.certified.all()


@pytest.mark.parametrize("dim", [1, 2, 3, 10])
def test_confidence_around_zero(dim: int) -> None:
    """Then the value is the longest semi-axis, along it: the hard case at its hardest."""
    axes = np.arange(1.0, dim + 1)
    confidence = Ellipsoid(np.zeros((1, dim)), np.diag(1 / axes**2)[None], np.array([0.5]))
    found = optimise(Ball(dim, 3.0), confidence)
    assert found.values == pytest.approx(3.0 * 0.5 * dim, rel=1e-14)
    assert found.points is not None and np.abs(found.points[0]) == pytest.approx(3.0 * np.eye(dim)[-1], abs=1e-14)


@pytest.mark.parametrize("offset", [0.1, 0.7, 1.4])
def test_centre_orthogonal_to_the_longest_axis(offset: float) -> None:
    """Semi-axes 2 and 1, centre (0, m), hard if m < 3: the value² is 4 + 4 m²/3."""
    confidence = Ellipsoid(np.array([[0.0, offset]]), np.diag([0.25, 1.0])[None], np.ones(1))
    found = optimise(Ball(2), confidence)
    assert found.values == pytest.approx(np.sqrt(4 + 4 * offset**2 / 3), rel=1e-14)
    assert found.certified.all()
    check_found(Ball(2), confidence, found)


def test_a_confidence_set_of_one_point() -> None:
    """Radius 0: the action points at it; at zero itself, every action has value 0."""
    confidence = Ellipsoid(np.array([[3.0, 4.0], [0.0, 0.0]]), np.stack([np.eye(2)] * 2), np.zeros(2))
    found = optimise(Ball(2), confidence)
    assert found.values == pytest.approx([5.0, 0.0], abs=1e-15)
    assert found.points is not None and found.points[0] == pytest.approx([0.6, 0.8], rel=1e-14)
    assert np.isfinite(found.points).all() and excess(Ball(2), found.points) <= 1e-12


# -------------------------------------------------------------------------------------------- finite sets


@pytest.mark.no_cover
@pytest.mark.parametrize("dim", thinned([1, 2, 5, 10], fast=[1, 5]))
@families
def test_finite_sets(family: str, dim: int) -> None:
    """The largest support value, against the formula and, for the intersection, an 80-bit dual."""
    rng = np.random.default_rng(dim)
    pairs = FAMILIES[family](rng, 3, dim)
    actions = rng.normal(size=(3, 5, dim))
    exact = np.array([[float(dual_support(*row, a)) for a in actions[i]] for i, row in enumerate(rows_of(pairs))])
    for confidence, values in ((pairs.first, widths(pairs.first, actions)), (pairs, exact)):
        found = optimise(actions, confidence)
        assert found.points is None and found.certified.all()
        scale = np.abs(widths(pairs.first, actions)).max(axis=1)
        assert surplus("finite sets", np.abs(found.values - values.max(axis=1)) / scale) <= 1e-8
        np.testing.assert_array_equal(found.mask(5), np.eye(5, dtype=bool)[values.argmax(axis=1)])


def rows_of(pairs: Intersection) -> list[tuple[Body, Body]]:
    """The pairs one by one, as the oracles want them."""
    sides = [
        [Body(*row) for row in zip(part.center, part.precision, part.radius, strict=True)]
        for part in (pairs.first, pairs.second)
    ]
    return list(zip(*sides, strict=True))


def test_ties_in_a_finite_set() -> None:
    """An action given twice attains the maximum twice."""
    rng = np.random.default_rng(0)
    pairs = random_pairs(rng, 5, 4)
    actions = rng.normal(size=(5, 6, 4))
    actions[:, 4] = actions[:, 1] = 10 * actions[:, 1]
    for confidence in (pairs.first, pairs):
        found = optimise(actions, confidence)
        mask = found.mask(5)
        assert (mask[:, 1] == mask[:, 4]).all()
        assert (mask.sum(axis=1) >= 1).all()


def apart(n: int, dim: int) -> Intersection:
    """Unit balls; those of odd number are 3 apart, so that they don't meet."""
    center = np.zeros((n, dim))
    center[1::2, 0] = 3.0
    eye, one = np.broadcast_to(np.eye(dim), (n, dim, dim)), np.ones(n)
    return Intersection(Ellipsoid(np.zeros((n, dim)), eye, one), Ellipsoid(center, eye, one))


@pytest.mark.parametrize("kind", ["ball", "centred", "off-centre", "box", "finite"])
@pytest.mark.parametrize("dim", [2, 13])
def test_empty_intersections(kind: str, dim: int) -> None:
    """Value −∞ and no certificate, beside others that are not empty; also if all are empty."""
    rng = np.random.default_rng(0)
    confidence = apart(5, dim)
    actions = rng.normal(size=(5, 4, dim)) if kind == "finite" else make_region(rng, kind, dim)
    found = optimise(actions, confidence)
    assert (found.values[1::2] == -np.inf).all()
    assert np.isfinite(found.values[::2]).all()
    assert not found.certified[1::2].any()
    alone = optimise(actions[1::2] if isinstance(actions, np.ndarray) else actions, confidence[np.array([1, 3])])
    assert (alone.values == -np.inf).all()
    if kind == "finite":
        assert found.maximisers is not None
        assert not found.maximisers[1::2].any() and found.maximisers[::2].any(axis=1).all()
    else:
        full = optimise(actions, confidence[np.array([0, 2, 4])])
        np.testing.assert_array_equal(found.values[::2], full.values)
        assert found.points is not None and full.points is not None
        np.testing.assert_array_equal(found.points[::2], full.points)


@pytest.mark.parametrize(
    "kind", untraced(["ball", "centred", "off-centre", "box", "finite"], but=["off-centre", "box"])
)
@pytest.mark.parametrize("dim", [3, 13])
@pytest.mark.parametrize("number", [1, 2])
@families
def test_a_batch_equals_its_members_singly(kind: str, dim: int, number: int, family: str) -> None:
    """Bit for bit, so that a trial chooses the same in any batch."""
    rng = np.random.default_rng(dim)
    pairs = FAMILIES[family](rng, 4, dim)
    confidence = pairs if number == 2 else pairs.first
    rows = range(size_of(pairs))
    actions = rng.normal(size=(len(rows), 9, dim)) if kind == "finite" else make_region(rng, kind, dim)
    batch = optimise(actions, confidence)
    singles = [optimise(actions[[i]] if isinstance(actions, np.ndarray) else actions, confidence[[i]]) for i in rows]
    for field, whole in batch._asdict().items():
        if whole is not None:
            parts = np.concatenate([getattr(single, field) for single in singles])
            np.testing.assert_array_equal(whole, parts, err_msg=field)


# ------------------------------------------------------------------------------------- farthest, support


@pytest.mark.no_cover
@repeatable(100)
@given(case=balls())
def test_farthest_point_of_an_ellipsoid(case: tuple[float, Body]) -> None:
    """Against the dual; the point lies in the set and has that norm."""
    _, body = case
    ellipsoid = Ellipsoid(body.center, body.precision, body.radius)
    norms, points = ellipsoid.farthest()
    assert norms.shape == (1,) and points.shape == (1, body.dim)
    assert norms[0] == pytest.approx(np.linalg.norm(points[0]), rel=1e-14)
    assert surplus("farthest point outside", excess(ellipsoid, points)) <= 1e-10
    exact = farthest_norm(body.center, np.asarray(body.radius**2 * np.linalg.inv(body.precision), dtype=float))
    assert surplus("farthest", abs(norms[0] / exact - 1)) <= CLOSE


def test_farthest_points_of_a_batch() -> None:
    """Bit for bit those of its members; none farther among random points."""
    rng = np.random.default_rng(0)
    batch = random_pairs(rng, 8, 4).first
    norms, points = batch.farthest()
    assert norms.shape == (8, 1) and points.shape == (8, 1, 4)
    for i in range(8):
        np.testing.assert_array_equal(batch[i].farthest().points, points[i])
        assert np.linalg.norm(sample(rng, batch[i], DENSE), axis=1).max() <= norms[i, 0] * (1 + 1e-12)


def test_farthest_by_hand() -> None:
    """A ball, an interval, a shifted ball, a single point."""
    assert Ball(4, 2.5).farthest().values == pytest.approx([2.5], rel=1e-15)
    assert Ellipsoid([-1.0], [[1.0]], 2.0).farthest().points == pytest.approx(np.array([[-3.0]]), rel=1e-15)
    assert Ellipsoid([3.0, 4.0], np.eye(2), 1.0).farthest().points[0] == pytest.approx([3.6, 4.8], rel=1e-14)
    assert Ellipsoid([3.0, 4.0], np.eye(2), 0.0).farthest().values == pytest.approx([5.0], rel=1e-15)


@pytest.mark.parametrize("kind", ["ball", "centred", "off-centre", "box", "cube"])
@pytest.mark.parametrize("dim", [1, 3, 10])
def test_supports_of_regions(kind: str, dim: int) -> None:
    """No sampled action is better than the one returned, which lies in the region."""
    rng = np.random.default_rng(dim)
    region = make_region(rng, kind, dim)
    directions = rng.normal(size=(5, dim))
    values, points = region.support(directions)
    assert excess(region, points) <= 1e-12
    np.testing.assert_allclose(np.vecdot(points, directions), values, rtol=1e-12, atol=1e-12)
    assert (sample(rng, region, DENSE) @ directions.T <= values + 1e-12 * np.abs(values)).all()


@repeatable(50)
@given(seed=st.integers(0, 2**32 - 1), dim=st.integers(1, 8))
def test_farthest_corner_of_a_box(seed: int, dim: int) -> None:
    """Against all the corners."""
    rng = np.random.default_rng(seed)
    region = make_region(rng, "box", dim)
    assert isinstance(region, Box)
    corners = region.corners()
    assert corners.shape == (2**dim, dim)
    assert ((corners == region.low) | (corners == region.high)).all()
    norms, points = region.farthest()
    assert norms[0] == pytest.approx(np.linalg.norm(corners, axis=1).max(), rel=1e-14)
    assert norms[0] == pytest.approx(np.linalg.norm(points[0]), rel=1e-14)
    assert (corners == points).all(axis=1).any()


def test_a_box_may_be_flat() -> None:
    """low = high in some coordinates, or in all of them."""
    confidence = Ellipsoid(np.array([[1.0, -2.0]]), np.eye(2)[None], np.ones(1))
    found = optimise(Box([1.0, -1.0], [1.0, 1.0]), confidence)
    assert found.values == pytest.approx(3.0 + np.sqrt(2.0), rel=1e-14)
    assert found.points is not None and found.points.tolist() == [[1.0, -1.0]]
    assert optimise(Box([0.0, 1.0], [0.0, 1.0]), confidence).values == pytest.approx(-1.0, rel=1e-14)


@pytest.mark.parametrize("number", [1, 2])
def test_a_polytope_is_its_vertices(number: int) -> None:
    """No mixture of vertices beats the best vertex."""
    rng = np.random.default_rng(0)
    polytope = Polytope(rng.normal(size=(10, 3)))
    pairs = random_pairs(rng, 6, 3)
    confidence = pairs if number == 2 else pairs.first
    found = optimise(np.broadcast_to(polytope.vertices, (6, 10, 3)), confidence)
    mixtures = rng.dirichlet(np.full(10, 0.3), size=5000) @ polytope.vertices
    values = confidence.support(np.broadcast_to(mixtures, (6, 5000, 3))).values
    assert (values.max(axis=1) <= found.values + SLACK * np.abs(found.values)).all()
    assert found.certified.all()


# -------------------------------------------------------------------------------------------- validation


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Ball(0), "dim must be an integer >= 1, got 0"),
        (lambda: Ball(-3), "dim must be an integer >= 1, got -3"),
        (lambda: Ball(2, radius=-1.0), "radius must be >= 0, got -1"),
        (lambda: Ball(2, radius=np.inf), "radius must be finite, got inf"),
        (lambda: Ball(2, radius=np.nan), "radius must be finite, got nan"),
        (lambda: Box([0.0, 0.0], [1.0]), r"\(2,\) and \(1,\)"),
        (lambda: Box(0.0, 1.0), r"low and high must be \(d,\)"),
        (lambda: Box([[0.0]], [[1.0]]), r"low and high must be \(d,\)"),
        (lambda: Box([], []), "low and high"),
        (lambda: Box([0.0, 0.0], [1.0, np.inf]), "bounded"),
        (lambda: Box([-np.inf], [1.0]), "bounded"),
        (lambda: Box([np.nan], [1.0]), "finite"),
        (lambda: Box([0.0, 2.0], [1.0, 1.0]), "coordinate 1 has 2.0 > 1.0"),
        (lambda: Polytope([1.0, 2.0]), r"vertices must be \(V, d\)"),
        (lambda: Polytope(np.zeros((0, 3))), "V >= 1"),
        (lambda: Polytope(np.zeros((3, 0))), "vertices"),
        (lambda: Polytope(np.zeros((2, 3, 4))), r"vertices must be \(V, d\)"),
        (lambda: Polytope([[0.0, np.inf]]), "vertices must be finite"),
        (lambda: Polytope([[0.0, np.nan]]), "vertices must be finite"),
    ],
)
def test_what_is_no_decision_set_is_refused(make: Callable[[], object], message: str) -> None:
    """With an error that names the value."""
    with pytest.raises(ValueError, match=message):
        make()


def test_decision_sets_keep_their_own_copy() -> None:
    """Changing the arrays afterwards has no effect."""
    low, high, vertices = np.zeros(2), np.ones(2), np.eye(2)
    box, polytope = Box(low, high), Polytope(vertices)
    low[:], high[:], vertices[:] = 7.0, 7.0, 7.0
    assert box.low.tolist() == [0.0, 0.0] and box.high.tolist() == [1.0, 1.0]
    assert polytope.vertices.tolist() == np.eye(2).tolist()
