"""Reads what callers pass to a policy: `choose`, `update` and `warm_start` check it here, before anything changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from robandit.arrays import Bools, Floats, Ints, constant
from robandit.geometry.regions import Region
from robandit.inputs import as_floats, read_logged_rewards, read_mask, read_rewards
from robandit.policies.decision import Decision, SetReader, read_action, read_level, read_sigma
from robandit.policies.sources import Labels, Sources, read_logged_sources, read_source

Feedback: TypeAlias = tuple[Floats, Floats, Floats, Ints, Labels | None, Bools | None]
"""One reward per trial with all that belongs to it, checked: the actions (B, d), the rewards (B,), their σ, levels and
sources, and which trials have a reward, if not all."""


class CallReader:
    """Checks what a policy of this shape is given, with errors that name the value."""

    def __init__(self, *, dim: int, batch: int, single: bool, bound: float, noise_range: float, levels: int) -> None:
        self._dim, self._batch, self._single, self._bound = dim, batch, single, bound
        self._noise_range, self._levels = noise_range, levels
        self._no_level: Ints = constant(np.zeros(batch, dtype=np.int64))
        self.actions = SetReader(dim, batch, single, bound)

    def sigma(self, sigma: ArrayLike | None, offered: Floats | Region | None = None) -> Floats:
        """Standard deviations as (B,), or as (B, K) for the K actions of a finite set."""
        count = offered.shape[1] if isinstance(offered, np.ndarray) else None
        known = self._noise_range if sigma is None else sigma
        return read_sigma(known, batch=self._batch, actions=count, single=self._single)

    def source(self, source: Sources) -> Labels | None:
        """The label of each trial, (B,)."""
        return read_source(source, self._batch, self._single)

    def feedback(
        self,
        decision: Decision,
        reward: ArrayLike,
        sigma: ArrayLike | None,
        mask: ArrayLike | None,
        level: Ints | None = None,
    ) -> Feedback:
        """The reward of a decision. A ``level`` takes the place of the decision's own."""
        keep = None if mask is None else read_mask(mask, self._batch)
        rewards = read_rewards(reward, keep, batch=self._batch, single=self._single)
        known = decision.sigma if sigma is None else sigma
        if keep is not None and known is not None:
            known = np.where(keep, as_floats("sigma", known), self._noise_range)  # unknown where there is no reward
        spread = self.sigma(known)
        action = read_action(decision.action, dim=self._dim, batch=self._batch, single=self._single, bound=self._bound)
        if level is None:
            level = read_level(decision.level, self._levels, self._batch) if self._levels else self._no_level
        source = None if decision.source is None else read_source(decision.source, self._batch, self._single)
        return action, rewards, spread, level, source, keep

    def log(
        self,
        actions: ArrayLike,
        rewards: ArrayLike,
        sigma: ArrayLike | None,
        level: ArrayLike | None,
        source: Any,
        draw: Callable[[int], Ints],
    ) -> list[Feedback]:
        """Logged rounds: actions (n, d), rewards (n,), or with an axis of trials. ``draw`` gives a level not logged."""
        played = self.actions(actions)
        if not isinstance(played, np.ndarray):
            raise ValueError("a warm start needs the logged actions as an array")
        shape = self._batch, played.shape[1]
        returns = read_logged_rewards(rewards, shape, single=self._single)
        spread = self.sigma(sigma, played)
        spread = np.broadcast_to(spread if spread.ndim == 2 else spread[:, None], shape)
        levels = [draw(i) for i in range(shape[1])] if level is None else self._logged_levels(level, shape)
        sources = read_logged_sources(source, shape, self._single)
        return [(played[:, i], returns[:, i], spread[:, i], levels[i], sources[i], None) for i in range(shape[1])]

    def _logged_levels(self, level: ArrayLike, shape: tuple[int, int]) -> list[Ints]:
        given = np.asarray(level)
        if given.shape not in (shape, shape[1:]):
            raise ValueError(f"level must be one for each of the {shape[1]} actions, got shape {given.shape}")
        if not self._levels:
            return [self._no_level] * shape[1]
        return [read_level(column, self._levels, self._batch) for column in np.broadcast_to(given, shape).T]
