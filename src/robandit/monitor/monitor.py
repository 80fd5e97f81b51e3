"""A certified lower bound on the corruption in any stream of feedback, whatever policy chose the actions."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from math import ceil
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robandit.arrays import Floats, Ints
from robandit.inputs import as_floats, first_bad, integer, not_negative, positive, read_mask, read_rewards
from robandit.monitor.certificate import TRACE, Certificate, Group
from robandit.monitor.contradiction import Bound, lower_bound
from robandit.monitor.groups import Groups, Sums

_STATE_FORMAT = 1
_LARGEST = 1e25  # number, and its inverse the least σ: fourth powers must not overflow
_FINE = 2  # blocks of one length before the next, twice as long, at either end of the stream
OTHERS = "(all other sources)"
"""What the sources beyond the first so many are called together."""


class Partition(NamedTuple):
    """The rounds so far, cut into blocks."""

    starts: Sequence[int]
    names: Sequence[str]
    groups: Groups


@dataclass(kw_only=True, eq=False)
class CorruptionMonitor:
    """Watches feedback r = ⟨a, μ*⟩ + ε + c and proves, without knowing μ*, how large Σ|c| must have been.

    Feed it every round in the order of the decisions, each once its reward is final; look as often as you like.
    docs/monitor.md says what it assumes, and what it proves if that is wrong.

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
    noise: float | tuple[float, ...]
    """s, in a batch also one for each stream: given the past, the noise is s-sub-Gaussian. R always is if |ε| ≤ R,
    and 1/2 if honest rewards lie in [0, 1]."""
    parameter_bound: float = 1.0
    """B, an upper bound on ‖μ*‖."""
    delta: float = 0.05
    """The probability with which the bound may ever be wrong, over all looks."""
    regularization: float | None = None
    """λ, one for all groups; by default the best of a grid is found, and δ pays for that."""
    reward_range: tuple[float, float] | None = None
    """Where honest rewards lie, if that is known: what is beyond is corrupt with certainty."""
    sources: int = 0
    """How many sources of traffic to tell apart, the first to appear; half of δ is theirs then. 0 for none."""
    block: int = 16
    """The rounds of the shortest blocks."""
    radius_scale: float = 1.0
    """Multiplies ρ. Below 1 nothing is proved: it is there to test the tests."""
    trials: int | None = None
    """How many streams it watches at once; none for a single one."""

    def __post_init__(self) -> None:
        self.dim, self.block = integer("dim", self.dim, 1), integer("block", self.block, 1)
        self.sources = integer("sources", self.sources, 0)
        for name in ("parameter_bound", "radius_scale"):
            setattr(self, name, positive(name, getattr(self, name)))
        if not 0.0 < not_negative("delta", self.delta) < 1.0:
            raise ValueError(f"delta must lie between 0 and 1, got {self.delta!r}")
        if self.regularization is not None:
            self.regularization = positive("regularization", self.regularization)
        if self.reward_range is not None:
            self.reward_range = _read_range(self.reward_range)
        self._single, self._batch = self.trials is None, integer("trials", 1 if self.trials is None else self.trials, 1)
        self.noise = _read_noise(self.noise, self._batch, self._single)
        self._usual: Floats = np.broadcast_to(self.noise, self._batch) ** -2.0  # the weights where nothing is declared
        self._round = 0
        self._blocks: list[tuple[int, int]] = []  # first round, counted from 0, and length
        self._labels: list[Hashable] = []
        self._past, self._by_source = Sums(self._batch, self.dim), Sums(self._batch, self.dim)
        self._certain: Floats = np.zeros(self._batch)  # Σ of what was beyond the range
        self._beyond: Ints = np.zeros(self._batch, np.int64)
        self._by_time: Floats = np.zeros(self._batch)  # the best bound so far, without that, by blocks of rounds
        self._by_label: Floats = np.zeros(self._batch)  # and by sources
        self._alarm: Ints = np.zeros(self._batch, np.int64)
        self._groups: list[tuple[Group, ...]] = [()] * self._batch
        self._blamed: list[tuple[Group, ...]] = [()] * self._batch
        self._since: Ints = np.zeros(self._batch, np.int64)
        self._made = True

    _made = False

    def __setattr__(self, name: str, value: object) -> None:
        if self._made and name[0] != "_":
            raise AttributeError(f"{name} is fixed once a monitor is made: its proof rests on it")
        object.__setattr__(self, name, value)

    @property
    def rounds(self) -> int:
        """How many it has observed."""
        return self._round

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

        A round without a reward (``mask`` false, in a batch) counts as a round. That is right only if rewards go
        missing whatever they would have been.
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
        labels = self._read_sources(source, self._batch)
        rewards = self._clip(rewards, weights, slice(None))
        self._open(self._round)
        self._past.add(-1, slice(None), actions, rewards, weights)
        for place, rows in labels:
            self._by_source.add(place, rows, actions[rows], rewards[rows], weights[rows])
        self._round += 1

    def observe_log(
        self, actions: ArrayLike, rewards: ArrayLike, sigma: ArrayLike | None = None, source: ArrayLike | None = None
    ) -> None:
        """Take in n rounds of a single stream, in their order: actions (n, d), rewards (n,). Faster than one by one."""
        if not self._single:
            raise ValueError("a log is of one stream; this monitor watches a batch")
        features, returns = as_floats("actions", actions), as_floats("rewards", rewards)
        if features.ndim != 2 or features.shape[1] != self.dim or returns.shape != features.shape[:1]:
            raise ValueError(
                f"actions must be (n, {self.dim}) and rewards (n,), got {features.shape} and {returns.shape}"
            )
        weights = self._weights(features, returns, sigma)
        labels = self._read_sources(source, len(returns))
        returns = self._clip(returns, weights, 0)
        done = 0
        while done < len(returns):
            self._open(self._round)
            part = slice(done, min(len(returns), done + self.block - self._round % self.block))
            self._past.fold(-1, features[part], returns[part], weights[part])
            self._round += part.stop - part.start
            done = part.stop
        for place, rows in labels:
            self._by_source.fold(place, features[rows], returns[rows], weights[rows])

    def _weights(self, actions: Floats, rewards: Floats, sigma: ArrayLike | None) -> Floats:
        for name, values in (("actions", actions), ("rewards", rewards)):
            if not max(values.max(initial=0.0), -values.min(initial=0.0)) <= _LARGEST:  # not so for NaN
                bad = first_bad(values, np.abs(values) <= _LARGEST)
                raise ValueError(f"{name} must be finite and at most {_LARGEST:g} in size, got {bad}")
        number = len(rewards)
        if sigma is None and number == self._batch:
            return self._usual
        scale = as_floats("sigma", self.noise if sigma is None else sigma)
        if scale.shape not in ((), (number,)):
            raise ValueError(f"sigma must be one number or {number}, got shape {scale.shape}")
        good = (scale >= 1.0 / _LARGEST) & (scale <= _LARGEST)
        if not good.all():
            raise ValueError(f"sigma must be > 0, as deviations are measured by it, got {first_bad(scale, good)}")
        return np.broadcast_to(scale**-2.0, number)

    def _clip(self, rewards: Floats, weights: Floats, rows: slice | int) -> Floats:
        """Rewards brought into the honest range; what was beyond it is booked."""
        if self.reward_range is None:
            return rewards
        inside = np.clip(rewards, *self.reward_range)
        beyond = np.abs(rewards - inside) * (weights > 0.0)
        total = beyond if isinstance(rows, slice) else beyond.sum()
        number = (beyond > 0.0) if isinstance(rows, slice) else np.count_nonzero(beyond)
        self._certain[rows] += total
        self._beyond[rows] += number
        return inside

    def _read_sources(self, source: Any, number: int) -> list[tuple[int, NDArray[np.intp]]]:
        """The places of the sources named, each with the rows that are its."""
        if self.sources == 0 or source is None:
            if source is not None:
                raise ValueError("make the monitor with sources=… (how many) to tell sources apart")
            if self.sources:
                raise ValueError("this monitor tells sources apart: every round needs its source")
            return []
        one = isinstance(source, str) or not isinstance(source, (Sequence, np.ndarray))
        names = [source] * number if one else source.tolist() if isinstance(source, np.ndarray) else list(source)
        if len(names) != number:
            raise ValueError(f"source must be one label or {number}, got {len(names)}")
        found: dict[int, list[int]] = {}
        known = {label: place for place, label in enumerate(self._labels)}
        for row, name in enumerate(names):
            label = name.item() if isinstance(name, np.generic) else name
            if not isinstance(label, (str, int, float, bool)):
                raise ValueError(f"source must be text or a number, got {label!r}")
            if label not in known and len(known) < self.sources:
                known[label] = len(known)
            found.setdefault(known.get(label, self.sources), []).append(row)
        self._labels = list(known)
        while self._by_source.number <= max(found, default=-1):
            self._by_source.append()
        return [(place, np.array(rows)) for place, rows in found.items()]

    def _open(self, now: int) -> None:
        """Begin a new block where one is due, and merge old ones that are far from both ends of the stream."""
        if now % self.block:
            return
        length = self.block
        while now % (2 * length) == 0:  # when twins of this length can have come far enough from the end
            start = now - 2 * length * (1 + _FINE)
            if start < 2 * length * _FINE:
                break
            place = bisect_left(self._blocks, (start, 0))
            self._blocks[place : place + 2] = [(start, 2 * length)]
            self._past.merge(place)
            length *= 2
        self._blocks.append((now, self.block))
        self._past.append()

    # Looking.

    def lower_bounds(self) -> Floats:
        """The best lower bound on Σ|c_t| that any look so far has proved, (B,)."""
        near = None
        for part in self._partitions():
            bound = lower_bound(part.groups, **self._setting(), least=self._by_time, guess=near)
            near = bound.parameter
            for row in np.flatnonzero(bound.value > self._by_time).tolist():
                self._by_time[row], self._groups[row] = bound.value[row], _named(bound, row, part.names)
                placed = bound.placed[row]
                self._since[row] = 1 + np.asarray(part.starts)[placed > TRACE * placed.sum()].min(initial=self._round)
        if self._by_source.number > 1:
            self._look_at_sources()
        proved = np.maximum(self._by_time, self._by_label) + self._certain
        self._alarm[(self._alarm == 0) & (proved > 0.0)] = self._round
        return proved

    def certificate(self) -> Any:
        """What is proved: a `Certificate`, in a batch a list of them."""
        proved = self.lower_bounds()
        found = [self._certificate(row, float(proved[row])) for row in range(self._batch)]
        return found[0] if self._single else found

    def _certificate(self, row: int, proved: float) -> Certificate:
        width = np.inf if self.reward_range is None else self.reward_range[1] - self.reward_range[0]
        by_time, by_label = float(self._by_time[row]), float(self._by_label[row])
        fewest = max(int(self._beyond[row]), ceil(max(by_time, by_label) / width), int(proved > 0.0))
        # A view that explains far less than the other would name the innocent.
        timely, labelled = by_time >= 0.5 * by_label, by_label >= 0.5 * by_time
        return Certificate(
            lower_bound=proved,
            delta=self.delta,
            rounds=self._round,
            altered=fewest,
            alarm=int(self._alarm[row]) or None,
            since=(int(self._since[row]) or None) if timely else None,
            groups=self._groups[row] if timely else (),
            sources=self._blamed[row] if labelled else (),
        )

    def _setting(self) -> dict[str, Any]:
        names = ("noise", "delta", "parameter_bound", "regularization", "radius_scale")
        return {name: getattr(self, name) for name in names}

    def _partitions(self) -> Iterator[Partition]:
        """The rounds so far in blocks, from the shortest to the longest of which there are two."""
        part = 0.5 if self.sources else 1.0
        shortest = self.block
        while shortest < self._round:
            firsts: list[int] = []
            starts: list[int] = []
            lengths: list[int] = []
            for place, (start, length) in enumerate(self._blocks):
                length = max(length, shortest)
                if not starts or start >= starts[-1] + lengths[-1]:
                    firsts.append(place)
                    starts.append(start - start % length)
                    lengths.append(length)
            long, index = np.array(lengths, dtype=float), np.array(starts) / lengths
            names = [
                _stretch(start, min(start + length, self._round)) for start, length in zip(starts, lengths, strict=True)
            ]
            share = part * _rank(np.log2(long / self.block)) * _rank(index)
            yield Partition(starts, names, self._past.groups(firsts, long, share))
            shortest *= 2

    def _look_at_sources(self) -> None:
        number = self._by_source.number
        groups = self._by_source.groups(
            list(range(number)), np.full(number, 1024.0), 0.5 * _rank(np.arange(float(number)))
        )
        bound = lower_bound(groups, **self._setting(), least=self._by_label)
        names = [*map(str, self._labels), OTHERS][:number]
        for row in np.flatnonzero(bound.value > self._by_label).tolist():
            self._by_label[row] = bound.value[row]
            self._blamed[row] = tuple(sorted(_named(bound, row, names), key=lambda group: -group.placed))

    # Keeping.

    def state(self) -> dict[str, Any]:
        """Everything, as plain data: JSON values and, under ``arrays``, NumPy arrays."""
        return {
            "format": _STATE_FORMAT,
            "monitor": type(self).__name__,
            "config": {item.name: getattr(self, item.name) for item in fields(self)},
            "round": self._round,
            "blocks": [list(block) for block in self._blocks],
            "labels": list(self._labels),
            "groups": [[list(group) for group in groups] for groups in self._groups],
            "blamed": [[list(group) for group in groups] for groups in self._blamed],
            "arrays": {name: array.copy() for name, array in self._arrays().items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The monitor that `state` was taken from; it goes on as that would have."""
        known = isinstance(state, Mapping) and (state.get("format"), state.get("monitor"))
        if known != (_STATE_FORMAT, cls.__name__):
            raise ValueError(f"this is not a state of {cls.__name__} in format {_STATE_FORMAT}")
        try:
            config = dict(state["config"])
            monitor = cls(**config)
            monitor._round = integer("round", state["round"], 0)
            monitor._blocks = [(integer("start", a, 0), integer("length", b, 1)) for a, b in state["blocks"]]
            monitor._labels = list(state["labels"])
            monitor._groups = [tuple(Group(*group) for group in groups) for groups in state["groups"]]
            monitor._blamed = [tuple(Group(*group) for group in groups) for groups in state["blamed"]]
            monitor._load(state["arrays"])
            monitor._check_parts()
        except (KeyError, TypeError) as error:
            raise ValueError(f"this state of {cls.__name__} is broken: {error!r}") from error
        return monitor

    def _check_parts(self) -> None:
        """Refuse a state whose parts do not fit."""
        starts, ends = [start for start, _ in self._blocks], [start + length for start, length in self._blocks]
        tiled = starts == [0, *ends][: len(starts)] and 0 <= max(ends, default=0) - self._round < self.block
        known = len(set(self._labels)) == len(self._labels) <= self.sources
        others = self._by_source.number - len(self._labels)
        labelled = known and others in (0, int(len(self._labels) == self.sources))
        if not tiled or not labelled or not len(self._groups) == len(self._blamed) == self._batch:
            raise ValueError(f"this state of {type(self).__name__} is broken: its parts do not fit")

    def _arrays(self) -> dict[str, NDArray[Any]]:
        own = {
            name: getattr(self, f"_{name}") for name in ("certain", "beyond", "by_time", "by_label", "alarm", "since")
        }
        return self._past.arrays("past_") | self._by_source.arrays("source_") | own

    def _load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._past.resize(len(self._blocks))
        self._by_source.resize(len(np.asarray(arrays["source_reach"])))
        mine = self._arrays()
        if arrays.keys() != mine.keys():
            raise ValueError(f"the state's arrays should be {sorted(mine)}, but are {sorted(arrays)}")
        for name, array in mine.items():
            saved = np.asarray(arrays[name])
            if saved.shape != array.shape or saved.dtype != array.dtype or not np.isfinite(saved).all():
                raise ValueError(f"the state's array {name!r} should be finite {array.dtype} of shape {array.shape}")
            array[...] = saved


def joint_certificate(monitors: Sequence[CorruptionMonitor]) -> Certificate:
    """What several monitors prove together that watched shards of one traffic: one μ* for all. Their δ add up."""
    if not monitors:
        raise ValueError("there must be at least one monitor")
    first = monitors[0]
    for other in monitors:
        for name in ("dim", "noise", "parameter_bound", "regularization", "radius_scale", "block", "trials"):
            if getattr(other, name) != getattr(first, name) or other.trials is not None:
                raise ValueError(f"monitors of shards must watch one stream each with the same {name}")
    delta = sum(monitor.delta for monitor in monitors)
    if delta >= 1.0:
        raise ValueError(f"the shards' delta must add up to less than 1, got {delta:g}; give each a part of it")
    proved = sum(float(monitor.lower_bounds()[0]) for monitor in monitors)
    certain = sum(float(monitor._certain[0]) for monitor in monitors)
    named: tuple[Group, ...] = ()
    for parts in zip(*_padded([list(monitor._partitions()) for monitor in monitors]), strict=True):
        pieces = [part.groups for part in parts]
        groups = Groups(
            np.concatenate([piece.gram for piece in pieces], axis=1),
            np.concatenate([piece.moment for piece in pieces], axis=1),
            np.concatenate([piece.reach for piece in pieces], axis=1),
            np.concatenate([piece.length for piece in pieces]),
            np.concatenate([piece.share * m.delta / delta for piece, m in zip(pieces, monitors, strict=True)]),
        )
        bound = lower_bound(groups, **first._setting() | {"delta": delta}, least=proved - certain)
        if bound.value[0] + certain > proved:
            proved = float(bound.value[0]) + certain
            named = _named(bound, 0, [f"shard {i + 1}: {name}" for i, part in enumerate(parts) for name in part.names])
    return Certificate(
        lower_bound=proved,
        delta=delta,
        rounds=sum(monitor._round for monitor in monitors),
        altered=max(sum(int(m._beyond[0]) for m in monitors), int(proved > 0.0)),
        alarm=None,
        since=None,
        groups=named,
        sources=(),
    )


def _padded(lists: Sequence[list[Partition]]) -> list[list[Partition]]:
    """Lists of the same length: where one is shorter, its last item comes again."""
    longest = max(map(len, lists))
    if any(not items for items in lists):
        return [[] for _ in lists]
    return [items + items[-1:] * (longest - len(items)) for items in lists]


def _rank(index: Floats) -> Floats:
    """1/((i + 1)(i + 2)): over all i ≥ 0 it adds up to 1."""
    return 1.0 / ((index + 1.0) * (index + 2.0))


def _named(bound: Bound, row: int, names: Sequence[str]) -> tuple[Group, ...]:
    """The groups that carry a bound or that it places corruption in."""
    placed, voice = bound.placed[row], bound.voice[row]
    told = (voice > TRACE) | (placed > TRACE * placed.sum())
    return tuple(Group(names[i], float(placed[i]), float(min(1.0, voice[i]))) for i in np.flatnonzero(told).tolist())


def _stretch(start: int, stop: int) -> str:
    return f"{start + 1:,}–{stop:,}"


def _read_noise(value: Any, batch: int, single: bool) -> float | tuple[float, ...]:
    if single or not isinstance(value, (Sequence, np.ndarray)):
        return positive("noise", value)
    if len(value) != batch:
        raise ValueError(f"noise must be one number or {batch}, got {len(value)}")
    return tuple(positive("noise", one) for one in value)


def _read_range(value: Any) -> tuple[float, float]:
    ends = as_floats("reward_range", value)
    if ends.shape != (2,) or not np.isfinite(ends).all() or not ends[0] < ends[1]:
        raise ValueError(f"reward_range must be (lowest, highest), got {value!r}")
    return float(ends[0]), float(ends[1])
