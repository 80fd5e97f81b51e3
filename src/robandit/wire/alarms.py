"""What an operator says about an alarm."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


def _about(text: str) -> Meta:
    return Meta(description=text)


Bound = Annotated[float, Meta(gt=0, le=1e18)]
Who = Annotated[str, Meta(max_length=128)]
Note = Annotated[str, Meta(max_length=1000)]


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An operator has seen what is proved. The alarm goes up again if more is proved."""

    lower_bound: Annotated[Bound, _about("The proved corruption that you have seen, as the bandit's state has it.")]
    by: Annotated[Who, _about("Who says so, in your own words.")] | None = None
    note: Annotated[Note, _about("What was found, or what is being done.")] = ""


class AcknowledgementMade(msgspec.Struct, frozen=True, kw_only=True):
    """An acknowledgement as the log has it."""

    lower_bound: Annotated[float, _about("The proved corruption that it is about.")]
    at: Annotated[float, _about("When it was made, in seconds since 1970.")]
    key: Annotated[str | None, _about("Name of the key that was used; null where the service has no keys.")]
    by: Annotated[str | None, _about("Who said so, in their own words: nobody has checked that.")]
    note: str
