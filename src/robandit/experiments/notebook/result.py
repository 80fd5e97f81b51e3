"""The result of a simulation, which shows itself in a notebook, and how one is played."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from robandit.errors import ConfigError, nearest
from robandit.experiments.notebook.shown import Overview, Shown, means
from robandit.files import ResultExists, save_file
from robandit.lab import results
from robandit.lab.columns import descriptions
from robandit.lab.engine import Engine, MakeBar, carry_out
from robandit.lab.plan import Run
from robandit.lab.summary import last_round

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SMALL = 200_000  # rounds over all trials: so few are played before other processes have started


class Simulation(Shown):
    """A finished simulation: its table, a summary, and pictures. A notebook shows the summary.

    The result is itself a source of Arrow data, so `polars.DataFrame(result)` and all that reads the
    Arrow PyCapsule interface take it as it is; `result.table.to_pandas()` is a frame of pandas.
    """

    def __init__(self, data: bytes, result: results.Result) -> None:
        self._data = data
        self.config: dict[str, Any] = result.config
        """The settings that it was made from, as plain data."""
        self.version: str = result.version
        """The version of robandit that made it."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Load a result that was saved here or by `robandit simulate`."""
        return cls(Path(path).read_bytes(), results.read(path))

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Save the result as Parquet, as `robandit simulate` does. Only ``force`` replaces another file."""
        try:
            save_file(Path(path), self._data, force=force)
        except ResultExists as error:
            raise _in_python(error, "path") from None

    @cached_property
    def table(self) -> pa.Table:
        """All rows: one for each policy, scenario, trial and checkpoint. `columns` says what each column means."""
        return results.bare(pq.read_table(pa.BufferReader(self._data)))

    @property
    def columns(self) -> dict[str, str]:
        """What each column of the table means."""
        return descriptions(self.table.schema)

    def summary(self, column: str = "regret") -> Overview:
        """The means at the last round over the trials, with 95 % intervals: of the regret, or of another column."""
        return means(last_round(self.table), column)

    def plot(self, kind: str = "regret") -> Figure:
        """Draw a picture: the ``regret`` over the rounds, against the ``corruption``, its ``tails``, or ``levels``."""
        from robandit.figures.pictures import PICTURES

        if kind not in PICTURES:
            raise ConfigError(f"there is no picture {kind!r}{nearest(kind, PICTURES)}")
        figure = PICTURES[kind](self.table)
        if figure is None:
            raise ConfigError("no policy here has levels; draw 'regret' or 'corruption'")
        return figure

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """The table for pandas, polars and others that read Arrow."""
        return self.table.__arrow_c_stream__(requested_schema)

    def _title(self) -> str:
        counts = {name: self.config[name] for name in ("rounds", "trials", "seed")}
        return "Simulation of {rounds} rounds, {trials} trials, seed {seed}".format(**counts)


def play(
    config: Mapping[str, Any],
    *,
    workers: int | None = None,
    progress: bool = True,
    save: str | Path | None = None,
    force: bool = False,
) -> Simulation:
    """Carry out a run and load its result. A run that was stopped continues if it has a file to be saved in."""
    run = Run.read(config)
    few = 1 if run.size < _SMALL else None
    engine = Engine(workers=few if workers is None else workers, bar=_bar() if progress else _no_bar)
    with TemporaryDirectory() as folder:
        path = Path(folder, "run.parquet") if save is None else Path(save)
        try:
            carry_out(run, path, engine=engine, force=force)
        except ResultExists as error:
            raise _in_python(error, "save") from None
        return Simulation.load(path)


def _in_python(error: ResultExists, option: str) -> ResultExists:
    """An error that names options of the command line, in the words of Python."""
    return ResultExists(str(error).replace("--out", f"{option}=").replace("--force", "force=True"))


def _bar() -> MakeBar | None:
    """A bar that appears after two seconds: a widget in a notebook that can show one, text in a terminal."""
    shell = sys.modules.get("IPython")
    kernel = shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None
    if kernel and find_spec("ipywidgets"):
        from tqdm.notebook import tqdm
    elif kernel or sys.stderr.isatty():
        from tqdm import tqdm
    else:
        return None
    return partial(tqdm, delay=2.0, leave=False, mininterval=0.5)


def _no_bar(**_: object) -> Any:
    from tqdm import tqdm

    return tqdm(**_, disable=True)
