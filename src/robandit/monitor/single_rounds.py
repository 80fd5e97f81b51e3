"""A proof from single rounds: lies that are large beside the noise contradict a well-known μ one by one.

For s_t-sub-Gaussian noise, ζ as `CorruptionMonitor` has it, and any k ≥ 0,

    Σ|c_t| ≥ min over μ of Σ (|r_t − ⟨a_t, μ⟩| − ζ − k s_t)₊ − H_k,

where H_k bounds Σ (|ε_t| − k s_t)₊, the honest excess, with probability 1 − δ. `docs/ideas/monitor.md` derives it. It
needs the rounds themselves. What is reported is the value of a feasible point of the dual problem.
"""

from __future__ import annotations

from math import ceil, erfc, exp, log, log2, pi, sqrt
from typing import NamedTuple

import numpy as np

from robandit.arrays import TINY, Bools, Floats
from robandit.monitor.cones import has_faint, solve
from robandit.monitor.radii import over_integers

_TOLERANCES = (2.0, 2.5, 3.0, 3.5, 4.0, 5.0)  # k
_RATES = (0.5, 1.0, 1.5, 2.0, 3.0)  # θ, in units of 1/s
_SMOOTHINGS = (1.0, 0.3, 0.1, 0.03)  # widths, in units of s, over which a hinge is made smooth
_NEWTON, _HALVINGS = 30, 30
_ROUNDING = 1e-12  # amount by which a reported value is rounded down, relative to its summands
_BALANCINGS = 3
_SIZES = 1000  # the most scales of noise that are told apart


class Rounds(NamedTuple):
    """The rounds of a stream, and what is assumed of their noise."""

    actions: Floats
    """a, (n, d)."""
    rewards: Floats
    """r, (n,)."""
    noise: Floats
    """s, (n,)."""
    misspecification: float = 0.0
    """ζ."""

    def excess(self, parameter: Floats, tolerance: float) -> tuple[Floats, Floats]:
        """r − ⟨a, μ⟩ and |r − ⟨a, μ⟩| − ζ − ks, (n,) each."""
        rest = self.actions @ parameter
        np.subtract(self.rewards, rest, out=rest)  # there may be millions of rounds
        over = np.abs(rest)
        over -= self.misspecification
        over -= tolerance * self.noise
        return rest, over


def prove_by_rounds(rounds: Rounds, delta: float, radius_scale: float = 1.0) -> tuple[float, Floats]:
    """A lower bound on Σ|c_t|, wrong with probability at most δ, and the μ that explains the rounds most cheaply."""
    square = rounds.actions.T @ rounds.actions
    guess = solve(square[None], (rounds.rewards @ rounds.actions)[None])[0]
    if has_faint(square[None])[0]:
        return 0.0, guess
    guess = _descend(rounds, guess, _TOLERANCES[0], square)  # away from the lies, whatever k will be
    choices = []
    for tolerance in _TOLERANCES:
        honest = radius_scale * honest_excess(rounds.noise, tolerance, delta / len(_TOLERANCES))
        over = np.maximum(rounds.excess(guess, tolerance)[1], 0.0).sum()
        choices.append((float(over) - honest, tolerance, honest))
    most, tolerance, honest = max(choices)
    if most <= 0.0:
        return 0.0, guess
    found = _descend(rounds, guess, tolerance, square)
    return max(0.0, _dual(rounds, found, tolerance, square) - honest), found


def honest_excess(noise: Floats, tolerance: float, delta: float) -> float:
    """H_k: with probability 1 − δ and at all times, Σ (|ε_t| − k s_t)₊ is at most this.

    As P(|ε| > x) ≤ 2 exp(−x²/2s²), E exp(θ(|ε| − ks)₊) ≤ 1 + 2√(2π) u exp(u²/2 − uk) Q(k − u) with u = θs.
    """
    sizes, counts = np.unique(noise, return_counts=True)
    if len(sizes) > _SIZES:  # rounded up, to a grid that is 2 % wide
        powers, counts = np.unique(np.ceil(np.log(noise) / 0.02), return_counts=True)
        sizes = np.exp(0.02 * powers)
    largest, price = float(sizes.max(initial=TINY)), log(len(_RATES) / delta)
    if len(sizes) > 1:  # then it may depend on the past: one of the powers of 2, with a prior
        power = ceil(log2(largest))
        largest, price = 2.0**power, price - log(over_integers(power))
    found = []
    for rate in _RATES:
        theta = rate / largest
        growth = np.array([log(_moment(theta * size, tolerance)) for size in sizes.tolist()])
        found.append((float(growth @ counts) + price) / theta)
    return min(found)


