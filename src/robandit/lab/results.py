"""What a run leaves behind: a tidy table, saved as Parquet with its configuration inside.

While a run goes on, its finished pieces lie in a folder beside the result. A run that was killed finds them there.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import robandit
from robandit.files import ResultExists, write_file
from robandit.lab.catalogue import CATALOGUE, find, fingerprint
from robandit.lab.plan import Run, Task
from robandit.lab.protocol import Trace

try:
    import fcntl
except ImportError:  # not on Windows, where two runs into the same file are not kept apart
    fcntl = None  # type: ignore[assignment]

_FORMAT = 4
_KEY = b"robandit"

SCHEMA = pa.schema(
    {
        "policy": pa.string(),
        "environment": pa.string(),
        "attack": pa.string(),
        "strength": pa.string(),
        "C": pa.float64(),  # as labelled; null if the attack has no limit
        "trial": pa.int64(),
        "round": pa.int64(),
        "regret": pa.float64(),
        "c_sup": pa.float64(),
        "c_play": pa.float64(),
        "lies": pa.int64(),
        "gap": pa.float64(),
        "smallest_gap": pa.float64(),
        "updates": pa.int64(),
        "proved": pa.float64(),  # by a monitor; null without one
        "level_use": pa.list_(pa.field("element", pa.int64())),  # as Parquet names it
    }
)
"""One row for each policy, scenario, trial and checkpoint; counts and sums are up to and including that round.

After these come the columns of `Decision.info`, null for policies that do not tell them. Up to format 3 there were five
such columns for every policy.
"""


class Result(NamedTuple):
    """A run's table and what it was made from."""

    table: pa.Table
    config: dict[str, Any]
    version: str


def tabulate(task: Task, trace: Trace) -> pa.Table:
    """The rows of one task: trial by trial, each in the order of its checkpoints."""
    lanes = [(world, attack, trial) for world, attack, trials in task.scenarios for trial in trials]
    times = len(trace.round)
    attacks = [find("attacks", attack.kind)(**attack.settings) for _, attack, _ in lanes]
    per_lane: dict[str, Sequence[Any]] = {
        "policy": [task.policy.label] * len(lanes),
        "environment": [world.label for world, _, _ in lanes],
        "attack": [attack.label for _, attack, _ in lanes],
        "strength": [attack.strength for attack in attacks],
        "C": [attack.label for attack in attacks],
        "trial": [trial for _, _, trial in lanes],
    }
    columns: dict[str, Any] = {
        name: [value for value in values for _ in range(times)] for name, values in per_lane.items()
    }
    columns["round"] = np.tile(trace.round, len(lanes))
    for name, column in zip(Trace._fields[1:-2], trace[1:-2], strict=True):
        columns[name] = column.T.ravel()
    columns["proved"] = pa.array(columns["proved"], from_pandas=True)  # which reads NaN as null
    levels = trace.level_use.shape[2]
    ends = np.arange(len(lanes) * times + 1, dtype=np.int32) * levels
    columns["level_use"] = pa.ListArray.from_arrays(ends, trace.level_use.transpose(1, 0, 2).ravel())
    table = pa.table(columns, schema=SCHEMA)
    for name, told in trace.info.items():
        if name in SCHEMA.names:
            raise ValueError(f"{task.policy.label} can't tell {name!r} in its info: results have such a column already")
        table = table.append_column(name, pa.array(told.T.ravel()))
    return table


def stack(tables: Sequence[pa.Table]) -> pa.Table:
    """Tables one below the other; a column that one of them has not got is null there."""
    return pa.concat_tables(tables, promote_options="default").combine_chunks()


