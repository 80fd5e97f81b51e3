"""Reference answers for the geometry of one ellipsoid and of the intersection of two.

Nothing here uses the package under test, and no two oracles share their argument:

* ``plant`` builds a problem around a maximiser that is known in advance (KKT), with no optimisation at all;
* ``dual_support`` and ``dual_gap`` minimise/maximise the one-variable dual in 80-bit arithmetic;
* ``mp_support`` and ``mp_gap`` do the same with mpmath at 50 digits and another search rule (small d only);
* ``cone_support`` and ``cone_gap`` pose the problem as a cone program for Clarabel (moderate conditioning).

Notation: q_i(x) = (x - m_i)^T P_i (x - m_i) / r_i^2, so that ellipsoid i is {q_i <= 1}.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import mpmath
import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
Long = NDArray[np.longdouble]

HAS_EXTENDED = bool(np.finfo(np.longdouble).eps < 1e-18)
"""False where long double is plain double (MSVC, macOS on ARM): the oracles are then too weak to judge."""


# ----------------------------------------------------------------------------------------------- problems


@dataclass(frozen=True)
class Body:
    """One ellipsoid, {x : (x - center)^T precision (x - center) <= radius^2}, as float64 inputs."""

    center: Float
    precision: Float
    radius: float

    @property
    def dim(self) -> int:
        """Dimension of the space."""
        return int(self.center.shape[0])


@dataclass(frozen=True)
class Planted:
    """A pair, a direction, and the maximum of <direction, x> over the intersection, known by construction."""

    first: Body
    second: Body
    direction: Float
    value: np.longdouble
    maximiser: Long
    tau: float


def long(x: object) -> Long:
    """Exact conversion to 80-bit."""
    return np.asarray(x, dtype=np.longdouble)


def random_basis(rng: np.random.Generator, dim: int) -> Float:
    """A random orthogonal matrix."""
    q, r = np.linalg.qr(rng.standard_normal((dim, dim)))
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0), dtype=np.float64)


def random_spectrum(rng: np.random.Generator, dim: int, cond: float, shape: str) -> Float:
    """Positive numbers with largest/smallest equal to cond (all ones in dimension 1)."""
    if dim == 1:
        return np.ones(1)
    if shape == "spread":
        logs = rng.uniform(0.0, 1.0, dim)
    elif shape == "one_long_axis":
        logs = np.ones(dim)
    elif shape == "one_short_axis":
        logs = np.zeros(dim)
    else:
        raise ValueError(f"unknown spectrum shape {shape!r}")
    logs[0], logs[-1] = 0.0, 1.0
    return np.asarray(cond**logs, dtype=np.float64)


def random_precision(
    rng: np.random.Generator, dim: int, cond: float, shape: str = "spread", basis: Float | None = None
) -> Float:
    """A symmetric positive definite float64 matrix of the given condition number, eigenvalues in [1, cond]."""
    vectors = random_basis(rng, dim) if basis is None else basis
    matrix = (vectors * random_spectrum(rng, dim, cond, shape)) @ vectors.T
    return np.asarray((matrix + matrix.T) / 2, dtype=np.float64)


def unit(rng: np.random.Generator, dim: int) -> Long:
    """A random unit vector, normalised in 80-bit."""
    vector = long(rng.standard_normal(dim))
    return vector / np.sqrt(vector @ vector)


# ------------------------------------------------------------------------------- 80-bit linear algebra


def cholesky(matrix: Long) -> Long:
    """Lower-triangular factor L with L L^T = matrix; raises if matrix is not positive definite."""
    work = matrix.copy()
    dim = work.shape[0]
    for j in range(dim):
        if not work[j, j] > 0:
            raise ValueError("matrix is not positive definite")
        work[j:, j] /= np.sqrt(work[j, j])
        work[j + 1 :, j + 1 :] -= np.outer(work[j + 1 :, j], work[j + 1 :, j])
    return np.asarray(np.tril(work))


def solve_lower(factor: Long, rhs: Long) -> Long:
    """Solve factor x = rhs for a lower-triangular factor and a rhs of shape (d,) or (d, k)."""
    out = np.array(rhs, dtype=np.longdouble)
    for j in range(factor.shape[0]):
        out[j] /= factor[j, j]
        out[j + 1 :] -= np.multiply.outer(factor[j + 1 :, j], out[j])
    return out


def solve_lower_transposed(factor: Long, rhs: Long) -> Long:
    """Solve factor^T x = rhs for a lower-triangular factor and a rhs of shape (d,) or (d, k)."""
    out = np.array(rhs, dtype=np.longdouble)
    for j in range(factor.shape[0] - 1, -1, -1):
        out[j] /= factor[j, j]
        out[:j] -= np.multiply.outer(factor[j, :j], out[j])
    return out


def solve(matrix: Long, rhs: Long) -> Long:
    """Solve matrix x = rhs for a symmetric positive definite matrix."""
    factor = cholesky(matrix)
    return solve_lower_transposed(factor, solve_lower(factor, rhs))


# ------------------------------------------------------------------------------------ one ellipsoid


def distance(body: Body, point: object) -> np.longdouble:
    """sqrt of q(point), 80-bit: at most 1 inside."""
    offset = long(point) - long(body.center)
    return np.longdouble(np.sqrt(offset @ long(body.precision) @ offset) / np.longdouble(body.radius))


def half_width(body: Body, direction: Float) -> np.longdouble:
    """radius * sqrt(a^T precision^-1 a), 80-bit."""
    scaled = solve_lower(cholesky(long(body.precision)), long(direction))
    return np.longdouble(body.radius) * np.longdouble(np.sqrt(scaled @ scaled))


def single_support(body: Body, direction: Float) -> np.longdouble:
    """Maximum of <direction, x> over one ellipsoid, 80-bit."""
    return np.longdouble(long(direction) @ long(body.center) + half_width(body, direction))


def value_scale(first: Body, second: Body, direction: Float, value: np.longdouble | float) -> np.longdouble:
    """What value errors are measured against: max(|value|, the smaller of the two half-widths)."""
    smaller = min(half_width(first, direction), half_width(second, direction))
    return max(np.abs(np.longdouble(value)), smaller)


# --------------------------------------------------------------------------------------- planted oracle


def plant(
    rng: np.random.Generator,
    precisions: tuple[Float, Float],
    radii: tuple[float, float],
    tau: float,
    maximiser: Float,
    tangents: tuple[Long, Long] | None = None,
) -> Planted:
    """Build a pair and a direction whose maximiser over the intersection is planted.

    With P_i = L_i L_i^T and S_i = L_i^-T: the centers m_i = x* - r_i S_i u_i put x* on both boundaries, and
    a = a_1 + a_2 with a_1 = (1 - tau) L_1 u_1 / r_1 and a_2 = tau L_2 u_2 / r_2 is a non-negative combination
    of the two outer normals there, so x* is a maximiser of <a, x> (KKT; the problem is convex).

    The inputs are then rounded to float64. The precisions and radii are float64 from the start, and using the
    rounded a moves the value by <da, x*>, to first order. A shift e_i of center i moves it by <a_i, e_i>, to
    first order (a_i is the multiplier of that shift). Both are included; what is left is of second order, |e|^2
    in units of the shortest semi-axis. In these tests centers are at most 1e3 longest semi-axes of the smaller
    ellipsoid away and the longest is at most 1e4 shortest, so |e| <= 1e-16 * 1e7 = 1e-9 and |e|^2 <= 1e-18.
    """
    x = long(maximiser)
    dim = x.shape[0]
    normals: list[Long] = []
    bodies: list[Body] = []
    drift = np.longdouble(0)
    tangents = (unit(rng, dim), unit(rng, dim)) if tangents is None else tangents
    weights = (1 - np.longdouble(tau), np.longdouble(tau))
    for precision, radius, u, weight in zip(precisions, radii, tangents, weights, strict=True):
        factor = cholesky(long(precision))
        exact_center = x - np.longdouble(radius) * solve_lower_transposed(factor, u)
        normal = weight * (factor @ u) / np.longdouble(radius)
        body = Body(np.asarray(exact_center, dtype=np.float64), precision, radius)
        drift += np.longdouble(normal @ (long(body.center) - exact_center))
        normals.append(normal)
        bodies.append(body)
    direction = np.asarray(normals[0] + normals[1], dtype=np.float64)
    value = np.longdouble(long(direction) @ x + drift)
    return Planted(bodies[0], bodies[1], direction, value, x, tau)


def tip(rng: np.random.Generator, precision: Float, longest: bool, blur: float) -> Long:
    """The unit u whose boundary point S u is the tip of the longest or shortest axis, blurred at random."""
    axis = long(np.linalg.eigh(precision)[1][:, 0 if longest else -1])
    u = cholesky(long(precision)).T @ axis
    u = u / np.sqrt(u @ u) * rng.choice([-1, 1]) + np.longdouble(blur) * unit(rng, axis.shape[0])
    return u / np.sqrt(u @ u)


def plant_touching(
    precisions: tuple[Float, Float], radii: tuple[float, float], normal: Long, stretch: float
) -> tuple[Body, Body]:
    """Two ellipsoids with max_tau g(tau) = stretch^2 and separating direction ``normal``.

    At x = 0 both q_i equal stretch^2 and the two gradients are opposite multiples of ``normal``, so 0 minimises
    max(q_1, q_2): the intersection is empty if stretch > 1, one point if 1, and has an interior if < 1.
    """
    bodies = []
    for precision, radius, sign in zip(precisions, radii, (1, -1), strict=True):
        factor = cholesky(long(precision))
        u = solve_lower(factor, normal)
        u /= np.sqrt(u @ u)
        center = -sign * np.longdouble(stretch) * np.longdouble(radius) * solve_lower_transposed(factor, u)
        bodies.append(Body(np.asarray(center, dtype=np.float64), precision, radius))
    return bodies[0], bodies[1]


# ------------------------------------------------------------------------------------ 80-bit dual oracle


@dataclass(frozen=True)
class _Mix:
    """{(1 - tau) q_1 + tau q_2 <= 1}: center offsets from m_1 and m_2, least value g, and M^-1 a."""

    offsets: tuple[Long, Long]
    least: np.longdouble
    lifted: Long


def _scaled_precision(body: Body) -> Long:
    return long(body.precision) / np.longdouble(body.radius) ** 2


def _mix(first: Body, second: Body, direction: Float, log_odds: np.longdouble) -> _Mix:
    """The mixture of weight tau = 1 / (1 + exp(-log_odds))."""
    w1, w2 = 1 / (1 + np.exp(log_odds)), 1 / (1 + np.exp(-log_odds))
    p1, p2 = _scaled_precision(first), _scaled_precision(second)
    gap = long(second.center) - long(first.center)
    rhs = np.stack([w2 * (p2 @ gap), -w1 * (p1 @ gap), long(direction)], axis=1)
    from_first, from_second, lifted = solve(w1 * p1 + w2 * p2, rhs).T
    least = w1 * (from_first @ p1 @ from_first) + w2 * (from_second @ p2 @ from_second)
    return _Mix((from_first, from_second), least, lifted)


def _difference(first: Body, second: Body, offsets: tuple[Long, Long]) -> np.longdouble:
    """q_2 - q_1 at the point with the given offsets from the two centers."""
    one, two = offsets
    q1 = one @ _scaled_precision(first) @ one
    q2 = two @ _scaled_precision(second) @ two
    return np.longdouble(q2 - q1)


def _bisect(rising: Callable[[np.longdouble], bool], limit: float = 80.0, steps: int = 70) -> np.longdouble:
    """The log-odds at which ``rising`` turns from True to False."""
    low, high = np.longdouble(-limit), np.longdouble(limit)
    for _ in range(steps):
        middle = (low + high) / 2
        if rising(middle):
            low = middle
        else:
            high = middle
    return (low + high) / 2


def dual_gap(first: Body, second: Body) -> np.longdouble:
    """max_tau g(tau), g(tau) = min_x (1 - tau) q_1 + tau q_2 (concave); the intersection is empty iff > 1.

    By the minimax theorem this is min_x max(q_1, q_2). g'(tau) = q_2 - q_1 at the minimiser.
    """
    zero = np.zeros(first.dim)

    def rising(log_odds: np.longdouble) -> bool:
        return bool(_difference(first, second, _mix(first, second, zero, log_odds).offsets) > 0)

    return _mix(first, second, zero, _bisect(rising)).least


def _mix_top(mix: _Mix, direction: Float) -> tuple[np.longdouble, Long]:
    """Half-width of the mixture along direction, and the offset of its maximiser from its center."""
    width = np.sqrt(long(direction) @ mix.lifted)
    depth = np.sqrt(max(1 - mix.least, np.longdouble(0)))
    return depth * width, depth / width * mix.lifted


def dual_support(first: Body, second: Body, direction: Float) -> np.longdouble:
    """Maximum of <direction, x> over the intersection, as min_tau of the mixtures' support; -inf if empty.

    The support of the tau mixture is an upper bound for every tau and quasi-convex in tau; its derivative has
    the sign of q_1 - q_2 at the mixture's maximiser.
    """
    if dual_gap(first, second) > 1:
        return np.longdouble(-np.inf)
    if not np.any(direction):
        return np.longdouble(0)

    def falling(log_odds: np.longdouble) -> bool:
        mix = _mix(first, second, direction, log_odds)
        _, step = _mix_top(mix, direction)
        return bool(_difference(first, second, (mix.offsets[0] + step, mix.offsets[1] + step)) > 0)

    mix = _mix(first, second, direction, _bisect(falling))
    a = long(direction)
    return np.longdouble(a @ long(first.center) + a @ mix.offsets[0] + _mix_top(mix, direction)[0])


def rounding_sensitivity(first: Body, second: Body, direction: Float, trials: int = 3) -> np.longdouble:
    """How far the value moves when every entry of both precisions moves by up to half an ulp (2^-53, relative).

    No float64 algorithm that so much as rounds its input can promise less. inf if the set may become empty.
    """
    rng = np.random.default_rng(0)

    def nudged(body: Body) -> Body:
        noise = np.triu(rng.uniform(-1, 1, body.precision.shape)) * 2.0**-53
        factors = 1 + long(noise + np.triu(noise, 1).T)
        return Body(body.center, long(body.precision) * factors, body.radius)  # type: ignore[arg-type]

    exact = dual_support(first, second, direction)
    moved = [dual_support(nudged(first), nudged(second), direction) for _ in range(trials)]
    return max(np.abs(value - exact) for value in moved)


# --------------------------------------------------------------------------------- 50-digit oracle, small d


def _mp_matrix(array: object) -> mpmath.matrix:
    return mpmath.matrix(np.asarray(array, dtype=np.float64).tolist())


def _mp_mixture(first: Body, second: Body, direction: Float) -> Callable[[mpmath.mpf], tuple[mpmath.mpf, mpmath.mpf]]:
    """log_odds -> (g, support of the mixture), by completing the square in absolute coordinates."""
    p1 = _mp_matrix(first.precision) / mpmath.mpf(first.radius) ** 2
    p2 = _mp_matrix(second.precision) / mpmath.mpf(second.radius) ** 2
    m1, m2, a = _mp_matrix(first.center), _mp_matrix(second.center), _mp_matrix(direction)

    def evaluate(log_odds: mpmath.mpf) -> tuple[mpmath.mpf, mpmath.mpf]:
        w2 = 1 / (1 + mpmath.exp(-log_odds))
        w1 = 1 / (1 + mpmath.exp(log_odds))
        matrix = w1 * p1 + w2 * p2
        linear = w1 * (p1 * m1) + w2 * (p2 * m2)
        center = mpmath.lu_solve(matrix, linear)
        least = w1 * (m1.T * p1 * m1)[0] + w2 * (m2.T * p2 * m2)[0] - (linear.T * center)[0]
        width2 = (a.T * mpmath.lu_solve(matrix, a))[0]
        depth = max(1 - least, mpmath.mpf(0))
        return least, (a.T * center)[0] + mpmath.sqrt(depth * width2)

    return evaluate


def _golden_minimum(function: Callable[[mpmath.mpf], mpmath.mpf], limit: int = 40) -> mpmath.mpf:
    """Least value of a quasi-convex function on [-limit, limit], by golden-section search."""
    ratio = (mpmath.sqrt(5) - 1) / 2
    low, high = mpmath.mpf(-limit), mpmath.mpf(limit)
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    f_left, f_right = function(left), function(right)
    for _ in range(75):
        if f_left < f_right:
            high, right, f_right = right, left, f_left
            left = high - ratio * (high - low)
            f_left = function(left)
        else:
            low, left, f_left = left, right, f_right
            right = low + ratio * (high - low)
            f_right = function(right)
    return min(f_left, f_right)


def mp_gap(first: Body, second: Body) -> np.longdouble:
    """max_tau g(tau) at 50 digits."""
    with mpmath.workdps(50):
        mixture = _mp_mixture(first, second, np.zeros(first.dim))
        return np.longdouble(mpmath.nstr(-_golden_minimum(lambda t: -mixture(t)[0]), 25))


def mp_support(first: Body, second: Body, direction: Float) -> np.longdouble:
    """min_tau of the mixtures' support at 50 digits (the intersection must not be empty)."""
    with mpmath.workdps(50):
        mixture = _mp_mixture(first, second, direction)
        return np.longdouble(mpmath.nstr(_golden_minimum(lambda t: mixture(t)[1]), 25))


