"""The least corruption that explains groups of rounds which contradict each other. docs/monitor.md derives it.

With C_g = Σ_{t ∈ g} |c_t|, and with probability at least 1 − δ for all groups g and all λ of a grid at once,

    ‖b_g − V_g μ*‖_{(V_g + λI)⁻¹} ≤ ρ_g(λ) + κ_g(λ) C_g,    V_g = Σ w a aᵀ,  b_g = Σ w r a,  w = 1/s².

So Σ_g C_g is at least the minimum over ‖μ‖ ≤ B of Σ_g [(‖b_g − V_g μ‖ − ρ_g)/κ_g]₊. What is reported is the value of a
feasible point of the dual problem, which is below that minimum whether or not the search for it has converged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robandit.arrays import TINY, Bools, Floats, Index
from robandit.monitor.groups import Groups

_GRID = np.arange(-8.0, 9.0)  # powers of 4 by which the usual size of λ is multiplied
_PRIOR = 2.0 / 3.0 / ((np.abs(_GRID) + 1.0) * (np.abs(_GRID) + 2.0))  # over all integers it adds up to 1
_GAPS = 1e-2, 1e-2, 1e-8  # relative duality gap at which each pass stops
_SHRINK = 0.2  # factor of the barrier from one step to the next
_CENTRED = 1e-2  # squared Newton decrement at which a step is done
_STEPS, _NEWTON, _HALVINGS = 25, 40, 40  # most steps of the barrier, of Newton's method and of the line search
_SUMS = 1e-12  # relative error that sums over many rounds may have
_JITTER = 1e-14  # added to the diagonal of a matrix that is scaled to have ones there
_ROUNDING = 1e-12  # amount by which a reported value is rounded down, relative to its summands


class Bound(NamedTuple):
    """A lower bound on the corruption of each of B streams."""

    value: Floats
    """The bound, (B,)."""
    parameter: Floats
    """The μ under which the least corruption explains the feedback, (B, d)."""
    placed: Floats
    """The corruption that this μ places in each group, (B, G): one explanation, not a proof."""
    voice: Floats
    """How much each group matters in the proof, from 0 to 1, (B, G). The bound is on the corruption of groups > 0."""


class Assumptions(NamedTuple):
    """What the bound of given groups rests on; `CorruptionMonitor` says what each means."""

    noise: Floats | float | tuple[float, ...]
    """The usual scale of the noise, one for all streams or (B,). It sets the usual size of λ and nothing else."""
    delta: float
    """The probability with which the bound may be wrong."""
    parameter_bound: float
    """B, an upper bound on ‖μ*‖."""
    regularization: float | None = None
    """λ, one for all groups; None for the best of a grid."""
    radius_scale: float = 1.0
    """The factor of ρ. Below 1 nothing is proved."""


class Cones(NamedTuple):
    """Σ_g [(‖y_g − A_g μ‖ − ρ_g)/κ_g]₊, for each of P problems."""

    matrix: Floats  # A (P, G, d, d)
    target: Floats  # y (P, G, d)
    radius: Floats  # ρ (P, G)
    slope: Floats  # κ (P, G)

    def residual(self, parameter: Floats) -> Floats:
        """y − Aμ, (P, G, d)."""
        return self.target - np.matvec(self.matrix, parameter[:, None])

    def terms(self, parameter: Floats) -> Floats:
        """The summands at μ (P, d), (P, G)."""
        return np.maximum(_norm(self.residual(parameter)) - self.radius, 0.0) / self.slope

    def of(self, rows: Index) -> Cones:
        """Some of the problems."""
        return Cones(*(array[rows] for array in self))

    def dual(self, multipliers: Floats, bound: float) -> Floats:
        """Σ ⟨u, y⟩ − ρ‖u‖ − B‖Σ Aᵀu‖ at u (P, G, d) with ‖u‖ ≤ 1/κ: below the minimum, whatever u is."""
        gained = np.vecdot(multipliers, self.target)
        paid = self.radius * _norm(multipliers)
        slack = bound * _norm(np.vecmat(multipliers, self.matrix).sum(axis=1))
        return gained.sum(axis=1) - paid.sum(axis=1) - slack - _ROUNDING * (np.abs(gained) + paid).sum(axis=1)


def lower_bound(
    groups: Groups, assumed: Assumptions, *, least: Floats | float = 0.0, guess: Floats | None = None
) -> Bound:
    """The corruption that these groups prove, in each stream; not followed up where it can't exceed ``least``.

    The search begins at ``guess`` (B, d), if something is known to be near the minimum.
    """
    batch, number, _ = groups.moment.shape
    unit = np.broadcast_to(assumed.noise, batch) ** -2.0
    spectra, guess = _Spectra(groups, unit, assumed), _start(groups, unit, assumed.parameter_bound, guess)
    nothing = np.zeros((batch, number))
    best = Bound(np.zeros(batch), guess.copy(), nothing.copy(), nothing)
    enough = np.broadcast_to(np.asarray(least, dtype=float), batch)
    for gap in _GAPS:  # roughly at first: the λ that say most at one minimum say more than those of the guess
        cones = spectra.cones(guess)
        left = np.flatnonzero(cones.terms(guess).sum(axis=1) > enough)  # no other λ say more there, so none can
        if left.size:
            final = gap == _GAPS[-1]
            give_up = enough[left] if final else np.zeros(left.size)  # other λ may say more than these
            found = _minimise(cones.of(left), guess[left], assumed.parameter_bound, give_up, gap)
            guess[left] = found.parameter
            better = found.value > best.value[left]
            for old, new in zip(best, found, strict=True):
                old[left[better]] = new[better]
    return best


def _start(groups: Groups, unit: Floats, bound: float, guess: Floats | None) -> Floats:
    """The guess, or else the ridge estimate of all groups together, brought into ‖μ‖ ≤ B."""
    if guess is None:
        ridge = unit[:, None, None] * np.eye(groups.moment.shape[2])
        guess = _solve(groups.gram.sum(axis=1) + ridge, groups.moment.sum(axis=1))
    return guess * np.minimum(1.0, bound / np.maximum(_norm(guess), TINY))[:, None]


class _Spectra:
    """The eigenvalues of every V_g, which give the norms for all λ at once."""

    def __init__(self, groups: Groups, unit: Floats, assumed: Assumptions) -> None:
        values, self._vectors = np.linalg.eigh(groups.gram)
        self._values = np.maximum(values, 0.0)  # (B, G, d)
        self._moment = np.vecmat(groups.moment, self._vectors)  # Qᵀb
        if assumed.regularization is None:
            usual = unit[:, None] * groups.length / values.shape[-1]  # what V_g comes to if all directions are alike
            self._lambda = usual[..., None] * 4.0**_GRID  # (B, G, J)
            prior = groups.share[:, None] * _PRIOR
        else:
            self._lambda = np.full((len(unit), len(groups.share), 1), assumed.regularization)
            prior = groups.share[:, None]
        growth = np.log1p(self._values[:, :, None] / self._lambda[..., None]).sum(axis=3)  # log det(I + V/λ)
        self._radius = assumed.radius_scale * np.sqrt(growth - 2.0 * np.log(assumed.delta * prior))  # (B, G, J)
        # Sums of b and V are rounded, by far less than this; it matters where features dwarf the noise.
        slop = _SUMS * (_norm(groups.moment) + self._values[..., -1] * assumed.parameter_bound)
        self._radius += slop[..., None] / np.sqrt(self._lambda)
        # w‖a‖_{(V + λI)⁻¹} ≤ w‖a‖/√(λ_min(V) + λ) for every round of the group; an empty one can't be corrupted.
        slope = groups.reach[:, :, None] / np.sqrt(self._values[:, :, :1] + self._lambda)
        self._slope = np.where(slope > 0.0, slope, 1.0)

    def cones(self, parameter: Floats) -> Cones:
        """The problem with the λ for each group that says most at μ (B, d)."""
        rotated = np.vecmat(parameter[:, None], self._vectors)
        squares = (self._moment - self._values * rotated) ** 2
        scale = self._values[:, :, None] + self._lambda[..., None]  # (B, G, J, d)
        norms = np.sqrt((squares[:, :, None] / scale).sum(axis=3))
        best = ((norms - self._radius) / self._slope).argmax(axis=2)[..., None]
        root = np.sqrt(self._values + np.take_along_axis(self._lambda, best, axis=2))
        return Cones(
            matrix=(self._values / root)[..., None] * self._vectors.swapaxes(2, 3),
            target=self._moment / root,
            radius=np.take_along_axis(self._radius, best, axis=2)[..., 0],
            slope=np.take_along_axis(self._slope, best, axis=2)[..., 0],
        )


# The minimisation: a barrier method on min Σ x_g over ‖y_g − A_g μ‖ ≤ ρ_g + κ_g x_g, x ≥ 0, ‖μ‖ ≤ B.


class _Point(NamedTuple):
    parameter: Floats  # μ (P, d)
    price: Floats  # x (P, G)


def _minimise(cones: Cones, start: Floats, bound: float, least: Floats, gap: float) -> Bound:
    """The minimum over ‖μ‖ ≤ B as a dual value, for each problem; given up where it can't exceed ``least``."""
    near = gap * (cones.radius / cones.slope).min(axis=1)  # in the units of the bound, where that is small
    inside = start * np.minimum(1.0, 0.9 * bound / np.maximum(_norm(start), TINY))[:, None]
    terms = cones.terms(inside)
    point = _Point(inside, 1.5 * terms + terms.mean(axis=1, keepdims=True) + near[:, None])
    barrier = point.price.mean(axis=1)
    squares = np.matmul(cones.matrix.swapaxes(2, 3), cones.matrix)  # AᵀA (P, G, d, d)
    best = Bound(np.zeros(len(start)), start.copy(), terms, np.zeros(terms.shape))
    going = np.flatnonzero(terms.any(axis=1))
    for _ in range(_STEPS):
        if not going.size:
            break
        some = cones.of(going)
        moved, multipliers = _centre(
            some, squares[going], _Point(*(array[going] for array in point)), barrier[going], bound
        )
        for old, new in zip(point, moved, strict=True):
            old[going] = new
        terms, dual = some.terms(moved.parameter), some.dual(multipliers, bound)
        best.parameter[going], best.placed[going] = moved.parameter, terms
        better = going[dual > best.value[going]]
        best.voice[better] = (_norm(multipliers) * some.slope)[dual > best.value[going]]
        best.value[going] = np.maximum(best.value[going], dual)
        most = terms.sum(axis=1)
        over = (most - best.value[going] <= np.maximum(near[going], gap * most)) | (most <= least[going])
        barrier[going] *= _SHRINK
        going = going[~over]
    return best


