"""Printed after the tests with ``pytest -s``: the largest errors that the numerical tests saw."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import observed


@pytest.fixture(scope="session", autouse=True)
def report() -> Iterator[None]:
    yield
    if observed.worst:
        print(observed.summary())
