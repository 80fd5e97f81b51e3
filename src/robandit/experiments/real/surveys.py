"""Four surveys that were held out until all constants were settled, as long tables of decision sets.

Only in ``train`` does a person answer more than once. Which columns are features was decided from the columns' names
alone, before anything was played.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robandit.arrays import Floats
from robandit.experiments.real.choices import read_table

_JOURNEY = ("cost", "ivt", "ovt", "freq")
_TRIP = ("price", "time", "change", "comfort")
_VEHICLE = ("price", "range", "acc", "speed", "pollution", "size", "space", "cost", "station")
_HEATERS = ("gc", "gr", "ec", "er", "hp")


def mode_canada(paths: list[Path]) -> Mapping[str, Any]:
    """Train, plane, bus or car, as far as there was one, between Montreal and Toronto (Forinash and Koppelman 1993)."""
    table = read_table(paths[0])
    alternative = np.array(table["alt"])
    columns: dict[str, Any] = {"round": _numbers(table, "case").astype(int), "action": alternative, "mode": alternative}
    columns |= {name: _numbers(table, name) for name in _JOURNEY}
    for mode in ("air", "bus", "car"):  # beside the train
        columns |= {f"{mode}:{name}": (alternative == mode) * _numbers(table, name) for name in ("income", "urban")}
    return columns | {"reward": _numbers(table, "choice"), "person": columns["round"]}


def train(paths: list[Path]) -> Mapping[str, Any]:
    """One of two trains, asked a dozen times of each of 235 Dutch people (Ben-Akiva, Bolduc and Bradley 1993)."""
    table = read_table(paths[0])
    columns = _wide(table, _TRIP, 2)
    return columns | {"person": np.repeat(np.array(table["id"], dtype=int), 2)}


def car(paths: list[Path]) -> Mapping[str, Any]:
    """One of six cars with several kinds of fuel, asked once of 4 654 Californians (McFadden and Train 2000)."""
    table = read_table(paths[0])
    columns = _wide(table, _VEHICLE, 6)
    columns |= {name: _side_by_side(table, name, 6) for name in ("type", "fuel")}
    return columns | {"person": columns["round"]}


def heating(paths: list[Path]) -> Mapping[str, Any]:
    """One of five heating systems, by what they cost at once and every year, in 900 Californian houses (Train 2009)."""
    table = read_table(paths[0])
    houses = len(table["depvar"])
    kind = np.tile(_HEATERS, houses)
    columns: dict[str, Any] = {"round": np.repeat(np.arange(houses), 5), "action": kind, "system": kind}
    for name, cost in (("installation", "ic"), ("yearly", "oc")):
        columns[name] = np.stack([_numbers(table, f"{cost}.{one}") for one in _HEATERS], axis=1).ravel()
    for name in ("income", "rooms"):
        columns[f"electric:{name}"] = np.isin(kind, ("ec", "er")) * np.repeat(_numbers(table, name), 5)
    columns["reward"] = (np.repeat(table["depvar"], 5) == kind).astype(float)
    return columns | {"person": columns["round"]}


def _wide(table: Mapping[str, list[str]], names: tuple[str, ...], options: int) -> dict[str, Any]:
    """The columns of a table with a row for each answer, in which trait x of option k is called xk."""
    rows, place = len(table["choice"]), np.char.add("choice", np.arange(1, options + 1).astype(str))
    columns: dict[str, Any] = {"round": np.repeat(np.arange(rows), options), "action": np.tile(place, rows)}
    columns |= {name: _side_by_side(table, name, options).astype(float) for name in names}
    columns["reward"] = (np.repeat(table["choice"], options) == columns["action"]).astype(float)
    return columns


def _side_by_side(table: Mapping[str, list[str]], name: str, options: int) -> Any:
    return np.stack([np.array(table[f"{name}{number}"]) for number in range(1, options + 1)], axis=1).ravel()


def _numbers(table: Mapping[str, list[str]], name: str) -> Floats:
    return np.array(table[name], dtype=float)
