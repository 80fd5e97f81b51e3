"""What the compiled kernels share: how they are compiled, and the inner product."""

from __future__ import annotations

import numba

# Sums may be reordered, which vector instructions need; NaN and infinity keep their meaning.
OPTIONS = {"cache": True, "error_model": "numpy", "fastmath": {"reassoc", "contract", "nsz"}}
EXACT = {"cache": True, "error_model": "numpy"}  # every product and sum is rounded as NumPy rounds it


@numba.njit(**OPTIONS)
def dot(x, y):
    """⟨x, y⟩."""
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


def compile_as(kernel, letters):
    """Compile a kernel, or load it from Numba's cache. Each argument has a letter for its type.

    What is only read may be an array that nobody can write to: 1 to 3 dimensions of floats, r for rows or other whole
    numbers, s for truths. What is written to are a to c, floats in as many dimensions, p, whole numbers, and q, truths.
    """
    reads = {str(n): numba.types.Array(numba.float64, n, "C", readonly=True) for n in (1, 2, 3)}
    writes = {"a": numba.float64[::1], "b": numba.float64[:, ::1], "c": numba.float64[:, :, ::1], "p": numba.intp[::1]}
    writes |= {"q": numba.boolean[::1]}
    reads |= {"r": numba.types.Array(numba.intp, 1, "C", readonly=True)}
    reads |= {"s": numba.types.Array(numba.boolean, 1, "C", readonly=True)}
    known = reads | writes | {"f": numba.float64}
    kernel.compile(tuple(known[letter] for letter in letters))
    kernel.disable_compile()
