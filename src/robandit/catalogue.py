"""What there is to choose from: environments, attacks and policies by name, registered here or in a user's own file."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import textwrap
from abc import ABC
from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from robandit.attacks import ATTACKS, Attack
from robandit.environments import ENVIRONMENTS, Environment
from robandit.policies import POLICIES, Policy

CATALOGUE: dict[str, tuple[Mapping[str, type], type]] = {
    "environments": (ENVIRONMENTS, Environment),
    "attacks": (ATTACKS, Attack),
    "policies": (POLICIES, Policy),
}
"""By kind: the registered names, and the class from which all of them descend."""


class ConfigError(ValueError):
    """A run that can't be. The message names the key and, where there is one, the nearest valid one."""


@cache
def find(kind: str, name: str | type) -> Any:
    """The class that a registered name, `module:Class`, `file.py:Class` or a class stands for.

    >>> find("policies", "oful").__name__
    'OFUL'
    >>> find("attacks", "flop")
    Traceback (most recent call last):
    robandit.catalogue.ConfigError: unknown name 'flop'; did you mean 'flip'?
    """
    registered, base = CATALOGUE[kind]
    known = canonical(kind, name)
    if isinstance(known, str) and known not in registered and ":" not in known:
        raise ConfigError(f"unknown name {name!r}{nearest(known, registered)}")
    found = known if isinstance(known, type) else registered.get(known) or _import(known)
    if not isinstance(found, type) or not issubclass(found, base):
        raise ConfigError(f"{name!r} must be a subclass of {base.__name__}, got {found!r}")
    return found


def canonical(kind: str, name: str | type) -> str | type:
    """A registered name as it is registered, whether given so, in other spelling or as a class; others as they are."""
    for known, found in CATALOGUE[kind][0].items():
        if name is found or (
            isinstance(name, str) and _squeezed(name) in (_squeezed(known), _squeezed(found.__name__))
        ):
            return known
    return name


def short(name: str | type) -> str:
    """A name without the module or file that it is from."""
    return name.rpartition(":")[2] if isinstance(name, str) else name.__name__


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error message that helps a reader who mistyped a word."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(sorted(known))}"


class Field(NamedTuple):
    """A setting of an environment, an attack or a policy."""

    name: str
    default: Any
    """`dataclasses.MISSING` if it must be given."""
    meaning: str


def describe(found: type) -> list[Field]:
    """The settings of a class, with the text that stands below each in the source.

    >>> [(field.name, field.default) for field in describe(find("attacks", "flip"))]
    [('budget', None), ('rounds', 90)]
    """
    meanings: dict[str, str] = {}
    for base in reversed(found.__mro__[:-1]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body if base is not ABC else []  # type: ignore[attr-defined]
        for line, below in pairwise(body):
            if (
                isinstance(line, ast.AnnAssign)
                and isinstance(below, ast.Expr)
                and isinstance(below.value, ast.Constant)
            ):
                meanings[ast.unparse(line.target)] = " ".join(str(below.value.value).split())
    return [Field(item.name, item.default, meanings.get(item.name, "")) for item in fields(found)]


def _squeezed(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")


def _import(name: str) -> Any:
    """The class that `module:Class` or `file.py:Class` names."""
    place, _, attribute = name.rpartition(":")
    try:
        if place.endswith(".py"):
            spec = importlib.util.spec_from_file_location(Path(place).stem, place)
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
        else:
            module = importlib.import_module(place)
    except (ImportError, OSError) as error:
        raise ConfigError(f"can't import {place!r}: {error}") from error
    if not hasattr(module, attribute):
        raise ConfigError(f"{place!r} has no {attribute!r}{nearest(attribute, dir(module))}")
    return getattr(module, attribute)
