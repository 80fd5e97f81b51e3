"""The vote of groups: which parameter most of them agree on, and how far each is to be believed.

A group g has V = Σ w a aᵀ and b = Σ w r a. It disagrees with a parameter μ by r_g(μ) = ‖b − Vμ‖_{(V+λI)⁻¹}. If it is
honest and μ the truth, r_g² is tr V(V+λI)⁻¹ on average, times the variance of the noise, if w is 1. Arrays in, arrays
out; shapes have n trials, G groups, S sources, d features. What a trial gets does not depend, bit for bit, on the
trials beside it.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from robandit.arrays import TINY, Bools, Floats, Index, Ints, all_true, constant, count_to
from robandit.policies.groups import flat, part_of

_REACH = 0.3  # how much more than on average a group may disagree, times √(2 log 20G); tuned, not proved
_MOST, _STILL = 15, 1e-2  # the convex vote ends after so many steps, or when no weight changes by more than this
_FAINT = 1e-3  # the share of λ in the convex vote: with all of it, the prior outvotes old groups that alone know much
_STEPS = 5  # steps that let go of those who still disagree
_STEEP = 4.0  # the power with which belief falls beyond the bound
_GONE = 0.05  # belief below this is none at all: where nobody else knows anything, a little would be all there is
_RECORD = 0.5  # of a source of which less than this share is believed, the rest is believed less, too
_PRIOR = 3.0  # rewards' worth of belief in the declared noise
_LEAST = 1e-9  # keeps a variance without degrees of freedom finite; it has no weight


class Ballots(NamedTuple):
    """What groups say, as the quadratic r_g(μ)² = μᵀPμ − 2⟨q, μ⟩ + s."""

    matrix: Floats
    """P = V(V+λI)⁻¹V, (n, G, d, d)."""
    vector: Floats
    """q = V(V+λI)⁻¹b, (n, G, d)."""
    constant: Floats
    """s = bᵀ(V+λI)⁻¹b, (n, G)."""
    freedom: Floats
    """tr V(V+λI)⁻¹, how many of d parameters the group knows, (n, G)."""

    @classmethod
    def of(cls, precision: Floats, target: Floats, lam: float) -> Ballots:
        """The ballots of groups with these V (n, G, d, d) and b (n, G, d)."""
        dim = target.shape[-1]
        prior = _identity(dim, lam)
        inverse = np.linalg.inv(precision + prior)
        aside = np.matvec(inverse, target)  # (V+λI)⁻¹b
        return cls(
            matrix=precision - prior + lam * lam * inverse,
            vector=target - lam * aside,
            constant=np.vecdot(target, aside),
            freedom=dim - lam * np.trace(inverse, axis1=-2, axis2=-1),
        )

    def part(self, trials: Bools) -> Ballots:
        """The ballots of some trials, (n,)."""
        return Ballots(*(array[trials] for array in self))

    def distance(self, parameter: Floats) -> Floats:
        """r_g of each group at a parameter (n, d), (n, G)."""
        point = parameter[:, None, :]
        squares = np.vecdot(np.matvec(self.matrix, point) - 2.0 * self.vector, point) + self.constant
        return np.sqrt(np.maximum(squares, 0.0))

    def solve(self, weights: Floats, lam: float) -> Floats:
        """The minimiser of λ‖μ‖² + Σ ω_g r_g(μ)², (n, d)."""
        matrix = weighted_sum(weights, self.matrix) + _identity(self.vector.shape[-1], lam)
        found = np.linalg.solve(matrix, weighted_sum(weights, self.vector)[..., None])
        return np.asarray(found[..., 0], dtype=float)

    def reach(self, groups: Ints) -> Floats:
        """How far each of so many groups (n,) may disagree, in standard deviations of the noise, (n, G).

        What an honest group's r_g² has on average, and some more the more groups there are.
        """
        more = np.sqrt(2.0 * np.log(20.0 * np.maximum(groups, 1)))[:, None]
        return np.sqrt(np.maximum(self.freedom, 0.0)) + _REACH * more


class BallotBox:
    """The ballots of all groups (B, G). Those of groups that have not changed need not be computed again."""

    def __init__(self, batch: int, dim: int, lam: float) -> None:
        self._lam, none = lam, (batch, 0)
        self._held = Ballots(np.zeros((*none, dim, dim)), np.zeros((*none, dim)), np.zeros(none), np.zeros(none))

    def of(self, trials: Index, precision: Floats, target: Floats, changed: Bools) -> Ballots:
        """The ballots (n, G) of these trials, with V (n, G, d, d) and b (n, G, d) of their first G groups.

        ``changed`` (B, G) says which groups are not as they were when this was last asked; it is reset.
        """
        used, more = target.shape[1], changed.shape[1] - self._held.constant.shape[1]
        if more > 0:
            rest = (np.zeros((len(changed), more, *array.shape[2:])) for array in self._held)
            self._held = Ballots(*(np.concatenate(both, axis=1) for both in zip(self._held, rest, strict=True)))
        row, place = np.nonzero(changed[trials, :used])
        if row.size:
            new = Ballots.of(precision[row, place][None], target[row, place][None], self._lam)
            at = trials[row], place
            for mine, computed in zip(self._held, new, strict=True):
                flat(mine)[at[0] * mine.shape[1] + place] = computed[0]
            changed[at] = False
        return Ballots(*(part_of(array, trials, used) for array in self._held))


class Evidence(NamedTuple):
    """What the groups of n trials have seen."""

    precision: Floats
    """V, (n, G, d, d)."""
    target: Floats
    """b, (n, G, d)."""
    squares: Floats
    """Σ w r², (n, G)."""
    mass: Floats
    """Σ w, (n, G)."""
    counts: Ints
    """The number of rewards, (n, G)."""
    say: Floats
    """The traffic that a group speaks for, (n, G)."""
    slot: Ints
    """The slot of the source, (n, G); −1 where there is no group."""
    voice: Floats
    """1 for those who vote, 0 for those who are ignored and empty places, infinite for the trusted, (n, G)."""


class VoteResult(NamedTuple):
    """What a vote decides."""

    weights: Floats
    """How far each group is believed, from 0 to 1, (n, G)."""
    noise: Floats
    """The noise in units of the declared σ, (n,)."""


class Terms(NamedTuple):
    """What a vote is held by."""

    lam: float
    """λ."""
    tolerance: float
    """ζ: by so much the mean rewards of the honest may differ from what the parameter says."""
    floor: Floats
    """The least noise that is believed in, in units of the declared σ, (n,)."""
    ceiling: Floats
    """The most, (n,)."""


def vote(evidence: Evidence, held: Ballots, start: Floats, noise: Floats, terms: Terms) -> VoteResult:
    """Count the votes; ``start`` (n, d) is the estimate so far, and ``noise`` (n,) is what the last vote found.

    First a convex vote, in which everybody's pull is bounded and grows with the traffic that they speak for. At what it
    finds the noise is measured, and with it a tolerance that half of the traffic meets. Then those who still disagree
    lose their say, group by group and then source by source.
    """
    number, say = (evidence.slot >= 0).sum(axis=1), evidence.say * (evidence.voice > 0.0)
    reach, roots = held.reach(number), np.sqrt(evidence.mass)
    share = say * number[:, None] / np.maximum(say.cumsum(axis=1)[:, -1:], TINY)
    bounds = reach * np.sqrt(share) * noise[:, None]
    mean, _ = settle(held, start, bounds, evidence.voice, _FAINT * terms.lam)
    distance = held.distance(mean)
    noise = np.minimum(np.maximum(measured_noise(evidence, held, mean, distance), terms.floor), terms.ceiling)
    excess = distance / noise[:, None] - reach
    zeta = np.maximum(met_by_half(excess, roots, say), terms.tolerance / noise)[:, None]  # in units of the noise
    bounds = (reach + zeta * roots) * noise[:, None]
    weights, mean = let_go(held, distance, bounds, evidence.voice, terms.lam)
    if evidence.slot.max(initial=0) > 0:
        weights = _second_test(evidence, weights, mean, held, terms.lam, noise, zeta)
    return VoteResult(weights, noise)


def settle(held: Ballots, start: Floats, bounds: Floats, voice: Floats, lam: float) -> tuple[Floats, Floats]:
    """The minimiser (n, d) of λ‖μ‖² + Σ_g h(r_g(μ)), with h(r) = r² up to a bound (n, G) and 2·bound·r − bound² beyond.

    Also the weights min{1, bound/r_g} of the groups. It solves weighted regressions until the weights are still, and
    begins with those at ``start`` (n, d).
    """
    weights, mean, limits = np.minimum(voice, 1.0), start.copy(), voice * bounds
    left, live = count_to(len(weights)), all_true(len(weights))
    for _ in range(_MOST):
        new = np.minimum(1.0, limits[left] / np.maximum(held.distance(mean[left]), TINY))
        moved = live & (np.abs(new - weights[left]).max(axis=1) > _STILL)
        at = left[live]
        weights[at], mean[at], live = new[live], held.solve(new, lam)[live], moved
        if not live.any():
            break
        if 2 * np.count_nonzero(live) <= len(left):  # copying takes as long as a step
            left, held, live = left[live], held.part(live), all_true(np.count_nonzero(live))
    return mean, weights


def let_go(held: Ballots, distance: Floats, bounds: Floats, voice: Floats, lam: float) -> tuple[Floats, Floats]:
    """The weights (n, G), once those beyond their bounds have lost their say step by step, and the estimate by them.

    ``distance`` (n, G) is where it begins. Where a step changes no weight, no later one does.
    """
    weights = believe(distance, bounds, voice)
    mean, left = held.solve(weights, lam), count_to(len(weights))
    for _ in range(_STEPS - 1):
        new = believe(held.distance(mean[left]), bounds[left], voice[left])
        moved = (new != weights[left]).any(axis=1)
        if not moved.any():
            break
        if 2 * np.count_nonzero(moved) <= len(left):  # copying takes as long as a step
            left, new, held = left[moved], new[moved], held.part(moved)
        weights[left] = new
        mean[left] = held.solve(new, lam)
    return weights, mean


def believe(distance: Floats, bounds: Floats, voice: Floats) -> Floats:
    """How far to believe those who disagree by so much: 1 within the bound, and beyond it the less the farther."""
    kept = np.minimum(1.0, bounds / np.maximum(distance, TINY)) ** _STEEP
    kept[kept < _GONE] = 0.0
    return np.where(voice == 1.0, kept, np.minimum(voice, 1.0))


def measured_noise(evidence: Evidence, held: Ballots, mean: Floats, distance: Floats) -> Floats:
    """The noise in units of the declared σ, (n,): the median over the groups of what their own regressions leave over.

    What a group's regression leaves over, min_θ Σ w(r − ⟨a, θ⟩)² + λ‖θ − μ‖², is Σ w(r − ⟨a, μ⟩)² − r_g(μ)²;
    ``distance`` is r_g(μ), (n, G).
    """
    point = mean[:, None, :]
    around = np.vecdot(np.matvec(evidence.precision, point) - 2.0 * evidence.target, point) + evidence.squares
    left = np.maximum(around - distance**2, 0.0)
    free = np.maximum(evidence.counts - held.freedom, 0.0) * (evidence.voice > 0.0)
    median, total = weighted_median(left / np.maximum(free, _LEAST), free), free.cumsum(axis=1)[:, -1]
    return np.sqrt((median * total + _PRIOR) / (total + _PRIOR))


def met_by_half(excess: Floats, roots: Floats, say: Floats) -> Floats:
    """The ζ (n,) with which half of the traffic exceeds its reach by at most ζ√(Σw); ``roots`` are √(Σw), (n, G)."""
    return weighted_median(np.maximum(excess, 0.0) / np.maximum(roots, TINY), say)


def weighted_median(values: Floats, weights: Floats) -> Floats:
    """The least of the values (n, G) that values with half of the weight do not exceed, (n,)."""
    order = values.argsort(axis=1, kind="stable")
    total = np.take_along_axis(weights, order, axis=1).cumsum(axis=1)
    place = (total >= 0.5 * total[:, -1:]).argmax(axis=1)
    return np.take_along_axis(values, np.take_along_axis(order, place[:, None], axis=1), axis=1)[:, 0]


def weighted_sum(weights: Floats, values: Floats) -> Floats:
    """Σ_g ω_g x_g over the groups of each trial, for weights (n, G) and values (n, G, …).

    Unlike a matrix product, it adds group to group in order, so that empty groups change no bit.
    """
    size = prod(values.shape[2:])
    if size == 1:  # which einsum adds in another order
        return (weights.reshape(values.shape) * values).cumsum(axis=1)[:, -1]
    flat = np.einsum("ng,ngk->nk", weights, values.reshape(*weights.shape, size))
    return flat.reshape(len(weights), *values.shape[2:])


def _second_test(
    evidence: Evidence, weights: Floats, mean: Floats, held: Ballots, lam: float, noise: Floats, zeta: Floats
) -> Floats:
    """The weights of the groups, once each source has answered for itself as a whole; ``mean`` (n, d) is by them now.

    What is believed of a source must fit all stretches together. Where most of it is not believed, the rest falls, too.
    """
    sources = int(evidence.slot.max()) + 1
    member: Bools = evidence.slot[:, None, :] == np.arange(sources)[:, None]  # (n, S, G)
    known = member.any(axis=2).sum(axis=1)
    trial, source, whole = _whole_sources(evidence, member, weights, lam)
    mass = _by_source(member, weights, evidence.mass[..., None])[..., 0]
    far = whole.reach(known[trial])[:, 0]
    bounds = ((far + zeta[trial, 0] * np.sqrt(mass[trial, source])) * noise[trial])[:, None]
    both, slot = weights, np.maximum(evidence.slot, 0)
    say = _by_source(member, np.ones(weights.shape), evidence.say[..., None])[..., 0]
    believed = _by_source(member, weights, evidence.say[..., None])[..., 0] / np.maximum(say, TINY)
    record = np.minimum(1.0, believed / _RECORD) ** _STEEP
    trust, voice = np.ones(record.shape), np.ones(bounds.shape)
    for step in range(2):
        if step:
            mean = held.solve(both, lam)
        trust[trial, source] = believe(whole.distance(mean[trial]), bounds, voice)[:, 0] * record[trial, source]
        trust[known == 1] = 1.0  # nobody to compare it with
        both = np.where(evidence.voice == 1.0, weights * np.take_along_axis(trust, slot, axis=1), weights)
    return both


def _whole_sources(evidence: Evidence, member: Bools, weights: Floats, lam: float) -> tuple[Index, Index, Ballots]:
    """The trials (m,) and slots (m,) of the sources that their trust matters to, and the ballot (m, 1) of each.

    The others have no groups that vote and are believed at all.
    """
    matters = ((weights > 0.0) & (evidence.voice == 1.0))[:, None]
    trial, source = np.nonzero((member & matters).any(axis=2))
    mine = member[trial, source]  # (m, G)
    most = int(mine.sum(axis=1).max(initial=1))
    places = (~mine).argsort(axis=1, kind="stable")[:, :most]  # a source's own groups, in order, come first
    at = trial[:, None], places
    shares = weights[at] * np.take_along_axis(mine, places, axis=1)
    precision, target = (weighted_sum(shares, x[at])[:, None] for x in (evidence.precision, evidence.target))
    return trial, source, Ballots.of(precision, target, lam)


def _by_source(member: Bools, weights: Floats, values: Floats) -> Floats:
    """Σ ω_g x_g over the groups of each source, (n, S, k), for values (n, G, k), in order as `weighted_sum`."""
    shares = member * weights[:, None]
    if values.shape[2] == 1:
        return (shares * values[:, None, :, 0]).cumsum(axis=2)[:, :, -1:]
    return np.einsum("nsg,ngk->nsk", shares, values)


def without_bad_spells(evidence: Evidence, weights: Floats, spell: Ints, closed: Bools) -> Floats:
    """The weights (n, G), without what is left of spells that are over and of which less than half is believed.

    A lie about something that nobody tries again is never contradicted; those beside it in its spell were.
    """
    slot, counts = evidence.slot, evidence.counts
    same: Bools = (slot[:, :, None] == slot[:, None, :]) & (spell[:, :, None] == spell[:, None, :])  # (n, G, G)
    total = (same * counts[:, None, :]).cumsum(axis=2)[:, :, -1]
    believed = (same * (weights * counts)[:, None, :]).cumsum(axis=2)[:, :, -1]
    bad = closed & (evidence.voice == 1.0) & (believed < _RECORD * total)
    return np.where(bad, 0.0, weights)


def mean_power(first: Floats, last: Floats, power: float) -> Floats:
    """The mean of x^power for x from ``first`` to ``last``.

    >>> mean_power(np.array([0.0, 0.5]), np.array([1.0, 0.5]), 4.0)
    array([0.2   , 0.0625])
    """
    above = power + 1.0
    return np.where(last > first, (last**above - first**above) / (above * np.maximum(last - first, TINY)), first**power)


@lru_cache(maxsize=64)
def _identity(dim: int, scale: float) -> Floats:
    """So many times the identity; made once, since a vote needs it often."""
    return constant(scale * np.eye(dim))
