"""A service that outlives its database. When that goes away, all that the process knows is thrown away, and folded
again from the log when the database is back: so a commit whose outcome nobody knows is there afterwards, whole, or not
at all, as after a restart of the process."""

from __future__ import annotations

import asyncio
import gc
import logging
import random
from collections.abc import Callable
from contextlib import suppress
from time import monotonic

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from robandit.service.hub import Hub
from robandit.service.meters import Meters
from robandit.service.refused import Refused
from robandit.service.stores.store import AwayError, DamageError, StoreError
from robandit.service.web.answers import answer, refusal
from robandit.service.web.app import Service
from robandit.service.web.keys import Keys
from robandit.service.web.notifier import Notifier
from robandit.service.web.quick import Begin
from robandit.service.web.senders import Senders

log = logging.getLogger("robandit.service")

_FIRST, _LONGEST = 0.1, 5.0
"""Seconds before the first attempt to open the store again, which double each time, and the most."""
_HEALTHY = 10.0
"""Seconds after which a store that was opened counts as back."""
_AWAY = "the database is away; ask again, with the same ids"


class Steady:
    """Serves from a store, and opens it again when it has broken; answers 503 in between.

    ``wait`` is the number of seconds in a row that the store may be away. With 0 the service ends when it breaks.
    """

    def __init__(
        self,
        open_hub: Callable[[], Hub],
        keys: Keys,
        senders: Senders,
        *,
        meters: Meters | None = None,
        notifier: Notifier | None = None,
        wait: float = 0.0,
        stop: Callable[[], None] = lambda: None,
    ) -> None:
        self._open_hub, self._keys, self._senders = open_hub, keys, senders
        self._wait, self._stop = wait, stop
        self.meters, self._notifier = meters or Meters(), notifier
        self._hub: Hub | None = None
        self._service: Service | None = None
        self.failed: str | None = None
        """The reason why it has ended, if it did not have to."""

    def begin(self) -> None:
        """Open the store, before anybody is listened to. One that is away may come later; others raise `StoreError`."""
        self._since, self._delay = monotonic(), _FIRST
        try:
            self._open()
        except AwayError as error:
            if self._wait <= 0:
                raise
            log.warning("waiting up to %g seconds for the database: %s", self._wait, error)

    def _open(self) -> None:
        self._hub = self._open_hub()
        self.meters.openings += 1

    # Serving.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif self._service is not None:
            await self._service(scope, receive, send)
        else:
            await self._answer_away(scope)(scope, receive, send)

    def accept(self, scope: Scope) -> Begin | None:
        """How to answer a request the short way, if it may be."""
        return None if self._service is None else self._service.accept(scope)

    def _answer_away(self, scope: Scope) -> Response:
        """The answer while there is no store: the process lives, its metrics can be read, and all else has to wait."""
        try:
            self._senders.check(scope)
            if scope["path"] == "/health":
                return answer({"status": "ok"})
            if scope["path"] == "/metrics":
                self._keys.check(Request(scope).headers, "read", None)
                self._keys.check_whole(Request(scope).headers)
                return PlainTextResponse("\n".join(self.meters.lines(ready=False)) + "\n")
            raise Refused(503, _AWAY)
        except Refused as error:
            return refusal(error, scope)

    # Living.

    async def _live(self, receive: Receive, send: Send) -> None:
        """Serve from the start of the server to its end."""
        await receive()
        work = asyncio.create_task(self._work())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work
        await send({"type": "lifespan.shutdown.complete"})

    async def _work(self) -> None:
        """Serve from one hub after the other."""
        try:
            while True:
                if self._hub is None:
                    await self._reopen()
                await self._serve()
        except (StoreError, OSError) as error:
            self.failed = str(error)
        except Exception as error:
            log.critical("the service stops", exc_info=error)
            self.failed = repr(error)
        self._stop()

    async def _serve(self) -> None:
        """Serve from the hub until it breaks, and throw it away."""
        hub, broken, start = self._hub, asyncio.Event(), monotonic()
        assert hub is not None
        service = Service(hub, self._keys, self._senders, stop=broken.set, meters=self.meters, notifier=self._notifier)
        try:
            async with service.running():
                self._service = service
                await broken.wait()
                self._service = None
        finally:
            self._service = self._hub = None
        if self._wait <= 0:
            raise StoreError(hub.broken or "the service has stopped")
        if monotonic() > start + _HEALTHY:
            self._since, self._delay = monotonic(), _FIRST
        log.warning("the store is opened again, for up to %g seconds: %s", self._wait, hub.broken)

    async def _reopen(self) -> None:
        """Open the store, again and again until it is there or the time is over."""
        while self._hub is None:
            await asyncio.sleep(self._delay * random.uniform(0.5, 1.0))
            self._delay = min(2.0 * self._delay, _LONGEST)
            try:
                gc.unfreeze()  # what was folded before is garbage now
                await asyncio.to_thread(self._open)
                gc.freeze()
                log.info("the store is open, and all is folded again")
            except DamageError:
                raise
            except StoreError as error:
                if monotonic() >= self._since + self._wait:
                    raise
                log.warning("the database is still away: %s", error)
