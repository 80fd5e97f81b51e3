"""History for a bandit to learn from: rows of a table, or the log of another bandit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from robandit.errors import ConfigError
from robandit.logs.audit.tables import BadRows, format_of, open_log
from robandit.wire.events import Closed, Decided, Event, Imported, Rewarded, decode, encode
from robandit.wire.parquet import PARQUET_KEY
from robandit.wire.types import BanditSettings

HEADER = "robandit bandit"
"""Key of the first line of an exported bandit; its value are the settings."""
_FOLLOW = {"rewards": ("noise_range", "mean_bound"), "features": ("dim", "action_bound")}
_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


class HistoryColumns(NamedTuple):
    """Which columns of a table mean what."""

    reward: str = "reward"
    source: str | None = None
    sigma: str | None = None
    propensity: str | None = None
    features: Sequence[str] | None = None
    """The columns of a vector; by default x0, x1, …"""


def exported(name: str, settings: BanditSettings, log: Iterator[Event]) -> Iterator[bytes]:
    """A bandit as lines: its settings, and its log. From them another service makes a bandit that knows the same."""
    plain = msgspec.to_builtins(settings)
    for one, others in _FOLLOW.items():
        if plain[one] is not None:
            plain = {key: value for key, value in plain.items() if key not in others}
    given = {key: value for key, value in plain.items() if value is not None}
    yield json.dumps({HEADER: given, "name": name}, ensure_ascii=False).encode()
    yield from map(encode, log)


def settings_in(path: Path) -> dict[str, Any] | None:
    """The settings that `exported` wrote into a file; None if it is no such file."""
    first = _first_line(path)
    found: dict[str, Any] | None = first.get(HEADER) if first else None
    return found


def history(
    path: Path, settings: BanditSettings, columns: HistoryColumns, kind: str | None
) -> Iterator[dict[str, Any]]:
    """The rows of a file, as a bandit with these settings takes them.

    Their ids follow from what the file holds and the place, so a file counts once.
    """
    mark = _mark(path)
    rows = _from_log(path, kind) or _from_table(path, settings, columns, kind)
    for number, row in enumerate(rows, start=1):
        yield {"id": f"{mark}-{number}", **{name: value for name, value in row.items() if value is not None}}


def _mark(path: Path) -> str:
    """A word for a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


# A log of the service.


def _from_log(path: Path, kind: str | None) -> Iterator[dict[str, Any]] | None:
    """The rewards of a service's log; None if this is none."""
    kind = kind or format_of(path)
    if kind == "parquet":
        import pyarrow.parquet as pq

        about = pq.read_schema(path).metadata or {}
        return _from_parquet(path) if PARQUET_KEY in about else None
    first = _first_line(path)
    return _from_events(path) if first and (HEADER in first or first.get("type") in _TAGS) else None


_TAGS = ("D", "R", "C", "P", "S", "I", "X", "K", "G", "F", "A", "T")


def _first_line(path: Path) -> dict[str, Any] | None:
    with path.open("rb") as file:
        line = file.readline(1 << 20)
    try:
        found = json.loads(line)
    except (ValueError, UnicodeDecodeError):
        return None
    return found if isinstance(found, dict) else None


def _from_events(path: Path) -> Iterator[dict[str, Any]]:
    """Every reward and default, in the order in which they were learnt."""
    made: dict[str, Decided] = {}
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if number == 1 and HEADER.encode() in line[:40]:
                continue
            try:
                event = decode(line)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise ValueError(f"line {number} of {path} is no event of a log: {error}") from None
            if isinstance(event, Decided):
                made[event.id] = event
            elif isinstance(event, Imported):
                yield _row(event, event.reward)
            elif isinstance(event, Rewarded | Closed) and event.id in made:
                decided = made.pop(event.id)
                if event.reward is not None:
                    yield _row(decided, event.reward)


def _row(event: Decided | Imported, reward: float) -> dict[str, Any]:
    known = {name: getattr(event, name) for name in ("features", "sigma", "source", "propensity")}
    return known | {"reward": reward}


def _from_parquet(path: Path) -> Iterator[dict[str, Any]]:
    import pyarrow.parquet as pq

    names = ["features", "reward", "sigma", "source", "propensity"]
    for batch in pq.ParquetFile(path).iter_batches(4096, columns=names):
        yield from (row for row in batch.to_pylist() if row["reward"] is not None)


# A table.


def _from_table(
    path: Path, settings: BanditSettings, columns: HistoryColumns, kind: str | None
) -> Iterator[dict[str, Any]]:
    """The rows of a table, by the columns of the bandit's features or as vectors."""
    table = open_log(path, kind, 1000)
    kinds = _kinds(settings)
    vector = () if kinds else _vector_columns(settings.dim, columns.features)
    single = {name: getattr(columns, name) for name in ("reward", "source", "sigma", "propensity")}
    wanted = [*(name for role in kinds.values() for name in role), *vector, *filter(None, single.values())]
    for name in wanted:
        if name not in table.names:
            raise ConfigError(f"{path} has no column {name!r}; it has {', '.join(table.names)}")
    bad = BadRows()
    for chunk in table.read(list(dict.fromkeys(wanted)), bad):
        cells = {name: _plain(column) for name, column in chunk.columns.items()}
        for place, number in enumerate(chunk.rows.tolist()):
            row = {name: cells[name][place] for name in cells}
            yield _table_row(f"row {number} of {path}", row, kinds, vector, single)
    if bad.count:
        raise ValueError(f"{path} has rows that can't be read: {bad.lines()[0]}")


def _plain(column: Any) -> list[Any]:
    return column.to_pylist() if hasattr(column, "to_pylist") else list(column)


def _kinds(settings: BanditSettings) -> dict[str, dict[str, str]]:
    """The kind of every column of a bandit's features, by role; none where it takes vectors."""
    if settings.features is None:
        return {}
    roles = settings.features["features"]
    return {role: {one["name"]: one["kind"] for one in roles[role]} for role in ("action", "context")}


def _vector_columns(dim: int, given: Sequence[str] | None) -> Sequence[str]:
    found = [f"x{number}" for number in range(dim)] if given is None else given
    if len(found) != dim:
        raise ConfigError(f"--features names {len(found)} columns, and the bandit has {dim} features")
    return found


def _table_row(
    place: str,
    row: Mapping[str, Any],
    kinds: Mapping[str, Mapping[str, str]],
    vector: Sequence[str],
    single: Mapping[str, str | None],
) -> dict[str, Any]:
    try:
        found: dict[str, Any] = {"reward": _number(row[single["reward"] or ""])}
        for name in ("sigma", "propensity"):
            column = single[name]
            found[name] = None if column is None or row[column] in (None, "") else _number(row[column])
        label = row[single["source"]] if single["source"] else None
        found["source"] = None if label in (None, "") else str(label)
        if vector:
            return found | {"features": [_number(row[name]) for name in vector]}
        records = {
            role: {name: _cell(row[name], kind) for name, kind in named.items()} for role, named in kinds.items()
        }
        return found | {"features": records["action"], "context": records["context"] or None}
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"this is no number: {value!r}") from None


def _cell(value: Any, kind: str) -> Any:
    """A cell as the kind of its column has it; an empty one is missing."""
    if value is None or value == "":
        return None
    if kind == "numeric":
        return _number(value)
    if kind == "boolean":
        return _WORDS.get(str(value).lower(), value)
    return str(value)
