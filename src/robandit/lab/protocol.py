"""The protocol of the paper's section 3, as one loop over rounds and a batch of trials."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Bools, Floats, Ints
from robandit.inputs import integer
from robandit.lab.attacks import Adversary, Attack, Attackers, Plot
from robandit.lab.environments import NEVER, Environment, Offer, side_by_side
from robandit.monitor.monitor import CorruptionMonitor
from robandit.policies import Decision, Policy
from robandit.streams import ENVIRONMENT, Draws

MakePolicy: TypeAlias = Callable[..., Policy]
"""A class of policies, or a `functools.partial` of one with some of its settings."""

Monitor: TypeAlias = bool | float | Callable[..., CorruptionMonitor]
"""Whether a monitor rides along: one that is told the environment's ``noise_scale``, or this number; or a
`functools.partial` of the class."""

LABELLED, REALISED = "labelled", "realised"
"""The ``corruption`` of a policy that is told the attack's label, as the paper tells Robust weighted OFUL 2k; or of one
that is told, trial by trial, what the attack will really spend."""

_LOOKS = 1.25  # the least ratio of the rounds of two looks of a monitor
_BLOCK = 16  # rounds that one policy plays before the next one has its turn


Watch: TypeAlias = Callable[[Policy, Offer, Plot, Decision], object]
"""Looks at a round: the policy as it chose, what it was offered, the lies, the choice."""


class Scenario(NamedTuple):
    """Some trials of an environment under an attack, to which the environment may adapt (`Environment.facing`)."""

    environment: Environment
    attack: Attack
    trials: Sequence[int]


class Trace(NamedTuple):
    """What happened up to each checkpoint: arrays (checkpoints, B) in the order of the scenarios and their trials."""

    round: Ints  # (checkpoints,)
    regret: Floats
    """Σ ⟨a*_s − a_s, μ*⟩ on clean means, eq. (regret) for the actions played."""
    reward: Floats
    """Σ r′_s(a_s): what the actions played really earned, before any lie."""
    c_sup: Floats
    c_play: Floats
    lies: Ints
    """In how many rounds the reward was not the true one."""
    gap: Floats
    """Δ_t of the checkpoint's round, eq. (def:gap)."""
    smallest_gap: Floats
    """Δ, the smallest so far."""
    updates: Ints
    """How many rewards have arrived."""
    proved: Floats
    """How much corruption a monitor had proved when it last looked; NaN without one."""
    source: Ints
    """The source of the checkpoint's visitor, or −1 where sources have no names."""
    lies_by_source: Ints
    """How many lies were told in the name of each source, (checkpoints, B, sources)."""
    level_use: Ints
    """How many rounds each level was drawn in, (checkpoints, B, levels); no levels for a policy without."""
    info: dict[str, Ints]
    """What the policy tells in `Decision.info`, by name: counts so far, or what its rounds add up to."""


def checkpoints(rounds: int, number: int = 100) -> Ints:
    """About ``number`` rounds, evenly spread by their logarithm, and the last.

    >>> checkpoints(1000, 7).tolist()
    [1, 3, 10, 32, 100, 316, 1000]
    """
    return np.unique(np.geomspace(1, rounds, max(2, min(number, rounds))).round().astype(np.int64))


def simulate(
    *,
    policy: MakePolicy,
    scenarios: Iterable[Scenario],
    rounds: int,
    seed: int,
    at: Ints | None = None,
    progress: Callable[[int], object] | None = None,
    watch: Watch | None = None,
    monitor: Monitor = False,
) -> Trace:
    """Play ``rounds`` rounds of one policy in all trials of some scenarios at once.

    Each trial is the same, bit for bit, whatever runs beside it. ``at`` are the rounds to record, by default
    `checkpoints`; ``progress`` is called with the number of rounds played since the last call; ``watch`` sees each
    round before the policy learns from it.

    >>> from robandit import OFUL, attacks, environments
    >>> paper = Scenario(environments.Paper(fresh_rounds=30), attacks.Flip(rounds=30), trials=range(8))
    >>> trace = simulate(policy=OFUL, scenarios=[paper], rounds=200, seed=1)
    >>> trace.regret[-1].shape
    (8,)
    """
    return simulate_each(
        policies=[policy],
        scenarios=scenarios,
        rounds=rounds,
        seed=seed,
        at=at,
        progress=progress,
        watch=watch,
        monitor=monitor,
    )[0]


