"""Serve decisions: `robandit serve` and `robandit key`."""

from __future__ import annotations

import gc
import json
import sys
from argparse import ArgumentParser, Namespace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robandit.cli.command import Command
from robandit.cli.server import announced
from robandit.errors import ConfigError
from robandit.files import write_file

if TYPE_CHECKING:
    import uvicorn

    from robandit.service.hub import Hub
    from robandit.service.learning.looker import Looker
    from robandit.service.web.keys import Keys
    from robandit.service.web.notifier import Notifier
    from robandit.service.web.senders import Senders
    from robandit.service.web.steady import Steady

# serve

_SERVE = """\
Serve decisions over HTTP: which of these should I show, and what came of it.
Every decision and every reward is on the disk before it is answered, and
counts once.

  curl -X PUT localhost:8000/v1/bandits/shop --json '{"rewards": "clicks",
       "features": {"action": {"price": [0, 50]}}}'
  curl localhost:8000/v1/bandits/shop/decisions --json '{"actions":
       [{"id": "a", "features": {"price": 9}},
        {"id": "b", "features": {"price": 7}}]}'
  curl localhost:8000/v1/bandits/shop/rewards \\
       --json '{"decision_id": "…", "reward": 1}'

Without keys it listens on this machine alone, and web pages of others can't
call it. See docs/how-to/service.md."""


def _serve_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--store",
        default="robandit.db",
        metavar="FILE|URL",
        help="Keep everything in this file, or in the database postgresql://USER@HOST/DATABASE, which several "
        "services may share (default %(default)s).",
    )
    _network_options(parser)
    parser.add_argument(
        "--wait",
        type=float,
        default=300.0,
        metavar="SECONDS",
        help="Wait so long for a database that is away, at the start and later, and answer 503 meanwhile; 0 ends the "
        "service when its database goes away (default %(default)g).",
    )
    parser.add_argument(
        "--access-log",
        action="store_true",
        help="Write a line of JSON for each request on standard error, without bodies, keys and addresses.",
    )


def _network_options(parser: ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="Listen on this address (default %(default)s).")
    parser.add_argument(
        "--port", type=int, default=8000, help="Listen on this port; 0 takes any that is free (default %(default)s)."
    )
    parser.add_argument(
        "--keys", type=Path, metavar="FILE", help="Read from this file who may do what; `robandit key` writes it."
    )
    parser.add_argument(
        "--webhooks",
        type=Path,
        metavar="FILE",
        help="Tell the addresses in this file of alarms, and of sources that come to be doubted or believed again.",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="Answer requests that call the service by this name, such as shop.example; may be repeated. By default it "
        "answers to localhost, and on a network to addresses; * stands for any name.",
    )
    parser.add_argument(
        "--rate", type=float, default=20_000.0, help="Allow each key this many requests a second (default %(default)g)."
    )
    _staleness_option(parser)


def _staleness_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--staleness",
        type=float,
        metavar="MS",
        help="Let several services on one PostgreSQL decide at the same time, each on a state that is at most so many "
        "milliseconds old (50 to 60000); all must be started with it. By default each decision is made on the newest "
        "state, by one service after the other.",
    )


def _serve(options: Namespace) -> None:
    from robandit.service import log_lines
    from robandit.service.learning.looker import Looker
    from robandit.service.stores import StoreError
    from robandit.service.web.access_log import AccessLog
    from robandit.service.web.front import Front
    from robandit.service.web.protocol import Connection, most_connections

    if not 0.0 <= options.wait < float("inf"):
        raise ConfigError(f"--wait must be a number of seconds, 0 or more, got {options.wait}")
    keys, senders = _who(options)
    log_lines.start()
    looker, server = Looker(), _server(options)
    steady = _steady(options, keys, senders, looker, server)
    try:
        steady.begin()
    except StoreError as error:
        raise ConfigError(str(error)) from None
    Connection.most = most_connections()
    access = AccessLog(keys) if options.access_log else None
    server.config.app = Front(steady, steady.meters, access)
    _run(server, looker)
    if steady.failed is not None:
        raise OSError(f"stopped, since it can't write: {steady.failed}")


def _who(options: Namespace) -> tuple[Keys, Senders]:
    """Who may ask, and by which names of the service."""
    from robandit.service.web.keys import Keys
    from robandit.service.web.senders import Senders, is_loopback

    keys = Keys.read(options.keys, rate=options.rate) if options.keys else Keys([])
    if not keys.required and not is_loopback(options.host):
        raise ConfigError(f"listening on {options.host} needs --keys: anyone could decide and reward there")
    return keys, Senders(options.allow_host, addresses=not is_loopback(options.host))


