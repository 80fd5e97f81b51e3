"""Off-policy estimates: arrays in, arrays out.

There are n decisions and N ≥ n actions on offer; those of decision t are rows starts[t] … starts[t+1] − 1.

Given the past and what is on offer, all that is random in decision t is the logging policy's draw A_t ~ p_t and the
noise of the reward. So w_t r_t − Σ_a π(a|x_t) E r_t(a), with w_t = π(A_t|x_t)/p_t(A_t), is a martingale difference,
however the logging policy learns, as long as π is fixed before.
"""

from __future__ import annotations

from itertools import pairwise
from math import log
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from robandit.arrays import Floats, Ints

_BLOCKS = 50  # the number of even blocks for which `predict` fits its model anew; at first it does so more often
_LAMBDA = 1.0  # ridge of that model, as the policies have it for ‖μ*‖ ≤ 1
_RATES = 0.95 * 0.5 ** np.arange(20.0)  # λ from which `lower_bound` picks the best: each suits another variance


class Interval(NamedTuple):
    """An estimate and the ends of its confidence interval."""

    value: float
    low: float
    high: float


# Estimators: terms (n,), whose mean is the estimate and whose spread is its error.


def ips(weights: Floats, rewards: Floats) -> Floats:
    """w_t r_t, inverse propensity scoring (Horvitz and Thompson 1952).

    >>> ips(np.array([2.0, 0.0]), np.array([1.0, 1.0])).tolist()
    [2.0, 0.0]
    """
    return weights * rewards


def snips(weights: Floats, rewards: Floats) -> Floats:
    """θ + w_t (r_t − θ)/w̄ with θ = Σ w r/Σ w, self-normalised (Swaminathan and Joachims 2015): θ's linearisation."""
    value = weights @ rewards / weights.sum()
    return value + weights * (rewards - value) / weights.mean()


def doubly_robust(weights: Floats, rewards: Floats, taken: Floats, expected: Floats) -> Floats:
    """Σ_a π(a|x_t) f_t(a) + w_t (r_t − f_t(A_t)) (Dudík, Langford and Li 2011); f_t must not know A_t nor r_t.

    ``taken`` is f_t(A_t), ``expected`` the sum.
    """
    return expected + weights * (rewards - taken)


def interval(terms: Floats, confidence: float) -> Interval:
    """The mean of the terms ± z s/√n, by the central limit theorem for martingales.

    s² is their empirical variance. It counts the spread of values over contexts as error, too. So the interval is exact
    for the value over all contexts if they are drawn independently, and wide for the value on those of the log.
    """
    value = float(terms.mean())
    half = NormalDist().inv_cdf(0.5 + confidence / 2.0) * float(terms.std(ddof=1)) / len(terms) ** 0.5
    return Interval(value, value - half, value + half)


# Intervals that hold for every n.


def bernstein(weights: Floats, rewards: Floats, reach: tuple[float, float], confidence: float) -> Interval:
    """IPS with an interval that holds for every n, and for all n at once, if rewards lie within ``reach``.

    Scaled to [0, 1], w r ≥ 0 bounds the value from below, and w (1 − r) one minus the value; no bound on w is needed.
    """
    low, width = reach[0], reach[1] - reach[0]
    scaled, error = (rewards - low) / width, (1.0 - confidence) / 2.0
    least = lower_bound(weights * scaled, error)
    most = 1.0 - lower_bound(weights * (1.0 - scaled), error)
    value = float(np.mean(weights * rewards))
    return Interval(value, low + width * max(0.0, least), low + width * min(1.0, most))


def lower_bound(terms: Floats, error: float) -> float:
    """A lower bound on the mean of E[X_t | past] ∈ [0, 1], wrong with probability ``error``; X_t ≥ 0 of any size.

    With Y_t = X_t − X̂_t, where X̂_t ∈ [0, 1] knows the past only, Y_t ≥ −1 and exp(λ y − ψ(λ) y²) ≤ 1 + λ y for
    ψ(λ) = −log(1 − λ) − λ (Fan, Grama and Liu 2015), so that exp(λ Σ (X_t − E X_t) − ψ(λ) Σ Y_t²) is a supermartingale
    (Howard et al. 2021, theorem 4; Waudby-Smith et al. 2024 for off-policy values). J rates λ share the error out.
    """
    n = len(terms)
    guess = np.concatenate([[0.5], np.cumsum(terms)[:-1] / np.arange(1, n)])
    spread = float(np.square(terms - np.clip(guess, 0.0, 1.0)).sum())
    psi = -np.log1p(-_RATES) - _RATES
    excess = (log(len(_RATES) / error) + psi * spread) / _RATES
    return float(terms.mean() - excess.min() / n)


def mean_weight(weights: Floats, most: float, error: float) -> tuple[float, float]:
    """An interval for the mean of E[w_t | past], which is 1 if propensities are right; w_t is ``most`` at the most.

    It is wrong with probability ``error``, for every n. Large weights are rare, so that the mean of those that came can
    be far below 1 in a log that is right: the upper end is that of (most − w)/most, which is between 0 and 1.
    """
    low = lower_bound(weights, error / 2.0)
    high = most * (1.0 - lower_bound(1.0 - weights / most, error / 2.0))
    return low, high


# What the estimators are made of.


def importance(target: Floats, propensity: Floats) -> Floats:
    """w_t = π(A_t|x_t)/p_t(A_t)."""
    return target / propensity


def effective_size(weights: Floats) -> float:
    """(Σ w)²/Σ w²: the number of decisions by the target itself that would tell as much (Kish 1965).

    It is 0 if all weights are.
    """
    most = float(weights.max(initial=0.0))
    scaled = weights / (most or 1.0)
    return float(scaled.sum() ** 2 / np.square(scaled).sum()) if most else 0.0


def by_decision(values: Floats, starts: Ints) -> Floats:
    """Sums over the actions on offer, (n,), of values (N,)."""
    return np.add.reduceat(values, starts[:-1])


def predict(offered: Floats, starts: Ints, index: Ints, rewards: Floats, since: int) -> Floats:
    """The rewards f_t(a) that ridge regressions expect of the actions on offer, (N,); zero before decision ``since``.

    Each regression serves a block of decisions, is fitted to earlier decisions only, and has an intercept.
    """
    lifted = np.concatenate([offered, np.ones((len(offered), 1))], axis=1)  # (N, d + 1)
    taken = lifted[starts[:-1] + index]  # (n, d + 1)
    gram, moment = _LAMBDA * np.eye(lifted.shape[1]), np.zeros(lifted.shape[1])
    found, known = np.zeros(len(offered)), 0
    for begin, end in pairwise(_edges(since, len(index))):
        new = taken[known:begin]
        gram, moment, known = gram + new.T @ new, moment + rewards[known:begin] @ new, begin
        rows = slice(starts[begin], starts[end])
        found[rows] = lifted[rows] @ np.linalg.solve(gram, moment)
    return found


def _edges(since: int, end: int) -> list[int]:
    """Where the blocks of `predict` begin, and the end: about even, but short at first, when little is known."""
    short = since + np.geomspace(1.0, end - since, _BLOCKS)
    even = np.linspace(since, end, _BLOCKS + 1)
    return sorted({int(edge) for edge in (*short, *even)})
