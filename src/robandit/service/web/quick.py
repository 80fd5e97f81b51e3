"""Decisions the short way: the connection hands the body over, and writes the answer as soon as it is safe.

Nearly all requests are for decisions, and a task with a Starlette or ASGI conversation would take as long as the rest.
A request that is anything but plain goes the long way, through `app.Service`, which also words what is refused for its
head.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from starlette.datastructures import Headers
from starlette.types import Scope

from robandit.service.hub import Hub
from robandit.service.refused import Refused
from robandit.service.requests.choices import read_choice
from robandit.service.web.answers import ENCODE, LARGEST_BODY, refusal
from robandit.service.web.keys import Key, Keys
from robandit.service.web.senders import Senders, require_type
from robandit.wire.types import NAME

WriteAnswer: TypeAlias = Callable[[int, Sequence[tuple[bytes, bytes]], bytes], None]
"""Takes an answer: its status, headers and body."""
Begin: TypeAlias = Callable[[bytes, WriteAnswer], None]
"""Begins to answer a request, whose body it takes."""

_PATH = re.compile(f"/v1/bandits/({NAME})/decisions")


class Quick:
    """Accepts requests for decisions by their heads, and answers them."""

    def __init__(self, hub: Hub, keys: Keys, senders: Senders) -> None:
        self._hub, self._keys, self._senders = hub, keys, senders

    def accept(self, scope: Scope) -> Begin | None:
        """How to answer this request, or None if it has to go the long way. Nothing has been counted or changed."""
        found = _PATH.fullmatch(scope["path"])
        if found is None or scope["method"] != "POST":
            return None
        length = -1
        for name, value in scope["headers"]:
            if name == b"content-length":
                length = int(value)
            elif name in (b"expect", b"transfer-encoding"):
                return None
        if not 0 <= length <= LARGEST_BODY:
            return None
        try:
            self._senders.check(scope)
            require_type(scope, block=True)
            key = self._keys.allowed(Headers(scope=scope), "decide", found[1]) if self._keys.required else None
        except Refused:
            return None
        return partial(self._decide, scope, found[1], key)

    def _decide(self, scope: Scope, name: str, key: Key | None, body: bytes, write: WriteAnswer) -> None:
        try:
            if key is not None:
                self._keys.count(key)
            choice = read_choice(scope, body)
        except Exception as error:
            _answer(scope, write, error)
        else:
            self._hub.decide_soon(name, choice, partial(_answer, scope, write))


def _answer(scope: Scope, write: WriteAnswer, result: Any) -> None:
    """Write the answer to a request."""
    if isinstance(result, Exception):
        response = refusal(result, scope)
        write(response.status_code, response.raw_headers, bytes(response.body))
    else:
        body = ENCODE(result)
        write(200, ((b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))), body)
