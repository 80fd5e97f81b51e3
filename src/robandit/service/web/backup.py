"""A backup of the whole store, which a service gives while it goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from starlette.requests import Request
from starlette.responses import Response

from robandit.service.files.digest import digest_header
from robandit.service.hub import Hub
from robandit.service.refused import Refused
from robandit.service.web.download import Download
from robandit.service.web.keys import Keys

KIND = "application/vnd.sqlite3"


class Backups:
    """Answers requests for backups, one at a time."""

    def __init__(self, hub: Hub, keys: Keys) -> None:
        self._hub, self._keys, self._busy = hub, keys, False

    async def answer(self, request: Request) -> Response:
        """Copy the store to the folder for temporary files, and send the copy with its digest."""
        self._keys.check_whole(request.headers)
        if self._busy:
            raise Refused(409, "a backup is being made already; ask again when it is done")
        self._busy = True
        try:
            file = await self._copy()
        finally:
            self._busy = False
        headers = {"Repr-Digest": await asyncio.to_thread(digest_header, file), "Cache-Control": "no-store"}
        return Download(file, "robandit.db", KIND, headers)

    async def _copy(self) -> BinaryIO:
        """The copy as an open file whose name is gone already, where the system allows that: nothing stays behind."""
        with TemporaryDirectory(prefix="robandit-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "backup.db"
            await self._hub.backup(path)
            return path.open("rb")
