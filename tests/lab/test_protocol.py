"""The loop against a slow transcription of the paper's protocol, and what a trial must not depend on."""

import math
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest

from robandit import OFUL, Greedy, LinTS, MultiLevelWeightedOFUL, Quorum, RobustWeightedOFUL, WeightedOFUL
from robandit.lab.attacks import (
    Attack,
    ContextAttack,
    Flip,
    GarcelonAdaptive,
    NoAttack,
    OracleTarget,
    RandomFlips,
    SourceNoise,
    Stealth,
    SuppressBest,
    TopN,
)
from robandit.lab.environments import (
    NEVER,
    Bernoulli,
    ChangingSets,
    Delayed,
    Drift,
    Environment,
    Fresh,
    Menu,
    Offer,
    Paper,
    PerActionNoise,
    UnitBall,
)
from robandit.lab.oracles import OFULToldLiars
from robandit.lab.protocol import MakePolicy, Scenario, Trace, checkpoints, simulate, simulate_each
from robandit.policies import Decision, Policy, radius
from robandit.streams import ENVIRONMENT, Draws
from thinned import thinned, untraced

DIM, ACTIONS, ROUNDS, SEED = 4, 6, 60, 11
SIZE: dict[str, Any] = {"dim": DIM, "actions": ACTIONS}
MULTI_LEVEL = partial(MultiLevelWeightedOFUL, radius_scale=0.002)  # so narrow that sets are empty and cascades occur


@dataclass(kw_only=True, frozen=True)
class Twins(Environment):
    """An environment of one's own: two best actions, equal but for rounding, before the others."""

    dim: int = DIM

    def rounds(self, draw: Draws) -> Iterator[Offer]:
        actions = [[0.1, 0.2, 0.0, 0.0], [0.3, 0.0, 0.0, 0.0], [0.1, 0.0, 0.0, 0.1], [-0.2, 0.0, 0.3, -0.5]]
        menu = Menu.of(np.tile(actions, (len(draw), 1, 1)), np.full((len(draw), DIM), 0.5))
        assert 0.0 < menu.means[0, 0] - menu.means[0, 1] < 1e-16
        noise = draw.normal()
        t = 0
        while True:
            t += 1
            yield Offer(t, menu, np.full(len(draw), 0.1), np.clip(0.1 * noise.at(t), -0.5, 0.5))


ENVIRONMENTS: dict[str, Environment] = {
    "paper": Paper(**SIZE, fresh_rounds=30),
    "fresh": Fresh(**SIZE, parameter="random"),
    "bernoulli": Bernoulli(**SIZE),
    "per action": PerActionNoise(**SIZE),
    "delayed": Delayed(**SIZE, lost=0.2),
    "changing": ChangingSets(**SIZE),
    "changing, per action": PerActionNoise(**SIZE, fewest=1),
    "drift": Drift(**SIZE, drift=0.02, fresh_rounds=50),
    "ball": UnitBall(dim=3, parameter="random"),
    "one action": Fresh(dim=DIM, actions=1),
    "sources": Fresh(**SIZE, sources=3, skew=0.5, zeta=0.1),
    "clicks from sources": Bernoulli(**SIZE, sources=2, zeta=0.4),
    "late rewards from sources": Delayed(**SIZE, sources=2, lost=0.2),
    "twins": Twins(),
}


# ------------------------------------------------------------------------------------------ the oracle


class Facts(NamedTuple):
    """What the adversary of one trial may look at in step 3."""

    t: int
    means: list[float]
    rewards: list[float]


@dataclass
class Liar:
    """An attack, and by formulas of its own what it should do in one trial."""

    attack: Attack
    lies: Callable[[Facts], list[float]] = lambda facts: [0.0] * len(facts.means)
    strong: bool = False
    budget: float = math.inf
    scale: float = 1.0
    """Of the features that are not the worst action's."""


def _flip(until: int, facts: Facts) -> list[float]:
    return [-2.0 * mean if facts.t <= until else 0.0 for mean in facts.means]


