"""Multi-level weighted OFUL: a whole trial in one program. `policies.multi_level_weighted_oful` cites the paper.

Sᵀ and μ of all rounds stay in registers, and Sᵀ, S⁻¹ and μ of every level in memory. With S ← S (I − κ v vᵀ), S⁻¹ gains
κ √c v aᵀ: both stay accurate, and no matrix is ever inverted. On a set X that stays, V = Sᵀ X and m = Xᵀμ are carried
along, as in `ellipsoid`, and what actions have weighed stands for S⁻¹ of all rounds.

A round nearly always ends with one test: whether the point that makes an action the best one under the ellipsoid of all
rounds lies in that of the level, too. Where it does not, `cascade` goes on.
"""

import triton
import triton.language as tl

from robandit.lab.gpu.kernels.cascade import (
    COUNTS,
    action_of,
    center_of,
    in_cascade,
    in_level,
    keep_matrix,
    load_matrix,
    put_away,
    radii_at,
    root_of,
    set_of,
    spread_of,
)
from robandit.lab.gpu.kernels.draws import LEVELS, decision_set, four
from robandit.lab.gpu.kernels.ellipsoid import column_of, keep_sums, load_sums, look, settle, step_of, weight_of
from robandit.lab.gpu.kernels.world import HIGH, LOW, at, truth_at, visitor_of, world_of


@triton.jit
def draw_level(seed, t, trial, P: tl.constexpr):
    """f(t) = ℓ with probability 2^−ℓ for 1 < ℓ ≤ ℓ_max, and 1 otherwise."""
    u, _, _, _ = four(seed, tl.zeros([], tl.int32), t, trial, LEVELS)
    powers = tl.exp2(-(1.0 + tl.arange(0, COUNTS)).to(tl.float32))
    level = 1 + tl.sum((u < powers).to(tl.int32), axis=0)
    return tl.where(level > P.levels, 1, level)


@triton.jit
def leader(memory, radii, t, level, state, W: tl.constexpr, P: tl.constexpr):
    """The best action under the ellipsoid of all rounds, its v and S v, and whether it is best under both."""
    root, mean, spread, estimates, squares = state
    k = tl.arange(0, W.tall)
    beta, gamma = radii_at(radii, t, level, P)
    heights = estimates + beta * tl.sqrt(tl.maximum(squares, 0.0))
    i = tl.argmax(tl.where(k < W.actions, heights, -float("inf")), axis=0)
    v, gain = directions(root, spread, i, W)
    length = tl.sqrt(tl.maximum(tl.sum(v * v, axis=0), 1e-30))
    return i, v, gain, in_level(memory, level, mean + beta / length * gain, gamma, W, P)


@triton.jit
def directions(root, spread, i, W: tl.constexpr):
    """An action's v = Sᵀa, and S v."""
    v = column_of(spread, tl.arange(0, W.tall), i)
    return v, tl.sum(root * v[:, None], axis=0)


@triton.jit
def look_further(memory, radii, t, level, state, tally, W: tl.constexpr, P: tl.constexpr):
    """The best action under C_{t,ℓ} and the level used, the action's v and S v, and Sᵀ and V, which are as before."""
    put_away(memory, state, tally, W)
    i, used = in_cascade(memory, radii, t, level, W, P)
    root, spread = tl.load(root_of(memory, W)), tl.load(spread_of(memory, W))
    v, gain = directions(root, spread, i, W)
    return i, used, v, gain, root, spread


@triton.jit
def learn_in_memory(policy, memory, level, action, weight, reward, W: tl.constexpr, P: tl.constexpr):
    """Fold a reward into Sᵀ, S⁻¹ and μ of the level that was drawn."""
    place = center_of(memory, level, W, P)
    root, mean = load_matrix(memory, 2 * level - 1, W, P), tl.load(place)
    v = tl.sum(root * action[None, :], axis=1)
    square, estimate = tl.sum(v * v, axis=0), tl.sum(action * mean, axis=0)
    _, coefficient, moved, c = step_of(policy, weight, square, reward, estimate)
    gain = tl.sum(root * v[:, None], axis=0)
    keep_matrix(memory, 2 * level - 1, root - v[:, None] * (coefficient * gain)[None, :], W, P)
    widen(memory, 2 * level, coefficient, c, v, action, W, P)
    tl.store(place, mean + moved * gain)


@triton.jit
def widen(memory, slot, coefficient, c, v, action, W: tl.constexpr, P: tl.constexpr):
    """Fold an action into S⁻¹."""
    inner = load_matrix(memory, slot, W, P)
    keep_matrix(memory, slot, inner + (coefficient * tl.sqrt(c) * v)[:, None] * action[None, :], W, P)


