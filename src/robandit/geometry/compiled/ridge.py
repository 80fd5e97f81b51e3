"""The kernel of `Ridge.update`."""

from __future__ import annotations

from math import log, sqrt

import numba
import numpy as np

from robandit.geometry.compiled.parts import OPTIONS, compile_as, dot


@numba.njit(**OPTIONS)
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
        c = 1.0 + w * dot(v, v)
        share[b] = w / c
        shrink, step = w / (c + sqrt(c)), w / c * (rewards[b] - dot(a, mu))
        for i in range(dim):
            g = gain[b, i] = dot(s[i], v)
            mu[i] += step * g
            for j in range(dim):
                s[i, j] -= shrink * g * v[j]
        log_det[row] += log(c)
        if len(precision):
            for i in range(dim):
                for j in range(dim):
                    precision[row, i, j] += w * a[i] * a[j]


compile_as(update, "cbacr211ba")
