"""The access log: a line of JSON for each request, on standard error like the service's own log. It has no body, no
key, no query and no address: who asked is told by the name of the key."""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from contextlib import suppress
from datetime import UTC, datetime
from itertools import count
from secrets import token_hex

import msgspec
from starlette.datastructures import Headers
from starlette.types import Scope

from robandit.service.meters import call_of
from robandit.service.web.keys import Keys

_EVERY = 0.2
"""Seconds between two writes: what a service that is killed had not written yet."""
_MOST = 50_000
"""Number of lines that may wait to be written. If whoever reads them is slower, lines are lost rather than requests
held up, and a line says how many."""
_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ENCODE = msgspec.json.Encoder().encode


class AccessLog:
    """Writes lines in a thread of its own."""

    def __init__(self, keys: Keys, descriptor: int = 2) -> None:
        self._keys, self._descriptor = keys, descriptor
        self._lines: deque[bytes] = deque()
        self._lost, self._over = 0, threading.Event()
        self._start, self._count = token_hex(4), count(1)
        self._thread = threading.Thread(target=self._work, name="access log", daemon=True)
        self._thread.start()

    def id_of(self, scope: Scope) -> str:
        """The id of a request: the one in its header ``X-Request-Id``, if that is short and plain, or a new one."""
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _ID.fullmatch(given := value.decode("latin-1")):
                return str(given)
        return f"{self._start}-{next(self._count)}"

    def note(self, scope: Scope, request: str, status: int, seconds: float) -> None:
        """Write a line about a request that was answered."""
        if len(self._lines) >= _MOST:
            self._lost += 1
            return
        call, bandit = call_of(scope["method"], scope["path"])
        key = self._keys.find(Headers(scope=scope)) if self._keys.required else None
        line = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "level": "info",
            "from": "robandit.access",
            "text": call,
            "id": request,
            "key": key and key.name,
            "bandit": bandit,
            "status": status,
            "ms": round(1e3 * seconds, 2),
        }
        self._lines.append(_ENCODE(line) + b"\n")

    def stop(self) -> None:
        """Write what waits, and end."""
        self._over.set()
        self._thread.join(5.0)

    def _work(self) -> None:
        over = False
        while not over:
            over = self._over.wait(_EVERY)
            with suppress(OSError):  # nobody reads it any more
                self._write()

    def _write(self) -> None:
        """Write line by line: a short write to a pipe is whole, beside the lines of others."""
        for _ in range(len(self._lines)):
            os.write(self._descriptor, self._lines.popleft())
        if self._lost:
            lost, self._lost = self._lost, 0
            at = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
            text = f"{lost} requests are not here: nobody read the lines in time"
            line = {"at": at, "level": "warning", "from": "robandit.access", "text": text}
            os.write(self._descriptor, _ENCODE(line) + b"\n")
