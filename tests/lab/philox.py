"""Philox 4x32-10 (Salmon et al. 2011) in NumPy: what a kernel draws, number by number, without one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Ints
from robandit.lab.environments import Synthetic
from robandit.lab.gpu.launch import key_of
from robandit.lab.gpu.worlds import ends_of

VISITORS = 5  # as in kernels.draws
_LOW = np.uint64(0xFFFFFFFF)


def uniform(seed: int, place: Any, t: Any, trial: Any, use: int) -> NDArray[np.float32]:
    """The first of the four numbers on [0, 1) that belong to these counters, which are broadcast."""
    key = [np.uint64(word) for word in divmod(key_of(seed), 1 << 32)[::-1]]
    c = [np.asarray(word).astype(np.uint64) for word in np.broadcast_arrays(place, t, trial, use)]
    for _ in range(10):
        first, second = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        c = [
            second >> np.uint64(32) ^ c[1] ^ key[0],
            second & _LOW,
            first >> np.uint64(32) ^ c[3] ^ key[1],
            first & _LOW,
        ]
        key = [key[0] + np.uint64(0x9E3779B9) & _LOW, key[1] + np.uint64(0xBB67AE85) & _LOW]
    signed = c[0].astype(np.uint32).view(np.int32)
    return np.where(signed < 0, -signed - 1, signed).astype(np.float32) * np.float32(4.6566127342e-10)


def sources_of(environment: Synthetic, seed: int, trials: Sequence[int], rounds: int) -> Ints:
    """The source of each visitor in the rounds 1, 2, …, (B, rounds), as `kernels.world.source_of` draws it."""
    number = uniform(seed, 0, np.arange(1, rounds + 1), np.array(trials)[:, None], VISITORS)
    return np.searchsorted(ends_of(environment).astype(np.float32), number, side="right").astype(np.int64)
