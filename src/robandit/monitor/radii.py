"""How far the sums of a group may stray from what μ* says, by noise and by what is not quite linear.

`docs/ideas/monitor.md` derives ρ and κ, and the smaller ρ for rare events.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from robandit.arrays import TINY, Floats, Index
from robandit.monitor.cones import Cones, norm
from robandit.monitor.groups import Groups
from robandit.rewards import sub_gaussian

_GRID = np.arange(-8.0, 9.0)  # powers of 4 by which the usual size of λ is multiplied
_SUMS = 1e-12  # relative error that sums over many rounds may have
_LEAST = 1e-11  # λ as a share of λ_max(V) below which the small eigenvalues of V, which ρ needs, are rounding
_NEARLY = 1e-7  # relative error of a length that is found as a difference of squares
_UNKNOWN = 100.0  # how many times the estimate's length ‖μ*‖ may have, for rounding alone, where no bound is known
_BLUNT = 2.0**-4.0  # where a column stands out, how much shorter other directions count when a mixture is cut off
_STEPS = (0.5, 1.0, 2.0)  # m: the largest exponents for which rare events are bounded


class RareEvents(NamedTuple):
    """Honest rewards lie in an interval, and their means near its lower end. The variance is small, then."""

    width: float
    """W, the length of the interval."""
    share: float
    """p: every honest mean, given the past, is at most p·W above the lower end."""

    @property
    def scale(self) -> float:
        """The sub-Gaussian scale of the noise."""
        return sub_gaussian(self.width, self.share)

    def steps(self) -> dict[float, float]:
        """For each exponent m that is worth it, by what factor the scale is smaller up to there."""
        found = {m: float(self.scale / (self.width * np.sqrt(self.share * _growth(m)))) for m in _STEPS}
        return {m: gain for m, gain in found.items() if gain > 1.0}


class Assumptions(NamedTuple):
    """What the bound of given groups rests on; `CorruptionMonitor` says what each means."""

    noise: Floats | float | tuple[float, ...]
    """The usual scale of the noise, one for all streams or (B,). It sets the usual size of λ and nothing else."""
    delta: float
    """The probability with which the bound may be wrong."""
    parameter_bound: float | None = None
    """B, an upper bound on ‖μ*‖; None if there is none."""
    misspecification: float = 0.0
    """ζ, the most by which an honest mean differs from ⟨a, μ*⟩."""
    rare: RareEvents | None = None
    """What is known of rare events, if rewards are such. All weights must then be 1/``rare.scale``²."""
    regularization: float | None = None
    """λ, one for all groups; None for the best of a grid."""
    radius_scale: float = 1.0
    """The factor of what noise adds to ρ. Below 1 nothing is proved."""


class Stretch(NamedTuple):
    """Coordinates in which one column counts more than the others, for each of B streams. `norms.py` chooses them."""

    column: Index
    """The place c of that column, (B,)."""
    factor: Floats
    """What each column was multiplied by, (B, G, d): 1 for c, and the same small number f for all others."""
    peak: Floats
    """max w|a_c| over the group's rounds, (B, G)."""
    rest: Floats
    """At least the length of what else w a has in these coordinates, (B, G)."""


