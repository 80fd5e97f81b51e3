"""What the compiled kernels share: how they are compiled, and the inner product."""

from __future__ import annotations

import numba

# Sums may be reordered, which vector instructions need; NaN and infinity keep their meaning.
OPTIONS = {"cache": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}


@numba.njit(**OPTIONS)
def dot(x, y):
    """⟨x, y⟩."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


def compile_as(kernel, letters):
    """Compile a kernel, or load it from Numba's cache. Each argument has a letter for its type.

    What is only read, 1 to 3 dimensions of floats or r for rows, may be an array that nobody can write to.
    """
    reads = {str(n): numba.types.Array(numba.float64, n, "C", readonly=True) for n in (1, 2, 3)}
    writes = {"a": numba.float64[::1], "b": numba.float64[:, ::1], "c": numba.float64[:, :, ::1], "p": numba.intp[::1]}
    more = {"f": numba.float64, "r": numba.types.Array(numba.intp, 1, "C", readonly=True)}
    kernel.compile(tuple((reads | writes | more)[letter] for letter in letters))
    kernel.disable_compile()
