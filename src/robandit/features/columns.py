"""The kinds of columns, and what each one becomes: one number, or one slot out of many."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from hashlib import blake2b
from typing import Any

from robandit.errors import nearest
from robandit.features.cells import MISSING, label
from robandit.inputs import boolean, integer, positive

PEAK = 4.0
"""A fitted column's values lie within this many of its scales; what lies beyond is clipped."""
BUCKETS = 32
"""The number of slots that the levels of a hashed column share, by default."""
SLOTS = 64
"""The number of labels that have a slot of their own in a growing column, by default."""
UNSEEN = "(unseen)"
"""The slot of categories that the schema does not know."""


@dataclass(frozen=True)
class Numeric:
    """A column of numbers: z = (value − centre) / scale, clipped to ±limit.

    Without centre and scale they are learnt as values come. `Numeric.between` takes the range of values instead.
    """

    name: str
    _: KW_ONLY
    centre: float | None = None
    """What is taken from a value; None to learn it."""
    scale: float | None = None
    """What the rest is divided by; None to learn it."""
    limit: float = PEAK
    """The largest |z|: what lies beyond is clipped, and counted."""
    missing: bool = False
    """Whether a value may be missing: z is 0 then, and a second feature is 1."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        boolean(f"{self.name}: missing", self.missing)
        positive(f"{self.name}: limit", self.limit)
        if (self.centre is None) != (self.scale is None):
            raise ValueError(f"{self.name}: give centre and scale, or neither to learn them")
        if self.scale is not None:
            positive(f"{self.name}: scale", self.scale)
            _check_finite(f"{self.name}: centre", self.centre)

    @classmethod
    def between(cls, name: str, low: float, high: float, *, missing: bool = False) -> Numeric:
        """A column whose values lie between two numbers, which become −1 and 1.

        >>> Numeric.between("price", 0, 50)
        Numeric(name='price', centre=25.0, scale=25.0, limit=1.0, missing=False)
        """
        _check_finite(f"{name}: low", low)
        _check_finite(f"{name}: high", high)
        if not low < high:
            raise ValueError(f"{name}: low must be below high, got {low!r} and {high!r}")
        return cls(name, centre=(low + high) / 2.0, scale=(high - low) / 2.0, limit=1.0, missing=missing)

    @property
    def names(self) -> tuple[str, ...]:
        """What its features are called."""
        return (self.name, f"{self.name} missing") if self.missing else (self.name,)

    @property
    def reach(self) -> float:
        """The largest norm of its features."""
        return max(self.limit, 1.0) if self.missing else self.limit


@dataclass(frozen=True)
class Boolean:
    """A column of truths: 1 if true and −1 if false."""

    name: str
    _: KW_ONLY
    missing: bool = False
    """Whether a value may be missing: z is 0 then, and a second feature is 1."""

    def __post_init__(self) -> None:
        _check_name(self.name)
        boolean(f"{self.name}: missing", self.missing)

    @property
    def as_numbers(self) -> Numeric:
        """The same column, once true is 1 and false is 0."""
        return Numeric(self.name, centre=0.5, scale=0.5, limit=1.0, missing=self.missing)

    @property
    def names(self) -> tuple[str, ...]:
        """What its features are called."""
        return self.as_numbers.names

    reach = 1.0


@dataclass(frozen=True)
class Categorical:
    """A column of labels: a slot for each level that is known, and one for all others."""

    name: str
    _: KW_ONLY
    levels: tuple[str, ...]
    """The labels that have a slot of their own; `(missing)` stands for none."""

    reach = 1.0

    def __post_init__(self) -> None:
        _check_name(self.name)
        if isinstance(self.levels, str) or not self.levels:
            raise ValueError(f"{self.name}: levels must be labels, at least one, got {self.levels!r}")
        found = tuple(label(level) or MISSING for level in self.levels)
        if len(set(found)) < len(found):
            twice = next(level for place, level in enumerate(found) if level in found[:place])
            raise ValueError(f"{self.name}: the level {twice!r} is there twice")
        object.__setattr__(self, "levels", found)

    @property
    def names(self) -> tuple[str, ...]:
        """What its features are called."""
        return tuple(f"{self.name}={level}" for level in (*self.levels, UNSEEN))

    def slots(self, first: int) -> dict[Any, int]:
        """The slot of each label, counted from ``first``. A label that is a whole number is found as a number, too."""
        found: dict[Any, int] = {level: first + place for place, level in enumerate(self.levels)}
        whole = {int(level): slot for level, slot in found.items() if level.lstrip("-").isdecimal()}
        return found | {value: slot for value, slot in whole.items() if found.get(str(value)) == slot}


@dataclass(frozen=True)
class Hashed:
    """A column of labels that are too many to list: they share slots by a hash that is the same on every machine."""

    name: str
    _: KW_ONLY
    buckets: int = BUCKETS

    reach = 1.0

    def __post_init__(self) -> None:
        _check_name(self.name)
        integer(f"{self.name}: buckets", self.buckets, 2)

    @property
    def names(self) -> tuple[str, ...]:
        """What its features are called."""
        return tuple(f"{self.name}#{place}" for place in range(self.buckets))

    def slot(self, text: str) -> int:
        """The slot of a label. The column's name is hashed with it, so that columns don't collide alike."""
        whole = f"{self.name}\0{text}".encode("utf-8", "surrogatepass")  # half a character is a label, too
        salted = blake2b(whole, digest_size=8).digest()
        return int.from_bytes(salted, "little") % self.buckets


@dataclass(frozen=True)
class Growing:
    """A column of labels that nobody has listed: each takes a slot of its own when it first comes.

    Once the slots are taken, further labels share them by a hash.

    >>> Growing("item", slots=3).grown(["a", "b"]).names
    ('item=a', 'item=b', 'item#2')
    """

    name: str
    _: KW_ONLY
    slots: int = SLOTS
    levels: tuple[str, ...] = ()
    """The labels that have a slot, in the order in which they came."""
    closed: bool = False
    """Whether no further label gets a slot of its own."""

    reach = 1.0

    def __post_init__(self) -> None:
        _check_name(self.name)
        integer(f"{self.name}: slots", self.slots, 1)
        if len(set(self.levels)) < len(self.levels) or len(self.levels) > self.slots:
            raise ValueError(f"{self.name}: levels must be different and at most {self.slots}, got {self.levels!r:.80}")

    @property
    def names(self) -> tuple[str, ...]:
        """What its features are called."""
        free = [f"{self.name}#{place}" for place in range(len(self.levels), self.slots)]
        return *[f"{self.name}={level}" for level in self.levels], *free

    @property
    def growing(self) -> bool:
        """Whether a label that comes next takes a slot."""
        return not self.closed and len(self.levels) < self.slots

    def grown(self, labels: Iterable[str]) -> Growing:
        """The column after some labels came."""
        new = [text for text in dict.fromkeys(labels) if text not in self.levels]
        return replace(self, levels=(*self.levels, *new)[: self.slots])

    def slot(self, text: str) -> int:
        """The slot of a label: its own, or a shared one."""
        if text in self.levels:
            return self.levels.index(text)
        return Hashed(self.name, buckets=max(2, self.slots)).slot(text) % self.slots


Column = Numeric | Boolean | Categorical | Hashed | Growing
Labelled = Categorical | Hashed | Growing
"""The kinds of columns that hold labels, of which a vector has one slot out of many."""
KINDS: dict[str, type[Any]] = {
    "numeric": Numeric,
    "boolean": Boolean,
    "categorical": Categorical,
    "hashed": Hashed,
    "growing": Growing,
}
"""The kinds of columns by the name that a file or an override has for them."""


def read_columns(given: Mapping[str, Any] | Sequence[Any], role: str) -> tuple[Column, ...]:
    """The columns of a schema: objects, or names with what is known of them.

    >>> read_columns({"price": (0, 50), "colour": ["red", "blue"], "new": bool}, "action")[2]
    Boolean(name='new', missing=False)
    """
    if isinstance(given, str):
        raise ValueError(f"{role} must be a list of columns, got the text {given!r}")
    if isinstance(given, Mapping):
        return tuple(_read_short(name, about) for name, about in given.items())
    for column in given:
        if not isinstance(column, Column):
            raise ValueError(
                f"{role} must hold columns such as Numeric('price') or, in a dict, 'price': (0, 50), got {column!r}"
            )
    return tuple(given)


def _read_short(name: str, about: Any) -> Column:
    """A column from what a schema says of it in short."""
    if isinstance(about, Column):
        return about
    if about in (bool, float, int, str):
        return Boolean(name) if about is bool else Hashed(name) if about is str else Numeric(name)
    if isinstance(about, int) and not isinstance(about, bool):
        return Hashed(name, buckets=about)
    if isinstance(about, tuple) and len(about) == 2 and all(isinstance(end, int | float) for end in about):
        return Numeric.between(name, *about)
    if isinstance(about, list | tuple):
        return Categorical(name, levels=tuple(about))
    raise ValueError(
        f"{name}: say (low, high) for numbers, a list of levels, a number of buckets, float, bool or str, got {about!r}"
    )


def read_kind(name: str, kind: object) -> str:
    """Read the kind that a caller wants for a column."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"the kind of {name!r} must be one of {', '.join(KINDS)}, got {kind!r}{_near(kind)}")
    return kind


def _near(kind: object) -> str:
    return nearest(kind, KINDS) if isinstance(kind, str) else ""


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not name:
        raise ValueError(f"a column's name must be text, got {name!r}")


def _check_finite(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
        raise ValueError(f"{name} must be a finite number, got {value!r}")