class Spectra:
    """The eigenvalues of every V_g, which give the norms for all λ at once.

    With a ``stretch``, all sums of the groups must be in its coordinates. μ, in and out, never is.
    """

    def __init__(self, groups: Groups, assumed: Assumptions, guess: Floats, stretch: Stretch | None = None) -> None:
        self._assumed, self._stretch = assumed, stretch
        self._unit: Floats = np.broadcast_to(assumed.noise, len(guess)) ** -2.0
        values, self._vectors = np.linalg.eigh(groups.gram)
        self._values = np.maximum(values, 0.0)  # (B, G, d)
        self._moment = np.vecmat(groups.moment, self._vectors)  # Qᵀb
        self._lambda, prior = self._choices(groups)
        self._widest = 1.0 / (self._values[:, :, :1] + self._lambda)  # the largest eigenvalue of (V + λI)⁻¹
        if stretch is not None:
            self._along, self._across = self._column(stretch.column)
        growth = np.log1p(self._values[:, :, None] / self._lambda[..., None]).sum(axis=3)  # log det(I + V/λ)
        paid = growth - 2.0 * np.log(assumed.delta * prior)  # ρ², (B, G, J)
        self._radius = assumed.radius_scale * self._noise(groups, paid)
        self._radius += assumed.misspecification * np.sqrt(groups.weight)[..., None]
        self._radius += self._rounding(groups, guess)[..., None] / np.sqrt(self._lambda)
        slope = self._leverage(groups)
        self._slope = np.where(slope > 0.0, slope, 1.0)  # an empty group can't be corrupted
        self._usable = self._lambda >= _LEAST * self._values[..., -1:]

    def _choices(self, groups: Groups) -> tuple[Floats, Floats]:
        """All λ (B, G, J), and the share of δ (G, J) or (B, G, J) that each may use."""
        if self._assumed.regularization is not None:
            shape = len(self._unit), len(groups.share), 1
            return np.full(shape, self._assumed.regularization), groups.share[..., None]
        usual = self._unit[:, None] * groups.length / self._values.shape[-1]  # V_g if all directions are alike
        return usual[..., None] * 4.0**_GRID, groups.share[..., None] * over_integers(_GRID)

    def _column(self, column: Index) -> tuple[Floats, Floats]:
        """P_cc, and the length of the rest of column c of P = (V + λI)⁻¹, (B, G, J) each."""
        turned = self._vectors[np.arange(len(column)), :, column][:, :, None]  # (B, G, 1, d)
        scaled = turned / (self._values[:, :, None] + self._lambda[..., None])
        along = (turned * scaled).sum(axis=3)
        return along, np.sqrt(np.maximum((scaled**2).sum(axis=3) - along**2, 0.0))

    def _noise(self, groups: Groups, paid: Floats) -> Floats:
        """The part of ρ that is noise, (B, G, J), from ρ² for sub-Gaussian noise."""
        rare = self._assumed.rare
        if rare is None:
            return np.sqrt(paid)
        steps = rare.steps()
        shared = paid + 2.0 * np.log(1.0 + len(steps))  # δ is shared between this and the steps m
        least, spread, reach = np.sqrt(shared), np.sqrt(self._widest), groups.reach
        if self._stretch is not None:
            spread = np.minimum(spread, self._longest(1.0, _BLUNT))
            reach = np.sqrt(self._stretch.peak**2 + (self._stretch.rest / _BLUNT) ** 2)
        longest = np.where(reach > 0.0, reach / self._unit[:, None], 1.0)  # an empty group has no length
        for step, gain in steps.items():
            power = np.floor(np.log2(step / longest))[..., None]  # of the radius to which the mixture is cut off
            room = 0.5 * 2.0**power / (spread * gain * self._unit[:, None, None] * rare.width)
            cut = _beyond(room**2, self._values.shape[-1])
            radius = np.sqrt(shared - 2.0 * np.log(over_integers(power)) - 2.0 * np.log1p(-np.minimum(cut, 0.5)))
            fits = (radius <= room) & (cut <= 0.5)
            least = np.where(fits, np.minimum(least, radius / gain), least)
        return least

    def _leverage(self, groups: Groups) -> Floats:
        """κ: no less than w‖a‖_{(V + λI)⁻¹} for any round of the group, (B, G, J)."""
        plain = groups.reach[..., None] * np.sqrt(self._widest)
        if self._stretch is None:
            return plain
        return np.minimum(plain, self._longest(self._stretch.peak[..., None], self._stretch.rest[..., None]))

    def _longest(self, peak: Floats | float, rest: Floats | float) -> Floats:
        """A bound on ‖x‖_P for all x with |x_c| ≤ peak and ‖x‖ ≤ rest elsewhere, P = (V + λI)⁻¹, (B, G, J).

        ‖x‖_P² = P_cc x_c² + 2 x_c⟨P_c, x_rest⟩ + ‖x_rest‖_P², term by term.
        """
        beside = 2.0 * peak * rest * self._across
        return (1.0 + _NEARLY) * np.sqrt(peak**2 * self._along + beside + rest**2 * self._widest)

    def _rounding(self, groups: Groups, guess: Floats) -> Floats:
        """The most by which rounding changes ‖b_g − V_g μ*‖, (B, G)."""
        largest, bound = self._values[..., -1], self._assumed.parameter_bound
        if bound is None:
            alone = norm(groups.moment) / np.maximum(largest, TINY) * (largest > 0.0)
            longest = _UNKNOWN * (norm(self._to_own(guess)) + alone.max(axis=1, initial=0.0)[:, None])
        elif self._stretch is None:
            longest = np.full((len(guess), 1), bound)
        else:
            longest = bound / self._stretch.factor.min(axis=2)
        return _SUMS * (norm(groups.moment) + largest * longest)

    def _to_own(self, parameter: Floats) -> Floats:
        """μ (B, d) in these coordinates, (B, 1 or G, d)."""
        return parameter[:, None] if self._stretch is None else parameter[:, None] / self._stretch.factor

    def cones(self, parameter: Floats) -> tuple[Cones, Floats]:
        """The problem with the λ for each group that says most at μ (B, d), and how much that is, (B, G)."""
        rotated = np.vecmat(self._to_own(parameter), self._vectors)
        squares = (self._moment - self._values * rotated) ** 2
        scale = self._values[:, :, None] + self._lambda[..., None]  # (B, G, J, d)
        norms = np.sqrt((squares[:, :, None] / scale).sum(axis=3))
        says = np.where(self._usable, (norms - self._radius) / self._slope, -np.inf)
        best = says.argmax(axis=2)[..., None]
        heard = np.take_along_axis(self._usable, best, axis=2)  # a group of which no λ can be used says nothing
        root = np.sqrt(self._values + np.take_along_axis(self._lambda, best, axis=2))
        matrix = (heard * self._values / root)[..., None] * self._vectors.swapaxes(2, 3)
        if self._stretch is not None:
            matrix /= self._stretch.factor[:, :, None]
        radius, slope = (np.take_along_axis(array, best, axis=2) for array in (self._radius, self._slope))
        found = Cones(matrix[:, :, None], (heard * self._moment / root)[:, :, None], radius, slope)
        return found, np.take_along_axis(says, best, axis=2)[..., 0]


def over_integers(index: Any) -> Any:
    """A prior over all integers, which adds up to 1."""
    return 2.0 / 3.0 / ((np.abs(index) + 1.0) * (np.abs(index) + 2.0))


def _beyond(square: Floats, dim: int) -> Floats:
    """A bound on the probability that χ² with so many degrees of freedom is above a number (Chernoff)."""
    ratio = np.maximum(square / dim, 1.0)
    return np.exp(-0.5 * dim * (ratio - 1.0 - np.log(ratio)))


def _growth(step: float) -> float:
    """2 (e^m − 1 − m)/m²: by how much the exponent of a Poisson variable exceeds that of a normal one, up to m."""
    return float(2.0 * (np.expm1(step) - step) / step**2)
