"""What an environment and its attack are to a kernel, and which of them it can't play. It needs NumPy alone."""

from __future__ import annotations

from dataclasses import fields
from math import inf
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from robandit.arrays import Floats
from robandit.errors import ConfigError
from robandit.lab.attacks import Attack, ClickFraud, Flips, NoAttack, OracleTarget, RandomFlips, SuppressBest
from robandit.lab.environments import Environment, Synthetic

LARGEST = 32
"""Most features, actions and sources that a kernel holds in the registers of a warp."""
_AGAIN = 16  # test_accuracy.py shows what other numbers do
_SMALLEST = 16  # of a tile that tensor cores multiply

NOISES = ("gaussian", "two-point", "bernoulli")
HONEST, FLIPS, SUPPRESS_BEST, ORACLE_TARGET, CLICK_FRAUD = range(5)


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
    for name in ("infinite", "fewest", "per_action", "drift", "mean_delay", "lost", "sources"):
        if getattr(environment, name):
            refuse(f"an environment with {name}={getattr(environment, name)}")
    if max(environment.dim, environment.actions) > LARGEST:
        refuse(f"an environment with more than {LARGEST} features or actions")
    return environment


def world_of(
    environment: Synthetic, attack: Attack, rounds: int, record: bool
) -> tuple[WorldKind, WorldNumbers, NDArray[np.int8]]:
    """What environment and attack are to a kernel, and in which rounds the attack lies, (rounds + 1,)."""
    kind, given, when = _attack(attack, rounds)
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
    refuse(f"the attack {type(attack).__name__}")


def _padded(size: int, least: int) -> int:
    return max(least, 1 << (size - 1).bit_length())
