"""The kernels of `ridge`, `ellipsoid` and `intersection`, compiled by Numba: the same formulas as loops over trials.

Large products of matrices stay with BLAS, which no loop beats; what is here goes through each trial once instead of
once per NumPy call. Each trial is computed by itself, so its bits do not depend on the batch. They differ from NumPy's
in the last places, since sums are added up in another order.
"""

from __future__ import annotations

from math import exp, inf, log, sqrt

import numba
import numpy as np

from robandit.geometry.secular import CONVERGED, ITERATIONS, LEAP

_CONDITION = 1e5  # product of the traces of T and T⁻¹ up to which a tridiagonal T keeps ten digits
_CANCELLED = 1e7  # likewise, the terms that T is a sum of times the trace of T⁻¹
_FAR = 1e4  # squared distance of the centres, in units of the second ellipsoid, up to which slacks keep ten digits
_ROUNDING = 1e-9  # of a width: what rounding may take from an upper bound

SETTLED, EMPTY, HARD = range(3)
"""How a search in an intersection ended: with an answer, with the proof that there is none, or undecided."""


# Sums may be reordered, which vector instructions need; NaN and infinity keep their meaning.
_OPTIONS = {"cache": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}


@numba.njit(**_OPTIONS)
def leading(directions, along, center, radius, tie, index, best):
    """Write each ellipsoid's largest support value and its place; return whether any has others that equal it.

    ``directions`` are (B, K, d), or (1, K, d) if all have the same; ``along`` (B, K, d) are the rows Sᵀa.
    """
    n, count = along.shape[:2]
    several = False
    for b in range(n):
        offered = directions[b if len(directions) > 1 else 0]
        top, second, half_width = -inf, -inf, 0.0
        for k in range(count):
            square, mean = 0.0, 0.0
            for j in range(along.shape[2]):  # both sums in one loop
                square += along[b, k, j] * along[b, k, j]
                mean += offered[k, j] * center[b, j]
            value = mean + radius[b] * sqrt(square)
            if value > top:
                top, second, half_width, index[b] = value, top, value - mean, k
            elif value > second:
                second = value
        best[b] = top
        several |= second >= top - tie * (half_width + abs(top))
    return several


@numba.njit(**_OPTIONS)
def update(root, mean, log_det, precision, rows, actions, rewards, weights, gain, share):
    """Fold one observation into each of some rows, as `Ridge.update` does; also write Σ⁻¹a and w/c.

    ``precision`` has no rows if it is not kept.
    """
    n, dim = actions.shape
    v = np.empty(dim)
    for b in range(n):
        row, w = rows[b], weights[b]
        a, s, mu = actions[b], root[row], mean[row]
        v[:] = 0.0
        for i in range(dim):
            for j in range(dim):
                v[j] += a[i] * s[i, j]  # Sᵀa
        c = 1.0 + w * _dot(v, v)
        share[b] = w / c
        shrink, step = w / (c + sqrt(c)), w / c * (rewards[b] - _dot(a, mu))
        for i in range(dim):
            g = gain[b, i] = _dot(s[i], v)
            mu[i] += step * g
            for j in range(dim):
                s[i, j] -= shrink * g * v[j]
        log_det[row] += log(c)
        if len(precision):
            for i in range(dim):
                for j in range(dim):
                    precision[row, i, j] += w * a[i] * a[j]


# The intersection of two ellipsoids. In coordinates y with μ = m₁ + β S₁ Q y the first is ‖y‖ ≤ 1 and the second
# yᵀTy − 2⟨p, y⟩ + e ≤ 1, with T tridiagonal: so E_ρ = {q₁ + ρ q₂ ≤ 1 + ρ} takes O(d) for each ρ.


@numba.njit(**_OPTIONS)
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
        slack = _ROUNDING * _bound(offered, center2[two], root2[two], gamma[b], table)
        k = _best_first(offered, beta[b] * along[b], tri, turn, e, slack, table, exact)
        if exact[k]:
            best[b] = table[4, k]
            least = best[b] - tie * (min(table[1, k], table[2, k]) + abs(best[b]))
            mask[b] = exact & (table[4] >= least)
        else:
            best[b], ended[b], mask[b] = -inf, EMPTY, False
    return mask, best, ended


@numba.njit(**_OPTIONS)
def _measure(offered, along, center, radius, table):
    """Write the means, half-widths and support values of all directions under an ellipsoid; return the best place."""
    k = 0
    for i in range(len(offered)):
        table[0, i], table[1, i] = _dot(offered[i], center), radius * sqrt(_dot(along[i], along[i]))
        table[3, i] = table[0, i] + table[1, i]
        if table[3, i] > table[3, k]:
            k = i
    return k