def simulate_each(
    *,
    policies: Sequence[MakePolicy],
    scenarios: Iterable[Scenario],
    rounds: int,
    seed: int,
    at: Ints | None = None,
    progress: Callable[[int], object] | None = None,
    watch: Watch | None = None,
    monitor: Monitor = False,
) -> list[Trace]:
    """Do what `simulate` does for several policies, each by itself, in worlds that are drawn once for all of them."""
    integer("rounds", rounds, least=1)
    played = [s._replace(environment=s.environment.facing(s.attack)) for s in scenarios]
    _check_alike(played)
    at = checkpoints(rounds) if at is None else at
    common = _in_common(played, seed) if len(policies) > 1 else None
    lanes = [Lane(policy, played, rounds, seed, at, monitor, watch, common) for policy in policies]
    world = world_of(played, seed)
    for done in range(0, rounds, _BLOCK):
        block = list(islice(world, min(_BLOCK, rounds - done)))  # steps 1 and 2 of the protocol
        for lane in lanes:  # one after the other, so that what each knows stays in the processor's cache
            for offer, parts in block:
                lane.play(offer, parts)
        if common is not None:
            common.forget()
        t = done + len(block)
        if progress is not None and (t % 256 == 0 or t == rounds):
            progress((t - 1) % 256 + 1)
    return [lane.record.trace() for lane in lanes]


def _in_common(scenarios: Sequence[Scenario], seed: int) -> Attackers | None:
    """The attacks, for all policies together, if what they want has nothing to do with what is played."""
    if scenarios[0].environment.set_size is None:
        return None  # an infinite set is narrowed to what each policy has played
    found = Attackers([(s.attack, s.environment, s.trials) for s in scenarios], seed, common=True)
    return found if found.oblivious else None


class Lane:
    """One policy and its adversary, in worlds that other policies may share."""

    def __init__(
        self,
        policy: MakePolicy,
        scenarios: Sequence[Scenario],
        rounds: int,
        seed: int,
        at: Ints,
        monitor: Monitor,
        watch: Watch | None,
        common: Attackers | None = None,
    ) -> None:
        self.policy = prepare(policy, scenarios, rounds, seed)
        self.adversary = Adversary([(s.attack, s.environment, s.trials) for s in scenarios], seed, common)
        self.monitor, self._watch = _watchman(monitor, scenarios), watch
        self._mail = Mail(self.policy)
        self._told = bool(getattr(self.policy, "told_liars", False))
        sources = len(scenarios[0].environment.shares)
        self.record = Record(self.policy, self.adversary, at, self.monitor, sources)

    def play(self, offer: Offer, parts: Sequence[Offer]) -> None:
        """Play a round: steps 3 to 6 of the protocol. The offer holds the decision sets, the clean rewards and σ."""
        plot = self.adversary.commit(offer, parts)  # step 3
        sigma = offer.sigma if offer.told is None else offer.told
        decision = self.policy.choose(plot.actions, sigma, source=offer.source)  # step 4
        reward = self.adversary.answer(offer, parts, plot, decision)  # step 5
        if self._watch is not None:
            self._watch(self.policy, offer, plot, decision)
        if self.monitor is not None:  # in the order of decisions, also where the policy has to wait
            mask = None if offer.delay is None else offer.delay != NEVER
            source = offer.source if self.monitor.sources else None
            self.monitor.observe(decision.action, reward, source=source, mask=mask)
        spared = self.adversary.liars(parts) if self._told else None
        self._mail.deliver(offer, decision, reward, spared)  # step 6
        self.record.note(offer, decision)


