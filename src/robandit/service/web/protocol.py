"""HTTP connections with limits: on the size of a request's head, on the time that a request takes to arrive, and on the
number of connections. What is refused for them is in the service's log."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import msgspec
from starlette.types import Scope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from robandit.service.web.quick import Begin
from robandit.wire.types import Problem

log = logging.getLogger("robandit.service")

LARGEST_HEAD = 64 << 10
"""Largest number of bytes of a request before its body. A head that comes in one piece may have more."""
PATIENCE = 30.0
"""Seconds that a request may take to arrive, and that a connection may take to begin one. It can be twice that, since
one timer serves all requests of a connection."""
SPARE = 100
"""Number of descriptors that are left for files when all connections are taken."""


def most_connections() -> int:
    """Number of connections that this process may have, after it has asked for all descriptors that it can get."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 8192
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    soft = min(hard, 65_536) if hard != resource.RLIM_INFINITY else 65_536
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(soft - SPARE, soft // 2)


class ShortCycle:
    """A request that is answered without ASGI. It stands where uvicorn keeps a cycle of request and response."""

    def __init__(self, connection: Connection, begin: Begin) -> None:
        self._connection, self._begin, self._started = connection, begin, False
        self.body, self.more_body = bytearray(), True
        self.keep_alive: bool = connection.parser.should_keep_alive()
        self.message_event = _NOBODY_WAITS
        self.disconnected = self.response_started = self.response_complete = False

    def start(self) -> None:
        """All answers before this one are written."""
        self._started = True
        if not self.more_body:
            self._begin(bytes(self.body), self.write)

    def complete(self) -> None:
        """The whole request has come."""
        self.more_body = False
        if self._started:
            self._begin(bytes(self.body), self.write)

    def write(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Write the answer, unless the client has gone."""
        transport = self._connection.transport
        if self.disconnected or transport.is_closing():
            return
        self.keep_alive = self.keep_alive and (b"connection", b"close") not in headers
        lines = [STATUS_LINE[status], *(b"%s: %s\r\n" % header for header in headers if header[0] != b"connection")]
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        transport.write(b"".join((*lines, b"\r\n", body)))
        self.response_started = self.response_complete = True
        if not self.keep_alive:
            transport.close()
        self._connection.on_response_complete()


class _NobodyWaits:
    """An event on which nobody waits."""

    def set(self) -> None:
        """Do nothing."""


_NOBODY_WAITS = _NobodyWaits()


class Connection(HttpToolsProtocol):
    """A connection of uvicorn's that refuses endless heads and slow requests, and says so in JSON.

    When there are too many, the one that has kept us waiting longest is closed. A flood of connections that send
    nothing, or half a request, then closes its own.
    """

    most: ClassVar[int] = 8192
    """Largest number of connections at a time."""
    _waiting: ClassVar[dict[Connection, None]] = {}  # those that owe us a request, the longest first
    _told: ClassVar[float] = float("-inf")  # when a line about refusals was last logged
    _untold: ClassVar[int] = 0  # number of refusals since

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._heard = 0  # bytes of a head that is not complete
        self._since: float | None = self.loop.time()  # when the request that is not complete began
        self._owed = 0  # number of requests that are complete, and not yet answered
        self._last: tuple[int, str] | None = None  # the refusal that follows the answers that are owed
        self._watch = self.loop.call_later(PATIENCE, self._look)
        if len(self.connections) > self.most and self._waiting:
            oldest = next(iter(self._waiting))
            oldest._refuse(503, f"there are more than {self.most:,} connections, and this one waited longest")
        self._waiting[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch.cancel()
        self._waiting.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._last is not None or self.transport.is_closing():
            return
        self._heard += len(data)
        super().data_received(data)
        if self._heard > LARGEST_HEAD and not self.transport.is_closing():
            self._refuse(431, f"the head of a request may have up to {LARGEST_HEAD:,} bytes")

    def on_message_begin(self) -> None:
        self._since = self.loop.time()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._heard = 0
        begin = self._accept() if b"decisions" in self.url else None
        if begin is None:
            super().on_headers_complete()
            return
        before, self.cycle = self.cycle, ShortCycle(self, begin)  # type: ignore[assignment]
        if before is None or before.response_complete:
            self.cycle.start()  # type: ignore[attr-defined]
        else:  # it came before the answer to the one before it, and waits for that
            self.flow.pause_reading()
            self.pipeline.appendleft((self.cycle, self.app))

    def _accept(self) -> Begin | None:
        """How to answer the request whose head has come, if that can be done without ASGI."""
        parser, path = self.parser, self.url
        accept: Callable[[Scope], Begin | None] | None = getattr(self.app, "accept", None)
        path, _, query = path.partition(b"?")
        plain = path[:1] == b"/" and b"%" not in path and b"#" not in self.url
        if accept is None or not plain or self.flow.write_paused or parser.should_upgrade():
            return None
        if parser.get_http_version() != "1.1":
            return None
        self.scope |= {"method": parser.get_method().decode(), "path": path.decode("latin-1"), "query_string": query}
        return accept(cast(Scope, self.scope))

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        if isinstance(cycle, ShortCycle):
            cycle.start()
        else:
            super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._heard = 0
        if isinstance(self.cycle, ShortCycle):
            self.cycle.body += body
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._heard, self._since = 0, None
        if not self.cycle.response_complete:
            self._owed += 1
            self._waiting.pop(self, None)
        if isinstance(self.cycle, ShortCycle):
            self.cycle.complete()
        else:
            super().on_message_complete()

    def on_response_complete(self) -> None:
        self._owed = max(0, self._owed - 1)  # an answer may also come before the end of its request
        super().on_response_complete()
        if self._owed == 0 and not self.transport.is_closing():
            self._waiting[self] = None
            if self._last is not None:
                self._hang_up(*self._last)

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
        """Refuse the request that is coming in, once those before it are answered: they are carried out."""
        self._tell(why)
        self._waiting.pop(self, None)
        if self._owed == 0:
            self._hang_up(status, why)
            return
        self._last = status, why
        if self.pipeline and self.pipeline[0][0].more_body:  # the newest, which is not complete, must not begin
            self.pipeline.popleft()

    def _hang_up(self, status: int, why: str) -> None:
        """Answer with an error, unless another answer has begun, and close."""
        if self.cycle is None or self.cycle.response_complete or not self.cycle.response_started:
            body = msgspec.json.encode(Problem(error=why))
            head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + body)
        self.transport.close()

    def _tell(self, why: str) -> None:
        """Log a refusal, in at most one line a second."""
        Connection._untold += 1
        if self.loop.time() >= Connection._told + 1.0:
            log.warning("refused on %d connections, the last because %s", Connection._untold, why)
            Connection._told, Connection._untold = self.loop.time(), 0
