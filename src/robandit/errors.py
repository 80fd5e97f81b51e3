"""Errors that name the value and the remedy."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable
from typing import Self


class ConfigError(ValueError):
    """The configuration of a run is wrong. The message names the key and, where there is one, the nearest valid one."""


def install(extra: str) -> str:
    """The command that installs what an extra needs. robandit is on no package index yet, so it is one for a clone.

    >>> install("lab")
    "pip install '.[lab]' in a clone of robandit"
    """
    return f"pip install '.[{extra}]' in a clone of robandit"


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error message that helps a reader who mistyped a word."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(names)}"


class Configured:
    """Base of the dataclasses that are made from keywords: a wrong argument gets a sentence and a suggestion.

    >>> from dataclasses import dataclass
    >>> @dataclass(kw_only=True, frozen=True)
    ... class Greeting(Configured):
    ...     times: int
    ...     loud: bool = False
    >>> Greeting(times=1, lound=True)
    Traceback (most recent call last):
    TypeError: Greeting has no setting 'lound'; did you mean 'loud'?
    >>> Greeting(3)
    Traceback (most recent call last):
    TypeError: Greeting takes keywords only: Greeting(times=…)
    """

    def __new__(cls, *args: object, **settings: object) -> Self:
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        # A constructor that someone wrote by hand may take what it likes.
        if all(parameter.kind is inspect.Parameter.KEYWORD_ONLY for parameter in parameters):
            _check_arguments(cls.__name__, parameters, args, settings)
        return super().__new__(cls)


def _check_arguments(
    name: str, parameters: list[inspect.Parameter], args: Iterable[object], settings: Iterable[str]
) -> None:
    """Refuse positional arguments, and keywords that are no parameter."""
    if args:
        required = [p.name for p in parameters if p.default is inspect.Parameter.empty]
        shown = [f"{setting}=…" for setting in required or [p.name for p in parameters[:2]]]
        raise TypeError(f"{name} takes keywords only: {name}({', '.join(shown)})")
    known = [p.name for p in parameters]
    for setting in settings:
        if setting not in known:
            raise TypeError(f"{name} has no setting {setting!r}{nearest(setting, known)}")
