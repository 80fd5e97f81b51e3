"""Errors that name the value and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class ConfigError(ValueError):
    """A run that can't be. The message names the key and, where there is one, the nearest valid one."""


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error message that helps a reader who mistyped a word."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; there are {', '.join(sorted(known))}"
