"""The groups of one trial, in memory: finding, opening and merging them, as `policies.groups` does.

What a group has seen is a form (`forms`), its counts and its times lie in rows with a place for each group. The places
in use come first. What many threads read and one has written is parted by barriers.
"""

import triton
import triton.language as tl

from robandit.lab.gpu.kernels.forms import fold

MASS = tl.constexpr(0)
WEIGHT = tl.constexpr(1)
FREEDOM = tl.constexpr(2)
SAY = tl.constexpr(3)
FAR = tl.constexpr(4)
LIMIT = tl.constexpr(5)
NEW = tl.constexpr(6)
DISTANCE = tl.constexpr(7)
LOSS = tl.constexpr(8)
BOUND = tl.constexpr(9)
REALS = tl.constexpr(10)
"""Rows of numbers by group; from `SAY` on they are a vote's own."""

SLOT = tl.constexpr(0)
SIDE = tl.constexpr(1)
SPELL = tl.constexpr(2)
SINCE = tl.constexpr(3)
LAST = tl.constexpr(4)
COUNT = tl.constexpr(5)
CHANGED = tl.constexpr(6)
LABEL = tl.constexpr(7)
WHOLES = tl.constexpr(8)
"""Rows of whole numbers by group; the last one has the slot of each source, −1 before its first reward."""

FITS_NOW = tl.constexpr(0)
DISSENTS_NOW = tl.constexpr(1)
SPELL_NOW = tl.constexpr(2)
STANDINGS = tl.constexpr(3)
"""Rows of whole numbers by slot: the group that is filled on each side, or −1, and the spell."""

SPREAD = tl.constexpr(0)
LATEST = tl.constexpr(1)
REPEATS = tl.constexpr(2)
USED = tl.constexpr(3)
NOISE = tl.constexpr(4)
VOTES = tl.constexpr(5)
DOUBTED = tl.constexpr(6)
DISMISSED = tl.constexpr(7)
KNOWN = tl.constexpr(8)
SINGLES = tl.constexpr(16)
"""A trial's own numbers."""


@triton.jit
def of_trial(memory, lane, Q: tl.constexpr):
    """Where a trial's part of the memory begins: of forms, terms, numbers by group, …, and of what is shared."""
    sums, terms, reals, wholes, standings, trust, singles, desk, point, shelf, table = memory
    at = lane.to(tl.int64)
    return (
        sums + at * (Q.places * Q.packed),
        terms + at * (Q.places * Q.packed),
        reals + at * (REALS * Q.crowd),
        wholes + at * (WHOLES * Q.crowd),
        standings + at * (STANDINGS * Q.slots),
        trust + at * Q.slots,
        singles + at * SINGLES,
        desk + at * Q.desk,
        point + at * Q.edge,
        shelf + at * Q.shelf,
        table,
    )


@triton.jit
def row_of(rows, row: tl.constexpr, Q: tl.constexpr):
    """Where a row by group begins."""
    return rows + row * Q.crowd


@triton.jit
def best_pair(memory, g, used, Q: tl.constexpr):
    """What merging each group with the next one on its side costs, where group g is that for; infinite elsewhere.

    Costs are by group g's predecessor. The order of sides breaks ties, as sorting does.
    """
    _, _, reals, wholes, _, _, _, _, _, _, _ = memory
    h = tl.arange(0, Q.crowd)
    inside = h < used
    slot, side = tl.load(row_of(wholes, SLOT, Q) + g), tl.load(row_of(wholes, SIDE, Q) + g)
    since = tl.load(row_of(wholes, SINCE, Q) + g)
    mine = inside & (tl.load(row_of(wholes, SLOT, Q) + h) == slot) & (tl.load(row_of(wholes, SIDE, Q) + h) == side)
    times = tl.where(mine, tl.load(row_of(wholes, SINCE, Q) + h), -1)
    before = tl.max(tl.where(times < since, times, -1), axis=0)
    early = tl.argmax((times == before).to(tl.int32), axis=0)
    first = tl.maximum(early, 0)
    apart = tl.abs(tl.load(row_of(reals, WEIGHT, Q) + first) - tl.load(row_of(reals, WEIGHT, Q) + g))
    counts = tl.load(row_of(wholes, COUNT, Q) + first) + tl.load(row_of(wholes, COUNT, Q) + g)
    cost = counts.to(tl.float64) * (1.0 + Q.apart * apart)
    other = tl.load(row_of(wholes, SPELL, Q) + first) != tl.load(row_of(wholes, SPELL, Q) + g)
    cost += tl.where(other, Q.other_spell, 0.0)
    key = ((2 * slot + side).to(tl.int64) << 32) + before
    return tl.where(before >= 0, cost, float("inf")), key, first


@triton.jit
def merge(memory, used, Q: tl.constexpr):
    """Merge two neighbouring stretches; the place that is free."""
    best, key = tl.full([], float("inf"), tl.float64), tl.full([], 0, tl.int64)
    early, late = 0 * used, 0 * used
    for g in range(used):
        cost, order, first = best_pair(memory, g, used, Q)
        better = (cost < best) | ((cost == best) & (order < key))
        best, key = tl.where(better, cost, best), tl.where(better, order, key)
        early, late = tl.where(better, first, early), tl.where(better, g, late)
    join(memory, early, late, Q)
    return late


