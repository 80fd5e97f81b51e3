"""The service's HTTP side: routes, limits, and answers that say what is wrong."""

from __future__ import annotations

import asyncio
import gc
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from robandit.errors import install
from robandit.service.hub import Hub
from robandit.service.meters import Meters
from robandit.service.refused import Refused
from robandit.service.requests.choices import read_choice
from robandit.service.requests.openapi import openapi
from robandit.service.requests.settling import settled
from robandit.service.web.answers import ENCODE, LARGEST_BODY, answer, refusal
from robandit.service.web.backup import Backups
from robandit.service.web.download import Download
from robandit.service.web.keys import Keys
from robandit.service.web.notifier import Notifier
from robandit.service.web.pages import routes as pages
from robandit.service.web.quick import Quick
from robandit.service.web.senders import Senders, require_type
from robandit.wire.activity import RANGES
from robandit.wire.alarms import Acknowledgement
from robandit.wire.changes import Change, ChangeWaits
from robandit.wire.cuts import CutWaits, CutWanted
from robandit.wire.events import as_line
from robandit.wire.forgetting import ForgetWaits, ForgetWanted
from robandit.wire.imports import History
from robandit.wire.types import NAME, Batch, Chosen, Creation, Feedback, ManyAnswered, ManyChoices, Outcomes, Problem

log = logging.getLogger("robandit.service")

_SIZE = f"a request may have up to {LARGEST_BODY:,} bytes"