def _moment(rate: float, tolerance: float) -> float:
    """A bound on E exp(u(|z| − k)₊) for a 1-sub-Gaussian z."""
    tail = 0.5 * erfc((tolerance - rate) / sqrt(2.0))
    return 1.0 + 2.0 * rate * sqrt(2.0 * pi) * exp(0.5 * rate**2 - rate * tolerance) * tail


# The minimisation: Newton's method on hinges that are made smooth, less and less so.


def _descend(rounds: Rounds, start: Floats, tolerance: float, square: Floats) -> Floats:
    point, usual = start, float(np.median(rounds.noise))
    for width in _SMOOTHINGS:
        for _ in range(_NEWTON):
            step, slope, value = _newton(rounds, point, tolerance, width * usual, square)
            length = 1.0
            for _ in range(_HALVINGS):
                tried = point + length * step
                if _height(rounds, tried, tolerance, width * usual) <= value + 1e-4 * length * slope:
                    break
                length *= 0.5
            else:
                break
            point = tried
            if -slope <= 1e-10 * max(value, usual):
                break
    return point


def _smooth(over: Floats, width: float) -> tuple[Bools, Floats]:
    """Where a hinge is above 0, and its derivative there."""
    heard = over > 0.0
    return heard, np.minimum(over[heard] / width, 1.0)


def _height(rounds: Rounds, point: Floats, tolerance: float, width: float) -> float:
    over = rounds.excess(point, tolerance)[1]
    over = over[over > 0.0]
    return float(np.where(over < width, over**2 / (2.0 * width), over - 0.5 * width).sum())


def _newton(
    rounds: Rounds, point: Floats, tolerance: float, width: float, square: Floats
) -> tuple[Floats, float, float]:
    """The step, the slope along it, and the value."""
    rest, over = rounds.excess(point, tolerance)
    heard, weight = _smooth(over, width)
    actions = rounds.actions[heard]
    gradient = -(np.sign(rest[heard]) * weight) @ actions
    bent = actions[weight < 1.0]
    curve = bent.T @ bent / width + (1e-6 / width) * square / len(rest)
    step = -solve(curve[None], gradient[None])[0]
    above = over[heard]
    value = np.where(weight < 1.0, above**2 / (2.0 * width), above - 0.5 * width).sum()
    return step, float(gradient @ step), float(value)


def _dual(rounds: Rounds, point: Floats, tolerance: float, square: Floats) -> float:
    """Σ z r − (ζ + ks)|z| at some z with |z| ≤ 1 and Σ z a = 0: below the minimum, whatever z is.

    Rounding leaves Σ z a = Σ v a with tiny v; as in `Cones.dual`, that costs max|v| times 2 Σ (|r| + ζ + ks) at most.
    """
    rest, over = rounds.excess(point, tolerance)
    heard, weight = _smooth(over, _SMOOTHINGS[-1] * float(np.median(rounds.noise)))
    signs = np.zeros(len(rest))
    signs[heard] = np.sign(rest[heard]) * weight
    del rest, over  # there may be millions of rounds
    bent = heard.copy()
    bent[heard] = weight < 1.0
    signs = _within_reach(rounds, signs, bent)
    for _ in range(_BALANCINGS):
        signs -= rounds.actions @ solve(square[None], (signs @ rounds.actions)[None])[0]
    signs /= max(1.0, float(np.abs(signs).max(initial=0.0)))
    left = float(np.abs(rounds.actions @ solve(square[None], (signs @ rounds.actions)[None])[0]).max(initial=0.0))
    size, most, number = np.abs(signs), np.abs(rounds.rewards), len(signs)
    cost = float(rounds.misspecification * size.sum() + tolerance * (rounds.noise @ size))
    total = float(most.sum() + rounds.misspecification * number + tolerance * rounds.noise.sum())
    return float(signs @ rounds.rewards) - cost - 4.0 * left * total - _ROUNDING * (float(most @ size) + cost)


def _within_reach(rounds: Rounds, signs: Floats, bent: Bools) -> Floats:
    """Take Σ z a away, as far as it goes, where |z| is strictly between 0 and 1: other rounds would pay for it."""
    actions = rounds.actions[bent]
    if len(actions) <= actions.shape[1]:
        return signs
    for _ in range(_BALANCINGS):
        pulled = actions @ solve((actions.T @ actions)[None], (signs @ rounds.actions)[None])[0]
        signs[bent] = np.sign(signs[bent]) * np.clip(np.sign(signs[bent]) * (signs[bent] - pulled), 0.0, 1.0)
    return signs
