"""SAVE: variance-aware without being told the variances."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from robandit.arrays import TINY, Bools, Floats, Index, Ints
from robandit.geometry.ellipsoid import TIE, Ellipsoid
from robandit.geometry.regions import Optimum, Region
from robandit.geometry.ridge import Ridge
from robandit.policies import radius
from robandit.policies.base import Policy
from robandit.policies.decision import Search
from robandit.policies.parts import FieldArrays, Levels


@dataclass(kw_only=True)
class LayerStatistics(FieldArrays):
    """The statistics of every layer, each from its own rounds; `Levels` says which row."""

    ridge: Ridge
    counts: Ints
    """|Ψ_ℓ|, the number of rounds that a layer has learnt from."""
    loss: Floats
    """The least of λ‖θ‖² + Σ w²(r − ⟨a, θ⟩)² over θ."""


@dataclass(kw_only=True, eq=False)
class SAVE(Policy[LayerStatistics]):
    """Layers of ever sharper estimates, each with its own rounds (Zhao, He, Zhou, Zhang and Gu 2023).

    Layer ℓ explores while some action that is still in play has ‖a‖_{Σ_ℓ⁻¹} > 2^−ℓ, and then drops those that it can
    tell from the best. Assumes clean rewards, and does not use σ. Regret Õ(d√(Σσ_t²) + d) with probability 1 − δ; no
    guarantee under corruption. Needs finite decision sets. Level L + 1 means that all layers agree: its rewards are not
    learnt from. Of the actions that a layer may explore, it takes the most promising.
    """

    horizon: int
    delta: float = 0.05
    radius_scale: float = 1.0

    cost = 3.0

    def start(self) -> LayerStatistics:
        self.setting = self.constants(self.delta)
        self.enough = 1.0 / (self.noise_range * self.horizon**1.5)  # α
        layers = max(1, ceil(log2(1.0 / self.enough)))  # L
        self.layout = Levels(layers, self.batch)
        lam = np.repeat(np.exp2(-2.0 * np.arange(1.0, layers + 1.0)), self.batch)
        return LayerStatistics(
            ridge=self.new_ridge(rows=self.layout.size, regularization=lam),
            counts=np.zeros(self.layout.size, np.int64),
            loss=np.zeros(self.layout.size),
        )

    @property
    def levels(self) -> int:
        """L layers, and one more level for when they agree."""
        return self.layout.count + 1

    def confidence(self, level: Ints) -> Ellipsoid:
        """The ellipsoid of a layer of each trial."""
        rows = self.layout.rows(level, self.rows)
        return Ellipsoid.around(self.stats.ridge, self._radii(level.astype(float), self.rows), rows)

    def estimate(self) -> Ellipsoid:
        """The ellipsoid of the layer that has learnt most."""
        return self.copied(self.confidence(self.layout.fullest(self.stats.counts)))

    def _radii(self, layer: Floats, trials: Index) -> Floats:
        """β̂ of a layer of each of these trials."""
        rows, k = self.layout.rows(layer.astype(np.intp), trials), (self.t[trials] - 1).astype(float)
        theta, layers = self.stats.ridge.mean[rows], self.layout.count
        measured = np.maximum(self.stats.loss[rows] - np.exp2(-2.0 * layer) * np.vecdot(theta, theta), 0.0)
        sharp = np.exp2(layer) >= 64.0 * np.sqrt(np.log(4.0 * (k + 1.0) ** 2 * layers / self.delta))
        variance = np.where(sharp, measured, self.noise_range**2 * self.stats.counts[rows])
        return self.radius_scale * radius.save(self.setting, layer, k, layers, variance)

    def search(self, actions: Floats | Region, level: Ints) -> Search:
        if not isinstance(actions, np.ndarray):
            raise ValueError("SAVE needs finite decision sets: it compares the actions one by one")
        chosen, values = np.zeros(actions.shape[:2], dtype=bool), np.zeros(self.batch)
        found, alive = np.zeros(self.batch, np.int64), np.ones(actions.shape[:2], dtype=bool)
        left = self.rows
        for layer in range(1, self.layout.count + 1):
            chosen[left], values[left], found[left], alive[left] = self._visit(layer, left, actions[left], alive[left])
            left = left[found[left] == 0]
            if not left.size:
                break
        return Search(Optimum(values, chosen, None, np.ones(self.batch, dtype=bool)), level=found)

    def _visit(self, layer: int, trials: Index, actions: Floats, alive: Bools) -> tuple[Bools, Floats, Ints, Bools]:
        """What a layer makes of the actions in play (n, K): its choice, the value, the level, and what it keeps.

        The level is 0 where it chooses nothing and leaves what it keeps to the next layer.
        """
        rows, share, ridge = self.layout.rows(layer, trials), 2.0**-layer, self.stats.ridge
        along = actions @ ridge.root[rows]
        widths, means = np.sqrt(np.vecdot(along, along)), np.matvec(actions, ridge.mean[rows])
        beta = self._radii(np.full(len(trials), float(layer)), trials)[:, None]
        widest = np.where(alive, widths, 0.0).max(axis=1)
        agreed = widest <= self.enough
        pool = alive & (agreed[:, None] | (widths > share))
        heights = np.where(pool, means + beta * widths, -np.inf)
        best = heights.max(axis=1)
        slack = TIE * (np.abs(best) + (beta * widths).max(axis=1))
        kept = means >= np.where(alive, means, -np.inf).max(axis=1, keepdims=True) - 2.0 * share * beta
        level = np.where(agreed, self.levels, np.where(widest > share, layer, 0))
        return pool & (heights >= (best - slack)[:, None]), best, level, alive & kept

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        stats, agreed = self.stats, level > self.layout.count
        layer = np.where(agreed, 1, level)
        learnt = (weights > 0.0) & ~agreed
        rows = self.layout.rows(layer, self.rows)
        width = stats.ridge.widths(actions, rows)
        weights = learnt * np.minimum(1.0, np.exp2(-layer) / np.maximum(width, TINY)) ** 2  # w²
        surprise = rewards - np.vecdot(actions, stats.ridge.mean[rows])
        stats.loss[rows] += weights * surprise**2 / (1.0 + weights * width**2)
        stats.ridge.update(actions, rewards, weights, rows)
        stats.counts[rows] += learnt
