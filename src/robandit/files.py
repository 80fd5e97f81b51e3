"""Writes files whole or not at all, and never replaces another file by accident."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, TypeAlias

Contents: TypeAlias = bytes | Callable[[BinaryIO], object]
"""What a file is to hold: its bytes, or a function that writes them, for contents too large for memory."""


class ResultExists(FileExistsError):  # noqa: N818 - it is the state that is named
    """Another file is where the result should go."""


@contextmanager
def _drafted(draft: Path, contents: Contents) -> Iterator[Path]:
    """A draft with these contents, flushed to disk. It is gone afterwards, unless it was given another name."""
    try:
        with draft.open("wb") as file:
            if isinstance(contents, bytes):
                file.write(contents)
            else:
                contents(file)
            file.flush()
            os.fsync(file.fileno())
        yield draft
    finally:
        draft.unlink(missing_ok=True)


def _place(draft: Path, path: Path, *, replace: bool) -> None:
    """Give a draft its final name, for good. Without ``replace`` no other file may have that name."""
    if replace:
        draft.replace(path)
    else:
        _link(draft, path)
        draft.unlink(missing_ok=True)
    if os.name == "posix":  # a folder's entries need flushing as well
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _link(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path)  # fails if the path exists; renaming would replace it
    except FileExistsError:
        raise ResultExists(f"{path} has appeared meanwhile; choose another --out") from None
    except OSError:  # a file system without links
        if path.exists():
            raise ResultExists(f"{path} has appeared meanwhile; choose another --out") from None
        draft.replace(path)


def save_file(path: Path, contents: Contents, *, force: bool) -> bool:
    """Save a file and say whether anything was written. Only ``force`` replaces a file with other contents."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _drafted(_draft_of(path), contents) as draft:
        if path.exists() and _digest(path) == _digest(draft):
            return False
        if path.exists() and not force:
            raise ResultExists(f"{path} is there already and differs; choose another --out, or replace it with --force")
        _place(draft, path, replace=force)
    return True


def write_file(path: Path, contents: Contents, *, replace: bool = True, draft: Path | None = None) -> None:
    """Write all of a file or none of it, flushed to disk. Without ``replace`` it never replaces another file.

    Until it is whole, it is called ``draft``, by default a hidden file in the same folder.
    """
    with _drafted(draft or _draft_of(path), contents) as whole:
        _place(whole, path, replace=replace)


def _draft_of(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.draft")


def _digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").digest()
