"""From the actions of a request to the vectors of a decision set."""

from __future__ import annotations

import json
import re
from functools import cached_property
from struct import Struct
from typing import Any, TypeAlias

import numpy as np

from robandit.arrays import Floats
from robandit.features import Features
from robandit.service.refused import Refused
from robandit.service.requests.cost import check_records
from robandit.service.requests.span import spanned
from robandit.wire.types import MOST_ACTIONS, Action, BanditSettings, Choice, ChoiceBlock

Unusual: TypeAlias = dict[str, dict[str, int]]
"""How many values were clipped, unseen or missing, by column."""


class Vectors:
    """Reads the actions of one bandit: vectors as they are, or records by its features."""

    def __init__(self, settings: BanditSettings) -> None:
        self._dim, self.features = settings.dim, None
        self._pack = Struct(f"{self._dim}d").pack
        if settings.features is not None:
            self.features = Features.from_json(json.dumps(settings.features))
            roles = settings.features["features"]
            self._id = None if self.features.id not in [one["name"] for one in roles["action"]] else self.features.id
            self._columns = {role: [one["name"] for one in roles[role]] for role in ("action", "context", "source")}

    @cached_property
    def span(self) -> Floats | None:
        """The projection onto what vectors can tell apart, where features by name say that."""
        return None if self.features is None else spanned(self.features)

    def names(self, choice: Choice | ChoiceBlock) -> list[str]:
        """The ids of all actions."""
        if isinstance(choice, Choice):
            return [action.id for action in choice.actions]
        count, rest = divmod(len(choice.features), 8 * self._dim)
        if self.features is not None:
            raise Refused(422, "this bandit takes records: send JSON with an object for each action")
        if rest or not 1 <= count <= MOST_ACTIONS:
            raise Refused(
                422,
                f"a block for this bandit has {8 * self._dim} bytes for each of 1 to {MOST_ACTIONS:,} actions, "
                f"and this one has {len(choice.features):,}",
            )
        return list(map(str, range(count)))

    def __call__(self, choice: Choice | ChoiceBlock) -> tuple[Floats, Unusual | None]:
        """The vectors (K, d) of all actions, and what was unusual about them, if anything was."""
        if isinstance(choice, ChoiceBlock):
            return np.frombuffer(choice.features, "<f8").astype(np.float64, copy=False).reshape(-1, self._dim), None
        if self.features is None:
            return self._plain(choice), None
        self._check_records(choice)
        before = self.features.counts
        try:
            found = self.features.encode(self._records(choice.actions), choice.context, choice.source)
        except ValueError as error:
            raise Refused(422, _named(str(error), choice.actions)) from None
        return found, _more(before, self.features.counts)

    def _records(self, actions: list[Action]) -> list[Any]:
        """The records of actions. Where a column names the action, its id need not be said twice."""
        if self._id is None:
            return [one.features for one in actions]
        return [{self._id: one.id} | one.features for one in actions]  # type: ignore[operator]

    def _plain(self, choice: Choice) -> Floats:
        for action in choice.actions:
            if type(action.features) is dict:
                raise Refused(
                    422,
                    f"action {action.id!r} is a record, and this bandit has no features by name: send a list of "
                    f"{self._dim} numbers, or create a bandit with `features`",
                )
            if len(action.features) != self._dim:
                raise Refused(
                    422, f"action {action.id!r} has {len(action.features)} features, and should have {self._dim}"
                )
        if choice.context is not None:
            raise Refused(422, "this bandit has no features by name, so it can't read a context: leave it out")
        rows = [self._pack(*action.features) for action in choice.actions]
        return np.frombuffer(b"".join(rows)).reshape(-1, self._dim)  # a third of the time of np.fromiter

    def _check_records(self, choice: Choice) -> None:
        check_records(len(choice.actions), len(self._columns["action"]))
        for action in choice.actions:
            if type(action.features) is not dict:
                names = ", ".join(self._columns["action"])
                raise Refused(
                    422,
                    f"action {action.id!r} is a list of {len(action.features)} numbers, and this bandit takes records: "
                    f"send an object with {names}",
                )
        for role in ("context", "source"):
            if self._columns[role] and getattr(choice, role) is None:
                absent = [name for name in self._columns[role] if name not in choice.actions[0].features]
                if absent:
                    raise Refused(422, f"there is no {absent[0]!r}: send it as `{role}` of the decision")


def _named(message: str, actions: list[Action]) -> str:
    """A message of `Features`, which counts candidates, with the ids of the actions."""
    message = re.sub(r"^candidate (\d+)", lambda found: f"action {actions[int(found[1])].id!r}", message)
    return re.sub(r"^a candidate", "an action", re.sub(r"^context 0", "context", message))


def _more(before: Unusual, after: Unusual) -> Unusual | None:
    """What was counted in between."""
    if before == after:
        return None
    found = {
        column: {what: number - before.get(column, {}).get(what, 0) for what, number in counts.items()}
        for column, counts in after.items()
    }
    return {
        column: {what: n for what, n in counts.items() if n} for column, counts in found.items() if any(counts.values())
    }