def _centre(cones: Cones, squares: Floats, point: _Point, barrier: Floats, bound: float) -> tuple[_Point, Floats]:
    """Newton's method for one size of the barrier: the point where it ends, and the multipliers there.

    A problem that is done stays as it is while others go on, so that none depends on what it is solved with.
    """
    done = np.zeros(len(barrier), dtype=bool)
    last, step = point, _Point(*map(np.zeros_like, point))
    for _ in range(_NEWTON):
        new, decrement = _newton(cones, squares, point, barrier, bound)
        last, step = _mixed(done, last, point), _mixed(done, step, new)
        before, length = _height(cones, point, barrier, bound), np.where(done, 0.0, 1.0)
        for _ in range(_HALVINGS):
            tried = _Point(*(old + length[:, None] * way for old, way in zip(point, step, strict=True)))
            worse = ~done & ~(_height(cones, tried, barrier, bound) <= before - 1e-4 * length * decrement)
            if not worse.any():
                break
            length[worse] *= 0.5
        point = _mixed(done | worse, point, tried)
        done |= worse | (decrement <= _CENTRED)  # worse: as far as rounding lets it come
        if done.all():
            break
    return point, _multipliers(cones, last, step, barrier)


def _mixed(first: Bools, one: _Point, other: _Point) -> _Point:
    return _Point(*(np.where(first[:, None], a, b) for a, b in zip(one, other, strict=True)))