@triton.jit
def counted(counts, level, used, P: tl.constexpr):
    """The counts after a round."""
    place = tl.arange(0, COUNTS)
    counts += (place == level).to(tl.int32) + tl.where(place == 0, (used > level).to(tl.int32), 0)
    return counts + tl.where(place == P.levels + 1, used - level, 0)


@triton.jit
def on_fresh_set(io, policy, radii, memory, here, bounds, parameter, state, W: tl.constexpr, P: tl.constexpr):
    """A round with a decision set of its own. The state is Sᵀ and μ of all rounds, the sums and the counts."""
    PRECISION: tl.constexpr = W.precision
    root, mean, sums, counts, _ = state
    seed, t, trial, _ = here
    k = tl.arange(0, W.tall)
    actions = decision_set(seed, t, trial, bounds[0], bounds[1], W)
    tl.store(set_of(memory, W), actions)
    spread = tl.dot(root, actions, input_precision=PRECISION)
    estimates, squares = tl.sum(actions * mean[:, None], axis=0), tl.sum(spread * spread, axis=0)
    world = world_of(tl.sum(actions * parameter[:, None], axis=0), k, W)
    visitor = visitor_of(io, here, world[0], actions, W)
    tl.debug_barrier()  # what one thread has written, another one may read
    level = draw_level(seed, t, trial, P)
    given, used = (root, mean, spread, estimates, squares), level
    i, v, gain, settled = leader(memory, radii, t, level, given, W, P)
    if settled == 0:
        i, used, v, gain, root, spread = look_further(memory, radii, t, level, given, 0.0 * squares, W, P)
    sigma, reward, sums = settle(io, here, actions, world, visitor, i, sums, W)
    action, square = action_of(memory, i, W), tl.sum(v * v, axis=0)
    weight = weight_of(policy, 1.0, sigma, square, P)
    _, coefficient, moved, c = step_of(policy, weight, square, reward, at(estimates, k, i))
    root -= v[:, None] * (coefficient * gain)[None, :]
    widen(memory, 0, coefficient, c, v, action, W, P)
    learn_in_memory(policy, memory, level, action, weight, reward, W, P)
    tl.debug_barrier()
    return root, mean + moved * gain, sums, counted(counts, level, used, P), world[2]


@triton.jit
def on_held_set(io, policy, memory, here, choice, world, state, sums, W: tl.constexpr, P: tl.constexpr):
    """Play what was chosen, and learn. The state is Sᵀ, μ, V, m, the squared widths and D."""
    i, level, v, gain = choice
    root, mean, spread, estimates, squares, tally = state
    k = tl.arange(0, W.tall)
    actions = tl.load(set_of(memory, W)) if W.record or W.leans > 0 else spread
    visitor = visitor_of(io, here, world[0], actions, W)
    sigma, reward, sums = settle(io, here, actions, world, visitor, i, sums, W)
    square = tl.sum(v * v, axis=0)
    weight = weight_of(policy, 1.0, sigma, square, P)
    share, coefficient, moved, _ = step_of(policy, weight, square, reward, at(estimates, k, i))
    u = tl.sum(spread * v[:, None], axis=0)
    root -= v[:, None] * (coefficient * gain)[None, :]
    spread -= v[:, None] * (coefficient * u)[None, :]
    squares -= share * u * u
    if here[1] % W.again == 0:
        squares = tl.sum(spread * spread, axis=0)
    learn_in_memory(policy, memory, level, action_of(memory, i, W), weight, reward, W, P)
    tl.debug_barrier()  # what one thread has written, another one may read in the next round
    tally += tl.where(k == i, weight, 0.0)
    return (root, mean + moved * gain, spread, estimates + moved * u, squares, tally), sums


@triton.jit
def look_at_levels(io, out, used, checkpoints, here, place, lanes, lane, sums, counts, gap, W: tl.constexpr):
    """Write sums and counts down if this round is a checkpoint. Gives the number of the next one."""
    found = look(io, out, checkpoints, here, place, lanes, lane, sums, gap, W)
    if found > here:
        tl.store(used + (here.to(tl.int64) * lanes + lane) * COUNTS + tl.arange(0, COUNTS), counts)
    return found


