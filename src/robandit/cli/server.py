"""A web server that says where it listens, for `robandit serve` and `robandit play`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from socket import socket

    import uvicorn


def announced(words: Callable[[int], str], **config: Any) -> uvicorn.Server:
    """A server that prints some words about its port once it listens. Its application may be set later."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                print(words(self.servers[0].sockets[0].getsockname()[1]), flush=True)

    config = {"access_log": False, "proxy_headers": False, "server_header": False, "date_header": False, **config}
    return Server(uvicorn.Config("", log_config=None, **config))
