"""A power cut below SQLite: what was done to its files, and what a disk could hold if the power failed at any point."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import apsw

SECTOR = 512


class Op(NamedTuple):
    """One operation of SQLite on a file. A sync that failed is ``lost``, with what it should have saved."""

    kind: Literal["create", "write", "truncate", "sync", "delete", "lost"]
    file: str
    offset: int = 0
    """Of a write; of a truncate, the new size; of a sync, its flags; of a delete, whether its folder was synced."""
    data: bytes = b""


Watch = Callable[[Op], None]
"""Told of every operation before it is done; it may raise, and then the operation fails."""


class Shim(apsw.VFS):
    """The default VFS with a record of all operations. It has no shared memory, so WAL mode needs an exclusive lock."""

    def __init__(self, name: str, watch: Watch) -> None:
        self.name, self._watch = name, watch
        super().__init__(name, "")

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        if path is not None and flags[0] & apsw.SQLITE_OPEN_CREATE and not os.path.exists(path):
            self._watch(Op("create", os.path.basename(path)))
        return _File(name, flags, self._watch, os.path.basename(path or ""))

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        if os.path.exists(filename):
            self._watch(Op("delete", os.path.basename(filename), int(syncdir)))
        super().xDelete(filename, syncdir)


class _File(apsw.VFSFile):
    def __init__(self, name: str | apsw.URIFilename | None, flags: list[int], watch: Watch, short: str) -> None:
        self._watch, self._short = watch, short
        super().__init__("", name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._watch(Op("write", self._short, offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._watch(Op("truncate", self._short, newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._watch(Op("sync", self._short, flags))  # and no real one: it would only take time


class FailOn:
    """Fails the n-th operation of a kind, from 1 on, and all later ones if ``forever``; records the rest."""

    def __init__(self, kind: str, nth: int, error: type[apsw.Error], *, forever: bool) -> None:
        self.kind, self.nth, self.error, self.forever = kind, nth, error, forever
        self.seen = 0
        self.ops: list[Op] = []

    def __call__(self, op: Op) -> None:
        self.seen += op.kind == self.kind
        if op.kind == self.kind and (self.seen == self.nth or (self.forever and self.seen > self.nth)):
            self.ops += [Op("lost", op.file)] if op.kind == "sync" else []
            raise self.error(f"{self.kind} {self.seen} of {op.file}")
        self.ops.append(op)


class Disk:
    """What is surely on the disk, by file, and the rest in the order in which it was asked for."""

    def __init__(self) -> None:
        self._sure: dict[str, bytearray | None] = {}
        self._pending: dict[str, list[Op]] = {}

    def do(self, op: Op) -> None:
        """Take the next operation."""
        if op.file.endswith("-shm"):
            return
        pending = self._pending.setdefault(op.file, [])
        if op.kind == "lost":  # Linux takes the pages of a failed sync for clean: no later one writes them
            pending[:] = [earlier for earlier in pending if earlier.kind in ("create", "delete")]
        elif op.kind != "sync":
            pending.append(op)
        elif any(earlier.kind == "create" for earlier in pending) and op.file.endswith(("-wal", "-journal")):
            self._sync_folder()  # as SQLite's unix VFS does at the first sync of a new log or journal
        if op.kind == "sync" or (op.kind == "delete" and op.offset):
            self._sync_file(op.file)

    def _sync_file(self, file: str) -> None:
        content = self._sure.get(file)
        for op in self._pending[file]:
            content = _apply(content, op)
        self._sure[file], self._pending[file] = content, []

    def _sync_folder(self) -> None:
        """From now on it is sure which files exist, but not what is in them."""
        for file, pending in self._pending.items():
            entries = [i for i, op in enumerate(pending) if op.kind in ("create", "delete")]
            if entries:
                self._sure[file] = bytearray() if pending[entries[-1]].kind == "create" else None
                self._pending[file] = pending[entries[-1] + 1 :]

    def cut(self, rng: random.Random) -> dict[str, bytes]:
        """The files after a power cut at this point."""
        found = {file: self._survives(file, rng) for file in self._pending}
        return {file: bytes(content) for file, content in found.items() if content is not None}

    def _survives(self, file: str, rng: random.Random) -> bytearray | None:
        sure = self._sure.get(file)
        content = None if sure is None else bytearray(sure)
        luck = rng.choice(("all", "none", "each", "each"))  # by chance alone, all of many are hardly ever kept
        for op in self._pending[file]:
            if luck == "none" or (op.kind in ("create", "delete") and luck == "each" and rng.random() < 0.5):
                return content  # a folder's entries change in order: what follows was in a file that isn't there
            for part in [op] if luck == "all" or op.kind in ("create", "delete") else _torn(op, rng):
                content = _apply(content, part)
        return content


def _apply(content: bytearray | None, op: Op) -> bytearray | None:
    if op.kind == "delete":
        return None
    if content is None or op.kind == "create":
        content = bytearray()
    if op.kind == "truncate":
        del content[op.offset :]
    if op.kind == "write":
        content.extend(bytes(max(0, op.offset - len(content))))
        content[op.offset : op.offset + len(op.data)] = op.data
    return content


def _torn(op: Op, rng: random.Random) -> list[Op]:
    """What is left of a write or a truncate: all, nothing, the first sectors, or any sectors."""
    fate = rng.choice(("kept", "dropped", "first", "any"))
    if fate == "dropped":
        return []
    if fate == "kept" or op.kind != "write":
        return [op]
    sectors = list(_sectors(op))
    if fate == "first":
        return sectors[: rng.randrange(len(sectors) + 1)]
    return [sector for sector in sectors if rng.random() < 0.5]


def _sectors(op: Op) -> Iterator[Op]:
    start, end = op.offset, op.offset + len(op.data)
    while start < end:
        stop = min(end, (start // SECTOR + 1) * SECTOR)
        yield Op("write", op.file, start, op.data[start - op.offset : stop - op.offset])
        start = stop


def disks_after(
    recording: Sequence[Op], cuts: Sequence[int], rng: random.Random
) -> Iterator[tuple[int, dict[str, bytes]]]:
    """For every number of operations, in rising order, a disk as it could be if the power failed after them."""
    disk, done = Disk(), 0
    for cut in sorted(cuts):
        for op in recording[done:cut]:
            disk.do(op)
        done = cut
        yield cut, disk.cut(rng)


def disk_after(recording: Sequence[Op], cut: int, rng: random.Random) -> dict[str, bytes]:
    """The files by name, as one power cut could leave them."""
    return next(disks_after(recording, [cut], rng))[1]


def put(files: dict[str, bytes], folder: Path) -> Path:
    """Write these files, and no others, to a folder."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