@numba.njit(**_OPTIONS)
def _only_copies(offered, k, mask):
    """Whether all directions that are marked are copies of direction k."""
    alone = True
    for i in range(len(mask)):
        alone &= not mask[i] or i == k or (offered[i] == offered[k]).all()
    return alone


@numba.njit(**_OPTIONS)
def _inside(root, precision, offset, beta, gamma, along):
    """Whether the point of the first ellipsoid that is farthest in a direction, given Sᵀa, lies in the second."""
    tip, square = np.empty(len(along)), 0.0
    width = sqrt(_dot(along, along))
    step = beta / width if width > 0.0 else 0.0
    for i in range(len(tip)):
        tip[i] = step * _dot(root[i], along) - offset[i]
    for i in range(len(tip)):
        square += tip[i] * _dot(precision[i], tip)
    return square <= gamma * gamma


@numba.njit(**_OPTIONS)
def _tridiagonal(root, precision, offset, beta, gamma):
    """T and p of a pair, as three rows: diagonal, off-diagonal, p; then Q, e, and whether all of it is accurate."""
    dim = len(offset)
    product, matrix, far, tri = np.zeros((dim, dim)), np.zeros((dim, dim)), np.empty(dim), np.zeros((3, dim))
    for i in range(dim):
        far[i] = _dot(precision[i], offset)
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
    size, e = _dot(root.ravel(), root.ravel()) * sqrt(_dot(precision.ravel(), precision.ravel())), _dot(far, offset)
    accurate = inverse > 0.0 and trace * inverse <= _CONDITION and size * inverse <= _CANCELLED
    return tri, turn, e / gamma**2, accurate and e <= _FAR * gamma**2


@numba.njit(**_OPTIONS)
def _reflect(matrix):
    """Make a symmetric matrix tridiagonal, in place, by reflections x − 2⟨v, x⟩v; their unit vectors v are returned."""
    dim = len(matrix)
    turn, q = np.zeros((dim, dim)), np.empty(dim)
    for k in range(dim - 2):
        v, rest = turn[k], matrix[k + 1 :]
        size = sqrt(_dot(matrix[k, k + 1 :], matrix[k, k + 1 :])) * (-1.0 if matrix[k, k + 1] > 0.0 else 1.0)
        v[k + 1 :] = matrix[k, k + 1 :]
        v[k + 1] -= size
        length = sqrt(_dot(v, v))
        if length > 0.0:
            v /= length
        for i in range(len(rest)):
            q[k + 1 + i] = 2.0 * _dot(rest[i, k + 1 :], v[k + 1 :])
        inner = _dot(q[k + 1 :], v[k + 1 :])
        for i in range(k + 1, dim):
            q[i] -= inner * v[i]
        for i in range(k + 1, dim):
            for j in range(k + 1, dim):
                matrix[i, j] -= v[i] * q[j] + q[i] * v[j]
        matrix[k, k + 1] = size
    return turn


@numba.njit(**_OPTIONS)
def _turn(turn, x):
    """Apply the reflections to a vector, in place: Qᵀx."""
    for k in range(len(x) - 2):
        twice = 2.0 * _dot(turn[k, k + 1 :], x[k + 1 :])
        for i in range(k + 1, len(x)):
            x[i] -= twice * turn[k, i]


@numba.njit(**_OPTIONS)
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


@numba.njit(**_OPTIONS)
def _bound(offered, center, root, radius, table):
    """Write half-widths in the second ellipsoid and the smaller of both support values; return the largest width."""
    dim, widest, seen = len(center), 0.0, np.empty(len(center))
    for k in range(len(offered)):
        seen[:] = 0.0
        for i in range(dim):
            for j in range(dim):
                seen[j] += offered[k, i] * root[i, j]
        table[2, k] = radius * sqrt(_dot(seen, seen))
        table[4, k] = min(table[3, k], _dot(offered[k], center) + table[2, k])
        widest = max(widest, table[1, k], table[2, k])
    return widest


@numba.njit(**_OPTIONS)
def _best_first(offered, along, tri, turn, e, slack, table, exact):
    """Make the largest of the upper bounds exact, and those that reach its exact value; return the best place.

    Copies of a direction are done together with it. None is exact where the intersection is empty.
    """
    means, values, upper = table[0], table[3], table[4]
    own, room = np.empty((3, along.shape[1])), np.empty((8, along.shape[1]))
    _factor(tri, 0.0, 1.0, own)
    _solve(own, tri[2], own[2])
    exact[:] = False
    best, rho = 0, 1.0
    while True:
        k = -1
        for i in range(len(upper)):
            if not exact[i] and (k < 0 or upper[i] > upper[k]):
                k = i
        least = upper[best] - slack if exact[best] else -inf
        if k < 0 or upper[k] < least:
            return best
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


