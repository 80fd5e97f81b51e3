"""What an environment and its attack are to a kernel, and which of them it can't play. It needs NumPy alone."""

from __future__ import annotations

from copy import copy
from dataclasses import fields
from math import inf
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Floats
from robandit.errors import ConfigError
from robandit.lab.attacks import (
    Attack,
    BySource,
    ClickFraud,
    Flips,
    NoAttack,
    OracleTarget,
    RandomFlips,
    SourceFlip,
    SourceNoise,
    SourcePromote,
    SourceSuppress,
    SuppressBest,
)
from robandit.lab.environments import Environment, Synthetic
from robandit.streams import ATTACK, Draws

LARGEST = 32
"""Most features, actions and sources that a kernel holds in the registers of a warp."""
_AGAIN = 16  # test_accuracy.py shows what other numbers do
_SMALLEST = 16  # of a tile that tensor cores multiply

NOISES = ("gaussian", "two-point", "bernoulli")
HONEST, FLIPS, SUPPRESS_BEST, ORACLE_TARGET, CLICK_FRAUD, *_BY_SOURCE = range(9)
_KINDS: dict[type[Attack], int] = {
    NoAttack: HONEST,
    RandomFlips: FLIPS,
    SuppressBest: SUPPRESS_BEST,
    OracleTarget: ORACLE_TARGET,
    ClickFraud: CLICK_FRAUD,
    **dict(zip((SourcePromote, SourceSuppress, SourceFlip, SourceNoise), _BY_SOURCE, strict=True)),
}


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
    sources: int
    """The number of sources of traffic; 0 where there are none to tell apart."""
    slots: int
    """The sources, padded to a power of two; 1 where there are none."""
    leans: int
    """The number of sources whose honest visitors differ: all or none."""
    liars: int
    """The number of sources that lie at a time; 0 if an attack does not care who visits."""


class WorldNumbers(NamedTuple):
    """The numbers of an environment and its attack, in the order in which the kernels find them.

    After these come the ends of the shares of the sources, but for the last one, which is 1 (`ends_of`).
    """

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


def refuse(what: str) -> NoReturn:
    """Say what a GPU can't play."""
    raise ConfigError(f"{what} runs on the CPU: leave out --device")


def playable(environment: Environment) -> Synthetic:
    """The environment, if a kernel can draw it."""
    if not isinstance(environment, Synthetic) or type(environment).rounds is not Synthetic.rounds:
        refuse(f"the environment {type(environment).__name__}")
    for name in ("infinite", "fewest", "per_action", "drift", "mean_delay", "lost"):
        if getattr(environment, name):
            refuse(f"an environment with {name}={getattr(environment, name)}")
    if max(environment.dim, environment.actions, environment.sources) > LARGEST:
        refuse(f"an environment with more than {LARGEST} features, actions or sources")
    return environment


def world_of(
    environment: Synthetic, attack: Attack, rounds: int, record: bool
) -> tuple[WorldKind, WorldNumbers, NDArray[np.int8]]:
    """What environment and attack are to a kernel, and in which rounds the attack lies, (rounds + 1,).

    Where sources take turns, a round with lies has the number of the first source that lies, plus 1.
    """
    kind, given, when = _attack(attack, environment, rounds)
    positive = environment.noise == "bernoulli" and environment.highest is None  # as `Synthetic._menus` has it
    shape = WorldKind(
        dim=environment.dim,
        actions=environment.actions,
        wide=_padded(environment.dim, _SMALLEST),
        tall=_padded(environment.actions, _SMALLEST),
        noise=NOISES.index(environment.noise),
        constant=environment.highest is not None,
        attack=kind,
        target=-1 if given.get("target") is None else min(given["target"], environment.actions - 1),
        owned=given.get("owned", 0),
        strong=attack.strength == "strong",
        precision="tf32x3",
        again=_AGAIN,
        record=record,
        sources=environment.sources,
        slots=_padded(environment.sources, 2) if environment.sources else 1,
        leans=environment.sources if environment.zeta > 0.0 else 0,
        liars=min(given.get("liars", 0), environment.sources),
    )
    return shape, _numbers(environment, attack, given, positive), when


def ends_of(environment: Synthetic) -> Floats:
    """The ends of the shares of all sources but the last, on [0, 1), (G − 1,): source j lies below the j-th."""
    return np.cumsum(environment.shares)[:-1]


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


def _attack(attack: Attack, environment: Synthetic, rounds: int) -> tuple[int, dict[str, Any], NDArray[np.int8]]:
    """The kind of an attack, its settings by name, and in which rounds it lies."""
    given = {item.name: getattr(attack, item.name) for item in fields(attack)}
    if type(attack) in _KINDS:
        always = np.ones(rounds + 1, np.int8)
        when = _turns(attack, environment, rounds) if isinstance(attack, BySource) else always
        return _KINDS[type(attack)], given, when
    if isinstance(attack, Flips) and type(attack).corrupt is Flips.corrupt and type(attack).start is Attack.start:
        timing = [attack.when(t) if t else False for t in range(rounds + 1)]
        return FLIPS, given | {"probability": 1.0}, np.array(timing, np.int8)
    refuse(f"the attack {type(attack).__name__}")


def _turns(attack: BySource, environment: Synthetic, rounds: int) -> NDArray[np.int8]:
    """The first source that lies in each round, plus 1; 0 in rounds without lies."""
    attack = copy(attack)
    attack.start(Draws(seed=0, trials=[0], who=ATTACK), environment)
    found = np.zeros(rounds + 1, np.int8)
    for t in range(attack.begin, min(rounds, attack.end or rounds) + 1):
        found[t] = 1 + attack.liars_in(t)[0]
    return found


def _padded(size: int, least: int) -> int:
    return max(least, 1 << (size - 1).bit_length())
