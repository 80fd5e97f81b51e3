"""The vote of a trial's groups in one program, in double precision. `policies.votes` is what it follows.

Each step is one pass over the groups' forms: how far a group is from the estimate decides its weight, with which its
form is added up at once. The sum is then solved for the next estimate.
"""

import triton
import triton.language as tl

from robandit.lab.gpu.kernels.ballots import TINY, added_up, believe, forms_at, keep_row, load_row, raised, squares_of
from robandit.lab.gpu.kernels.forms import form_of_disagreement, inverse_factor, laid_out, products, set_point, solved
from robandit.lab.gpu.kernels.groups import (
    CHANGED,
    COUNT,
    DISTANCE,
    FAR,
    FREEDOM,
    LAST,
    LIMIT,
    LOSS,
    MASS,
    NEW,
    NOISE,
    SAY,
    SINCE,
    USED,
    VOTES,
    WEIGHT,
    of_trial,
    row_of,
)
from robandit.lab.gpu.kernels.quorum import LAM, RANGE, TOLERANCE
from robandit.lab.gpu.kernels.sources import doubt, drop_bad_spells, second_test, turn


@triton.jit
def pass_over(memory, used, steep: tl.constexpr, Q: tl.constexpr):
    """Weigh every group by how far it is from the point in memory.

    Gives the sum of the weighted forms, and the largest change of a weight. The convex vote's weights fall like 1/r;
    with ``steep`` they are those of `believe`.
    """
    reals, factors = memory[2], products(memory[8], memory[10], Q)
    PACKED: tl.constexpr = Q.packed
    total, change = tl.zeros([PACKED], tl.float64), tl.zeros([], tl.float64)
    for g in range(0, used, Q.rows):
        rows = g + tl.arange(0, Q.rows)
        tile = forms_at(memory[1], g, used, Q)
        squares, limit = squares_of(tile, factors), tl.load(row_of(reals, LIMIT, Q) + rows, rows < used, 0.0)
        old = tl.load(row_of(reals, NEW, Q) + rows, rows < used, 0.0)
        ratio = limit * tl.rsqrt(tl.maximum(squares, TINY))  # the bound over the distance
        new = believe(ratio, Q) if steep else tl.minimum(1.0, ratio)
        tl.store(row_of(reals, NEW, Q) + rows, new, rows < used)
        total += tl.sum(tile * new[:, None], axis=0)
        change = tl.maximum(change, tl.max(tl.abs(new - old), axis=0))
    tl.debug_barrier()
    return total, change


@triton.jit
def look_at_all(memory, used, Q: tl.constexpr):
    """Write down how far every group is from the point in memory, and Σ w(r − ⟨a, μ⟩)² of its rewards."""
    reals, factors = memory[2], products(memory[8], memory[10], Q)
    for g in range(0, used, Q.rows):
        rows = g + tl.arange(0, Q.rows)
        distance = tl.sqrt(squares_of(forms_at(memory[1], g, used, Q), factors))
        loss = tl.sum(forms_at(memory[0], g, used, Q) * factors[None, :], axis=1)
        tl.store(row_of(reals, DISTANCE, Q) + rows, distance, rows < used)
        tl.store(row_of(reals, LOSS, Q) + rows, loss, rows < used)
    tl.debug_barrier()


@triton.jit
def weighted_median(desk, values, weights, used, Q: tl.constexpr):
    """The least of the values that values with half of the weight do not exceed."""
    g = tl.arange(0, Q.crowd)
    tl.store(desk + g, values)
    tl.debug_barrier()
    half, found = 0.5 * tl.sum(weights, axis=0), tl.full([], float("inf"), tl.float64)
    for place in range(used):
        value = tl.load(desk + place)
        below = tl.sum(tl.where((values <= value) & (g < used), weights, 0.0), axis=0)
        found = tl.where((below >= half) & (value < found), value, found)
    tl.debug_barrier()
    return found


