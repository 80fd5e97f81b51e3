"""Stores keep the logs of a service. `store` says what a store promises; `checks.check_store` tests that it keeps it.

To add a store, write a class that has the methods of `store.Store`, make `open_store` open it, and run the checks:

>>> from pathlib import Path
>>> from tempfile import TemporaryDirectory
>>> from robandit.service.stores.checks import check_store
>>> with TemporaryDirectory() as folder:
...     check_store(lambda: open_store(str(Path(folder) / "log.db")))
"""

from robandit.errors import install
from robandit.service.stores.away import is_database
from robandit.service.stores.store import Store, StoreError

__all__ = ["Store", "StoreError", "open_store"]


def open_store(url: str) -> Store:
    """Open the store at a URL (``postgresql://USER@HOST/DATABASE``) or in an SQLite file. Errors show no password."""
    if not is_database(url):
        from robandit.service.stores.sqlite import SQLiteStore

        return SQLiteStore(url)
    try:
        from robandit.service.stores.postgres import PostgresStore
        from robandit.service.stores.postgres_format import check_format, keep_format
    except ModuleNotFoundError:
        raise StoreError(f"a store in PostgreSQL needs: {install('postgres')}") from None
    check_format(url)
    store = PostgresStore(url)
    keep_format(url)
    return store
