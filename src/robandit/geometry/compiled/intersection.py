"""The kernels of `Intersection`, with those of `secular` that they need.

In coordinates y with μ = m₁ + β S₁ Q y the first ellipsoid is ‖y‖ ≤ 1 and the second yᵀTy − 2⟨p, y⟩ + e ≤ 1, with T
tridiagonal: so E_ρ = {q₁ + ρ q₂ ≤ 1 + ρ} takes O(d) for each ρ.
"""

from __future__ import annotations

from math import exp, inf, log, sqrt

import numba
import numpy as np

from robandit.geometry.compiled.parts import OPTIONS, compile_as, dot
from robandit.geometry.secular import CONVERGED, ITERATIONS, LEAP

_CONDITION = 1e5  # product of the traces of T and T⁻¹ up to which a tridiagonal T keeps ten digits
_CANCELLED = 1e7  # likewise, the terms that T is a sum of times the trace of T⁻¹
_FAR = 1e4  # squared distance of the centres, in units of the second ellipsoid, up to which slacks keep ten digits
_ROUNDING = 1e-9  # of a width: what rounding may take from an upper bound
_NEAR = 1e-6  # of the second ellipsoid's boundary: a direction that separates need not be the best one

SETTLED, EMPTY, HARD = range(3)
"""How a search in an intersection ended: with an answer, with the proof that there is none, or undecided."""


@numba.njit(**OPTIONS)
def intersect(directions, along, rows, center, root, beta, rows2, center2, root2, precision2, gamma, tie):
    """Which directions are best under each intersection (B, K), the largest value (B,), and how that ended (B,).

    Ellipsoids are given as rows of arrays; ``directions`` and ``along``, of the first ones, are as in `leading`.
    """
    n, count = along.shape[:2]
    mask, best, ended = np.zeros((n, count), np.bool_), np.empty(n), np.full(n, SETTLED)
    table, exact = np.empty((5, count)), np.empty(count, np.bool_)  # means, two half-widths, values, upper bounds
    for b in range(n):
        offered, one, two = directions[b if len(directions) > 1 else 0], rows[b], rows2[b]
        k = _measure(offered, along[b], center[one], beta[b], table)
        best[b], offset = table[3, k], center2[two] - center[one]
        mask[b] = table[3] >= best[b] - tie * (table[1, k] + abs(best[b]))
        alone = _only_copies(offered, k, mask[b])
        if alone and _inside(root[one], precision2[two], offset, beta[b], gamma[b], along[b, k]):
            continue
        tri, turn, e, accurate = _tridiagonal(root[one], precision2[two], offset, beta[b], gamma[b])
        if not accurate:
            ended[b] = HARD
            continue
        second = center2[two], root2[two], gamma[b]
        k = _best_first(offered, beta[b] * along[b], second, tri, turn, e, table, exact)
        if exact[k]:
            best[b] = table[4, k]
            least = best[b] - tie * (min(table[1, k], table[2, k]) + abs(best[b]))
            mask[b] = exact & (table[4] >= least)
        else:
            best[b], ended[b], mask[b] = -inf, EMPTY, False
    return mask, best, ended


@numba.njit(**OPTIONS)
def separated(directions, rows, center, root, beta, rows2, center2, root2, precision2, gamma, clearly):
    """Whether a direction (B, d), one per pair, proves that the intersection is empty: `Intersection.separated`.

    All three kernels take pairs in the same form; this one has no use for precisions.
    """
    apart, room = np.empty(len(rows), np.bool_), np.empty(directions.shape[1])
    for b in range(len(rows)):
        g, one, two = directions[b], rows[b], rows2[b]
        reach = beta[b] * _width(g, root[one], room) + gamma[b] * _width(g, root2[two], room)
        apart[b] = dot(g, center2[two]) - dot(g, center[one]) > (1.0 + clearly) * reach
    return apart


@numba.njit(**OPTIONS)
def separators(rows, center, root, beta, rows2, center2, root2, precision2, gamma):
    """Directions (B, d) that separate the pairs that do not meet, and whether all are accurate."""
    found, accurate = np.empty((len(rows), center.shape[1])), True
    point, room = np.empty(center.shape[1]), np.empty((5, center.shape[1]))
    for b in range(len(rows)):
        one, two = rows[b], rows2[b]
        offset = center2[two] - center[one]
        tri, turn, e, good = _tridiagonal(root[one], precision2[two], offset, beta[b], gamma[b])
        _nearest(tri, e, point, room)
        _turn_back(turn, point)
        for i in range(len(point)):
            offset[i] -= beta[b] * dot(root[one, i], point)
        for i in range(len(point)):
            found[b, i] = dot(precision2[two, i], offset)
        accurate &= good
    return found, accurate


