"""The monitor's definition, slowly: explicit inverses, stored rounds, and a cone solver for the minimum.

Nothing here uses the package under test. r_t = <a_t, mu*> + eps_t + c_t with eps_t s_t-sub-Gaussian, w_t = 1/s_t^2,
||mu*|| <= B; for a group g of rounds V = sum w a a^T and b = sum w r a. With probability 1 - delta, for every choice
of lambda_g from its grid,

    sum |c_t| >= min_{||mu|| <= B} sum_g [(||b_g - V_g mu||_{(V_g + lambda_g I)^-1} - rho_g) / kappa_g]_+.

The same holds of features whose columns are multiplied by anything, with a part of delta: one column may stand out.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import cvxpy
import mpmath
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
cp: Any = cvxpy  # which exports its functions without types

POWERS = range(-8, 9)


def prior(j: int) -> float:
    """pi_j = (2/3) / ((|j| + 1)(|j| + 2)): over all integers it adds up to 1."""
    return 2 / 3 / ((abs(j) + 1) * (abs(j) + 2))


def rank(i: int) -> float:
    """1 / ((i + 1)(i + 2)): over i = 0, 1, ... it adds up to 1."""
    return 1 / ((i + 1) * (i + 2))


# ------------------------------------------------------------------------------------ one group


@dataclass(frozen=True)
class SlowGroup:
    """Rounds as they were, how many there will be, and the part of delta that is theirs."""

    actions: Array  # (n, d)
    rewards: Array  # (n,)
    scales: Array  # (n,)
    length: float = 16.0
    share: float = 1.0

    @property
    def dim(self) -> int:
        return self.actions.shape[1]

    @property
    def weights(self) -> Array:
        return 1 / self.scales**2

    @cached_property
    def gram(self) -> Array:
        V = np.zeros((self.dim, self.dim))
        for a, w in zip(self.actions, self.weights, strict=True):
            V += w * np.outer(a, a)
        return V

    @cached_property
    def moment(self) -> Array:
        b = np.zeros(self.dim)
        for a, r, w in zip(self.actions, self.rewards, self.weights, strict=True):
            b += w * r * a
        return b

    @cached_property
    def reach(self) -> float:
        return max((w * float(np.linalg.norm(a)) for a, w in zip(self.actions, self.weights, strict=True)), default=0.0)

    def lam(self, j: int, noise: float) -> float:
        """lambda = 4^j L / (noise^2 d)."""
        return 4.0**j * self.length / (noise**2 * self.dim)

    def rho(self, lam: float, failure: float) -> float:
        """sqrt(log det(I + V/lambda) + 2 log(1/failure)) with failure = delta share_g pi_j."""
        _, log_det = np.linalg.slogdet(np.eye(self.dim) + self.gram / lam)
        return math.sqrt(log_det + 2 * math.log(1 / failure))

    def exact_rho(self, lam: float, failure: float) -> float:
        """The same by 40 digits, from the rounds."""
        with mpmath.workdps(40):
            grown = mpmath.eye(self.dim)
            for a, s in zip(self.actions.tolist(), self.scales.tolist(), strict=True):
                grown += mpmath.matrix(a) * mpmath.matrix(a).T / (mpmath.mpf(s) ** 2 * mpmath.mpf(lam))
            return float(mpmath.sqrt(mpmath.log(mpmath.det(grown)) - 2 * mpmath.log(mpmath.mpf(failure))))

    @property
    def weight(self) -> float:
        return float(self.weights.sum())

    @property
    def peaks(self) -> Array:
        """max w|a_i| for each column."""
        return np.asarray((self.weights[:, None] * np.abs(self.actions)).max(axis=0, initial=0.0))

    def rounding(self, lam: float, bound: float | None) -> float:
        """What is added to rho because sums are rounded: 1e-12 (||b|| + B lambda_max(V)) / sqrt(lambda)."""
        if bound is None:  # then it is less than what these tests look at
            return 0.0
        largest = float(np.linalg.eigvalsh(self.gram)[-1])
        return 1e-12 * (float(np.linalg.norm(self.moment)) + bound * largest) / math.sqrt(lam)

    def kappa(self, lam: float) -> float:
        """max w||a|| / sqrt(lambda + lambda_min(V))."""
        return self.reach / math.sqrt(lam + float(np.linalg.eigvalsh(self.gram)[0]))

    def leverage(self, lam: float) -> float:
        """max w||a||_{(V + lambda I)^-1}: the exact value that kappa must not be below."""
        inverse = np.linalg.inv(self.gram + lam * np.eye(self.dim))
        return max(
            (w * math.sqrt(a @ inverse @ a) for a, w in zip(self.actions, self.weights, strict=True)), default=0.0
        )

    def distance(self, lam: float, mu: Array) -> float:
        """||b - V mu||_{(V + lambda I)^-1}."""
        rest = self.moment - self.gram @ mu
        return math.sqrt(max(0.0, float(rest @ np.linalg.inv(self.gram + lam * np.eye(self.dim)) @ rest)))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What the bound of given groups depends on beside them."""

    noise: float
    parameter_bound: float | None = None
    misspecification: float = 0.0
    delta: float = 0.05
    regularization: float | None = None
    radius_scale: float = 1.0

    def choices(self, group: SlowGroup, column: int) -> list[Choice]:
        """Every norm with its probability of failure: plain ones, and those in which a column stands out."""
        ones = np.ones(group.dim)
        if self.regularization is not None:
            lam = self.regularization
            return [Choice(group, ones, lam, self.delta * group.share, group.kappa(lam))]
        return self._grid(group, ones, 0.75, group.kappa) + self._stretched(group, column)

    def _grid(self, group: SlowGroup, factor: Array, part: float, kappa: Callable[[float], float]) -> list[Choice]:
        least = 1e-11 * float(np.linalg.eigvalsh(group.gram)[-1])
        grid = [(group.lam(j, self.noise), self.delta * part * group.share * prior(j)) for j in POWERS]
        return [Choice(group, factor, lam, failure, kappa(lam)) for lam, failure in grid if lam >= least]

    def _stretched(self, group: SlowGroup, column: int) -> list[Choice]:
        """All columns but one divided by 2^7, or by 2^10, 2^13, ... where they are over 8, 64, ... times as large."""
        peak, steps = float(group.peaks[column]), 0
        while peak > 0 and group.reach > 8 * 8**steps * peak * (1 + 1e-12) and steps < 6:
            steps += 1
        steps = steps if peak > 0 else 6
        factor = np.full(group.dim, 2.0 ** -(7 + 3 * steps))
        factor[column] = 1.0
        own, rest = replace(group, actions=group.actions * factor), group.reach * 2.0 ** -(7 + 3 * steps)

        def kappa(lam: float) -> float:
            inverse = np.linalg.inv(own.gram + lam * np.eye(own.dim))
            along, across = inverse[column, column], float(np.linalg.norm(np.delete(inverse[column], column)))
            widest = float(np.linalg.eigvalsh(inverse)[-1])
            bounds = (peak**2 + rest**2) * widest, peak**2 * along + 2 * peak * rest * across + rest**2 * widest
            return math.sqrt(min(bounds))

        return self._grid(own, factor, 0.25 * rank(group.dim - 1 - column) * rank(steps), kappa)

    def rho(self, choice: Choice) -> float:
        """The radius, with what rounding needs."""
        group, lam, far = choice.group, choice.lam, self.parameter_bound
        bias = self.misspecification * math.sqrt(group.weight)
        rounding = group.rounding(lam, None if far is None else far / float(choice.factor.min()))
        return self.radius_scale * group.rho(lam, choice.failure) + bias + rounding

    def cone(self, choice: Choice) -> Cone:
        """With A = (V + lambda I)^{-1/2} V and y = (V + lambda I)^{-1/2} b."""
        group = choice.group
        values, vectors = np.linalg.eigh(np.linalg.inv(group.gram + choice.lam * np.eye(group.dim)))
        root = vectors @ np.diag(np.sqrt(values)) @ vectors.T
        return Cone(root @ group.gram / choice.factor, root @ group.moment, self.rho(choice), choice.kappa)

    def says(self, choice: Choice, mu: Array) -> float:
        """(||b - V mu|| - rho)/kappa."""
        return (choice.group.distance(choice.lam, mu / choice.factor) - self.rho(choice)) / choice.kappa

    def best(self, group: SlowGroup, column: int, mu: Array) -> Choice:
        """The choice that says most at mu."""
        return max(self.choices(group, column), key=lambda choice: self.says(choice, mu))

    def most(self, groups: Sequence[SlowGroup], mu: Array) -> float:
        """The sum at mu with these choices: no bound can exceed it, whatever mu in the ball and the norms are."""
        column = steady(groups)
        return sum(max(0.0, self.says(self.best(group, column, mu), mu)) for group in heard(groups))


