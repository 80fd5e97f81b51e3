"""What policies with confidence sets share: radii, variance weights, and optimism over one ellipsoid."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.regions import Region, optimise
from robandit.geometry.ridge import Ridge
from robandit.inputs import not_negative, positive
from robandit.policies.base import Policy, Search
from robandit.policies.radius import Setting


@dataclass(kw_only=True, eq=False)
class Confident(Policy):
    """A policy whose confidence sets have the theory's radii, times ``radius_scale``."""

    delta: float = 0.05
    """δ, the probability with which the guarantees may fail."""
    radius_scale: float = 1.0
    """Multiplies every radius. 1 is the theory; the README says how wide that is."""

    def _start(self) -> None:
        super()._start()
        self.radius_scale = positive("radius_scale", self.radius_scale)
        self.delta = positive("delta", self.delta)
        if self.delta >= 1.0:
            raise ValueError(f"delta must be below 1, got {self.delta!r}")
        self._setting = Setting(
            dim=self.dim,
            noise_range=self.noise_range,
            action_bound=self.action_bound,
            parameter_bound=self.parameter_bound,
            delta=self.delta,
            regularization=self._lambda,
            sigma_floor=self._floor(),
        )

    def _floor(self) -> float:
        """The least σ̄ by which observations are weighted: 1 without weights."""
        return 1.0


@dataclass(kw_only=True, eq=False)
class Weighted(Confident):
    """Weights each observation by 1/σ̄² with σ̄ = max{σ_floor, σ}."""

    sigma_floor: float | None = None
    """The least σ̄; the paper's by default."""

    def _start(self) -> None:
        if self.sigma_floor is None:
            self.sigma_floor = self._paper_floor()
        self.sigma_floor = not_negative("sigma_floor", self.sigma_floor)
        if self.sigma_floor == 0.0 and getattr(self, "radius", None) is None:
            raise ValueError(
                "sigma_floor must be > 0, got 0: the theory's radius divides by it; or give a fixed radius"
            )
        super()._start()

    def _paper_floor(self) -> float:
        return (self.noise_range + 1.0) / self.dim**0.5  # alg:2 and alg:1, the line that sets σ̄_t

    def _floor(self) -> float:
        return float(self.sigma_floor or 0.0)

    def _weights(self, sigma: Floats) -> Floats:
        return np.maximum(sigma, self._floor()) ** -2.0

    def _check_sigma(self, sigma: Floats) -> None:
        if self.sigma_floor == 0.0 and sigma.min() < 1e-100:
            raise ValueError(f"sigma must be > 0 (at least 1e-100) where sigma_floor is 0, got {sigma.min()}")


class Levelled(Policy):
    """A policy of several parts, numbered from 1 on, one of which chooses each round."""

    @property
    @abstractmethod
    def levels(self) -> int:
        """How many there are."""

    def _read_level(self, level: ArrayLike) -> Ints:
        array = np.asarray(level)
        if array.size != self._batch or array.dtype.kind not in "iu":
            raise ValueError(f"level must be an integer for each trial, got {level!r}")
        if array.min() < 1 or array.max() > self.levels:
            raise ValueError(f"level must lie in 1 … {self.levels}, got {level!r}")
        return array.reshape(self._batch).astype(np.int64)


@dataclass(kw_only=True, eq=False)
class OneEllipsoid(Policy):
    """Plays argmax_{a ∈ D} max_{μ ∈ C} ⟨a, μ⟩ with C = {μ : ‖μ − μ_t‖_{Σ_t} ≤ radius}."""

    def _start(self) -> None:
        super()._start()
        self._ridge = Ridge(rows=self._batch, dim=self.dim, regularization=self._lambda)

    @abstractmethod
    def _radii(self) -> Floats:
        """The radius of each trial's ellipsoid, (B,)."""

    def estimate(self) -> Ellipsoid:
        held = Ellipsoid.around(self._ridge, self._radii(), self._rows)
        return held[0] if self._single else held

    def _search(self, actions: Floats | Region, level: Ints) -> Search:
        confidence = Ellipsoid.around(self._ridge, self._radii())
        return Search(optimise(actions, confidence), self._never, self._zeros)

    def _learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        self._ridge.update(actions, rewards, weights)

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return self._ridge.arrays()


@dataclass(kw_only=True, eq=False)
class OneRadius(OneEllipsoid, Confident):
    """One ellipsoid with the theory's radius, or with a number in its place."""

    radius: float | None = None
    """A fixed radius instead of the theory's, as people set LinUCB's width. ``radius_scale`` does not touch it."""

    def _start(self) -> None:
        super()._start()
        if self.radius is not None:
            self.radius = not_negative("radius", self.radius)

    @abstractmethod
    def _theory(self) -> Floats:
        """The theory's radius of each trial, (B,)."""

    def _radii(self) -> Floats:
        if self.radius is not None:
            return np.full(self._batch, self.radius)
        return self.radius_scale * self._theory()
