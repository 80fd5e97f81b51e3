"""Runs notebooks: ``python tests/notebooks.py docs/tutorials/*.ipynb`` stores what their cells show."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def run(path: Path) -> Any:
    """The notebook after all its cells have run, in a kernel of its own and an empty folder."""
    import nbclient  # which only those who run notebooks need: `make test-tutorials` installs it

    notebook = read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.update(outputs=[], execution_count=None)
    with TemporaryDirectory() as folder:
        quiet = {"IPYTHONDIR": folder, "TQDM_DISABLE": "1", "OPENBLAS_NUM_THREADS": "1"}
        resources = {"metadata": {"path": folder}}
        client = nbclient.NotebookClient(notebook, timeout=300, resources=resources, record_timing=False)
        client.execute(env={**os.environ, **quiet})
    return notebook


def outputs(notebook: Any) -> Iterator[Any]:
    """What the cells put out, in order."""
    for cell in notebook.cells:
        yield from cell.get("outputs", [])


def store(path: Path) -> None:
    """Run a notebook and keep its outputs, without what changes from run to run."""
    notebook = run(path)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = None
    for output in outputs(notebook):
        if output.output_type == "execute_result":
            output.execution_count = None
    nbformat.write(notebook, path)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    for name in sys.argv[1:]:
        store(Path(name))
