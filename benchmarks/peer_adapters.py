"""Packaged bandit libraries behind one small interface, so that they can play the same trials as our policies.

The model is one parameter shared by all actions, each with its own features: reward = ⟨a, μ*⟩ + noise, with a fresh
decision set in every round. Vowpal Wabbit and coba take that as it is. MABWiser, contextualbandits and river keep a
regression for each arm, and one context for all arms of a round.

The k-th place of a fresh set has no meaning, so a model per place could learn nothing: it would be a straw man. But
each of these libraries scores contexts by a regression. So the fair mapping is one arm whose contexts are the actions
on offer, and the action with the highest score is played. That is the algorithm with a shared parameter, in their code.
Models have no intercept where that is possible, because the truth has none, and λ = 1 as in ours. `LEFT_OUT` lists what
can't be mapped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import product
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from robandit.arrays import Floats

Knobs: TypeAlias = Mapping[str, float]
"""The settings that are tuned, under the library's own names."""

REACH = 1.5
"""The largest absolute reward in the environment used here: a mean of at most 1 plus noise of at most 0.5."""


class Trial(NamedTuple):
    """What a learner may know before it starts, and the seed of its random draws."""

    dim: int
    rounds: int
    seed: int


class Peer(ABC):
    """One trial of one learner. The time of `convert` is ours, the rest is the library's."""

    def convert(self, actions: Floats) -> Any:
        """The decision set (K, d) as plain data in the library's format."""
        return actions

    def build(self, shown: Any) -> Any:
        """The library's own objects, made from the converted data."""
        return shown

    @abstractmethod
    def pick(self, shown: Any) -> int:
        """The index of the action to play."""

    @abstractmethod
    def learn(self, shown: Any, index: int, reward: float) -> None:
        """Learn the reward of the action played."""


class VowpalWabbit(Peer):
    """``--cb_explore_adf``. VW gives the probabilities, and the action is drawn from them here."""

    def __init__(self, knobs: Knobs, trial: Trial, explore: str = "") -> None:
        self._vw = import_module("vowpalwabbit")
        options = " ".join(f"--{name} {value}" for name, value in knobs.items())
        self._workspace = self._vw.Workspace(
            f"--cb_explore_adf {explore} {options} --cb_type mtr --noconstant --quiet --random_seed {trial.seed} "
            f"--cb_min_cost -{REACH} --cb_max_cost {REACH}"
        )
        self._rng = np.random.default_rng(trial.seed)
        self._features, self._label = range(trial.dim), self._vw.LabelType.CONTEXTUAL_BANDIT
        self._chances: list[float] = []

    def convert(self, actions: Floats) -> Any:
        return [{"a": list(zip(self._features, row, strict=True))} for row in actions.tolist()]

    def build(self, shown: Any) -> Any:
        examples = []
        for features in shown:
            example = self._vw.Example(self._workspace, None, self._label)
            example.push_feature_dict(self._workspace, features)
            example.setup_example()
            examples.append(example)
        return examples

    def pick(self, shown: Any) -> int:
        self._chances = self._workspace.predict(shown)
        total = np.cumsum(self._chances)
        return int(np.searchsorted(total, self._rng.random() * total[-1], side="right"))

    def learn(self, shown: Any, index: int, reward: float) -> None:
        shown[index].set_label_string(f"0:{-reward}:{self._chances[index]}")  # VW minimises costs
        self._workspace.learn(shown)
        self._workspace.finish_example(shown)


class Coba(Peer):
    """Any of coba's learners, called as coba's evaluator does: without context, with dense features of each action."""

    def __init__(self, learner: Any, unit: bool = False) -> None:
        self._learner, self._unit = learner, unit
        self._rest: tuple[float, dict[str, Any]] = (1.0, {})

    def convert(self, actions: Floats) -> Any:
        return actions.tolist()

    def pick(self, shown: Any) -> int:
        action, chance, *extra = self._learner.predict(None, shown)
        self._rest = chance, extra[0] if extra else {}
        return next(place for place, one in enumerate(shown) if one is action)

    def learn(self, shown: Any, index: int, reward: float) -> None:
        scaled = (reward + REACH) / (2.0 * REACH) if self._unit else reward
        self._learner.learn(None, shown[index], scaled, self._rest[0], **self._rest[1])


