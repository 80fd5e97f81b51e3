"""A process in which a log is folded. That takes long, and in the service's own process others would wait."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Protocol, TypeVar

from robandit.wire.events import Event, decode


class Pupil(Protocol):
    """What learns a log."""

    @property
    def place(self) -> int:
        """Place of the last event that it has learnt."""
        ...

    def apply(self, event: Event) -> None:
        """Learn the next event."""
        ...

    def state(self) -> bytes:
        """All of it as bytes."""
        ...

    def load(self, data: bytes) -> None:
        """Go on from what `state` gave, bit for bit."""
        ...


P = TypeVar("P", bound=Pupil)


class Classroom(Generic[P]):
    """Teaches a pupil a log, page by page. What comes back goes on bit for bit as if it had learnt it here."""

    def __init__(self, make: Callable[[], P], *, aside: bool = True) -> None:
        """``make`` makes the pupil, here and in the other process. Unless ``aside``, it learns in a thread of this one:
        that is quicker for a short log."""
        self._make, self._aside = make, aside
        self.learnt = 0
        """Place of the last event learnt so far."""

    async def teach(self, pages: AsyncIterator[list[bytes]]) -> P:
        """Let the pupil learn all pages."""
        pupil = self._make()
        if not self._aside:
            async for page in pages:
                self.learnt = await asyncio.to_thread(_read, pupil, page)
            return pupil
        process: BaseProcess | None = None
        try:
            async for page in pages:
                if process is None:
                    link, process = await asyncio.to_thread(self._start)
                self.learnt = await asyncio.to_thread(_tell, link, page)
            if process is not None:
                state = await asyncio.to_thread(_tell, link, None)
                await asyncio.to_thread(pupil.load, state)
            return pupil
        finally:
            if process is not None:
                process.kill()
                process.join()
                link.close()

    def _start(self) -> tuple[Connection, BaseProcess]:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_learn, args=(theirs, self._make))
        process.daemon = True
        process.start()
        theirs.close()  # so that it ends when we do, however we end
        return ours, process


def _read(pupil: Pupil, page: Sequence[bytes]) -> int:
    """Let a pupil learn a page; the place where it is then."""
    for event in map(decode, page):
        pupil.apply(event)
    return pupil.place


def _tell(link: Connection, page: Sequence[bytes] | None) -> Any:
    """Hand over a page, or ask for the state, and wait for the answer."""
    link.send(page)
    return link.recv()


def _learn(link: Connection, make: Callable[[], Pupil]) -> None:
    """Learn what comes, until the link is closed."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)  # as in the service, so that sums are added up in the same order
    for number in (signal.SIGINT, signal.SIGTERM):  # they are meant for the parent, and this process ends with it
        signal.signal(number, signal.SIG_IGN)
    with suppress(AttributeError):  # some systems have no such thing
        os.nice(10)
    pupil = make()
    with suppress(EOFError, OSError):
        while True:
            page = link.recv()
            link.send(pupil.state() if page is None else _read(pupil, page))
