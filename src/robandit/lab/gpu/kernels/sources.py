"""What a vote says of sources: each answers for all of its groups together, begins new spells, and may be doubted."""

import triton
import triton.language as tl

from robandit.lab.gpu.kernels.ballots import TINY, added_up, believe, keep_row, load_row, raised
from robandit.lab.gpu.kernels.forms import form_of_disagreement, products, set_point, solved
from robandit.lab.gpu.kernels.groups import (
    BOUND,
    COUNT,
    DISMISSED,
    DOUBTED,
    LIMIT,
    MASS,
    NEW,
    SAY,
    SIDE,
    SINCE,
    SLOT,
    SPELL,
    SPELL_NOW,
    row_of,
)


@triton.jit
def sum_of_source(memory, source, used, Q: tl.constexpr):
    """The sum of a source's forms, by how far they are believed."""
    reals, wholes, m = memory[2], memory[3], tl.arange(0, Q.packed)
    PACKED: tl.constexpr = Q.packed
    total = tl.zeros([PACKED], tl.float64)
    for g in range(used):
        if tl.load(row_of(wholes, SLOT, Q) + g) == source:
            total += tl.load(row_of(reals, NEW, Q) + g) * tl.load(memory[0] + g * Q.packed + m)
    return total


@triton.jit
def bounds_of_sources(memory, lam, known, noise, zeta, used, W: tl.constexpr, Q: tl.constexpr):
    """Write down how each source disagrees as a whole and how far it may; −1 where nothing of it is believed."""
    reals, wholes, desk, g = memory[2], memory[3], memory[7], tl.arange(0, Q.crowd)
    slot, weights = load_row(wholes, SLOT, used, Q), load_row(reals, NEW, used, Q)
    mass = load_row(reals, MASS, used, Q)
    for source in range(Q.number):
        mine, bound = (g < used) & (slot == source), tl.full([], -1.0, tl.float64)
        if tl.sum(tl.where(mine, weights, 0.0), axis=0) > 0.0:
            form, term = sum_of_source(memory, source, used, Q), desk + Q.whole + source * Q.packed
            freedom = form_of_disagreement(desk, form, term, lam, memory[10], W, Q)
            far = tl.sqrt(tl.maximum(freedom, 0.0)) + Q.reach * tl.sqrt(2.0 * tl.log(20.0 * known))
            bound = (far + zeta * tl.sqrt(tl.sum(tl.where(mine, weights * mass, 0.0), axis=0))) * noise
        tl.store(row_of(reals, BOUND, Q) + source, bound)
    tl.debug_barrier()


@triton.jit
def judged(memory, used, Q: tl.constexpr):
    """The weights of the groups once each source has answered for itself as a whole, at the point in memory."""
    reals, wholes, g, m = memory[2], memory[3], tl.arange(0, Q.crowd), tl.arange(0, Q.packed)
    slot, weights = load_row(wholes, SLOT, used, Q), load_row(reals, NEW, used, Q)
    say, factors, both = load_row(reals, SAY, used, Q), products(memory[8], memory[10], Q), weights
    for source in range(Q.number):
        bound, mine = tl.load(row_of(reals, BOUND, Q) + source), (g < used) & (slot == source)
        if bound >= 0.0:
            form = tl.load(memory[7] + Q.whole + source * Q.packed + m, m < Q.size, 0.0)
            distance = tl.sqrt(tl.maximum(tl.sum(form * factors, axis=0), 0.0))
            record = tl.sum(tl.where(mine, weights * say, 0.0), axis=0)
            record = record / tl.maximum(tl.sum(tl.where(mine, say, 0.0), axis=0), TINY)
            trust = believe(bound / tl.maximum(distance, TINY), Q) * raised(tl.minimum(1.0, record / Q.record), Q.steep)
            both = tl.where(mine, trust * weights, both)
    return both


