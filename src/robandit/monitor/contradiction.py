"""The least corruption that explains groups of rounds which contradict each other. docs/ideas/monitor.md derives it.

With C_g = Σ_{t ∈ g} |c_t|, and with probability at least 1 − δ for all groups g and all λ of a grid at once,

    ‖b_g − V_g μ*‖_{(V_g + λI)⁻¹} ≤ ρ_g(λ) + κ_g(λ) C_g,    V_g = Σ w a aᵀ,  b_g = Σ w r a,  w = 1/s².

So Σ_g C_g is at least the minimum over ‖μ‖ ≤ B of Σ_g [(‖b_g − V_g μ‖ − ρ_g)/κ_g]₊. What is reported is the value of a
feasible point of the dual problem, which is below that minimum whether or not the search for it has converged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robandit.arrays import TINY, Bools, Floats
from robandit.monitor.cones import Cones, has_faint, norm, solve
from robandit.monitor.groups import Groups
from robandit.monitor.norms import Norms
from robandit.monitor.radii import Assumptions

_GAPS = 1e-2, 1e-2, 1e-2, 1e-8  # relative duality gap at which each pass stops
_SHRINK = 0.2  # factor of the barrier from one step to the next
_CENTRED = 1e-2  # squared Newton decrement at which a step is done
_STEPS, _NEWTON, _HALVINGS = 25, 40, 40  # most steps of the barrier, of Newton's method and of the line search
_AWAY = 1e3  # where no bound on ‖μ‖ is known, how far out μ is sought, in units of what the groups say


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


def lower_bound(
    groups: Groups, assumed: Assumptions, *, least: Floats | float = 0.0, guess: Floats | None = None
) -> Bound:
    """The corruption that these groups prove, in each stream; not followed up where it can't exceed ``least``.

    The search begins at ``guess`` (B, d), if something is known to be near the minimum.
    """
    batch, number, _ = groups.moment.shape
    guess = _start(groups, assumed, guess)
    norms = Norms(groups, assumed, guess)
    nothing = np.zeros((batch, number))
    best = Bound(np.zeros(batch), guess.copy(), nothing.copy(), nothing)
    enough = np.broadcast_to(np.asarray(least, dtype=float), batch)
    if assumed.parameter_bound is None:
        enough = np.where(has_faint(groups.gram.sum(axis=1)), np.inf, enough)
    cones: Cones | None = None
    for gap in _GAPS:  # roughly at first: at each minimum, the norms are added that say most there
        found = norms.cones(guess)
        left = np.flatnonzero(found.terms(guess).sum(axis=1) > enough)  # no other norms say more there, so none can
        cones = found if cones is None else cones.beside(found)
        if left.size:
            final = gap == _GAPS[-1]
            give_up = enough[left] if final else np.zeros(left.size)  # other norms may say more than these
            bound = _minimise(cones.of(left), guess[left], assumed.parameter_bound, give_up, gap)
            guess[left] = bound.parameter
            better = bound.value > best.value[left]
            for old, new in zip(best, bound, strict=True):
                old[left[better]] = new[better]
    return best


def _start(groups: Groups, assumed: Assumptions, guess: Floats | None) -> Floats:
    """The guess, or else the ridge estimate of all groups together, brought into ‖μ‖ ≤ B."""
    if guess is None:
        unit = np.broadcast_to(assumed.noise, len(groups.moment)) ** -2.0
        ridge = unit[:, None, None] * np.eye(groups.moment.shape[2])
        guess = solve(groups.gram.sum(axis=1) + ridge, groups.moment.sum(axis=1))
    if assumed.parameter_bound is None:
        return guess.copy()
    return guess * np.minimum(1.0, assumed.parameter_bound / np.maximum(norm(guess), TINY))[:, None]


# The minimisation: a barrier method on min Σ x_g over ‖y_gk − A_gk μ‖ ≤ ρ_gk + κ_gk x_g, x ≥ 0, ‖μ‖ ≤ B.


class _Point(NamedTuple):
    parameter: Floats  # μ (P, d)
    price: Floats  # x (P, G)


def _minimise(cones: Cones, start: Floats, bound: float | None, least: Floats, gap: float) -> Bound:
    """The minimum over ‖μ‖ ≤ B as a dual value, for each problem; given up where it can't exceed ``least``."""
    ball = _ball(cones, start, bound)
    near = gap * (cones.radius / cones.slope).min(axis=(1, 2))  # in the units of the bound, where that is small
    inside = start * np.minimum(1.0, 0.9 * ball / np.maximum(norm(start), TINY))[:, None]
    terms = cones.terms(inside)
    point = _Point(inside, 1.5 * terms + terms.mean(axis=1, keepdims=True) + near[:, None])
    barrier = point.price.mean(axis=1)
    squares = np.matmul(cones.matrix.swapaxes(3, 4), cones.matrix)  # AᵀA (P, G, K, d, d)
    best = Bound(np.zeros(len(start)), start.copy(), terms, np.zeros(terms.shape))
    going = np.flatnonzero(terms.any(axis=1))
    for _ in range(_STEPS):
        if not going.size:
            break
        some = cones.of(going)
        moved, multipliers = _centre(
            some, squares[going], _Point(*(array[going] for array in point)), barrier[going], ball[going]
        )
        for old, new in zip(point, moved, strict=True):
            old[going] = new
        terms, dual = some.terms(moved.parameter), some.dual(multipliers, bound)
        best.parameter[going], best.placed[going] = moved.parameter, terms
        better = going[dual > best.value[going]]
        best.voice[better] = (norm(multipliers) * some.slope).sum(axis=2)[dual > best.value[going]]
        best.value[going] = np.maximum(best.value[going], dual)
        most = terms.sum(axis=1)
        over = (most - best.value[going] <= np.maximum(near[going], gap * most)) | (most <= least[going])
        barrier[going] *= _SHRINK
        going = going[~over]
    return best


