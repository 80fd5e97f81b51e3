"""Quorum between two votes: the rounds of a trial in one program, in single precision, with its groups in memory.

All rewards come at once, so all trials vote at the same rounds: `votes` is launched between two launches of these. A
vote leaves Sᵀ and μ in memory, so what rounds carry along ends with it. `policies.quorum` is what they follow.
"""

import triton
import triton.language as tl

from robandit.lab.gpu.kernels.draws import decision_set
from robandit.lab.gpu.kernels.ellipsoid import (
    REACH,
    best_of,
    column_of,
    keep_sums,
    load_sums,
    look,
    settle,
    step_of,
    weight_of,
)
from robandit.lab.gpu.kernels.groups import (
    DISMISSED,
    DOUBTED,
    LATEST,
    NOISE,
    REPEATS,
    SPREAD,
    VOTES,
    WEIGHT,
    add,
    group_of,
    of_trial,
    row_of,
    slot_of,
)
from robandit.lab.gpu.kernels.world import HIGH, LOW, at, truth_at, visitor_of, world_of

RANGE = tl.constexpr(0)
WIDTH = tl.constexpr(1)
LAM = tl.constexpr(2)
TOLERANCE = tl.constexpr(3)
"""The places of a quorum's numbers, in the order of `quorum.QuorumNumbers`."""


@triton.jit
def judge(habits, distance, reward, least, t, Q: tl.constexpr):
    """Whether a reward dissents, and what the trial is used to after it, as `policies.dissent` has it."""
    spread, latest, repeats = habits
    repeats += ((reward == latest) & (t > 1)).to(tl.float32)
    dissent = (distance > Q.far * tl.maximum(spread, least)) & (repeats <= Q.repeated * t)
    pace = tl.maximum(Q.pace, Q.haste / (1.0 + t / Q.first))
    moved = spread * tl.exp(pace * (tl.where(distance > Q.median * spread, 1.0, 0.0) - 0.5))
    return dissent.to(tl.int32), (tl.where(dissent, spread, moved), reward, repeats)


@triton.jit
def heard(
    policy, terms, memory, habits, source, action, reward, square, estimate, sigma, t,
    P: tl.constexpr, W: tl.constexpr, Q: tl.constexpr
):  # fmt: skip
    """Put a reward into its group. Gives the weight with which it counts, and what the trial is used to."""
    weight, reach = weight_of(policy, 1.0, sigma, square, P), tl.load(policy + REACH)
    reward = tl.minimum(tl.maximum(reward, -reach), reach)
    distance = tl.abs(reward - estimate) * tl.sqrt(weight / (1.0 + weight * square))
    whole = tl.load(terms + RANGE).to(tl.float32)
    least = tl.where(weight * whole * whole <= 1.0 + 1e-5, Q.sharp, 1.0)  # a σ of R or more says nothing
    side, habits = judge(habits, distance, reward, least, t, Q)
    slot = 0 * t
    if W.sources > 0:
        slot = slot_of(memory, source, Q)
    place = group_of(memory, slot, side, t, Q)
    belief = tl.load(row_of(memory[2], WEIGHT, Q) + place).to(tl.float32)
    add(memory, place, action, reward, weight, t, W, Q)
    return weight * belief, habits


@triton.jit
def load_habits(memory):
    """What a trial is used to: the usual distance, the last reward, and how many were the same as the one before."""
    spread, latest = tl.load(memory[6] + SPREAD), tl.load(memory[6] + LATEST)
    return spread.to(tl.float32), latest.to(tl.float32), tl.load(memory[6] + REPEATS).to(tl.float32)


@triton.jit
def keep_habits(memory, habits):
    """Keep it for the next launch."""
    tl.store(memory[6] + SPREAD, habits[0].to(tl.float64))
    tl.store(memory[6] + LATEST, habits[1].to(tl.float64))
    tl.store(memory[6] + REPEATS, habits[2].to(tl.float64))


