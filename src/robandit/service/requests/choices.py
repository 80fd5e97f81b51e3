"""What a request for a decision may be: JSON, or the features of its actions as one block of numbers."""

from __future__ import annotations

from urllib.parse import parse_qsl

import msgspec
from starlette.types import Scope

from robandit.service.refused import Refused
from robandit.wire.types import Choice, ChoiceBlock

BLOCK = "application/octet-stream"
"""Type of a body that is a block of numbers. A page elsewhere can't send it without being asked about first."""
_CHOICE = msgspec.json.Decoder(Choice)
_SAID = ("decision_id", "source")  # what the query says of a block


def kind_of(scope: Scope) -> str | None:
    """The type that a body is declared to have."""
    for name, value in scope["headers"]:
        if name == b"content-type":
            return value.partition(b";")[0].strip().lower().decode("latin-1")
    return None


def read_choice(scope: Scope, body: bytes) -> Choice | ChoiceBlock:
    """Read the body of a request for a decision, and with a block the query."""
    query = scope["query_string"]
    if not query and kind_of(scope) != BLOCK:
        return _CHOICE.decode(body)
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except ValueError as error:
        raise Refused(422, f"the query can't be read: {error}") from None
    said = {name: value for name, value in pairs if name in _SAID}
    if kind_of(scope) != BLOCK:
        if said:
            raise Refused(422, f"with JSON, say `{next(iter(said))}` in the body")
        return _CHOICE.decode(body)
    if len(pairs) > len(said):
        raise Refused(422, "with a block, the query may say `decision_id` and `source`, each once")
    return msgspec.convert(said | {"features": body}, ChoiceBlock)
