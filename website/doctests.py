"""What docstrings need to be Markdown: their examples become blocks of code, and names of the package links."""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any

import griffe

import robandit

_NAME = re.compile(r"(?<![`\[])`(\w+)`(?!`)")
_PAGE = re.compile(r"`?docs/([\w/-]+\.md)`?")
_DIRECTIVE = re.compile(r"\s*# doctest:.*$")


def with_fences(text: str) -> str:
    """A docstring whose examples, up to the next empty line, stand in blocks of code."""
    out: list[str] = []
    inside = False
    for line in text.splitlines():
        if not inside and line.lstrip().startswith(">>>"):
            out += [] if not out or not out[-1].strip() else [""]
            out, inside = [*out, "```pycon"], True
        elif inside and not line.strip():
            out, inside = [*out, "```"], False
        out.append(_DIRECTIVE.sub("", line) if inside else line)
    return "\n".join([*out, "```"] if inside else out)


def with_links(text: str, known: Set[str]) -> str:
    """A docstring whose exported names and pages, outside of code, lead to their place in the site."""
    out: list[str] = []
    code = False
    for line in text.splitlines():
        code ^= line.startswith("```")
        link = _NAME.sub(lambda name: f"[`{name[1]}`][robandit.{name[1]}]" if name[1] in known else name[0], line)
        out.append(line if code else _PAGE.sub(r"[\1](../\1)", link))
    return "\n".join(out)


class Doctests(griffe.Extension):
    """Prepares every docstring before it is rendered."""

    known = frozenset(robandit.__all__)

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = with_links(with_fences(obj.docstring.value), self.known - {obj.name})