@numba.njit(**OPTIONS)
def _nearest(tri, e, point, room):
    """Write the point of the second ellipsoid that is nearest to the first centre: the centre of an E_ρ.

    1/√q₂ of the centre is concave in ρ, so Newton's method climbs as in `secular.secular`.
    """
    ty, fall, w, factors, rho = room[0], room[1], room[2], room[3:5], 0.0
    point[:] = 0.0
    for _ in range(ITERATIONS):
        height = _second(tri, e, point, ty)
        if not height > 1.0 + _NEAR:
            break
        for i in range(len(point)):
            fall[i] = tri[2, i] - ty[i]
        _factor(tri, 1.0, rho, factors)
        _solve(factors, fall, w)
        rho += height * (sqrt(height) - 1.0) / dot(fall, w)
        _factor(tri, 1.0, rho, factors)
        _solve(factors, tri[2], point)
        for i in range(len(point)):
            point[i] *= rho


@numba.njit(**OPTIONS)
def _width(direction, root, room):
    """‖Sᵀa‖ of one direction a."""
    room[:] = 0.0
    for i in range(len(room)):
        for j in range(len(room)):
            room[j] += direction[i] * root[i, j]
    return sqrt(dot(room, room))


@numba.njit(**OPTIONS)
def _measure(offered, along, center, radius, table):
    """Write the means, half-widths and support values of all directions under an ellipsoid; return the best place."""
    k = 0
    for i in range(len(offered)):
        table[0, i], table[1, i] = dot(offered[i], center), radius * sqrt(dot(along[i], along[i]))
        table[3, i] = table[0, i] + table[1, i]
        if table[3, i] > table[3, k]:
            k = i
    return k


@numba.njit(**OPTIONS)
def _only_copies(offered, k, mask):
    """Whether all directions that are marked are copies of direction k."""
    alone = True
    for i in range(len(mask)):
        alone &= not mask[i] or i == k or (offered[i] == offered[k]).all()
    return alone


@numba.njit(**OPTIONS)
def _inside(root, precision, offset, beta, gamma, along):
    """Whether the point of the first ellipsoid that is farthest in a direction, given Sᵀa, lies in the second."""
    tip, square = np.empty(len(along)), 0.0
    width = sqrt(dot(along, along))
    step = beta / width if width > 0.0 else 0.0
    for i in range(len(tip)):
        tip[i] = step * dot(root[i], along) - offset[i]
    for i in range(len(tip)):
        square += tip[i] * dot(precision[i], tip)
    return square <= gamma * gamma


@numba.njit(**OPTIONS)
def _tridiagonal(root, precision, offset, beta, gamma):
    """T and p of a pair, as three rows: diagonal, off-diagonal, p; then Q, e, and whether all of it is accurate."""
    dim = len(offset)
    product, matrix, far, tri = np.zeros((dim, dim)), np.zeros((dim, dim)), np.empty(dim), np.zeros((3, dim))
    for i in range(dim):
        far[i] = dot(precision[i], offset)
        for k in range(dim):
            for j in range(dim):
                product[i, j] += precision[i, k] * root[k, j]
    for k in range(dim):
        for i in range(dim):
            tri[2, i] += root[k, i] * far[k] * beta / gamma**2
            for j in range(dim):
                matrix[i, j] += root[k, i] * product[k, j]
    turn = _reflect(matrix)
    _turn(turn, tri[2])
    trace, inverse = _traces(matrix)
    for i in range(dim):
        tri[0, i] = matrix[i, i] * (beta / gamma) ** 2
        tri[1, i] = matrix[i - 1, i] * (beta / gamma) ** 2 if i > 0 else 0.0
    size, e = dot(root.ravel(), root.ravel()) * sqrt(dot(precision.ravel(), precision.ravel())), dot(far, offset)
    accurate = inverse > 0.0 and trace * inverse <= _CONDITION and size * inverse <= _CANCELLED
    return tri, turn, e / gamma**2, accurate and e <= _FAR * gamma**2


