"""Files that are written whole or not at all, and never over others by accident."""

from __future__ import annotations

import os
from pathlib import Path


class ResultExists(FileExistsError):  # noqa: N818 - it is the state that is named
    """Something else is where the result should go."""


def _place(draft: Path, path: Path) -> None:
    """Give a file its name, if nothing else has it."""
    try:
        os.link(draft, path)  # which fails if there is one, as renaming does not
    except FileExistsError:
        raise ResultExists(f"{path} has appeared meanwhile; choose another --out") from None
    except OSError:  # a file system without links
        if path.exists():
            raise ResultExists(f"{path} has appeared meanwhile; choose another --out") from None
        draft.replace(path)


def save_file(path: Path, data: bytes, *, force: bool) -> bool:
    """Save a file unless it is there already; over another only by ``force``. Gives whether anything was written."""
    if path.exists() and path.read_bytes() == data:
        return False
    if path.exists() and not force:
        raise ResultExists(f"{path} is there already and differs; choose another --out, or replace it with --force")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, data, replace=force)
    return True


def write_file(path: Path, data: bytes, *, replace: bool = True) -> None:
    """All of a file or none of it, on the disk before this returns; without ``replace`` never over another."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.draft")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if replace:
            draft.replace(path)
        else:
            _place(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    if os.name == "posix":  # where a folder's entries are written like a file's
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
