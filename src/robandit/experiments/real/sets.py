"""The data sets as long tables of decision sets, which `Replay` plays: a row is an action that somebody could take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from robandit.arrays import Floats, Index
from robandit.experiments.real.choices import read_table

_RIDES = ("TRAIN", "SM", "CAR")  # as CHOICE counts them from 1 on
_TRAVELLER = ("GA", "FIRST", "LUGGAGE", "AGE", "MALE", "INCOME")
_SUPPLIER = ("pf", "cl", "loc", "wk", "tod", "seas")
_FILMS = 20  # in a decision set
_SETS_EACH = 11  # of each person who rated enough films
_FACTORS = 14
_SHRINK = 5.0  # ratings by which the mean of a film or a person is drawn to the mean of all


def electricity(paths: list[Path]) -> Mapping[str, Any]:
    """One of four suppliers of electricity, asked up to twelve times of each of 361 customers."""
    table = read_table(paths[0])
    columns: dict[str, Any] = {"round": np.array(table["chid"], dtype=int), "action": np.array(table["alt"])}
    columns |= {name: np.array(table[name], dtype=float) for name in _SUPPLIER}
    columns["reward"] = (np.array(table["choice"]) == "TRUE").astype(float)
    return columns | {"person": np.array(table["id"], dtype=int)}


def swissmetro(paths: list[Path]) -> Mapping[str, Any]:
    """Train, magnetic train or car, asked nine times of those travellers for whom all three were available.

    What travellers pay and how long they travel are logarithms. Their own traits differ between rides, so each is
    there for the train and for the magnetic train, beside the car.
    """
    table = {name: np.array(cells, dtype=float) for name, cells in read_table(paths[0]).items()}
    keep = (table["CHOICE"] > 0) & np.all([table[f"{ride}_AV"] > 0 for ride in _RIDES], axis=0)
    table = {name: column[keep] for name, column in table.items()}
    free, zero = table["GA"] == 0, np.zeros(int(keep.sum()))  # those with a season ticket don't pay the railway

    def each(train: Floats, metro: Floats, car: Floats) -> Floats:
        return np.stack([train, metro, car], axis=1).ravel()

    columns: dict[str, Any] = {
        "round": np.repeat(np.arange(len(zero)), 3),
        "action": np.tile(_RIDES, len(zero)),
        "francs": np.log1p(each(table["TRAIN_CO"] * free, table["SM_CO"] * free, table["CAR_CO"])),
        "minutes": np.log1p(each(table["TRAIN_TT"], table["SM_TT"], table["CAR_TT"])),
        "headway": each(table["TRAIN_HE"], table["SM_HE"], zero),
        "seats": each(zero, table["SM_SEATS"], zero),
    }
    for ride, place in (("TRAIN", 0), ("SM", 1)):
        here = np.tile(np.eye(3)[place], len(zero))
        columns[ride] = here
        columns |= {f"{ride}:{trait}": here * np.repeat(table[trait], 3) for trait in _TRAVELLER}
    columns["reward"] = (each(*(table["CHOICE"] == number for number in (1, 2, 3)))).astype(float)
    return columns | {"person": np.repeat(table["ID"].astype(int), 3)}


def movielens(paths: list[Path]) -> Mapping[str, Any]:
    """Twenty films that somebody rated, drawn eleven times for each person; four stars and more are a reward.

    Half of each person's ratings are held out. Features are made of those alone: how people liked the film, how this
    person likes films, and the products of the factors of both in a singular value decomposition.
    """
    ratings = read_table(paths[0], "\t")
    person, film = (np.unique(ratings[f"{name}_id:token"], return_inverse=True)[1] for name in ("user", "item"))
    stars = np.array(ratings["rating:float"], dtype=float)
    rng = np.random.default_rng(20)
    held = rng.random(len(stars)) < 0.5
    shape = int(person.max()) + 1, int(film.max()) + 1
    liking, kindness, left, right = _factors(person[held], film[held], stars[held], shape)
    chosen, who = _draw_sets(person, ~held, rng)
    features = [kindness[who], liking[film[chosen]], *(left[who] * right[film[chosen]]).T]
    names = ["person mean", "film mean", *(f"factor {number}" for number in range(1, _FACTORS + 1))]
    columns: dict[str, Any] = {"round": np.repeat(np.arange(len(chosen) // _FILMS), _FILMS), "action": film[chosen]}
    columns |= dict(zip(names, features, strict=True))
    return columns | {"reward": (stars[chosen] >= 4.0).astype(float), "person": who}


def _factors(
    person: Index, film: Index, stars: Floats, shape: tuple[int, int]
) -> tuple[Floats, Floats, Floats, Floats]:
    """The means of films and people beside the mean of all, and the factors of what those leave over."""
    rest = stars - stars.mean()
    liking = np.bincount(film, rest, shape[1]) / (np.bincount(film, minlength=shape[1]) + _SHRINK)
    rest = rest - liking[film]
    kindness = np.bincount(person, rest, shape[0]) / (np.bincount(person, minlength=shape[0]) + _SHRINK)
    matrix = np.zeros(shape)
    matrix[person, film] = rest - kindness[person]
    left, size, right = np.linalg.svd(matrix, full_matrices=False)
    sign = np.where(left[np.abs(left).argmax(axis=0), np.arange(len(size))] < 0.0, -1.0, 1.0)  # a choice of LAPACK's
    root = np.sqrt(size[:_FACTORS]) * sign[:_FACTORS]
    return liking, kindness, left[:, :_FACTORS] * root, right[:_FACTORS].T * root


def _draw_sets(person: Index, free: Any, rng: np.random.Generator) -> tuple[Index, Index]:
    """The ratings in the sets of all people, and whose they are."""
    chosen, who = [], []
    for someone in range(int(person.max()) + 1):
        rated = np.flatnonzero((person == someone) & free)
        if len(rated) >= _FILMS:
            chosen += [rng.choice(rated, _FILMS, replace=False) for _ in range(_SETS_EACH)]
            who += [np.full(_FILMS, someone) for _ in range(_SETS_EACH)]
    return np.concatenate(chosen), np.concatenate(who)
