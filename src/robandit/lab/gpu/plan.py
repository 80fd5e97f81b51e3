"""What the kernels need to know of a scenario and a policy, and what they can't play. It needs NumPy alone.

Every number comes from the objects that the CPU plays with: radii from the policy, lies' timing from the attack.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial
from math import inf, log, sqrt
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Floats
from robandit.errors import ConfigError
from robandit.lab.attacks import Attack, ClickFraud, Flips, NoAttack, OracleTarget, RandomFlips, SuppressBest
from robandit.lab.environments import Environment, Synthetic
from robandit.lab.gpu.quorum import QuorumPlan, quorum_plan
from robandit.lab.protocol import REALISED, MakePolicy, Scenario, prepare
from robandit.policies import (
    CWOFUL,
    OFUL,
    Greedy,
    MultiLevelWeightedOFUL,
    Policy,
    Quorum,
    RobustWeightedOFUL,
    WeightedOFUL,
    radius,
)
from robandit.policies.parts import CorruptionWeights

CPU = "cpu"
DEVICES = (CPU, "cuda")
"""Where a run can be carried out."""
PRECISION = "float32"
"""The precision of the kernels; sums are kept in float64."""
LARGEST = 32
"""Most features and most actions that a kernel holds in the registers of a warp."""
_MOST_LEVELS = 30  # beside two other counts in the places of a warp
_AGAIN = 16  # test_accuracy.py shows what other numbers do
_REGISTERS = 168  # twelve warps on each multiprocessor of a Hopper GPU
_SMALLEST = 16  # of a tile that tensor cores multiply

NOISES = ("gaussian", "two-point", "bernoulli")
HONEST, FLIPS, SUPPRESS_BEST, ORACLE_TARGET, CLICK_FRAUD = range(5)
UNIT, VARIANCE, LEVERAGE = range(3)
BY_ROUND, BY_LOG_DET, POINT = range(3)


class WorldKind(NamedTuple):
    """What a kernel is compiled for on the side of the environment and the attack."""

    dim: int
    actions: int
    wide: int
    """The features, padded to a power of two."""
    tall: int
    """The actions, padded to a power of two."""
    noise: int
    constant: bool
    """Whether the first feature is constant."""
    attack: int
    target: int
    """The place of the target, or −1 for the worst action."""
    owned: int
    strong: bool
    precision: str
    """How tiles are multiplied: in float32 (``ieee``), or by three products of half as many digits (``tf32x3``).

    The second is the faster one on an H200, except beside the search of a policy with levels.
    """
    again: int
    """Rounds after which squared widths that are carried along are computed anew."""
    record: bool
    """Whether every round is kept, for tests."""


class PolicyKind(NamedTuple):
    """What a kernel is compiled for on the side of the policy."""

    weights: int
    radius: int
    hidden: bool
    """Whether policies are told R instead of σ."""
    levels: int = 0
    """The number of levels of a policy that has some."""


class WorldNumbers(NamedTuple):
    """The numbers of an environment and its attack, in the order in which the kernels find them."""

    sigma_low: float
    sigma_high: float
    noise_range: float
    low: float
    high: float
    budget: float
    chance: float
    margin: float
    click: float
    no_click: float


class PolicyNumbers(NamedTuple):
    """The numbers of a policy, in the order in which the kernels find them."""

    floor: float
    reach: float
    start: float
    slope: float
    inside: float
    bias: float
    told: float


class LevelRadii(NamedTuple):
    """γ_{t,1} by round, (rounds + 1,), and what β and γ of level ℓ have more than those of level 1, (2, 32)."""

    gammas: Floats
    steps: Floats


class Plan(NamedTuple):
    """Everything about one policy in one scenario that a launch needs."""

    environment: Synthetic
    world_kind: WorldKind
    world: WorldNumbers
    policy_kind: PolicyKind
    learner: PolicyNumbers
    fresh: int
    """Rounds with fresh decision sets; the rest have the set of round 0."""
    when: NDArray[np.int8]
    """Whether the attack lies in round t, (rounds + 1,)."""
    radii: Floats
    """The radius in round t without corruption that differs by trial, (rounds + 1,)."""
    threshold: float
    """CW-OFUL's α."""
    registers: int | None
    """Most registers that a thread may have; a search, which is rare, would like more than the rounds do."""
    levels: LevelRadii | None
    """How the radii of a policy with levels depend on the level."""
    quorum: QuorumPlan | None
    """What Quorum's groups and votes need."""
    by_corruption: Callable[[Floats], tuple[Floats, Floats]] | None
    """What C (B,) adds to the radius, and α, (B,), if the policy is told what each trial's attack will spend."""