class Choice(NamedTuple):
    """A norm for a group: its rounds with columns multiplied by something, lambda, and what delta pays for it."""

    group: SlowGroup
    factor: Array
    lam: float
    failure: float
    kappa: float


def steady(groups: Sequence[SlowGroup]) -> int:
    """The column that varies least, sum w a^2 / (max w|a|)^2; of equals the last."""
    squares = sum(np.diagonal(group.gram) for group in groups)
    most = np.max([group.peaks for group in groups], axis=0)
    even = squares / np.maximum(most**2, 1e-300)
    return max(range(len(even)), key=lambda i: (even[i], i))


def heard(groups: Sequence[SlowGroup]) -> list[SlowGroup]:
    """Those with rounds in them."""
    return [group for group in groups if group.reach > 0]


# ------------------------------------------------------------------------------------ the minimum over mu


class Cone(NamedTuple):
    """The summand [(||y - A mu|| - rho) / kappa]_+."""

    matrix: Array
    vector: Array
    rho: float
    kappa: float

    def value(self, mu: Array) -> float:
        return max(0.0, (float(np.linalg.norm(self.vector - self.matrix @ mu)) - self.rho) / self.kappa)


def total(groups: Sequence[Sequence[Cone]], mu: Array) -> float:
    """The sum over groups of the largest of their cones."""
    return sum(max(cone.value(mu) for cone in cones) for cones in groups)


