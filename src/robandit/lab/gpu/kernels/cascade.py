"""What a round of Multi-level weighted OFUL does where its first test fails: two more, the search, and the cascade.

That is rare, so everything large is read from memory, and the rounds' own registers are free for the search.
"""

import triton
import triton.language as tl

from robandit.lab.gpu.kernels.ellipsoid import column_of
from robandit.lab.gpu.kernels.intersection import best_first, frame_of, squared_norm_of, tip
from robandit.lab.gpu.kernels.world import at

COUNTS = tl.constexpr(32)
"""The places of a trial's counts: empty sets, the rounds of each level from 1 on, and steps of the cascade."""


@triton.jit
def place_of(memory, slot, W: tl.constexpr, P: tl.constexpr):
    """Where a matrix of a trial is kept, and which places it has: d × d, so that few bytes are moved.

    Slot 0 is S⁻¹ of all rounds (at the last one with a fresh set), 2ℓ − 1 and 2ℓ are Sᵀ and S⁻¹ of level ℓ.
    """
    D: tl.constexpr = W.dim
    j, i = tl.arange(0, W.wide)[:, None], tl.arange(0, W.wide)[None, :]
    base = (memory[4].to(tl.int64) * (2 * P.levels + 1) + slot) * (D * D)
    return memory[0] + base + (j * D + i), (j < D) & (i < D)


@triton.jit
def load_matrix(memory, slot, W: tl.constexpr, P: tl.constexpr):
    """A matrix of a trial, with zeros as padding."""
    place, inside = place_of(memory, slot, W, P)
    return tl.load(place, inside, 0.0)


@triton.jit
def keep_matrix(memory, slot, matrix, W: tl.constexpr, P: tl.constexpr):
    """Put a matrix of a trial back."""
    place, inside = place_of(memory, slot, W, P)
    tl.store(place, matrix, inside)


@triton.jit
def center_of(memory, level, W: tl.constexpr, P: tl.constexpr):
    """Where μ of a level is kept."""
    return memory[1] + (memory[4].to(tl.int64) * (P.levels + 1) + level) * W.wide + tl.arange(0, W.wide)


@triton.jit
def root_of(memory, W: tl.constexpr):
    """Where Sᵀ of all rounds is put."""
    j, i = tl.arange(0, W.wide)[:, None], tl.arange(0, W.wide)[None, :]
    return memory[2] + memory[4].to(tl.int64) * (W.wide * W.wide) + (j * W.wide + i)


@triton.jit
def shelf_of(memory, W: tl.constexpr):
    """Where the shelf of a trial begins: X, V, m, D and μ lie there side by side."""
    return memory[3] + memory[4].to(tl.int64) * (2 * W.wide * W.tall + 2 * W.tall + W.wide)


@triton.jit
def set_of(memory, W: tl.constexpr):
    """Where the decision set is kept: an action's features lie side by side."""
    i, k = tl.arange(0, W.wide)[:, None], tl.arange(0, W.tall)[None, :]
    return shelf_of(memory, W) + (k * W.wide + i)


@triton.jit
def action_of(memory, place, W: tl.constexpr):
    """One action of the decision set."""
    return tl.load(shelf_of(memory, W) + place * W.wide + tl.arange(0, W.wide))


@triton.jit
def spread_of(memory, W: tl.constexpr):
    """Where V is put."""
    j, k = tl.arange(0, W.wide)[:, None], tl.arange(0, W.tall)[None, :]
    return shelf_of(memory, W) + W.wide * W.tall + (j * W.tall + k)


@triton.jit
def vectors_of(memory, W: tl.constexpr):
    """Where m, D and μ are put."""
    start, k = shelf_of(memory, W) + 2 * W.wide * W.tall, tl.arange(0, W.tall)
    return start + k, start + W.tall + k, start + 2 * W.tall + tl.arange(0, W.wide)


@triton.jit
def put_away(memory, state, tally, W: tl.constexpr):
    """Put into memory what the search reads."""
    root, mean, spread, estimates, _ = state
    places = vectors_of(memory, W)
    tl.store(root_of(memory, W), root)
    tl.store(spread_of(memory, W), spread)
    tl.store(places[0], estimates)
    tl.store(places[1], tally)
    tl.store(places[2], mean)
    tl.debug_barrier()