def prepare(make: MakePolicy, scenarios: Sequence[Scenario], rounds: int, seed: int) -> Policy:
    """The policy for all these trials. What it must know and was not set is read off the scenarios."""
    environment = scenarios[0].environment
    trials = [trial for scenario in scenarios for trial in scenario.trials]
    given = make.keywords if isinstance(make, partial) else {}
    kind: Any = make.func if isinstance(make, partial) else make
    if not isinstance(kind, type) or not issubclass(kind, Policy):
        raise ValueError(f"policy must be a class of policies, or a functools.partial of one, got {make!r}")
    wanted = {item.name for item in fields(kind)}
    known: dict[str, Any] = {
        "dim": environment.dim,
        "noise_range": environment.noise_range,
        "action_bound": environment.action_bound,
        "parameter_bound": environment.parameter_bound,
        "mean_bound": environment.mean_bound,
        "horizon": rounds,
        "corruption": LABELLED,
    }
    settings = {name: given.get(name, value) for name, value in known.items() if name in wanted}
    if settings.get("corruption") == LABELLED:
        settings["corruption"] = [_label(s) for s in scenarios for _ in s.trials]
    elif settings.get("corruption") == REALISED:
        settings["corruption"] = rehearse(scenarios, rounds, seed).tolist()
    return make(**settings, trials=trials, seed=seed)


def _watchman(monitor: Monitor, scenarios: Sequence[Scenario]) -> CorruptionMonitor | None:
    if monitor is False:
        return None
    environment = scenarios[0].environment
    reach = environment.mean_bound + environment.noise_range
    declared = monitor if isinstance(monitor, (int, float)) and monitor is not True else None
    scales = [s.environment.noise_scale if declared is None else declared for s in scenarios for _ in s.trials]
    make = monitor if callable(monitor) else CorruptionMonitor
    return make(
        dim=environment.dim,
        noise=tuple(scales),
        parameter_bound=environment.parameter_bound,
        misspecification=environment.misspecification,
        reward_range=(-reach, reach),
        trials=len(scales),
    )


def rehearse(scenarios: Sequence[Scenario], rounds: int, seed: int) -> Floats:
    """C_sup at the end, (B,), of weak attacks that do not look at what is played: found without a policy."""
    for attack in (scenario.attack for scenario in scenarios):
        own = type(attack)
        if own.strength != "weak" or own.observe is not Attack.observe or own.disguise is not Attack.disguise:
            raise ValueError(f"the realised corruption of {type(attack).__name__} depends on the policy; give a number")
    adversary = Adversary([(s.attack, s.environment, s.trials) for s in scenarios], seed)
    world = world_of(scenarios, seed)
    nothing = np.zeros(len(adversary.ledger.c_sup), np.intp)
    for _ in range(rounds):
        offer, parts = next(world)
        if not isinstance(offer.actions, np.ndarray):
            raise ValueError("the realised corruption is known beforehand for finite decision sets only; give a number")
        lies = adversary.commit(offer, parts).lies
        if lies is not None:
            adversary.ledger.book(np.abs(lies), nothing)
    return adversary.ledger.c_sup


def world_of(scenarios: Sequence[Scenario], seed: int) -> Iterator[tuple[Offer, Sequence[Offer]]]:
    """What the rounds offer in some scenarios, together and to each."""
    return side_by_side([s.environment.rounds(Draws(seed=seed, trials=s.trials, who=ENVIRONMENT)) for s in scenarios])


def batch_key(environment: Environment) -> tuple[object, ...]:
    """What environments must have in common to be in the same batch: d, R, bounds, sources, the size of their sets."""
    bounds = environment.action_bound, environment.parameter_bound, environment.mean_bound, environment.misspecification
    sources = len(environment.shares)
    return environment.dim, environment.noise_range, *bounds, sources, environment.set_size or environment


def _check_alike(scenarios: Sequence[Scenario]) -> None:
    if not scenarios:
        raise ValueError("there must be at least one scenario")
    first, *others = [scenario.environment for scenario in scenarios]
    for other in others:
        if batch_key(other) != batch_key(first):
            raise ValueError(f"{other} can't share a batch with {first}: d, R, bounds, sources or sizes of sets differ")


def _label(scenario: Scenario) -> float:
    """C as labelled, in the units of eq. (def:corruption); a strong attack's budget is in units of reward."""
    attack = scenario.attack
    if attack.label is None:
        raise ValueError(f"corruption must be given, since {type(attack).__name__} has no budget that could label it")
    return attack.label / (scenario.environment.noise_range + 1.0) if attack.strength == "strong" else attack.label