@triton.jit(do_not_specialize=["seed", "first", "lanes", "here", "begin", "end"])
def play_levels_fresh(
    out, record, numbers, policy, when, radii, offsets, thresholds, parameters, checkpoints,
    roots, middles, totals, counts, seed, first, lanes, here, begin, end,
    gammas, steps, store, centers, shelf, used, W: tl.constexpr, P: tl.constexpr
):  # fmt: skip
    """Play the rounds from ``begin`` to ``end`` of a trial, each with a decision set of its own."""
    lane, j, places = tl.program_id(0), tl.arange(0, W.wide), tl.arange(0, COUNTS)
    memory, middle = (store, centers, roots, shelf, lane), middles + lane * 2 * W.wide + j
    truth = truth_at(parameters, lane, W)
    parameter, io = tl.load(truth + j), (record, numbers, when, truth + W.wide)
    bounds = (tl.load(numbers + LOW), tl.load(numbers + HIGH))
    sums, row = load_sums(totals, counts, lane, W), used + (here.to(tl.int64) * lanes + lane) * COUNTS
    state = (tl.load(root_of(memory, W)), tl.load(middle), sums, tl.load(row + places), 0.0 * bounds[0])
    for t in range(begin, end + 1):
        place = (seed, t, first + lane, lane * (end + 1) + t)
        state = on_fresh_set(io, policy, (radii, gammas, steps), memory, place, bounds, parameter, state, W, P)
        here = look_at_levels(io, out, used, checkpoints, here, place, lanes, lane, state[2], state[3], state[4], W)
    tl.store(root_of(memory, W), state[0])
    tl.store(middle, state[1])
    keep_sums(totals, counts, lane, state[2], W)
    tl.store(used + (here.to(tl.int64) * lanes + lane) * COUNTS + places, state[3])


@triton.jit
def held_state(memory, mean, actions, W: tl.constexpr):
    """Sᵀ, μ, V, m, the squared widths and D at the first round with the set that stays, which is put into memory."""
    PRECISION: tl.constexpr = W.precision
    root = tl.load(root_of(memory, W))
    tl.store(set_of(memory, W), actions)
    tl.store(spread_of(memory, W), tl.dot(root, actions, input_precision=PRECISION))
    tl.debug_barrier()  # what one thread has written, another one reads
    spread, estimates = tl.load(spread_of(memory, W)), tl.sum(actions * mean[:, None], axis=0)
    squares = tl.sum(spread * spread, axis=0)
    return root, mean, spread, estimates, squares, 0.0 * squares


@triton.jit(do_not_specialize=["seed", "first", "lanes", "here", "begin", "end"])
def play_levels_held(
    out, record, numbers, policy, when, radii, offsets, thresholds, parameters, checkpoints,
    roots, middles, totals, counts, seed, first, lanes, here, begin, end,
    gammas, steps, store, centers, shelf, used, W: tl.constexpr, P: tl.constexpr
):  # fmt: skip
    """Play the rounds from ``begin`` to ``end`` of a trial, all with the decision set of round 0."""
    lane, j, trial = tl.program_id(0), tl.arange(0, W.wide), first + tl.program_id(0)
    memory, radii = (store, centers, roots, shelf, lane), (radii, gammas, steps)
    actions = decision_set(seed, 0 * here, trial, tl.load(numbers + LOW), tl.load(numbers + HIGH), W)
    truth = truth_at(parameters, lane, W)
    means, io = tl.sum(actions * tl.load(truth + j)[:, None], axis=0), (record, numbers, when, truth + W.wide)
    world = world_of(means, tl.arange(0, W.tall), W)
    state = held_state(memory, tl.load(middles + lane * 2 * W.wide + j), actions, W)
    sums, row = load_sums(totals, counts, lane, W), used + (here.to(tl.int64) * lanes + lane) * COUNTS
    count, t, level = tl.load(row + tl.arange(0, COUNTS)), begin, draw_level(seed, begin, trial, P)
    # What is rare is outside of the inner loop, so that nothing in there makes room for it.
    while t <= end:
        i, climbed, v, gain, root, spread = look_further(memory, radii, t, level, state[:5], state[5], W, P)
        state, going = (root, state[1], spread, state[3], state[4], state[5]), t <= end
        while going:
            place = (seed, t, trial, lane * (end + 1) + t)
            choice = (i, level, v, gain)
            state, sums = on_held_set(io, policy, memory, place, choice, world, state, sums, W, P)
            count = counted(count, level, climbed, P)
            here = look_at_levels(io, out, used, checkpoints, here, place, lanes, lane, sums, count, world[2], W)
            t, level = t + 1, draw_level(seed, t + 1, trial, P)
            i, v, gain, settled = leader(memory, radii, tl.minimum(t, end), level, state[:5], W, P)
            climbed, going = level, settled & (t <= end)
    keep_sums(totals, counts, lane, sums, W)
