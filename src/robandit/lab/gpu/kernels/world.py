"""What a round does to a trial: noise, lies, the ledger. Each part follows a class of the lab, which tests compare."""

import triton
import triton.language as tl

from robandit.lab.gpu.kernels.draws import COINS, VISITORS, for_actions, four

GAUSSIAN = tl.constexpr(0)
TWO_POINT = tl.constexpr(1)
BERNOULLI = tl.constexpr(2)
"""Kinds of noise."""

HONEST = tl.constexpr(0)
FLIPS = tl.constexpr(1)
SUPPRESS_BEST = tl.constexpr(2)
ORACLE_TARGET = tl.constexpr(3)
CLICK_FRAUD = tl.constexpr(4)
SOURCE_PROMOTE = tl.constexpr(5)
SOURCE_SUPPRESS = tl.constexpr(6)
SOURCE_FLIP = tl.constexpr(7)
SOURCE_NOISE = tl.constexpr(8)
"""Kinds of attack; from the sixth on by source."""

SIGMA_LOW = tl.constexpr(0)
SIGMA_HIGH = tl.constexpr(1)
NOISE_RANGE = tl.constexpr(2)
LOW = tl.constexpr(3)
HIGH = tl.constexpr(4)
BUDGET = tl.constexpr(5)
CHANCE = tl.constexpr(6)
MARGIN = tl.constexpr(7)
CLICK = tl.constexpr(8)
NO_CLICK = tl.constexpr(9)
ENDS = tl.constexpr(10)
"""The places of a world's numbers, in the order of `worlds.WorldNumbers`, and where the ends of the shares begin."""

TIED = tl.constexpr(1e-6)  # means in single precision that differ by less are equal but for rounding


@triton.jit
def at(values, k, place):
    """The value at one place of a vector."""
    return tl.sum(tl.where(k == place, values, 0.0), axis=0)


@triton.jit
def source_of(numbers, seed, t, trial, W: tl.constexpr):
    """The source of a round's visitor: 0, 1, 2, … It takes W.sources ≥ 1, and depends on nothing that was played."""
    SLOTS: tl.constexpr = W.slots
    place = tl.arange(0, SLOTS)
    u, _, _, _ = four(seed, tl.zeros([], tl.int32), t, trial, VISITORS)
    ends = tl.load(numbers + ENDS + place, place < W.sources - 1, 2.0)
    return tl.sum((ends <= u).to(tl.int32), axis=0)


@triton.jit
def standing(means, k, W: tl.constexpr):
    """The best mean of a decision set, and the gap to the next best; infinite if there is none."""
    best = tl.max(tl.where(k < W.actions, means, -float("inf")), axis=0)
    behind = best - means
    return best, tl.min(tl.where((k < W.actions) & (behind > TIED), behind, float("inf")), axis=0)


