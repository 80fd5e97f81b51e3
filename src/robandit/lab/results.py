"""What a run leaves behind: a tidy table, saved as Parquet with its configuration inside.

While a run goes on, its finished pieces lie in a folder beside the result. A run that was killed finds them there.
Neither the pieces nor the result are ever in memory all at once, unless someone asks for the whole table.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import robandit
from robandit.arrays import Ints
from robandit.files import ResultExists, write_file
from robandit.lab.catalogue import CATALOGUE, find, fingerprint
from robandit.lab.columns import described
from robandit.lab.plan import Run, Task
from robandit.lab.protocol import Trace
from robandit.lab.summary import carried

try:
    import fcntl
except ImportError:  # not on Windows, where two runs into the same file are not kept apart
    fcntl = None  # type: ignore[assignment]

_FORMAT = 6
_NUMERICS = 4  # raised when results change; 2: Multi-level's exact intersections; 3: Quorum's votes; 4: rarer ones
_KEY = b"robandit"
_ROWS = 1 << 17  # of a row group: some 30 MB in memory

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
        "reward": pa.float64(),  # of the actions played, before any lie
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

After these come, in worlds with sources, the columns of `SOURCES`, and then those of `Decision.info`, null for policies
that do not tell them. Up to format 3 there were five such columns for every policy, and up to 4 no
``reward``; up to 5 the file did not say what the columns mean (`robandit.lab.columns`).
"""
SOURCES = pa.schema({"source": pa.int64(), "lies_by_source": pa.list_(pa.field("element", pa.int64()))})
"""The source of the checkpoint's visitor, and the number of lies in the name of each source so far."""


@dataclass(frozen=True)
class Result:
    """A saved run. Its rows stay in the file until they are asked for."""

    path: Path
    config: dict[str, Any]
    """The configuration that it was made from."""
    version: str
    """The version of robandit that made it."""

    @property
    def schema(self) -> pa.Schema:
        """The names and types of the columns."""
        return pq.read_schema(self.path).remove_metadata()

    @property
    def table(self) -> pa.Table:
        """All rows. Those of a very large run do not fit in memory; the last round or the row groups do."""
        return bare(pq.read_table(self.path))

    def last_round(self) -> pa.Table:
        """The rows of the last round: one for each policy, scenario and trial."""
        last = pc.field("round") == self.config["rounds"]
        return pa.concat_tables(group.filter(last) for group in self.row_groups())

    def row_groups(self) -> Iterator[pa.Table]:
        """All rows, in order, a bounded number at a time."""
        with pq.ParquetFile(self.path) as file:
            for number in range(file.num_row_groups):
                yield bare(file.read_row_group(number))


def bare(table: pa.Table) -> pa.Table:
    """A table as it was before it was saved, without what the file tells of the run."""
    return table.replace_schema_metadata(carried(table.schema))


def tabulate(task: Task, trace: Trace) -> pa.Table:
    """The rows of one task: trial by trial, each in the order of its checkpoints."""
    times, lanes = len(trace.round), sum(len(trials) for _, _, trials in task.scenarios)
    columns: dict[str, Any] = {
        name: values.take(np.repeat(np.arange(lanes), times)) for name, values in _lanes(task).items()
    }
    columns["round"] = np.tile(trace.round, lanes)
    for name, column in zip(Trace._fields[1:-4], trace[1:-4], strict=True):
        columns[name] = column.T.ravel()
    columns["proved"] = pa.array(columns["proved"], from_pandas=True)  # which reads NaN as null
    columns["level_use"] = _lists(trace.level_use)
    table = pa.table(columns, schema=SCHEMA)
    if trace.lies_by_source.shape[2]:
        table = table.append_column(SOURCES.field("source"), pa.array(trace.source.T.ravel()))
        table = table.append_column(SOURCES.field("lies_by_source"), _lists(trace.lies_by_source))
    for name, told in trace.info.items():
        if name in (*SCHEMA.names, *SOURCES.names):
            raise ValueError(f"{task.policy.label} can't tell {name!r} in its info: results have such a column already")
        table = table.append_column(name, pa.array(told.T.ravel()))
    return table


def _lists(counts: Ints) -> pa.ListArray:
    """Counts (checkpoints, B, k) as lists of k, trial by trial."""
    times, lanes, length = counts.shape
    ends = np.arange(lanes * times + 1, dtype=np.int32) * length
    return pa.ListArray.from_arrays(ends, counts.transpose(1, 0, 2).ravel())


def _lanes(task: Task) -> dict[str, Any]:
    """What is the same at all checkpoints of a trial, for each trial of a task."""
    rows = []
    for world, attack, trials in task.scenarios:
        adversary = find("attacks", attack.kind)(**attack.settings)
        scenario = task.policy.label, world.label, attack.label, adversary.strength, adversary.label
        rows += [(*scenario, trial) for trial in trials]
    columns = zip(SCHEMA.names, zip(*rows, strict=True), strict=False)
    return {name: pa.array(values, SCHEMA.field(name).type) for name, values in columns}