class MABWiser(Peer):
    """One arm whose contexts are the actions on offer. `predict_expectations` scores them all in one call."""

    def __init__(self, knobs: Knobs, trial: Trial, policy: str = "LinUCB") -> None:
        mab = import_module("mabwiser.mab")
        fixed = {"epsilon": 0.0} if policy == "LinGreedy" else {}
        self._mab = mab.MAB(["any"], getattr(mab.LearningPolicy, policy)(**fixed, **knobs), seed=trial.seed)
        self._mab.fit(["any"], [0.0], np.zeros((1, trial.dim)))  # it must be fitted first; zeros change nothing

    def pick(self, shown: Any) -> int:
        return int(np.argmax([score["any"] for score in self._mab.predict_expectations(shown)]))

    def learn(self, shown: Any, index: int, reward: float) -> None:
        self._mab.partial_fit(["any"], [reward], shown[index : index + 1])


class ContextualBandits(Peer):
    """The library's LinUCB or LinTS. It needs at least two arms: the first one plays, the second never gets data.

    The manual asks for rewards of 0 or 1, but these two policies accept any: LinUCB chooses as `Regression` does.
    """

    def __init__(self, knobs: Knobs, trial: Trial, policy: str = "LinUCB") -> None:
        kind = getattr(import_module("contextualbandits.online"), policy)
        fixed = {"sample_from": "ci"} if policy == "LinTS" else {}  # "coef" draws with Σ where Σ⁻¹ is due (0.3.30)
        self._policy = kind(2, fit_intercept=False, random_state=trial.seed, **fixed, **knobs)
        self._arm = np.zeros(1, np.int64)
        self._policy.fit(np.zeros((1, trial.dim)), self._arm, np.zeros(1))  # until it is fitted it plays at random

    def pick(self, shown: Any) -> int:
        return int(self._policy.decision_function(shown)[:, 0].argmax())

    def learn(self, shown: Any, index: int, reward: float) -> None:
        self._policy.partial_fit(shown[index : index + 1], self._arm, np.array([reward]))


class Regression(Peer):
    """`contextualbandits.linreg`, the compiled regression inside that library's LinUCB, without the policy."""

    def __init__(self, knobs: Knobs, trial: Trial) -> None:
        linreg = import_module("contextualbandits.linreg")
        self._model, self._knobs = linreg.LinearRegression(fit_intercept=False), knobs
        self._model.fit(np.zeros((1, trial.dim)), np.zeros(1))  # zeros change nothing

    def pick(self, shown: Any) -> int:
        return int(self._model.predict_ucb(shown, **self._knobs).argmax())

    def learn(self, shown: Any, index: int, reward: float) -> None:
        self._model.partial_fit(shown[index : index + 1], np.array([reward]))


class River(Peer):
    """The rule of river's LinUCBDisjoint, mean + σ of a Bayesian regression, with one regression for all actions."""

    def __init__(self, knobs: Knobs, trial: Trial) -> None:
        # alpha stays 1: otherwise precision and covariance start as the same matrix instead of as inverses.
        self._model = import_module("river.linear_model").BayesianLinearRegression(**knobs)
        self._features = range(trial.dim)

    def convert(self, actions: Floats) -> Any:
        return [dict(zip(self._features, row, strict=True)) for row in actions.tolist()]

    def pick(self, shown: Any) -> int:
        beliefs = (self._model.predict_one(one, with_dist=True) for one in shown)
        return int(np.argmax([belief.mu + belief.sigma for belief in beliefs]))

    def learn(self, shown: Any, index: int, reward: float) -> None:
        self._model.learn_one(shown[index], reward)


@dataclass(frozen=True)
class Contender:
    """A learner of a package."""

    name: str
    package: str
    grid: Sequence[Knobs]
    """The knobs to try in the tuning."""
    make: Callable[[Knobs, Trial], Peer]
    """Makes the learner for one trial."""
    rule: str = ""
    """The algorithm, where several packages have it with the same knob. The first of them that is installed tunes for
    all."""
    slow: bool = False
    """Whether it plays only half of the trials."""


def _grid(**values: Sequence[float]) -> Sequence[Knobs]:
    return [dict(zip(values, each, strict=True)) for each in product(*values.values())]


def _vw(explore: str, **values: Sequence[float]) -> tuple[Sequence[Knobs], Callable[[Knobs, Trial], Peer]]:
    """The grid and the maker of a VW learner. Its learning rate sets how fast it forgets, so that is tuned too."""
    return _grid(**values, learning_rate=(0.5, 2.0, 8.0)), lambda knobs, trial: VowpalWabbit(knobs, trial, explore)