@triton.jit
def fit(memory, roots, centers, lane, lam, used, W: tl.constexpr, Q: tl.constexpr):
    """Put Sᵀ and μ of what is believed into memory, and μ where forms are evaluated."""
    desk, j, i = memory[7], tl.arange(0, W.wide)[:, None], tl.arange(0, W.wide)[None, :]
    matrix, vector = laid_out(desk, added_up(memory[0], memory[2], WEIGHT, used, Q), lam, memory[10], W, Q)
    root = inverse_factor(matrix, j, i, W.dim)
    v = tl.sum(root * vector[None, :], axis=1)
    mean, places = tl.sum(root * v[:, None], axis=0), tl.arange(0, W.wide)
    tl.store(roots + lane.to(tl.int64) * (W.wide * W.wide) + j * W.wide + i, root.to(tl.float32))
    tl.store(centers + lane.to(tl.int64) * (2 * W.wide) + places, mean.to(tl.float32))
    set_point(memory[8], mean, W)


@triton.jit
def renew(memory, lam, used, W: tl.constexpr, Q: tl.constexpr):
    """Compute anew how groups disagree that have changed since the last vote."""
    changed, freedom, m = row_of(memory[3], CHANGED, Q), row_of(memory[2], FREEDOM, Q), tl.arange(0, Q.packed)
    for g in range(used):
        if tl.load(changed + g) != 0:
            form, term = tl.load(memory[0] + g * Q.packed + m), memory[1] + g * Q.packed
            tl.store(freedom + g, form_of_disagreement(memory[7], form, term, lam, memory[10], W, Q))
    tl.debug_barrier()
    keep_row(memory[3], CHANGED, 0 * tl.arange(0, Q.crowd), Q)
    tl.debug_barrier()


@triton.jit
def call(memory, t, noise, used, Q: tl.constexpr):
    """What every group speaks for, how far it may be from the estimate, and with that its bound in the convex vote."""
    reals, wholes = memory[2], memory[3]
    g, counts = tl.arange(0, Q.crowd), load_row(wholes, COUNT, used, Q).to(tl.float64)
    first = (load_row(wholes, SINCE, used, Q) - 1).to(tl.float64) / t.to(tl.float64)
    last = load_row(wholes, LAST, used, Q).to(tl.float64) / t.to(tl.float64)
    first = tl.where(g < used, first, 0.0)
    longer = (raised(last, Q.newer + 1.0) - raised(first, Q.newer + 1.0)) / tl.maximum(last - first, TINY)
    say = counts * tl.where(last > first, longer / (Q.newer + 1.0), raised(first, Q.newer))
    number = used.to(tl.float64)
    far = tl.sqrt(tl.maximum(load_row(reals, FREEDOM, used, Q), 0.0))
    far = tl.where(g < used, far + Q.reach * tl.sqrt(2.0 * tl.log(20.0 * number)), 0.0)
    share = say * number / tl.maximum(tl.sum(say, axis=0), TINY)
    keep_row(reals, SAY, say, Q)
    keep_row(reals, FAR, far, Q)
    keep_row(reals, LIMIT, far * tl.sqrt(share) * noise, Q)
    keep_row(reals, NEW, tl.where(g < used, 1.0 + 0.0 * say, 0.0), Q)
    tl.debug_barrier()


@triton.jit
def settle_on(memory, lam, used, W: tl.constexpr, Q: tl.constexpr):
    """Move the point in memory to what the convex vote decides."""
    step, moved = 0 * used, used > 0
    while moved:
        total, change = pass_over(memory, used, False, Q)
        set_point(memory[8], solved(memory[7], total, lam * Q.faint, memory[10], W, Q), W)
        step += 1
        moved = (change > Q.still) & (step < Q.most)