def read(path: Path | str) -> Result:
    """A saved result."""
    try:
        about = json.loads(pq.read_schema(path).metadata[_KEY])
        return Result(Path(path), about["config"], about["version"])
    except (pa.ArrowInvalid, TypeError, KeyError, ValueError) as error:
        raise ValueError(f"{path} is not a result of robandit: {error}") from error


def write(file: BinaryIO, tables: Iterable[pa.Table], schemas: Iterable[pa.Schema], about: Mapping[str, Any]) -> None:
    """Write tables, one below the other, as one Parquet file with ``about`` inside.

    A column that some of their ``schemas`` have not got is null there. The bytes depend on the rows alone, not on how
    they were cut into tables, and no more than a row group and a table is in memory.
    """
    schema = described(pa.unify_schemas(list(schemas)))
    schema = schema.with_metadata({_KEY: json.dumps(about), **(carried(schema) or {})})
    repetitive = [field.name for field in schema if field.type != pa.float64()]  # a dictionary of the others is no help
    with pq.ParquetWriter(file, schema, compression="zstd", use_dictionary=repetitive) as writer:
        for group in _row_groups(tables, schema):
            writer.write_table(group)


def _row_groups(tables: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    """The rows in groups of a fixed size, each in one chunk, because Parquet's pages end where a chunk ends."""
    held, rows = [schema.empty_table()], 0
    for table in tables:
        held.append(table)
        rows += table.num_rows
        if rows >= _ROWS:
            stacked = pa.concat_tables(held, promote_options="default")
            full, rows = rows - rows % _ROWS, rows % _ROWS
            yield from (stacked.slice(start, _ROWS).combine_chunks() for start in range(0, full, _ROWS))
            held = [stacked.slice(full)]
    if rows:
        yield pa.concat_tables(held, promote_options="default").combine_chunks()


def stamp(run: Run) -> dict[str, Any]:
    """What decides every bit of a run's table."""
    config = json.loads(json.dumps(run.plain(), default=_digest))
    about = {"format": _FORMAT, "numerics": _NUMERICS, "version": robandit.__version__, "numpy": np.__version__}
    about["config"] = config
    code = {str(kind): fingerprint(group, kind) for group in CATALOGUE for kind in run.kinds(group)}
    own = {kind: digest for kind, digest in code.items() if digest is not None}
    return about | {"code": own} if own else about


def _digest(setting: object) -> dict[str, str]:
    """What stands for a setting that is no plain data, such as a frame."""
    return {"sha256": hashlib.sha256(pickle.dumps(setting)).hexdigest(), "type": type(setting).__name__}


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
        self._whole: dict[int, tuple[Path, pa.Schema]] = {}

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

    def find(self, rows: Sequence[int]) -> tuple[set[int], int]:
        """The numbers of the finished pieces, each of so many rows, and how many were damaged and dropped."""
        pieces, expected = self._pieces(), dict(enumerate(rows))
        for number, piece in pieces.items():
            file = self._open(number, piece)
            if file is not None and _is_tidy(file, expected.get(number)):
                self._whole[number] = piece, file.schema_arrow
            else:
                piece.unlink()
        return set(self._whole), len(pieces) - len(self._whole)

    def _open(self, number: int, piece: Path) -> pq.ParquetFile | None:
        """A piece; None if it is not as it was saved."""
        data = piece.read_bytes()
        return pq.ParquetFile(pa.BufferReader(data)) if piece.name == self._name(number, data) else None

    def save(self, number: int, table: pa.Table) -> None:
        """Keep a finished piece. Once this returns, no crash loses it."""
        sink = BytesIO()
        write(sink, [table], [table.schema], {})
        piece = self._folder / self._name(number, sink.getvalue())
        write_file(piece, sink.getvalue())
        self._whole[number] = piece, table.schema

    def _name(self, number: int, data: bytes) -> str:
        digest = hashlib.sha256(f"{number} {json.dumps(self._about)} ".encode() + data).hexdigest()
        return f"{number:06d}-{digest[:32]}.parquet"

    def finish(self, *, replace: bool) -> None:
        """Put the pieces together where the result belongs, and clear up."""
        schemas = [schema for _, (_, schema) in sorted(self._whole.items())]
        write_file(
            self._path,
            lambda file: write(file, self._tables(), schemas, self._about),
            replace=replace,
            draft=self._folder / "whole.draft",  # not beside the result, where a killed run would leave it for ever
        )
        self._drop()

    def _tables(self) -> Iterator[pa.Table]:
        """The finished pieces in order, one at a time."""
        for number, (piece, _) in sorted(self._whole.items()):
            file = self._open(number, piece)
            if file is None:
                raise OSError(f"{piece} was damaged during the run; start it again, and this piece is done anew")
            yield file.read()

    def tidy(self) -> None:
        """Remove what a run left that was killed while it cleared up; nothing of one that is going on."""
        if self._folder.exists():
            with suppress(ResultExists), self._lock():
                self._drop()

    def _drop(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def _is_tidy(file: pq.ParquetFile, rows: int | None) -> bool:
    """Whether a piece has the columns of a result and so many rows."""
    return file.metadata.num_rows == rows and all(field in file.schema_arrow for field in SCHEMA)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
