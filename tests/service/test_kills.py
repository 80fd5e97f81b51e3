"""Services that are killed at random moments under load: what they acknowledged is there once.

`make test-kills` is the long form. ROBANDIT_KILLS says how often SQLite's service is killed, and ROBANDIT_KILLS_TWO how
often one of two on PostgreSQL is, and ROBANDIT_KILLS_STALE how often one of three that decide at the same time.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from kills import Tally, kill_loop
from postgres_server import Postgres

ONE = int(os.environ.get("ROBANDIT_KILLS", "5"))
TWO = int(os.environ.get("ROBANDIT_KILLS_TWO", "10"))
STALE = int(os.environ.get("ROBANDIT_KILLS_STALE", "10"))


def check(tally: Tally, kills: int) -> None:
    assert (tally.lost, tally.double, tally.odd) == (0, 0, 0)
    assert tally.kills >= kills and tally.decisions > 5 * kills and tally.rewards > 3 * kills


@pytest.mark.no_cover
def test_what_was_acknowledged_survives_kills(tmp_path: Path) -> None:
    check(kill_loop(lambda number: str(tmp_path / f"{number}.db"), services=1, kills=ONE), ONE)


@pytest.mark.engines
def test_what_either_of_two_acknowledged_survives_kills(postgres: Postgres) -> None:
    check(kill_loop(lambda number: postgres.new(f"kills{number}"), services=2, kills=TWO, a_store=50), TWO)


@pytest.mark.engines
def test_what_any_of_three_acknowledged_that_decide_at_once_survives_kills(postgres: Postgres) -> None:
    """Retries go to any of them. Every decision is the one that follows from the state that it says it was made on."""
    tally = kill_loop(lambda number: postgres.new(f"stale{number}"), 3, STALE, "--staleness", "200", a_store=50)
    check(tally, STALE)
    assert tally.behind > STALE  # so this was no other way of deciding one after the other
