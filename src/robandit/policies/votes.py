"""The vote of groups: which parameter most of them agree on, and how far each is to be believed.

A group g has V = Σ w a aᵀ and b = Σ w r a. It disagrees with a parameter μ by r_g(μ) = ‖b − Vμ‖_{(V+λI)⁻¹}. If it is
honest and μ the truth, r_g² is tr V(V+λI)⁻¹ on average, times the variance of the noise, if w is 1. Arrays in, arrays
out; shapes have n trials, G groups, S sources, d features. What a trial gets does not depend, bit for bit, on the
trials beside it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import TINY, Bools, Floats, Index, Ints, all_true, count_to, ones
from robandit.policies.ballots import Ballots, blocks, identity, lengths, reach, weighted_form

_MOST, _STILL = 15, 1e-2  # the convex vote ends after so many steps, or when no weight changes by more than this
_FAINT = 1e-3  # the share of λ in the convex vote: with all of it, the prior outvotes old groups that alone know much
_STEPS = 5  # steps that let go of those who still disagree
_STEEP = 4.0  # the power with which belief falls beyond the bound
_GONE = 0.05  # belief below this is none at all: where nobody else knows anything, a little would be all there is
_RECORD = 0.5  # of a source of which less than this share is believed, the rest is believed less, too
_PRIOR = 3.0  # rewards' worth of belief in the declared noise
_LEAST = 1e-9  # keeps a variance without degrees of freedom finite; it has no weight


class Evidence(NamedTuple):
    """What the groups of n trials have seen."""

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
    far, roots = held.reach(number), np.sqrt(evidence.mass)
    share = say * number[:, None] / np.maximum(say.cumsum(axis=1)[:, -1:], TINY)
    bounds = far * np.sqrt(share) * noise[:, None]
    mean, _ = settle(held, start, bounds, evidence.voice, _FAINT * terms.lam)
    distance = held.distance(mean)
    noise = np.minimum(np.maximum(measured_noise(evidence, held, mean, distance), terms.floor), terms.ceiling)
    excess = distance / noise[:, None] - far
    zeta = np.maximum(met_by_half(excess, roots, say), terms.tolerance / noise)[:, None]  # in units of the noise
    bounds = (far + zeta * roots) * noise[:, None]
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
    left = np.maximum(held.loss(mean) - distance**2, 0.0)
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


def _second_test(
    evidence: Evidence, weights: Floats, mean: Floats, held: Ballots, lam: float, noise: Floats, zeta: Floats
) -> Floats:
    """The weights of the groups, once each source has answered for itself as a whole; ``mean`` (n, d) is by them now.

    What is believed of a source must fit all stretches together. Where most of it is not believed, the rest falls, too.
    """
    whole = _whole_sources(evidence, weights, held, lam, noise, zeta)
    say = by_source(evidence.slot, evidence.say)
    record = by_source(evidence.slot, weights * evidence.say) / np.maximum(say, TINY)
    record = np.minimum(1.0, record / _RECORD) ** _STEEP
    alone = whole.known == 1  # nobody to compare it with
    trust, slot = np.ones(record.shape), np.maximum(evidence.slot, 0)

    def judged(mean: Floats, whole: WholeSources) -> Floats:
        at = whole.trial, whole.source
        trust[at] = whole.belief(mean, lam) * record[at]
        trust[alone] = 1.0
        return np.where(evidence.voice == 1.0, weights * np.take_along_axis(trust, slot, axis=1), weights)

    both = judged(mean, whole)
    moved = (both != weights).any(axis=1)
    if moved.any():  # elsewhere the estimate stays, and with it the verdict
        mean = mean.copy()
        mean[moved] = held.part(moved).solve(both[moved], lam)
        both = judged(mean, whole.part(moved[whole.trial]))
    return both


class WholeSources(NamedTuple):
    """The sources (m,) that their trust matters to, with what is believed of each.

    The others have no groups that vote and are believed at all.
    """

    trial: Index
    source: Ints
    """The slot."""
    precision: Floats
    """Σ ω V over its groups, (m, d, d)."""
    target: Floats
    """Σ ω b, (m, d)."""
    least: Floats
    """How many parameters one of its groups knows that is believed in full: they know no fewer together, (m,)."""
    more: Floats
    """By how much it may disagree beyond its reach, in units of the noise, (m,)."""
    noise: Floats
    """The noise of its trial, (m,)."""
    known: Ints
    """The number of sources of every trial, (n,)."""

    def part(self, some: Bools) -> WholeSources:
        """Some of these sources."""
        kept = {name: array[some] for name, array in self._asdict().items() if name != "known"}
        return self._replace(**kept)

    def belief(self, mean: Floats, lam: float) -> Floats:
        """How far each is believed if the estimates (n, d) are right, (m,).

        To know its reach takes the inverse of a matrix, and it is not needed where a source does not even go as far as
        one of its groups may.
        """
        prior = identity(mean.shape[1], lam)
        distance, freedom = np.empty(len(self.least)), self.least.copy()
        for some in blocks(count_to(len(distance))):
            precision = self.precision[some]
            off = self.target[some] - np.matvec(precision, mean[self.trial[some]])
            distance[some] = lengths(precision + prior, off, lam)
        for far in blocks(np.flatnonzero(distance > self._bounds(self.least))):
            freedom[far] = mean.shape[1] - lam * np.linalg.inv(self.precision[far] + prior).trace(axis1=-2, axis2=-1)
        return believe(distance, self._bounds(freedom), ones(len(freedom)))

    def _bounds(self, freedom: Floats) -> Floats:
        """How far each may be if it knows so many parameters."""
        return (reach(freedom[:, None], self.known[self.trial])[:, 0] + self.more) * self.noise


def _whole_sources(
    evidence: Evidence, weights: Floats, held: Ballots, lam: float, noise: Floats, zeta: Floats
) -> WholeSources:
    """What is believed of each source that its trust matters to."""
    slot, matters = evidence.slot, (weights > 0.0) & (evidence.voice == 1.0)
    trial, source = np.nonzero(by_source(slot, matters))
    mine = slot[trial] == source[:, None]  # (m, G)
    most = int(mine.sum(axis=1).max(initial=1))
    places = (~mine).argsort(axis=1, kind="stable")[:, :most]  # a source's own groups, in order, come first
    at = trial[:, None], places
    shares = weights[at] * np.take_along_axis(mine, places, axis=1)
    mass = by_source(slot, weights * evidence.mass)[trial, source]
    forms = [
        weighted_form(shares[some], held.losses[trial[some, None], places[some]])
        for some in blocks(count_to(len(trial))) or [trial]  # one block of none, where an operator speaks for all
    ]
    precision, target = (np.concatenate(both) for both in zip(*forms, strict=True))
    return WholeSources(
        trial=trial,
        source=source,
        precision=precision,
        target=target,
        least=np.where(shares == 1.0, held.freedom[at], 0.0).max(axis=1, initial=0.0),
        more=zeta[trial, 0] * np.sqrt(mass),
        noise=noise[trial],
        known=np.count_nonzero(by_source(slot, slot >= 0), axis=1),
    )


def by_source(slot: Ints, values: NDArray[Any]) -> Floats:
    """Σ x_g over the groups of each source, (n, S), for slots and values (n, G): in order, so empty ones count not."""
    return by_key(slot + 1, int(slot.max(initial=0)) + 2, values)[:, 1:]


def by_key(key: Ints, keys: int, values: NDArray[Any]) -> Floats:
    """Σ x_g over the groups with each key from 0 on, (n, keys), for keys and values (n, G)."""
    places = key + keys * count_to(len(key))[:, None]
    found = np.bincount(places.ravel(), values.ravel(), keys * len(key))
    return np.asarray(found, dtype=float).reshape(-1, keys)


def without_bad_spells(evidence: Evidence, weights: Floats, spell: Ints, closed: Bools) -> Floats:
    """The weights (n, G), without what is left of spells that are over and of which less than half is believed.

    A lie about something that nobody tries again is never contradicted; those beside it in its spell were.
    """
    names, found = np.unique(evidence.slot * (int(spell.max()) + 1) + spell, return_inverse=True)
    key = found.reshape(spell.shape)  # few numbers, however many spells there have been
    total, believed = (
        np.take_along_axis(by_key(key, len(names), counted), key, axis=1)
        for counted in (evidence.counts, weights * evidence.counts)
    )
    bad = closed & (evidence.voice == 1.0) & (believed < _RECORD * total)
    return np.where(bad, 0.0, weights)


def mean_power(first: Floats, last: Floats, power: float) -> Floats:
    """The mean of x^power for x from ``first`` to ``last``.

    >>> mean_power(np.array([0.0, 0.5]), np.array([1.0, 0.5]), 4.0)
    array([0.2   , 0.0625])
    """
    above = power + 1.0
    return np.where(last > first, (last**above - first**above) / (above * np.maximum(last - first, TINY)), first**power)
