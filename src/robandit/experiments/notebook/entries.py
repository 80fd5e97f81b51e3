"""Reads policies, environments and attacks as people write them in a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields
from functools import partial
from typing import Any, TypeAlias

from robandit.errors import ConfigError
from robandit.inputs import read_text
from robandit.lab.attacks import Attack
from robandit.lab.environments import Environment
from robandit.lab.plan import SET_BY_THE_RUN
from robandit.policies import Policy

One: TypeAlias = "str | type | partial[Any] | Policy[Any] | Attack | Environment | Mapping[str, Any]"
"""A name with settings as on the command line, a class, a `functools.partial` of one, an object, or a table."""
Some: TypeAlias = "One | Iterable[One]"
"""One or several; or a dict of them, by the labels that they get."""


def tables(kind: str, given: Some) -> list[dict[str, Any]]:
    """What was given as tables, which `Run.read` reads.

    >>> tables("policies", ["oful,radius_scale=0.1", {"name": "greedy"}])
    [{'name': 'oful', 'radius_scale': 0.1}, {'name': 'greedy'}]
    >>> tables("attacks", {"a bribe": "flip,rounds=30"})
    [{'name': 'flip', 'rounds': 30, 'label': 'a bribe'}]
    """
    if isinstance(given, Mapping) and "name" not in given:
        return [{**_table(kind, one), "label": label} for label, one in given.items()]
    if isinstance(given, (str, type, partial, Policy, Attack, Environment, Mapping)):
        return [_table(kind, given)]
    if not isinstance(given, Iterable):
        raise ConfigError(f"{kind} must be a list of names, classes, objects or tables, got {given!r}")
    return [_table(kind, one) for one in given]


def _table(kind: str, given: Any) -> dict[str, Any]:
    match given:
        case str():
            return read_text(given)
        case type():
            return {"name": given}
        case partial():
            if given.args:
                raise ConfigError(f"{kind}: a partial may have keywords only, got {given!r}")
            return {**_table(kind, given.func), **given.keywords}
        case Policy() | Attack() | Environment():
            return {"name": type(given), **_settings(given)}
        case Mapping():
            return dict(given)
    raise ConfigError(f"{kind} has {given!r}, which is no name, class, object or table with a name")


def _settings(made: Policy[Any] | Attack | Environment) -> dict[str, Any]:
    """The settings of an object that are not at their defaults. What it has learnt stays behind."""
    hidden = SET_BY_THE_RUN if isinstance(made, Policy) else set()
    found = {item.name: getattr(made, item.name) for item in fields(made) if item.init and item.name not in hidden}
    defaults = {item.name: _default(item) for item in fields(made)}
    if isinstance(made, Policy):  # which has read None as this
        defaults["regularization"] = 1.0 / made.parameter_bound**2
    changed = {name: value for name, value in found.items() if not _same(value, defaults[name])}
    # A bare list would be a sweep.
    return {name: [value] if isinstance(value, (list, tuple)) else value for name, value in changed.items()}


def _default(item: Field[Any]) -> Any:
    return item.default if item.default_factory is MISSING else item.default_factory()


def _same(value: object, default: object) -> bool:
    """Whether a value is the default. Frames and arrays are none."""
    try:
        return value is default or bool(value == default)
    except (ValueError, TypeError):
        return False