@triton.jit
def median_of(means, k, W: tl.constexpr):
    """The median of the means of a decision set: halfway between the two in the middle, which may be the same one."""
    means = tl.where(k < W.actions, means, float("inf"))
    less = tl.sum((means[:, None] < means[None, :]).to(tl.int32), axis=0)  # how many are less than each
    low = tl.max(tl.where(less <= (W.actions - 1) // 2, means, -float("inf")), axis=0)
    return 0.5 * (low + tl.max(tl.where(less <= W.actions // 2, means, -float("inf")), axis=0))


@triton.jit
def world_of(means, k, W: tl.constexpr):
    """The means of a decision set, the best one, the gap to the next best, and the median where an attack needs it."""
    best, gap = standing(means, k, W)
    middle = best
    if W.attack == SOURCE_PROMOTE:
        middle = median_of(means, k, W)
    return means, best, gap, middle


@triton.jit
def truth_at(parameters, lane, W: tl.constexpr):
    """Where μ* of a trial is, and after it the leans of its sources, if they differ."""
    return parameters + lane * ((1 + W.leans) * W.wide)


@triton.jit
def honest_of(means, actions, leans, source, W: tl.constexpr):
    """The means of visitors from a source. A click's rate beyond 0 or 1 is as good as one that is cut to them."""
    if W.leans > 0:
        lean = tl.load(leans + source * W.wide + tl.arange(0, W.wide))
        means += tl.sum(actions * lean[:, None], axis=0)
    return means


@triton.jit
def visitor_of(io, here, means, actions, W: tl.constexpr):
    """The source of a round's visitor, −1 if it has no name, and the means of honest visitors from there."""
    _, numbers, _, leans = io
    seed, t, trial, _ = here
    source, honest = -1, means
    if W.sources > 0:
        source = source_of(numbers, seed, t, trial, W)
        honest = honest_of(means, actions, leans, source, W)
    return source, honest


@triton.jit
def noise_of(numbers, means, u0, u1, u2, seed, t, trial, W: tl.constexpr):
    """σ_t, and the noise ε_t, as `Synthetic._noise` draws them: one number, or for clicks one for each action."""
    low, high, reach = tl.load(numbers + SIGMA_LOW), tl.load(numbers + SIGMA_HIGH), tl.load(numbers + NOISE_RANGE)
    if W.noise == BERNOULLI:
        sigma = 0.5 + 0.0 * low
        noise = tl.where(for_actions(seed, t, trial, COINS, W) < means, 1.0, 0.0) - means
    elif W.noise == TWO_POINT:
        sigma = low * tl.exp(u0 * tl.log(high / low))
        noise = tl.where(u1 < 0.5, -sigma, sigma)
    else:
        sigma = low + (high - low) * u0
        normal, _ = tl.pair_uniform_to_normal(u1, u2)
        noise = tl.minimum(tl.maximum(sigma * normal, -reach), reach)
    return sigma, noise


@triton.jit
def lies_now(flag, source, W: tl.constexpr):
    """The flag of a round, 0 if the visitor does not lie. It is the number of the first source that lies, plus 1."""
    if W.liars > 0:
        turn = (source + W.sources + 1 - flag.to(tl.int32)) % W.sources
        flag = tl.where(turn < W.liars, flag, 0)
    return flag


@triton.jit
def source_lies(world, rewards, coin, k, W: tl.constexpr):
    """What a source that lies would like to add, as the classes of `attacks.by_source` say."""
    means, best, _, middle = world
    if W.attack == SOURCE_FLIP:
        if W.noise == BERNOULLI:
            return 1.0 - 2.0 * rewards
        return -2.0 * means
    praised = means < middle
    if W.attack == SOURCE_SUPPRESS:
        praised = means < best
    if W.attack == SOURCE_NOISE:
        praised = coin + 0.0 * means < 0.5
    if W.noise == BERNOULLI:
        lies = tl.where(praised, 1.0, 0.0) - rewards
        lies = tl.where(tl.abs(lies) > TIED, lies, 0.0)  # a click that is one already is no lie
    else:
        worst = tl.min(tl.where(k < W.actions, means, float("inf")), axis=0)
        lies = tl.where(praised, best, worst) - means
    if W.attack == SOURCE_SUPPRESS:
        lies = tl.where(praised, 0.0, lies)
    return lies


@triton.jit
def lies_of(numbers, world, honest, noise, coin, k, W: tl.constexpr):
    """What the attack would like to add to the reward of every action, before its budget cuts it."""
    means, best, gap, _ = world
    lies = 0.0 * means
    if W.attack == FLIPS:
        lies = tl.where(coin < tl.load(numbers + CHANCE), -2.0 * means, 0.0)
    if W.attack == SUPPRESS_BEST:
        known = tl.where(gap < float("inf"), gap, 0.0)
        lies = tl.where(best - means < tl.minimum(gap, 1e30) / 2.0, -(known + tl.load(numbers + MARGIN)), 0.0)
    if W.attack == ORACLE_TARGET:
        target = tl.argmin(tl.where(k < W.actions, means, float("inf")), axis=0)
        if W.target >= 0:
            target = 0 * target + W.target
        lies = -tl.maximum(means - at(means, k, target) + tl.load(numbers + MARGIN), 0.0)
        lies = tl.where(k == target, 0.0, lies)
    if W.attack == CLICK_FRAUD:
        wanted = tl.where(k < W.owned, tl.load(numbers + CLICK), tl.load(numbers + NO_CLICK))
        lies = wanted - (honest + noise)
        lies = tl.where(tl.abs(lies) > TIED, lies, 0.0)  # a click that is one already is no lie
        lies = tl.where(coin < tl.load(numbers + CHANCE), lies, 0.0)
    if W.attack >= SOURCE_PROMOTE:
        lies = source_lies(world, honest + noise, coin, k, W)
    return tl.where(k < W.actions, lies, 0.0)


@triton.jit
def book(numbers, lies, played, source, c_sup, c_play, told, k, W: tl.constexpr):
    """Cut the lies to what the budget allows and enter them, as `Ledger` does. Gives the lie about what was played.

    Lies are counted by source where there are some: ``told`` then has a place for each.
    """
    budget, unit = tl.load(numbers + BUDGET).to(tl.float64), tl.load(numbers + NOISE_RANGE).to(tl.float64) + 1.0
    left = (budget - c_sup) * unit
    if W.strong:
        left = budget - c_play
    limit = left.to(tl.float32)
    lies = tl.minimum(tl.maximum(lies, -limit), limit)
    amount, largest = at(lies, k, played), tl.max(tl.abs(lies), axis=0)
    c_sup += largest.to(tl.float64) / unit
    c_play += tl.abs(amount).to(tl.float64)
    if W.strong:  # a lie that takes all that is left leaves nothing, whatever its rounding
        c_play = tl.where(tl.abs(amount) >= limit, budget, c_play)
    else:
        c_sup = tl.where(largest >= limit, budget, c_sup)
    lied = (amount != 0.0).to(tl.int32)
    if W.sources > 0:
        lied = tl.where(tl.arange(0, W.slots) == source, lied, 0)
    return amount, c_sup, c_play, told + lied
