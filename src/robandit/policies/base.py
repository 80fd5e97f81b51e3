"""The contract that every policy keeps: configuration, decisions, randomness, state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robandit.arrays import Bools, Floats, Ints
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.regions import Optimum, Region
from robandit.inputs import (
    as_floats,
    first_bad,
    integer,
    positive,
    read_mask,
    read_rewards,
    read_round,
    read_seed,
    read_trials,
    share,
)
from robandit.policies.decision_sets import Actions, read_action, read_actions, read_sigma
from robandit.streams import POLICY, RoundStream

_LEVEL, _TIE, _EXPLORE, _UNIFORM = range(4)  # what each of a round's four draws decides
_STATE_FORMAT = 1


@dataclass(slots=True, eq=False)
class Decision:
    """What `choose` answers: plain values, or arrays over the trials of a batch.

    `update` reads ``round``, ``action``, ``sigma`` and ``level`` alone, so a decision can be made again from a log.
    """

    round: int
    """The number of the round, from 1 on; those of a warm start count."""
    action: Any
    """The features of the chosen action."""
    index: Any = -1
    """Its place in a finite decision set; −1 in an infinite one."""
    sigma: Any = None
    """The standard deviation declared for its reward."""
    value: Any = np.nan
    """The optimistic value: the largest mean reward that the confidence set allows any action."""
    level: Any = 0
    """Which of the policy's parts chose: the level f(t) of Multi-level weighted OFUL, the base of a master; 0 if it
    has but one."""
    empty: Any = False
    """Whether that level's confidence set was empty."""
    cascade: Any = 0
    """How many levels further up the first set that is not empty was found; past the last level, where all are
    empty, it is the global ellipsoid that counts as one more."""
    explored: Any = False
    """Whether the action was drawn uniformly, as `exploration` asks."""
    certified: Any = True
    """Whether the optimum over action and parameter is proven to be the global one."""
    contradictions: Any = 0
    """How many rewards a sceptic has not believed so far,"""
    restarts: Any = 0
    """how often it has started again from nothing,"""
    audits: Any = 0
    """and how often it has put its model to the test."""
    propensity: Any = None
    """The probability of choosing this action, if it was asked for."""


class Search(NamedTuple):
    """The optimistic actions of n confidence sets, and how those sets were come by."""

    optimum: Optimum
    empty: Bools  # (n,)
    cascade: Ints  # (n,)
    level: Ints | None = None  # (n,), where it is the search that finds the level


class Diary(NamedTuple):
    """What has happened to a policy so far, (B,) each; see `Decision`."""

    contradictions: Ints
    restarts: Ints
    audits: Ints


