"""What tests share: a PostgreSQL server, and the largest errors seen, which ``pytest -s`` prints in the end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

import observed

if TYPE_CHECKING:
    from postgres_server import Postgres


@pytest.hookimpl(tryfirst=True)
def pytest_sessionstart(session: pytest.Session) -> None:
    """With xdist, pytest-cov begins to trace in every process, and once more, in workers, what is kept. The mark
    `no_cover` pauses the latter alone, which would leave the cost of tracing: so the first one ends here."""
    cov = session.config.pluginmanager.getplugin("_cov")
    with_others = hasattr(session.config, "workerinput") or session.config.getoption("numprocesses", None)
    if with_others and cov is not None and cov.cov_controller is not None:
        cov.cov_controller.cov.stop()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """All workers load the same modules, so one of them is traced meanwhile."""
    cov, worker = session.config.pluginmanager.getplugin("_cov"), getattr(session.config, "workerinput", None)
    pause = worker is not None and worker["workerid"] != "gw0" and cov is not None and cov.cov_controller is not None
    if pause:
        cov.cov_controller.pause()
    result = yield
    if pause:
        cov.cov_controller.resume()
    return result


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
