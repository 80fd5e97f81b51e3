"""Readers of what callers pass: they check kind, range and shape once, with errors that name the value.

Code further in trusts what it gets.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, TypeAlias, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from robandit.arrays import Bools, Floats
from robandit.errors import ConfigError

Seed: TypeAlias = int | tuple[int, int]
"""A seed, or a seed and the number of a trial."""

_LARGEST = 1e100  # beyond this, and below its inverse, squares and products overflow


# Single values.


def positive(name: str, value: object) -> float:
    """Read a number above 0 that can be squared without overflow."""
    if not _is_number(value) or not 1.0 / _LARGEST <= float(value) <= _LARGEST:
        raise ValueError(f"{name} must be a number > 0 (from 1e-100 to 1e100), got {value!r}")
    return float(value)


def not_negative(name: str, value: object) -> float:
    """Read 0 or a positive number."""
    return 0.0 if _is_number(value) and value == 0 else positive(f"{name}, if not 0,", value)


def share(name: str, value: object) -> float:
    """Read a number from 0 to 1, both included."""
    if not _is_number(value) or not 0.0 <= float(value) <= 1.0:
        raise ValueError(f"{name} must be a number from 0 to 1, got {value!r}")
    return float(value)


def probability(name: str, value: object) -> float:
    """Read a number between 0 and 1, both excluded."""
    number = positive(name, value)
    if number >= 1.0:
        raise ValueError(f"{name} must be below 1, got {value!r}")
    return number


def integer(name: str, value: object, least: int) -> int:
    """Read a whole number of at least ``least``."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name} must be an integer >= {least}, got {value!r}")
    return int(value)


