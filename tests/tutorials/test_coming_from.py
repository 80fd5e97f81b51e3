"""Every pair of programs prints what the page on coming from another library says."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "tutorials" / "coming-from.md"
PROGRAMS = sorted((ROOT / "examples" / "coming_from").glob("from_*.py"))
PACKAGES = {"from_scikit_learn": "sklearn", "from_vowpal_wabbit": "vowpalwabbit"}
"""The package that a program needs, where it is not called as the program is."""


def told(name: str) -> list[str]:
    """The lines that the page shows of a program."""
    _, found, rest = PAGE.read_text(encoding="utf-8").partition(f"coming_from/{name})")
    assert found, f"the page does not link to {name}"
    return rest.split("```")[1].strip().splitlines()


def rows(lines: list[str]) -> dict[str, tuple[float, float]]:
    """The clicks among honest visitors, and with bots, by what is shown by whom."""
    found = (line.rsplit(maxsplit=2) for line in lines[1:])
    return {name: (float(honest), float(bots)) for name, honest, bots in found}


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
@pytest.mark.tutorials
def test_a_pair_prints_what_the_page_says(program: Path) -> None:
    package = PACKAGES.get(program.stem, program.stem.removeprefix("from_"))
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: `make .venv/peers` installs it")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=True, timeout=500)
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].split() == told(program.name)[0].split()
    stored, found = rows(told(program.name)), rows(lines)
    assert stored.keys() == found.keys()
    for name, numbers in found.items():
        assert numbers == pytest.approx(stored[name], abs=1.0), f"{name}: the page says {stored[name]}"


def test_every_pair_has_its_place() -> None:
    assert len(PROGRAMS) == 5
    for program in PROGRAMS:
        found = rows(told(program.name))
        assert {"ours", "at random", "the best"} < found.keys() and len(found) >= 4
