"""The vote of groups: which parameter most of them agree on, and how far each is to be believed.

A group g has V = Σ w a aᵀ and b = Σ w r a. It disagrees with a parameter μ by r_g(μ) = ‖b − Vμ‖_{(V+λI)⁻¹}. If it is
honest and μ the truth, that stays below √(log det(I + V/λ) + 2 log(1/δ)) standard deviations of the noise. Arrays in,
arrays out; shapes have n trials, G groups, S sources, d features. What a trial gets does not depend, bit for bit, on
the trials beside it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robandit.arrays import TINY, Bools, Floats, Ints

_REACH = 0.35  # a group may disagree by this times the self-normalised bound; tuned, not proved
_LIKELY = 20.0  # that bound is for a failure in one of so many votes
_MOST, _STILL = 25, 1e-3  # the convex vote ends after so many steps, or when no weight changes by more than this
_STEPS = 3  # steps that let go of those who still disagree
_STEEP = 4.0  # the power with which belief falls beyond the bound
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
    information: Floats
    """log det(I + V/λ), (n, G)."""
    freedom: Floats
    """tr V(V+λI)⁻¹, how many of d parameters the group knows, (n, G)."""

    @classmethod
    def of(cls, precision: Floats, target: Floats, lam: float) -> Ballots:
        """The ballots of groups with these V (n, G, d, d) and b (n, G, d)."""
        dim = target.shape[-1]
        inverse = np.linalg.inv(precision + lam * np.eye(dim))
        aside = np.matvec(inverse, target)  # (V+λI)⁻¹b
        return cls(
            matrix=precision - lam * np.eye(dim) + lam * lam * inverse,
            vector=target - lam * aside,
            constant=np.vecdot(target, aside),
            information=-np.linalg.slogdet(lam * inverse)[1],
            freedom=dim - lam * np.trace(inverse, axis1=-2, axis2=-1),
        )

    def distance(self, parameter: Floats) -> Floats:
        """r_g of each group at a parameter (n, d), (n, G)."""
        point = parameter[:, None, :]
        squares = np.vecdot(np.matvec(self.matrix, point) - 2.0 * self.vector, point) + self.constant
        return np.sqrt(np.maximum(squares, 0.0))

    def solve(self, weights: Floats, lam: float) -> Floats:
        """The minimiser of λ‖μ‖² + Σ ω_g r_g(μ)², (n, d)."""
        matrix = weighted_sum(weights, self.matrix) + lam * np.eye(self.vector.shape[-1])
        found = np.linalg.solve(matrix, weighted_sum(weights, self.vector)[..., None])
        return np.asarray(found[..., 0], dtype=float)

    def reach(self, groups: Ints) -> Floats:
        """How far each of so many groups (n,) may disagree, in standard deviations of the noise, (n, G)."""
        return _REACH * np.sqrt(self.information + 2.0 * np.log(_LIKELY * np.maximum(groups, 1))[:, None])


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


def vote(evidence: Evidence, noise: Floats, lam: float, tolerance: float, floor: Floats, ceiling: Floats) -> VoteResult:
    """Count the votes. ``noise`` (n,) is what the last vote found; what this one finds is between floor and ceiling.

    First a convex vote, in which everybody's pull is bounded and grows with the traffic that they speak for. At what it
    finds the noise is measured, and with it a tolerance that half of the traffic meets. Then those who still disagree
    lose their say, group by group and then source by source.
    """
    held = Ballots.of(evidence.precision, evidence.target, lam)
    number, say = (evidence.slot >= 0).sum(axis=1), evidence.say * (evidence.voice > 0.0)
    reach = held.reach(number)
    share = say * number[:, None] / np.maximum(say.cumsum(axis=1)[:, -1:], TINY)
    mean, _ = settle(held, reach * np.sqrt(share) * noise[:, None], evidence.voice, lam)
    noise = np.clip(measured_noise(evidence, held, mean), floor, ceiling)
    roots = np.sqrt(evidence.mass)
    excess = np.maximum(held.distance(mean) / noise[:, None] - reach, 0.0) / np.maximum(roots, TINY)
    zeta = np.maximum(weighted_median(excess, say), tolerance)[:, None]
    bounds = (reach + zeta * roots) * noise[:, None]
    weights = np.minimum(evidence.voice, 1.0)
    for _ in range(_STEPS):
        weights = believe(held.distance(mean), bounds, evidence.voice)
        mean = held.solve(weights, lam)
    if evidence.slot.max(initial=0) > 0:
        weights = _second_test(evidence, weights, held, lam, noise, zeta)
    return VoteResult(weights, noise)


def settle(held: Ballots, bounds: Floats, voice: Floats, lam: float) -> tuple[Floats, Floats]:
    """The minimiser (n, d) of λ‖μ‖² + Σ_g h(r_g(μ)), with h(r) = r² up to a bound (n, G) and 2·bound·r − bound² beyond.

    Also the weights min{1, bound/r_g} of the groups. It solves weighted regressions until the weights are still.
    """
    weights = np.minimum(voice, 1.0)
    mean = held.solve(weights, lam)
    left = np.arange(len(weights))
    for _ in range(_MOST):
        part = held if len(left) == len(weights) else Ballots(*(array[left] for array in held))
        new = np.minimum(1.0, voice[left] * bounds[left] / np.maximum(part.distance(mean[left]), TINY))
        moved = np.abs(new - weights[left]).max(axis=1) > _STILL
        weights[left] = new
        mean[left] = part.solve(new, lam)
        left = left[moved]
        if not left.size:
            break
    return mean, weights


def believe(distance: Floats, bounds: Floats, voice: Floats) -> Floats:
    """How far to believe those who disagree by so much: 1 within the bound, and beyond it the less the farther."""
    kept = np.minimum(1.0, bounds / np.maximum(distance, TINY)) ** _STEEP
    return np.where(voice == 1.0, kept, np.minimum(voice, 1.0))


def measured_noise(evidence: Evidence, held: Ballots, mean: Floats) -> Floats:
    """The noise in units of the declared σ, (n,): the median over the groups of what their own regressions leave over.

    What a group's regression leaves over, min_θ Σ w(r − ⟨a, θ⟩)² + λ‖θ − μ‖², is Σ w(r − ⟨a, μ⟩)² − r_g(μ)².
    """
    point = mean[:, None, :]
    around = np.vecdot(np.matvec(evidence.precision, point) - 2.0 * evidence.target, point) + evidence.squares
    left = np.maximum(around - held.distance(mean) ** 2, 0.0)
    free = np.maximum(evidence.counts - held.freedom, 0.0) * (evidence.voice > 0.0)
    median, total = weighted_median(left / np.maximum(free, _LEAST), free), free.cumsum(axis=1)[:, -1]
    return np.sqrt((median * total + _PRIOR) / (total + _PRIOR))


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
    flat = np.einsum("ng,ngk->nk", weights, values.reshape(*weights.shape, -1))
    return flat.reshape(len(weights), *values.shape[2:])


def _second_test(evidence: Evidence, weights: Floats, held: Ballots, lam: float, noise: Floats, zeta: Floats) -> Floats:
    """The weights of the groups, once each source has answered for what is believed of it, all stretches together."""
    sources = int(evidence.slot.max()) + 1
    member: Bools = evidence.slot[:, None, :] == np.arange(sources)[:, None]  # (n, S, G)
    known = member.any(axis=2).sum(axis=1)
    total = _by_source(member, weights, evidence.precision), _by_source(member, weights, evidence.target)
    whole = Ballots.of(*total, lam)
    mass = _by_source(member, weights, evidence.mass[..., None])[..., 0]
    bounds = (whole.reach(known) + zeta * np.sqrt(mass)) * noise[:, None]
    both, slot = weights, np.maximum(evidence.slot, 0)
    for _ in range(_STEPS - 1):
        trust = believe(whole.distance(held.solve(both, lam)), bounds, np.ones(bounds.shape))
        trust[known == 1] = 1.0  # nobody to compare it with
        both = np.where(evidence.voice == 1.0, weights * np.take_along_axis(trust, slot, axis=1), weights)
    return both


def _by_source(member: Bools, weights: Floats, values: Floats) -> Floats:
    """Σ ω_g x_g over the groups of each source, (n, S, …), for values (n, G, …)."""
    return np.stack([weighted_sum(weights * member[:, source], values) for source in range(member.shape[1])], axis=1)
