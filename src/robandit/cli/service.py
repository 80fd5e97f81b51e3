"""`robandit serve` and `robandit key`."""

from __future__ import annotations

import argparse
import gc
import json
import sys
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robandit.errors import ConfigError
from robandit.files import write_file

if TYPE_CHECKING:
    from socket import socket

    import uvicorn

    from robandit.service.stores.store import Store

_SERVE = """\
Serve decisions over HTTP: which of these should I show, and what came of it. Every decision and every reward is on the
disk before it is answered, and counts once.

  curl -X PUT  localhost:8000/v1/bandits/shop -d '{"dim": 2}'
  curl -X POST localhost:8000/v1/bandits/shop/decisions \\
       -d '{"actions": [{"id": "a", "features": [1, 0]}, {"id": "b", "features": [0, 1]}]}'
  curl -X POST localhost:8000/v1/bandits/shop/rewards -d '{"decision_id": "…", "reward": 1}'

Without keys it listens on this machine alone. See docs/service.md."""


def add_commands(commands: Any) -> None:
    """Add them to a parser's subcommands."""
    raw = argparse.RawDescriptionHelpFormatter
    serve = commands.add_parser("serve", help="serve decisions over HTTP", description=_SERVE, formatter_class=raw)
    serve.add_argument(
        "--store",
        default="robandit.db",
        metavar="FILE|URL",
        help="where all is kept: a file, or postgresql://USER@HOST/DATABASE, which several services may share "
        "(default %(default)s)",
    )
    serve.add_argument("--host", default="127.0.0.1", help="the address to listen on (default %(default)s)")
    serve.add_argument("--port", type=int, default=8000, help="(default %(default)s; 0 for any that is free)")
    serve.add_argument("--keys", type=Path, metavar="FILE", help="who may do what; see `robandit key`")
    serve.add_argument(
        "--rate", type=float, default=20_000.0, help="requests a second with one key (default %(default)g)"
    )
    serve.set_defaults(call=_serve, extra="serve")
    key = commands.add_parser("key", help="make an API key", description=_key.__doc__)
    key.add_argument("name", help="whose it is")
    key.add_argument("role", choices=("decide", "reward", "admin"), help="what it may do; an admin may do everything")
    key.add_argument("--keys", type=Path, default=Path("keys.json"), metavar="FILE", help="(default %(default)s)")
    key.set_defaults(call=_key, extra=None)


def _key(options: argparse.Namespace) -> None:
    """Make an API key, show it once, and add its hash to the file of keys that `robandit serve --keys` reads."""
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


def _serve(options: argparse.Namespace) -> None:
    from robandit.service import log_lines as logs
    from robandit.service.app import Service
    from robandit.service.hub import Hub
    from robandit.service.keys import Keys
    from robandit.service.looker import Looker
    from robandit.service.stores.store import StoreError

    keys = Keys.read(options.keys, rate=options.rate) if options.keys else Keys([])
    if not keys and not _is_loopback(options.host):
        raise ConfigError(f"listening on {options.host} needs --keys: anyone could decide and reward there")
    logs.start()
    looker = Looker()
    try:
        hub = Hub(_open(options.store), look=looker)
    except StoreError as error:
        raise ConfigError(str(error)) from None
    server = _server(options)

    def stop() -> None:
        server.should_exit = True

    gc.freeze()  # what is there now stays there, and need not be looked through for garbage again and again
    gc.set_threshold(20_000, 20, 20)
    server.config.app = Service(hub, keys, stop=stop)
    try:
        server.run()
    except KeyboardInterrupt:  # which it has dealt with
        pass
    finally:
        looker.stop()
    if hub.broken is not None:
        raise OSError(f"stopped, since it can't write: {hub.broken}")


def _server(options: argparse.Namespace) -> uvicorn.Server:
    """What listens, once it has something to serve; it says where."""
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


def _open(store: str) -> Store:
    """The store of this name; its password, if it has one, is told nobody."""
    if not store.startswith(("postgresql://", "postgres://")):
        from robandit.service.stores.sqlite import SQLiteStore

        return SQLiteStore(store)
    try:
        from robandit.service.stores.postgres import PostgresStore
    except ModuleNotFoundError:
        raise ConfigError("a store in PostgreSQL needs: pip install 'robandit[postgres]'") from None
    return PostgresStore(store)


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
