"""The log as Parquet: one row for each decision, with its reward."""

from __future__ import annotations

import asyncio
import json
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from tempfile import TemporaryFile
from threading import Lock
from typing import Any, BinaryIO, TypeAlias

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from robandit.wire.events import Decided, decode
from robandit.wire.parquet import PARQUET_KEY

ROWS, BYTES = 4096, 8 << 20
"""Largest number of decisions in a row group, and of bytes that they take. Larger groups would hold up other requests:
while Arrow converts one, no other thread runs."""
_NAME = 64  # about the bytes that the id of an action takes in memory
OUTCOMES = ("pending", "rewarded", "default", "lost")
"""What became of a decision: nothing yet, a reward, the default in its place, or no reward in time."""

_NUMBERS = pa.list_(pa.float64())
SCHEMA = pa.schema(
    [
        ("decision_id", pa.string()),
        ("round", pa.int64()),
        ("at", pa.float64()),
        ("actions", pa.list_(pa.string())),
        ("action_id", pa.string()),
        ("index", pa.int64()),
        ("features", _NUMBERS),
        ("offered", pa.list_(_NUMBERS)),
        ("sigma", pa.float64()),
        ("level", pa.int64()),
        ("propensity", pa.float64()),
        ("weight", pa.float64()),
        ("source", pa.string()),
        ("reward", pa.float64()),
        ("reward_at", pa.float64()),
        ("outcome", pa.string()),
    ]
)

Pages: TypeAlias = Callable[[], AsyncIterator[list[bytes]]]


# Events, with no more of them than `Endings` needs: a decision in full takes most of the time.


class _Made(msgspec.Struct, tag="D"):
    id: str


class _Came(msgspec.Struct, tag="R"):
    id: str
    at: float
    reward: float


class _Ended(msgspec.Struct, tag="C"):
    id: str
    at: float
    reward: float | None = None


class _Proof(msgspec.Struct, tag="P"):
    sentence: str


class _Change(msgspec.Struct, tag="S"):
    pass


class _Gone(msgspec.Struct, tag="X"):
    pass


class _Cut(msgspec.Struct, tag="K"):
    pass


class _Acknowledged(msgspec.Struct, tag="A"):
    pass


class _Delivered(msgspec.Struct, tag="T"):
    pass


class _Blank(msgspec.Struct, tag="G"):
    pass


class _Forgot(msgspec.Struct, tag="F"):
    pass


class _Outside(msgspec.Struct, tag="I"):
    pass


_NOTHING = _Gone | _Outside | _Blank | _Forgot | _Acknowledged | _Delivered
_SKIM = msgspec.json.Decoder(_Made | _Came | _Ended | _Proof | _Change | _Cut | _NOTHING)


class Endings:
    """What became of each decision, in the order of decisions. It takes 17 bytes for each."""

    def __init__(self) -> None:
        self.outcome, self.reward, self.at = bytearray(), array("d"), array("d")
        self._open: dict[str, int] = {}
        self.proof: str | None = None
        """The monitor's last proof, in words."""
        self.changed = False
        """Whether an operator has changed the bandit."""

    def read(self, page: Sequence[bytes]) -> None:
        """Take in the next events of the log."""
        for body in page:
            event = _SKIM.decode(body.partition(b"\n")[0])  # without what is on offer
            if isinstance(event, _Made):
                self._open[event.id] = len(self.outcome)
                self.outcome.append(0)
                self.reward.append(np.nan)
                self.at.append(np.nan)
            elif isinstance(event, _Proof):
                self.proof = event.sentence
            elif isinstance(event, _Change | _Cut):  # a change may be gone
                self.changed = True
            elif isinstance(event, _Came | _Ended):
                place = self._open.pop(event.id)
                self.at[place] = event.at
                self.outcome[place] = 1 if isinstance(event, _Came) else 3 if event.reward is None else 2
                self.reward[place] = np.nan if event.reward is None else event.reward