@triton.jit
def look_at_counts(io, out, used, checkpoints, here, place, lanes, lane, sums, memory, gap, W: tl.constexpr):
    """Write sums and counts down if this round is a checkpoint. Gives the number of the next one."""
    found = look(io, out, checkpoints, here, place, lanes, lane, sums, gap, W)
    if found > here:
        row = used + (here.to(tl.int64) * lanes + lane) * 3
        tl.store(row, tl.load(memory[6] + VOTES).to(tl.int32))
        tl.store(row + 1, tl.load(memory[6] + DOUBTED).to(tl.int32))
        tl.store(row + 2, tl.load(memory[6] + DISMISSED).to(tl.int32))
    return found


@triton.jit
def on_fresh_set(
    io, policy, terms, memory, radius, here, bounds, parameter, state,
    P: tl.constexpr, W: tl.constexpr, Q: tl.constexpr
):  # fmt: skip
    """A round with a decision set of its own. The state is Sᵀ, μ, what the trial is used to, and the sums."""
    root, mean, habits, sums, _ = state
    seed, t, trial, _ = here
    PRECISION: tl.constexpr = W.precision
    actions = decision_set(seed, t, trial, bounds[0], bounds[1], W)
    k = tl.arange(0, W.tall)
    spread = tl.dot(root, actions, input_precision=PRECISION)
    estimates = tl.sum(actions * mean[:, None], axis=0)
    world = world_of(tl.sum(actions * parameter[:, None], axis=0), k, W)
    visitor = visitor_of(io, here, world[0], actions, W)
    i = best_of(estimates + radius * tl.sqrt(tl.sum(spread * spread, axis=0)), seed, t, trial, k, W, P)
    sigma, reward, sums = settle(io, here, actions, world, visitor, i, sums, W)
    v, estimate = column_of(spread, k, i), at(estimates, k, i)
    square = tl.sum(v * v, axis=0)
    tl.store(memory[9] + tl.arange(0, W.wide), column_of(actions, k, i))
    tl.debug_barrier()  # what one thread has written, another one reads
    weight, habits = heard(
        policy, terms, memory, habits, visitor[0], memory[9], reward, square, estimate, sigma, t, P, W, Q
    )
    _, coefficient, moved, _ = step_of(policy, weight, square, reward, estimate)
    gain = tl.sum(root * v[:, None], axis=0)
    root -= v[:, None] * (coefficient * gain)[None, :]
    return root, mean + moved * gain, habits, sums, world[2]


@triton.jit
def on_held_set(
    io, policy, terms, memory, radius, here, actions, world, state,
    P: tl.constexpr, W: tl.constexpr, Q: tl.constexpr
):  # fmt: skip
    """A round with the set that stays. The state is V, m, the squared widths, what the trial is used to, the sums."""
    spread, estimates, squares, habits, sums = state
    seed, t, trial, _ = here
    k, visitor = tl.arange(0, W.tall), visitor_of(io, here, world[0], actions, W)
    i = best_of(estimates + radius * tl.sqrt(tl.maximum(squares, 0.0)), seed, t, trial, k, W, P)
    sigma, reward, sums = settle(io, here, actions, world, visitor, i, sums, W)
    v, estimate = column_of(spread, k, i), at(estimates, k, i)
    square, action = tl.sum(v * v, axis=0), memory[9] + i * W.wide
    weight, habits = heard(
        policy, terms, memory, habits, visitor[0], action, reward, square, estimate, sigma, t, P, W, Q
    )
    share, coefficient, moved, _ = step_of(policy, weight, square, reward, estimate)
    u = tl.sum(spread * v[:, None], axis=0)
    spread -= v[:, None] * (coefficient * u)[None, :]
    estimates += moved * u
    squares -= share * u * u
    if t % W.again == 0:
        squares = tl.sum(spread * spread, axis=0)
    return spread, estimates, squares, habits, sums


