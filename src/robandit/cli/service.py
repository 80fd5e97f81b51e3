"""Serve decisions: `robandit serve` and `robandit key`."""

from __future__ import annotations

import gc
import json
import sys
from argparse import ArgumentParser, Namespace
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from robandit.cli.command import Command
from robandit.errors import ConfigError
from robandit.files import write_file

if TYPE_CHECKING:
    from socket import socket

    import uvicorn

    from robandit.service.looker import Looker

# serve

_SERVE = """\
Serve decisions over HTTP: which of these should I show, and what came of it.
Every decision and every reward is on the disk before it is answered, and
counts once.

  curl -X PUT  localhost:8000/v1/bandits/shop -d '{"dim": 2}'
  curl -X POST localhost:8000/v1/bandits/shop/decisions -d '{"actions":
       [{"id": "a", "features": [1, 0]}, {"id": "b", "features": [0, 1]}]}'
  curl -X POST localhost:8000/v1/bandits/shop/rewards \\
       -d '{"decision_id": "…", "reward": 1}'

Without keys it listens on this machine alone. See docs/service.md."""


def _serve_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        default="robandit.db",
        metavar="FILE|URL",
        help="Keep everything in this file, or in the database postgresql://USER@HOST/DATABASE, which several "
        "services may share (default %(default)s).",
    )
    parser.add_argument("--host", default="127.0.0.1", help="Listen on this address (default %(default)s).")
    parser.add_argument(
        "--port", type=int, default=8000, help="Listen on this port; 0 takes any that is free (default %(default)s)."
    )
    parser.add_argument(
        "--keys", type=Path, metavar="FILE", help="Read from this file who may do what; `robandit key` writes it."
    )
    parser.add_argument(
        "--rate", type=float, default=20_000.0, help="Allow each key this many requests a second (default %(default)g)."
    )


def _serve(options: Namespace) -> None:
    from robandit.service import log_lines
    from robandit.service.app import Service
    from robandit.service.hub import Hub
    from robandit.service.keys import Keys
    from robandit.service.looker import Looker
    from robandit.service.stores import StoreError, open_store

    keys = Keys.read(options.keys, rate=options.rate) if options.keys else Keys([])
    if not keys and not _is_loopback(options.host):
        raise ConfigError(f"listening on {options.host} needs --keys: anyone could decide and reward there")
    log_lines.start()
    looker = Looker()
    try:
        hub = Hub(open_store(options.store), look=looker)
    except StoreError as error:
        raise ConfigError(str(error)) from None
    server = _server(options)
    server.config.app = Service(hub, keys, stop=partial(setattr, server, "should_exit", True))
    _run(server, looker)
    if hub.broken is not None:
        raise OSError(f"stopped, since it can't write: {hub.broken}")


def _run(server: uvicorn.Server, looker: Looker) -> None:
    """Serve until the server is stopped."""
    gc.freeze()  # what is there now stays there, and need not be looked through for garbage again and again
    gc.set_threshold(20_000, 20, 20)
    try:
        server.run()
    except KeyboardInterrupt:  # the server has stopped in order
        pass
    finally:
        looker.stop()


def _server(options: Namespace) -> uvicorn.Server:
    """A server that says where it listens; its application is still to be set."""
    import uvicorn

    from robandit.service.protocol import Connection

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                port = self.servers[0].sockets[0].getsockname()[1]
                print(
                    f"The dashboard is at http://{options.host}:{port}/, all calls at /docs. Ctrl-C stops.", flush=True
                )

    return Server(
        uvicorn.Config(
            "",
            http=Connection,
            host=options.host,
            port=options.port,
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
        )
    )


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


SERVE = Command("serve", "Serve decisions over HTTP, and learn from rewards.", _SERVE, _serve_options, _serve, "serve")

# key


def _key_options(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="The name of whoever gets the key.")
    about = "What the key may do: decide, reward, or admin, which may do everything."
    parser.add_argument("role", choices=("decide", "reward", "admin"), metavar="role", help=about)
    parser.add_argument(
        "--keys",
        type=Path,
        default=Path("keys.json"),
        metavar="FILE",
        help="Add the key's hash to this file (default %(default)s).",
    )


def _key(options: Namespace) -> None:
    from robandit.service.keys import Keys, new_key

    entries = []
    if options.keys.exists():
        Keys.read(options.keys)  # or say what is wrong with it
        entries = json.loads(options.keys.read_text(encoding="utf-8"))
    if any(entry["name"] == options.name for entry in entries):
        raise ConfigError(f"{options.keys} has a key named {options.name!r} already; choose another name")
    secret, entry = new_key(options.name, options.role)
    write_file(options.keys, (json.dumps([*entries, entry], indent=1) + "\n").encode())
    options.keys.chmod(0o600)
    print(secret)
    print(f"This is the only time that it is shown; {options.keys} holds its hash.", file=sys.stderr)


KEY = Command(
    "key",
    "Make an API key for a service.",
    "Make an API key, show it once, and add its hash to the file of keys that\n`robandit serve --keys` reads.",
    _key_options,
    _key,
    extra=None,
)
