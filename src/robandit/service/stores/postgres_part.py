"""A part of the logs in PostgreSQL, to which one process adds decisions without holding others off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from robandit.service.stores.postgres_link import LANE, PostgresLink, event_columns
from robandit.service.stores.store import LANES, LogEntry, View

# The left join gives a row even where nothing is new, for the time. What was safe before that is seen.
_LOOK = """
SELECT extract(epoch FROM statement_timestamp())::float8, bandit, place, kind, id, body, crc, number
FROM unnest(%b::bigint[], %b::bigint[]) AS lane (first, last) LEFT JOIN LATERAL
(SELECT * FROM events WHERE number > first AND number < last ORDER BY number) AS new ON true
ORDER BY number
"""
_RESERVE = """
INSERT INTO rounds AS known VALUES (%s, %s) ON CONFLICT (bandit) DO UPDATE
SET given = greatest(known.given + %s, excluded.given) RETURNING given
"""
# One statement is one transaction: a process that stops in the middle leaves nothing open. The unique index decides who
# owns an id; where another transaction is about to take it, this waits until that is over.
_ADD = f"""
WITH added AS (
    INSERT INTO events
    SELECT number, bandit, number, 0, id, body, crc FROM (
        SELECT nextval('unplaced') - (bandit %% {LANES} + 1) * {LANE} AS number, *
        FROM unnest(%b::bigint[], %b::bytea[], %b::bytea[], %b::bigint[]) AS given (bandit, id, body, crc)
        WHERE statement_timestamp() <= to_timestamp(%s)
    ) AS numbered
    ON CONFLICT (bandit, id, kind) DO NOTHING RETURNING bandit, id
)
SELECT statement_timestamp() <= to_timestamp(%s), bandit, id FROM (SELECT) AS always LEFT JOIN added ON true
"""


class PostgresPart(PostgresLink):
    """A `StorePart` of a `PostgresStore`. The server alone judges what is too late, by its own clock."""

    def __init__(self, url: str, heard: list[int]) -> None:
        self.heard = heard
        super().__init__(url, autocommit=True)

    def look(self, after: Sequence[int]) -> View:
        with self._whole():
            last = [(lane + 1) * LANE for lane in range(LANES)]
            rows = self._db.execute(_LOOK, (list(after), last), binary=True).fetchall()
        entries, heard = [], list(after)
        for _, *row, number in rows:
            if number is not None:
                entries.append(self._entry(*row))
                heard[number // LANE] = number
        return View(entries, heard, rows[0][0])

    def reserve(self, wanted: Mapping[int, tuple[int, int]]) -> dict[int, range]:
        found = {}
        with self._whole():
            for bandit, (after, count) in wanted.items():
                ((given,),) = self._db.execute(_RESERVE, (bandit, after + count, count)).fetchall()
                found[bandit] = range(given - count + 1, given + 1)
        return found

    def unplaced(self) -> set[int]:
        with self._whole():
            rows = self._rows("SELECT DISTINCT mod(bandit, ?) FROM events WHERE number < 0", LANES)
        return {lane for (lane,) in rows}

    def add(self, decided: Sequence[LogEntry], until: float) -> set[tuple[int, str]] | None:
        # In one order for all, or two processes could wait for each other. Of two with the same id the first counts.
        rows = {(entry.bandit, entry.event.id): entry for entry in reversed(decided)}
        bandit, _, _, id, body, crc = event_columns([rows[key] for key in sorted(rows)])  # noqa: A001
        with self._whole():
            found = self._db.execute(_ADD, (bandit, id, body, crc, until, until)).fetchall()
        if not found[0][0]:
            return None
        return {(number, self._text(name)) for _, number, name in found if number is not None}