def _top(count: int, facts: Facts) -> list[float]:
    best = sorted(facts.means, reverse=True)[:count]
    return [-1.0 - reward if mean in best else 0.0 for mean, reward in zip(facts.means, facts.rewards, strict=True)]


def _target(margin: float, facts: Facts) -> list[float]:
    worst = min(facts.means)
    return [0.0 if mean == worst else -max(mean - worst + margin, 0.0) for mean in facts.means]


LIARS: dict[str, Liar] = {
    "none": Liar(NoAttack()),
    "flip": Liar(Flip(rounds=30), partial(_flip, 30)),
    "flip, budget": Liar(Flip(rounds=50, budget=3.3), partial(_flip, 50), budget=3.3),
    "top-n": Liar(TopN(count=2, budget=9.7), partial(_top, 2), strong=True, budget=9.7),
    "target": Liar(OracleTarget(budget=4.1), partial(_target, 0.01), strong=True, budget=4.1),
    "context": Liar(ContextAttack(scale=1.7, budget=5.2), strong=True, budget=5.2, scale=1.7),
}


class Ledger:
    """C_sup and C_play of one trial, and what is left of its budget."""

    def __init__(self, liar: Liar, noise_range: float) -> None:
        self.liar, self.unit = liar, noise_range + 1.0
        self.c_sup, self.c_play, self.lies = 0.0, 0.0, 0

    def cut(self, amount: float) -> float:
        left = self.liar.budget - self.c_play if self.liar.strong else (self.liar.budget - self.c_sup) * self.unit
        return math.copysign(min(abs(amount), max(left, 0.0)), amount)

    def book(self, amounts: list[float], played: float) -> None:
        self.c_sup += max(amounts) / self.unit
        self.c_play += played
        self.lies += played > 0.0


