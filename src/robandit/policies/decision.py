"""The `Decision` that `choose` returns and `update` takes, and the checks on what callers pass to both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from robandit.arrays import Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.regions import Box, Optimum, Polytope, Region
from robandit.inputs import as_floats, first_bad

Actions: TypeAlias = ArrayLike | Region | Polytope
"""A decision set as callers pass it: an array of actions, or an infinite set."""

_WORTH_A_COPY = 2000  # numbers: smaller sets are checked as fast as compared
_SLACK = 1e-6  # by how much ‖a‖ may exceed its bound through rounding, in single precision too


class NoInfo(NamedTuple):
    """The `Decision.info` of a policy that reports nothing more."""


NO_INFO = NoInfo()


@dataclass(slots=True, eq=False, kw_only=True)
class Decision:
    """What `choose` answers: plain values, or arrays over the trials of a batch.

    `update` reads ``round``, ``action``, ``sigma``, ``level`` and ``source`` alone, so a decision can be made again
    from a log.
    """

    round: int
    """The number of the round, from 1 on. The rounds of a warm start count."""
    action: Any
    """The features of the chosen action."""
    index: Any = -1
    """The place of the chosen action in a finite decision set; −1 in an infinite one."""
    sigma: Any = None
    """The standard deviation declared for the action's reward."""
    value: Any = np.nan
    """The optimistic value: the largest mean reward that the confidence set allows any action."""
    level: Any = 0
    """Which part of the policy chose: the level f(t) of Multi-level weighted OFUL, the base of a master. It is 0 if the
    policy has only one part."""
    source: Any = None
    """Where the traffic comes from, as the caller named it: text or a whole number."""
    explored: Any = False
    """Whether the action was drawn uniformly, as `exploration` asks."""
    certified: Any = True
    """Whether the optimum over action and parameter is proven to be the global one."""
    propensity: Any = None
    """The probability of choosing this action, if it was asked for."""
    info: Any = NO_INFO
    """What else the policy reports about this choice, as a named tuple that each policy defines."""


class Search(NamedTuple):
    """The best action under the confidence set of each trial, and how that set was found."""

    optimum: Optimum
    info: Any = NO_INFO
    """A named tuple of arrays (B,), which becomes `Decision.info`."""
    level: Ints | None = None
    """The level (B,) that chose, if the search decides it; otherwise None."""


class RoundCounter:
    """The number of the last round that was decided."""

    __slots__ = ("round",)

    def __init__(self) -> None:
        self.round = 0

    @contextmanager
    def at(self, round_: int) -> Iterator[None]:
        """Within this context the next round is this one; after it, what it would have been."""
        before, self.round = self.round, round_ - 1
        try:
            yield
        finally:
            self.round = before


class SetReader:
    """Reads the decision sets that a policy is offered, and knows the last one again.

    A set that nobody can write to needs no second look when it comes back. Of any other that comes twice a copy is kept
    to compare with: that is faster than checking it again, and a set that stays is searched faster, too, if it is large
    (`geometry.large_sets`).
    """

    def __init__(self, dim: int, batch: int, single: bool, bound: float) -> None:
        self._dim, self._batch, self._single, self._bound = dim, batch, single, bound
        self._known: Floats | None = None  # the array itself, or a copy; nobody can write to it
        self._read = np.empty(0)
        self._mark: object = None  # by which most new sets are told from the last one at once

    def __call__(self, actions: Actions) -> Floats | Region:
        """A finite set as (B, K, d), or a region; every action's norm is at most the bound."""
        if isinstance(actions, (Ellipsoid, Box)):
            return _read_region(actions, self._dim, self._bound)
        if actions is self._known and not self._known.flags.writeable:
            return self._read
        array = as_floats("actions", actions.vertices if isinstance(actions, Polytope) else actions)
        if array.size < _WORTH_A_COPY and (array.base is not None or array.flags.writeable):
            return self._checked(array)
        return self._recognised(array)

    def _recognised(self, array: Floats) -> Floats:
        """The same for a set that may be the last one again."""
        constant = array.base is None and not array.flags.writeable
        mark = array.shape, array.item(0) if array.size else None
        known = None if array is self._known else self._known  # itself, if somebody has made it writeable again
        if mark == self._mark and known is not None and (array == known).all():
            return self._read
        offered = self._checked(array)
        if mark == self._mark and not constant:
            constant, array = True, array.copy()
            array.flags.writeable = False
            offered = self._batched(array)
        self._mark, self._known, self._read = mark, array if constant else None, offered
        return offered

    def _checked(self, array: Floats) -> Floats:
        offered = self._batched(array)
        check_norms(offered, self._bound)
        return offered

    def _batched(self, array: Floats) -> Floats:
        """The set of every trial, (B, K, d)."""
        if array.ndim == 2:
            array = array[None] if self._batch == 1 else np.broadcast_to(array, (self._batch, *array.shape))
        elif self._single:
            array = array[None]  # one axis too many or too few, as the next line finds
        if array.ndim != 3 or array.shape[0] != self._batch or array.shape[2] != self._dim or array.shape[1] == 0:
            wanted = f"(K, {self._dim})" if self._single else f"({self._batch}, K, {self._dim}) or (K, {self._dim})"
            got = array.shape[1:] if self._single else array.shape
            raise ValueError(f"actions must be {wanted} with K >= 1, a row for each action, got {got}")
        return array