def cheapest(groups: Sequence[Sequence[Cone]], bound: float | None) -> tuple[float, Array]:
    """The least sum over the ball, or over all mu, and where Clarabel finds it.

    The value is that of the sum at a point of the ball, and so never below the minimum.
    """
    dim = len(groups[0][0].vector)
    mu, excess = cp.Variable(dim), cp.Variable(len(groups), nonneg=True)
    limits: list[Any] = [] if bound is None else [cp.norm(mu, 2) <= 1]
    unit = 1.0 if bound is None else bound
    costs = np.array([max(max(cone.rho, 1e-12) / cone.kappa for cone in cones) for cones in groups])
    for g, cones in enumerate(groups):
        for cone in cones:
            size = max(cone.rho, 1e-12)
            allowed = 1 + (costs[g] * cone.kappa / size) * excess[g]
            limits.append(cp.norm((cone.vector - unit * (cone.matrix @ mu)) / size, 2) <= allowed)
    problem = cp.Problem(cp.Minimize((costs / costs.max()) @ excess), limits)
    beyond = 0.0 if bound is None else 1.0
    found = [unit * at / max(1.0, beyond * float(np.linalg.norm(at))) for at in _solved(problem, mu)]
    best = min(found, key=lambda at: total(groups, at))
    return total(groups, best), best


