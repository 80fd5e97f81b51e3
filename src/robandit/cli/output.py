"""How commands carry out runs and save what comes out."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from robandit.cli.options import engine_of
from robandit.files import Contents, save_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from robandit.lab.plan import Run
    from robandit.lab.results import Result


def say(line: object) -> None:
    """Print what is not the result itself."""
    print(line, file=sys.stderr)


def carry_out(config: Mapping[str, Any], name: str, options: Namespace) -> tuple[Run, Result]:
    """Carry out a run on the engine that the options ask for; its table is NAME.parquet in the folder --out."""
    from robandit.lab import engine
    from robandit.lab.condensed import load_condensed
    from robandit.lab.plan import Run

    run = Run.read({**config, **({} if options.device is None else {"device": options.device})})
    path = options.out / f"{name}.parquet"
    if options.source is not None:
        return run, load_condensed(options.source, path, wanted=run, force=options.force)
    return run, engine.carry_out(run, path, engine=engine_of(options), force=options.force, say=say)


def save(path: Path, contents: Contents, *, force: bool) -> None:
    """Save a file and say where, unless the same is there already."""
    if save_file(path, contents, force=force):
        say(path)


def save_figure(path: Path, figure: Figure, *, force: bool) -> None:
    """Save a picture in the format that the file's ending names."""
    buffer = BytesIO()
    ending = path.suffix.removeprefix(".")
    figure.savefig(buffer, format=ending, dpi=200, metadata={"CreationDate": None} if ending == "pdf" else None)
    save(path, buffer.getvalue(), force=force)