def plan(make: MakePolicy, scenario: Scenario, rounds: int, seed: int, *, record: bool = False) -> Plan:
    """The plan of a policy in a scenario, or an error that says what a GPU can't play."""
    environment, attack = _playable(scenario.environment), scenario.attack
    realised = make.keywords.get("corruption") == REALISED if isinstance(make, partial) else False
    told = partial(make, corruption=0.0) if realised else make
    policy = prepare(told, [scenario._replace(trials=[0])], rounds, seed)
    if type(policy) not in _POLICIES or policy.exploration > 0.0:
        _refuse(f"{type(policy).__name__}{' with exploration' if policy.exploration > 0.0 else ''}")
    if realised and attack.strength != "weak":
        raise ConfigError(f"the realised corruption of {type(attack).__name__} depends on the policy; give a number")
    fresh = rounds if environment.fresh_rounds is None else min(rounds, environment.fresh_rounds)
    kind, learner, radii, threshold = _POLICIES[type(policy)](policy, rounds)
    world_kind, world, when = _world(environment, attack, rounds, record)
    return Plan(
        environment=environment,
        world_kind=world_kind._replace(precision="ieee" if kind.levels else world_kind.precision),
        world=world,
        policy_kind=kind._replace(hidden=environment.hide_sigma),
        learner=learner,
        fresh=fresh,
        when=when,
        radii=np.concatenate([[0.0], radii]),
        threshold=threshold,
        registers=_REGISTERS if kind.levels or isinstance(policy, Quorum) else None,
        levels=_level_radii(policy, rounds) if isinstance(policy, MultiLevelWeightedOFUL) else None,
        quorum=quorum_plan(policy, world_kind.wide, world_kind.tall) if isinstance(policy, Quorum) else None,
        by_corruption=partial(_by_corruption, policy) if realised else None,
    )


def check(make: MakePolicy, scenario: Scenario, rounds: int, monitor: object) -> None:
    """Refuse what a GPU can't play."""
    if monitor is not False:
        _refuse("a monitor")
    plan(make, scenario, rounds, seed=0)


def _refuse(what: str) -> NoReturn:
    raise ConfigError(f"{what} runs on the CPU: leave out --device")


def _playable(environment: Environment) -> Synthetic:
    """The environment, if a kernel can draw it."""
    if not isinstance(environment, Synthetic) or type(environment).rounds is not Synthetic.rounds:
        _refuse(f"the environment {type(environment).__name__}")
    for name in ("infinite", "fewest", "per_action", "drift", "mean_delay", "lost", "sources"):
        if getattr(environment, name):
            _refuse(f"an environment with {name}={getattr(environment, name)}")
    if max(environment.dim, environment.actions) > LARGEST:
        _refuse(f"an environment with more than {LARGEST} features or actions")
    return environment


def _world(
    environment: Synthetic, attack: Attack, rounds: int, record: bool
) -> tuple[WorldKind, WorldNumbers, NDArray[np.int8]]:
    """What environment and attack are to a kernel, and in which rounds the attack lies."""
    kind, given, when = _attack(attack, rounds)
    positive = environment.noise == "bernoulli" and environment.highest is None  # as `Synthetic._menus` has it
    shape = WorldKind(
        dim=environment.dim,
        actions=environment.actions,
        wide=_padded(environment.dim),
        tall=_padded(environment.actions),
        noise=NOISES.index(environment.noise),
        constant=environment.highest is not None,
        attack=kind,
        target=-1 if given.get("target") is None else min(given["target"], environment.actions - 1),
        owned=given.get("owned", 0),
        strong=attack.strength == "strong",
        precision="tf32x3",
        again=_AGAIN,
        record=record,
    )
    return shape, _numbers(environment, attack, given, positive), when


def _numbers(environment: Synthetic, attack: Attack, given: dict[str, Any], positive: bool) -> WorldNumbers:
    return WorldNumbers(
        sigma_low=environment.sigma_low,
        sigma_high=environment.sigma_high,
        noise_range=environment.noise_range,
        low=0.0 if positive else -(environment.dim**-0.5),
        high=environment.dim**-0.5,
        budget=inf if attack.budget is None else attack.budget,
        chance=given.get("probability", given.get("share", 1.0)),
        margin=given.get("margin", 0.0),
        click=given.get("click", 0.0),
        no_click=given.get("no_click", 0.0),
    )


def _attack(attack: Attack, rounds: int) -> tuple[int, dict[str, Any], NDArray[np.int8]]:
    """The kind of an attack, its settings by name, and in which rounds it lies."""
    always = np.ones(rounds + 1, np.int8)
    given = {item.name: getattr(attack, item.name) for item in fields(attack)}
    known = {NoAttack: HONEST, RandomFlips: FLIPS, SuppressBest: SUPPRESS_BEST, OracleTarget: ORACLE_TARGET}
    known |= {ClickFraud: CLICK_FRAUD}
    if type(attack) in known:
        return known[type(attack)], given, always
    if isinstance(attack, Flips) and type(attack).corrupt is Flips.corrupt and type(attack).start is Attack.start:
        timing = [attack.when(t) if t else False for t in range(rounds + 1)]
        return FLIPS, given | {"probability": 1.0}, np.array(timing, np.int8)
    _refuse(f"the attack {type(attack).__name__}")


def _padded(size: int) -> int:
    return max(_SMALLEST, 1 << (size - 1).bit_length())


# Policies: what they are compiled for, their numbers, the radii of the rounds 1 to T, and CW-OFUL's α.

_Found = tuple[PolicyKind, PolicyNumbers, Floats, float]


