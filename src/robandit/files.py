"""Writes files whole or not at all, and never replaces another file by accident."""

from __future__ import annotations

import os
from pathlib import Path


class ResultExists(FileExistsError):  # noqa: N818 - it is the state that is named
    """Another file is where the result should go."""


def _place(draft: Path, path: Path) -> None:
    """Give a draft its final name, unless another file has that name."""
    try:
        os.link(draft, path)  # fails if the path exists; renaming would replace it
    except FileExistsError:
        raise ResultExists(f"{path} has appeared meanwhile; choose another --out") from None
    except OSError:  # a file system without links
        if path.exists():
            raise ResultExists(f"{path} has appeared meanwhile; choose another --out") from None
        draft.replace(path)


def save_file(path: Path, data: bytes, *, force: bool) -> bool:
    """Save a file and say whether anything was written. Only ``force`` replaces a file with other contents."""
    if path.exists() and path.read_bytes() == data:
        return False
    if path.exists() and not force:
        raise ResultExists(f"{path} is there already and differs; choose another --out, or replace it with --force")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, data, replace=force)
    return True


def write_file(path: Path, data: bytes, *, replace: bool = True) -> None:
    """Write all of a file or none of it, flushed to disk. Without ``replace`` it never replaces another file."""
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
    if os.name == "posix":  # a folder's entries need flushing as well
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