class Writer:
    """Writes decisions to a file, a row group at a time. Only one thread at a time uses it."""

    def __init__(self, file: BinaryIO, name: str, endings: Endings) -> None:
        self._endings, self._rows, self._bytes, self._done = endings, list[Decided](), 0, 0
        about = {
            PARQUET_KEY: json.dumps(
                {"bandit": name, "proof": endings.proof} | ({"changed": True} if endings.changed else {})
            )
        }
        self._out = pq.ParquetWriter(file, SCHEMA.with_metadata(about), compression="zstd")
        self._lock = Lock()

    def write(self, page: Sequence[bytes]) -> None:
        """Write the decisions among the next events of the log."""
        with self._lock:
            for event in map(decode, page):
                if self._done + len(self._rows) >= len(self._endings.outcome):  # the rest came after the first reading
                    return
                if isinstance(event, Decided):
                    self._rows.append(event)
                    self._bytes += len(event.offered or b"") + 8 * len(event.features) + _NAME * len(event.actions)
                    if len(self._rows) >= ROWS or self._bytes >= BYTES:
                        self._flush()

    def close(self) -> None:
        """Write what is left, and the file's end."""
        with self._lock:
            self._flush()
            self._out.close()

    def abandon(self) -> None:
        """Write no more. Wait for a thread that still writes."""
        with self._lock, suppress(OSError, pa.ArrowException):
            self._rows, self._endings = [], Endings()  # without endings, nothing is written
            self._out.close()

    def _flush(self) -> None:
        if self._rows:
            place = slice(self._done, self._done + len(self._rows))
            self._out.write_table(_table(self._rows, self._endings, place))
            self._done, self._rows, self._bytes = place.stop, [], 0


def _table(rows: Sequence[Decided], endings: Endings, place: slice) -> pa.Table:
    """The decisions at these places of all decisions, and what became of them."""
    outcome = np.frombuffer(bytes(endings.outcome[place]), np.uint8)
    reward, at = np.array(endings.reward[place]), np.array(endings.at[place])
    columns: dict[str, Any] = {name: [getattr(row, name) for row in rows] for name in ("round", "at", "index", "sigma")}
    columns |= {name: [getattr(row, name) for row in rows] for name in ("level", "propensity", "weight", "source")}
    columns |= {
        "decision_id": [row.id for row in rows],
        "actions": [row.actions for row in rows],
        "action_id": [row.actions[row.index] for row in rows],
        "features": [row.features for row in rows],
        "offered": _offered(rows),
        "reward": pa.array(reward, mask=np.isnan(reward)),
        "reward_at": pa.array(at, mask=np.isnan(at)),
        "outcome": [OUTCOMES[code] for code in outcome],
    }
    arrays = [pa.array(columns[one.name], one.type) for one in SCHEMA]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _offered(rows: Sequence[Decided]) -> pa.Array:
    """The features of all the actions on offer, list by list; null where they were not kept."""
    counts = [0 if row.offered is None else len(row.actions) for row in rows]
    sizes = np.repeat([len(row.features) for row in rows], counts)
    values = pa.array(np.frombuffer(b"".join(row.offered or b"" for row in rows)))
    inner = pa.ListArray.from_arrays(_offsets(sizes), values)
    return pa.ListArray.from_arrays(_offsets(counts), inner, mask=pa.array([row.offered is None for row in rows]))


def _offsets(sizes: Any) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(sizes)]), pa.int32())


async def as_parquet(name: str, pages: Pages, gone: Callable[[], Awaitable[bool]]) -> BinaryIO | None:
    """A bandit's log as an open temporary file, or ``None`` if by then nobody waits for it.

    The file has no name, so the system removes it whatever happens. The log is read twice, since a reward comes after
    its decision. Threads do the work.
    """
    endings, file = Endings(), TemporaryFile()  # noqa: SIM115 - `download.Download` closes it
    writer: Writer | None = None
    done = False
    try:
        async for page in pages():
            await asyncio.to_thread(endings.read, page)
            if await gone():
                return None
        writer = Writer(file, name, endings)
        async for page in pages():
            await asyncio.to_thread(writer.write, page)
            if await gone():
                return None
        await asyncio.to_thread(writer.close)
        done = True
        return file
    finally:
        if not done:
            if writer is not None:
                writer.abandon()
            file.close()
