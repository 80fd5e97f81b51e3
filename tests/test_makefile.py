"""The Makefile: what `make test` leaves out, another target runs, wherever it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def marked(name: str) -> list[Path]:
    """The files with tests that have a mark."""
    files = (path for path in (ROOT / "tests").rglob("test_*.py") if path != Path(__file__))
    return sorted(path for path in files if re.search(rf"\bmark\.{name}\b", path.read_text(encoding="utf-8")))


def left_out(config: pytest.Config) -> set[str]:
    """The marks that pyproject.toml declares, each of which says which target runs it."""
    lines = [line for line in config.getini("markers") if "run by `make test-" in line]
    return {line.partition(":")[0] for line in lines}


def test_what_make_test_leaves_out_has_a_target(pytestconfig: pytest.Config) -> None:
    (chosen,) = re.findall(r'pytest -n auto .*-m "(not .*)"', MAKEFILE)
    assert set(chosen.removeprefix("not ").split(" and not ")) == left_out(pytestconfig)


def test_a_target_looks_where_its_tests_are(pytestconfig: pytest.Config) -> None:
    """Those that name folders, so as not to read all tests for a few, name all that they need."""
    for name in left_out(pytestconfig):
        (folders,) = re.findall(rf"pytest .*-m {name}\b(.*)", MAKEFILE)
        inside = [ROOT / folder for folder in folders.split()] or [ROOT]
        files = marked(name)
        assert files, name
        assert not [file for file in files if not any(file.is_relative_to(folder) for folder in inside)], name
