"""The bodies of requests, from what callers have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar
from uuid import uuid4

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from robandit.errors import nearest
from robandit.features import Features
from robandit.rewards import Rewards as DeclaredRewards
from robandit.wire.imports import HistoryRow
from robandit.wire.types import MOST_ACTIONS, MOST_DECISIONS, Action, Choice, Creation, NamedChoice

C = TypeVar("C", Choice, NamedChoice)
Record: TypeAlias = Mapping[str, Any]
"""The values of an action, or of a context, by column."""
Actions: TypeAlias = (
    Mapping[str, ArrayLike | Record]
    | Sequence[tuple[str, ArrayLike | Record]]
    | Sequence[Record]
    | Sequence[str]
    | ArrayLike
)
"""The actions on offer: vectors or records by id, pairs of id and either, records with an "id", ids alone, or rows of
numbers. Rows, and records without an id, are called "0", "1", …"""
Sigma: TypeAlias = float | Sequence[float | None] | None
"""The standard deviation of the rewards: one for all actions, or one for each, with None where it is not known."""

_WORDS = ("actions", "decision_id", "source", "sigma", "context")
_ROWS = 1000  # of history in a request, which is answered well within the time-out
_LARGEST = 3 << 20  # bytes of many decisions in a request


def creation(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that were given, and no others: what nobody gave, the service chooses."""
    found = dict(settings)
    features, rewards = found.get("features"), found.get("rewards")
    if isinstance(features, Features):
        found["features"] = msgspec.json.decode(features.to_json())
    if isinstance(rewards, DeclaredRewards):
        found["rewards"] = rewards.to_json()
    for name in found:
        if name not in Creation.__struct_fields__:
            raise TypeError(f"a bandit has no setting {name!r}{nearest(name, Creation.__struct_fields__)}")
    return found


def encode(body: Any) -> bytes:
    """A body as JSON. A number of NumPy's is a number, and NaN is null: a value that is missing."""
    return msgspec.json.encode(body, enc_hook=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"a value must be a number, text, true, false or None, got {value!r:.80}")


def choice_of(
    kind: type[C], actions: Actions, decision_id: str, source: str | None, sigma: Sigma, context: Record | None
) -> C:
    around = None if context is None else dict(context)
    return kind(actions=_actions(actions, sigma), decision_id=decision_id, source=source, context=around)


def named_choice(request: Mapping[str, Any]) -> NamedChoice:
    """One of many decisions, from the arguments that `decide` takes."""
    for word in request:
        if word not in _WORDS:
            raise TypeError(f"a decision has no {word!r}{nearest(word, _WORDS)}")
    if "actions" not in request:
        raise TypeError("every decision needs its actions")
    given = request.get("decision_id")
    rest = (request.get(word) for word in ("source", "sigma", "context"))
    return choice_of(NamedChoice, request["actions"], uuid4().hex if given is None else given, *rest)


def parts(choices: Iterable[NamedChoice]) -> Iterator[list[bytes]]:
    """Decisions as JSON, as many at a time as a request may have."""
    part: list[bytes] = []
    size = actions = 0
    for one in choices:
        body, more = encode(one), len(one.actions)
        full = len(part) == MOST_DECISIONS or size + len(body) > _LARGEST or actions + more > MOST_ACTIONS
        if part and full:
            yield part
            part, size, actions = [], 0, 0
        part.append(body)
        size, actions = size + len(body) + 1, actions + more
    if part:
        yield part


def row_parts(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[bytes]]:
    """Rows of history as JSON, as many at a time as a request may have."""
    part: list[bytes] = []
    size = 0
    for row in rows:
        for word in row:
            if word not in HistoryRow.__struct_fields__:
                raise TypeError(f"a row of history has no {word!r}{nearest(word, HistoryRow.__struct_fields__)}")
        body = encode(row)
        if part and (len(part) == _ROWS or size + len(body) > _LARGEST):
            yield part
            part, size = [], 0
        part.append(body)
        size += len(body) + 1
    if part:
        yield part


def _actions(given: Actions, sigma: Sigma) -> list[Action]:
    pairs = list(_pairs(given))
    sigmas = sigma if isinstance(sigma, Sequence | np.ndarray) else [sigma] * len(pairs)
    if len(sigmas) != len(pairs):
        raise ValueError(f"sigma must have one number for each of {len(pairs)} actions, got {len(sigmas)}")
    rows = [dict(one) if isinstance(one, Mapping) else np.asarray(one, dtype=float).tolist() for _, one in pairs]
    known = [None if one is None else float(one) for one in sigmas]
    return [Action(name, row, one) for (name, _), row, one in zip(pairs, rows, known, strict=True)]


def _pairs(given: Any) -> Iterable[tuple[str, Any]]:
    """Ids and features, from any of the forms of `Actions`."""
    if isinstance(given, Mapping):
        return given.items()
    if isinstance(given, list | tuple) and given and all(isinstance(one, Mapping) for one in given):
        return ((str(one.get("id", place)), one) for place, one in enumerate(given))
    if isinstance(given, list | tuple) and given and all(isinstance(one, str) for one in given):
        return ((one, {}) for one in given)
    if isinstance(given, list | tuple) and all(_is_pair(one) for one in given):
        return given
    rows = np.asarray(given, dtype=float)
    if rows.ndim != 2:
        raise ValueError(
            f"actions must be a mapping, pairs of id and features, records, or rows, got shape {rows.shape}"
        )
    return ((str(number), row) for number, row in enumerate(rows))


def _is_pair(one: Any) -> bool:
    return isinstance(one, list | tuple) and len(one) == 2 and isinstance(one[0], str)
