"""The best linear policy in hindsight, and how far real rewards are from linear."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from robandit.arrays import Bools, Floats
from robandit.lab.environments.decision_sets import DecisionSets

_NEWTON, _CLOSE = 60, 1e-10  # steps, and the relative size of one that ends them
_RIDGE = 1e-6  # per observation: keeps collinear features from running away


def least_squares(sets: DecisionSets) -> Floats:
    """The shortest parameter of least squared error, (d,), in which all decisions count alike."""
    root = np.sqrt(sets.shares)
    return _solve(sets.vectors * root[:, None], sets.rewards * root)


def within_sets(sets: DecisionSets) -> Floats:
    """The same from the differences to the mean of each set: what all actions share explains no choice."""
    size = sets.sizes

    def centred(values: Floats) -> Floats:
        means = np.add.reduceat(values, sets.starts[:-1], axis=0) / (size[:, None] if values.ndim == 2 else size)
        return values - np.repeat(means, size, axis=0)

    root = np.sqrt(sets.shares)
    return _solve(centred(sets.vectors) * root[:, None], centred(sets.rewards) * root)


def _solve(x: Floats, y: Floats) -> Floats:
    return np.asarray(np.linalg.lstsq(x, y, rcond=None)[0], dtype=float)


def logistic(sets: DecisionSets) -> Floats:
    """The parameter of a logistic regression, (d,), by Newton's method; rewards are taken as shares of their range."""
    x, weights = sets.vectors, sets.shares / len(sets)
    low, high = sets.rewards.min(), sets.rewards.max()
    y = (sets.rewards - low) / max(high - low, 1e-12)
    theta, ridge = np.zeros(x.shape[1]), _RIDGE * np.eye(x.shape[1])

    def loss(theta: Floats) -> float:
        z = x @ theta
        return float(weights @ (np.logaddexp(0.0, z) - y * z) + theta @ ridge @ theta / 2.0)

    for _ in range(_NEWTON):
        p = sigmoid(x @ theta)
        slope = x.T @ (weights * (p - y)) + ridge @ theta
        step = np.linalg.solve((x * (weights * p * (1.0 - p))[:, None]).T @ x + ridge, slope)
        part = 1.0
        while part > 1e-6 and loss(theta - part * step) > loss(theta):
            part /= 2.0
        theta = theta - part * step
        if np.linalg.norm(part * step) <= _CLOSE * np.linalg.norm(theta):
            break
    return theta


def sigmoid(z: Floats) -> Floats:
    """1/(1 + e^−z) without overflow."""
    return np.exp(-np.logaddexp(0.0, -z))


class Hindsight(NamedTuple):
    """The best linear policy that was found with all rewards known."""

    value: float
    """Its mean reward."""
    parameter: Floats
    """It plays the action with the largest ⟨a, parameter⟩."""
    how: str
    """How it was found."""


_WAYS = {"least squares": least_squares, "least squares within sets": within_sets, "logistic regression": logistic}


def hindsight(sets: DecisionSets) -> Hindsight:
    """The best of three linear policies, each fitted on all rewards. The very best one is hard to compute."""
    found = [(way(sets), name) for name, way in _WAYS.items()]
    return max((Hindsight(sets.value(sets.vectors @ mu), mu, name) for mu, name in found), key=lambda one: one.value)


class Decile(NamedTuple):
    """A tenth of the actions on offer, by what a model predicts of them."""

    predicted: float
    """The mean prediction."""
    seen: float
    """The mean reward."""
    error: float
    """The standard error of the latter."""


class LinearFit(NamedTuple):
    """How a linear and a logistic model do on decisions that they were not fitted on."""

    linear: float
    """The mean reward of playing what the linear model predicts to be best."""
    logistic: float
    """The mean reward of playing what the logistic model predicts to be best."""
    loss: float
    """How much less that of the linear model is, as a share of the logistic one's; below 0 if it is more."""
    half: float
    """Half of the 95 % interval of that share."""
    deciles: dict[str, list[Decile]]
    """The calibration of each model, the lowest predictions first."""

    @property
    def worst(self) -> float:
        """The most by which a decile of the linear model is off, less two standard errors."""
        return max([0.0, *(abs(one.predicted - one.seen) - 2.0 * one.error for one in self.deciles["linear"])])


def linearity(sets: DecisionSets, first: Bools) -> LinearFit:
    """Fit both models on either half, the ``first`` (n,) or the rest, and predict the other."""
    linear, other = np.zeros(len(sets.rewards)), np.zeros(len(sets.rewards))
    low, width = sets.rewards.min(), max(float(np.ptp(sets.rewards)), 1e-12)
    for half in (first, ~first):
        seen, rows = sets.where(~half), np.repeat(half, sets.sizes)
        linear[rows] = sets.vectors[rows] @ least_squares(seen)
        other[rows] = low + width * sigmoid(sets.vectors[rows] @ logistic(seen))
    earned = [sets.rewards[sets.best(scores)] for scores in (linear, other)]
    gaps, unit = earned[1] - earned[0], max(float(earned[1].mean()), 1e-12)
    return LinearFit(
        linear=float(earned[0].mean()),
        logistic=float(earned[1].mean()),
        loss=float(gaps.mean()) / unit,
        half=1.96 * float(gaps.std(ddof=1)) / len(gaps) ** 0.5 / unit,
        deciles={"linear": _deciles(linear, sets.rewards), "logistic": _deciles(other, sets.rewards)},
    )


def _deciles(predicted: Floats, rewards: Floats) -> list[Decile]:
    order = np.argsort(predicted, kind="stable")
    parts = [part for part in np.array_split(order, 10) if len(part) > 1]
    return [
        Decile(float(predicted[p].mean()), float(rewards[p].mean()), float(rewards[p].std(ddof=1)) / len(p) ** 0.5)
        for p in parts
    ]