@triton.jit
def second_test(memory, lam, noise, zeta, used, W: tl.constexpr, Q: tl.constexpr):
    """What is believed of a source must fit all of its stretches, and where most of it is not, the rest falls, too."""
    reals, known = memory[2], tl.zeros([], tl.float64)
    slot, g = load_row(memory[3], SLOT, used, Q), tl.arange(0, Q.crowd)
    for source in range(Q.number):
        here = tl.sum(((g < used) & (slot == source)).to(tl.int32), axis=0)
        known += tl.where(here > 0, 1.0, 0.0)
    if known > 1.0:
        bounds_of_sources(memory, lam, known, noise, zeta, used, W, Q)
        both = judged(memory, used, Q)
        keep_row(reals, LIMIT, both, Q)
        tl.debug_barrier()
        if tl.max(tl.abs(both - load_row(reals, NEW, used, Q)), axis=0) > 0.0:
            total = added_up(memory[1], reals, LIMIT, used, Q)
            set_point(memory[8], solved(memory[7], total, lam, memory[10], W, Q), W)
            both = judged(memory, used, Q)
        tl.debug_barrier()
        keep_row(reals, NEW, both, Q)
        tl.debug_barrier()


@triton.jit
def turn(memory, slot, used, Q: tl.constexpr):
    """Begin a new spell of a source of which dissent is believed and what it contradicts is not."""
    reals, wholes, standings, g = memory[2], memory[3], memory[4], tl.arange(0, Q.crowd)
    spell, side, since = (
        load_row(wholes, SPELL, used, Q),
        load_row(wholes, SIDE, used, Q),
        load_row(wholes, SINCE, used, Q),
    )
    now = tl.load(standings + SPELL_NOW * Q.slots + slot)
    mine = (g < used) & (load_row(wholes, SLOT, used, Q) == slot) & (spell == now)
    trusted = load_row(reals, NEW, used, Q) >= Q.doubted
    risen, fallen = mine & trusted & (side == 1), mine & (trusted == 0) & (side == 0)
    if (tl.sum(risen.to(tl.int32), axis=0) > 0) & (tl.sum(fallen.to(tl.int32), axis=0) > 0):
        newest = tl.argmax(tl.where(risen, since, -1), axis=0)
        keep_row(wholes, SPELL, tl.where(risen, now + 1, spell), Q)
        keep_row(wholes, SIDE, tl.where(risen, 0, side), Q)
        tl.store(standings + SPELL_NOW * Q.slots + slot, now + 1)
        tl.store(standings + slot, newest)
        tl.store(standings + Q.slots + slot, -1)
    tl.debug_barrier()


@triton.jit
def drop_bad_spells(memory, used, Q: tl.constexpr):
    """Believe nothing that is left of spells that are over and of which less than half is believed."""
    reals, wholes, standings, g = memory[2], memory[3], memory[4], tl.arange(0, Q.crowd)
    slot, spell = load_row(wholes, SLOT, used, Q), load_row(wholes, SPELL, used, Q)
    closed = (g < used) & (spell < tl.load(standings + SPELL_NOW * Q.slots + slot))
    if tl.sum(closed.to(tl.int32), axis=0) > 0:
        weights, counts = load_row(reals, NEW, used, Q), load_row(wholes, COUNT, used, Q).to(tl.float64)
        kept = weights
        for place in range(used):
            own, which = tl.load(row_of(wholes, SLOT, Q) + place), tl.load(row_of(wholes, SPELL, Q) + place)
            same = (g < used) & (slot == own) & (spell == which)
            total = tl.sum(tl.where(same, counts, 0.0), axis=0)
            believed = tl.sum(tl.where(same, weights * counts, 0.0), axis=0)
            share = tl.where(believed < Q.record * total, 0.0, 1.0)
            kept = tl.where((g == place) & closed, share * kept, kept)
        keep_row(reals, NEW, kept, Q)
    tl.debug_barrier()


@triton.jit
def doubt(memory, used, Q: tl.constexpr):
    """Write down how far each source is believed, how many are doubted, and what is not believed."""
    reals, wholes, singles = memory[2], memory[3], memory[6]
    slot, say, weights = load_row(wholes, SLOT, used, Q), load_row(reals, SAY, used, Q), load_row(reals, NEW, used, Q)
    doubted = tl.zeros([], tl.float64)
    for source in range(Q.number):
        total = tl.sum(tl.where(slot == source, say, 0.0), axis=0)
        trust = tl.sum(tl.where(slot == source, say * weights, 0.0), axis=0) / tl.maximum(total, TINY)
        if total > 0.0:
            tl.store(memory[5] + source, trust)
            doubted += tl.where(trust < Q.doubted, 1.0, 0.0)
    counts = load_row(wholes, COUNT, used, Q).to(tl.float64)
    tl.store(singles + DOUBTED, doubted)
    tl.store(singles + DISMISSED, tl.sum(tl.where(weights < Q.doubted, counts, 0.0), axis=0))