@numba.njit(**_OPTIONS)
def _peak(tri, e, own, g, least, rho, room):
    """The largest ⟨g, y⟩ over the intersection, −∞ if it is empty, and the ρ found: `secular.peak`.

    ``own`` are the factors of T, and T⁻¹p. It may stop at an upper bound below ``least``.
    """
    y, ty, w, size = room[0], room[1], room[2], sqrt(_dot(g, g))
    for i in range(len(g)):
        y[i] = g[i] / size
    out1 = _second(tri, e, y, ty) - 1.0
    if out1 <= 0.0:
        return size, rho
    _solve(own, g, w)
    width = sqrt(_dot(g, w))
    for i in range(len(g)):
        y[i] = own[2, i] + w[i] / width
    out2 = _dot(y, y) - 1.0
    if out2 <= 0.0:
        return _dot(g, y), rho
    return _balance(tri, e, g, out1, out2, least, rho, room)


@numba.njit(**_OPTIONS)
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
        center, slack, width = _second(tri, e, c, tc), 1.0 + rho * (1.0 - e + _dot(tri[2], c)), _dot(g, w)
        if not slack >= 0.0:
            return -inf, rho
        step = sqrt(slack / width)
        for i in range(len(g)):
            y[i] = c[i] + step * w[i]
        gap, value = _dot(y, y) - _second(tri, e, y, ty), _dot(g, y)
        if not (abs(gap) > CONVERGED and value >= least):
            break
        for i in range(len(g)):
            dy[i] = tri[2, i] - ty[i]
        _solve(factors, dy, c)
        _times(tri, w, tc)
        growth, slope = 0.5 * step * ((1.0 - center) / slack + _dot(w, tc) / width), 0.0  # of the step; of the gap
        for i in range(len(g)):
            slope += 2.0 * (y[i] + dy[i]) * (c[i] + growth * w[i])
        low, high = (rho, high) if gap < 0.0 else (low, rho)
        wanted = rho * exp(-_log_step(gap, slope * rho, 1.5 * out1, out2))
        rho = min(max(wanted if low < wanted < high else sqrt(low * high), rho / LEAP), rho * LEAP)
    return value, rho


@numba.njit(**_OPTIONS)
def _log_step(gap, slope, under, over):
    """`secular._log_step`."""
    up, down = gap + under, over - gap
    return log(up / down * (over / under)) * up * down / (slope * (under + over))


@numba.njit(**_OPTIONS)
def _factor(tri, one, rho, factors):
    """The factors of one·I + ρT: inverse pivots and multipliers."""
    factors[0, 0] = 1.0 / (one + rho * tri[0, 0])
    for i in range(1, tri.shape[1]):
        factors[1, i] = rho * tri[1, i] * factors[0, i - 1]
        factors[0, i] = 1.0 / (one + rho * (tri[0, i] - factors[1, i] * tri[1, i]))


@numba.njit(**_OPTIONS)
def _solve(factors, right, x):
    """Solve with these factors."""
    x[0], last = right[0], len(x) - 1
    for i in range(1, len(x)):
        x[i] = right[i] - factors[1, i] * x[i - 1]
    x[last] *= factors[0, last]
    for i in range(last - 1, -1, -1):
        x[i] = x[i] * factors[0, i] - factors[1, i + 1] * x[i + 1]


@numba.njit(**_OPTIONS)
def _times(tri, x, out):
    """Tx."""
    out[0] = tri[0, 0] * x[0]
    for i in range(1, len(x)):
        out[i] = tri[0, i] * x[i] + tri[1, i] * x[i - 1]
        out[i - 1] += tri[1, i] * x[i]


@numba.njit(**_OPTIONS)
def _second(tri, e, x, tx):
    """q₂ at a point x, whose Tx is written."""
    _times(tri, x, tx)
    return _dot(x, tx) - 2.0 * _dot(tri[2], x) + e


@numba.njit(**_OPTIONS)
def _dot(x, y):
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


def _compile(kernel, letters):
    """Compile a kernel, or load it from Numba's cache. Each argument has a letter for its type.

    What is only read, 1 to 3 dimensions of floats or r for rows, may be an array that nobody can write to.
    """
    reads = {str(n): numba.types.Array(numba.float64, n, "C", readonly=True) for n in (1, 2, 3)}
    writes = {"a": numba.float64[::1], "b": numba.float64[:, ::1], "c": numba.float64[:, :, ::1], "p": numba.intp[::1]}
    more = {"f": numba.float64, "r": numba.types.Array(numba.intp, 1, "C", readonly=True)}
    kernel.compile(tuple((reads | writes | more)[letter] for letter in letters))
    kernel.disable_compile()


_compile(leading, "3321fpa")
_compile(update, "cbacr211ba")
_compile(intersect, "33r231r2331f")
