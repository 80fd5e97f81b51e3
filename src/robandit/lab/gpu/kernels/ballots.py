"""What counting votes is made of: numbers of all groups, sums of their forms, and how far to believe them."""

import triton
import triton.language as tl

from robandit.lab.gpu.kernels.groups import row_of

TINY = tl.constexpr(1e-300)


@triton.jit
def raised(x, power: tl.constexpr):
    """A power of a number that is not negative."""
    if power == 4.0:
        found = (x * x) * (x * x)
    elif power == 5.0:
        found = (x * x) * (x * x) * x
    else:
        found = tl.where(x > 0.0, tl.exp2(power * tl.log2(tl.maximum(x, 1e-300))), 0.0)
    return found


@triton.jit
def load_row(rows, row: tl.constexpr, used, Q: tl.constexpr):
    """A number of every group, and zero where there is none."""
    g = tl.arange(0, Q.crowd)
    return tl.load(row_of(rows, row, Q) + g, g < used, 0)


@triton.jit
def keep_row(rows, row: tl.constexpr, values, Q: tl.constexpr):
    """Write a number of every group down."""
    tl.store(row_of(rows, row, Q) + tl.arange(0, Q.crowd), values)


@triton.jit
def believe(ratio, Q: tl.constexpr):
    """How far to believe those whose bound is so many times their distance: 1 within it, and the less the farther."""
    kept = raised(tl.minimum(1.0, ratio), Q.steep)
    return tl.where(kept < Q.gone, 0.0, kept)


@triton.jit
def forms_at(forms, g, used, Q: tl.constexpr):
    """The forms of some groups, zero where there is none."""
    rows, m = g + tl.arange(0, Q.rows)[:, None], tl.arange(0, Q.packed)[None, :]
    return tl.load(forms + rows * Q.packed + m, rows < used, 0.0)


@triton.jit
def squares_of(tile, factors):
    """r_g² of some groups."""
    return tl.maximum(tl.sum(tile * factors[None, :], axis=1), 0.0)


@triton.jit
def added_up(forms, reals, row: tl.constexpr, used, Q: tl.constexpr):
    """The sum of forms with these weights."""
    PACKED: tl.constexpr = Q.packed
    total = tl.zeros([PACKED], tl.float64)
    for g in range(0, used, Q.rows):
        rows = g + tl.arange(0, Q.rows)
        weight = tl.load(row_of(reals, row, Q) + rows, rows < used, 0.0)
        total += tl.sum(forms_at(forms, g, used, Q) * weight[:, None], axis=0)
    return total
