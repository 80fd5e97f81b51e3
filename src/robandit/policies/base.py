"""The contract that every policy keeps: configuration, decisions, randomness, state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robandit.arrays import ONE, Bools, Floats, Index, Ints, constant, ones, within
from robandit.errors import Configured
from robandit.geometry.ellipsoid import Ellipsoid
from robandit.geometry.intersection import Intersection
from robandit.geometry.regions import Optimum, Region, optimise
from robandit.geometry.ridge import Ridge
from robandit.inputs import overwrite, read_corruption, read_round, read_seed, read_trials
from robandit.policies.decision import Actions, Decision, RoundCounter, Search
from robandit.policies.parts import Statistics, one_of, split_ties
from robandit.policies.radius import Setting
from robandit.policies.reader import CallReader
from robandit.policies.saved import pack, read_saved, unpack, write_saved
from robandit.policies.settings import MEANINGS, read_settings
from robandit.policies.sources import Labels, Sources, SourceSlots
from robandit.streams import POLICY, RoundStream

if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    S = TypeVarWithDefault("S", bound=Statistics, default=Any)
else:
    S = TypeVar("S")

E = TypeVar("E", Ellipsoid, Intersection)

_LEVEL, _TIE, _EXPLORE, _UNIFORM = range(4)  # what each of a round's four draws decides


@dataclass(kw_only=True, eq=False)
class Policy(Configured, ABC, Generic[S]):
    """Chooses actions by their feature vectors and learns from their rewards.

    A policy of one's own defines `start`, which returns its statistics, `confidence` and `learn`; CONTRIBUTING.md shows
    one. ``self.stats`` is what `start` returned: all that it learns must be there, written to in place, to be part of
    `state`. Other attributes are set in `start` and never again. `choose` calls `draw_level`, then `search`, which asks
    for `confidence`; `update` calls `weights`, then `learn`, and ``t`` grows by one. A policy with levels overrides
    `levels`, `draw_level`, `estimate` and `chances` too; one that tells sources apart sets `slots`, and `learn_from`.

    Shapes: B trials (``batch``, of which ``rows`` are the places), K actions, d features. ``lam`` is λ, ``reach`` the
    largest size of a clean reward, ``t`` the number of updates so far plus one, (B,). A setting that is not in
    `policies.settings` is checked in `start`.
    """

    dim: int
    noise_range: float
    action_bound: float = 1.0
    parameter_bound: float = 1.0
    regularization: float | None = None
    mean_bound: float = 1.0
    clip_rewards: bool = True
    exploration: float = 0.0
    trials: int | Sequence[int] | None = None
    seed: int | tuple[int, int] | None = None
    kernel: str = "numpy"

    meanings: ClassVar[Mapping[str, str]] = MEANINGS
    """The meaning of each setting that several policies share."""
    cost: ClassVar[float] = 1.0
    """Rough time per round relative to OFUL. Engines start the slowest work first."""
    info_counts: ClassVar[bool] = False
    """Whether `Decision.info` is cumulative. If not, results add it up over rounds."""
    numerics: ClassVar[int] = 1
    """Raised when the same log gives other results than before, if only in the last places. It is part of the state."""
    _made = False

    def __post_init__(self) -> None:
        self._configure()
        self.rows: Index = np.arange(self.batch)
        self._stream = self.own_stream(4)
        self.no_level: Ints = constant(np.zeros(self.batch, dtype=np.int64))  # the level of a policy that has none
        self._not_explored: Bools = constant(np.zeros(self.batch, dtype=bool))
        self._clock = RoundCounter()
        self._updates: Ints = np.zeros(self.batch, dtype=np.int64)
        self._clipped: Ints = np.zeros(self.batch, dtype=np.int64)
        self.slots = SourceSlots(0, self.batch)  # `start` may ask for some
        self.stats: S = self.start()
        self._read = CallReader(
            dim=self.dim,
            batch=self.batch,
            single=self._single,
            bound=self.action_bound,
            noise_range=self.noise_range,
            levels=self.levels,
        )
        self._made = True

    def __setattr__(self, name: str, value: object) -> None:
        if self._made and name[0] != "_":
            raise AttributeError(f"{name} is fixed once a policy is made; make a new policy to change it")
        object.__setattr__(self, name, value)

    def _configure(self) -> None:
        """Check every setting, once."""
        self.seed = read_seed(self.seed)
        self._numbers = read_trials(self.trials, self.seed)
        if self.trials is not None:
            self.trials = len(self._numbers) if isinstance(self.trials, Integral) else self._numbers
        self._single, self.batch = self.trials is None, len(self._numbers)
        # Arrays over the trials as a decision shows them: as they are, or a single trial's as plain values.
        self._shown: Any = np.ndarray.item if self._single else np.asarray
        read_settings(self)
        if getattr(self, "corruption", None) is not None:
            self.corruption: Any = read_corruption(self.corruption, self.batch, self._single)
        if self.regularization is None:
            self.regularization = 1.0 / self.parameter_bound**2
        self.lam: float = self.regularization  # λ
        self.reach = self.mean_bound + self.noise_range  # the largest size of a clean reward

    # What a policy defines.

    @abstractmethod
    def start(self) -> S:
        """Make the parts that the policy holds, and return the statistics of a policy that has seen nothing."""

    @abstractmethod
    def confidence(self, level: Ints) -> Ellipsoid | Intersection:
        """The confidence set of each trial at these levels (B,)."""

    @abstractmethod
    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints) -> None:
        """Learn one checked reward per trial, (B,). A weight of 0 means that the trial has no reward."""

    def learn_from(self, actions: Floats, rewards: Floats, weights: Floats, level: Ints, source: Labels | None) -> None:
        """The same for a policy that tells sources apart; any other ignores the labels (B,)."""
        self.learn(actions, rewards, weights, level)

    def weights(self, sigma: Floats) -> Floats:
        """The weight of an observation whose noise has standard deviation σ, (B,)."""
        return ones(len(sigma))

    @property
    def levels(self) -> int:
        """The number of levels, one of which chooses each round; 0 if the policy has none."""
        return 0

    def draw_level(self, uniform: Floats) -> Ints:
        """The level of each trial from a uniform number: 0 for a policy without levels."""
        return self.no_level

    def search(self, actions: Floats | Region, level: Ints) -> Search:
        """The best action (B,) under the confidence sets at these levels; a finite set is (B, K, d)."""
        return Search(optimise(actions, self.confidence(level)))

    def chances(self, actions: Floats, search: Search | None = None) -> Floats:
        """The probability (B, K) of each action, without exploration; ``search``, if known, saves a second one."""
        found = (search or self.search(actions, self.no_level)).optimum
        return split_ties(found.mask(actions.shape[1]))

    def estimate(self) -> Ellipsoid:
        """A confidence ellipsoid for μ*; its ``center`` is the ridge estimate."""
        held = self.confidence(self.no_level)
        assert isinstance(held, Ellipsoid)
        return self.copied(held)

    # What policies have in common.

    @property
    def t(self) -> Ints:
        """The t of the radii, (B,): the number of updates so far plus one."""
        return self._updates + ONE

    def new_ridge(self, rows: int | None = None, **more: Any) -> Ridge:
        """A ridge regression with the policy's λ that has seen nothing; by default with one row for each trial."""
        given: dict[str, Any] = {"regularization": self.lam, "kernel": self.kernel} | more
        return Ridge(rows=self.batch if rows is None else rows, dim=self.dim, **given)

    def constants(self, delta: float, sigma_floor: float = 1.0) -> Setting:
        """The constants that the radii depend on; ``sigma_floor`` is the least σ̄."""
        return Setting(
            dim=self.dim,
            noise_range=self.noise_range,
            action_bound=self.action_bound,
            parameter_bound=self.parameter_bound,
            delta=delta,
            regularization=self.lam,
            sigma_floor=sigma_floor,
        )

    def own_stream(self, *shape: int, key: int | None = None, normal: bool = False) -> RoundStream:
        """A random stream for each trial. Different keys give independent streams."""
        seed = self.seed[0] if isinstance(self.seed, tuple) else self.seed
        assert seed is not None
        keys = (POLICY,) if key is None else (POLICY, key)
        return RoundStream(seed=seed, trials=self._numbers, key=keys, shape=shape, normal=normal)

    def copied(self, confidence: E) -> E:
        """A copy of some sets that callers may keep, without a batch axis for a single trial."""
        return self.unbatched(confidence[self.rows])

    def unbatched(self, batch: Any) -> Any:
        """Something over the trials as callers see it: without a batch axis for a single trial."""
        return batch[0] if self._single else batch

    # What a caller uses.

    @property
    def updates(self) -> int | Ints:
        """How many rewards it has learnt from; in a batch (B,)."""
        return int(self._updates[0]) if self._single else self._updates.copy()

    @property
    def clipped(self) -> int | Ints:
        """How many of these rewards were larger than a clean one can be, and were clipped; in a batch (B,)."""
        return int(self._clipped[0]) if self._single else self._clipped.copy()

    @property
    def rounds(self) -> int:
        """The number of the last round that was decided."""
        return self._clock.round

    def choose(
        self, actions: Actions, sigma: ArrayLike | None = None, *, source: Sources = None, propensity: bool = False
    ) -> Decision:
        """Choose an action. ``actions`` is an array (K, d), in a batch also (B, K, d), or an infinite set.

        ``sigma`` bounds the standard deviation of the rewards: one number or, per action, (K,); in a batch one number,
        (B,) per trial, or (B, K); ``noise_range`` by default. ``source`` labels the traffic: text or integer, or (B,).
        """
        offered, shown = self._read.actions(actions), self._shown
        spread = self._read.sigma(sigma, offered)
        labels = None if source is None else self._read.source(source)
        level = self.draw_level(self._draw(_LEVEL)) if self.levels else self.no_level
        search = self.search(offered, level)
        index, explored = self._pick(offered, search.optimum)
        action = self._at(offered, index) if isinstance(offered, np.ndarray) else search.optimum.points
        chances = self._chance(offered, search, index) if propensity else None
        self._clock.round += 1
        return Decision(
            round=self._clock.round,
            action=self.unbatched(action),
            index=shown(index),
            sigma=shown(self._at(spread, index) if spread.ndim == 2 else spread.copy()),
            value=shown(search.optimum.values),
            level=shown(level if search.level is None else search.level),
            source=None if labels is None else shown(labels),
            explored=shown(explored),
            certified=shown(search.optimum.certified),
            propensity=None if chances is None else shown(chances),
            info=search.info._make(map(shown, search.info)) if self._single and search.info else search.info,
        )

    def update(
        self, decision: Decision, reward: ArrayLike, sigma: ArrayLike | None = None, mask: ArrayLike | None = None
    ) -> None:
        """Learn from the reward of a decision: at once, later, in any order, or never.

        In a batch, trials whose ``mask`` is false learn nothing. ``sigma`` is for callers who learn it with the reward;
        otherwise it is the decision's. Each call counts: a decision that is passed twice is learnt from twice.
        """
        if not isinstance(decision, Decision):
            raise TypeError(f"update needs the Decision that choose gave, and then its reward; got {decision!r:.60}")
        feedback = self._read.feedback(decision, reward, sigma, mask)
        round_ = read_round(decision.round)
        self._fold(*feedback)
        self._clock.round = max(self._clock.round, round_)

    def skip_to(self, number: int) -> None:
        """Continue after this round, which was decided elsewhere or before a restart. Its draws are not made again."""
        self._clock.round = max(self._clock.round, read_round(number))

    def at_round(self, number: int) -> AbstractContextManager[None]:
        """Within this context `choose` draws as in this round, and changes nothing: ``rounds`` is then as before."""
        return self._clock.at(read_round(number))

    def weight(self, sigma: float) -> float:
        """The weight of a reward whose noise has this standard deviation, before `learn` adjusts it for the action."""
        return float(self.weights(np.array([sigma]))[0])

    def keep_rulings(self, other: Policy[Any]) -> None:
        """Take over what an operator said of sources to another policy of this kind; most are told nothing."""

    def warm_start(
        self,
        actions: ArrayLike,
        rewards: ArrayLike,
        sigma: ArrayLike | None = None,
        level: ArrayLike | None = None,
        source: Any = None,
    ) -> None:
        """Learn from logged rounds: actions (n, d), rewards (n,), in a batch with a leading axis of trials.

        Each counts as a round. ``level``, if it was logged, is (n,) or (B, n); otherwise levels are drawn. ``source``
        is one label for all rounds, (n,) or (B, n).
        """
        logged = self._read.log(actions, rewards, sigma, level, source, self._logged_level)
        self.weights(np.concatenate([sigma for _, _, sigma, *_ in logged]))  # refuses what it can't weigh by
        for feedback in logged:
            self._fold(*feedback)
        self._clock.round += len(logged)

    def propensities(self, actions: Actions) -> Floats:
        """The probability with which the next `choose` plays each of ``actions``: (K,), in a batch (B, K).

        It is exact unless the policy says otherwise.
        """
        return self.unbatched(self._propensities(self._read.actions(actions)))

    def state(self) -> dict[str, Any]:
        """Everything that the policy has learnt, as plain data: JSON values and, under ``arrays``, NumPy arrays."""
        return pack(self, self._clock.round, self._arrays())

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """The policy that `state` was taken from; it continues bit for bit where `numerics` are the same."""
        try:
            policy = unpack(cls, state)
            policy._clock.round = read_round(state["round"])
            overwrite(policy._arrays(), {"clipped": policy._clipped, **state["arrays"]})  # which older states lack
        except (KeyError, TypeError) as error:
            raise ValueError(f"this state of {cls.__name__} is broken: {error!r}") from error
        return policy

    def save(self, path: str | Path) -> None:
        """Write the state into one file, all of it or nothing."""
        write_saved(path, "policy", self.state())

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The policy that was saved in a file; it continues bit for bit. `Policy.load` finds out which policy it is."""
        state = read_saved(path, "policy")
        return cls.named(state.get("policy")).from_state(state)

    @classmethod
    def named(cls, name: Any) -> type[Self]:
        """The policy of this name: this class, or one that is derived from it."""
        kinds = [cls]
        for kind in kinds:
            if kind.__name__ == name:
                return kind
            kinds += kind.__subclasses__()
        raise ValueError(f"this is a state of {name}, which is no {cls.__name__} that is known here; import it first")

    # Internals.

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"updates": self._updates, "clipped": self._clipped, **self.stats.arrays()}

    def _logged_level(self, place: int) -> Ints:
        """The level (B,) of a logged round, drawn as if it were played next; ``place`` counts from 0 on."""
        return self.draw_level(self._stream.at(self._clock.round + 1 + place)[:, _LEVEL])

    def _fold(
        self, actions: Floats, rewards: Floats, sigma: Floats, level: Ints, source: Labels | None, keep: Bools | None
    ) -> None:
        weights = self.weights(sigma)
        if self.clip_rewards and not within(rewards, self.reach):
            rewards, given = np.minimum(np.maximum(rewards, -self.reach), self.reach), rewards
            self._clipped[...] += (rewards != given) if keep is None else (rewards != given) & keep
        self.learn_from(actions, rewards, weights if keep is None else weights * keep, level, source)
        updates = self._updates  # in place, which spares a call of __setattr__ in every round
        updates += ONE if keep is None else keep

    def _propensities(self, offered: Floats | Region, search: Search | None = None) -> Floats:
        if not isinstance(offered, np.ndarray):
            raise ValueError("propensities need a finite decision set")
        chances = (1.0 - self.exploration) * self.chances(offered, search) + self.exploration / offered.shape[1]
        return np.minimum(chances, 1.0)  # sums of a master's probabilities can round to just above 1

    def _chance(self, offered: Floats | Region, search: Search, index: Index) -> Floats:
        """The probability (B,) of the actions that were chosen."""
        if search.optimum.only is not None and self.exploration == 0.0 and type(self).chances is Policy.chances:
            return ones(self.batch)  # nothing was drawn; the common case, made fast
        return self._at(self._propensities(offered, search), index)

    def _draw(self, what: int) -> Floats:
        """A uniform number (B,) of the round that comes next."""
        return self._stream.at(self._clock.round + 1)[:, what]

    def _at(self, array: Floats, index: Index) -> Floats:
        """What an array (B, K, …) has at one of K places in each trial, (B, …)."""
        return array[0].take(index, axis=0) if self.batch == 1 else array[self.rows, index]

    def _pick(self, offered: Floats | Region, optimum: Optimum) -> tuple[Index, Bools]:
        """Which of the offered actions to play (B,), ties broken at random, and whether it was drawn to explore."""
        if not isinstance(offered, np.ndarray):
            if self.exploration > 0.0:
                raise ValueError("exploration needs a finite decision set; make the policy with exploration=0")
            return np.full(self.batch, -1), self._not_explored
        index = optimum.only
        if index is None:
            index = one_of(optimum.mask(offered.shape[1]), self._draw(_TIE))
        if self.exploration == 0.0:
            return index, self._not_explored
        explored = self._draw(_EXPLORE) < self.exploration
        return np.where(explored, (self._draw(_UNIFORM) * offered.shape[1]).astype(np.intp), index), explored