def read(path: Path | str) -> Result:
    """A saved result."""
    try:
        table = pq.read_table(path)
        about = json.loads(table.schema.metadata[_KEY])
    except (pa.ArrowInvalid, TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a result of robandit: {error}") from error
    return Result(table.replace_schema_metadata(None), about["config"], about["version"])


def stamp(run: Run) -> dict[str, Any]:
    """What decides every bit of a run's table."""
    config = json.loads(json.dumps(run.plain()))
    about = {"format": _FORMAT, "version": robandit.__version__, "numpy": np.__version__, "config": config}
    code = {str(kind): fingerprint(group, kind) for group in CATALOGUE for kind in run.kinds(group)}
    own = {kind: digest for kind, digest in code.items() if digest is not None}
    return about | {"code": own} if own else about


def find_result(path: Path, run: Run) -> bool:
    """Whether this very run lies at ``path`` already. Anything else there is an error."""
    if not path.exists():
        return False
    try:
        about = json.loads(pq.read_schema(path).metadata[_KEY])
    except (pa.ArrowInvalid, TypeError, KeyError, ValueError, OSError):
        about = None
    if about != stamp(run):
        what = "is not a result of robandit" if about is None else "holds another run, or one by other code"
        raise ResultExists(f"{path} {what}; choose another --out, or replace it with --force")
    return True


class Workspace:
    """The folder of a run's finished pieces. Each is named by its number and a digest of its bytes and of the run."""

    def __init__(self, path: Path, run: Run) -> None:
        self._path, self._about = path, stamp(run)
        self._folder = path.with_name(path.name + ".parts")

    @contextmanager
    def open(self, batch: int, *, force: bool) -> Iterator[int]:
        """Hold the folder for this process alone. Gives the batch size that the pieces were cut by.

        Pieces of another run are an error, unless ``force`` drops them. A run that fails before its first piece leaves
        nothing behind.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._lock():
            try:
                yield self._begin(batch, force)
            except BaseException:
                if not self._pieces():
                    self._drop()
                raise

    @contextmanager
    def _lock(self) -> Iterator[None]:
        with (self._folder / "lock").open("w") as lock:
            if fcntl is not None:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise ResultExists(f"another process is running {self._path} at this moment") from None
            yield

    def _begin(self, batch: int, force: bool) -> int:
        about = _read_json(self._folder / "run.json") or {}
        cut, forced = about.pop("batch", None), about.pop("force", False)
        if about == self._about and isinstance(cut, int):
            batch, force = cut, force or forced
        elif about and self._pieces() and not force:
            raise ResultExists(
                f"{self._folder} holds pieces of another run, which was stopped before its end; "
                "finish it, choose another --out, or drop it with --force"
            )
        else:  # also if the stamp can't be read: that of a run which had hardly begun
            for piece in self._pieces().values():
                piece.unlink()
        how = {"batch": batch, "force": force}
        write_file(self._folder / "run.json", json.dumps(self._about | how, indent=1).encode())
        return batch

    def forced(self) -> bool:
        """Whether this very run was begun here with ``force`` and not finished."""
        about = _read_json(self._folder / "run.json") or {}
        return bool(about.pop("force", False)) and {k: v for k, v in about.items() if k != "batch"} == self._about

    def _pieces(self) -> dict[int, Path]:
        """The pieces there are, whole or not, by number."""
        found = {piece.name[:6]: piece for piece in self._folder.glob("*.parquet")}
        return {int(number): piece for number, piece in found.items() if number.isdigit()}

    @property
    def meter(self) -> Path:
        """A file in which workers on this machine count their rounds."""
        return self._folder / "meter"

    def load(self, rows: Sequence[int]) -> tuple[list[pa.Table | None], int]:
        """The finished pieces, each of so many rows, with None where there is none; and how many were damaged."""
        pieces = self._pieces()
        tables = [
            self._read(number, pieces[number], count) if number in pieces else None for number, count in enumerate(rows)
        ]
        return tables, len(pieces) - sum(table is not None for table in tables)

    def _read(self, number: int, piece: Path, rows: int) -> pa.Table | None:
        data = piece.read_bytes()
        if piece.name == self._name(number, data):
            table = pq.read_table(pa.BufferReader(data))
            if all(field in table.schema for field in SCHEMA) and table.num_rows == rows:
                return table
        piece.unlink()
        return None

    def save(self, number: int, table: pa.Table) -> None:
        """Keep a finished piece. Once this returns, no crash loses it."""
        data = _as_bytes(table)
        write_file(self._folder / self._name(number, data), data)

    def _name(self, number: int, data: bytes) -> str:
        digest = hashlib.sha256(f"{number} {json.dumps(self._about)} ".encode() + data).hexdigest()
        return f"{number:06d}-{digest[:32]}.parquet"

    def finish(self, tables: Sequence[pa.Table], *, replace: bool) -> None:
        """Put the pieces together where the result belongs, and clear up."""
        whole = stack(tables)  # whichever were read and whichever are new
        write_file(
            self._path, _as_bytes(whole.replace_schema_metadata({_KEY: json.dumps(self._about)})), replace=replace
        )
        self._drop()

    def tidy(self) -> None:
        """Remove what a run left that was killed while it cleared up; nothing of one that is going on."""
        if self._folder.exists():
            with suppress(ResultExists), self._lock():
                self._drop()

    def _drop(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _as_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    return bytes(sink.getvalue())


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
