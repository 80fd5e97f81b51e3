"""HTTP connections with limits on the size of a request's head and on the time that a request takes to arrive."""

from __future__ import annotations

import asyncio

import msgspec
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from robandit.wire.types import Problem

LARGEST_HEAD = 64 << 10
"""Largest number of bytes of a request before its body. A head that comes in one piece may have more."""
PATIENCE = 30.0
"""Seconds that a request may take to arrive, and that a connection may take to begin one. It can be twice that, since
one timer serves all requests of a connection."""


class Connection(HttpToolsProtocol):
    """A connection of uvicorn's that refuses endless heads and slow requests, and says so in JSON."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._heard = 0  # bytes of a head that is not complete
        self._since: float | None = self.loop.time()  # when the request that is not complete began
        self._watch = self.loop.call_later(PATIENCE, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._heard += len(data)
        super().data_received(data)
        if self._heard > LARGEST_HEAD and not self.transport.is_closing():
            self._refuse(431, f"the head of a request may have up to {LARGEST_HEAD:,} bytes")

    def on_message_begin(self) -> None:
        self._since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._heard = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._heard = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._heard, self._since = 0, None
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not HTTP/1.1")

    def _look(self) -> None:
        """Refuse a request that takes too long. A timer for each request would cost more than this one."""
        if self.transport.is_closing():
            return
        if self._since is not None and self.loop.time() >= self._since + PATIENCE:
            self._refuse(408, f"a request may take up to {PATIENCE:g} seconds to arrive")
        else:
            self._watch = self.loop.call_later(PATIENCE, self._look)

    def _refuse(self, status: int, why: str) -> None:
        """Answer with an error, unless another answer has begun, and hang up."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = msgspec.json.encode(Problem(error=why))
            head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()