class Told:
    """The rewards that the fast engine's policy was told, in order.

    On the unit ball whole circles of actions tie at first, so that a reward's last bit can decide what is played next.
    The transcription checks its rewards against these, and then goes on with these.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.mail: list[tuple[int, list[bool]]] = []
        """For each update the round that it is about, and in which trials."""
        self._rewards: dict[int, Any] = {}
        update = Policy.update

        def overhear(policy: Policy, decision: Any, reward: Any, sigma: Any = None, mask: Any = None) -> None:
            if policy.trials is not None:
                self.mail.append(
                    (decision.round, np.ones(len(reward), bool).tolist() if mask is None else mask.tolist())
                )
                self._rewards[decision.round] = reward
            update(policy, decision, reward, sigma, mask)

        monkeypatch.setattr(Policy, "update", overhear)

    def agree(self, column: int, t: int, reward: float) -> float:
        told = float(self._rewards[t][column])
        assert told == pytest.approx(reward, rel=0, abs=1e-12)
        return told


def play_slowly(
    policy: Any, world: Environment, liar: Liar, trial: int, rounds: int, told: Callable[[int, float], float]
) -> Trace:
    """The protocol of section 3, one trial and one number at a time: a row of `Trace` for every round."""
    ledger, levels = Ledger(liar, world.noise_range), [0] * getattr(policy, "levels", 0)
    regret, earned, smallest, updates, empty, cascade = 0.0, 0.0, math.inf, 0, 0, 0
    told_by = [0] * len(world.shares)
    waiting: list[tuple[int, Any, float]] = []  # when it is due, the decision, the reward
    rows, offers = [], world.rounds(Draws(seed=SEED, trials=[trial], who=ENVIRONMENT))
    for t in range(1, rounds + 1):
        offer = next(offers)  # steps 1 and 2
        actions: Any = offer.actions
        finite, mu = isinstance(actions, np.ndarray), offer.menu.parameter[0].tolist()
        means = [_dot(action, mu) for action in actions[0]] if finite else [_norm(mu), -_norm(mu)]
        noise = offer.noise[0].tolist() if offer.noise.ndim == 2 else [float(offer.noise[0])] * len(means)
        bias = [0.0] * len(means) if offer.bias is None else offer.bias[0].tolist()
        rewards = [mean + lean + epsilon for mean, lean, epsilon in zip(means, bias, noise, strict=True)]
        lies = [ledger.cut(lie) for lie in liar.lies(Facts(t, means, rewards))]  # step 3
        shown, moves = _disguised(actions[0], means, liar, ledger) if finite else (actions, [0.0, 0.0])
        source = None if offer.source is None else int(offer.source[0])
        sigma = offer.sigma[0] if offer.sigma.ndim == 2 else float(offer.sigma[0])
        decision = policy.choose(shown, sigma, source=source)  # step 4
        assert decision.source == source
        played = decision.index
        mean = means[played] if finite else _dot(decision.action, mu)
        reward = mean + bias[played] + noise[played]
        lie = lies[played] if finite else ledger.cut(liar.lies(Facts(t, [mean], [reward]))[0])
        ledger.book([abs(c) + m for c, m in zip(lies, moves, strict=True)], abs(lie) + moves[played])
        if source is not None:
            told_by[source] += abs(lie) + moves[played] > 0.0
        delay = 0 if offer.delay is None else int(offer.delay[0])
        if delay != NEVER:
            waiting.append((t + delay, decision, reward + lie))  # step 5
        for due, sent, amount in waiting:
            if due == t:
                policy.update(sent, told(sent.round, amount))  # step 6
                updates += 1
        waiting = [letter for letter in waiting if letter[0] > t]
        behind = [max(means) - other for other in means]
        gap = min((b for b in behind if b > 1e-12), default=math.inf) if finite else 0.0  # eq. (def:gap)
        regret, smallest = regret + max(means) - mean, min(smallest, gap)  # eq. (regret)
        earned += reward
        info = decision.info._asdict()
        empty, cascade = empty + info.get("empty", False), cascade + info.get("cascade", 0)
        if levels:
            levels[decision.level - 1] += 1
        sums = {"empty": empty, "cascade": cascade} if info else {}
        counts = updates, math.nan, -1 if source is None else source, list(told_by), list(levels), sums  # no monitor
        rows.append((t, regret, earned, ledger.c_sup, ledger.c_play, ledger.lies, gap, smallest, *counts))
    *listed, told_of = zip(*rows, strict=True)
    totals = {name: np.array([sums[name] for sums in told_of]) for name in told_of[0]}
    return Trace._make([*map(np.array, listed), totals])


def _dot(a: Sequence[float], b: Sequence[float]) -> float:
    return sum(float(x) * float(y) for x, y in zip(a, b, strict=True))


def _norm(a: Sequence[float]) -> float:
    return math.sqrt(_dot(a, a))


def _disguised(actions: Any, means: list[float], liar: Liar, ledger: Ledger) -> tuple[Any, list[float]]:
    """The features that are shown, and how far each was moved: scaled, to a norm of 1 at most, within the budget."""
    if liar.scale == 1.0:
        return actions, [0.0] * len(means)
    shown, moves = [], []
    for action, mean in zip(actions, means, strict=True):
        norm = _norm(action)
        move = 0.0 if mean == min(means) else ledger.cut((min(liar.scale, 1.0 / norm) - 1.0) * norm)
        shown.append([x * (1.0 + move / norm) for x in action.tolist()])
        moves.append(move)
    return np.array(shown), moves


POLICIES: dict[str, MakePolicy] = {"OFUL": partial(OFUL, radius_scale=0.3), "Multi-level": MULTI_LEVEL}
CASES = [
    (policy, environment, liar)
    for policy in POLICIES
    for environment in ENVIRONMENTS
    for liar in LIARS
    if environment != "ball" or LIARS[liar].attack.infinite
    if policy == "OFUL" or environment == "paper" or liar in ("flip, budget", "top-n")  # the others would take long
]
COVERING = [
    case for case in CASES if case[1] == "ball" or (list(ENVIRONMENTS).index(case[1]) + list(LIARS).index(case[2])) % 2
]
"""Half of them, in which each environment meets half of the liars, and each liar half of the environments."""
TRACED = "Multi-level", "ball", "flip, budget"


@pytest.mark.parametrize(("policy", "environment", "liar"), untraced(thinned(CASES, fast=COVERING), but=[TRACED]))
def test_transcription(policy: str, environment: str, liar: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, world, trials, told = POLICIES[policy], ENVIRONMENTS[environment], [0, 3], Told(monkeypatch)
    rounds = 25 if environment == "ball" else ROUNDS  # it is slow
    scenarios = [Scenario(world, LIARS[liar].attack, trials)]
    trace = simulate(policy=make, scenarios=scenarios, rounds=rounds, seed=SEED, at=np.arange(1, rounds + 1))
    known = {"dim": world.dim, "noise_range": world.noise_range} | ({"horizon": rounds} if make is MULTI_LEVEL else {})
    for column, trial in enumerate(trials):
        alone = make(**known, seed=(SEED, trial))
        slow = play_slowly(alone, world, LIARS[liar], trial, rounds, partial(told.agree, column))
        np.testing.assert_array_equal(trace.round, slow.round)
        fast = trace._asdict() | trace.info
        assert trace.info.keys() == slow.info.keys()
        for name, mine in [*list(slow._asdict().items())[1:-1], *slow.info.items()]:
            tolerance = 1e-12 if mine.dtype == float else 0
            np.testing.assert_allclose(fast[name][:, column], mine, rtol=0, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("liar", ["flip, budget", "top-n", "target", "context"])
def test_budget_is_spent_and_not_exceeded(liar: str) -> None:
    scenarios = [Scenario(ENVIRONMENTS["paper"], LIARS[liar].attack, range(4))]
    trace = simulate(policy=POLICIES["OFUL"], scenarios=scenarios, rounds=ROUNDS, seed=SEED)
    spent = trace.c_play if LIARS[liar].strong else trace.c_sup
    assert spent[0].max() < LIARS[liar].budget
    assert spent[-1].max() == pytest.approx(LIARS[liar].budget, rel=1e-12)
    assert (spent <= LIARS[liar].budget).all()


def test_levels_and_cascades() -> None:
    scenarios = [Scenario(ENVIRONMENTS["paper"], Flip(rounds=30), range(4))]
    trace = simulate(policy=MULTI_LEVEL, scenarios=scenarios, rounds=ROUNDS, seed=SEED)
    assert trace.level_use.shape == (len(trace.round), 4, math.ceil(math.log2(2 * ROUNDS)))
    np.testing.assert_array_equal(trace.level_use.sum(axis=2), np.tile(trace.round[:, None], 4))
    empty, cascade = trace.info["empty"][-1], trace.info["cascade"][-1]
    assert (empty > 0).all() and (empty < cascade).all()


def test_rewards_arrive_when_due_the_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    told, world, trials = Told(monkeypatch), ENVIRONMENTS["delayed"], [4, 2, 7]
    simulate(policy=Greedy, scenarios=[Scenario(world, NoAttack(), trials)], rounds=ROUNDS, seed=SEED)
    offers = world.rounds(Draws(seed=SEED, trials=trials, who=ENVIRONMENT))
    delays = [np.asarray(next(offers).delay).tolist() for _ in range(ROUNDS)]
    assert any(NEVER in row for row in delays) and any(0 in row for row in delays)
    for column in range(len(trials)):
        due = [(t + row[column], t) for t, row in enumerate(delays, start=1) if row[column] != NEVER]
        expected = [t for when, t in sorted(due) if when <= ROUNDS]
        assert [t for t, mask in told.mail if mask[column]] == expected


# ------------------------------------------------------------------- what a trial must not depend on

SCENARIOS = {
    "paper, flip": Scenario(Paper(**SIZE, fresh_rounds=30), Flip(rounds=30), range(3)),
    "paper, none": Scenario(Paper(**SIZE, fresh_rounds=30), NoAttack(), range(3)),
    "fresh, flip": Scenario(Fresh(**SIZE, parameter="random"), Flip(rounds=50, budget=3.3), [5, 0]),
    "per action": Scenario(PerActionNoise(**SIZE), OracleTarget(budget=4.1), [1]),
    "late": Scenario(Delayed(**SIZE, mean_delay=3.0), TopN(budget=9.7), [2, 1]),
    "drift": Scenario(Drift(**SIZE, drift=0.02), ContextAttack(budget=5.2), [0, 9]),
    "random flips": Scenario(Paper(**SIZE, fresh_rounds=10), RandomFlips(budget=4.0, probability=0.3), [0, 1]),
    "stealth": Scenario(Fresh(**SIZE), Stealth(budget=2.0), [3]),
}
LEARNERS: dict[str, MakePolicy] = {
    "OFUL": partial(OFUL, radius_scale=0.3),
    "Greedy": Greedy,
    "Robust": partial(RobustWeightedOFUL, radius_scale=0.02),
    "Multi-level": MULTI_LEVEL,
}


def play(make: MakePolicy, scenarios: Sequence[Scenario], rounds: int = ROUNDS, **settings: Any) -> Trace:
    return simulate(policy=make, scenarios=scenarios, rounds=rounds, seed=SEED, **settings)


def columns(trace: Trace, which: Sequence[int] | slice) -> Trace:
    """Some of the trials of a trace."""
    some = (array[:, which] for array in trace[1:-1])
    info = {name: counts[:, which] for name, counts in trace.info.items()}
    return Trace._make([trace.round, *some, info])


def beside(traces: Sequence[Trace]) -> Trace:
    """Several traces as one."""
    first, *others = traces
    whole = [np.concatenate(arrays, axis=1) for arrays in list(zip(*traces, strict=True))[1:-1]]
    names = [name for name in first.info if all(name in other.info for other in others)]
    info = {name: np.concatenate([trace.info[name] for trace in traces], axis=1) for name in names}
    return Trace._make([first.round, *whole, info])


def assert_same(one: Trace, other: Trace) -> None:
    mine, yours = one._asdict() | one.info, other._asdict() | other.info
    assert mine.keys() == yours.keys()
    for name in mine.keys() - {"info"}:
        np.testing.assert_array_equal(mine[name], yours[name], err_msg=name)


@pytest.mark.no_cover
@pytest.mark.parametrize("learner", LEARNERS)
def test_scenarios_stack(learner: str) -> None:
    make = LEARNERS[learner]
    alone = [play(make, [scenario]) for scenario in SCENARIOS.values()]
    assert_same(play(make, list(SCENARIOS.values())), beside(alone))
    assert_same(play(make, list(SCENARIOS.values())[::-1]), beside(alone[::-1]))


@pytest.mark.no_cover
@pytest.mark.parametrize("learner", LEARNERS)
def test_batches_of_any_size(learner: str) -> None:
    make, (world, attack, _) = LEARNERS[learner], SCENARIOS["fresh, flip"]
    whole = play(make, [Scenario(world, attack, range(15))])
    for size in (1, 7):
        batches = [range(15)[first : first + size] for first in range(0, 15, size)]
        assert_same(beside([play(make, [Scenario(world, attack, batch)]) for batch in batches]), whole)


@pytest.mark.no_cover
def test_order_of_trials() -> None:
    shuffled = [3, 0, 6, 2, 5, 1, 4]
    for world, attack, _ in SCENARIOS.values():
        in_order = play(LEARNERS["OFUL"], [Scenario(world, attack, range(7))])
        assert_same(play(LEARNERS["OFUL"], [Scenario(world, attack, shuffled)]), columns(in_order, shuffled))


def test_changing_sets_and_balls_stack() -> None:
    for world, trials in ((ChangingSets(**SIZE), [0, 4]), (UnitBall(dim=3), [1, 0])):
        scenarios = [Scenario(world, attack, trials) for attack in (NoAttack(), Flip(rounds=30))]
        assert_same(play(OFUL, scenarios), beside([play(OFUL, [scenario]) for scenario in scenarios]))


def test_balls_stack_after_a_budget_is_spent() -> None:
    world = UnitBall(dim=8, parameter="random")
    scenarios = [Scenario(world, attack, [3]) for attack in (Flip(rounds=50, budget=3.3), NoAttack())]
    assert_same(play(OFUL, scenarios), beside([play(OFUL, [scenario]) for scenario in scenarios]))


@pytest.mark.no_cover
def test_trials_that_learn_at_different_paces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Radii are tabulated for some thousand updates at a time. Trials need not get there together."""
    monkeypatch.setattr(radius, "_CHUNK", 16)
    scenarios = [Scenario(Fresh(**SIZE), NoAttack(), [0]), Scenario(Fresh(**SIZE, lost=0.5), NoAttack(), [0, 1])]
    for make in (partial(WeightedOFUL, radius_scale=0.01), MULTI_LEVEL):
        together = play(make, scenarios)
        assert together.updates[-1].max() > together.updates[-1].min() + 16
        assert_same(together, beside([play(make, [scenario]) for scenario in scenarios]))


