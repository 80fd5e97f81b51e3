"""What the kernels need to know of a scenario and a policy, and what they can't play. It needs NumPy alone.

Every number comes from the objects that the CPU plays with: radii from the policy, lies' timing from the attack.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf, log, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Floats
from robandit.errors import ConfigError
from robandit.lab.environments import Synthetic
from robandit.lab.gpu.quorum import QuorumPlan, quorum_plan
from robandit.lab.gpu.worlds import WorldKind, WorldNumbers, playable, refuse, world_of
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
_MOST_LEVELS = 30  # beside two other counts in the places of a warp
_REGISTERS, _FEW_REGISTERS = 168, 128  # twelve warps on each multiprocessor of a Hopper GPU, or sixteen

UNIT, VARIANCE, LEVERAGE = range(3)
BY_ROUND, BY_LOG_DET, POINT = range(3)


class PolicyKind(NamedTuple):
    """What a kernel is compiled for on the side of the policy."""

    weights: int
    radius: int
    hidden: bool
    """Whether policies are told R instead of σ."""
    levels: int = 0
    """The number of levels of a policy that has some."""


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
    environment, attack = playable(scenario.environment), scenario.attack
    realised = make.keywords.get("corruption") == REALISED if isinstance(make, partial) else False
    told = partial(make, corruption=0.0) if realised else make
    policy = prepare(told, [scenario._replace(trials=[0])], rounds, seed)
    if type(policy) not in _POLICIES or policy.exploration > 0.0:
        refuse(f"{type(policy).__name__}{' with exploration' if policy.exploration > 0.0 else ''}")
    if realised and attack.strength != "weak":
        raise ConfigError(f"the realised corruption of {type(attack).__name__} depends on the policy; give a number")
    fresh = rounds if environment.fresh_rounds is None else min(rounds, environment.fresh_rounds)
    kind, learner, radii, threshold = _POLICIES[type(policy)](policy, rounds)
    world_kind, world, when = world_of(environment, attack, rounds, record)
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
        registers=_registers(policy, fresh),
        levels=_level_radii(policy, rounds) if isinstance(policy, MultiLevelWeightedOFUL) else None,
        quorum=_groups(policy, world_kind) if isinstance(policy, Quorum) else None,
        by_corruption=partial(_by_corruption, policy) if realised else None,
    )


def _registers(policy: Policy, fresh: int) -> int | None:
    """Most registers of a thread, by what is fastest: sets that stay take few, and a search or fresh sets more."""
    if isinstance(policy, Quorum) and not fresh:
        return _FEW_REGISTERS
    return _REGISTERS if isinstance(policy, Quorum | MultiLevelWeightedOFUL) else None


def check(make: MakePolicy, scenario: Scenario, rounds: int, monitor: object) -> None:
    """Refuse what a GPU can't play."""
    if monitor is not False:
        refuse("a monitor")
    plan(make, scenario, rounds, seed=0)


# Policies: what they are compiled for, their numbers, the radii of the rounds 1 to T, and CW-OFUL's α.

_Found = tuple[PolicyKind, PolicyNumbers, Floats, float]


def _learner(policy: Policy, **more: float) -> PolicyNumbers:
    reach = policy.reach if policy.clip_rewards else inf
    zero = PolicyNumbers(
        floor=1.0, reach=reach, start=policy.lam**-0.5, slope=0, inside=0, bias=0, told=policy.noise_range
    )
    return zero._replace(**more)


def _oful(policy: OFUL, rounds: int) -> _Found:
    """OFUL's radius is R √(log det Σ/λ + 2 log 1/δ) + √λ B, times its scale; `OFULRadius` says where from."""
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


def _groups(policy: Quorum, world: WorldKind) -> QuorumPlan:
    return quorum_plan(policy, world.sources, world.wide, world.tall)


def _greedy(policy: Greedy, rounds: int) -> _Found:
    return PolicyKind(UNIT, POINT, False), _learner(policy), np.zeros(rounds), 0.0


def _cw(policy: CWOFUL, rounds: int) -> _Found:
    threshold = float(np.asarray(policy.trust.threshold).reshape(-1)[0])
    radii = np.array(policy.radii(_rounds(rounds)))
    return PolicyKind(LEVERAGE, BY_ROUND, False), _learner(policy), radii, threshold


def _multi_level(policy: MultiLevelWeightedOFUL, rounds: int) -> _Found:
    if policy.levels > _MOST_LEVELS:
        refuse(f"Multi-level weighted OFUL with more than {_MOST_LEVELS} levels")
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
