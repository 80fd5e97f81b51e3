"""A certified lower bound on the corruption in any stream of feedback, whatever policy chose the actions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from math import ceil
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robandit.arrays import Floats, Index, Ints
from robandit.errors import Configured
from robandit.inputs import (
    as_floats,
    first_bad,
    integer,
    not_negative,
    overwrite,
    positive,
    probability,
    read_mask,
    read_rewards,
)
from robandit.monitor.attribution import find_suspect
from robandit.monitor.blocks import Blocks, Partition
from robandit.monitor.certificate import TRACE, Certificate, Group, list_groups
from robandit.monitor.contradiction import lower_bound
from robandit.monitor.declared import rare_events, read_declared, read_noise
from robandit.monitor.groups import Groups
from robandit.monitor.radii import Assumptions
from robandit.monitor.sources import Sources

_STATE_FORMAT = 3
_LARGEST = 1e25  # the largest number, and its inverse the least σ: fourth powers must not overflow
_SINGLE = 1e-6  # relative rounding of rewards that were once kept in single precision, and then some
_COUNTERS = ("certain", "beyond", "by_time", "by_label", "freely", "alarm", "since")  # arrays (B,) of the state


@dataclass(kw_only=True, eq=False)
class CorruptionMonitor(Configured):
    """Watches feedback r = ⟨a, μ*⟩ + ε + c and proves, without knowing the parameter, how large Σ|c| must have been.

    Feed it every round in the order of the decisions, each once its reward is final. Look as often as you like.
    docs/ideas/monitor.md says what it assumes, and what it proves if that is wrong.

    >>> import numpy as np
    >>> rng = np.random.default_rng(1)
    >>> monitor = CorruptionMonitor(dim=2, noise=0.05)
    >>> for t in range(400):
    ...     action = rng.uniform(-0.7, 0.7, 2)
    ...     reward = action @ [0.6, 0.3] + rng.normal(0.0, 0.05)
    ...     monitor.observe(action, -reward if t < 40 else reward)
    >>> monitor.certificate().lower_bound > 3.0
    True
    """

    dim: int
    """d, the number of features of an action."""
    noise: float | tuple[float, ...] | None = None
    """s: given the past, the noise is s-sub-Gaussian. In a batch it may be one for each stream. R is valid if |ε| ≤ R.
    By default it follows from ``reward_range``: half its width, or less where ``highest_mean`` is known."""
    parameter_bound: float | None = None
    """B, an upper bound on ‖μ*‖, if one is known for sure. The proof needs none."""
    misspecification: float = 0.0
    """ζ: every honest mean is within ζ of ⟨a, μ*⟩."""
    delta: float = 0.05
    """The probability with which the bound may ever be wrong, over all looks."""
    regularization: float | None = None
    """λ, one for all groups. By default the best of a grid is found, and δ pays for that."""
    reward_range: tuple[float, float] | None = None
    """The lowest and the highest honest reward, if known. What lies beyond is corrupt with certainty."""
    highest_mean: float | None = None
    """The most that any honest reward has on average, given the past and the action: a cap, not the average rate.
    For rare clicks it proves up to twice as much. It needs ``reward_range``, and takes the place of ``noise``."""
    sources: int = 0
    """The number of sources of traffic to tell apart, the first to appear. If it is above 0, half of δ is theirs."""
    block: int = 16
    """The number of rounds in the shortest blocks."""
    radius_scale: float = 1.0
    """The factor of ρ. Below 1 nothing is proved: it is there to test the tests."""
    trials: int | None = None
    """The number of streams in a batch; None for a single stream."""

    def __post_init__(self) -> None:
        self.dim, self.block = integer("dim", self.dim, 1), integer("block", self.block, 1)
        self.sources = integer("sources", self.sources, 0)
        self.radius_scale = positive("radius_scale", self.radius_scale)
        self.misspecification = not_negative("misspecification", self.misspecification)
        if self.parameter_bound is not None:
            self.parameter_bound = positive("parameter_bound", self.parameter_bound)
        self.delta = probability("delta", self.delta)
        if self.regularization is not None:
            self.regularization = positive("regularization", self.regularization)
        declared = read_declared(self.reward_range, self.highest_mean, self.noise)
        if declared is not None:
            self.reward_range = declared.low, declared.high
        self._single, self._batch = self.trials is None, integer("trials", 1 if self.trials is None else self.trials, 1)
        self._rare = rare_events(declared)
        given = declared.noise if declared is not None and self.noise is None else self.noise
        scale = read_noise(given, self._batch, self._single)
        self.noise = scale if self.noise is not None else None
        self._scale = scale
        self._usual: Floats = np.broadcast_to(scale, self._batch) ** -2.0  # the weights where nothing is declared
        self._begin()
        self._made = True

    def _begin(self) -> None:
        """Nothing has been observed, and nothing is proved."""
        self._round = 0
        self._blocks = Blocks(self.block, self._batch, self.dim)
        self._sources = Sources(self.sources, self._batch, self.dim)
        self._certain: Floats = np.zeros(self._batch)  # Σ of what was beyond the range
        self._beyond: Ints = np.zeros(self._batch, np.int64)  # and how many rewards were
        self._by_time: Floats = np.zeros(self._batch)  # the best bound so far, without that, by blocks of rounds
        self._by_label: Floats = np.zeros(self._batch)  # and by sources
        self._freely: Floats = np.zeros(self._batch)  # the best of both that needs no bound on ‖μ*‖
        self._alarm: Ints = np.zeros(self._batch, np.int64)
        self._groups: list[tuple[Group, ...]] = [()] * self._batch
        self._blamed: list[tuple[Group, ...]] = [()] * self._batch
        self._since: Ints = np.zeros(self._batch, np.int64)

    _made = False

    def __setattr__(self, name: str, value: object) -> None:
        if self._made and name[0] != "_":
            raise AttributeError(f"{name} is fixed once a monitor is made: its proof rests on it")
        object.__setattr__(self, name, value)

    @property
    def rounds(self) -> int:
        """The number of rounds observed."""
        return self._round

    @property
    def noise_scale(self) -> Any:
        """The scale of the noise that was declared, or that follows from what was."""
        return self._scale

    # Watching.

    def observe(
        self,
        action: ArrayLike,
        reward: ArrayLike,
        sigma: ArrayLike | None = None,
        source: Any = None,
        mask: ArrayLike | None = None,
    ) -> None:
        """Take in a round: features (d,), reward, and, if declared, the noise's sub-Gaussian scale; (B, …) in a batch.

        A round without a reward (``mask`` false, in a batch) counts as a round. That is right only if whether a
        reward goes missing does not depend on what it would have been.
        """
        keep = None if mask is None else read_mask(mask, self._batch)
        rewards = read_rewards(reward, keep, batch=self._batch, single=self._single)
        actions = as_floats("action", action)
        if actions.shape != ((self.dim,) if self._single else (self._batch, self.dim)):
            wanted = f"({self.dim},)" if self._single else f"({self._batch}, {self.dim})"
            raise ValueError(f"action must have shape {wanted}, got {actions.shape}")
        actions = actions.reshape(self._batch, self.dim)
        weights = self._weights(actions, rewards, sigma)
        if keep is not None:
            weights = weights * keep
        labels = self._sources.read(source, self._batch)
        rewards = self._clip(rewards, weights, slice(None))
        self._blocks.open(self._round)
        self._blocks.sums.add(-1, slice(None), actions, rewards, weights)
        for place, rows in labels:
            self._sources.sums.add(place, rows, actions[rows], rewards[rows], weights[rows])
        self._round += 1

    def observe_log(
        self, actions: ArrayLike, rewards: ArrayLike, sigma: ArrayLike | None = None, source: Any = None
    ) -> None:
        """Take in n rounds of a single stream, in their order: actions (n, d), rewards (n,).

        It is faster than `observe` one by one.
        """
        if not self._single:
            raise ValueError("a log is of one stream; this monitor watches a batch")
        features, returns = as_floats("actions", actions), as_floats("rewards", rewards)
        if features.ndim != 2 or features.shape[1] != self.dim or returns.shape != features.shape[:1]:
            raise ValueError(
                f"actions must be (n, {self.dim}) and rewards (n,), got {features.shape} and {returns.shape}"
            )
        weights = self._weights(features, returns, sigma)
        labels = self._sources.read(source, len(returns))
        returns = self._clip(returns, weights, 0)
        done = 0
        while done < len(returns):
            self._blocks.open(self._round)
            part = slice(done, min(len(returns), done + self.block - self._round % self.block))
            self._blocks.sums.fold(-1, features[part], returns[part], weights[part])
            self._round += part.stop - part.start
            done = part.stop
        for place, rows in labels:
            self._sources.sums.fold(place, features[rows], returns[rows], weights[rows])

    def _weights(self, actions: Floats, rewards: Floats, sigma: ArrayLike | None) -> Floats:
        """w = 1/s² of each round, (n,), once all numbers are found to be of a size that can be used."""
        for name, values in (("actions", actions), ("rewards", rewards)):
            if not max(values.max(initial=0.0), -values.min(initial=0.0)) <= _LARGEST:  # not so for NaN
                bad = first_bad(values, np.abs(values) <= _LARGEST)
                raise ValueError(f"{name} must be finite and at most {_LARGEST:g} in size, got {bad}")
        number = len(rewards)
        if sigma is None and number == self._batch:
            return self._usual
        if sigma is not None and self._rare is not None:
            raise ValueError("sigma can't be given with highest_mean, from which the noise's scale follows")
        scale = as_floats("sigma", self._scale if sigma is None else sigma)
        if scale.shape not in ((), (number,)):
            raise ValueError(f"sigma must be one number or {number}, got shape {scale.shape}")
        good = (scale >= 1.0 / _LARGEST) & (scale <= _LARGEST)
        if not good.all():
            raise ValueError(f"sigma must be > 0, as deviations are measured by it, got {first_bad(scale, good)}")
        return np.broadcast_to(scale**-2.0, number)

    def _clip(self, rewards: Floats, weights: Floats, rows: slice | int) -> Floats:
        """Bring rewards into the honest range, and book what was beyond it."""
        if self.reward_range is None:
            return rewards
        inside = np.clip(rewards, *self.reward_range)
        beyond = np.abs(rewards - inside) * (weights > 0.0)
        beyond[beyond <= _SINGLE * np.abs(rewards)] = 0.0
        total = beyond if isinstance(rows, slice) else beyond.sum()
        number = (beyond > 0.0) if isinstance(rows, slice) else np.count_nonzero(beyond)
        self._certain[rows] += total
        self._beyond[rows] += number
        return inside

    # Looking.

    def lower_bounds(self) -> Floats:
        """The best lower bound on Σ|c_t| that any look so far has proved, (B,)."""
        near = None
        for part in self.partitions():
            bound = lower_bound(part.groups, self.assumptions(), least=self._by_time, guess=near)
            near = bound.parameter
            better = np.flatnonzero(bound.value > self._by_time)
            for row in better.tolist():
                placed = bound.placed[row]
                self._by_time[row] = bound.value[row]
                self._groups[row] = list_groups(part.names, placed)
                self._since[row] = 1 + np.asarray(part.starts)[placed > TRACE * placed.sum()].min(initial=self._round)
            self._look_freely(part.groups, bound.value, better)
        if self._sources.sums.number > 1:
            self._look_at_sources()
        proved = np.maximum(self._by_time, self._by_label) + self._certain
        self._alarm[(self._alarm == 0) & (proved > 0.0)] = self._round
        return proved

    def _look_freely(self, groups: Groups, proved: Floats, better: Index) -> None:
        """Find out whether the new proofs of some streams need the bound on ‖μ*‖."""
        if self.parameter_bound is None:
            self._freely[better] = np.maximum(self._freely[better], proved[better])
        elif (self._freely[better] <= 0.0).any():
            found = lower_bound(groups, self.assumptions()._replace(parameter_bound=None), least=self._freely)
            self._freely = np.maximum(self._freely, found.value)

    def certificate(self) -> Any:
        """What is proved so far: a `Certificate`, or in a batch a list of them."""
        proved = self.lower_bounds()
        found = [self._certificate(row, float(proved[row])) for row in range(self._batch)]
        return found[0] if self._single else found

    def _certificate(self, row: int, proved: float) -> Certificate:
        width = np.inf if self.reward_range is None else self.reward_range[1] - self.reward_range[0]
        by_time, by_label = float(self._by_time[row]), float(self._by_label[row])
        fewest = max(int(self._beyond[row]), ceil(max(by_time, by_label) / width), int(proved > 0.0))
        # A view that explains far less than the other would list the innocent.
        timely, labelled = by_time >= 0.5 * by_label, by_label >= 0.5 * by_time
        free = float(self._freely[row] + self._certain[row]) > 0.0
        return Certificate(
            lower_bound=proved,
            delta=self.delta,
            rounds=self._round,
            altered=fewest,
            alarm=int(self._alarm[row]) or None,
            since=(int(self._since[row]) or None) if timely else None,
            groups=self._groups[row] if timely else (),
            sources=self._blamed[row] if labelled else (),
            suspect=self._suspect(row) if labelled and free and by_label > 0.0 else None,
            misspecification=self.misspecification,
            parameter_bound=self.parameter_bound,
            rests_on_bound=proved > 0.0 and not free,
            beyond=int(self._beyond[row]),
        )

    def assumptions(self) -> Assumptions:
        """What its bounds rest on."""
        own = {name: getattr(self, name) for name in Assumptions._fields if name not in ("noise", "rare")}
        return Assumptions(noise=self._scale, rare=self._rare, **own)

    def partitions(self) -> Iterator[Partition]:
        """The ways of cutting the rounds so far into blocks that a look compares."""
        return self._blocks.partitions(self._round, 0.5 if self.sources else 1.0)

    def beyond_range(self) -> tuple[Floats, Ints]:
        """The sum of what lay beyond ``reward_range``, and the number of rewards that did, (B,) each."""
        return self._certain.copy(), self._beyond.copy()

    def _suspect(self, row: int) -> str | None:
        """The source that may be named, if there is one."""
        groups, assumed = self._sources.groups(share=0.5).of(row), self.assumptions()
        if isinstance(self._scale, tuple):
            assumed = assumed._replace(noise=self._scale[row])
        place = find_suspect(groups, assumed)
        return None if place is None else self._sources.names()[place]

    def proved_freely(self) -> Floats:
        """What looks so far have proved without ``parameter_bound`` and ``reward_range``, (B,)."""
        return self._freely.copy()

    def _look_at_sources(self) -> None:
        groups = self._sources.groups(share=0.5)
        bound = lower_bound(groups, self.assumptions(), least=self._by_label)
        better = np.flatnonzero(bound.value > self._by_label)
        for row in better.tolist():
            named = list_groups(self._sources.names(), bound.placed[row])
            self._by_label[row] = bound.value[row]
            self._blamed[row] = tuple(sorted(named, key=lambda group: -group.placed))
        self._look_freely(groups, bound.value, better)

    # Keeping.

    def state(self) -> dict[str, Any]:
        """The whole monitor as plain data: JSON values and, under ``arrays``, NumPy arrays."""
        return {
            "format": _STATE_FORMAT,
            "monitor": type(self).__name__,
            "config": {item.name: getattr(self, item.name) for item in fields(self)},
            "round": self._round,
            "blocks": [list(span) for span in self._blocks.spans],
            "labels": list(self._sources.labels),
            "groups": [[list(group) for group in groups] for groups in self._groups],
            "blamed": [[list(group) for group in groups] for groups in self._blamed],
            "arrays": {name: array.copy() for name, array in self._arrays().items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Restore the monitor that `state` was taken from; it goes on as that one would have."""
        known = isinstance(state, Mapping) and (state.get("format"), state.get("monitor"))
        if known != (_STATE_FORMAT, cls.__name__):
            raise ValueError(f"this is not a state of {cls.__name__} in format {_STATE_FORMAT}")
        try:
            config = dict(state["config"])
            monitor = cls(**config)
            monitor._round = integer("round", state["round"], 0)
            monitor._blocks.spans = [(integer("start", a, 0), integer("length", b, 1)) for a, b in state["blocks"]]
            monitor._sources.labels = list(state["labels"])
            monitor._groups = [tuple(Group(*group) for group in groups) for groups in state["groups"]]
            monitor._blamed = [tuple(Group(*group) for group in groups) for groups in state["blamed"]]
            monitor._load(state["arrays"])
            monitor._check_parts()
        except (KeyError, TypeError) as error:
            raise ValueError(f"this state of {cls.__name__} is broken: {error!r}") from error
        return monitor

    def _check_parts(self) -> None:
        """Refuse a state whose parts do not fit together."""
        named = len(self._groups) == len(self._blamed) == self._batch
        if not (named and self._blocks.fit(self._round) and self._sources.fit()):
            raise ValueError(f"this state of {type(self).__name__} is broken: its parts do not fit")

    def _arrays(self) -> dict[str, NDArray[Any]]:
        own = {name: getattr(self, f"_{name}") for name in _COUNTERS}
        return self._blocks.sums.arrays("past_") | self._sources.sums.arrays("source_") | own

    def _load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._blocks.sums.resize(len(self._blocks.spans))
        self._sources.sums.resize(len(np.asarray(arrays["source_reach"])))
        overwrite(self._arrays(), arrays)
