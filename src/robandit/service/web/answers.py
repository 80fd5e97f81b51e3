"""Answers to requests: what was asked for, or why it was refused."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from robandit.service.refused import Refused
from robandit.wire.types import Problem

log = logging.getLogger("robandit.service")

LARGEST_BODY = 4 << 20
"""Largest number of bytes of a request."""
ENCODE = msgspec.json.Encoder().encode
_HEADERS = {
    401: {"WWW-Authenticate": "Bearer"},
    413: {"Connection": "close"},
    429: {"Retry-After": "1"},
    503: {"Retry-After": "1"},
}


class _TooLarge(Response):
    """Answers while the request still comes in, and reads on for a while: a client that is cut off would not read the
    answer."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        heard, more = 0, True
        with suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while more and heard < 16 * LARGEST_BODY:
                    message = await receive()
                    heard, more = heard + len(message.get("body", b"")), message.get("more_body", False)
        await send({"type": "http.response.body", "body": b""})


def answer(value: Any, status: int = 200) -> Response:
    """An answer in JSON."""
    kind = _TooLarge if status == 413 else Response
    return kind(ENCODE(value), status, _HEADERS.get(status), media_type="application/json")


def refusal(error: Exception, scope: Scope) -> Response:
    """The answer to a request that failed. What is the service's own fault goes into its own log."""
    if isinstance(error, Refused):
        return answer(Problem(error=str(error)), error.status)
    if isinstance(error, msgspec.ValidationError):
        return answer(Problem(error=str(error)), 422)
    if isinstance(error, (msgspec.DecodeError, UnicodeDecodeError)):
        return answer(Problem(error=f"this is not JSON in UTF-8: {error}"), 400)
    if isinstance(error, RecursionError):
        return answer(Problem(error="this is nested too deeply"), 400)
    if isinstance(error, ClientDisconnect):
        return answer(Problem(error="the request ended too early"), 400)
    log.error("a request to %s failed", scope["path"], exc_info=error)
    return answer(Problem(error="something went wrong here; it is in the service's log"), 500)