def boolean(name: str, value: object) -> bool:
    """Read True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def _is_number(value: object) -> TypeGuard[Real]:
    return isinstance(value, Real) and not isinstance(value, bool)


# What a policy is given.


def read_corruption(value: object, batch: int, single: bool) -> float | tuple[float, ...]:
    """Read an amount of corruption, or in a batch one amount for each trial."""
    if isinstance(value, str):
        raise ValueError(f"corruption must be a number, or in a simulation 'labelled' or 'realised', got {value!r}")
    if not isinstance(value, (Sequence, np.ndarray)) or single:
        return not_negative("corruption", value)
    if len(value) != batch:
        raise ValueError(f"corruption must be one number or {batch}, got {len(value)}")
    return tuple(not_negative("corruption", one) for one in value)


def read_round(value: object) -> int:
    """Read the number of a round."""
    if type(value) is int and 0 <= value < 2**62:
        return value  # the common case, made fast
    number = integer("round", value, least=0)
    if number >= 2**62:
        raise ValueError(f"round must be below 2**62, got {number}")
    return number


def read_seed(seed: int | Sequence[int] | None) -> Seed:
    """Read a seed or (seed, trial). None gives a fresh seed from the operating system."""
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    if isinstance(seed, Sequence):
        if len(seed) != 2:
            raise ValueError(f"seed must be an integer or (seed, trial), got {seed!r}")
        return integer("seed", seed[0], 0), integer("the trial in seed", seed[1], 0)
    return integer("seed", seed, 0)


def read_trials(trials: int | Sequence[int] | None, seed: Seed) -> tuple[int, ...]:
    """Read the trial numbers of a batch. A single policy has one, which its seed may name."""
    if trials is None:
        return (seed[1] if isinstance(seed, tuple) else 0,)
    if isinstance(seed, tuple):
        raise ValueError(f"seed {seed!r} names a trial, which only a policy without `trials` can be")
    if isinstance(trials, Integral) or not isinstance(trials, Iterable):
        return tuple(range(integer("trials", trials, 1)))
    numbers = tuple(integer("trials", number, 0) for number in trials)
    if not numbers:
        raise ValueError(f"trials must be trial numbers, at least one, got {trials!r}")
    return numbers


def read_rewards(reward: ArrayLike, keep: Bools | None, *, batch: int, single: bool) -> Floats:
    """Read one finite reward per trial, (B,). Where ``keep`` is false, a reward may be anything and becomes 0."""
    if single and isinstance(reward, float) and keep is None and abs(reward) < np.inf:
        return np.array([reward])  # the common case, made fast
    array = as_floats("reward", reward)
    if array.shape != (() if single else (batch,)):
        raise ValueError(f"reward must have shape {() if single else (batch,)}, got {array.shape}")
    rewards = array.reshape(batch) if keep is None else np.where(keep, array, 0.0)
    if not (rewards.dot(rewards) < np.inf or np.isfinite(rewards).all()):  # a product is the faster question
        raise ValueError(f"reward must be finite, got {first_bad(rewards, np.isfinite(rewards))}")
    return rewards


def read_logged_rewards(rewards: ArrayLike, shape: tuple[int, int], *, single: bool) -> Floats:
    """Read the rewards (B, n) of n logged rounds."""
    array = as_floats("rewards", rewards)
    if array.shape != (shape[1:] if single else shape):
        raise ValueError(f"rewards must be one for each of the {shape[1]} actions, got shape {array.shape}")
    if not np.isfinite(array).all():
        raise ValueError(f"rewards must be finite, got {first_bad(array, np.isfinite(array))}")
    return array.reshape(shape)


def read_mask(mask: ArrayLike, batch: int) -> Bools:
    """Read which trials have a reward to learn from, (B,)."""
    array = np.asarray(mask)
    if array.dtype != bool or array.size != batch:
        raise ValueError(f"mask must be {batch} booleans, got {array.dtype} of shape {array.shape}")
    return array.reshape(batch)


# Arrays.


_FLOAT = np.dtype(float)


def as_floats(name: str, value: ArrayLike) -> Floats:
    """Read an array of real numbers, as floats in C order."""
    if type(value) is np.ndarray and value.dtype is _FLOAT and value.flags.c_contiguous:
        return value  # the common case, made fast
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise ValueError(f"{name} must be numbers in an array: {error}") from None
    if array.dtype.kind not in "fiub" or isinstance(value, np.ma.MaskedArray):
        kind = "a masked array" if isinstance(value, np.ma.MaskedArray) else f"{array.dtype.name} {value!r:.40}"
        raise ValueError(f"{name} must be real numbers, got {kind}; turn text and labels into numbers first")
    return np.asarray(array, dtype=float, order="C")  # the last bits of a result depend on the order


def first_bad(array: Floats, good: Bools) -> float:
    """The first value that is not ``good`` or not finite, to name it in an error."""
    return float(array[~(good & np.isfinite(array))].flat[0])


def overwrite(mine: Mapping[str, NDArray[Any]], saved: Mapping[str, NDArray[Any]]) -> None:
    """Write the arrays of a saved state into these, if all of them fit."""
    if saved.keys() != mine.keys():
        raise ValueError(f"the state's arrays should be {sorted(mine)}, but are {sorted(saved)}")
    found = {name: np.asarray(array) for name, array in saved.items()}
    for name, array in mine.items():
        if found[name].shape != array.shape or found[name].dtype != array.dtype:
            raise ValueError(
                f"the state's array {name!r} should be {array.dtype} of shape {array.shape}, "
                f"but is {found[name].dtype} of shape {found[name].shape}"
            )
        if not np.isfinite(found[name]).all() or (name in ("updates", "clipped") and found[name].min() < 0):
            raise ValueError(f"the state's array {name!r} holds impossible numbers")
    for name, array in mine.items():
        array[...] = found[name]


# Names with settings.


def read_text(text: str) -> dict[str, Any]:
    """Read `NAME,KEY=VALUE,…` as a table. Values are TOML, or text if they are no valid TOML.

    >>> read_text("oful,radius_scale=0.1")
    {'name': 'oful', 'radius_scale': 0.1}
    """
    name, *settings = re.split(r",(?![^\[]*\])", text)  # not at the commas within brackets
    table: dict[str, Any] = {"name": name.strip()}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals:
            raise ConfigError(f"{setting!r} in {text!r} should be KEY=VALUE")
        try:
            table[key.strip()] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            table[key.strip()] = value.strip()
    return table