def _learner(policy: Policy, **more: float) -> PolicyNumbers:
    reach = policy.reach if policy.clip_rewards else inf
    zero = PolicyNumbers(
        floor=1.0, reach=reach, start=policy.lam**-0.5, slope=0, inside=0, bias=0, told=policy.noise_range
    )
    return zero._replace(**more)


def _oful(policy: OFUL, rounds: int) -> _Found:
    """OFUL's radius is R √(log det Σ/λ + 2 log 1/δ) + √λ B, times its scale; `policies.radius.oful` says where from."""
    if policy.radius is not None:
        return PolicyKind(UNIT, BY_ROUND, False), _learner(policy), np.full(rounds, policy.radius), 0.0
    slope, bias = policy.radius_scale * policy.noise_range, policy.radius_scale * sqrt(policy.lam)
    numbers = _learner(policy, slope=slope, inside=2.0 * log(1.0 / policy.delta), bias=bias * policy.parameter_bound)
    return PolicyKind(UNIT, BY_LOG_DET, False), numbers, np.zeros(rounds), 0.0


def _weighted(policy: WeightedOFUL, rounds: int) -> _Found:
    numbers = _learner(policy, floor=policy.sigma_bar.floor)
    return PolicyKind(VARIANCE, BY_ROUND, False), numbers, policy.radii(_rounds(rounds)), 0.0


def _robust(policy: RobustWeightedOFUL, rounds: int) -> _Found:
    numbers = _learner(policy, floor=policy.sigma_bar.floor)
    return PolicyKind(VARIANCE, BY_ROUND, False), numbers, policy.alpha(_rounds(rounds)), 0.0


def _quorum(policy: Quorum, rounds: int) -> _Found:
    kind = PolicyKind(VARIANCE, BY_ROUND if policy.width > 0.0 else POINT, False)
    return kind, _learner(policy, floor=policy.sigma_bar.floor), np.zeros(rounds), 0.0


def _greedy(policy: Greedy, rounds: int) -> _Found:
    return PolicyKind(UNIT, POINT, False), _learner(policy), np.zeros(rounds), 0.0


def _cw(policy: CWOFUL, rounds: int) -> _Found:
    threshold = float(np.asarray(policy.trust.threshold).reshape(-1)[0])
    radii = np.array(policy.radii(_rounds(rounds)))
    return PolicyKind(LEVERAGE, BY_ROUND, False), _learner(policy), radii, threshold


def _multi_level(policy: MultiLevelWeightedOFUL, rounds: int) -> _Found:
    if policy.levels > _MOST_LEVELS:
        _refuse(f"Multi-level weighted OFUL with more than {_MOST_LEVELS} levels")
    numbers = _learner(policy, floor=policy.sigma_bar.floor)
    kind = PolicyKind(VARIANCE, BY_ROUND, False, policy.levels)
    one = np.ones(rounds, np.int64)
    setting = policy.constants(policy.delta, policy.sigma_bar.floor)
    return kind, numbers, radius.beta_by_level(setting, policy.levels, policy.radius_scale)(_rounds(rounds), one), 0.0


def _level_radii(policy: MultiLevelWeightedOFUL, rounds: int) -> LevelRadii:
    setting, scale = policy.constants(policy.delta, policy.sigma_bar.floor), policy.radius_scale
    gamma = radius.gamma_by_level(setting, policy.levels, policy.horizon, scale)
    beta, steps = radius.beta_by_level(setting, policy.levels, scale), np.zeros((2, _MOST_LEVELS + 2))
    levels, one = np.arange(1, policy.levels + 1), np.ones(policy.levels, np.int64)
    for row, by_level in enumerate((beta, gamma)):
        steps[row, levels] = by_level(one, levels) - by_level(one, one)
    return LevelRadii(np.concatenate([[0.0], gamma(_rounds(rounds), np.ones(rounds, np.int64))]), steps)


def _rounds(rounds: int) -> NDArray[np.int64]:
    return np.arange(1, rounds + 1)


def _by_corruption(policy: Any, corruption: Floats) -> tuple[Floats, Floats]:
    """What these C (B,) add to the radius of a policy that was told 0, and their α."""
    scale = 0.0 if policy.radius is not None else policy.radius_scale
    if isinstance(policy, CWOFUL):
        setting = policy.constants(policy.delta)
        trust = CorruptionWeights(setting, corruption, policy.horizon, policy.threshold)
        extra = trust.radius.value - radius.cw_oful(setting, policy.horizon, 0.0)
        return scale * extra, np.broadcast_to(trust.threshold, corruption.shape)
    setting = policy.constants(policy.delta, policy.sigma_bar.floor)
    more = radius.alpha(setting, 1, corruption) - radius.alpha(setting, 1, 0.0)
    return scale * more, np.zeros(len(corruption))


_POLICIES: dict[type, Callable[[Any, int], _Found]] = {
    OFUL: _oful,
    WeightedOFUL: _weighted,
    RobustWeightedOFUL: _robust,
    Greedy: _greedy,
    CWOFUL: _cw,
    MultiLevelWeightedOFUL: _multi_level,
    Quorum: _quorum,
}
"""The policies that a kernel can play."""
