"""A file as an answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import BinaryIO

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

CHUNK = 1 << 18
"""Number of bytes that are read and sent at once."""


class Download(StreamingResponse):
    """A file as an answer. It is closed once it is sent, or can't be sent."""

    def __init__(
        self, file: BinaryIO, filename: str, media_type: str, headers: Mapping[str, str] | None = None
    ) -> None:
        self._file = file
        size = file.seek(0, 2)
        file.seek(0)
        own = {"Content-Length": str(size), "Content-Disposition": f'attachment; filename="{filename}"'}
        super().__init__(self._chunks(), headers={**own, **(headers or {})}, media_type=media_type)

    async def _chunks(self) -> AsyncIterator[bytes]:
        while data := await asyncio.to_thread(self._file.read, CHUNK):
            yield data

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._file.close()