@dataclass(kw_only=True, eq=False)
class Policy(ABC):
    """Chooses actions by their feature vectors and learns from their rewards.

    A policy of one's own defines `_search`, `_learn`, `_arrays` and `estimate`, and `_start` to make its state.
    """

    dim: int
    """d, the number of features of an action."""
    noise_range: float
    """R: a clean reward differs from its mean by at most this."""
    action_bound: float = 1.0
    """A: the largest norm of an action."""
    parameter_bound: float = 1.0
    """B: the largest norm of the unknown parameter μ*."""
    regularization: float | None = None
    """λ of the ridge regression; 1/B² by default, as in the paper."""
    mean_bound: float = 1.0
    """The largest |⟨a, μ*⟩|; the paper assumes 1. If the true means exceed it, clipping biases the estimate."""
    clip_rewards: bool = True
    """Clip rewards to ±(mean_bound + noise_range). Given true bounds, clean rewards lie within: only lies are cut."""
    exploration: float = 0.0
    """The probability of playing a uniformly drawn action instead, so that every action has a propensity > 0."""
    trials: int | Sequence[int] | None = None
    """Run a batch: the number of trials, or which ones. By default a single trial, without a batch axis."""
    seed: int | tuple[int, int] | None = None
    """Of the policy's own draws; (s, 5) makes a single policy equal to trial 5 of a batch with seed s."""

    cost: ClassVar[float] = 1.0
    """About how long a round takes beside OFUL's; engines begin with the longest work."""

    def __post_init__(self) -> None:
        self.dim = integer("dim", self.dim, least=1)
        for name in ("noise_range", "action_bound", "parameter_bound", "mean_bound"):
            setattr(self, name, positive(name, getattr(self, name)))
        if self.regularization is None:
            self.regularization = 1.0 / self.parameter_bound**2
        self.regularization = self._lambda = positive("regularization", self.regularization)
        self.exploration = share("exploration", self.exploration)
        if not isinstance(self.clip_rewards, (bool, np.bool_)):
            raise ValueError(f"clip_rewards must be True or False, got {self.clip_rewards!r}")
        self.clip_rewards = bool(self.clip_rewards)
        self.seed = read_seed(self.seed)
        numbers = read_trials(self.trials, self.seed)
        if self.trials is not None:
            self.trials = len(numbers) if isinstance(self.trials, Integral) else numbers
        self._numbers = numbers
        self._stream = self._own_stream(4)
        self._single, self._batch = self.trials is None, len(numbers)
        self._rows = np.arange(self._batch)
        self._zeros: Ints = np.zeros(self._batch, dtype=np.int64)
        self._never: Bools = np.zeros(self._batch, dtype=bool)
        self._zeros.flags.writeable = self._never.flags.writeable = False  # decisions may carry them
        self._round = 0
        self._constant: tuple[Actions | None, Floats | Region] = (None, np.empty(0))
        self._updates: Ints = np.zeros(self._batch, dtype=np.int64)
        self._start()
        self._made = True

    _made = False

    def __setattr__(self, name: str, value: object) -> None:
        if self._made and name[0] != "_":
            raise AttributeError(f"{name} is fixed once a policy is made; make a new policy to change it")
        object.__setattr__(self, name, value)

    @property
    def updates(self) -> int | Ints:
        """How many rewards it has learnt from; in a batch (B,)."""
        return int(self._updates[0]) if self._single else self._updates.copy()

    @property
    def rounds(self) -> int:
        """The number of the last round that was decided."""
        return self._round

    # What a policy defines.

    def _start(self) -> None:
        """Check the parameters of its own and make the state of a policy that has seen nothing; calls super's."""

    @abstractmethod
    def _search(self, actions: Floats | Region, level: Ints) -> Search:
        """The optimistic actions of every trial at these levels (B,); a finite set is (B, K, d)."""

    @abstractmethod
    def _learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        """Fold in one reward per trial. All of it is checked; a trial without a reward has weight 0."""

    @abstractmethod
    def _arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of the state by name. `from_state` writes into them."""

    @abstractmethod
    def estimate(self) -> Ellipsoid:
        """A confidence ellipsoid for μ*; its ``center`` is the ridge estimate."""

    def _weights(self, sigma: Floats) -> Floats:
        """What an observation counts whose noise has standard deviation σ, (B,)."""
        return np.ones(len(sigma))

    def _draw_level(self, uniform: Floats) -> Ints:
        """The level of each trial from a uniform number: 0 for a policy without levels."""
        return self._zeros

    def _read_level(self, level: ArrayLike) -> Ints:
        """The level (B,) that a decision carries, checked."""
        return self._zeros

    def _diary(self) -> Diary:
        """What a decision should tell of the policy's past, as copies."""
        return Diary(self._zeros, self._zeros, self._zeros)

    def _chances(self, actions: Floats, search: Search | None = None) -> Floats:
        """The probability (B, K) of each action by optimism alone. ``search`` is that of the level that was drawn,
        which saves a policy without levels another."""
        maximisers = (search or self._search(actions, self._zeros)).optimum.maximisers
        assert maximisers is not None
        return maximisers / np.add.reduce(maximisers, axis=1, keepdims=True, dtype=float)

    # What a caller uses.

    def choose(self, actions: Actions, sigma: ArrayLike | None = None, *, propensity: bool = False) -> Decision:
        """Choose an action: from an array (K, d), in a batch (B, K, d) or one (K, d) for all; or from an infinite set.

        ``sigma`` bounds the standard deviation of the rewards: one number or, per action, (K,); in a batch one number,
        (B,) per trial, or (B, K). Left out, it is ``noise_range``, which bounds it always.
        """
        offered = self._read_actions(actions)
        spread = self._read_sigma(sigma, offered)
        if self.exploration > 0.0 and not isinstance(offered, np.ndarray):
            raise ValueError("exploration needs a finite decision set; make the policy with exploration=0")
        draws = self._stream.at(self._round + 1)
        level = self._draw_level(draws[:, _LEVEL])
        search = self._search(offered, level)
        index, explored = self._pick(offered, search.optimum, draws)
        action = offered[self._rows, index] if isinstance(offered, np.ndarray) else search.optimum.points
        assert action is not None
        # In the order of Decision's fields after the action.
        rest = [
            index,
            spread[self._rows, index] if spread.ndim == 2 else spread.copy(),
            search.optimum.values,
            level if search.level is None else search.level,
            search.empty,
            search.cascade,
            explored,
            search.optimum.certified,
            *self._diary(),
        ]
        if propensity:
            rest.append(self._propensities(offered, search)[self._rows, index])
        self._round += 1
        if self._single:
            return Decision(self._round, action[0], *[array.item() for array in rest])
        return Decision(self._round, action, *rest)

    def update(
        self,
        decision: Decision,
        reward: ArrayLike,
        sigma: ArrayLike | None = None,
        mask: ArrayLike | None = None,
    ) -> None:
        """Learn from the reward of a decision: at once, later, in any order, or never.

        In a batch, trials whose ``mask`` is false have no reward and learn nothing. ``sigma`` is for callers
        who learn it with the reward; otherwise it is the decision's. Each call counts: a decision that is passed
        twice is learnt from twice.
        """
        keep = None if mask is None else read_mask(mask, self._batch)
        rewards = read_rewards(reward, keep, batch=self._batch, single=self._single)
        known = decision.sigma if sigma is None else sigma
        if keep is not None and known is not None:
            known = np.where(keep, as_floats("sigma", known), self.noise_range)  # unknown where there is no reward
        spread = self._read_sigma(known, None)
        round_ = read_round(decision.round)
        action = read_action(
            decision.action, dim=self.dim, batch=self._batch, single=self._single, bound=self.action_bound
        )
        self._fold(action, rewards, spread, self._read_level(decision.level), keep)
        self._round = max(self._round, round_)

    def skip_to(self, number: int) -> None:
        """Go on after this round: it was decided elsewhere, or before a restart. Its draws are not made again."""
        self._round = max(self._round, read_round(number))

    def weight(self, sigma: float) -> float:
        """What a reward counts whose noise has this standard deviation, before what the policy makes of its action."""
        return float(self._weights(np.array([sigma]))[0])

    def warm_start(
        self, actions: ArrayLike, rewards: ArrayLike, sigma: ArrayLike | None = None, level: ArrayLike | None = None
    ) -> None:
        """Learn from logged rounds: actions (n, d), rewards (n,), in a batch with a leading axis of trials.

        Each counts as a round. ``level``, if it was logged, is (n,) or (B, n); otherwise levels are drawn.
        """
        played = self._read_actions(actions)
        if not isinstance(played, np.ndarray):
            raise ValueError("a warm start needs the logged actions as an array")
        shape = self._batch, played.shape[1]
        returns = as_floats("rewards", rewards)
        if returns.shape != (shape[1:] if self._single else shape):
            raise ValueError(f"rewards must be one for each of the {shape[1]} actions, got shape {returns.shape}")
        if not np.isfinite(returns).all():
            raise ValueError(f"rewards must be finite, got {first_bad(returns, np.isfinite(returns))}")
        spread = self._read_sigma(sigma, played)
        spread = np.broadcast_to(spread if spread.ndim == 2 else spread[:, None], shape)
        self._check_sigma(spread)
        if level is None:
            rounds = range(self._round + 1, self._round + 1 + shape[1])
            levels = [self._draw_level(self._stream.at(i)[:, _LEVEL]) for i in rounds]
        else:
            given = np.asarray(level)
            if given.shape not in (shape, shape[1:]):
                raise ValueError(f"level must be one for each of the {shape[1]} actions, got shape {given.shape}")
            levels = [self._read_level(column) for column in np.broadcast_to(given, shape).T]
        for i, column in enumerate(returns.reshape(shape).T):
            self._fold(played[:, i], column, spread[:, i], levels[i], None)
        self._round += shape[1]

    def propensities(self, actions: Actions) -> Floats:
        """The exact probability with which the next `choose` plays each of ``actions``: (K,), in a batch (B, K)."""
        chances = self._propensities(self._read_actions(actions))
        return chances[0] if self._single else chances

    def state(self) -> dict[str, Any]:
        """Everything that the policy has learnt, as plain data: JSON values and, under ``arrays``, NumPy arrays."""
        return {
            "format": _STATE_FORMAT,
            "policy": type(self).__name__,
            "config": {item.name: getattr(self, item.name) for item in fields(self)},
            "round": self._round,
            "arrays": {name: array.copy() for name, array in self._all_arrays().items()},
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The policy that `state` was taken from; it continues bit for bit."""
        if (state.get("format"), state.get("policy")) != (_STATE_FORMAT, cls.__name__):
            raise ValueError(
                f"this is not a state of {cls.__name__} in format {_STATE_FORMAT}, "
                f"but of {state.get('policy')} in format {state.get('format')}"
            )
        try:
            policy = cls(**state["config"])
            policy._round = read_round(state["round"])
            policy._load(state["arrays"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"this state of {cls.__name__} is broken: {error!r}") from error
        return policy

    # How.

    def _own_stream(self, *shape: int, key: int | None = None, normal: bool = False) -> RoundStream:
        """Random numbers of its trials; those with another ``key`` are others."""
        seed = self.seed[0] if isinstance(self.seed, tuple) else self.seed
        assert seed is not None
        keys = (POLICY,) if key is None else (POLICY, key)
        return RoundStream(seed=seed, trials=self._numbers, key=keys, shape=shape, normal=normal)

    def _all_arrays(self) -> dict[str, NDArray[Any]]:
        return {"updates": self._updates, **self._arrays()}

    def _load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Take the arrays of a saved state, if they are right."""
        if arrays.keys() != self._all_arrays().keys():
            raise ValueError(f"the state's arrays should be {sorted(self._all_arrays())}, but are {sorted(arrays)}")
        for name, array in self._all_arrays().items():
            saved = np.asarray(arrays[name])
            if saved.shape != array.shape or saved.dtype != array.dtype:
                raise ValueError(
                    f"the state's array {name!r} should be {array.dtype} of shape {array.shape}, "
                    f"but is {saved.dtype} of shape {saved.shape}"
                )
            if not np.isfinite(saved).all() or (name == "updates" and saved.min() < 0):
                raise ValueError(f"the state's array {name!r} holds impossible numbers")
            array[...] = saved

    def _read_actions(self, actions: Actions) -> Floats | Region:
        # A set that nobody can write to needs no second look when it comes back.
        constant = isinstance(actions, np.ndarray) and actions.base is None and not actions.flags.writeable
        if constant and actions is self._constant[0]:
            return self._constant[1]
        offered = read_actions(actions, dim=self.dim, batch=self._batch, single=self._single, bound=self.action_bound)
        if constant:
            self._constant = actions, offered
        return offered

    def _read_sigma(self, sigma: ArrayLike | None, offered: Floats | Region | None) -> Floats:
        count = offered.shape[1] if isinstance(offered, np.ndarray) else None
        known = self.noise_range if sigma is None else sigma
        return read_sigma(known, batch=self._batch, actions=count, single=self._single)

    def _fold(self, actions: Floats, rewards: Floats, sigma: Floats, level: Ints, keep: Bools | None) -> None:
        self._check_sigma(sigma)
        if self.clip_rewards:
            reach = self.mean_bound + self.noise_range
            rewards = np.minimum(np.maximum(rewards, -reach), reach)
        weights = self._weights(sigma)
        self._learn(actions, rewards, weights if keep is None else weights * keep, level)
        updates = self._updates  # in place, and past __setattr__
        updates += 1 if keep is None else keep

    def _check_sigma(self, sigma: Floats) -> None:
        """Refuse a σ that the policy can't weigh by."""

    def _propensities(self, offered: Floats | Region, search: Search | None = None) -> Floats:
        if not isinstance(offered, np.ndarray):
            raise ValueError("propensities need a finite decision set")
        chances = (1.0 - self.exploration) * self._chances(offered, search) + self.exploration / offered.shape[1]
        return np.minimum(chances, 1.0)  # a master's, which are sums, may be rounded to a little more

    def _pick(self, offered: Floats | Region, optimum: Optimum, draws: Floats) -> tuple[NDArray[np.intp], Bools]:
        """Which of the offered actions to play (B,), ties broken at random, and whether it was drawn to explore."""
        explored = np.zeros(self._batch, dtype=bool)
        if optimum.maximisers is None or not isinstance(offered, np.ndarray):
            return np.full(self._batch, -1), explored
        index = _one_of(optimum.maximisers, draws[:, _TIE])
        if self.exploration > 0.0:
            explored = draws[:, _EXPLORE] < self.exploration
            index = np.where(explored, (draws[:, _UNIFORM] * offered.shape[1]).astype(np.intp), index)
        return index, explored


def _one_of(maximisers: Bools, uniform: Floats) -> NDArray[np.intp]:
    """One of each row's maximisers (B, K), uniformly."""
    if np.count_nonzero(maximisers) == len(maximisers):  # no ties
        return maximisers.argmax(axis=1)
    rank = (uniform * maximisers.sum(axis=1)).astype(np.intp)
    return (maximisers.cumsum(axis=1) > rank[:, None]).argmax(axis=1)
