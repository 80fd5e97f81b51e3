"""What happens to a bandit, as the log has it. The log is the truth; every state is its fold."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Decided(msgspec.Struct, tag="D", frozen=True, kw_only=True, gc=False):
    """An action was chosen."""

    id: str
    round: int
    at: float
    """Seconds since 1970, by the clock of the service."""
    actions: list[str]
    """The ids of all that were on offer."""
    index: int
    features: list[float]
    """Of the action chosen."""
    sigma: float
    level: int
    propensity: float
    weight: float = 1.0
    """What its σ makes its reward count. Doubts that a policy has about the action come on top, when it learns."""
    source: str | None = None
    offered: bytes | None = None
    """The features of all that were on offer, row by row, 8 bytes each; kept where ``exploration`` is above 0, for
    off-policy evaluation."""


class Rewarded(msgspec.Struct, tag="R", frozen=True, kw_only=True, gc=False):
    """The reward of a decision came."""

    id: str
    at: float
    reward: float


class Closed(msgspec.Struct, tag="C", frozen=True, kw_only=True, gc=False):
    """The reward's window closed before one came; ``reward`` is the default, if there is one."""

    id: str
    at: float
    reward: float | None = None


class Proved(msgspec.Struct, tag="P", frozen=True, kw_only=True, gc=False):
    """The monitor proved more corruption than ever before. Looks are no part of a state; what they prove is."""

    id: str
    at: float
    round: int
    """How many rounds were final."""
    lower_bound: float
    since: int | None
    sentence: str


Event: TypeAlias = Decided | Rewarded | Closed | Proved

_ENCODER, _DECODER = msgspec.json.Encoder(), msgspec.json.Decoder(Event)


def encode(event: Event) -> bytes:
    """As JSON, from which `decode` makes the same event, bit for bit: floats are written in full."""
    return _ENCODER.encode(event)


def decode(data: bytes) -> Event:
    return _DECODER.decode(data)
