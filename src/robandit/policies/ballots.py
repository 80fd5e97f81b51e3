"""What groups of rounds say of the parameter, each as a quadratic, and sums over groups.

A group g has V = Σ w a aᵀ and b = Σ w r a. It disagrees with a parameter μ by r_g(μ) = ‖b − Vμ‖_{(V+λI)⁻¹}, of which
the square is a quadratic in μ. Shapes have n trials, G groups, d features and m = (d+1)(d+2)/2 numbers for a quadratic.
What a trial gets does not depend, bit for bit, on the trials beside it, nor on empty groups.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np

from robandit.arrays import Bools, Floats, Index, Ints, constant
from robandit.policies.groups import RoundGroups, flat, part_of

_REACH = 0.3  # how much more than on average a group may disagree, times √(2 log 20G); tuned, not proved

_BLOCK = 64  # matrices to compute with at a time


class Ballots(NamedTuple):
    """What groups say, as quadratics μᵀPμ − 2⟨q, μ⟩ + s.

    Each is kept as the upper triangle of P with what is off its diagonal doubled, −2q, and s: a value is then one sum
    of products, and the whole takes half the memory of P.
    """

    terms: Floats
    """r_g(μ)², with P = V(V+λI)⁻¹V, q = V(V+λI)⁻¹b and s = bᵀ(V+λI)⁻¹b, (n, G, m)."""
    losses: Floats
    """Σ w(r − ⟨a, μ⟩)², with P = V, q = b and s = Σ w r², (n, G, m)."""
    freedom: Floats
    """tr V(V+λI)⁻¹, how many of d parameters the group knows, (n, G)."""

    @classmethod
    def of(cls, precision: Floats, target: Floats, squares: Floats, lam: float) -> Ballots:
        """The ballots of groups with these V (n, G, d, d), b (n, G, d) and Σ w r² (n, G)."""
        dim = target.shape[-1]
        prior = identity(dim, lam)
        inverse = np.linalg.inv(precision + prior)
        aside = np.matvec(inverse, target)  # (V+λI)⁻¹b
        return cls(
            _packed(precision - prior + lam * lam * inverse, target - lam * aside, np.vecdot(target, aside)),
            _packed(precision, target, squares),
            dim - lam * np.trace(inverse, axis1=-2, axis2=-1),
        )

    def part(self, trials: Bools) -> Ballots:
        """The ballots of some trials, (n,), for `distance` and `solve`: copies of nothing else."""
        return self._replace(terms=self.terms[trials])

    def distance(self, parameter: Floats) -> Floats:
        """r_g of each group at a parameter (n, d), (n, G)."""
        squares = np.vecdot(self.terms, _products(parameter)[:, None])
        return np.sqrt(np.maximum(squares, 0.0, out=squares), out=squares)

    def loss(self, parameter: Floats) -> Floats:
        """Σ w(r − ⟨a, μ⟩)² over the rewards of each group, (n, G)."""
        return np.vecdot(self.losses, _products(parameter)[:, None])

    def solve(self, weights: Floats, lam: float) -> Floats:
        """The minimiser of λ‖μ‖² + Σ ω_g r_g(μ)², (n, d)."""
        matrix, vector = weighted_form(weights, self.terms)
        matrix.reshape(len(matrix), -1)[:, :: vector.shape[1] + 1] += lam  # the diagonal
        found = np.linalg.solve(matrix, vector[..., None])
        return np.asarray(found[..., 0], dtype=float)

    def reach(self, groups: Ints) -> Floats:
        """How far each of so many groups (n,) may disagree, in standard deviations of the noise, (n, G).

        What an honest group's r_g² has on average, and some more the more groups there are.
        """
        return reach(self.freedom, groups)


def reach(freedom: Floats, groups: Ints) -> Floats:
    """`Ballots.reach` for groups that know so many parameters, (n, G)."""
    more = np.sqrt(2.0 * np.log(20.0 * np.maximum(groups, 1)))[:, None]
    return np.sqrt(np.maximum(freedom, 0.0)) + _REACH * more


class BallotBox:
    """The ballots of all groups (B, G). Those of groups that have not changed need not be computed again."""

    def __init__(self, batch: int, dim: int, lam: float) -> None:
        self._lam, size = lam, (dim + 1) * (dim + 2) // 2
        self._held = Ballots(np.zeros((batch, 0, size)), np.zeros((batch, 0, size)), np.zeros((batch, 0)))

    def of(self, trials: Index, groups: RoundGroups, used: int) -> Ballots:
        """The ballots (n, G) of the first ``used`` groups of these trials. What has ``changed`` there is then known."""
        changed, there = groups.changed, self._held.freedom.shape[1]
        if changed.shape[1] > there:
            more = len(changed), changed.shape[1] - there
            rest = (np.zeros((*more, *array.shape[2:])) for array in self._held)
            self._held = Ballots(*(np.concatenate(both, axis=1) for both in zip(self._held, rest, strict=True)))
        row, place = np.nonzero(changed[trials, :used])
        whole = trials[row] * changed.shape[1] + place
        for at in blocks(whole):
            precision, target, squares = (
                flat(array).take(at, axis=0) for array in (groups.precision, groups.target, groups.squares)
            )
            for mine, computed in zip(self._held, Ballots.of(precision, target, squares, self._lam), strict=True):
                flat(mine)[at] = computed
        flat(changed)[whole] = False
        return Ballots(*(part_of(array, trials, used) for array in self._held))


def blocks(rows: Index) -> list[Index]:
    """These rows, some at a time: arrays of matrices for many more take twice as long, since they fit no cache."""
    return [rows[first : first + _BLOCK] for first in range(0, len(rows), _BLOCK)]


def weighted_sum(weights: Floats, values: Floats) -> Floats:
    """Σ_g ω_g x_g over the groups of each trial, for weights (n, G) and values (n, G, …).

    Unlike a matrix product, it adds group to group in order, so that empty groups change no bit.
    """
    size = prod(values.shape[2:])
    if size == 1:  # which einsum adds in another order
        return (weights.reshape(values.shape) * values).cumsum(axis=1)[:, -1]
    total = np.einsum("ng,ngk->nk", weights, values.reshape(*weights.shape, size))
    return total.reshape(len(weights), *values.shape[2:])


def weighted_form(weights: Floats, forms: Floats) -> tuple[Floats, Floats]:
    """Σ ω_g P_g, (n, d, d), and Σ ω_g q_g, (n, d), for weights (n, G) and quadratics (n, G, m) as ballots have them."""
    total = weighted_sum(weights, forms)
    dim = round((2 * total.shape[1]) ** 0.5) - 1
    _, square, twice = _triangle(dim)
    total[:, : len(twice)] /= twice
    matrix = total.take(square, axis=1).reshape(-1, dim, dim)
    return matrix, -0.5 * total[:, len(twice) : -1]


def lengths(matrix: Floats, vector: Floats, least: float) -> Floats:
    """‖v‖_{A⁻¹} of vectors (n, d) for symmetric matrices A (n, d, d) whose eigenvalues are ``least`` or more, (n,).

    With A = LLᵀ it is ‖L⁻¹v‖, and L⁻¹v is the last row of the factor of [[A, v], [vᵀ, c]], for any large c: that takes
    half the time of solving with A.
    """
    n, dim = vector.shape
    whole = np.empty((n, dim + 1, dim + 1))
    whole[:, :dim, :dim], whole[:, dim, :dim], whole[:, :dim, dim] = matrix, vector, vector
    whole[:, dim, dim] = 1.0 + 100.0 * np.vecdot(vector, vector) / least
    row = np.linalg.cholesky(whole)[:, dim, :dim]
    return np.sqrt(np.vecdot(row, row))


@lru_cache(maxsize=64)
def identity(dim: int, scale: float) -> Floats:
    """So many times the identity; made once, since a vote needs it often."""
    return constant(scale * np.eye(dim))


def _packed(matrix: Floats, vector: Floats, constant: Floats) -> Floats:
    """Quadratics with these P (…, d, d), q (…, d) and s (…) as ballots have them, (…, m)."""
    upper, _, twice = _triangle(vector.shape[-1])
    size = len(upper)
    forms = np.empty((*constant.shape, size + vector.shape[-1] + 1))
    np.multiply(matrix.reshape(*constant.shape, -1).take(upper, axis=-1), twice, out=forms[..., :size])
    np.multiply(vector, -2.0, out=forms[..., size:-1])
    forms[..., -1] = constant
    return forms


def _products(parameter: Floats) -> Floats:
    """What a quadratic is multiplied by: the upper triangle of μ μᵀ, μ, and 1, (n, m)."""
    n, dim = parameter.shape
    upper = _triangle(dim)[0]
    size = len(upper)
    found = np.ones((n, size + dim + 1))
    found[:, :size] = (parameter[:, :, None] * parameter[:, None, :]).reshape(n, -1).take(upper, axis=1)
    found[:, size:-1] = parameter
    return found


@lru_cache(maxsize=64)
def _triangle(dim: int) -> tuple[Index, Index, Floats]:
    """The places of the upper triangle in a flat (d, d) matrix, where each entry of the matrix is in the triangle, and
    how often an entry of the triangle counts: twice off the diagonal."""
    row, column = np.triu_indices(dim)
    place = np.zeros((dim, dim), np.intp)
    place[row, column] = place[column, row] = np.arange(len(row))
    return constant(row * dim + column), constant(place.ravel()), constant(np.where(row == column, 1.0, 2.0))
