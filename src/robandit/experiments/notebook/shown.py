"""Small tables that show themselves in a terminal and in a notebook."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import isnan
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from robandit.errors import ConfigError, nearest
from robandit.figures.numbers import mean_half
from robandit.figures.tables import text
from robandit.lab.summary import Case, Curve, Proof, proofs, summary
from robandit.lab.tails import LEVELS

if TYPE_CHECKING:
    from pyarrow import Table


@dataclass(frozen=True, repr=False, eq=False)
class Overview:
    """A small table. It shows rounded numbers, and holds exact ones."""

    table: Table
    """The numbers, as an Arrow table."""
    rows: Sequence[Sequence[str]]
    """What is shown; the first row is the header."""
    note: str = ""
    """A line below the table."""

    def __repr__(self) -> str:
        return "\n".join([*text(self.rows), *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        header, *rows = self.rows
        lines = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
        head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
        body = "".join(f"<tr>{line}</tr>" for line in lines)
        note = f"<p>{escape(self.note)}</p>" if self.note else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The numbers for pandas, polars and others that read Arrow."""
        return self.table.__arrow_c_stream__(requested_schema)


class Shown(ABC):
    """A result that shows its title and its summary, in a terminal and in a notebook."""

    @abstractmethod
    def summary(self) -> Overview:
        """The result in a small table."""

    @abstractmethod
    def _title(self) -> str:
        """The line above it."""

    def __repr__(self) -> str:
        return f"{self._title()}\n{self.summary()!r}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(self._title())}</p>{self.summary()._repr_html_()}"


def means(table: Table, column: str = "regret") -> Overview:
    """The mean of a column at the last round for each policy in each scenario, with its 95 % interval over trials.

    Beside it are the corruption that the attack spent, the median, the mean of the worst 1 % of the trials and, where a
    monitor ran, what it proved.
    """
    proved = proofs(table)
    rows = [(*_SCENARIO, column, *_TAIL, *(("proved", "alarms") if proved else ()))]
    exact: list[dict[str, Any]] = []
    for case, policies in summary(_as_regret(table, column)).items():
        for policy, curve in policies.items():
            mean, half = float(curve.mean[-1]), float(curve.half[-1])
            label = "-" if case.corruption is None else f"{case.corruption:g}"
            shown = mean_half(mean, half, 1)
            found = proved[case][policy] if proved else None
            alarm = (f"{found.proved:.2f} of {found.played:.1f}", f"{found.alarms}/{found.trials}") if found else ()
            tail = f"{curve.spread.quantile(0.5)[-1]:.1f}", f"{curve.spread.worst[-1]:.1f}"
            rows.append((case.environment, case.attack, label, f"{curve.realised:.1f}", policy, shown, *tail, *alarm))
            exact.append(_exact(case, policy, curve, column) | _exact_proof(found))
    return Overview(_arrow(exact), rows)


_TAIL = ("median", "worst 1 %")
_SCENARIO = ("environment", "attack", "C", "realised", "policy")


def _arrow(rows: Sequence[Mapping[str, Any]]) -> Table:
    """The rows as a table, whose types do not depend on which values are missing."""
    words, counts = ("environment", "attack", "strength", "policy"), ("trials", "alarms")
    types = dict.fromkeys(words, pa.string()) | dict.fromkeys(counts, pa.int64())
    names = dict.fromkeys(name for row in rows for name in row)
    return pa.Table.from_pylist(rows, pa.schema({name: types.get(name, pa.float64()) for name in names}))


def _as_regret(table: Table, column: str) -> Table:
    """The table with the values of another column in the place of the regret; rows without a value are left out."""
    numbers = [field.name for field in table.schema if pa.types.is_floating(field.type) or field.type == pa.int64()]
    if column not in numbers:
        raise ConfigError(f"there is no column of numbers {column!r}{nearest(column, numbers)}")
    if column == "regret":
        return table
    wanted = table.filter(pc.field(column).is_valid()).replace_schema_metadata(None)  # curves are those of the regret
    values = wanted[column].cast(pa.float64())
    return wanted.set_column(wanted.schema.get_field_index("regret"), "regret", values)


def _exact(case: Case, policy: str, curve: Curve, column: str) -> dict[str, Any]:
    mean, half = float(curve.mean[-1]), float(curve.half[-1])
    interval = {} if isnan(half) else {f"{column}_low": mean - half, f"{column}_high": mean + half}
    scenario = {**case._asdict(), "corruption_spent": curve.realised}
    quantiles = zip(LEVELS, curve.spread.quantiles[-1].tolist(), strict=True)
    tail = {f"{column}_q{round(100 * level):02d}": value for level, value in quantiles}
    tail[f"{column}_worst"] = float(curve.spread.worst[-1])
    return {**scenario, "policy": policy, "trials": curve.trials, f"{column}_mean": mean, **interval, **tail}


def _exact_proof(found: Proof | None) -> dict[str, Any]:
    return {} if found is None else {"corruption_proved": found.proved, "alarms": found.alarms}
