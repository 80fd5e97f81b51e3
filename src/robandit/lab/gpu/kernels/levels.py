"""Multi-level weighted OFUL: a whole trial in one program. `policies.multi_level_weighted_oful` cites the paper.

Sᵀ and μ of all rounds stay in registers. S⁻¹ of all rounds, and Sᵀ, S⁻¹ and μ of every level, are in memory; a round
reads the level that is drawn, and its successors where the intersection is empty. With S ← S (I − κ v vᵀ), S⁻¹ gains
κ √c v aᵀ: both stay accurate, and no matrix is ever inverted.
"""

import triton
import triton.language as tl

from robandit.lab.gpu.kernels.draws import LEVELS, decision_set, four
from robandit.lab.gpu.kernels.ellipsoid import column_of, keep_sums, load_sums, look, settle, step_of
from robandit.lab.gpu.kernels.intersection import best_first, frame_of, squared_norm_of, tip
from robandit.lab.gpu.kernels.world import HIGH, LOW, at, standing

COUNTS = tl.constexpr(32)
"""The places of a trial's counts: empty sets, the rounds of each level from 1 on, and steps of the cascade."""


@triton.jit
def draw_level(seed, t, trial, P: tl.constexpr):
    """f(t) = ℓ with probability 2^−ℓ for 1 < ℓ ≤ ℓ_max, and 1 otherwise."""
    u, _, _, _ = four(seed, tl.zeros([], tl.int32), t, trial, LEVELS)
    powers = tl.exp2(-(1.0 + tl.arange(0, COUNTS)).to(tl.float32))
    level = 1 + tl.sum((u < powers).to(tl.int32), axis=0)
    return tl.where(level > P.levels, 1, level)


@triton.jit
def place_of(store, lane, slot, W: tl.constexpr, P: tl.constexpr):
    """Where a matrix of a trial is kept: slot 0 is S⁻¹ of all rounds, 2ℓ − 1 and 2ℓ are Sᵀ and S⁻¹ of level ℓ."""
    WIDE: tl.constexpr = W.wide
    j = tl.arange(0, WIDE)
    base = (lane.to(tl.int64) * (2 * P.levels + 1) + slot) * WIDE * WIDE
    return store + base + j[:, None] * WIDE + j[None, :]


@triton.jit
def center_of(centers, lane, level, W: tl.constexpr, P: tl.constexpr):
    """Where μ of a level is kept."""
    WIDE: tl.constexpr = W.wide
    return centers + (lane.to(tl.int64) * (P.levels + 1) + level) * WIDE + tl.arange(0, WIDE)


@triton.jit
def radii_at(betas, gammas, steps, t, level, P: tl.constexpr):
    """β_{t,ℓ} and γ_{t,ℓ}; past the last level β is the last one's."""
    last = tl.minimum(level, P.levels)
    beta = tl.load(betas + t) + tl.load(steps + last)
    return beta, tl.load(gammas + t) + tl.load(steps + COUNTS + last)


@triton.jit
def search(
    store, centers, lane, level, state, actions, spread, estimates, beta, gamma, W: tl.constexpr, P: tl.constexpr
):
    """The best action under the intersection of the global ellipsoid and a level's, and whether it is empty."""
    PRECISION: tl.constexpr = W.precision
    root, mean = state
    k = tl.arange(0, W.tall)
    other, center = tl.load(place_of(store, lane, 2 * level, W, P)), tl.load(center_of(centers, lane, level, W, P))
    widths = tl.sqrt(tl.sum(spread * spread, axis=0))
    heights = tl.where(k < W.actions, estimates + beta * widths, -float("inf"))
    i = tl.argmax(heights, axis=0)
    farthest = tip(root, column_of(spread, k, i), mean, beta)
    settled = squared_norm_of(other, farthest - center) <= gamma * gamma
    empty = settled & (level < 0)
    if settled == 0:
        own = tl.load(place_of(store, lane, 2 * level - 1, W, P))
        spread2 = tl.dot(own, actions, input_precision=PRECISION)
        estimates2 = tl.sum(actions * center[:, None], axis=0)
        heights2 = estimates2 + gamma * tl.sqrt(tl.sum(spread2 * spread2, axis=0))
        upper = tl.minimum(heights, tl.where(k < W.actions, heights2, -float("inf")))
        i = tl.argmax(upper, axis=0)
        nearest = tip(own, column_of(spread2, k, i), center, gamma)
        whole = tl.load(place_of(store, lane, 0, W, P))
        inside = squared_norm_of(whole, nearest - mean) <= beta * beta
        settled = inside & (at(heights2, k, i) <= at(heights, k, i))
        if settled == 0:
            frame = frame_of(state, (other, center), beta, gamma, W)
            i, empty = best_first(frame, spread, estimates, beta, upper, k, W)
    return i, empty


@triton.jit
def in_cascade(
    store, centers, radii, t, lane, level, state, actions, spread, estimates, W: tl.constexpr, P: tl.constexpr
):
    """The best action under C_{t,ℓ}, and the level used: one further up wherever the intersection is empty."""
    betas, gammas, steps = radii
    used, i, empty = level, 0 * level, level > 0
    while empty:
        beta, gamma = radii_at(betas, gammas, steps, t, used, P)
        if used <= P.levels:
            i, empty = search(store, centers, lane, used, state, actions, spread, estimates, beta, gamma, W, P)
            used += empty.to(tl.int32)
        else:
            k = tl.arange(0, W.tall)
            heights = estimates + beta * tl.sqrt(tl.sum(spread * spread, axis=0))
            i = tl.argmax(tl.where(k < W.actions, heights, -float("inf")), axis=0)
            empty = level < 0
    return i, used