def _margins(cones: Cones, point: _Point, bound: float) -> tuple[Floats, Floats, Floats, Floats]:
    """z = y − Aμ, p = ρ + κx, p² − ‖z‖² and B² − ‖μ‖²."""
    residual = cones.residual(point.parameter)
    size, room = _norm(residual), cones.radius + cones.slope * point.price
    return residual, room, (room - size) * (room + size), bound**2 - np.vecdot(point.parameter, point.parameter)


def _height(cones: Cones, point: _Point, barrier: Floats, bound: float) -> Floats:
    """Σx/ε − Σ log x − Σ log(p² − ‖z‖²) − log(B² − ‖μ‖²); ∞ outside."""
    _, room, depth, left = _margins(cones, point, bound)
    inside = (point.price > 0.0).all(axis=1) & (room > 0.0).all(axis=1) & (depth > 0.0).all(axis=1) & (left > 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = (np.log(point.price) + np.log(depth)).sum(axis=1) + np.log(left)
    return np.where(inside, point.price.sum(axis=1) / barrier - logs, np.inf)


def _newton(cones: Cones, squares: Floats, point: _Point, barrier: Floats, bound: float) -> tuple[_Point, Floats]:
    """The step in μ and in x, which is eliminated first, and the squared Newton decrement."""
    residual, room, depth, left = _margins(cones, point, bound)
    mu, dim = point.parameter, point.parameter.shape[1]
    pull = np.vecmat(residual, cones.matrix)  # Aᵀz (P, G, d)
    push = 2.0 * cones.slope * room / depth
    slope_x = 1.0 / barrier[:, None] - 1.0 / point.price - push
    slope_mu = -2.0 * (pull / depth[..., None]).sum(axis=1) + 2.0 * mu / left[:, None]
    curve_x = point.price**-2.0 + push**2 - 2.0 * cones.slope**2 / depth
    mixed = 2.0 * push / depth  # times Aᵀz
    rank_one = 4.0 / depth**2 - mixed**2 / curve_x
    curve = np.einsum("pg,pgij->pij", 2.0 / depth, squares)
    curve += np.matmul((rank_one[..., None] * pull).swapaxes(1, 2), pull)
    curve += (2.0 / left)[:, None, None] * np.eye(dim) + (4.0 / left**2)[:, None, None] * mu[:, :, None] * mu[:, None]
    reduced = slope_mu - ((mixed * slope_x / curve_x)[..., None] * pull).sum(axis=1)
    step_mu = -_solve(curve, reduced)
    step_x = -(slope_x + mixed * np.vecdot(pull, step_mu[:, None])) / curve_x
    decrement = -(np.vecdot(slope_mu, step_mu) + np.vecdot(slope_x, step_x))
    return _Point(step_mu, step_x), np.maximum(decrement, 0.0)


def _solve(matrix: Floats, right: Floats) -> Floats:
    """Solve Mx = y for positive definite M (P, d, d), which rounding may have made nearly singular."""
    scale = 1.0 / np.sqrt(np.maximum(np.diagonal(matrix, axis1=1, axis2=2), TINY))
    even = matrix * scale[:, :, None] * scale[:, None] + _JITTER * np.eye(matrix.shape[1])
    return scale * np.linalg.solve(even, (scale * right)[..., None])[..., 0]


def _multipliers(cones: Cones, point: _Point, step: _Point, barrier: Floats) -> Floats:
    """u = 2εz/(p² − ‖z‖²), to the first order of a step, which makes Σ Aᵀu right; with ‖u‖ brought down to 1/κ."""
    residual = cones.residual(point.parameter)
    size, room = _norm(residual), cones.radius + cones.slope * point.price
    depth, change = (room - size) * (room + size), -np.matvec(cones.matrix, step.parameter[:, None])
    deeper = 2.0 * (room * cones.slope * step.price - np.vecdot(residual, change))
    linear = residual + change - (deeper / depth)[..., None] * residual
    multipliers = (2.0 * barrier[:, None] / depth)[..., None] * linear
    return multipliers / np.maximum(1.0, _norm(multipliers) * cones.slope)[..., None]


def _norm(vectors: Floats) -> Floats:
    return np.sqrt(np.vecdot(vectors, vectors))
