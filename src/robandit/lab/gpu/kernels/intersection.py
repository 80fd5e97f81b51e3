"""The best action under the intersection of two ellipsoids, in the registers of a warp.

The first ellipsoid is ‖y‖ ≤ 1 with x = m₁ + β S₁ y, the second ‖G y − e‖ ≤ 1 with G = (β/γ) S₂⁻¹ S₁. Every

    E_τ = {(1−τ) ‖y‖² + τ ‖G y − e‖² ≤ 1}

contains their intersection, and the least of the heights over τ is that of the intersection (`geometry.intersection`).
One inverse gives the heights of all actions at one τ, so each search for one action's τ bounds the others. Matrices are
Sᵀ and S⁻¹, with whitened coordinates down and features across.
"""

import triton
import triton.language as tl

STEPS = tl.constexpr(24)  # most looks at one action; six are usual
BALANCED = tl.constexpr(1e-4)  # |q₁ − q₂| at which a search ends: the height's error is about its square
RANGE = tl.constexpr(15.0)  # of log τ/(1−τ)


@triton.jit
def inverse(matrix, j, i, D: tl.constexpr):
    """The inverse of a symmetric positive definite matrix, by sweeping each of its first D places."""
    places = tl.arange(0, matrix.shape[0])
    for p in range(D):
        row = tl.sum(tl.where(j == p, matrix, 0.0), axis=0)  # and column, since sweeps keep the matrix symmetric
        scale = 1.0 / tl.sum(tl.where(places == p, row, 0.0), axis=0)  # in float64 a zero is slow to divide
        row = tl.where(places == p, -1.0, row)
        matrix = tl.where((j == p) | (i == p), 0.0, matrix) - row[:, None] * (scale * row)[None, :]
    return -matrix


@triton.jit
def squared_norm_of(matrix, vector):
    """‖M x‖² for a matrix with x along its rows."""
    product = tl.sum(matrix * vector[None, :], axis=1)
    return tl.sum(product * product, axis=0)


@triton.jit
def tip(root, column, center, radius):
    """The point of an ellipsoid that is farthest in a direction a, where ``column`` is Sᵀa."""
    length = tl.sqrt(tl.maximum(tl.sum(column * column, axis=0), 1e-30))
    return center + radius / length * tl.sum(root * column[:, None], axis=0)


@triton.jit
def heights_at(frame, spread, estimates, beta, s, W: tl.constexpr):
    """The heights of all actions over E_τ with log τ/(1−τ) = s, N⁻¹V, the centre of E_τ and its squared radius."""
    PRECISION: tl.constexpr = W.precision
    WIDE: tl.constexpr = W.wide
    g, gram, pulled, e = frame
    j, i = tl.arange(0, WIDE)[:, None], tl.arange(0, WIDE)[None, :]
    one, two = 1.0 / (1.0 + tl.exp(s)), 1.0 / (1.0 + tl.exp(-s))
    normal = two * gram + tl.where(j == i, one, 0.0)
    inner = tl.where((j < W.dim) & (i < W.dim), inverse(normal, j, i, W.dim), 0.0)
    center = two * tl.sum(inner * pulled[None, :], axis=1)
    far = tl.sum(g * center[None, :], axis=1) - e
    slack = 1.0 - one * tl.sum(center * center, axis=0) - two * tl.sum(far * far, axis=0)  # less by the error's square
    solved = tl.dot(inner, spread, input_precision=PRECISION)
    along = tl.sum(spread * center[:, None], axis=0)
    squares = tl.maximum(tl.sum(spread * solved, axis=0), 1e-30)
    heights = estimates + beta * (along + tl.sqrt(tl.maximum(slack, 0.0) * squares))
    return heights, solved, squares, center, slack


@triton.jit
def frame_of(first, second, beta, gamma, W: tl.constexpr):
    """G, Gᵀ G, Gᵀ e and e of a pair: the first given as Sᵀ and its centre, the second as S⁻¹ and its centre."""
    PRECISION: tl.constexpr = W.precision
    root, center = first
    other, center2 = second
    g = tl.dot(other, tl.trans(root), input_precision=PRECISION) * (beta / gamma)
    e = tl.sum(other * (center2 - center)[None, :], axis=1) / gamma
    return g, tl.dot(tl.trans(g), g, input_precision=PRECISION), tl.sum(g * e[:, None], axis=0), e


@triton.jit
def imbalance(frame, found, k, place):
    """q₁ − q₂ at the point of E_τ that is farthest along one action: positive where the first ellipsoid is left."""
    _, solved, squares, center, slack = found
    step = tl.sqrt(tl.maximum(slack, 0.0) / tl.sum(tl.where(k == place, squares, 0.0), axis=0))
    y = center + step * tl.sum(tl.where(k[None, :] == place, solved, 0.0), axis=1)
    z = tl.sum(frame[0] * y[None, :], axis=1) - frame[3]
    return tl.sum(y * y, axis=0) - tl.sum(z * z, axis=0)


@triton.jit
def start(like):
    """The bracket before anything is known: where to look next, both ends, the imbalance there and of the last look."""
    zero = 0.0 * like
    return zero, zero - RANGE, zero + RANGE, zero, zero, zero


@triton.jit
def narrower(bracket, gap):
    """The bracket after a look: false position, where an end that stays counts for half (the Illinois algorithm).

    Until both signs have been seen, steps grow, up to the end of the range, where one ellipsoid alone decides.
    """
    s, low, high, at_low, at_high, last = bracket
    above, less = gap > 0.0, tl.where(gap * last > 0.0, 0.5, 1.0)
    at_low, at_high = tl.where(above, less * at_low, gap), tl.where(above, gap, less * at_high)
    low, high = tl.where(above, low, s), tl.where(above, s, high)
    known = (at_low < 0.0) & (at_high > 0.0)
    share = at_low / tl.where(known, at_low - at_high, 1.0)
    further = tl.minimum(tl.maximum(s + tl.where(above, -1.0, 1.0) * (2.0 + tl.abs(s)), -RANGE), RANGE)
    return tl.where(known, low + (high - low) * share, further), low, high, at_low, at_high, gap


@triton.jit
def best_first(frame, spread, estimates, beta, upper, k, W: tl.constexpr):
    """The action with the largest height over the intersection, and whether there is none because it is empty.

    ``upper`` bounds the heights from above. The action with the largest bound is made exact until it stays the largest.
    """
    place, exact = tl.argmax(upper, axis=0), k < 0
    bracket, step = start(beta), 0 * place
    going, empty = step == 0, step > 0
    while going:
        s = bracket[0]
        found = heights_at(frame, spread, estimates, beta, s, W)
        empty = found[4] < 0.0
        upper = tl.where(k < W.actions, tl.minimum(upper, found[0]), -float("inf"))
        gap = imbalance(frame, found, k, place)
        bracket, step = narrower(bracket, gap), step + 1
        ended = (tl.abs(gap) < BALANCED) | (tl.abs(s) >= RANGE) | (step >= STEPS)
        if ended:
            exact = exact | (k == place)
            leader = tl.argmax(upper, axis=0)
            going = tl.sum(tl.where((k == leader) & exact, 1, 0), axis=0) == 0
            place, bracket, step = leader, start(beta), 0 * step
        going = going & (empty == 0)
    return place, empty
