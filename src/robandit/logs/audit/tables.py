"""Logs of feedback in files: Parquet, CSV or NDJSON, read chunk by chunk and never the whole file at once.

Cells come as they stand in the file. A row that can't even be split into cells is counted in `BadRows`.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from robandit.arrays import Ints
from robandit.errors import ConfigError

CHUNK = 1 << 15
"""The number of rows that are read at once; of a CSV file, 64 times as many bytes."""
_SAMPLE = 100  # rows of a text file that are read beforehand, to find its columns
_LONGEST = 1 << 24  # the most bytes in a line: a longer one is no NDJSON, and might not fit into memory
_EXAMPLES = 3  # the most bad rows that are shown for each reason
_WIDTH = 48  # the most characters of a bad value that are shown

Column: TypeAlias = Any
"""The cells of a column: an Arrow array or a list of plain values."""


class Chunk(NamedTuple):
    """Some rows of a log."""

    rows: Ints
    """The numbers of the rows in the log, from 1."""
    columns: dict[str, Column]
    """The cells by column."""
    done: int
    """How much of the log has been read, in its units."""


@dataclass
class Reason:
    """The rows that can't be used for one reason."""

    count: int = 0
    """The number of rows."""
    examples: list[tuple[int, str]] = field(default_factory=list)
    """The numbers of the first few, and what stands there."""


class BadRows:
    """The rows that can't be used, by reason. Each row counts once."""

    def __init__(self) -> None:
        self._reasons: dict[str, Reason] = {}

    def add(self, reason: str, row: int, value: str) -> None:
        """Count a row, and keep it as an example if there are few."""
        found = self._reasons.setdefault(reason, Reason())
        found.count += 1
        if len(found.examples) < _EXAMPLES:
            found.examples.append((row, value if len(value) <= _WIDTH else value[: _WIDTH - 1] + "…"))

    @property
    def count(self) -> int:
        """The number of all bad rows."""
        return sum(reason.count for reason in self._reasons.values())

    def reasons(self) -> list[tuple[str, Reason]]:
        """All reasons, the most frequent first."""
        return sorted(self._reasons.items(), key=lambda item: (-item[1].count, item[0]))

    def lines(self) -> list[str]:
        """A line for each reason."""
        return [f"{reason.count:,} × {name}, as in {examples(reason)}" for name, reason in self.reasons()]


def examples(reason: Reason) -> str:
    """The first rows with this fault, in words."""
    return "; ".join(f"row {row:,}: {value}" for row, value in reason.examples)


class LogTable(ABC):
    """A file of feedback: one row for each round, in the order of the decisions."""

    kind: ClassVar[str]
    """The name of its format."""
    unit: ClassVar[str]
    """The unit of ``size`` and `Chunk.done`."""
    names: Sequence[str]
    """The names of its columns."""
    size: int
    """The size of the log in its unit."""

    def __init__(self, path: Path, chunk: int = CHUNK) -> None:
        self.path, self._chunk = path, chunk
        with path.open("rb") as file:  # an error of the file system as it is
            self.size = file.seek(0, io.SEEK_END)
        if not self.size:
            raise ValueError(f"{path} is empty")
        with self._understood():
            self._open()
        if len(set(self.names)) < len(self.names):
            twice = next(name for place, name in enumerate(self.names) if name in self.names[:place])
            raise ValueError(f"{path} has two columns named {twice!r}; rename one")

    @contextmanager
    def _understood(self) -> Iterator[None]:
        """Turn what a parser says of a file that it can't read into one line."""
        try:
            yield
        except (pa.ArrowException, OSError, EOFError, zlib.error, UnicodeError) as error:
            first = (str(error).splitlines() or [type(error).__name__])[0]
            raise ValueError(f"{self.path} can't be read as {self.kind}: {first}") from error

    def read(self, names: Sequence[str], bad: BadRows) -> Iterator[Chunk]:
        """Give the rows in their order, with these columns."""
        with self._understood():
            yield from self._read(list(names), bad)

    @abstractmethod
    def _open(self) -> None: ...

    @abstractmethod
    def _read(self, names: list[str], bad: BadRows) -> Iterator[Chunk]: ...

    @abstractmethod
    def holds_lists(self, name: str) -> bool:
        """Whether the cells of a column are lists."""

    def check_numbers(self, name: str) -> None:
        """Refuse a column whose type can't hold numbers; where the type does not tell, its cells will."""


class ParquetLog(LogTable):
    """A log in Parquet."""

    kind = "Parquet"
    unit = " rows"

    def _open(self) -> None:
        with self._file() as file:
            self._schema = file.schema_arrow
            self.names, self.size = self._schema.names, file.metadata.num_rows

    def _read(self, names: list[str], bad: BadRows) -> Iterator[Chunk]:
        done = 0
        with self._file() as file:
            for batch in file.iter_batches(self._chunk, columns=names):
                rows = np.arange(done + 1, done + batch.num_rows + 1)
                done += batch.num_rows
                yield Chunk(rows, dict(zip(batch.schema.names, batch.columns, strict=True)), done)

    def _file(self) -> Any:
        # Arrow's own choice, pre_buffer, would keep in memory all that was read.
        return pq.ParquetFile(self.path, pre_buffer=False, buffer_size=1 << 20)

    def holds_lists(self, name: str) -> bool:
        return _is_list(self._schema.field(name).type)

    def check_numbers(self, name: str) -> None:
        kind = self._schema.field(name).type
        within = kind.value_type if _is_list(kind) or pa.types.is_dictionary(kind) else kind
        if not any(test(within) for test in _NUMERIC):
            raise ConfigError(f"the column {name!r} of {self.path} holds {kind}, which are no numbers")