@pytest.mark.no_cover
def test_repeated_trials() -> None:
    world, attack, _ = SCENARIOS["random flips"]  # one object for all: what it remembers must be each scenario's own
    scenarios = [Scenario(world, attack, [2, 1, 2]), Scenario(world, attack, [1])]
    trace = play(MULTI_LEVEL, scenarios)
    assert_same(columns(trace, [0, 1]), columns(trace, [2, 3]))
    assert (trace.c_sup[:, 0] != trace.c_sup[:, 1]).any()
    assert_same(trace, beside([play(MULTI_LEVEL, [scenario]) for scenario in scenarios]))


# ------------------------------------------------------------------------------- what a policy is told


def test_labelled_corruption() -> None:
    make, world = partial(RobustWeightedOFUL, radius_scale=0.05), Paper(**SIZE, fresh_rounds=30)
    labels = {"flip": 60.0, "none": 0.0, "top-n": 9.7 / 1.5}  # 2k, nothing, the budget of a strong one over R + 1
    scenarios = [Scenario(world, LIARS[liar].attack, [0, 1]) for liar in labels]
    told = [partial(make, corruption=label) for label in labels.values()]
    labelled = play(partial(make, corruption="labelled"), scenarios)
    assert_same(labelled, beside([play(one, [scenario]) for one, scenario in zip(told, scenarios, strict=True)]))
    assert_same(labelled, play(make, scenarios))  # it is the default
    differs = (labelled.regret != play(partial(make, corruption=0.0), scenarios).regret).any(axis=0)
    assert differs.tolist() == [True, True, False, False, True, True]


