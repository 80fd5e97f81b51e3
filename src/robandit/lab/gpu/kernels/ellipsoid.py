"""Policies that are optimistic over one ellipsoid: a whole trial in one program, its state in registers.

While sets are fresh the state is Sᵀ, with S Sᵀ = Σ⁻¹, and μ, as in `geometry.ridge`. From a set X (d, K) that stays on
it is V = Sᵀ X and m = Xᵀμ: Potter's update of S carries V, m and the squared widths along without S itself. The column
of V of an action that is played again and again shrinks by a factor each time, so its width keeps its digits in single
precision, where Σ⁻¹ and Xᵀ Σ⁻¹ X lose them. Columns are actions, since sums down a column need the fewest shuffles.
"""

import triton
import triton.language as tl

from robandit.lab.gpu.kernels.draws import TIES, decision_set, for_actions, for_round
from robandit.lab.gpu.kernels.world import (
    BERNOULLI,
    HIGH,
    HONEST,
    LOW,
    at,
    book,
    lies_now,
    lies_of,
    noise_of,
    source_of,
    truth_at,
    visitor_of,
    world_of,
)

UNIT = tl.constexpr(0)
VARIANCE = tl.constexpr(1)
LEVERAGE = tl.constexpr(2)
"""Kinds of weights: 1, 1/max{floor, σ}², CW-OFUL's min{1, α/‖a‖}."""

BY_ROUND = tl.constexpr(0)
BY_LOG_DET = tl.constexpr(1)
POINT = tl.constexpr(2)
"""Kinds of radius: looked up by t, √ of log det Σ (OFUL's), 0 (Greedy's)."""

FLOOR = tl.constexpr(0)
REACH = tl.constexpr(1)
START = tl.constexpr(2)
SLOPE = tl.constexpr(3)
INSIDE = tl.constexpr(4)
BIAS = tl.constexpr(5)
TOLD = tl.constexpr(6)
"""The places of a policy's numbers, in the order of `plan.PolicyNumbers`."""


@triton.jit
def column_of(matrix, k, place):
    """One column of a matrix."""
    return tl.sum(tl.where(k[None, :] == place, matrix, 0.0), axis=1)


@triton.jit
def radius_of(policy, radii, offset, t, growth, P: tl.constexpr):
    """The radius of the ellipsoid in round t."""
    if P.radius == BY_LOG_DET:
        inside = growth + tl.load(policy + INSIDE)
        return tl.load(policy + SLOPE) * tl.sqrt(inside) + tl.load(policy + BIAS)
    if P.radius == BY_ROUND:
        return tl.load(radii + t) + offset
    return 0.0 * offset


@triton.jit
def best_of(values, seed, t, trial, k, W: tl.constexpr, P: tl.constexpr):
    """The place of the largest value. Without widths exact ties are common, and broken at random."""
    values = tl.where(k < W.actions, values, -float("inf"))
    if P.radius == POINT:
        tied = values == tl.max(values, axis=0)
        if tl.sum(tied.to(tl.int32), axis=0) > 1:
            values = tl.where(tied, for_actions(seed, t, trial, TIES, W), -1.0)
    return tl.argmax(values, axis=0)


@triton.jit
def weight_of(policy, threshold, sigma, square, P: tl.constexpr):
    """The weight of an observation, given σ and the squared width of its action."""
    if P.weights == VARIANCE:
        if P.hidden:
            sigma = tl.load(policy + TOLD)
        bar = tl.maximum(sigma, tl.load(policy + FLOOR))
        return 1.0 / (bar * bar)
    if P.weights == LEVERAGE:
        return tl.minimum(1.0, threshold / tl.sqrt(tl.maximum(square, 1e-30)))
    return 1.0 + 0.0 * sigma


