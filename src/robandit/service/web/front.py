"""The outermost part of the service: it measures every request, and tells the access log."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from time import perf_counter
from typing import Protocol

from starlette.types import Message, Receive, Scope, Send

from robandit.service.meters import Meters, call_of
from robandit.service.web.access_log import AccessLog
from robandit.service.web.quick import Begin, WriteAnswer


class Inner(Protocol):
    """What stands behind the front: an ASGI application that answers some requests the short way."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def accept(self, scope: Scope) -> Begin | None:
        """How to answer a request the short way, if it may be."""
        ...


class Front:
    """Hands requests on, and notes when and how each was answered. What a connection refuses does not come here."""

    def __init__(self, inner: Inner, meters: Meters, access: AccessLog | None = None) -> None:
        self._inner, self._meters, self._access = inner, meters, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, partial(self._end, send))
            return
        start, status = perf_counter(), 500
        name = None if self._access is None else self._access.id_of(scope)

        async def told(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if name is not None:
                    message["headers"] = [*message.get("headers", ()), (b"x-request-id", name.encode())]
            await send(message)

        try:
            await self._inner(scope, receive, told)
        finally:
            self._note(scope, name, status, start)

    async def _end(self, send: Send, message: Message) -> None:
        """Write the last lines before the server ends the process."""
        if self._access is not None and message["type"] == "lifespan.shutdown.complete":
            await asyncio.to_thread(self._access.stop)
        await send(message)

    def accept(self, scope: Scope) -> Begin | None:
        """How to answer a request the short way, if it may be."""
        begin = self._inner.accept(scope)
        return None if begin is None else partial(self._begin, scope, begin)

    def _begin(self, scope: Scope, begin: Begin, body: bytes, write: WriteAnswer) -> None:
        name = None if self._access is None else self._access.id_of(scope)
        begin(body, partial(self._write, scope, name, write, perf_counter()))

    def _write(
        self,
        scope: Scope,
        name: str | None,
        write: WriteAnswer,
        start: float,
        status: int,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes,
    ) -> None:
        write(status, headers if name is None else [*headers, (b"x-request-id", name.encode())], body)
        self._note(scope, name, status, start)

    def _note(self, scope: Scope, name: str | None, status: int, start: float) -> None:
        seconds = perf_counter() - start
        self._meters.note(call_of(scope["method"], scope["path"])[0], status, seconds)
        if self._access is not None and name is not None:
            self._access.note(scope, name, status, seconds)