def test_unlimited_attacks_have_no_label() -> None:
    scenarios = [
        Scenario(ENVIRONMENTS["paper"], NoAttack(), [0]),
        Scenario(ENVIRONMENTS["paper"], TopN(budget=None), [0]),
    ]
    with pytest.raises(ValueError, match="corruption must be given, since TopN has no budget"):
        play(RobustWeightedOFUL, scenarios)
    assert play(partial(RobustWeightedOFUL, corruption=10.0), scenarios).regret.shape[1] == 2


def test_given_settings_win() -> None:
    scenarios = [SCENARIOS["paper, flip"]]
    wide = play(partial(MULTI_LEVEL, horizon=10 * ROUNDS, noise_range=2.0), scenarios)
    assert wide.level_use.shape[2] == math.ceil(math.log2(20 * ROUNDS))
    assert (wide.regret != play(MULTI_LEVEL, scenarios).regret).any()


# ------------------------------------------------------------------------- checkpoints, progress, memory


def test_checkpoints() -> None:
    for rounds in (1, 2, 3, 10, 99, 100, 101, 1000, 54_321):
        for number in (1, 2, 7, 100, 1000):
            at = checkpoints(rounds, number).tolist()
            assert at[0] == 1 and at[-1] == rounds and len(at) <= max(2, number)
            assert all(a < b for a, b in pairwise(at))