@triton.jit
def join(memory, early, late, Q: tl.constexpr):
    """Add the later of two groups to the earlier one, and empty its place."""
    sums, _, reals, wholes, standings, _, _, _, _, _, _ = memory
    counts = row_of(wholes, COUNT, Q)
    for start in range(0, Q.size, Q.part):
        m = start + tl.arange(0, Q.part)
        gone = tl.load(sums + late * Q.packed + m)
        tl.store(sums + early * Q.packed + m, tl.load(sums + early * Q.packed + m) + gone)
        tl.store(sums + late * Q.packed + m, 0.0 * gone)
    weights, mass = row_of(reals, WEIGHT, Q), row_of(reals, MASS, Q)
    share = tl.load(counts + late).to(tl.float64) / (tl.load(counts + early) + tl.load(counts + late)).to(tl.float64)
    kept, lost = tl.load(weights + early), tl.load(weights + late)
    total, number = tl.load(mass + early) + tl.load(mass + late), tl.load(counts + early) + tl.load(counts + late)
    last = tl.maximum(tl.load(row_of(wholes, LAST, Q) + early), tl.load(row_of(wholes, LAST, Q) + late))
    spell = tl.maximum(tl.load(row_of(wholes, SPELL, Q) + early), tl.load(row_of(wholes, SPELL, Q) + late))
    places = tl.arange(0, 2 * Q.slots)
    current = tl.load(standings + places)
    tl.debug_barrier()  # all have read
    tl.store(weights + early, kept + share * (lost - kept))
    tl.store(mass + early, total)
    tl.store(mass + late, 0.0)
    tl.store(counts + early, number)
    tl.store(counts + late, 0)
    tl.store(row_of(wholes, LAST, Q) + early, last)
    tl.store(row_of(wholes, SPELL, Q) + early, spell)
    tl.store(row_of(wholes, CHANGED, Q) + early, 1)
    tl.store(standings + places, tl.where(current == late, early, current))
    tl.debug_barrier()


@triton.jit
def open_group(memory, slot, side, t, Q: tl.constexpr):
    """Begin a new stretch of a side of a source; its place. It is believed as the one before it was."""
    _, _, reals, wholes, standings, trust, singles, _, _, _, _ = memory
    used, places = tl.load(singles + USED).to(tl.int32), tl.arange(0, 2 * Q.slots)
    at = standings + side * Q.slots + slot
    known = tl.sum((tl.load(standings + places) >= 0).to(tl.int32), axis=0) + (tl.load(at) < 0).to(tl.int32)
    first = tl.where(side == 1, 0.0, tl.load(trust + slot))  # dissent is believed once a vote says so
    place, fuller = used, used + 1
    tl.debug_barrier()
    if used >= Q.stretches + 2 * known:
        place, fuller = merge(memory, used, Q), used
    before = tl.load(at)
    belief = tl.where(before < 0, first, tl.load(row_of(reals, WEIGHT, Q) + tl.maximum(before, 0)))
    spell = tl.load(standings + SPELL_NOW * Q.slots + slot)
    tl.debug_barrier()
    tl.store(row_of(wholes, SLOT, Q) + place, slot)
    tl.store(row_of(wholes, SIDE, Q) + place, side)
    tl.store(row_of(wholes, SINCE, Q) + place, t)
    tl.store(row_of(wholes, LAST, Q) + place, 0)
    tl.store(row_of(wholes, SPELL, Q) + place, spell)
    tl.store(row_of(reals, WEIGHT, Q) + place, belief)
    tl.store(at, place)
    tl.store(singles + USED, fuller.to(tl.float64))
    tl.debug_barrier()
    return place


@triton.jit
def slot_of(memory, source, Q: tl.constexpr):
    """The slot of a source: in the order in which a trial learns from them, and the last one for all that come late."""
    _, _, _, wholes, _, _, singles, _, _, _, _ = memory
    label = row_of(wholes, LABEL, Q) + source
    slot = tl.load(label)
    if slot < 0:
        known = tl.load(singles + KNOWN).to(tl.int32)
        slot = tl.minimum(known, Q.pool)
        tl.debug_barrier()  # all have read
        if known < Q.pool:
            tl.store(label, slot)
            tl.store(singles + KNOWN, (known + 1).to(tl.float64))
        tl.debug_barrier()
    return slot


@triton.jit
def group_of(memory, slot, side, t, Q: tl.constexpr):
    """The group that takes a reward on a side of a source: a new one if the last one is long enough."""
    _, _, _, wholes, standings, _, _, _, _, _, _ = memory
    place = tl.load(standings + side * Q.slots + slot)
    count = tl.load(row_of(wholes, COUNT, Q) + tl.maximum(place, 0))
    if (place < 0) | (count >= tl.maximum(Q.shortest, t // Q.stretches)):
        place = open_group(memory, slot, side, t, Q)
    return place


@triton.jit
def add(memory, place, action, reward, weight, t, W: tl.constexpr, Q: tl.constexpr):
    """Fold a reward into a group. The action lies in memory."""
    sums, _, reals, wholes, _, _, _, _, _, _, table = memory
    fold(sums + place * Q.packed, action, reward, weight, table, W, Q)
    mass, count = row_of(reals, MASS, Q) + place, row_of(wholes, COUNT, Q) + place
    total, number = tl.load(mass) + weight, tl.load(count) + 1
    tl.debug_barrier()  # all have read
    tl.store(mass, total)
    tl.store(count, number)
    tl.store(row_of(wholes, LAST, Q) + place, t)
    tl.store(row_of(wholes, CHANGED, Q) + place, 1)
    tl.debug_barrier()  # what one thread has written, another one may read
