"""Backups as files: taken from a running service or a store at rest, and restored. Each is written whole or not at all,
never over another file, and only once every row in it has been compared with its checksum."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import closing
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from shutil import copyfileobj
from typing import BinaryIO
from urllib.parse import urlsplit

from robandit.files import write_file
from robandit.service.files.check import BanditCheck, check_bandits
from robandit.service.files.digest import digest_header
from robandit.service.stores.sqlite import SQLiteStore, reading
from robandit.service.stores.sqlite_copy import Contents, copying, verify
from robandit.service.stores.store import StoreError

_PATIENCE = 600.0
"""Seconds without a byte after which a service is given up."""


def back_up_service(url: str, key: str | None, out: Path) -> Contents:
    """Ask a running service for a backup."""
    return _write(out, lambda file: _fetch(url, key, file))


def back_up_file(store: Path, out: Path) -> Contents:
    """Copy a store that no service has open. It stays as it is, of whatever format."""

    def copy(file: BinaryIO) -> None:
        with reading(store, "ask that for the backup: robandit backup http://localhost:8000 FILE") as db:
            for _ in copying(db, Path(file.name)):
                pass

    return _write(out, copy)


def restore(backup: Path, store: Path, tell: Callable[[BanditCheck], None]) -> None:
    """Make a store of a backup, in the present format, and fold all its logs before it gets its name."""

    def copy(file: BinaryIO) -> None:
        with backup.open("rb") as source:
            copyfileobj(source, file)
        file.flush()
        draft = Path(file.name)
        verify(draft)
        with closing(SQLiteStore(draft)) as made:
            faults = made.faults()
            for found in check_bandits(made):
                tell(found)
                faults += found.faults
        if faults:
            raise StoreError("\n".join([f"{backup} is damaged, and nothing was restored:", *faults]))

    _refuse_to_replace(store)
    write_file(store, copy, replace=False)


def _write(out: Path, copy: Callable[[BinaryIO], None]) -> Contents:
    found: list[Contents] = []

    def write(file: BinaryIO) -> None:
        os.chmod(file.name, 0o600)  # whoever has a backup knows what the next draws are
        copy(file)
        file.flush()
        found.append(verify(Path(file.name)))

    _refuse_to_replace(out)
    write_file(out, write, replace=False)
    return found[0]


def _refuse_to_replace(path: Path) -> None:
    for there in (path, Path(f"{path}-wal")):
        if there.exists():
            raise FileExistsError(f"{there} is there already, and is not replaced; choose another name")


def _fetch(url: str, key: str | None, file: BinaryIO) -> None:
    """Read a service's backup. Redirects are not followed: the key is for this address alone."""
    parts = urlsplit(url)
    kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    try:
        with closing(kind(parts.netloc, timeout=_PATIENCE)) as link:
            link.request("GET", f"{parts.path.rstrip('/')}/v1/backup", headers=headers)
            answer = link.getresponse()
            if answer.status != 200:
                raise OSError(f"{url} answered {answer.status}: {_reason(answer)}")
            copyfileobj(answer, file)
    except HTTPException as error:
        raise OSError(f"{url} gave no backup: {error!r}") from error
    file.flush()
    with open(file.name, "rb") as again:
        if digest_header(again) != answer.headers["Repr-Digest"]:
            raise OSError(f"the backup of {url} did not arrive whole; ask again")


def _reason(answer: HTTPResponse) -> str:
    """Why a service refused, in its words."""
    text = answer.read(10_000).decode(errors="replace")
    try:
        return str(json.loads(text)["error"])
    except (ValueError, KeyError, TypeError):
        return text[:200] or answer.reason