@numba.njit(**OPTIONS)
def _reflect(matrix):
    """Make a symmetric matrix tridiagonal, in place, by reflections x − 2⟨v, x⟩v; their unit vectors v are returned."""
    dim = len(matrix)
    turn, q = np.zeros((dim, dim)), np.empty(dim)
    for k in range(dim - 2):
        v, rest = turn[k], matrix[k + 1 :]
        size = sqrt(dot(matrix[k, k + 1 :], matrix[k, k + 1 :])) * (-1.0 if matrix[k, k + 1] > 0.0 else 1.0)
        for j in range(k + 1, dim):
            v[j] = matrix[k, j]
        v[k + 1] -= size
        length = sqrt(dot(v, v))
        if length > 0.0:
            for j in range(k + 1, dim):
                v[j] /= length
        for i in range(len(rest)):
            q[k + 1 + i] = 2.0 * dot(rest[i, k + 1 :], v[k + 1 :])
        inner = dot(q[k + 1 :], v[k + 1 :])
        for i in range(k + 1, dim):
            q[i] -= inner * v[i]
        for i in range(k + 1, dim):
            for j in range(k + 1, dim):
                matrix[i, j] -= v[i] * q[j] + q[i] * v[j]
        matrix[k, k + 1] = size
    return turn


@numba.njit(**OPTIONS)
def _turn(turn, x):
    """Apply the reflections to a vector, in place: Qᵀx."""
    for k in range(len(x) - 2):
        twice = 2.0 * dot(turn[k, k + 1 :], x[k + 1 :])
        for i in range(k + 1, len(x)):
            x[i] -= twice * turn[k, i]


@numba.njit(**OPTIONS)
def _turn_back(turn, x):
    """Undo them, in place: Qx."""
    for k in range(len(x) - 3, -1, -1):
        twice = 2.0 * dot(turn[k, k + 1 :], x[k + 1 :])
        for i in range(k + 1, len(x)):
            x[i] -= twice * turn[k, i]


@numba.njit(**OPTIONS)
def _traces(matrix):
    """The traces of a tridiagonal matrix and of its inverse; the second is −1 where it is not positive definite."""
    dim = len(matrix)
    below, above = np.empty(dim), np.empty(dim)
    below[0], above[dim - 1] = matrix[0, 0], matrix[dim - 1, dim - 1]
    for i in range(1, dim):
        j = dim - 1 - i
        below[i] = matrix[i, i] - matrix[i - 1, i] ** 2 / below[i - 1]
        above[j] = matrix[j, j] - matrix[j, j + 1] ** 2 / above[j + 1]
    if not (below.min() > 0.0 and above.min() > 0.0):
        return 0.0, -1.0
    diagonal = np.diag(matrix)
    return diagonal.sum(), (1.0 / (below + above - diagonal)).sum()


@numba.njit(**OPTIONS)
def _best_first(offered, along, second, tri, turn, e, table, exact):
    """Make the largest of the upper bounds exact, and those that reach its exact value; return the best place.

    The smaller of both ellipsoids' values is a bound; the second's, which takes d², is found where the first's is the
    largest bound left. Copies of a direction are done together with it. None is exact where the intersection is empty.
    """
    means, values, upper = table[0], table[3], table[4]
    table[2], upper[:], slack = -1.0, values, _ROUNDING * table[1].max()  # second half-widths are unknown
    own, room = np.empty((3, along.shape[1])), np.empty((8, along.shape[1]))
    _factor(tri, 0.0, 1.0, own)
    _solve(own, tri[2], own[2])
    exact[:], best, rho = False, 0, 1.0
    while True:
        k, least = _largest(upper, exact), upper[best] - slack if exact[best] else -inf
        if k < 0 or upper[k] < least:
            return best
        if table[2, k] < 0.0:
            slack = max(slack, _ROUNDING * _bound(offered[k], k, second, table, room[0]))
            continue
        zero = not along[k].any()  # then any point will do
        g = np.ones(along.shape[1]) if zero else along[k].copy()
        _turn(turn, g)
        found, rho = _peak(tri, e, own, g, -inf if zero else least - means[k], rho, room)
        if found == -inf and not exact[best]:
            return best
        for i in range(len(upper)):
            if i == k or (not exact[i] and values[i] == values[k] and (offered[i] == offered[k]).all()):
                upper[i], exact[i] = means[k] + (0.0 if zero else found), True
        if not exact[best] or upper[k] > upper[best]:
            best = k


@numba.njit(**OPTIONS)
def _largest(upper, exact):
    """The place of the largest bound that is not exact; −1 if there is none."""
    k = -1
    for i in range(len(upper)):
        if not exact[i] and (k < 0 or upper[i] > upper[k]):
            k = i
    return k


@numba.njit(**OPTIONS)
def _bound(direction, k, second, table, room):
    """Write a direction's half-width in the second ellipsoid and the smaller of both values; return the half-width."""
    center, root, radius = second
    table[2, k] = radius * _width(direction, root, room)
    table[4, k] = min(table[3, k], dot(direction, center) + table[2, k])
    return table[2, k]


