"""A process that looks at monitors. A look takes long, and in the service's own process decisions would wait for it."""

from __future__ import annotations

import logging
import os
import signal
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from threading import Lock
from typing import Any

from robandit.monitor.certificate import Certificate
from robandit.monitor.monitor import CorruptionMonitor

log = logging.getLogger("robandit.service")


def look(state: dict[str, Any]) -> Certificate | None:
    """What a monitor in this state proves."""
    return CorruptionMonitor.from_state(state).certificate()


class Looker:
    """Runs `look` in another process, which is started when it is first needed, and again if it died."""

    def __init__(self) -> None:
        self._link: Connection | None = None
        self._alone = Lock()  # a hub that was thrown away may still wait for its answer when the next one asks

    def __call__(self, state: dict[str, Any]) -> Certificate | None:
        """Return what `look` returns, or None if the process died over it."""
        with self._alone:
            try:
                link = self._link or self._start()
                link.send(state)
                return link.recv()
            except (EOFError, OSError) as error:
                log.error("the process that looks at monitors died (%s); it is started again at the next look", error)
                self.stop()
                return None

    def _start(self) -> Connection:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()  # so that it ends when we do, however we end
        self._link = ours
        return ours

    def stop(self) -> None:
        """Let the process end."""
        if self._link is not None:
            self._link.close()
            self._link = None


def _serve(link: Connection) -> None:
    """Answer looks until the link is closed."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they are meant for the parent, and this process ends with it
        signal.signal(number, signal.SIG_IGN)
    with suppress(AttributeError):  # some systems have no such thing
        os.nice(10)
    with suppress(EOFError, OSError):
        while True:
            link.send(look(link.recv()))
