"""What tests share: a PostgreSQL server, and the largest errors seen, which ``pytest -s`` prints in the end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import observed

if TYPE_CHECKING:
    from postgres_server import Postgres


def pytest_collection_finish() -> None:
    """The tests themselves and all modules stay to the end, so no collection of garbage has to look at them again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def report() -> Iterator[None]:
    yield
    if observed.worst:
        print(observed.summary())


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """One server for all tests of a process, each of which has a database of its own."""
    from postgres_server import Postgres

    one = Postgres()
    try:
        yield one
    finally:
        one.close()
