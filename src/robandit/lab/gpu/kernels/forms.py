"""Quadratics of groups, in double precision: the upper triangle of [[V, b], [bᵀ, s]], row by row, in one vector.

At (μ, −1) that is μᵀVμ − 2⟨b, μ⟩ + s, as `policies.ballots` has it. The vectors are padded to a power of two.
"""

import triton
import triton.language as tl

from robandit.lab.gpu.kernels.intersection import inverse


@triton.jit
def products(point, table, Q: tl.constexpr):
    """What a form is multiplied by to be evaluated at a point, which lies in memory with −1 at its end."""
    m = tl.arange(0, Q.packed)
    i, j = tl.load(table + m), tl.load(table + Q.packed + m)
    found = tl.load(point + i) * tl.load(point + j) * tl.where(i == j, 1.0, 2.0)
    return tl.where(m < Q.size, found, 0.0)


@triton.jit
def fold(form, vector, last, weight, table, W: tl.constexpr, Q: tl.constexpr):
    """Add w (a, r)(a, r)ᵀ of one reward r to a form, for an action a that lies in memory: part by part."""
    for start in range(0, Q.size, Q.part):
        m = start + tl.arange(0, Q.part)
        i, j = tl.load(table + m), tl.load(table + Q.packed + m)
        x = tl.where(i < W.dim, tl.load(vector + tl.minimum(i, W.dim - 1)), last).to(tl.float64)
        y = tl.where(j < W.dim, tl.load(vector + tl.minimum(j, W.dim - 1)), last).to(tl.float64)
        tl.store(form + m, tl.load(form + m) + weight.to(tl.float64) * x * y, m < Q.size)


@triton.jit
def laid_out(desk, form, lam, table, W: tl.constexpr, Q: tl.constexpr):
    """V + λI as a tile, zero in its padding, and b, of a form: through memory, so that a row lies side by side.

    The layout of the registers follows from that, and with it the number of shuffles in all that is done to the tile.
    """
    m, j, i = tl.arange(0, Q.packed), tl.arange(0, W.wide)[:, None], tl.arange(0, W.wide)[None, :]
    low, high, rest = tl.load(table + m), tl.load(table + Q.packed + m), desk + W.wide * W.wide
    tl.store(desk + low * W.wide + high, form, high < W.dim)
    tl.store(desk + high * W.wide + low, form, high < W.dim)
    tl.store(rest + low, form, (high == W.dim) & (low < W.dim))
    tl.debug_barrier()  # what one thread has written, another one reads
    matrix, vector = tl.load(desk + j * W.wide + i), tl.load(rest + tl.arange(0, W.wide))
    return tl.where((j == i) & (j < W.dim), matrix + lam, matrix), vector


@triton.jit
def solved(desk, total, lam, table, W: tl.constexpr, Q: tl.constexpr):
    """The minimiser of λ‖μ‖² plus a form."""
    j, i = tl.arange(0, W.wide)[:, None], tl.arange(0, W.wide)[None, :]
    matrix, vector = laid_out(desk, total, lam, table, W, Q)
    return tl.sum(inverse(matrix, j, i, W.dim) * vector[:, None], axis=0)  # down, since that needs few shuffles


@triton.jit
def set_point(point, mean, W: tl.constexpr):
    """Put a parameter where forms are evaluated."""
    places = tl.arange(0, W.wide)
    tl.store(point + places, mean, places < W.dim)
    tl.debug_barrier()


@triton.jit
def inverse_factor(matrix, j, i, D: tl.constexpr):
    """L⁻¹ of a matrix L Lᵀ, by elimination in place: what has become 0 makes room for the inverse.

    What is right of the diagonal in a row is also what is below it in the column, until that is eliminated.
    """
    places = tl.arange(0, matrix.shape[0])
    for p in range(D):
        row = tl.sum(tl.where(j == p, matrix, 0.0), axis=0)
        scale = 1.0 / tl.sum(tl.where(places == p, row, 0.0), axis=0)
        share = tl.where(places > p, scale * row, 0.0)
        row = tl.where(places == p, 1.0, row)
        matrix = tl.where((i == p) & (j > p), 0.0, matrix) - share[:, None] * row[None, :]
    pivots = tl.sum(tl.where(j == i, matrix, 0.0), axis=0)
    scale = tl.where(places < D, 1.0 / tl.sqrt(tl.where(places < D, pivots, 1.0)), 0.0)
    return tl.where(j > i, matrix, tl.where(j == i, 1.0, 0.0)) * scale[:, None]


@triton.jit
def form_of_disagreement(desk, form, term, lam, table, W: tl.constexpr, Q: tl.constexpr):
    """Write the form of r_g(μ)² = ‖b − Vμ‖² in (V+λI)⁻¹ down, for the form of some rewards. Gives tr V(V+λI)⁻¹."""
    m, j, i = tl.arange(0, Q.packed), tl.arange(0, W.wide)[:, None], tl.arange(0, W.wide)[None, :]
    low, high, places = tl.load(table + m), tl.load(table + Q.packed + m), tl.arange(0, W.wide)
    matrix, vector = laid_out(desk, form, lam, table, W, Q)
    inner = tl.where((j < W.dim) & (i < W.dim), inverse(matrix, j, i, W.dim), 0.0)
    aside = tl.sum(inner * vector[:, None], axis=0)
    square = matrix + tl.where((j == i) & (j < W.dim), -2.0 * lam, 0.0) + lam * lam * inner  # V − λI + λ²(V+λI)⁻¹
    tl.debug_barrier()  # all have read
    tl.store(desk + j * W.wide + i, square)
    tl.store(desk + W.wide * W.wide + places, vector - lam * aside)
    tl.debug_barrier()
    packed = tl.load(desk + tl.where(high < W.dim, low * W.wide + high, W.wide * W.wide + low), low < W.dim, 0.0)
    tl.store(term + m, tl.where(low < W.dim, packed, tl.sum(vector * aside, axis=0)), m < Q.size)
    tl.debug_barrier()
    return W.dim - lam * tl.sum(tl.sum(tl.where(j == i, inner, 0.0), axis=0), axis=0)