class Service:
    """A hub behind HTTP, as an ASGI application.

    Nearly all requests are for decisions and rewards. They are answered here, since Starlette would take twice as long;
    Starlette answers the rest. A connection of `protocol` answers most decisions without asking here, by ``accept``.
    """

    def __init__(
        self,
        hub: Hub,
        keys: Keys,
        senders: Senders | None = None,
        *,
        stop: Callable[[], None] = lambda: None,
        meters: Meters | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self._meters, self._notifier = meters or Meters(), notifier or Notifier([])
        self.hub, self._keys, self._senders, self._stop = hub, keys, senders or Senders(), stop
        self.accept = Quick(hub, keys, self._senders).accept
        """How a connection answers a request the short way, if it may."""
        self._often: dict[str, tuple[str, Callable[[str, Scope, bytes], Awaitable[Any]]]] = {
            "decisions": ("decide", self._decide),
            "decisions/batch": ("decide", self._decide_many),
            "rewards": ("reward", self._reward),
        }
        self._rest = self._app()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._senders.check(scope)
            except Refused as error:
                await refusal(error, scope)(scope, receive, send)
                return
            match scope["path"].split("/"):
                case ["", "v1", "bandits", name, *rest] if "/".join(rest) in self._often and scope["method"] == "POST":
                    await self._answer_often(name, "/".join(rest), scope, receive, send)
                    return
        await self._rest(scope, receive, send)

    async def _answer_often(
        self,
        name: str,
        what: str,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        role, handle = self._often[what]
        try:
            self._keys.check(Headers(scope=scope), role, name)
            body = ENCODE(await handle(name, scope, await _body(scope, receive, block=what == "decisions")))
        except Exception as error:
            await refusal(error, scope)(scope, receive, send)
            return
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _app(self) -> Starlette:
        calls = {
            "PUT": self._guard("admin", self._create),
            "PATCH": self._guard("admin", self._change),
            "DELETE": self._guard("admin", self._delete),
        }
        see = self._guard("read", self._status)

        async def bandit(request: Request) -> Response:
            return await calls.get(request.method, see)(request)

        routes = [
            Route("/v1/bandits", self._guard("read", self._list), methods=["GET"]),
            Route("/v1/bandits/{name}", bandit, methods=["GET", *calls]),
            *(Route(f"/v1/bandits/{{name}}/{what}", _elsewhere, methods=["POST"]) for what in self._often),
            *self._about_one(),
            Route("/v1/backup", self._guard("admin", Backups(self.hub, self._keys).answer), methods=["GET"]),
            Route("/v1/service", self._guard("read", self._own), methods=["GET"]),
            Route("/metrics", self._guard("read", self._metrics), methods=["GET"]),
            Route("/openapi.json", self._openapi, methods=["GET"]),
            Route("/health", self._health, methods=["GET"]),
            Route("/ready", self._ready, methods=["GET"]),
            *pages(),
        ]
        app = Starlette(
            routes=routes, lifespan=lambda app: self.running(), exception_handlers={HTTPException: _no_such_call}
        )
        app.router.redirect_slashes = False  # it would send people wherever their Host header says
        return app

    def _about_one(self) -> list[Route]:
        """The routes for what is under the name of a bandit, but for decisions and rewards."""
        calls = [
            ("imports", "admin", self._import, "POST"),
            ("cuts", "admin", self._cut, "POST"),
            ("forget", "admin", self._forget, "POST"),
            ("acknowledgements", "admin", self._acknowledge, "POST"),
            ("activity", "read", self._activity, "GET"),
            ("log", "read", self._log, "GET"),
        ]
        return [
            Route(f"/v1/bandits/{{name}}/{path}", self._guard(role, call), methods=[method])
            for path, role, call, method in calls
        ]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve the queues and do what is to be done every second. At the end the store is closed."""
        work = asyncio.create_task(self.hub.work())
        work.add_done_callback(lambda task: self._stop())
        ticks = [asyncio.create_task(self._tick(do)) for do in self._chores()]
        ticks.append(asyncio.create_task(self._notifier.work(self.hub)))
        try:
            yield
        finally:
            for task in (*ticks, work):
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task
            await asyncio.to_thread(self.hub.stop)  # which may wait for a database

    def _chores(self) -> Sequence[Callable[[], Awaitable[None]]]:
        hub = self.hub
        return hub.place, hub.close_windows, hub.look, hub.purge, hub.retain, self._refresh

    async def _tick(self, do: Callable[[], Awaitable[None]]) -> None:
        """Do this once a second, even after it has failed."""
        while True:
            await asyncio.sleep(1.0)
            try:
                await do()
            except Refused:  # the service is stopping
                pass
            except Exception:
                log.exception("%s failed, and is tried again", do.__name__)

    async def _refresh(self) -> None:
        await asyncio.to_thread(self._keys.refresh)

    def _guard(self, role: str, handle: Callable[[Request], Any]) -> Callable[[Request], Any]:
        """Check the key, and answer errors. What went wrong inside is told to nobody."""

        async def guarded(request: Request) -> Response:
            try:
                self._keys.check(request.headers, role, request.path_params.get("name"))
                return await handle(request)
            except Exception as error:
                return refusal(error, request.scope)

        return guarded

    # The calls.

    async def _create(self, request: Request) -> Response:
        name = request.path_params["name"]
        if not re.fullmatch(NAME, name):
            raise Refused(
                422, "a bandit's name has up to 64 letters, digits, '.', '_' and '-', and begins with no sign"
            )
        plain = await _object(request)
        wanted = msgspec.convert(plain, Creation)
        given = [name for name, value in plain.items() if value is not None and name != "seed"]
        try:
            settings = settled(wanted, given)
        except ValueError as error:
            raise Refused(422, str(error)) from None
        new = await self.hub.create(name, settings, wanted.seed, given)
        if new:
            gc.freeze()  # it stays: a search for garbage in 10 000 bandits holds everybody up for 190 ms
        return answer(self.hub.status(name), 201 if new else 200)

    async def _change(self, request: Request) -> Response:
        wanted = msgspec.convert(await _object(request), Change)
        found = await self.hub.change(request.path_params["name"], wanted)
        return answer(found, 202 if isinstance(found, ChangeWaits) else 200)

    async def _delete(self, request: Request) -> Response:
        given = request.query_params.get("version", "")
        if not re.fullmatch(r"[1-9]\d{0,15}", given):
            raise Refused(422, f"say ?version= with the version of the settings that you saw, got {given!r}")
        return answer(await self.hub.delete(request.path_params["name"], int(given)))

    async def _import(self, request: Request) -> Response:
        rows = _HISTORY.decode(await _body(request.scope, request.receive))
        return answer(await self.hub.learn_history(request.path_params["name"], rows))

    async def _cut(self, request: Request) -> Response:
        wanted = msgspec.json.decode(await _body(request.scope, request.receive), type=CutWanted)
        found = await self.hub.cut(request.path_params["name"], wanted.keep_days)
        return answer(found, 202 if isinstance(found, CutWaits) else 200)

    async def _forget(self, request: Request) -> Response:
        wanted = msgspec.json.decode(await _body(request.scope, request.receive), type=ForgetWanted)
        found = await self.hub.forget(request.path_params["name"], wanted.decision_ids)
        return answer(found, 202 if isinstance(found, ForgetWaits) else 200)

    async def _acknowledge(self, request: Request) -> Response:
        wanted = _ACKNOWLEDGEMENT.decode(await _body(request.scope, request.receive))
        key = self._keys.find(request.headers) if self._keys.required else None
        return answer(await self.hub.acknowledge(request.path_params["name"], wanted, key and key.name))

    async def _activity(self, request: Request) -> Response:
        name, scale = request.path_params["name"], request.query_params.get("range", RANGES[1])
        if scale not in RANGES:
            raise Refused(422, f"range must be one of {', '.join(RANGES)}, got {scale!r}")
        await self.hub.catch_up(name)
        return answer(self.hub.activity(name, scale))

    async def _decide(self, name: str, scope: Scope, body: bytes) -> Chosen:
        return await self.hub.decide(name, read_choice(scope, body))

    async def _decide_many(self, name: str, scope: Scope, body: bytes) -> ManyAnswered:
        return ManyAnswered(results=await self.hub.decide_many(name, _MANY.decode(body)))

    async def _reward(self, name: str, scope: Scope, body: bytes) -> Outcomes:
        given = _FEEDBACK.decode(body)
        return Outcomes(results=await self.hub.reward(name, given if isinstance(given, list) else [given]))

    async def _status(self, request: Request) -> Response:
        await self.hub.catch_up(request.path_params["name"])
        return answer(self.hub.status(request.path_params["name"]))

    async def _list(self, request: Request) -> Response:
        await self.hub.catch_up()
        return answer(self._keys.seen(request.headers, sorted(self.hub.bandits)))

    async def _log(self, request: Request) -> Response:
        name, form = request.path_params["name"], request.query_params.get("format", "ndjson")
        await self.hub.catch_up(name)
        if form == "parquet":
            return await self._parquet(request, name)
        if form != "ndjson":
            raise Refused(422, f"format must be ndjson or parquet, got {form!r}")
        pages = self.hub.log(name)  # which refuses before the answer begins
        lines = (b"\n".join(map(as_line, page)) + b"\n" async for page in pages)
        return StreamingResponse(lines, media_type="application/x-ndjson")

    async def _parquet(self, request: Request, name: str) -> Response:
        try:
            from robandit.service.files.export import as_parquet
        except ImportError as error:
            message = f"the log as Parquet needs {error.name} where the service runs: {install('lab')}"
            raise Refused(501, message) from None
        begins = self.hub.begins(name)  # it is read twice
        file = await as_parquet(name, lambda: self.hub.log(name, begins), request.is_disconnected)
        if file is None:
            raise ClientDisconnect
        return Download(file, f"{name}.parquet", "application/vnd.apache.parquet")

    async def _metrics(self, request: Request) -> Response:
        await self.hub.catch_up()
        lines: list[str] = []
        if self._keys.sees_all(request.headers):
            lines += [*self._meters.lines(ready=self.hub.broken is None), *self.hub.gauges()]
            lines += self._notifier.lines()
        for number, line in enumerate(self.hub.metrics(self._keys.seen(request.headers, self.hub.bandits))):
            lines.append(line)
            if number % 500 == 0:  # there may be thousands: others have their turn
                await asyncio.sleep(0)
        return Response("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    async def _own(self, request: Request) -> Response:
        self._keys.check_whole(request.headers)
        return answer(self._meters.report())

    async def _openapi(self, request: Request) -> Response:
        return answer(openapi(keys=self._keys.required))

    async def _health(self, request: Request) -> Response:
        return answer({"status": "ok"})  # whoever reads this knows that the process lives

    async def _ready(self, request: Request) -> Response:
        if self.hub.broken is not None:
            return answer(Problem(error="the service can't write now"), 503)
        return answer({"status": "ok"})


_FEEDBACK = msgspec.json.Decoder(Feedback | Batch)
_ACKNOWLEDGEMENT = msgspec.json.Decoder(Acknowledgement)
_HISTORY = msgspec.json.Decoder(History)
_MANY = msgspec.json.Decoder(ManyChoices)


async def _body(scope: Scope, receive: Receive, *, block: bool = False) -> bytes:
    """Read the body. One of another type or too large is refused, before it is read where its head says so."""
    require_type(scope, block=block)
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > LARGEST_BODY:
            raise Refused(413, _SIZE)
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part = message.get("body", b"")
        parts.append(part)
        size, more = size + len(part), message.get("more_body", False)
        if size > LARGEST_BODY:
            raise Refused(413, _SIZE)
    return b"".join(parts) if len(parts) > 1 else parts[0]


async def _object(request: Request) -> dict[str, Any]:
    """Read a body that is an object. 1e6 is an integer, by JSON Schema as by common sense."""
    plain = msgspec.json.decode(await _body(request.scope, request.receive), type=dict[str, Any])
    return {k: int(v) if isinstance(v, float) and v.is_integer() else v for k, v in plain.items()}


async def _elsewhere(request: Request) -> Response:
    """Answer 404. `Service` serves these paths itself; the routes are for other methods, and names with a newline."""
    raise HTTPException(404)


async def _no_such_call(request: Request, error: Exception) -> Response:
    """Say which method a path has, or that there is no such path."""
    assert isinstance(error, HTTPException)
    path, allowed = request.scope["path"], (error.headers or {}).get("Allow", "")
    why = f"{request.method} is not for {path}; {allowed} is" if allowed else f"there is nothing at {path}"
    found = answer(Problem(error=why), error.status_code)
    found.headers.update(error.headers or {})
    return found
