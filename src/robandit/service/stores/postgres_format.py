"""The format of a store in PostgreSQL, which a table of one row says. Stores of before there was one have none."""

from __future__ import annotations

import psycopg

from robandit.service.stores.store import FORMAT, StoreError, newer

_THERE = "SELECT to_regclass('robandit.format') IS NOT NULL"
_KEEP = f"""
CREATE TABLE IF NOT EXISTS robandit.format (one BOOLEAN PRIMARY KEY DEFAULT true CHECK (one), version INTEGER NOT NULL);
INSERT INTO robandit.format (version) VALUES ({FORMAT})
ON CONFLICT (one) DO UPDATE SET version = greatest(format.version, excluded.version);
"""


def check_format(url: str) -> None:
    """Refuse a store of a newer format, before anything is changed there."""
    try:
        with psycopg.connect(url, connect_timeout=10) as db:
            if db.execute(_THERE).fetchall() == [(True,)]:
                for (found,) in db.execute("SELECT version FROM robandit.format").fetchall():
                    if found > FORMAT:
                        raise StoreError(newer(f"the database {db.info.dbname} at {db.info.host}", found))
    except psycopg.Error as error:
        raise StoreError(f"can't use this PostgreSQL: {error}".strip()) from error


def keep_format(url: str) -> None:
    """Say in the store that it has the present format, now that its tables have."""
    try:
        with psycopg.connect(url, connect_timeout=10) as db:
            db.execute(_KEEP)
    except psycopg.Error as error:
        raise StoreError(f"can't use this PostgreSQL: {error}".strip()) from error
