"""The catalogue: finds and describes environments, attacks and policies, ours by name and a user's own by file."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from robandit.errors import ConfigError, nearest
from robandit.lab.attacks import ATTACKS, Attack
from robandit.lab.environments import ENVIRONMENTS, Environment
from robandit.policies import POLICIES, Policy

CATALOGUE: dict[str, tuple[Mapping[str, type], type]] = {
    "environments": (ENVIRONMENTS, Environment),
    "attacks": (ATTACKS, Attack),
    "policies": (POLICIES, Policy),
}
"""For each kind, the classes by registered name, and the class from which all of them descend."""


def find(kind: str, name: str | type) -> Any:
    """The class that is meant by a registered name, `module:Class`, `file.py:Class`, or the class itself.

    >>> find("policies", "oful").__name__
    'OFUL'
    >>> find("attacks", "flop")
    Traceback (most recent call last):
    robandit.errors.ConfigError: unknown name 'flop'; did you mean 'flip'?
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
    """The registered name of a class, given by its name in any spelling or by itself; anything else unchanged."""
    for known, found in CATALOGUE[kind][0].items():
        if name is found or (
            isinstance(name, str) and _squeezed(name) in (_squeezed(known), _squeezed(found.__name__))
        ):
            return known
    return name


def short(name: str | type) -> str:
    """The name of a class without its module or file."""
    return name.rpartition(":")[2] if isinstance(name, str) else name.__name__


def _squeezed(name: str) -> str:
    """A name without case and separators, for comparing spellings."""
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")


def fingerprint(kind: str, name: str | type) -> str | None:
    """A digest of the code of a user's class, to recognise results of other code; None for robandit's own."""
    known = canonical(kind, name)
    if isinstance(known, str) and known in CATALOGUE[kind][0]:
        return None
    place = known.rpartition(":")[0] if isinstance(known, str) else ""
    if place.endswith(".py"):
        return hashlib.sha256(Path(place).read_bytes()).hexdigest()
    given = ("robandit.", "builtins", "abc", "typing")  # other versions of Python compile Generic to other bytes
    bases = [base for base in find(kind, name).__mro__ if not base.__module__.startswith(given)]
    return hashlib.sha256("".join(map(_code, bases)).encode()).hexdigest()


def _code(thing: Any) -> str:
    """The compiled code of a class or function as text; its source may be lost."""
    if isinstance(thing, type):
        return "".join(f"{name}={_code(value)};" for name, value in vars(thing).items() if not name.startswith("__"))
    code = thing if isinstance(thing, CodeType) else getattr(thing, "__code__", None)
    if code is None:
        return "" if " at 0x" in repr(thing) else repr(thing)
    return f"{code.co_code.hex()}{code.co_names}{''.join(_code(constant) for constant in code.co_consts)}"


def _import(name: str) -> Any:
    """The class that `module:Class` or `file.py:Class` names."""
    place, _, attribute = name.rpartition(":")
    try:
        if place.endswith(".py"):
            found: Any = _load_file(place, hashlib.sha256(Path(place).read_bytes()).hexdigest())
        else:
            with _on_path(Path.cwd()):
                found = importlib.import_module(place)
    except Exception as error:  # a user's file can fail in any way
        raise ConfigError(f"can't import {place!r}: {type(error).__name__}: {error}") from error
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{place!r} has no {part!r}{nearest(part, dir(found))}")
        found = getattr(found, part)
    return found


@cache
def _load_file(place: str, digest: str) -> ModuleType:
    """The module in a file. A file with another ``digest`` is loaded anew."""
    name = f"{Path(place).stem}_{digest[:12]}"
    spec = importlib.util.spec_from_file_location(name, place)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # where dataclasses look themselves up
    try:
        with _on_path(Path(place).resolve().parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


@contextmanager
def _on_path(folder: Path) -> Iterator[None]:
    """Let imports find modules in this folder."""
    sys.path.append(str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
