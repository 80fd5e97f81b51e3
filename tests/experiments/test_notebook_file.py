"""The notebook in examples/ runs from start to end in a kernel of its own, and its figures show something."""

from __future__ import annotations

from base64 import b64decode
from io import BytesIO
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
from matplotlib import image

NOTEBOOK = Path(__file__).parents[2] / "examples" / "own_attack.ipynb"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What the cells put out, with its classes in `__main__` and two workers."""
    folder = tmp_path_factory.mktemp("notebook")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("IPYTHONDIR", str(folder))
        patch.setenv("TQDM_DISABLE", "1")
        notebook = nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]
        client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(folder)}})
        client.execute()
    return [output for cell in notebook.cells for output in cell.get("outputs", [])]


def test_nothing_is_said_on_the_side(outputs: list[Any]) -> None:
    assert {output.output_type for output in outputs} == {"execute_result"}


def test_results_show_themselves(outputs: list[Any]) -> None:
    tables = [output.data["text/html"] for output in outputs if "text/html" in output.data]
    assert "Radius scales, tuned on 4 trials" in tables[0] and "<td>Doubter</td>" in tables[0]
    assert "Simulation of 300 rounds, 16 trials, seed 1" in tables[1] and tables[1].count("<tr>") == 1 + 3 * 4


def test_figures_are_drawn(outputs: list[Any]) -> None:
    pictures = [b64decode(output.data["image/png"]) for output in outputs if "image/png" in output.data]
    assert len(pictures) == 3
    for picture in pictures:
        pixels = image.imread(BytesIO(picture))
        assert pixels.shape[1] == 840 and len({tuple(pixel) for pixel in pixels.reshape(-1, pixels.shape[2])}) > 100


def test_the_notebook_is_kept_without_outputs() -> None:
    cells = nbformat.read(NOTEBOOK, as_version=4).cells  # type: ignore[no-untyped-call]
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in cells)
