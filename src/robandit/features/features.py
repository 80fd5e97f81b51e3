"""`Features`: one description of how a record becomes a vector, for the library, the service, the audit and people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from robandit.arrays import Floats
from robandit.errors import Configured
from robandit.features.columns import Column, Growing, Hashed, read_columns
from robandit.features.design import history_spread, schema_spread
from robandit.features.encoder import Encoder
from robandit.features.fitting import fitted
from robandit.features.layout import Layout, read_crosses, units
from robandit.features.saved import from_text, to_text
from robandit.features.tables import read_table
from robandit.files import write_file
from robandit.inputs import as_floats, boolean, positive


class Features(Configured):
    """Says once how records become vectors: scaled, one-hot, crossed, and never longer than ``action_bound``.

    Give the columns by a schema, as here, or let `Features.fit` learn them from history.

    >>> features = Features(action={"price": (0, 50), "colour": ["red", "blue"]})
    >>> features.names
    ('price', 'colour=red', 'colour=blue', 'colour=(unseen)', '(constant)')
    >>> features.encode([{"price": 50, "colour": "red"}, {"price": 20, "colour": "green"}]).round(2).tolist()
    [[0.58, 0.58, 0.0, 0.0, 0.58], [-0.12, 0.0, 0.0, 0.58, 0.58]]
    >>> features.counts
    {'colour': {'unseen': 1}}
    """

    def __init__(
        self,
        *,
        action: Mapping[str, Any] | Sequence[Column] = (),
        context: Mapping[str, Any] | Sequence[Column] = (),
        source: Mapping[str, Any] | Sequence[Column] = (),
        crosses: Sequence[Sequence[str]] = (),
        id: str | None = None,  # noqa: A002 (it is the word that people use)
        intercept: bool | None = None,
        centre: str | None = None,
        action_bound: float = 1.0,
    ) -> None:
        centred = _read_centre(centre, intercept)
        columns = read_columns(action, "action")
        layout = Layout(
            columns if columns or id is None else (Hashed(id),),
            read_columns(context, "context"),
            read_columns(source, "source"),
            read_crosses(crosses),
            not centred if intercept is None else boolean("intercept", intercept),
            centred,
            positive("action_bound", action_bound),
        )
        self._encoder = Encoder(layout)
        self.id = id
        """The column that names an action."""
        self.left_out: dict[str, str] = {}
        """The columns of the history that are no features, and why."""
        self.spread: float | None = None
        """The least that ⟨a, x⟩² was on average in the history, over the directions x of length 1 that occurred."""

    @classmethod
    def fit(
        cls,
        history: Any,
        *,
        action: Sequence[str] | None = None,
        context: Sequence[str] = (),
        id: str | None = None,  # noqa: A002
        reward: str | None = None,
        source: str | None = None,
        decision: str | None = None,
        crosses: Sequence[Sequence[str]] | None = None,
        kinds: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Self:
        """Features from history: a long table with a row for every action that was shown, or offered.

        Without ``action``, every column that has no other role is one of the actions', unless it looks like a name or
        a time. Without ``crosses``, every column of the context is crossed with every column of the actions. ``kinds``
        says what a column is where the guess is wrong. ``decision`` is a column that is the same within a decision
        set; ``centre="set"`` needs it. docs/how-to/features.md says more.
        """
        table = read_table(history)
        roles = {"id": id, "reward": reward, "source": source, "decision": decision}
        schema, left_out = fitted(table, action, context, roles, crosses, kinds or {})
        found = cls(**schema, id=id, **settings)
        found.left_out = left_out
        if not found._layout.centred or decision is not None:
            found.spread = history_spread(found.rows(table, decision=decision))
            found._encoder.counts.clear()
        return found

    # What it is.

    @property
    def _layout(self) -> Layout:
        return self._encoder.layout

    @property
    def names(self) -> tuple[str, ...]:
        """What the features are called, in the order of a vector."""
        return self._layout.names

    @property
    def dim(self) -> int:
        """The number of features of a vector."""
        return len(self._layout.names)

    @property
    def action_bound(self) -> float:
        """No vector is longer than this."""
        return self._layout.action_bound

    @property
    def centred(self) -> bool:
        """Whether the mean of the decision set is taken from its vectors."""
        return self._layout.centred

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns, with the centres and scales that are known by now."""
        return self._encoder.resolved(self._layout.columns, self._encoder.moments)

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """How often a value was clipped, unseen or missing so far, by column."""
        found: dict[str, dict[str, int]] = {}
        for (column, what), number in self._encoder.counts.items():
            if number:
                found.setdefault(column, {})[what] = number
        return found

    @property
    def learning(self) -> bool:
        """Whether centres and scales still follow the values that come, or labels still take new slots."""
        return self.scaling or any(isinstance(column, Growing) and column.growing for column in self._layout.columns)

    @property
    def scaling(self) -> bool:
        """Whether centres and scales still follow the values that come."""
        return bool(self._encoder.moments)

    def freeze(self, *, labels: bool = True) -> None:
        """Keep the centres and scales as they are from now on and, with ``labels``, the labels that have a slot."""
        old, layout, roles = self._encoder, self._layout, dict[str, Any]()
        for role in ("action", "context", "source"):
            columns = old.resolved(getattr(layout, role), old.moments)
            closed = [replace(c, closed=c.closed or labels) if isinstance(c, Growing) else c for c in columns]
            roles[role] = tuple(closed)
        self._encoder = Encoder(replace(layout, **roles))
        self._encoder.counts += old.counts

    # What it does.

    def encode(self, candidates: Any, context: Any = None, source: Any = None) -> Floats:
        """The vectors (K, dim) of a decision set: dicts, a frame, a dict of columns, ids, or an array (K, columns).

        ``context`` and ``source`` are the same for all candidates; left out, they are read from each of them. While
        `learning`, the candidates count towards centres and scales first.
        """
        return self._encoder.encode(candidates, context, source, self.id)

    def read(self, candidates: Any, context: Any = None, source: Any = None) -> Floats:
        """What the cells of a decision set hold, before it is scaled. `scale` makes vectors of it, now or later.

        While `scaling`, whoever learns from vectors must keep this instead: scales may be others by then.
        """
        return self._encoder.read(candidates, context, source, self.id)

    def scale(self, read: Floats) -> Floats:
        """The vectors (K, dim) of what was read, by the centres and scales that are known now."""
        return self._encoder.scale(read.copy())

    def rows(self, frame: Any, *, decision: str | None = None) -> Floats:
        """The vectors (n, dim) of a long table that holds all columns, such as a history.

        ``decision`` is a column that is the same within a decision set, which ``centre="set"`` needs.
        """
        return self._encoder.rows(frame, decision)

    def explain(self, parameter: ArrayLike) -> dict[str, float]:
        """What a parameter (dim,) means, by name: the change in reward for one unit of a number, or for a label.

        Everything else is at its centre then; the constant is the reward there.

        >>> features = Features(action={"price": (0, 50)})
        >>> {name: round(effect, 6) for name, effect in features.explain([-0.2, 0.5]).items()}
        {'price': -0.005657, '(constant)': 0.353553}
        """
        mu = as_floats("parameter", parameter)
        if mu.shape != (self.dim,):
            raise ValueError(f"parameter must have shape ({self.dim},), got {mu.shape}")
        unit = units(self._layout, self.columns)
        shown = unit if self._layout.shown is None else unit[self._layout.shown]
        return dict(zip(self.names, (mu * shown * self._layout.factor).tolist(), strict=True))

    def parameter_bound(self, low: float, high: float) -> float | None:
        """B, an upper bound on ‖μ*‖ if mean rewards lie from ``low`` to ``high``; None where none can be derived.

        Of a fitted history, at whose rows means must lie there; of a schema, for all combinations that it allows. Of
        all parameters that say the same, the shortest is meant.
        """
        if not low <= high:
            raise ValueError(f"low must be at most high, got {low!r} and {high!r}")
        most = high - low if self._layout.centred else max(abs(low), abs(high))
        spread = schema_spread(self._layout) if self.spread is None else self.spread
        return None if not spread or not most else most / float(np.sqrt(spread))

    # JSON.

    def to_json(self) -> str:
        """All of it as JSON, from which `from_json` makes the same features again, to the last bit."""
        return to_text(self._layout, self._encoder.moments, self.id, self.left_out, self.spread)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Features from what `to_json` returned. Text that was cut or edited is refused."""
        found = cls.__new__(cls)
        layout, moments, found.id, found.left_out, found.spread = from_text(text)
        found._encoder = Encoder(layout, moments)
        return found

    def save(self, path: str | Path) -> None:
        """Write the features into a file, all of it or nothing."""
        write_file(Path(path), self.to_json().encode("utf-8", "surrogatepass"))

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read the features from a file that `save` wrote."""
        try:
            return cls.from_json(Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None


def _read_centre(centre: object, intercept: object) -> bool:
    """Read whether vectors are centred within their set."""
    if centre not in (None, "set"):
        raise ValueError(f"centre must be None or 'set', got {centre!r}")
    if centre == "set" and intercept:
        raise ValueError("centre='set' takes away what all actions of a set share, an intercept too: leave it out")
    return centre == "set"