def test_only_checkpoints_are_recorded() -> None:
    everything = play(OFUL, [SCENARIOS["paper, flip"]], at=np.arange(1, ROUNDS + 1))
    for at in (checkpoints(ROUNDS, 9), np.array([7, 8, 50])):
        some = play(OFUL, [SCENARIOS["paper, flip"]], at=at)
        assert_same(some, Trace._make([*(array[at - 1] for array in everything[:-1]), {}]))
    np.testing.assert_array_equal(play(OFUL, [SCENARIOS["paper, flip"]]).round, checkpoints(ROUNDS))


@pytest.mark.no_cover
@pytest.mark.parametrize("rounds", [1, 255, 256, 257, 700])
def test_progress(rounds: int) -> None:
    calls: list[int] = []
    play(OFUL, [Scenario(Fresh(dim=2, actions=2), NoAttack(), [0])], rounds=rounds, progress=calls.append)
    assert sum(calls) == rounds and min(calls) > 0


class Idle(Greedy):
    """Plays the first action and learns nothing: what is left is the loop, and less to wait for."""

    def choose(self, actions: Any, sigma: Any = None, *, source: Any = None, propensity: bool = False) -> Decision:
        return Decision(round=1, action=actions[:, 0], index=np.zeros(len(actions), np.intp), sigma=sigma)

    def update(self, decision: Decision, reward: Any, sigma: Any = None, mask: Any = None) -> None:
        pass


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("make", "world", "rounds"),
    [
        (Idle, Paper(dim=3, actions=3, fresh_rounds=100), 20_000),
        (OFUL, Delayed(dim=3, actions=3, mean_delay=2.0), 3_000),
    ],
)
def test_memory_does_not_grow_with_the_rounds(make: MakePolicy, world: Environment, rounds: int) -> None:
    """All of the rounds have no more bytes in use at once than the first quarter has."""
    scenarios, at, played = [Scenario(world, Flip(rounds=100), [0])], checkpoints(rounds, 10), 0
    play(make, scenarios)  # what is made once
    peaks: list[int] = []

    def watch(more: int) -> None:
        nonlocal played
        played += more
        if played >= rounds // 4:
            peaks.append(tracemalloc.get_traced_memory()[1])

    tracemalloc.start()
    play(make, scenarios, rounds=rounds, at=at, progress=watch)
    tracemalloc.stop()
    assert peaks[-1] < peaks[0] + 2 * rounds  # a float for each of the rounds more would be three times that