def _solved(problem: Any, variable: Any) -> Iterator[Array]:
    """Where Clarabel puts the minimum, as tightly as it can."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # "may be inaccurate": the comparison shows whether it is
        for tolerance in (1e-12, 1e-10, 1e-8):
            names = ("tol_gap_abs", "tol_gap_rel", "tol_feas")
            try:
                problem.solve(solver=cp.CLARABEL, max_iter=500, **dict.fromkeys(names, tolerance))
            except cp.error.SolverError:
                continue
            yield np.asarray(variable.value)
            if problem.status == "optimal":
                return


def four_passes(groups: Sequence[SlowGroup], setting: Setting) -> float:
    """The norms that say most at a guess; also those that say most at their minimum; and so on. The best value."""
    rounds = heard(groups)
    if not rounds:
        return 0.0
    ridge = sum(group.gram for group in rounds) + np.eye(rounds[0].dim) / setting.noise**2
    guess: Array = np.asarray(np.linalg.solve(ridge, sum(group.moment for group in rounds)), dtype=float)
    if setting.parameter_bound is not None:
        guess = guess * min(1.0, setting.parameter_bound / float(np.linalg.norm(guess)))
    value, column, cones = 0.0, steady(groups), [list[Cone]() for _ in rounds]
    for _ in range(4):
        for own, group in zip(cones, rounds, strict=True):
            own.append(setting.cone(setting.best(group, column, guess)))
        found, guess = cheapest(cones, setting.parameter_bound)
        value = max(value, found)
    return value


# ------------------------------------------------------------------------------------ problems


def random_groups(
    rng: np.random.Generator, *, dim: int, number: int, condition: float, bound: float, noise: float, lies: str
) -> list[SlowGroup]:
    """Groups of none to 200 rounds of one world; what is not `clean` has flips in every third group, or huge lies."""
    mu = rng.normal(size=dim)
    mu *= bound * rng.uniform(0.3, 1.0) / np.linalg.norm(mu)
    basis = np.linalg.qr(rng.normal(size=(dim, dim)))[0]
    spread = np.sqrt(np.geomspace(1.0, 1 / condition, dim))
    groups = []
    for g in range(number):
        count = int(rng.choice([0, 1, 3, 16, 64, 200]))
        actions = rng.normal(size=(count, dim))
        actions = actions / np.maximum(np.linalg.norm(actions, axis=1, keepdims=True), 1.0) * spread @ basis
        scales = noise * rng.uniform(0.5, 2.0, count)
        rewards = actions @ mu + scales * rng.normal(size=count)
        if lies != "clean" and g % 3 == 0:
            rewards = rewards - 2 * actions @ mu
        if lies == "huge":
            rewards = rewards + 1e4 * bound * rng.normal(size=count) * (rng.random(count) < 0.1)
        groups.append(SlowGroup(actions, rewards, scales, float(rng.choice([16.0, 64.0, 256.0])), rank(g)))
    return groups


# ------------------------------------------------------------------------------------ blocks


def tiles(rounds: int, block: int = 16, shortest: int | None = None) -> list[tuple[int, int]]:
    """First round and length of the blocks that there are after so many rounds, none of them below `shortest`.

    From the whole down: a dyadic window is a block once it lies, by twice its length, behind the beginning of the
    stream and before the round at which the last block was opened; else its halves are looked at.
    """
    shortest = block if shortest is None else shortest
    opened = (rounds - 1) // block * block

    def cut(start: int, length: int) -> Iterator[tuple[int, int]]:
        if start >= rounds:
            return
        if length <= shortest or 2 * length <= min(start, opened - start - length):
            yield start, length
        else:
            yield from cut(start, length // 2)
            yield from cut(start + length // 2, length // 2)

    whole = block
    while whole < max(rounds, shortest):
        whole *= 2
    return list(cut(0, whole))


def share(start: int, length: int, block: int = 16) -> float:
    """What part of delta a dyadic block may use: 1/((j+1)(j+2)) for its length, 1/((i+1)(i+2)) for its place."""
    return rank(int(math.log2(length // block))) * rank(start // length)


@dataclass
class SlowMonitor:
    """One stream, kept whole."""

    dim: int
    noise: float
    sources: int = 0
    block: int = 16
    reward_range: tuple[float, float] = (-math.inf, math.inf)

    def __post_init__(self) -> None:
        self.rounds: list[tuple[Array, float, float, Any]] = []  # action, reward within the range, sigma, source
        self.certain, self.beyond = 0.0, 0

    def observe(self, action: Array, reward: float, sigma: float | None = None, source: Any = None) -> None:
        """A round; without a reward if that is NaN."""
        lowest, highest = self.reward_range
        inside = reward if math.isnan(reward) else min(max(reward, lowest), highest)
        if inside != reward and not math.isnan(reward):
            self.certain += abs(reward - inside)
            self.beyond += 1
        self.rounds.append((action, inside, self.noise if sigma is None else sigma, source))

    def group(self, numbers: Sequence[int], length: float, share: float) -> SlowGroup:
        """The group of the rounds with these numbers that had rewards."""
        rounds = [self.rounds[t] for t in numbers if not math.isnan(self.rounds[t][1])]
        actions = np.array([action for action, *_ in rounds]).reshape(len(rounds), self.dim)
        rewards, scales = np.array([r for _, r, *_ in rounds]), np.array([s for *_, s, _ in rounds])
        return SlowGroup(actions, rewards, scales, length, share)

    def partitions(self) -> Iterator[tuple[list[int], list[SlowGroup]]]:
        """For every shortest length below the number of rounds: where the blocks begin, and they."""
        now, shortest = len(self.rounds), self.block
        while now and (shortest < now or shortest == self.block):
            blocks = tiles(now, self.block, shortest)
            yield (
                [start for start, _ in blocks],
                [
                    self.group(
                        range(start, min(start + length, now)),
                        length,
                        (0.5 if self.sources else 1.0) * share(start, length, self.block),
                    )
                    for start, length in blocks
                ],
            )
            shortest *= 2

    def by_source(self) -> list[SlowGroup]:
        """The first sources to appear, and all others together."""
        labels: list[Any] = []
        for *_, source in self.rounds:
            if source not in labels:
                labels.append(source)
        own = [[label] for label in labels[: self.sources]]
        if labels[self.sources :]:
            own.append(labels[self.sources :])
        return [
            self.group([t for t, (*_, source) in enumerate(self.rounds) if source in those], 1024.0, 0.5 * rank(i))
            for i, those in enumerate(own)
        ]
