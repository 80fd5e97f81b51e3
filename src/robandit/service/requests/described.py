"""Features as a request describes them: the JSON that `Features.save` writes, or a schema in plain JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from robandit.errors import nearest
from robandit.features import Features
from robandit.features.columns import BUCKETS

LARGEST = 1000
"""The most slots that a column, or a cross of two, may take."""
_ROLES = ("action", "context", "source")
_SETTINGS = (*_ROLES, "crosses", "id", "intercept", "centre", "action_bound")
_WORDS: dict[str, Any] = {"boolean": bool, "text": BUCKETS}


def read_features(given: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON object of the features that are described. They must know the scale of every number.

    >>> read_features({"action": {"price": [0, 50], "colour": ["red", "blue"]}})["features"]["action"][0]["scale"]
    25.0
    """
    try:
        features = _saved(given) if "format" in given else _schema(given)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:  # something is of another kind
        raise ValueError(f"features are neither a schema nor what Features.save writes: {error}") from None
    found: dict[str, Any] = json.loads(features.to_json())
    for column in (one for role in _ROLES for one in found["features"][role]):
        if column["kind"] == "numeric" and column["scale"] is None:
            raise ValueError(
                f"features must know the scale of {column['name']!r} beforehand, for a log to fold back exactly: give "
                "its range, as [0, 50], fit the features on history, or freeze() them"
            )
        if column["kind"] == "growing" and features.learning:
            raise ValueError(
                f"features must know the labels of {column['name']!r} beforehand, for a log to fold back exactly: list "
                "its levels, say a number of buckets, or freeze() the features"
            )
    return found


def _saved(given: Mapping[str, Any]) -> Features:
    """Features out of what `Features.save` wrote."""
    content = given.get("features")
    if isinstance(content, Mapping):
        columns = [one for role in _ROLES for one in content.get(role, ()) if isinstance(one, Mapping)]
        sizes = {
            one.get("name"): one.get("buckets") or one.get("slots") or _length(one.get("levels")) for one in columns
        }
        _check_size(sizes, content.get("crosses"))
    return Features.from_json(json.dumps(given))


def _schema(given: Mapping[str, Any]) -> Features:
    """Features out of a schema, the keywords of `Features` in JSON."""
    for name in given:
        if name not in _SETTINGS:
            raise ValueError(f"features have no {name!r}{nearest(name, _SETTINGS)}")
    roles = {role: _columns(role, given[role]) for role in _ROLES if role in given}
    known = [(name, about) for columns in roles.values() for name, about in columns.items()]
    sizes = {name: about if isinstance(about, int) else _length(about) for name, about in known}
    _check_size(sizes, given.get("crosses"))
    return Features(**{**given, **roles})


def _columns(role: str, given: Any) -> dict[str, Any]:
    """The columns of a role, with pairs of numbers as ranges, which in JSON look like lists of levels."""
    if not isinstance(given, Mapping):
        raise ValueError(f'features: {role} must be an object such as {{"price": [0, 50]}}, got {given!r:.80}')
    return {name: _column(name, about) for name, about in given.items()}


def _column(name: str, about: Any) -> Any:
    if isinstance(about, str):
        if about not in _WORDS:
            raise ValueError(
                f'features: {name} must be a range as [0, 50], a list of levels, a number of buckets, "boolean" or '
                f'"text", got {about!r}'
            )
        return _WORDS[about]
    pair = isinstance(about, list) and len(about) == 2
    return tuple(about) if pair and all(type(end) in (int, float) for end in about) else about


def _length(about: Any) -> int:
    return len(about) if isinstance(about, list) else 1


def _check_size(sizes: Mapping[Any, Any], crosses: Any) -> None:
    """Refuse what would take long to read, before it is read."""
    pairs = [pair for pair in crosses or () if isinstance(pair, list) and len(pair) == 2]
    for names in ([[name] for name in sizes], pairs):
        total = 0
        for pair in names:
            slots = 1
            for name in pair:
                size = sizes.get(name) if isinstance(name, str) else None
                slots *= size + 1 if isinstance(size, int) else 1
            total += slots
        if total > 4 * LARGEST:
            raise ValueError(f"features must have at most {LARGEST:,} in all, and these have more: use fewer buckets")