def test_what_cannot_be_played_is_refused() -> None:
    paper, ball = Scenario(Paper(), NoAttack(), [0]), Scenario(UnitBall(dim=20), NoAttack(), [0])
    cases: list[tuple[str, dict[str, Any]]] = [
        ("at least one scenario", {"scenarios": []}),
        ("rounds must be an integer >= 1, got 0", {"rounds": 0}),
        ("policy must be a class of policies", {"policy": lambda **settings: OFUL(**settings)}),
        ("can't share a batch", {"scenarios": [paper, Scenario(Bernoulli(), NoAttack(), [0])]}),
        ("can't share a batch", {"scenarios": [paper, Scenario(Paper(actions=3), NoAttack(), [0])]}),
        ("can't share a batch", {"scenarios": [paper, ball]}),
        ("TopN needs finite decision sets", {"scenarios": [Scenario(UnitBall(), TopN(), [0])]}),
    ]
    for message, wrong in cases:
        with pytest.raises(ValueError, match=message):
            simulate(**{"policy": OFUL, "scenarios": [paper], "rounds": 3, "seed": 1, **wrong})


def test_the_papers_environment_adapts_to_the_attack() -> None:
    scenarios = [Scenario(Paper(fresh_rounds=fresh), Flip(rounds=20), [0, 1]) for fresh in (None, 20)]
    together = simulate(policy=OFUL, scenarios=scenarios, rounds=60, seed=1)
    assert np.array_equal(together.regret[:, :2], together.regret[:, 2:])