_NUMERIC = (
    *(pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal, pa.types.is_boolean),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null),  # cells will tell
)


def _is_list(kind: Any) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


class CsvLog(LogTable):
    """A log in CSV, plain or gzipped."""

    kind = "CSV"
    unit = "B"

    def _open(self) -> None:
        with self.path.open("rb") as raw:
            stream = self._stream(raw, [], lambda row: "skip")
            self.names, self._sample = stream.schema.names, next(iter(stream), None)

    def _read(self, names: list[str], bad: BadRows) -> Iterator[Chunk]:
        ragged: list[int] = []  # the numbers of rows that Arrow leaves out; it reports them ahead of the chunk

        def leave_out(row: Any) -> str:
            ragged.append(row.number - 1)  # the header is its row 1
            found = f"{row.actual_columns} instead of {row.expected_columns}: {row.text!r}"
            bad.add("wrong number of cells", ragged[-1], found)
            return "skip"

        with self.path.open("rb") as raw:
            rows = _row_numbers(ragged)
            for batch in self._stream(raw, names, leave_out):
                numbers = np.fromiter(islice(rows, batch.num_rows), np.int64, batch.num_rows)
                yield Chunk(numbers, dict(zip(batch.schema.names, batch.columns, strict=True)), raw.tell())

    def _stream(self, raw: BinaryIO, names: list[str], leave_out: Any) -> Any:
        packed = pa.CompressedInputStream(raw, "gzip") if self.path.suffix == ".gz" else raw
        return pyarrow.csv.open_csv(
            packed,
            read_options=pyarrow.csv.ReadOptions(block_size=64 * self._chunk, use_threads=False),  # for row numbers
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True, invalid_row_handler=leave_out),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()), include_columns=names
            ),
        )

    def holds_lists(self, name: str) -> bool:
        cells = [] if self._sample is None else self._sample[name].to_pylist()
        return next((str(cell).lstrip()[0] == "[" for cell in cells if str(cell or "").strip()), False)


def _row_numbers(left_out: list[int]) -> Iterator[int]:
    """Count 1, 2, 3, … without the numbers in an ascending list, which grows ahead of this."""
    place, row = 0, 1
    while True:
        while place < len(left_out) and left_out[place] == row:
            place, row = place + 1, row + 1
        yield row
        row += 1


class NdjsonLog(LogTable):
    """A log with a JSON object on each line, plain or gzipped."""

    kind = "NDJSON"
    unit = "B"

    def _open(self) -> None:
        with self.path.open("rb") as raw:
            self._sample = [row for _, row in islice(self._rows(raw, BadRows()), _SAMPLE)]
        self.names = list(dict.fromkeys(name for row in self._sample for name in row))
        if not self._sample:
            raise ValueError(f"{self.path} holds no line that is a JSON object: this is no NDJSON")

    def _rows(self, raw: BinaryIO, bad: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
        """Give the objects with their numbers. Empty lines don't count."""
        number = 0
        for line in _lines(gzip.GzipFile(fileobj=raw) if self.path.suffix == ".gz" else raw):
            if not line.strip():
                continue
            number += 1
            text = _decode(line, number)
            try:
                row = json.loads(text)
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict):
                yield number, row
            else:
                bad.add("not a JSON object", number, repr(text[: 2 * _WIDTH]))

    def _read(self, names: list[str], bad: BadRows) -> Iterator[Chunk]:
        with self.path.open("rb") as raw:
            rows = self._rows(raw, bad)
            while some := list(islice(rows, self._chunk)):
                columns = {name: [row.get(name) for _, row in some] for name in names}
                yield Chunk(np.array([number for number, _ in some]), columns, raw.tell())

    def holds_lists(self, name: str) -> bool:
        return next((isinstance(row[name], list) for row in self._sample if row.get(name) is not None), False)


def _decode(line: bytes, number: int) -> str:
    try:
        return line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except UnicodeDecodeError:
        raise UnicodeError(f"row {number:,} is not UTF-8") from None


def _lines(file: Any) -> Iterable[bytes]:
    while line := file.readline(_LONGEST):
        if len(line) == _LONGEST:
            raise UnicodeError(f"a line of more than {_LONGEST >> 20} MiB")
        yield line


FORMATS: dict[str, type[LogTable]] = {"parquet": ParquetLog, "csv": CsvLog, "ndjson": NdjsonLog}
_SUFFIXES = {".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson"}


def stem(path: Path) -> str:
    """The name of a file without the suffixes of its format."""
    return (path.with_suffix("") if path.suffix == ".gz" else path).stem


def format_of(path: Path) -> str | None:
    """The name of the format that goes with a file's suffix; None if it is unknown."""
    return _SUFFIXES.get((path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower())


def open_log(path: Path | str, kind: str | None = None, chunk: int = CHUNK) -> LogTable:
    """Open a log in the format ``kind``, or by its suffix. CSV and NDJSON may be gzipped (.gz)."""
    path = Path(path)
    if path.is_dir():
        raise ConfigError(f"{path} is a folder; give a file")
    kind = kind or format_of(path)
    if kind is None:
        known = ", ".join(_SUFFIXES)
        raise ConfigError(f"{path.name} ends in none of {known}: say --format {', '.join(FORMATS)}")
    return FORMATS[kind](path, chunk)