@triton.jit
def answer(numbers, world, honest, flipped, i, source, draws, noise, sigma, k, sums, W: tl.constexpr):
    """The reward that the policy is told for action i, and the sums of the trial after the round."""
    regret, earned, c_sup, c_play, told, least = sums
    means, best, gap, _ = world
    mean = at(means, k, i)
    expected = at(honest, k, i) if W.leans > 0 else mean
    reward = expected + (at(noise, k, i) if W.noise == BERNOULLI else noise)
    regret += (best - mean).to(tl.float64)
    earned += reward.to(tl.float64)
    if W.attack != HONEST:
        if flipped != 0:
            lies = lies_of(numbers, world, honest, noise, draws[3], k, W)
            lie, c_sup, c_play, told = book(numbers, lies, i, source, c_sup, c_play, told, k, W)
            reward += lie
    return reward, (regret, earned, c_sup, c_play, told, tl.minimum(least, gap))


@triton.jit
def write(out, here, lanes, lane, sums, gap, source, W: tl.constexpr):
    """Write the sums down at a checkpoint, each into its column: (checkpoints, columns, lanes)."""
    regret, earned, c_sup, c_play, told, least = sums
    place = out + (here.to(tl.int64) * (7 if W.sources == 0 else 8 + W.sources)) * lanes + lane
    if W.sources > 0:
        slot = tl.arange(0, W.slots)
        tl.store(place + 7 * lanes, source.to(tl.float32))
        tl.store(place + (8 + slot) * lanes, told.to(tl.float32), slot < W.sources)
        told = tl.sum(told, axis=0)
    tl.store(place, regret.to(tl.float32))
    tl.store(place + lanes, earned.to(tl.float32))
    tl.store(place + 2 * lanes, c_sup.to(tl.float32))
    tl.store(place + 3 * lanes, c_play.to(tl.float32))
    tl.store(place + 4 * lanes, told.to(tl.float32))
    tl.store(place + 5 * lanes, gap)
    tl.store(place + 6 * lanes, least)


@triton.jit
def look(io, out, checkpoints, here, place, lanes, lane, sums, gap, W: tl.constexpr):
    """Write the sums down if this round is a checkpoint. Gives the number of the next one."""
    seed, t, trial, _ = place
    due = tl.load(checkpoints + here) == t
    if due:
        source = -1
        if W.sources > 0:
            source = source_of(io[1], seed, t, trial, W)
        write(out, here, lanes, lane, sums, gap, source, W)
    return here + due.to(tl.int32)


@triton.jit
def note(record, row, actions, noise, sigma, coin, i, reward, source, W: tl.constexpr):
    """Keep a round for tests, which replay it: the decision set, the noise, and what was played and told."""
    WIDE: tl.constexpr = W.wide
    TALL: tl.constexpr = W.tall
    k, base = tl.arange(0, TALL), record + row * (TALL * WIDE + TALL + 5)
    tl.store(base + k[None, :] * WIDE + tl.arange(0, WIDE)[:, None], actions)
    tl.store(base + TALL * WIDE + k, noise + tl.zeros([TALL], tl.float32))
    tail = base + TALL * WIDE + TALL
    tl.store(tail, sigma)
    tl.store(tail + 1, coin)
    tl.store(tail + 2, i.to(tl.float32))
    tl.store(tail + 3, reward)
    tl.store(tail + 4, source + 0.0 * sigma)


@triton.jit
def settle(io, here, actions, world, visitor, i, sums, W: tl.constexpr):
    """Play action i: its reward, and its noise's σ."""
    record, numbers, when, _ = io
    seed, t, trial, row = here
    source, honest = visitor
    k, flipped = tl.arange(0, W.tall), 0
    draws = for_round(seed, t, trial)
    sigma, noise = noise_of(numbers, honest, draws[0], draws[1], draws[2], seed, t, trial, W)
    if W.attack != HONEST:
        flipped = lies_now(tl.load(when + t), source, W)
    reward, sums = answer(numbers, world, honest, flipped, i, source, draws, noise, sigma, k, sums, W)
    if W.record:
        note(record, row, actions, noise, sigma, draws[3], i, reward, source, W)
    return sigma, reward, sums


@triton.jit
def step_of(policy, weight, square, reward, mean):
    """What Potter's update needs: the share w/c, its coefficient w/(c + √c), the share of the residual, and c."""
    c = 1.0 + weight * square
    reach = tl.load(policy + REACH)
    residual = tl.minimum(tl.maximum(reward, -reach), reach) - mean
    return weight / c, weight / (c + tl.sqrt(c)), weight / c * residual, c