@triton.jit
def measure(memory, terms, used, Q: tl.constexpr):
    """The noise by what groups' own regressions leave over; with it the bounds that half of the traffic meets.

    Gives the noise and the tolerance ζ in units of it.
    """
    reals, wholes, g = memory[2], memory[3], tl.arange(0, Q.crowd)
    distance, far = load_row(reals, DISTANCE, used, Q), load_row(reals, FAR, used, Q)
    say = load_row(reals, SAY, used, Q)
    mass, counts = load_row(reals, MASS, used, Q), load_row(wholes, COUNT, used, Q).to(tl.float64)
    left = tl.maximum(load_row(reals, LOSS, used, Q) - distance * distance, 0.0)
    free = tl.where(g < used, tl.maximum(counts - load_row(reals, FREEDOM, used, Q), 0.0), 0.0)
    total, desk = tl.sum(free, axis=0), memory[7] + Q.row
    median = weighted_median(desk, left / tl.maximum(free, Q.least), free, used, Q)
    noise, whole = tl.sqrt((median * total + Q.prior) / (total + Q.prior)), tl.load(terms + RANGE)
    vague = tl.sum(mass, axis=0) * whole * whole <= (1.0 + 1e-6) * tl.sum(counts, axis=0)
    noise = tl.where(vague, tl.minimum(tl.maximum(noise, Q.sharp), 1.0), tl.maximum(noise, 1.0))
    roots = tl.sqrt(mass)
    excess = tl.maximum(distance / noise - far, 0.0) / tl.maximum(roots, TINY)
    zeta = tl.maximum(weighted_median(desk, excess, say, used, Q), tl.load(terms + TOLERANCE) / noise)
    limit = (far + zeta * roots) * noise
    keep_row(reals, LIMIT, limit, Q)
    keep_row(reals, NEW, tl.where(g < used, believe(limit / tl.maximum(distance, TINY), Q), 0.0), Q)
    tl.debug_barrier()
    return noise, zeta


@triton.jit
def let_go(memory, lam, used, W: tl.constexpr, Q: tl.constexpr):
    """Those beyond their bounds lose their say step by step. Without sources nobody needs the last estimate."""
    total = added_up(memory[1], memory[2], NEW, used, Q)
    step, moved = 0 * used + 1, used > 0
    while moved:
        set_point(memory[8], solved(memory[7], total, lam, memory[10], W, Q), W)
        moved = step < Q.steps
        if moved:
            total, change = pass_over(memory, used, True, Q)
            moved = (change > 0.0) & (step + 1 < Q.last)
        step += 1


@triton.jit
def adopt(memory, used, Q: tl.constexpr):
    """Believe groups as the vote says from now on. Gives whether that changes any weight."""
    reals = memory[2]
    old, new = load_row(reals, WEIGHT, used, Q), load_row(reals, NEW, used, Q)
    tl.debug_barrier()
    keep_row(reals, WEIGHT, new, Q)
    tl.debug_barrier()
    return tl.max(tl.abs(new - old), axis=0) > 0.0


@triton.jit(do_not_specialize=["t"])
def vote(
    roots, centers, t,
    terms, forms, quadratics, reals, wholes, standings, trust, singles, desk, point, shelf, table,
    W: tl.constexpr, Q: tl.constexpr
):  # fmt: skip
    """Let the groups of a trial vote after round t, and put Sᵀ and μ of what is then believed into memory."""
    lane = tl.program_id(0)
    memory = (forms, quadratics, reals, wholes, standings, trust, singles, desk, point, shelf, table)
    memory = of_trial(memory, lane, Q)
    used, noise = tl.load(memory[6] + USED).to(tl.int32), tl.load(memory[6] + NOISE)
    votes = tl.load(memory[6] + VOTES)
    lam = tl.load(terms + LAM)
    renew(memory, lam, used, W, Q)
    fit(memory, roots, centers, lane, lam, used, W, Q)
    call(memory, t, noise, used, Q)
    settle_on(memory, lam, used, W, Q)
    look_at_all(memory, used, Q)
    noise, zeta = measure(memory, terms, used, Q)
    let_go(memory, lam, used, W, Q)
    if Q.number > 1:
        second_test(memory, lam, noise, zeta, used, W, Q)
    for slot in range(Q.number):
        turn(memory, slot, used, Q)
    drop_bad_spells(memory, used, Q)
    if adopt(memory, used, Q):
        fit(memory, roots, centers, lane, lam, used, W, Q)
    doubt(memory, used, Q)
    tl.store(memory[6] + NOISE, noise)
    tl.store(memory[6] + VOTES, votes + 1.0)
