"""The events of a bandit's log. The log is the truth; every state is its fold."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec


class Decided(msgspec.Struct, tag="D", frozen=True, kw_only=True, gc=False):
    """An action was chosen."""

    id: str
    round: int
    """Number by which policies draw. Where decisions are made on states that may be old, some numbers are missing, and
    they need not be in order."""
    at: float
    """Time by the service's clock, in seconds since 1970."""
    actions: list[str]
    """Ids of all the actions on offer."""
    index: int
    """Place of the chosen action among them, from 0 on."""
    features: list[float]
    """Features of the chosen action."""
    sigma: float
    level: int
    propensity: float
    weight: float = 1.0
    """Weight that σ gives the reward. A policy that doubts the action lowers it further when it learns."""
    source: str | None = None
    offered: bytes | None = None
    """Features of all the actions on offer, row by row, 8 bytes each. They are kept where ``exploration`` is above 0,
    for off-policy evaluation."""
    unusual: dict[str, dict[str, int]] | None = None
    """How many values among all actions were clipped, unseen or missing, by column, if any."""
    made_on: int | msgspec.UnsetType = msgspec.UNSET
    """Number of events in the state that it was made on, where that may be old; otherwise it is all events before."""


class Rewarded(msgspec.Struct, tag="R", frozen=True, kw_only=True, gc=False):
    """The reward of a decision came."""

    id: str
    at: float
    reward: float


class Closed(msgspec.Struct, tag="C", frozen=True, kw_only=True, gc=False):
    """The window for a reward closed before one came. ``reward`` is the default, if there is one."""

    id: str
    at: float
    reward: float | None = None


class Proved(msgspec.Struct, tag="P", frozen=True, kw_only=True, gc=False):
    """The monitor proved more corruption than ever before. Looks are no part of a state; what they prove is."""

    id: str
    at: float
    round: int
    """Number of rounds whose rewards were final."""
    lower_bound: float
    since: int | None
    sentence: str
    blamed: str | None = None
    """The one source without which all others agree, if blaming anybody else costs clearly more."""


class Acknowledged(msgspec.Struct, tag="A", frozen=True, kw_only=True, gc=False):
    """An operator has seen what is proved."""

    id: str
    at: float
    lower_bound: float
    """The proof that was seen."""
    key: str | None
    """Name of the key that was used; None where the service has no keys."""
    by: str | None
    """Who said so, in their own words."""
    note: str


class Delivered(msgspec.Struct, tag="T", frozen=True, kw_only=True, gc=False):
    """A webhook took a notice, or was given up."""

    id: str
    at: float
    hook: str
    """Name of the webhook."""
    notice: int
    """Number of the notice among those of its bandit."""
    taken: bool
    """Whether it was taken."""


class Changed(msgspec.Struct, tag="S", frozen=True, kw_only=True, gc=False):
    """An operator changed the bandit. Its settings are others from here on."""

    id: str
    """The version of the settings that this makes."""
    at: float
    asked: dict[str, Any]
    """What was asked for, as it was sent."""
    settings: dict[str, Any]
    """What that means: every setting that is another one now, in full."""
    learnt_after: int | msgspec.UnsetType = msgspec.UNSET
    """Place of the log after which the new policy has learnt it, where the log was cut there."""


class Imported(msgspec.Struct, tag="I", frozen=True, kw_only=True, gc=False):
    """A reward from outside was learnt: of a decision that this bandit did not make."""

    id: str
    at: float
    features: list[float]
    reward: float
    sigma: float
    source: str | None = None
    propensity: float | None = None
    """The probability with which whoever decided chose the action, if that is known."""


class Erased(msgspec.Struct, tag="X", frozen=True, kw_only=True, gc=False):
    """The bandit was deleted. All events before this one are gone, or will be soon."""

    id: str
    at: float
    name: str
    version: int
    """The version of the settings that the bandit had."""


class Cut(msgspec.Struct, tag="K", frozen=True, kw_only=True, gc=False):
    """The log was cut. The events up to a place are gone, or will be soon, but for decisions that were open there. The
    state at that place is kept, and from now on the log is folded from it."""

    id: str
    """The place."""
    at: float
    place: int
    before: float
    """Time of the event at that place."""
    decisions: int
    """Number of decisions up to that place, those included that stay."""
    open: int
    """Number of these decisions that stay, since their reward was not final there."""


class Blank(msgspec.Struct, tag="G", frozen=True, kw_only=True, gc=False):
    """What stays of an event that was forgotten: that there was one."""

    id: str
    """Its place."""
    at: float


class Forgot(msgspec.Struct, tag="F", frozen=True, kw_only=True, gc=False):
    """Decisions were forgotten, with their rewards. From here on the state is one that has never known them."""

    id: str
    """How often something was forgotten, from 1 on."""
    at: float
    decisions: int
    """Number of decisions, and of rows of history."""


Event: TypeAlias = (
    Decided | Rewarded | Closed | Proved | Acknowledged | Delivered | Changed | Erased | Imported | Cut | Blank | Forgot
)

_ENCODER, _DECODER = msgspec.json.Encoder(), msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    """Write an event as JSON. Floats are written in full, so that `decode` gives the same event, bit for bit."""
    return _ENCODER.encode(event)


def decode(data: bytes) -> Event:
    """Read what `encode` or `pack` wrote."""
    line, _, offered = data.partition(b"\n")
    event = _DECODER.decode(line)
    return msgspec.structs.replace(event, offered=offered) if offered else event


def pack(event: Event) -> bytes:
    """Write an event as stores keep it: as `encode` does, but the features on offer as they are, after a line feed.

    JSON has no line feed of its own here. As text, they would take a third more room, and twice the time.
    """
    if not isinstance(event, Decided) or event.offered is None:
        return _ENCODER.encode(event)
    return b"%b\n%b" % (_ENCODER.encode(msgspec.structs.replace(event, offered=None)), event.offered)


def as_line(data: bytes) -> bytes:
    """What `encode` writes of an event that `pack` wrote."""
    return encode(decode(data)) if b"\n" in data else data