def _steady(options: Namespace, keys: Keys, senders: Senders, looker: Looker, server: uvicorn.Server) -> Steady:
    """The service over a store that may go away, where that is a database."""
    from robandit.service.meters import Meters
    from robandit.service.stores.away import is_database
    from robandit.service.web.steady import Steady

    database = is_database(options.store)
    return Steady(
        partial(_open_hub, options.store, looker, _staleness(options.staleness)),
        keys,
        senders,
        meters=Meters(None if database else Path(options.store).absolute().parent),
        notifier=_notifier(options.webhooks),
        wait=options.wait if database else 0.0,
        stop=partial(setattr, server, "should_exit", True),
    )


def _notifier(path: Path | None) -> Notifier:
    """Who tells the webhooks of a file."""
    from robandit.service.web.hooks import read_hooks
    from robandit.service.web.notifier import Notifier

    try:
        return Notifier([] if path is None else read_hooks(path))
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _open_hub(url: str, looker: Looker, staleness: float | None) -> Hub:
    """Open a store and fold its logs."""
    from robandit.service.hub import Hub
    from robandit.service.stores import open_store
    from robandit.service.stores.away import unless_away

    def opened() -> Hub:
        store = open_store(url)
        try:
            return Hub(store, look=looker, staleness=staleness)
        except BaseException:
            store.close()
            raise

    return unless_away(url, opened)


def _staleness(given: float | None) -> float | None:
    """How old a state may be, in seconds."""
    from robandit.service.serving.stale_queue import LEAST, MOST

    if given is not None and not LEAST <= given / 1000.0 <= MOST:
        raise ConfigError(f"--staleness must lie between {1000 * LEAST:g} and {1000 * MOST:g} ms, got {given:g}")
    return None if given is None else given / 1000.0


def _run(server: uvicorn.Server, looker: Looker) -> None:
    """Serve until the server is stopped."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)  # threads of BLAS would wait for each other over small matrices, and take the other cores
    gc.freeze()  # what is there now stays there, and need not be looked through for garbage again and again
    gc.set_threshold(20_000, 20, 20)
    try:
        server.run()
    except KeyboardInterrupt:  # the server has stopped in order
        pass
    finally:
        looker.stop()


def _server(options: Namespace) -> uvicorn.Server:
    """A server that says where the dashboard is; its application is still to be set."""
    from robandit.service.web.protocol import Connection

    return announced(
        lambda port: f"The dashboard is at http://{options.host}:{port}/, all calls at /docs. Ctrl-C stops.",
        http=Connection,
        host=options.host,
        port=options.port,
        lifespan="on",
    )


SERVE = Command("serve", "Serve decisions over HTTP, and learn from rewards.", _SERVE, _serve_options, _serve, "serve")

# key

_KEY = """\
Make an API key, show it once, and add its hash to the file of keys that
`robandit serve --keys` reads. A running service reads the file again within
a second of a change. So to change a key, make a new one, use it, and then
revoke the old one:

  robandit key shop-2 decide --bandit shop
  robandit key shop-1 --revoke"""


def _key_options(parser: ArgumentParser) -> None:
    parser.add_argument("name", help="The name of whoever gets the key.")
    about = "What the key may do: decide, reward, read (status, log and metrics), or admin, which may do everything."
    parser.add_argument("role", nargs="?", choices=("decide", "reward", "read", "admin"), metavar="role", help=about)
    parser.add_argument(
        "--bandit", action="append", metavar="NAME", help="Make the key for this bandit alone; may be repeated."
    )
    parser.add_argument("--revoke", action="store_true", help="Remove the key of this name instead.")
    parser.add_argument(
        "--keys",
        type=Path,
        default=Path("keys.json"),
        metavar="FILE",
        help="Add the key's hash to this file (default %(default)s).",
    )


def _key(options: Namespace) -> None:
    from robandit.service.web.keys import new_key, read_keys

    entries = []
    if options.keys.exists():
        read_keys(options.keys)  # or say what is wrong with it
        entries = json.loads(options.keys.read_text(encoding="utf-8"))
    others = [entry for entry in entries if entry["name"] != options.name]
    if options.revoke:
        if others == entries:
            raise ConfigError(f"{options.keys} has no key named {options.name!r}")
        _write_keys(options.keys, others)
        return
    if options.role is None:
        raise ConfigError("say what the key may do: decide, reward, read or admin")
    if others != entries:
        raise ConfigError(
            f"{options.keys} has a key named {options.name!r} already; choose another name, or --revoke it"
        )
    secret, entry = new_key(options.name, options.role, options.bandit)
    _write_keys(options.keys, [*entries, entry])
    print(secret)
    print(f"This is the only time that it is shown; {options.keys} holds its hash.", file=sys.stderr)


def _write_keys(path: Path, entries: list[dict[str, Any]]) -> None:
    """Write the file whole, so that a service never reads half of it."""
    write_file(path, (json.dumps(entries, indent=1) + "\n").encode())
    path.chmod(0o600)


KEY = Command(
    "key",
    "Make an API key for a service.",
    _KEY,
    _key_options,
    _key,
    extra=None,
)
