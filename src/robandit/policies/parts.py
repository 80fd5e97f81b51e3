"""The parts that policies hold: statistics, weights, radii, levels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import TINY, Bools, Floats, Index, Ints
from robandit.policies import radius
from robandit.policies.radius import Setting


class Statistics(Protocol):
    """What a policy has learnt, as a value: arrays by name, written to in place."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All of it by name, as `state` saves it."""


@runtime_checkable
class GrowingStatistics(Protocol):
    """Statistics whose arrays grow with what is learnt."""

    def make_room(self, saved: Mapping[str, NDArray[Any]] | None) -> None:
        """Make the arrays as large as those of a saved state, or without one as large as they can become."""


class FieldArrays:
    """Implements `Statistics.arrays` for a dataclass of arrays and of parts."""

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All arrays by name. A part's arrays are prefixed with its field name, except for `ridge`."""
        found: dict[str, NDArray[Any]] = {}
        for item in fields(self):  # type: ignore[arg-type]  # those who inherit are dataclasses
            value = getattr(self, item.name)
            if isinstance(value, np.ndarray):
                found[item.name] = value
            else:
                prefix = "" if item.name == "ridge" else f"{item.name}_"
                found |= {prefix + name: array for name, array in value.arrays().items()}
        return found


class SigmaBar:
    """σ̄ = max{floor, σ}, the standard deviation to weigh an observation by.

    >>> SigmaBar(None, default=0.5)(np.array([0.1, 0.9])).tolist()
    [0.5, 0.9]
    """

    def __init__(self, floor: float | None, *, default: float, fixed_radius: float | None = None) -> None:
        self.floor = default if floor is None else floor
        if self.floor == 0.0 and fixed_radius is None:
            raise ValueError("sigma_floor must be > 0, got 0: the theory's radius divides by it")

    def __call__(self, sigma: Floats) -> Floats:
        if self.floor == 0.0 and sigma.min() < 1e-100:
            raise ValueError(f"sigma must be > 0 (at least 1e-100) where sigma_floor is 0, got {sigma.min()}")
        return np.maximum(sigma, self.floor)


@dataclass(frozen=True)
class Radius:
    """The theory's radius times a scale, or a fixed one in its place."""

    theory: Callable[[Any], Floats]
    scale: float
    fixed: float | None = None

    def __call__(self, where: NDArray[Any]) -> Floats:
        """The radii (B,) at t, or at whatever else the theory's radius depends on."""
        if self.fixed is not None:
            return np.full(len(where), self.fixed)
        radii = self.theory(where)
        return radii if self.scale == 1.0 else self.scale * radii


@dataclass(frozen=True)
class Constant:
    """A radius that is the same in every round: one number, or one for each trial."""

    value: Floats

    def __call__(self, t: Ints) -> Floats:
        return np.broadcast_to(self.value, len(t))


@dataclass(frozen=True)
class Levels:
    """The row layout for levels: row (ℓ − 1)·B + b is level ℓ of trial b."""

    count: int
    batch: int

    @property
    def size(self) -> int:
        """The number of rows."""
        return self.count * self.batch

    def rows(self, level: Ints | int, trial: Index) -> Index:
        """The rows of a level of each of these trials."""
        return (level - 1) * self.batch + trial

    def apart(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array over all rows as one over levels and trials, (L, B)."""
        return array.reshape(self.count, self.batch)

    def fullest(self, counts: Ints) -> Ints:
        """For each trial, (B,), the level with the largest count."""
        return self.apart(counts).argmax(axis=0) + 1


def total_lies(corruption: Any, noise_range: float, horizon: int) -> Floats:
    """The total corruption Σ|c_t|, in units of reward, that a policy allows for: √T if it is unknown.

    ``corruption`` is C in the units of eq. (def:corruption): one number, or one for each trial; None if it is unknown.
    """
    if corruption is None:
        return np.sqrt(np.float64(horizon))
    return (noise_range + 1.0) * np.asarray(corruption, dtype=float)


def leverage_weight(threshold: Floats, width: Floats) -> Floats:
    """CW-OFUL's min{1, α/‖a‖_{Σ⁻¹}}; 1 for an action of no width."""
    return np.minimum(1.0, threshold / np.maximum(width, TINY))


class CorruptionWeights:
    """CW-OFUL's weights, and the radius that goes with them (He, Zhou, Zhang and Gu 2022).

    ``threshold``, if given, takes the place of α, which otherwise follows from the corruption.
    """

    def __init__(self, setting: Setting, corruption: Any, horizon: int, threshold: float | None = None) -> None:
        lies = total_lies(corruption, setting.noise_range, horizon)
        self.threshold = radius.cw_threshold(setting, lies) if threshold is None else np.asarray(threshold)
        unknown = corruption is None
        self.radius = Constant(
            radius.cw_oful_unknown(setting, horizon) if unknown else radius.cw_oful(setting, horizon, lies)
        )

    def __call__(self, width: Floats) -> Floats:
        """The weight of an observation whose action has this ‖a‖_{Σ⁻¹}, (B,)."""
        return leverage_weight(self.threshold, width)


def split_ties(maximisers: Bools) -> Floats:
    """The probability (n, K) of each action: 1 for the best, divided between those that tie."""
    return maximisers / np.add.reduce(maximisers, axis=1, keepdims=True, dtype=float)


def one_of(maximisers: Bools, uniform: Floats) -> Index:
    """Pick one of the tied best actions in each row (n, K), uniformly, from a uniform number each."""
    rank = (uniform * maximisers.sum(axis=1)).astype(np.intp)
    return (maximisers.cumsum(axis=1) > rank[:, None]).argmax(axis=1)