@triton.jit(do_not_specialize=["seed", "first", "lanes", "here", "begin", "end"])
def play_quorum_fresh(
    out, record, numbers, policy, when, radii, offsets, thresholds, parameters, checkpoints,
    roots, centers, totals, counts, seed, first, lanes, here, begin, end,
    used, terms, forms, quadratics, reals, wholes, standings, trust, singles, desk, point, shelf, table,
    W: tl.constexpr, P: tl.constexpr, Q: tl.constexpr
):  # fmt: skip
    """Play the rounds from ``begin`` to ``end`` of a trial, each with a decision set of its own."""
    lane, j = tl.program_id(0), tl.arange(0, W.wide)
    memory = (forms, quadratics, reals, wholes, standings, trust, singles, desk, point, shelf, table)
    memory, truth = of_trial(memory, lane, Q), truth_at(parameters, lane, W)
    parameter, io = tl.load(truth + j), (record, numbers, when, truth + W.wide)
    bounds = (tl.load(numbers + LOW), tl.load(numbers + HIGH))
    radius = (tl.load(terms + WIDTH) * tl.load(memory[6] + NOISE)).to(tl.float32)
    root = tl.load(roots + lane * W.wide * W.wide + j[:, None] * W.wide + j[None, :])
    center = tl.load(centers + lane * 2 * W.wide + j)
    state = (root, center, load_habits(memory), load_sums(totals, counts, lane, W), 0.0 * radius)
    for t in range(begin, end + 1):
        place = (seed, t, first + lane, lane * (end + 1) + t)
        state = on_fresh_set(io, policy, terms, memory, radius, place, bounds, parameter, state, P, W, Q)
        here = look_at_counts(io, out, used, checkpoints, here, place, lanes, lane, state[3], memory, state[4], W)
    tl.store(roots + lane * W.wide * W.wide + j[:, None] * W.wide + j[None, :], state[0])
    tl.store(centers + lane * 2 * W.wide + j, state[1])
    keep_habits(memory, state[2])
    keep_sums(totals, counts, lane, state[3], W)


@triton.jit(do_not_specialize=["seed", "first", "lanes", "here", "begin", "end"])
def play_quorum_held(
    out, record, numbers, policy, when, radii, offsets, thresholds, parameters, checkpoints,
    roots, centers, totals, counts, seed, first, lanes, here, begin, end,
    used, terms, forms, quadratics, reals, wholes, standings, trust, singles, desk, point, shelf, table,
    W: tl.constexpr, P: tl.constexpr, Q: tl.constexpr
):  # fmt: skip
    """Play the rounds from ``begin`` to ``end`` of a trial, all with the decision set of round 0."""
    lane, j, k = tl.program_id(0), tl.arange(0, W.wide), tl.arange(0, W.tall)
    memory = (forms, quadratics, reals, wholes, standings, trust, singles, desk, point, shelf, table)
    memory, truth = of_trial(memory, lane, Q), truth_at(parameters, lane, W)
    actions = decision_set(seed, 0 * here, first + lane, tl.load(numbers + LOW), tl.load(numbers + HIGH), W)
    tl.store(memory[9] + k[None, :] * W.wide + j[:, None], actions)
    radius = (tl.load(terms + WIDTH) * tl.load(memory[6] + NOISE)).to(tl.float32)
    root = tl.load(roots + lane * W.wide * W.wide + j[:, None] * W.wide + j[None, :])
    spread = tl.dot(root, actions, input_precision="ieee")
    means, io = tl.sum(actions * tl.load(truth + j)[:, None], axis=0), (record, numbers, when, truth + W.wide)
    estimates = tl.sum(actions * tl.load(centers + lane * 2 * W.wide + j)[:, None], axis=0)
    world, habits, sums = world_of(means, k, W), load_habits(memory), load_sums(totals, counts, lane, W)
    state = (spread, estimates, tl.sum(spread * spread, axis=0), habits, sums)
    tl.debug_barrier()  # what one thread has written, another one reads
    for t in range(begin, end + 1):
        place = (seed, t, first + lane, lane * (end + 1) + t)
        state = on_held_set(io, policy, terms, memory, radius, place, actions, world, state, P, W, Q)
        here = look_at_counts(io, out, used, checkpoints, here, place, lanes, lane, state[4], memory, world[2], W)
    keep_habits(memory, state[3])
    keep_sums(totals, counts, lane, state[4], W)
