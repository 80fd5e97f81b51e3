"""Reading the decision sets, actions and deviations that callers pass to a policy."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from robandit.arrays import Floats
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.regions import Box, Polytope, Region
from robandit.inputs import as_floats, first_bad

Actions: TypeAlias = ArrayLike | Region | Polytope

_SLACK = 1e-6  # by how much ‖a‖ may exceed its bound through rounding, in single precision too


def read_actions(actions: Actions, *, dim: int, batch: int, single: bool, bound: float) -> Floats | Region:
    """A finite set as (B, K, dim), or a region; every action's norm is at most ``bound``."""
    if isinstance(actions, (Ellipsoid, Box)):
        return _read_region(actions, dim, bound)
    array = as_floats("actions", actions.vertices if isinstance(actions, Polytope) else actions)
    if array.ndim == 2:
        array = array[None] if batch == 1 else np.broadcast_to(array, (batch, *array.shape))
    elif single:
        array = array[None]  # one axis too many or too few, as the next line finds
    if array.ndim != 3 or array.shape[0] != batch or array.shape[2] != dim or array.shape[1] == 0:
        wanted = f"(K, {dim})" if single else f"({batch}, K, {dim}) or (K, {dim})"
        raise ValueError(f"actions must be {wanted} with K >= 1, got {array.shape[1:] if single else array.shape}")
    _check_norms(array, bound)
    return array


def read_action(action: ArrayLike, *, dim: int, batch: int, single: bool, bound: float) -> Floats:
    """The action (B, dim) that a decision carries."""
    array = as_floats("the decision's action", action)
    if array.shape != ((dim,) if single else (batch, dim)):
        raise ValueError(f"the decision's action has shape {array.shape}: it is not one of this policy's")
    array = array.reshape(batch, dim)
    _check_norms(array[:, None, :], bound)
    return array


def _check_norms(actions: Floats, bound: float) -> None:
    """Refuse actions (B, K, d) that are not finite or too long."""
    if np.maximum.reduce(np.vecdot(actions, actions), axis=None) <= (bound * (1.0 + _SLACK)) ** 2:  # not so for NaN
        return
    if not np.isfinite(actions).all():
        at = np.argwhere(~np.isfinite(actions))[0]
        raise ValueError(f"actions must be finite, got {actions[tuple(at)]} in action {at[1]}, feature {at[2]}")
    norms = np.linalg.norm(actions, axis=2)
    raise ValueError(
        f"actions must have norm <= action_bound = {bound:g}, but action {norms.max(axis=0).argmax()} has "
        f"{norms.max():.9g}; scale the features or raise action_bound"
    )


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
        return np.array([sigma] * batch)  # the common case, at once
    array = as_floats("sigma", sigma)
    if not (array.min(initial=0.0) >= 0.0 and array.max(initial=0.0) < np.inf):
        raise ValueError(f"sigma must be finite and >= 0, got {first_bad(array, array >= 0.0)}")
    per_action = array.ndim == 2 or (single and array.ndim == 1)
    shape = (batch, actions) if per_action and actions is not None else (batch,)
    if array.ndim <= len(shape) and all(a in (1, b) for a, b in zip(array.shape[::-1], shape[::-1], strict=False)):
        return np.broadcast_to(array, shape)
    trials, each = ("", f"({actions},)") if single else (f", ({batch},)", f"({batch}, {actions})")
    wanted = f"one number{trials}" + (f" or {each}" if actions is not None else "")
    raise ValueError(f"sigma must be {wanted}, got shape {array.shape}")