@triton.jit
def on_fresh_set(io, policy, radius, threshold, here, bounds, parameter, state, W: tl.constexpr, P: tl.constexpr):
    """A round with a decision set of its own. The state is Sᵀ (d, d), μ, log det Σ and the sums."""
    root, mean, growth, sums, _ = state
    seed, t, trial, _ = here
    PRECISION: tl.constexpr = W.precision
    actions = decision_set(seed, t, trial, bounds[0], bounds[1], W)
    k = tl.arange(0, W.tall)
    spread = tl.dot(root, actions, input_precision=PRECISION)
    estimates = tl.sum(actions * mean[:, None], axis=0)
    squares = tl.sum(spread * spread, axis=0)
    world = world_of(tl.sum(actions * parameter[:, None], axis=0), k, W)
    visitor = visitor_of(io, here, world[0], actions, W)
    heights = estimates + radius * tl.sqrt(squares)
    i = best_of(heights, seed, t, trial, k, W, P)
    sigma, reward, sums = settle(io, here, actions, world, visitor, i, sums, W)
    v = column_of(spread, k, i)
    square = tl.sum(v * v, axis=0)
    weight = weight_of(policy, threshold, sigma, square, P)
    _, coefficient, moved, c = step_of(policy, weight, square, reward, at(estimates, k, i))
    gain = tl.sum(root * v[:, None], axis=0)
    root -= v[:, None] * (coefficient * gain)[None, :]
    mean += moved * gain
    return root, mean, growth + tl.log(c), sums, world[2]


@triton.jit
def on_held_set(io, policy, radius, threshold, here, actions, world, state, W: tl.constexpr, P: tl.constexpr):
    """A round with the set that stays. The state is V (d, K), m and the squared widths (K,), log det Σ, the sums."""
    spread, estimates, squares, growth, sums = state
    seed, t, trial, _ = here
    k, visitor = tl.arange(0, W.tall), visitor_of(io, here, world[0], actions, W)
    i = best_of(estimates + radius * tl.sqrt(tl.maximum(squares, 0.0)), seed, t, trial, k, W, P)
    sigma, reward, sums = settle(io, here, actions, world, visitor, i, sums, W)
    v = column_of(spread, k, i)
    square = tl.sum(v * v, axis=0)
    weight = weight_of(policy, threshold, sigma, square, P)
    share, coefficient, moved, c = step_of(policy, weight, square, reward, at(estimates, k, i))
    u = tl.sum(spread * v[:, None], axis=0)
    spread -= v[:, None] * (coefficient * u)[None, :]
    estimates += moved * u
    squares -= share * u * u
    if t % W.again == 0:
        squares = tl.sum(spread * spread, axis=0)
    return spread, estimates, squares, growth + tl.log(c), sums


@triton.jit
def load_sums(totals, counts, lane, W: tl.constexpr):
    """The sums of a trial so far: regret, reward, C_sup and C_play, (lanes, 4); lies and the smallest gap.

    These two are (lanes, 2); where there are sources, lies have a slot for each, (lanes, slots + 1).
    """
    regret, earned = tl.load(totals + lane * 4), tl.load(totals + lane * 4 + 1)
    c_sup, c_play = tl.load(totals + lane * 4 + 2), tl.load(totals + lane * 4 + 3)
    told = tl.load(lies_at(counts, lane, W)).to(tl.int32)
    return regret, earned, c_sup, c_play, told, tl.load(counts + lane * (W.slots + 1) + W.slots)


@triton.jit
def lies_at(counts, lane, W: tl.constexpr):
    """Where the lies of a trial are counted; its smallest gap comes after them."""
    place = counts + lane * (W.slots + 1)
    return place + tl.arange(0, W.slots) if W.sources > 0 else place


