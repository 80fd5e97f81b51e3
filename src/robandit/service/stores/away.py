"""Whether a database is away, and may come back."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from robandit.service.stores.store import AwayError, DamageError, StoreError

T = TypeVar("T")


def unless_away(url: str, use: Callable[[], T]) -> T:
    """What ``use`` returns. If it fails because the database at a URL does not answer now, or broke off, the error is
    an `AwayError`; a wrong password or a wrong URL is none. Files are never away."""
    if not is_database(url):
        return use()
    import psycopg
    from psycopg.pq import Ping

    try:
        return use()
    except DamageError:
        raise
    except StoreError as error:
        if psycopg.pq.PGconn.ping(url.encode()) in (Ping.REJECT, Ping.NO_RESPONSE):  # it starts, or nobody is there
            raise AwayError(str(error)) from error
        raise
    except psycopg.Error as error:  # in the middle of reading
        raise AwayError(f"the database broke off: {error}".strip()) from error


def is_database(url: str) -> bool:
    """Whether this is the URL of a database, and no file."""
    return url.startswith(("postgresql://", "postgres://"))