# ------------------------------------------------------------------------------------------- cone oracle

_CLARABEL = {
    "tol_gap_abs": 1e-12,
    "tol_gap_rel": 1e-12,
    "tol_feas": 1e-12,
    "tol_ktratio": 1e-10,
    "max_iter": 500,
}


def _solve_cone(problem: object) -> None:
    """Run Clarabel; it may say "inaccurate" at these tolerances, the comparison decides if it is."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        problem.solve(solver="CLARABEL", **_CLARABEL)  # type: ignore[attr-defined]


def _cone_coordinates(first: Body, second: Body) -> tuple[Float, Float, Float, Float]:
    """(base, frame, shape, shift): x = base + frame z maps {|z| <= 1} to the first ellipsoid.

    The second one is {|shape z - shift| <= 1}. Done in 80-bit, so that only the solver's error is left.
    """
    factor = cholesky(long(first.precision))
    frame = np.longdouble(first.radius) * solve_lower_transposed(factor, np.eye(first.dim, dtype=np.longdouble))
    other = cholesky(long(second.precision)).T / np.longdouble(second.radius)
    base = long(first.center)
    shift = other @ (long(second.center) - base)
    arrays = (base, frame, other @ frame, shift)
    return tuple(np.asarray(array, dtype=np.float64) for array in arrays)  # type: ignore[return-value]


def cone_support(first: Body, second: Body, direction: Float) -> float:
    """Maximum of <direction, x> over the intersection by Clarabel, in coordinates of the smaller half-width."""
    cp: Any = import_module("cvxpy")
    if half_width(second, direction) < half_width(first, direction):
        first, second = second, first
    base, frame, shape, shift = _cone_coordinates(first, second)
    slope = frame.T @ direction
    size = float(np.linalg.norm(slope))
    z = cp.Variable(first.dim)
    limits = [cp.norm(z, 2) <= 1, cp.norm(shape @ z - shift, 2) <= 1]
    problem = cp.Problem(cp.Maximize((slope / size) @ z), limits)
    _solve_cone(problem)
    if problem.status in ("infeasible", "infeasible_inaccurate"):
        return -np.inf
    return float(direction @ base + size * problem.value)


def cone_gap(first: Body, second: Body) -> float:
    """min_x max(q_1, q_2) by Clarabel."""
    cp: Any = import_module("cvxpy")
    if second.radius < first.radius:
        first, second = second, first
    _, _, shape, shift = _cone_coordinates(first, second)
    z, level = cp.Variable(first.dim), cp.Variable()
    problem = cp.Problem(cp.Minimize(level), [cp.norm(z, 2) <= level, cp.norm(shape @ z - shift, 2) <= level])
    _solve_cone(problem)
    return float(problem.value) ** 2