@triton.jit
def keep_sums(totals, counts, lane, sums, W: tl.constexpr):
    """Keep the sums for the launch that goes on."""
    tl.store(totals + lane * 4, sums[0])
    tl.store(totals + lane * 4 + 1, sums[1])
    tl.store(totals + lane * 4 + 2, sums[2])
    tl.store(totals + lane * 4 + 3, sums[3])
    tl.store(lies_at(counts, lane, W), sums[4].to(tl.float32))
    tl.store(counts + lane * (W.slots + 1) + W.slots, sums[5])


@triton.jit(do_not_specialize=["seed", "first", "lanes", "here", "begin", "end"])
def play_fresh(
    out, record, numbers, policy, when, radii, offsets, thresholds, parameters, checkpoints,
    roots, centers, totals, counts, seed, first, lanes, here, begin, end, W: tl.constexpr, P: tl.constexpr
):  # fmt: skip
    """Play the rounds from ``begin`` to ``end`` of a trial, each with a decision set of its own."""
    WIDE: tl.constexpr = W.wide
    lane, j = tl.program_id(0), tl.arange(0, WIDE)
    square = lane * WIDE * WIDE + j[:, None] * WIDE + j[None, :]
    offset, threshold = tl.load(offsets + lane), tl.load(thresholds + lane)
    truth = truth_at(parameters, lane, W)
    parameter, io = tl.load(truth + j), (record, numbers, when, truth + WIDE)
    bounds = (tl.load(numbers + LOW), tl.load(numbers + HIGH))
    growth = tl.load(centers + (lane * 2 + 1) * WIDE)
    sums = load_sums(totals, counts, lane, W)
    state = (tl.load(roots + square), tl.load(centers + lane * 2 * WIDE + j), growth, sums, 0.0 * growth)
    for t in range(begin, end + 1):
        place = (seed, t, first + lane, lane * (end + 1) + t)
        radius = radius_of(policy, radii, offset, t, state[2], P)
        state = on_fresh_set(io, policy, radius, threshold, place, bounds, parameter, state, W, P)
        here = look(io, out, checkpoints, here, place, lanes, lane, state[3], state[4], W)
    tl.store(roots + square, state[0])
    tl.store(centers + lane * 2 * WIDE + j, state[1])
    tl.store(centers + (lane * 2 + 1) * WIDE, state[2])
    keep_sums(totals, counts, lane, state[3], W)


@triton.jit(do_not_specialize=["seed", "first", "lanes", "here", "begin", "end"])
def play_held(
    out, record, numbers, policy, when, radii, offsets, thresholds, parameters, checkpoints,
    roots, centers, totals, counts, seed, first, lanes, here, begin, end, W: tl.constexpr, P: tl.constexpr
):  # fmt: skip
    """Play the rounds from ``begin`` to ``end`` of a trial, all with the decision set of round 0."""
    WIDE: tl.constexpr = W.wide
    lane, j = tl.program_id(0), tl.arange(0, WIDE)
    offset, threshold = tl.load(offsets + lane), tl.load(thresholds + lane)
    actions = decision_set(seed, 0 * here, first + lane, tl.load(numbers + LOW), tl.load(numbers + HIGH), W)
    root = tl.load(roots + lane * WIDE * WIDE + j[:, None] * WIDE + j[None, :])
    spread = tl.dot(root, actions, input_precision="ieee")  # once: the rounds need registers
    truth = truth_at(parameters, lane, W)
    means, io = tl.sum(actions * tl.load(truth + j)[:, None], axis=0), (record, numbers, when, truth + WIDE)
    estimates = tl.sum(actions * tl.load(centers + lane * 2 * WIDE + j)[:, None], axis=0)
    world = world_of(means, tl.arange(0, W.tall), W)
    growth, sums = tl.load(centers + (lane * 2 + 1) * WIDE), load_sums(totals, counts, lane, W)
    state = (spread, estimates, tl.sum(spread * spread, axis=0), growth, sums)
    for t in range(begin, end + 1):
        place = (seed, t, first + lane, lane * (end + 1) + t)
        radius = radius_of(policy, radii, offset, t, state[3], P)
        state = on_held_set(io, policy, radius, threshold, place, actions, world, state, W, P)
        here = look(io, out, checkpoints, here, place, lanes, lane, state[4], world[2], W)
    keep_sums(totals, counts, lane, state[4], W)
