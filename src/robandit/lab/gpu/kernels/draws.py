"""Randomness by counters: a number depends on the seed, the trial, the round, what it is for and its place alone."""

import triton
import triton.language as tl

ROUND = tl.constexpr(0)
SETS = tl.constexpr(1)
COINS = tl.constexpr(2)
TIES = tl.constexpr(3)
LEVELS = tl.constexpr(4)
VISITORS = tl.constexpr(5)
"""What a number is for: the last word of Philox's counter."""


@triton.jit
def four(seed, place, t, trial, use: tl.constexpr):
    """Four uniform numbers on [0, 1) for each place, by Philox 4x32-10 (Salmon et al. 2011)."""
    like = tl.zeros_like(place)
    r0, r1, r2, r3 = tl.philox(seed, place, like + t, like + trial, like + use)
    return (
        tl.uint_to_uniform_float(r0),
        tl.uint_to_uniform_float(r1),
        tl.uint_to_uniform_float(r2),
        tl.uint_to_uniform_float(r3),
    )


@triton.jit
def for_round(seed, t, trial):
    """The four uniform numbers of a round: for σ, for the noise (two), and for the attack's coin."""
    return four(seed, tl.zeros([], tl.int32), t, trial, ROUND)


@triton.jit
def for_actions(seed, t, trial, use: tl.constexpr, W: tl.constexpr):
    """A uniform number for each action, (tall,)."""
    TALL: tl.constexpr = W.tall
    first, _, _, _ = four(seed, tl.arange(0, TALL), t, trial, use)
    return first


@triton.jit
def decision_set(seed, t, trial, low, high, W: tl.constexpr):
    """The decision set of a round, (wide, tall), an action in each column: uniform entries, and zeros as padding."""
    TALL: tl.constexpr = W.tall
    WIDE: tl.constexpr = W.wide
    i, k = tl.arange(0, WIDE)[:, None], tl.arange(0, TALL)[None, :]
    quarter = i * (TALL // 4) + tl.arange(0, TALL // 4)[None, :]
    u0, u1, u2, u3 = four(seed, quarter, t, trial, SETS)
    uniform = tl.reshape(tl.join(tl.join(u0, u2), tl.join(u1, u3)), (WIDE, TALL))
    entries = low + (high - low) * uniform
    if W.constant:  # the first feature of every action
        entries = tl.where(i == 0, high, entries)
    return tl.where((k < W.actions) & (i < W.dim), entries, 0.0)
