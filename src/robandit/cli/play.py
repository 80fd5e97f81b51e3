"""The game: `robandit play`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path

from robandit.cli.command import Command
from robandit.cli.server import announced

_PLAY = """\
Be the attacker: a page on which you lie to four policies while they learn, and
see which of them can be bought, and for how much.

What you do can be saved: as a run that `robandit simulate --config` plays
again, bit for bit, and as an attack for `robandit simulate --attack`.

Real data that `robandit data NAME` has written into the folder are among the
worlds. The page is for this machine alone. See docs/how-to/play.md."""


def _options(parser: ArgumentParser) -> None:
    about = "Listen on this port; 0 takes any that is free (default %(default)s)."
    parser.add_argument("--port", type=int, default=8010, help=about)
    about = "Add a world of your own, given as for `robandit simulate`."
    parser.add_argument("--environment", metavar="NAME,KEY=VALUE", help=about)
    about = "Look for real data here (default: this folder)."
    parser.add_argument("--folder", type=Path, default=Path(), help=about)


def _play(options: Namespace) -> None:
    from threadpoolctl import threadpool_limits

    from robandit.play.app import Play
    from robandit.play.worlds import worlds

    app = Play(worlds(options.folder, options.environment))
    threadpool_limits(1)  # threads of BLAS would only wait for each other over small matrices
    host = "127.0.0.1"
    server = announced(
        lambda port: f"The game is at http://{host}:{port}/. Ctrl-C stops.",
        host=host,
        port=options.port,
        lifespan="off",
    )
    server.config.app = app
    with suppress(KeyboardInterrupt):  # the server has stopped in order
        server.run()


PLAY = Command("play", "Be the attacker, on a page in your browser.", _PLAY, _options, _play, "serve")