@triton.jit
def learn(policy, root, inner, mean, action, sigma, reward, P: tl.constexpr):
    """Fold a reward into Sᵀ, S⁻¹ and μ."""
    v = tl.sum(root * action[None, :], axis=1)
    square, estimate = tl.sum(v * v, axis=0), tl.sum(action * mean, axis=0)
    _, coefficient, moved, grown = step_of(policy, 1.0, sigma, square, reward, estimate, P)
    gain = tl.sum(root * v[:, None], axis=0)
    root -= v[:, None] * (coefficient * gain)[None, :]
    inner += (coefficient * tl.exp(0.5 * grown) * v)[:, None] * action[None, :]
    return root, inner, mean + moved * gain


@triton.jit
def learn_both(policy, store, centers, lane, level, state, action, sigma, reward, W: tl.constexpr, P: tl.constexpr):
    """Fold a reward into the statistics of all rounds, and into those of the level that was drawn."""
    whole = place_of(store, lane, 0, W, P)
    low, high = place_of(store, lane, 2 * level - 1, W, P), place_of(store, lane, 2 * level, W, P)
    root, inner, mean = learn(policy, state[0], tl.load(whole), state[1], action, sigma, reward, P)
    tl.store(whole, inner)
    place = center_of(centers, lane, level, W, P)
    own, other, center = learn(policy, tl.load(low), tl.load(high), tl.load(place), action, sigma, reward, P)
    tl.store(low, own)
    tl.store(high, other)
    tl.store(place, center)
    tl.debug_barrier()  # what one thread has written, another one may read in the next round
    return root, mean


@triton.jit
def play_round(
    io, policy, radii, store, centers, here, lane, fresh, bounds, parameter, state, W: tl.constexpr, P: tl.constexpr
):
    """A round. The state is Sᵀ and μ of all rounds, the sums and the counts."""
    PRECISION: tl.constexpr = W.precision
    root, mean, sums, counts, _ = state
    seed, t, trial, _ = here
    actions = decision_set(seed, tl.where(t <= fresh, t, 0), trial, bounds[0], bounds[1], W)
    k = tl.arange(0, W.tall)
    spread = tl.dot(root, actions, input_precision=PRECISION)
    estimates = tl.sum(actions * mean[:, None], axis=0)
    means = tl.sum(actions * parameter[:, None], axis=0)
    best, gap = standing(means, k, W)
    level = draw_level(seed, t, trial, P)
    i, used = in_cascade(store, centers, radii, t, lane, level, (root, mean), actions, spread, estimates, W, P)
    chosen = tl.where(k == i, 1.0, 0.0)
    i, sigma, reward, sums = settle(io, here, actions, (means, best, gap), chosen, sums, W, P)
    action = column_of(actions, k, i)
    root, mean = learn_both(policy, store, centers, lane, level, (root, mean), action, sigma, reward, W, P)
    place = tl.arange(0, COUNTS)
    counts += (place == level).to(tl.int32) + tl.where(place == 0, (used > level).to(tl.int32), 0)
    counts += tl.where(place == P.levels + 1, used - level, 0)
    return root, mean, sums, counts, gap


@triton.jit(do_not_specialize=["seed", "first", "lanes", "here", "begin", "end", "fresh"])
def play_levels(
    out, record, numbers, policy, when, radii, offsets, thresholds, parameters, checkpoints,
    roots, middles, totals, counts, seed, first, lanes, here, begin, end, fresh,
    gammas, steps, store, centers, used, W: tl.constexpr, P: tl.constexpr
):  # fmt: skip
    """Play the rounds from ``begin`` to ``end`` of a trial; up to ``fresh`` each has a decision set of its own."""
    WIDE: tl.constexpr = W.wide
    lane, j = tl.program_id(0), tl.arange(0, WIDE)
    parameter, places = tl.load(parameters + lane * WIDE + j), tl.arange(0, COUNTS)
    io, bounds = (record, numbers, when), (tl.load(numbers + LOW), tl.load(numbers + HIGH))
    root = tl.load(roots + lane * WIDE * WIDE + j[:, None] * WIDE + j[None, :])
    start = load_sums(totals, counts, lane)
    none, nothing = tl.zeros([COUNTS], tl.int32), tl.zeros([], tl.float32)
    state = (root, tl.load(middles + lane * 2 * WIDE + j), start, none, nothing)
    for t in range(begin, end + 1):
        place = (seed, t, first + lane, lane * (end + 1) + t)
        state = play_round(
            io, policy, (radii, gammas, steps), store, centers, place, lane, fresh, bounds, parameter, state, W, P
        )
        tl.store(used + (here.to(tl.int64) * lanes + lane) * COUNTS + places, state[3])
        here = look(out, checkpoints, here, t, lanes, lane, state[2], state[4])
    keep_sums(totals, counts, lane, state[2])
