"""A process in which a policy learns a log. That takes long, and in the service's own process others would wait."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

import msgspec

from robandit.service.learning.student import Student
from robandit.wire.events import decode
from robandit.wire.types import BanditSettings


class Classroom:
    """Teaches a policy a log, page by page. What comes back goes on bit for bit as if it had learnt it here."""

    def __init__(self, settings: BanditSettings, seed: int) -> None:
        self._settings, self._seed = settings, seed
        self.learnt = 0
        """Number of events learnt so far."""

    async def teach(self, pages: AsyncIterator[list[bytes]]) -> Student:
        """Let the policy learn all pages."""
        student = Student(self._settings, self._seed)
        process: BaseProcess | None = None
        try:
            async for page in pages:
                if process is None:
                    link, process = await asyncio.to_thread(self._start)
                self.learnt = await asyncio.to_thread(_tell, link, page)
            if process is not None:
                state = await asyncio.to_thread(_tell, link, None)
                student = await asyncio.to_thread(Student.restore, self._settings, self._seed, state)
            return student
        finally:
            if process is not None:
                process.kill()
                process.join()
                link.close()

    def _start(self) -> tuple[Connection, BaseProcess]:
        context = get_context("spawn")
        ours, theirs = context.Pipe()
        process = context.Process(target=_learn, args=(theirs, msgspec.json.encode(self._settings), self._seed))
        process.daemon = True
        process.start()
        theirs.close()  # so that it ends when we do, however we end
        return ours, process


def _tell(link: Connection, page: Sequence[bytes] | None) -> Any:
    """Hand over a page, or ask for the state, and wait for the answer."""
    link.send(page)
    return link.recv()


def _learn(link: Connection, settings: bytes, seed: int) -> None:
    """Learn what comes, until the link is closed."""
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)  # as in the service, so that sums are added up in the same order
    for number in (signal.SIGINT, signal.SIGTERM):  # they are meant for the parent, and this process ends with it
        signal.signal(number, signal.SIG_IGN)
    with suppress(AttributeError):  # some systems have no such thing
        os.nice(10)
    student = Student(msgspec.json.decode(settings, type=BanditSettings), seed)
    with suppress(EOFError, OSError):
        while True:
            page = link.recv()
            for event in map(decode, page or ()):
                student.apply(event)
            link.send(student.state() if page is None else student.place)
