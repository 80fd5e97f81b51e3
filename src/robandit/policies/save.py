"""SAVE: variance-aware without being told the variances."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Bools, Floats, Ints
from robandit.geometry.ellipsoid import TIE, Ellipsoid
from robandit.geometry.regions import Optimum, Region
from robandit.geometry.ridge import Ridge
from robandit.inputs import integer
from robandit.policies import radius
from robandit.policies.base import Search
from robandit.policies.confidence import Confident, Levelled


@dataclass(kw_only=True, eq=False)
class SAVE(Levelled, Confident):
    """Layers of ever sharper estimates, each with its own rounds (Zhao, He, Zhou, Zhang and Gu 2023).

    Layer ℓ explores while some action that is still in play has ‖a‖_{Σ_ℓ⁻¹} > 2^−ℓ, and then drops those that it can
    tell from the best. Assumes clean rewards, and does not use σ. Regret Õ(d√(Σσ_t²) + d) with probability 1 − δ; no
    guarantee under corruption. Needs finite decision sets. Level L + 1 means that all layers agree: its rewards are not
    learnt from. Of the actions that a layer may explore, it takes the most promising.
    """

    horizon: int
    """T, the number of rounds that the guarantee is for."""

    cost = 3.0

    def _start(self) -> None:
        super()._start()
        self.horizon = integer("horizon", self.horizon, least=1)
        self._enough = 1.0 / (self.noise_range * self.horizon**1.5)  # α
        self._layers = max(1, ceil(log2(1.0 / self._enough)))  # L
        self._level = np.arange(1, self._layers + 1, dtype=float)
        # Row (ℓ − 1)·B + b is layer ℓ of trial b.
        lam = np.repeat(np.exp2(-2.0 * self._level), self._batch)
        self._ridge = Ridge(rows=self._layers * self._batch, dim=self.dim, regularization=lam)
        self._counts: Ints = np.zeros(self._layers * self._batch, np.int64)  # |Ψ_ℓ|
        self._loss: Floats = np.zeros(self._layers * self._batch)  # the least of λ‖θ‖² + Σ w²(r − ⟨a, θ⟩)²

    @property
    def levels(self) -> int:
        """L layers, and one more level for when they agree."""
        return self._layers + 1

    def estimate(self) -> Ellipsoid:
        """That of the layer that has learnt most."""
        layer = self._counts.reshape(self._layers, self._batch).argmax(axis=0)
        rows = layer * self._batch + self._rows
        held = Ellipsoid.around(self._ridge, self._radii(layer + 1.0, self._rows), rows)
        return held[0] if self._single else held

    def _radii(self, layer: Floats, trials: NDArray[np.intp]) -> Floats:
        """β̂ of a layer of each of these trials."""
        rows, k = (layer.astype(np.intp) - 1) * self._batch + trials, self._updates[trials].astype(float)
        theta = self._ridge.mean[rows]
        measured = np.maximum(self._loss[rows] - np.exp2(-2.0 * layer) * np.vecdot(theta, theta), 0.0)
        sharp = np.exp2(layer) >= 64.0 * np.sqrt(np.log(4.0 * (k + 1.0) ** 2 * self._layers / self.delta))
        variance = np.where(sharp, measured, self.noise_range**2 * self._counts[rows])
        return self.radius_scale * radius.save(self._setting, layer, k, self._layers, variance)

    def _search(self, actions: Floats | Region, level: Ints) -> Search:
        if not isinstance(actions, np.ndarray):
            raise ValueError("SAVE needs finite decision sets: it compares the actions one by one")
        chosen, values = np.zeros(actions.shape[:2], dtype=bool), np.zeros(self._batch)
        found, alive = np.zeros(self._batch, np.int64), np.ones(actions.shape[:2], dtype=bool)
        left = self._rows
        for layer in range(1, self._layers + 1):
            chosen[left], values[left], found[left], alive[left] = self._visit(layer, left, actions[left], alive[left])
            left = left[found[left] == 0]
            if not left.size:
                break
        optimum = Optimum(values, chosen, None, np.ones(self._batch, dtype=bool))
        return Search(optimum, self._never, self._zeros, found)

    def _visit(
        self, layer: int, trials: NDArray[np.intp], actions: Floats, alive: Bools
    ) -> tuple[Bools, Floats, Ints, Bools]:
        """What a layer makes of the actions in play (n, K): its choice, the value, the level, and what it keeps.

        The level is 0 where it chooses nothing and leaves what it keeps to the next layer.
        """
        rows, share = (layer - 1) * self._batch + trials, 2.0**-layer
        along = actions @ self._ridge.root[rows]
        widths, means = np.sqrt(np.vecdot(along, along)), np.matvec(actions, self._ridge.mean[rows])
        beta = self._radii(np.full(len(trials), float(layer)), trials)[:, None]
        widest = np.where(alive, widths, 0.0).max(axis=1)
        agreed = widest <= self._enough
        pool = alive & (agreed[:, None] | (widths > share))
        heights = np.where(pool, means + beta * widths, -np.inf)
        best = heights.max(axis=1)
        slack = TIE * (np.abs(best) + (beta * widths).max(axis=1))
        kept = means >= np.where(alive, means, -np.inf).max(axis=1, keepdims=True) - 2.0 * share * beta
        level = np.where(agreed, self.levels, np.where(widest > share, layer, 0))
        return pool & (heights >= (best - slack)[:, None]), best, level, alive & kept

    def _learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        layer = np.where(level > self._layers, 1, level)
        learnt = (weights > 0.0) & (level <= self._layers)
        rows = (layer - 1) * self._batch + self._rows
        width = self._ridge.widths(actions, rows)
        weights = learnt * np.minimum(1.0, np.exp2(-layer) / np.maximum(width, 1e-300)) ** 2  # w²
        surprise = rewards - np.vecdot(actions, self._ridge.mean[rows])
        self._loss[rows] += weights * surprise**2 / (1.0 + weights * width**2)
        self._ridge.update(actions, rewards, weights, rows)
        self._counts[rows] += learnt

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return self._ridge.arrays() | {"counts": self._counts, "loss": self._loss}