@triton.jit
def radii_at(radii, t, level, P: tl.constexpr):
    """β_{t,ℓ} and γ_{t,ℓ}; past the last level β is the last one's."""
    betas, gammas, steps = radii
    last = tl.minimum(level, P.levels)
    beta = tl.load(betas + t) + tl.load(steps + last)
    return beta, tl.load(gammas + t) + tl.load(steps + COUNTS + last)


@triton.jit
def in_level(memory, level, point, gamma, W: tl.constexpr, P: tl.constexpr):
    """Whether a point lies in a level's own ellipsoid."""
    away = point - tl.load(center_of(memory, level, W, P))
    return squared_norm_of(load_matrix(memory, 2 * level, W, P), away) <= gamma * gamma


@triton.jit
def search(memory, level, beta, gamma, W: tl.constexpr, P: tl.constexpr):
    """The best action under the intersection of the global ellipsoid and a level's, and whether it is empty."""
    PRECISION: tl.constexpr = W.precision
    k, places = tl.arange(0, W.tall), vectors_of(memory, W)
    root, spread = tl.load(root_of(memory, W)), tl.load(spread_of(memory, W))
    estimates, mean = tl.load(places[0]), tl.load(places[2])
    heights = estimates + beta * tl.sqrt(tl.sum(spread * spread, axis=0))
    heights = tl.where(k < W.actions, heights, -float("inf"))
    i = tl.argmax(heights, axis=0)
    settled = in_level(memory, level, tip(root, column_of(spread, k, i), mean, beta), gamma, W, P)
    empty = settled & (level < 0)
    if settled == 0:
        actions, center = tl.load(set_of(memory, W)), tl.load(center_of(memory, level, W, P))
        own = load_matrix(memory, 2 * level - 1, W, P)
        spread2 = tl.dot(own, actions, input_precision=PRECISION)
        estimates2 = tl.sum(actions * center[:, None], axis=0)
        heights2 = estimates2 + gamma * tl.sqrt(tl.sum(spread2 * spread2, axis=0))
        upper = tl.minimum(heights, tl.where(k < W.actions, heights2, -float("inf")))
        i = tl.argmax(upper, axis=0)
        away = tip(own, column_of(spread2, k, i), center, gamma) - mean
        along = tl.sum(actions * away[:, None], axis=0)
        reach = squared_norm_of(load_matrix(memory, 0, W, P), away) + tl.sum(tl.load(places[1]) * along * along, axis=0)
        settled = (reach <= beta * beta) & (at(heights2, k, i) <= at(heights, k, i))
        if settled == 0:
            tl.debug_barrier()  # what follows is read anew, or would lie in shared memory until now
            first, second = (tl.load(root_of(memory, W)), mean), (load_matrix(memory, 2 * level, W, P), center)
            frame, spread = frame_of(first, second, beta, gamma, W), tl.load(spread_of(memory, W))
            i, empty = best_first(frame, spread, estimates, beta, upper, k, W)
    return i, empty


@triton.jit
def in_cascade(memory, radii, t, level, W: tl.constexpr, P: tl.constexpr):
    """The best action under C_{t,ℓ}, and the level used: one further up wherever the intersection is empty.

    The precision of all rounds is that of slot 0, and X D Xᵀ where D, (K,), has what each action weighs since.
    """
    used, i, empty = level, 0 * level, level > 0
    while empty:
        beta, gamma = radii_at(radii, t, used, P)
        if used <= P.levels:
            i, empty = search(memory, used, beta, gamma, W, P)
            used += empty.to(tl.int32)
        else:
            k, spread = tl.arange(0, W.tall), tl.load(spread_of(memory, W))
            heights = tl.load(vectors_of(memory, W)[0]) + beta * tl.sqrt(tl.sum(spread * spread, axis=0))
            i = tl.argmax(tl.where(k < W.actions, heights, -float("inf")), axis=0)
            empty = level < 0
    return i, used