def _ball(cones: Cones, start: Floats, bound: float | None) -> Floats:
    """The radius of the ball in which μ is sought, (P,). Without a bound it is too large to matter."""
    if bound is not None:
        return np.full(len(start), bound)
    size = np.sqrt(np.square(cones.matrix).sum(axis=(3, 4)))
    alone = np.where(size > 0.0, norm(cones.target) / np.maximum(size, TINY), 0.0)
    return _AWAY * (norm(start) + alone.max(axis=(1, 2))) + TINY


def _centre(cones: Cones, squares: Floats, point: _Point, barrier: Floats, ball: Floats) -> tuple[_Point, Floats]:
    """Newton's method for one size of the barrier: the point where it ends, and the multipliers there.

    A problem that is done stays as it is while others go on, so that none depends on what it is solved with.
    """
    done = np.zeros(len(barrier), dtype=bool)
    last, step = point, _Point(*map(np.zeros_like, point))
    for _ in range(_NEWTON):
        new, decrement = _newton(cones, squares, point, barrier, ball)
        last, step = _mixed(done, last, point), _mixed(done, step, new)
        before, length = _height(cones, point, barrier, ball), np.where(done, 0.0, 1.0)
        for _ in range(_HALVINGS):
            tried = _Point(*(old + length[:, None] * way for old, way in zip(point, step, strict=True)))
            worse = ~done & ~(_height(cones, tried, barrier, ball) <= before - 1e-4 * length * decrement)
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


def _margins(cones: Cones, point: _Point, ball: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """z = y − Aμ, p = ρ + κx, p² − ‖z‖² and B² − ‖μ‖²."""
    residual = cones.residual(point.parameter)
    size, room = norm(residual), cones.radius + cones.slope * point.price[..., None]
    return residual, room, (room - size) * (room + size), ball**2 - np.vecdot(point.parameter, point.parameter)


def _height(cones: Cones, point: _Point, barrier: Floats, ball: Floats) -> Floats:
    """Σx/ε − Σ log x − Σ log(p² − ‖z‖²) − log(B² − ‖μ‖²); ∞ outside."""
    _, room, depth, left = _margins(cones, point, ball)
    inside = (point.price > 0.0).all(axis=1) & ((room > 0.0) & (depth > 0.0)).all(axis=(1, 2)) & (left > 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(point.price).sum(axis=1) + np.log(depth).sum(axis=(1, 2)) + np.log(left)
    return np.where(inside, point.price.sum(axis=1) / barrier - logs, np.inf)


def _newton(cones: Cones, squares: Floats, point: _Point, barrier: Floats, ball: Floats) -> tuple[_Point, Floats]:
    """The step in μ and in x, which is eliminated first, and the squared Newton decrement."""
    residual, room, depth, left = _margins(cones, point, ball)
    mu, dim = point.parameter, point.parameter.shape[1]
    pull = np.vecmat(residual, cones.matrix)  # Aᵀz (P, G, K, d)
    push = 2.0 * cones.slope * room / depth
    slope_x = 1.0 / barrier[:, None] - 1.0 / point.price - push.sum(axis=2)
    slope_mu = -2.0 * (pull / depth[..., None]).sum(axis=(1, 2)) + 2.0 * mu / left[:, None]
    curve_x = point.price**-2.0 + (push**2 - 2.0 * cones.slope**2 / depth).sum(axis=2)
    both = 2.0 * push / depth  # times Aᵀz: what x and μ have in common
    mixed = (both[..., None] * pull).sum(axis=2)  # (P, G, d)
    rank_one = -both[..., None] * both[..., None, :] / curve_x[..., None, None]  # (P, G, K, K)
    rank_one += (4.0 / depth**2)[..., None] * np.eye(depth.shape[2])
    steep, turned = (array.reshape(len(mu), -1, dim) for array in (pull, np.matmul(rank_one, pull)))
    curve = np.einsum("pgk,pgkij->pij", 2.0 / depth, squares) + np.matmul(steep.swapaxes(1, 2), turned)
    curve += (2.0 / left)[:, None, None] * np.eye(dim) + (4.0 / left**2)[:, None, None] * mu[:, :, None] * mu[:, None]
    reduced = slope_mu - ((slope_x / curve_x)[..., None] * mixed).sum(axis=1)
    step_mu = -solve(curve, reduced)
    step_x = -(slope_x + np.vecdot(mixed, step_mu[:, None])) / curve_x
    decrement = -(np.vecdot(slope_mu, step_mu) + np.vecdot(slope_x, step_x))
    return _Point(step_mu, step_x), np.maximum(decrement, 0.0)


def _multipliers(cones: Cones, point: _Point, step: _Point, barrier: Floats) -> Floats:
    """u = 2εz/(p² − ‖z‖²), to the first order of a step, which makes Σ Aᵀu right; with Σ_k κ‖u‖ brought down to 1."""
    residual = cones.residual(point.parameter)
    size, room = norm(residual), cones.radius + cones.slope * point.price[..., None]
    depth, change = (room - size) * (room + size), -np.matvec(cones.matrix, step.parameter[:, None, None])
    deeper = 2.0 * (room * cones.slope * step.price[..., None] - np.vecdot(residual, change))
    linear = residual + change - (deeper / depth)[..., None] * residual
    multipliers = (2.0 * barrier[:, None, None] / depth)[..., None] * linear
    used = (norm(multipliers) * cones.slope).sum(axis=2)
    return multipliers / np.maximum(1.0, used)[..., None, None]
