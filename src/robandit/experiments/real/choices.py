"""What travellers and customers chose, asked among alternatives that a survey made up: the reward is 1 if chosen."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

import numpy as np

from robandit.arrays import Floats
from robandit.experiments.real.decisions import Decisions

_RIDES = ("TRAIN", "SM", "CAR")  # the alternatives, as CHOICE counts them from 1 on
_TRAITS = {"TRAIN": ("TT", "CO", "HE"), "SM": ("TT", "CO", "HE", "SEATS"), "CAR": ("TT", "CO")}
_PERSON = ("GA", "FIRST", "LUGGAGE", "AGE")
_SURVEYED = ("GROUP", "SURVEY", "MALE", "PURPOSE", "INCOME")
_SUPPLIER = ("pf", "cl", "loc", "wk", "tod", "seas")


def read_table(path: Path, delimiter: str = ",") -> dict[str, list[str]]:
    """The columns of a text file, which may be gzipped."""
    contents = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = csv.reader(contents.decode().splitlines(), delimiter=delimiter)
    names = next(rows)
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def read_swissmetro(paths: list[Path]) -> Decisions:
    """Train, a magnetic train or the car: 10 719 answers of 1 192 people (Bierlaire, Axhausen and Abay 2001)."""
    table = {name: np.array(cells, dtype=float) for name, cells in read_table(paths[0]).items()}
    answered = table["CHOICE"] > 0
    table = {name: column[answered] for name, column in table.items()}
    for ride in ("TRAIN", "SM"):
        table[f"{ride}_CO"] = table[f"{ride}_CO"] * (table["GA"] == 0)  # those with a season ticket don't pay
    number, columns = len(table["CHOICE"]), dict[str, Floats]()
    for place, ride in enumerate(_RIDES):
        traits = {f"{ride}_{trait}": table[f"{ride}_{trait}"] / 100.0 for trait in _TRAITS[ride]}
        if ride != "CAR":  # beside which the others are seen
            traits |= {ride: np.ones(number)} | {f"{ride}:{trait}": table[trait] for trait in _PERSON}
        for name, values in traits.items():
            columns[name] = np.zeros((number, len(_RIDES)))
            columns[name][:, place] = values
    return Decisions(
        features=np.stack(list(columns.values()), axis=2),
        rewards=(table["CHOICE"][:, None] == [1, 2, 3]).astype(float),
        offered=np.stack([table[f"{ride}_AV"] > 0 for ride in _RIDES], axis=1),
        names=list(columns),
        segments={name.lower(): table[name].astype(int).astype(str) for name in _SURVEYED},
    )


def read_electricity(paths: list[Path]) -> Decisions:
    """One of four suppliers of electricity: 4 308 answers of 361 customers (Huber and Train 2001)."""
    table = read_table(paths[0])
    features = np.array([table[name] for name in _SUPPLIER], dtype=float).T.reshape(-1, 4, len(_SUPPLIER))
    customer = np.array(table["id"]).reshape(-1, 4)[:, 0]
    quarter = np.array(customer, dtype=int) * 4 // 362
    return Decisions(
        features=features,
        rewards=(np.array(table["choice"]) == "TRUE").astype(float).reshape(-1, 4),
        offered=np.ones((len(features), 4), dtype=bool),
        names=_SUPPLIER,
        segments={"customers": np.char.add("quarter ", (1 + quarter).astype(str))},
    )
