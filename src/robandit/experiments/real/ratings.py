"""What people thought of films: the reward is 1 for four stars and more."""

from __future__ import annotations

from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np

from robandit.experiments.real.choices import read_table
from robandit.experiments.real.decisions import Decisions

_RARE = 30  # films that a genre must have
_YEAR = 1990.0  # beside which films are old or new; it stands in where a year is not known


def read_movielens(paths: list[Path]) -> Decisions:
    """The 100 000 ratings of MovieLens in the order of time, each with the genres and the age of the film."""
    ratings, films, people = (read_table(path, "\t") for path in paths)
    traits, names = _traits(films)
    order = np.argsort(np.array(ratings["timestamp:float"], dtype=float), kind="stable")
    segments = {}
    for name in ("gender", "occupation"):
        of = dict(zip(people["user_id:token"], people[f"{name}:token"], strict=True))
        segments[name] = np.array([of[person] for person in ratings["user_id:token"]])[order]
    return Decisions(
        features=np.array([traits[film] for film in ratings["item_id:token"]])[order, None],
        rewards=(np.array(ratings["rating:float"], dtype=float)[order, None] >= 4.0).astype(float),
        offered=np.ones((len(order), 1), dtype=bool),
        names=names,
        segments=segments,
    )


def _traits(films: dict[str, list[str]]) -> tuple[dict[str, list[float]], list[str]]:
    """The features of each film, and what they are called."""
    genres = [text.split() for text in films["class:token_seq"]]
    known = sorted(genre for genre, count in Counter(chain.from_iterable(genres)).items() if count >= _RARE)
    found = {}
    for film, own, year in zip(films["item_id:token"], genres, films["release_year:token"], strict=True):
        age = (float(year if year.isdigit() else _YEAR) - _YEAR) / 10.0
        found[film] = [float(genre in own) for genre in known] + [age]
    return found, [*known, "decades"]