@pytest.mark.slow
def test_a_million_rounds_take_no_more_memory_than_ten_thousand() -> None:
    code = (
        "import resource, sys; from robandit.lab.attacks import Flip; from robandit.lab.environments import Paper; "
        "from robandit import MultiLevelWeightedOFUL; from robandit.lab.protocol import *; "
        "simulate(policy=partial(MultiLevelWeightedOFUL, radius_scale=0.01), rounds=int(sys.argv[1]), seed=1, "
        "scenarios=[Scenario(Paper(dim=5, actions=5), Flip(rounds=90), [0])]); "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
    )
    peaks = {}
    for rounds in (10_000, 1_000_000):
        done = subprocess.run([sys.executable, "-c", code, str(rounds)], capture_output=True, text=True, check=True)
        peaks[rounds] = int(done.stdout) / 1024
    print(f"peak memory in MiB by rounds: {peaks}")
    assert peaks[1_000_000] < peaks[10_000] + 3.0


@pytest.mark.no_cover
def test_policies_that_share_their_worlds_play_as_each_would_alone() -> None:
    """Also where attacks look at what is played, feedback is late, and a monitor looks."""
    scenarios = [
        Scenario(Delayed(dim=3, actions=4), attack, [0, 1]) for attack in (GarcelonAdaptive(), TopN(), Flip(rounds=9))
    ]
    settings: dict[str, Any] = {"scenarios": scenarios, "rounds": 24, "seed": 4, "monitor": True}
    makers: list[MakePolicy] = [OFUL, Quorum, LinTS, partial(MultiLevelWeightedOFUL, radius_scale=0.01)]
    together = simulate_each(policies=makers, **settings)
    for make, found in zip(makers, together, strict=True):
        alone = simulate(policy=make, **settings)
        for one, two in zip(alone[:-1], found[:-1], strict=True):
            assert np.asarray(one).tobytes() == np.asarray(two).tobytes()
        assert alone.info.keys() == found.info.keys()
        assert all((alone.info[name] == found.info[name]).all() for name in alone.info)


@dataclass(kw_only=True)
class Counted(Stealth):
    """Counts how often it is asked for its lies."""

    calls: list[int] = field(default_factory=list)

    def corrupt(self, offer: Offer) -> Any:
        self.calls.append(offer.round)
        return super().corrupt(offer)


@dataclass(kw_only=True)
class Watchful(Counted):
    """Looks at what is played."""

    def observe(self, offer: Offer, played: Any, reward: Any) -> None:
        """It does nothing with it, but it might."""


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("kind", "world", "asked"),
    [
        (Counted, Fresh(dim=3, actions=4), 1),
        (Watchful, Fresh(dim=3, actions=4), 3),
        (Counted, ChangingSets(dim=3), 3),  # sets of no fixed size
        (Counted, Fresh(dim=3, actions=4, sources=5), 1),
    ],
)
def test_attacks_that_see_only_what_is_offered_are_asked_once_for_all(kind: Any, world: Any, asked: int) -> None:
    attacks = [kind(budget=9.0), SuppressBest(budget=0.5), ContextAttack(budget=4.0), SourceNoise(budget=3.0)]
    scenarios = [Scenario(world, attack, [0, 1]) for attack in attacks]
    settings: dict[str, Any] = {"scenarios": scenarios, "rounds": 35, "seed": 4}
    makers: list[MakePolicy] = [OFUL, OFULToldLiars, partial(MultiLevelWeightedOFUL, radius_scale=0.01)]
    together = simulate_each(policies=makers, **settings)
    rounds = sorted(attacks[0].calls)
    assert rounds == sorted(asked * list(range(1, 36)))
    for make, found in zip(makers, together, strict=True):
        alone = simulate(policy=make, **settings)
        for one, two in zip(alone[:-1], found[:-1], strict=True):
            assert np.asarray(one).tobytes() == np.asarray(two).tobytes()