def read_action(action: ArrayLike, *, dim: int, batch: int, single: bool, bound: float) -> Floats:
    """The action (B, dim) that a decision carries."""
    array = as_floats("the decision's action", action)
    if array.shape != ((dim,) if single else (batch, dim)):
        raise ValueError(f"the decision's action has shape {array.shape}: it is not one of this policy's")
    flat, array = array.ravel(), array.reshape(batch, dim)
    if not (flat.dot(flat) <= bound * bound if batch == 1 else _are_short(array, bound)):
        check_norms(array[:, None, :], bound)
    return array


def check_norms(actions: Floats, bound: float) -> None:
    """Refuse actions (B, K, d) that are not finite or too long."""
    if _are_short(actions, bound):
        return
    if not np.isfinite(actions).all():
        at = np.argwhere(~np.isfinite(actions))[0]
        raise ValueError(f"actions must be finite, got {actions[tuple(at)]} in action {at[1]}, feature {at[2]}")
    norms = np.linalg.norm(actions, axis=2)
    raise ValueError(
        f"actions must have norm <= action_bound = {bound:g}, but action {norms.max(axis=0).argmax()} has "
        f"{norms.max():.9g}; scale the features or raise action_bound"
    )


def _are_short(vectors: Floats, bound: float) -> bool:
    """Whether no vector (…, d) is longer than the bound, but for rounding; NaN is."""
    squares = np.vecdot(vectors, vectors)
    return squares.item(squares.argmax()) <= (bound * (1.0 + _SLACK)) ** 2  # argmax finds NaN first


def _read_region(region: Region, dim: int, bound: float) -> Region:
    if region.dim != dim:
        raise ValueError(f"the decision set has dimension {region.dim}, the policy {dim}")
    if isinstance(region, Ellipsoid) and region.center.ndim != 1:
        raise ValueError("an ellipsoid of actions must be a single one, shared by all trials")
    reach = region.farthest().values[0]
    if not reach <= bound * (1.0 + _SLACK):
        raise ValueError(f"actions must have norm <= action_bound = {bound:g}, but the set reaches {reach:.9g}")
    return region


def read_sigma(sigma: ArrayLike, *, batch: int, actions: int | None, single: bool) -> Floats:
    """Standard deviations as (B,), or as (B, K) where each of K ``actions`` has its own."""
    if isinstance(sigma, float) and 0.0 <= sigma < np.inf:
        return np.array([sigma]) if batch == 1 else np.full(batch, sigma)  # the common case, at once
    array = as_floats("sigma", sigma)
    # Places are found faster than extremes, and those of NaN first.
    if array.size and not (array.item(array.argmin()) >= 0.0 and array.item(array.argmax()) < np.inf):
        raise ValueError(f"sigma must be finite and >= 0, got {first_bad(array, array >= 0.0)}")
    per_action = array.ndim == 2 or (single and array.ndim == 1)
    shape = (batch, actions) if per_action and actions is not None else (batch,)
    if array.shape == shape:
        return array
    if array.ndim <= len(shape) and all(a in (1, b) for a, b in zip(array.shape[::-1], shape[::-1], strict=False)):
        return np.broadcast_to(array, shape)
    trials, each = ("", f"({actions},)") if single else (f", ({batch},)", f"({batch}, {actions})")
    wanted = f"one number{trials}" + (f" or {each}" if actions is not None else "")
    raise ValueError(f"sigma must be {wanted}, got shape {array.shape}")


def read_level(level: ArrayLike, levels: int, batch: int) -> Ints:
    """The level (B,) that a decision carries, from 1 to ``levels``."""
    array = np.asarray(level)
    if array.size != batch or array.dtype.kind not in "iu":
        raise ValueError(f"level must be an integer for each trial, got {level!r}")
    if array.min() < 1 or array.max() > levels:
        whose = ": is this decision another policy's?" if array.min() < 1 else ""
        raise ValueError(f"level must lie in 1 … {levels}, got {level!r}{whose}")
    return array.reshape(batch).astype(np.int64)
