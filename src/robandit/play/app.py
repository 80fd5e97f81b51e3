"""The server of the game: one page, a few games, and answers that say what is wrong."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from secrets import token_hex
from typing import Any, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from robandit.play.found import Found, Hall, attack_file, run_file
from robandit.play.game import Game, Lie
from robandit.play.messages import Back, Turn, Wanted, attempts, opened, places, scene_of
from robandit.play.worlds import PlayWorld
from robandit.service.refused import Refused
from robandit.service.web.answers import answer, refusal
from robandit.service.web.pages import page
from robandit.service.web.senders import Senders, require_type

MOST_GAMES = 4
"""How many games there are at a time. A new one takes the place of the one that was asked for least lately."""
_LARGEST = 4096  # bytes of a request

T = TypeVar("T", bound=msgspec.Struct)


class Seat(msgspec.Struct):
    """A game that is being played, and its world's name. One request at a time may change it."""

    name: str
    game: Game
    turn: asyncio.Lock


class Play:
    """Games behind HTTP, as an ASGI application."""

    def __init__(self, worlds: dict[str, PlayWorld]) -> None:
        self._worlds, self._senders, self.hall = worlds, Senders(), Hall()
        self.seats: OrderedDict[str, Seat] = OrderedDict()
        self._app = self._routes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            try:
                self._senders.check(scope)
            except Refused as error:
                if error.status == 421:
                    error = Refused(421, "this page is for the machine that it runs on; open it by the printed address")
                await refusal(error, scope)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _routes(self) -> Starlette:
        routes = [
            Route("/", _guard(self._page), methods=["GET"]),
            Route("/v1/worlds", _guard(self._list), methods=["GET"]),
            Route("/v1/games", _guard(self._begin), methods=["POST"]),
            Route("/v1/games/{id}", _guard(self._see), methods=["GET"]),
            Route("/v1/games/{id}/play", _guard(self._play), methods=["POST"]),
            Route("/v1/games/{id}/rewind", _guard(self._rewind), methods=["POST"]),
            Route("/v1/games/{id}/keep", _guard(self._keep), methods=["POST"]),
            Route("/v1/found", _guard(self._found), methods=["GET"]),
            Route("/found-{number:int}.toml", _guard(self._run_file), methods=["GET"]),
            Route("/found_{number:int}.py", _guard(self._attack_file), methods=["GET"]),
        ]
        app = Starlette(routes=routes, exception_handlers={HTTPException: _nothing})
        app.router.redirect_slashes = False
        return app

    # The calls.

    async def _page(self, request: Request) -> Response:
        return page(html())

    async def _list(self, request: Request) -> Response:
        return answer(places(self._worlds))

    async def _begin(self, request: Request) -> Response:
        wanted = await _read(request, Wanted)
        if wanted.world not in self._worlds:
            raise Refused(422, f"there is no world {wanted.world!r}; there are {', '.join(self._worlds)}")
        game = await asyncio.to_thread(Game, self._worlds[wanted.world], seed=wanted.seed, budget=wanted.budget)
        id_ = token_hex(8)
        self.seats[id_] = Seat(wanted.world, game, asyncio.Lock())
        while len(self.seats) > MOST_GAMES:
            self.seats.popitem(last=False)
        return answer(opened(id_, wanted.world, game), 201)

    async def _see(self, request: Request) -> Response:
        seat = self._seat(request)
        async with seat.turn:
            return answer(opened(request.path_params["id"], seat.name, seat.game))

    async def _play(self, request: Request) -> Response:
        wanted, seat = await _read(request, Turn), self._seat(request)
        lie = None if wanted.lie is None else Lie(wanted.lie.kind, wanted.lie.source)
        async with seat.turn:
            game = seat.game
            if wanted.round != game.round:
                raise Refused(409, f"this game is in round {game.round}, not {wanted.round}; ask for it again")
            sources = len(game.environment.shares)
            if lie is not None and lie.source is not None and lie.source >= sources:
                raise Refused(422, f"source must be below the number of sources, {sources}, got {lie.source}")
            await asyncio.to_thread(game.play, wanted.rounds, lie)  # beside the loop, so that others are answered
            scene = scene_of(game, wanted.round)
            if game.round == game.rounds:
                self.hall.note(seat.name, game)
        return answer(scene)

    async def _rewind(self, request: Request) -> Response:
        wanted, seat = await _read(request, Back), self._seat(request)
        async with seat.turn:
            game = seat.game
            if wanted.round > game.round:
                raise Refused(409, f"this game is in round {game.round}, and can't go back to {wanted.round}")
            self.hall.note(seat.name, game)
            await asyncio.to_thread(game.rewind, wanted.round)
            scene = scene_of(game)
        return answer(scene)

    async def _keep(self, request: Request) -> Response:
        require_type(request.scope)
        seat = self._seat(request)
        async with seat.turn:
            if self.hall.note(seat.name, seat.game) is None:
                raise Refused(409, "nobody has lied in this game, so there is nothing to keep")
        return answer(attempts(self.hall))

    async def _found(self, request: Request) -> Response:
        return answer(attempts(self.hall))

    async def _run_file(self, request: Request) -> Response:
        found = self._attack(request)
        return _download(f"found-{found.number}.toml", run_file(found, self._worlds[found.world]))

    async def _attack_file(self, request: Request) -> Response:
        found = self._attack(request)
        return _download(f"found_{found.number}.py", attack_file(found, self._worlds[found.world]))

    def _seat(self, request: Request) -> Seat:
        id_ = request.path_params["id"]
        if id_ not in self.seats:
            raise Refused(404, f"there is no game {id_[:40]!r} any more; begin a new one")
        self.seats.move_to_end(id_)
        return self.seats[id_]

    def _attack(self, request: Request) -> Found:
        number = request.path_params["number"]
        found = self.hall.number(number)
        if found is None:
            raise Refused(404, f"attack {number} is not kept any more")
        return found


@cache
def html() -> str:
    """The page, as it lies in the package."""
    return (files("robandit.play") / "page.html").read_text(encoding="utf-8")


async def _read(request: Request, kind: type[T]) -> T:
    """Read the body of a request, which must be JSON of this type and short."""
    require_type(request.scope)
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST:
            raise Refused(413, f"a request may have up to {_LARGEST:,} bytes")
    return msgspec.json.decode(body, type=kind)


def _guard(handle: Callable[[Request], Any]) -> Callable[[Request], Any]:
    """Answer errors. What went wrong inside is told to nobody."""

    async def guarded(request: Request) -> Response:
        try:
            return await handle(request)
        except Exception as error:
            return refusal(error, request.scope)

    return guarded


def _download(name: str, text: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"', "X-Content-Type-Options": "nosniff"}
    return Response(text, headers=headers, media_type="text/plain; charset=utf-8")


async def _nothing(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal(Refused(error.status_code, f"{request.method} {request.scope['path']} is not here"), request.scope)