def _coba(learner: str) -> Callable[[Knobs, Trial], Peer]:
    def make(knobs: Knobs, trial: Trial) -> Peer:
        return Coba(getattr(import_module("coba.learners"), learner)(**knobs, features=["a"], seed=trial.seed))

    return make


def _corral(knobs: Knobs, trial: Trial) -> Peer:
    """Corral over a narrow and a wide LinUCB. It needs rewards in [0, 1], which gives the truth an intercept."""
    learners = import_module("coba.learners")
    bases = [learners.LinUCBLearner(alpha, [1, "a"], trial.seed) for alpha in (0.1, 1.0)]
    return Coba(learners.CorralLearner(bases, T=trial.rounds, mode="off-policy", seed=trial.seed, **knobs), unit=True)


def _mabwiser(policy: str) -> Callable[[Knobs, Trial], Peer]:
    return lambda knobs, trial: MABWiser(knobs, trial, policy)


def _contextualbandits(policy: str) -> Callable[[Knobs, Trial], Peer]:
    return lambda knobs, trial: ContextualBandits(knobs, trial, policy)


WIDTHS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
SQUARES = tuple(width**2 for width in WIDTHS)
APART = "LinTS, a draw for each action"
RIVER = [
    *_grid(beta=(1.0, 100.0)),
    *_grid(beta=(1e2, 1e4), smoothing=(0.9, 0.99)),
]  # river can forget, so that is tried too

CONTENDERS = (
    Contender("VW SquareCB", "vowpalwabbit", *_vw("--squarecb", gamma_scale=(3000.0, 30000.0))),
    Contender("VW RegCB", "vowpalwabbit", *_vw("--regcbopt", mellowness=(0.0001, 0.001))),
    Contender("VW ε-greedy", "vowpalwabbit", *_vw("", epsilon=(0.0, 0.003))),
    Contender("contextualbandits linreg", "contextualbandits", _grid(alpha=WIDTHS), Regression, "LinUCB"),
    Contender(
        "contextualbandits LinUCB",
        "contextualbandits",
        _grid(alpha=WIDTHS),
        _contextualbandits("LinUCB"),
        "LinUCB",
        slow=True,
    ),
    Contender("MABWiser LinUCB", "mabwiser", _grid(alpha=WIDTHS), _mabwiser("LinUCB"), "LinUCB", slow=True),
    Contender("coba LinUCB", "coba", _grid(alpha=WIDTHS), _coba("LinUCBLearner"), "LinUCB", slow=True),
    Contender("coba LinTS", "coba", _grid(v=SQUARES), _coba("LinTSLearner"), slow=True),
    Contender(
        "contextualbandits LinTS",
        "contextualbandits",
        _grid(v_sq=WIDTHS),
        _contextualbandits("LinTS"),
        APART,
        slow=True,
    ),
    Contender("MABWiser LinTS", "mabwiser", _grid(alpha=WIDTHS), _mabwiser("LinTS"), APART, slow=True),
    Contender(
        "MABWiser LinGreedy", "mabwiser", _grid(l2_lambda=(0.1, 1.0, 10.0, 100.0)), _mabwiser("LinGreedy"), slow=True
    ),
    Contender("river LinUCB", "river", RIVER, River, slow=True),
    Contender("coba Corral", "coba", _grid(eta=(0.075, 0.25)), _corral, slow=True),
)
"""Every learner that applies. Of those with the same rule, the fastest comes first."""

LEFT_OUT = (
    "An arm for each place (river's LinUCBDisjoint as it is, MABWiser, contextualbandits): the places of a fresh set "
    "have no meaning. Their regression is used with one arm instead.",
    "MABWiser's and contextualbandits' LinTS, with one arm, draw once per action instead of once for all.",
    "contextualbandits' LinTS with its default sample_from='coef' explores more the more it knows (0.3.30). "
    "It plays with 'ci'.",
    "MABWiser LinGreedy's ε would give single actions random scores instead of playing one at random: it is 0, and λ "
    "is tuned.",
    "contextualbandits' other policies need classifiers of rewards 0 and 1.",
    "coba's BanditUCB and BanditEpsilon, and river's policies without contexts, know actions by name, not by features.",
    "coba's Vowpal learners are Vowpal Wabbit, which is used directly.",
)
"""What does not apply, or only in part, and why."""


def installed(package: str) -> bool:
    """Whether a package and its dependencies can be imported."""
    try:
        import_module(
            {"mabwiser": "mabwiser.mab", "contextualbandits": "contextualbandits.online"}.get(package, package)
        )
    except ImportError:
        return False
    return True
