"""The tutorials that are notebooks: they run from start to end, show what is stored, and are short in every part."""

from __future__ import annotations

import re
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from matplotlib import image

import notebooks
from test_docs import give

ROOT = Path(__file__).parents[2]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
NUMBER = re.compile(r"\d[\d,]*\.?\d*")


@pytest.fixture(params=TUTORIALS, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest) -> Path:
    assert isinstance(request.param, Path)
    return request.param


def texts(output: Any) -> list[str]:
    """What an output says, whichever form it has."""
    if output.output_type == "stream":
        return [output.text]
    return [data for form, data in sorted(output.data.items()) if form.startswith("text/")]


def pictures(notebook: Any) -> list[Any]:
    """The pixels of every picture."""
    found = [output.get("data", {}).get("image/png") for output in notebooks.outputs(notebook)]
    return [image.imread(BytesIO(b64decode(one))) for one in found if one]


def alike(one: str, other: str) -> bool:
    """Whether two texts have the same words, and numbers that differ by no more than another CPU could explain."""
    if NUMBER.split(one) != NUMBER.split(other):
        return False
    pairs = zip(NUMBER.findall(one), NUMBER.findall(other), strict=True)
    return all(
        float(a.replace(",", "")) == pytest.approx(float(b.replace(",", "")), rel=0.2, abs=0.5) for a, b in pairs
    )


@pytest.mark.tutorials
def test_it_runs_and_shows_what_is_stored(path: Path) -> None:
    """If not, `python tests/notebooks.py` runs it again and stores what it shows: read the prose beside that."""
    stored, fresh = notebooks.read(path), notebooks.run(path)
    old, new = list(notebooks.outputs(stored)), list(notebooks.outputs(fresh))
    assert [output.output_type for output in old] == [output.output_type for output in new]
    assert all(output.get("name", "stdout") == "stdout" for output in new), "something was said on the side"
    for before, now in zip(old, new, strict=True):
        assert len(texts(before)) == len(texts(now))
        for was, says in zip(texts(before), texts(now), strict=True):
            assert alike(was, says), f"stored:\n{was}\nnow:\n{says}"
    assert [found.shape for found in pictures(stored)] == [found.shape for found in pictures(fresh)]


@pytest.mark.no_cover
def test_pictures_show_something(path: Path) -> None:
    found = pictures(notebooks.read(path))
    assert found
    for pixels in found:
        assert pixels.shape[1] <= 900 and len({tuple(pixel) for pixel in pixels.reshape(-1, pixels.shape[2])}) > 50


def test_every_part_is_short(path: Path) -> None:
    """No cell has more than 15 lines of code, and no paragraph more than 4."""
    for cell in notebooks.read(path).cells:
        if cell.cell_type == "code":
            assert len([line for line in cell.source.splitlines() if line.strip()]) <= 15, cell.source
        for paragraph in cell.source.split("\n\n") if cell.cell_type == "markdown" else ():
            lines = paragraph.splitlines()
            assert all(len(line) <= 100 for line in lines), paragraph
            assert len(lines) <= 4 or paragraph.startswith(("```", "- ")), paragraph


def test_links_lead_somewhere(path: Path) -> None:
    cells = [cell.source for cell in notebooks.read(path).cells if cell.cell_type == "markdown"]
    links = re.findall(r"\]\(([^)\s#]+)", "\n".join(cells))
    assert links
    for link in links:
        assert (path.parent / link).resolve().is_file(), f"there is no {link}"


def test_commands_can_be_given(path: Path) -> None:
    cells = [cell.source for cell in notebooks.read(path).cells if cell.cell_type == "markdown"]
    for line in "\n".join(cells).replace("\\\n", " ").splitlines():
        if line.startswith("robandit "):
            give(line)


def test_no_output_is_kept_that_changes_from_run_to_run(path: Path) -> None:
    notebook = notebooks.read(path)
    assert all(cell.get("execution_count") is None for cell in notebook.cells)
    assert all(output.get("execution_count") is None for output in notebooks.outputs(notebook))
    assert path.stat().st_size < 250_000


@pytest.mark.parametrize(
    ("stored", "now", "same"),
    [
        ("9.87 or more", "9.91 or more", True),
        ("partner lies", "mail lies", False),
        ("12 clicks", "20 clicks", False),
        ("1,228 rewards", "1,273 rewards", True),
    ],
)
def test_the_comparison_sees_what_matters(stored: str, now: str, same: bool) -> None:
    assert alike(stored, now) is same