@numba.njit(**OPTIONS)
def _peak(tri, e, own, g, least, rho, room):
    """The largest ⟨g, y⟩ over the intersection, −∞ if it is empty, and the ρ found: `secular.peak`.

    ``own`` are the factors of T, and T⁻¹p. It may stop at an upper bound below ``least``.
    """
    y, ty, w, size = room[0], room[1], room[2], sqrt(dot(g, g))
    for i in range(len(g)):
        y[i] = g[i] / size
    out1 = _second(tri, e, y, ty) - 1.0
    if out1 <= 0.0:
        return size, rho
    _solve(own, g, w)
    width = sqrt(dot(g, w))
    for i in range(len(g)):
        y[i] = own[2, i] + w[i] / width
    out2 = dot(y, y) - 1.0
    if out2 <= 0.0:
        return dot(g, y), rho
    return _balance(tri, e, g, out1, out2, least, rho, room)


@numba.njit(**OPTIONS)
def _balance(tri, e, g, out1, out2, least, rho, room):
    """The support value of the E_ρ whose maximiser y has q₁ = q₂, and that ρ: `secular._balance`."""
    y, ty, w, c, tc, dy, factors = room[0], room[1], room[2], room[3], room[4], room[5], room[6:8]
    low, high, value = 0.0, inf, -inf
    for _ in range(ITERATIONS):
        _factor(tri, 1.0, rho, factors)
        _solve(factors, tri[2], c)
        _solve(factors, g, w)
        for i in range(len(g)):
            c[i] *= rho  # the centre of E_ρ
        center, slack, width = _second(tri, e, c, tc), 1.0 + rho * (1.0 - e + dot(tri[2], c)), dot(g, w)
        if not slack >= 0.0:
            return -inf, rho
        step = sqrt(slack / width)
        for i in range(len(g)):
            y[i] = c[i] + step * w[i]
        gap, value = dot(y, y) - _second(tri, e, y, ty), dot(g, y)
        if not (abs(gap) > CONVERGED and value >= least):
            break
        for i in range(len(g)):
            dy[i] = tri[2, i] - ty[i]
        _solve(factors, dy, c)
        _times(tri, w, tc)
        growth, slope = 0.5 * step * ((1.0 - center) / slack + dot(w, tc) / width), 0.0  # of the step; of the gap
        for i in range(len(g)):
            slope += 2.0 * (y[i] + dy[i]) * (c[i] + growth * w[i])
        low, high = (rho, high) if gap < 0.0 else (low, rho)
        wanted = rho * exp(-_log_step(gap, slope * rho, 1.5 * out1, out2))
        rho = min(max(wanted if low < wanted < high else sqrt(low * high), rho / LEAP), rho * LEAP)
    return value, rho


@numba.njit(**OPTIONS)
def _log_step(gap, slope, under, over):
    """`secular._log_step`."""
    up, down = gap + under, over - gap
    return log(up / down * (over / under)) * up * down / (slope * (under + over))


@numba.njit(**OPTIONS)
def _factor(tri, one, rho, factors):
    """The factors of one·I + ρT: inverse pivots and multipliers."""
    factors[0, 0] = 1.0 / (one + rho * tri[0, 0])
    for i in range(1, tri.shape[1]):
        factors[1, i] = rho * tri[1, i] * factors[0, i - 1]
        factors[0, i] = 1.0 / (one + rho * (tri[0, i] - factors[1, i] * tri[1, i]))


@numba.njit(**OPTIONS)
def _solve(factors, right, x):
    """Solve with these factors."""
    x[0], last = right[0], len(x) - 1
    for i in range(1, len(x)):
        x[i] = right[i] - factors[1, i] * x[i - 1]
    x[last] *= factors[0, last]
    for i in range(last - 1, -1, -1):
        x[i] = x[i] * factors[0, i] - factors[1, i + 1] * x[i + 1]


@numba.njit(**OPTIONS)
def _times(tri, x, out):
    """Tx."""
    out[0] = tri[0, 0] * x[0]
    for i in range(1, len(x)):
        out[i] = tri[0, i] * x[i] + tri[1, i] * x[i - 1]
        out[i - 1] += tri[1, i] * x[i]


@numba.njit(**OPTIONS)
def _second(tri, e, x, tx):
    """q₂ at a point x, whose Tx is written."""
    _times(tri, x, tx)
    return dot(x, tx) - 2.0 * dot(tri[2], x) + e


compile_as(intersect, "33r231r2331f")
compile_as(separated, "2r231r2331f")
compile_as(separators, "r231r2331")