class Mail:
    """Brings the policy its rewards: at once, late, or never."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._waiting: dict[int, list[tuple[Decision, Floats, NDArray[np.bool_]]]] = defaultdict(list)

    def deliver(self, offer: Offer, decision: Decision, reward: Floats, spared: Bools | None = None) -> None:
        """Send this round's rewards, and bring those that are due, the oldest first. Trials ``spared`` get none."""
        if offer.delay is None and not self._waiting:
            self._policy.update(decision, reward, mask=None if spared is None else ~spared)
            return
        delay = np.zeros(len(reward), np.int64) if offer.delay is None else offer.delay
        delay = delay if spared is None else np.where(spared, NEVER, delay)
        for wait in np.unique(delay[delay != NEVER]).tolist():
            self._waiting[offer.round + wait].append((decision, reward, delay == wait))
        for due in self._waiting.pop(offer.round, ()):
            self._policy.update(due[0], due[1], mask=due[2])


class Record:
    """Keeps the sums, and writes them down at the checkpoints."""

    def __init__(
        self,
        policy: Policy,
        adversary: Adversary,
        at: Ints,
        monitor: CorruptionMonitor | None = None,
        sources: int = 0,
    ) -> None:
        self._policy, self._ledger, self._at = policy, adversary.ledger, set(at.tolist())
        self._monitor, self._last, self._next_look = monitor, max(at.tolist(), default=0), 0.0
        size, levels = len(adversary.ledger.c_sup), policy.levels
        self._unnamed = np.full(size, -1, np.int64)
        self._by_source, self._told_before = np.zeros((size, sources), np.int64), np.zeros(size, np.int64)
        self._rows = np.arange(size)
        self._regret, self._reward, self._smallest = np.zeros(size), np.zeros(size), np.full(size, np.inf)
        self._levels = np.zeros((size, levels), np.int64)
        self._info: dict[str, Ints] = {}
        self._proved: Floats = np.full(size, np.nan)
        self._written: list[Trace] = []

    @property
    def regret(self) -> Floats:
        """Σ ⟨a*_s − a_s, μ*⟩ of the rounds so far, (B,)."""
        return self._regret

    def note(self, offer: Offer, decision: Decision) -> None:
        """Add a round."""
        menu, mean = offer.menu, offer.mean_of(decision.index, decision.action)
        self._regret += menu.best - mean
        self._reward += offer.reward_of(decision.index, decision.action, mean)
        np.minimum(self._smallest, menu.gap, out=self._smallest)
        if self._levels.size:
            self._levels[self._rows, decision.level - 1] += 1
        for name, told in decision.info._asdict().items():
            self._info[name] = told if self._policy.info_counts else self._info.get(name, 0) + told
        if offer.source is not None:
            self._by_source[self._rows, offer.source] += self._ledger.lies - self._told_before
            self._told_before = self._ledger.lies
        if offer.round in self._at:
            self._look(offer.round)
            self._write(offer)

    def _look(self, t: int) -> None:
        """Ask the monitor, but not at every checkpoint: a look takes as long as hundreds of rounds."""
        if self._monitor is not None and (t >= self._next_look or t == self._last):
            self._proved, self._next_look = self._monitor.lower_bounds(), _LOOKS * t

    def _write(self, offer: Offer) -> None:
        now = Trace(
            round=np.array(offer.round),
            regret=self._regret,
            reward=self._reward,
            c_sup=self._ledger.c_sup,
            c_play=self._ledger.c_play,
            lies=self._ledger.lies,
            gap=offer.menu.gap,
            smallest_gap=self._smallest,
            updates=np.atleast_1d(self._policy.updates),
            proved=self._proved,
            source=self._unnamed if offer.source is None else offer.source,
            lies_by_source=self._by_source,
            level_use=self._levels,
            info={name: count.copy() for name, count in self._info.items()},
        )
        copies: list[Any] = [array.copy() for array in now]
        self._written.append(Trace(*copies))

    def trace(self) -> Trace:
        """All that was written down."""
        *columns, told = [list(column) for column in zip(*self._written, strict=True)]
        info = {name: np.stack([now[name] for now in told]) for name in told[0]}
        stacked: list[Any] = [*(np.stack(column) for column in columns), info]
        return Trace(*stacked)
