"""Data in packages: found where they are installed, fetched on request, and missed in a sentence."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from robandit.errors import ConfigError
from robandit.experiments.real import DATA, Decisions, MissingData, Package, load
from robandit.experiments.real.choices import read_electricity, read_swissmetro, read_table
from robandit.experiments.real.open_bandit import read_open_bandit
from robandit.experiments.real.packages import find
from robandit.experiments.real.ratings import read_movielens

MADE = Package("madeupdata", "1.0", "none")


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only folder in which pip looks for packages; it holds one that is made up."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    about = "Metadata-Version: 2.1\nName: madeupdata\nVersion: 1.0\nRequires-Python: <3\n"
    with zipfile.ZipFile(folder / "madeupdata-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("madeupdata/some.csv", "a,b\n1,2\n3,4\n")
        wheel.writestr("madeupdata-1.0.dist-info/METADATA", about)
        wheel.writestr("madeupdata-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("madeupdata-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def test_a_file_is_fetched_once_and_on_request_only(tmp_path: Path, wheels: Path) -> None:
    paths = ["madeupdata/some.csv"]
    with pytest.raises(MissingData, match=r"madeupdata 1.0 is not installed, and .* load it with fetch=True"):
        find(MADE, paths, tmp_path)
    (found,) = find(MADE, paths, tmp_path, fetch=True)
    assert read_table(found) == {"a": ["1", "3"], "b": ["2", "4"]}
    (wheels / "madeupdata-1.0-py3-none-any.whl").unlink()
    assert find(MADE, paths, tmp_path) == [found]


def test_what_can_not_be_had_is_said(tmp_path: Path, wheels: Path) -> None:
    with pytest.raises(MissingData, match="madeupdata==1.0 holds no file madeupdata/other.csv"):
        find(MADE, ["madeupdata/other.csv"], tmp_path, fetch=True)
    with pytest.raises(MissingData, match="nosuchdata==2.0 can't be downloaded: "):
        find(Package("nosuchdata", "2.0", "none"), ["a.csv"], tmp_path, fetch=True)
    with pytest.raises(ConfigError, match="there are no data called 'swissmetre'; did you mean 'swissmetro'"):
        load("swissmetre", tmp_path)
    with pytest.raises(MissingData, match="is not installed"):
        load("swissmetro", tmp_path)
    assert not list(tmp_path.rglob("*.csv"))


def test_an_installed_package_is_read_where_it_is(tmp_path: Path) -> None:
    from importlib.metadata import version

    (found,) = find(Package("numpy", version("numpy"), "BSD"), ["numpy/__init__.py"], tmp_path)
    assert found == Path(str(np.__file__))
    with pytest.raises(MissingData, match="numpy 0.0.1 is not installed"):
        find(Package("numpy", "0.0.1", "BSD"), ["numpy/__init__.py"], tmp_path)


def test_every_data_set_says_its_licence() -> None:
    assert all(data.package.licence and data.package.version for data in DATA.values())


def text(path: Path, columns: dict[str, list[Any]], delimiter: str = ",") -> Path:
    lines = [list(columns), *map(list, zip(*columns.values(), strict=True))]
    path.write_text("\n".join(delimiter.join(map(str, line)) for line in lines) + "\n")
    return path


def test_swissmetro(tmp_path: Path) -> None:
    zero = {key: [0, 0, 0] for key in ("GROUP", "SURVEY", "MALE", "PURPOSE", "INCOME", "FIRST", "LUGGAGE", "AGE")}
    rides = {"TRAIN_TT": [100, 1, 1], "TRAIN_CO": [50, 80, 1], "TRAIN_HE": [30, 1, 1], "SM_SEATS": [1, 0, 0]}
    rides |= {
        "SM_TT": [60, 1, 1],
        "SM_CO": [70, 90, 1],
        "SM_HE": [10, 1, 1],
        "CAR_TT": [120, 0, 1],
        "CAR_CO": [9, 0, 1],
    }
    known = {"GA": [0, 1, 0], "TRAIN_AV": [1, 1, 1], "SM_AV": [1, 1, 1], "CAR_AV": [1, 0, 1], "CHOICE": [2, 1, 0]}
    found = read_swissmetro([text(tmp_path / "s.csv", zero | rides | known)])
    assert len(found) == 2  # the third gave no answer
    assert found.rewards.tolist() == [[0, 1, 0], [1, 0, 0]]
    assert found.offered.tolist() == [[True, True, True], [True, True, False]]
    cost = list(found.names).index("TRAIN_CO")
    assert found.features[:, :, cost].tolist() == [[0.5, 0, 0], [0, 0, 0]]  # a season ticket
    assert found.features.shape == (2, 3, 19)


def test_electricity(tmp_path: Path) -> None:
    columns: dict[str, list[Any]] = {name: [1, 2, 3, 4] for name in ("pf", "cl", "loc", "wk", "tod", "seas")}
    columns |= {"choice": ["FALSE", "FALSE", "TRUE", "FALSE"], "id": [361] * 4}
    found = read_electricity([text(tmp_path / "e.csv", columns)])
    assert found.rewards.tolist() == [[0, 0, 1, 0]] and found.features[0, :, 0].tolist() == [1, 2, 3, 4]
    assert found.segments["customers"].tolist() == ["quarter 4"]


def test_movielens(tmp_path: Path) -> None:
    films: dict[str, list[Any]] = {
        "item_id:token": list(range(40)),
        "class:token_seq": ["Drama"] * 35 + ["Drama War"] * 5,
    }
    films["release_year:token"] = ["1995"] * 39 + ["V"]
    ratings = {"user_id:token": [7, 8], "item_id:token": [0, 39], "rating:float": [3, 4], "timestamp:float": [20, 10]}
    people: dict[str, list[Any]] = {
        "user_id:token": [7, 8],
        "gender:token": ["F", "M"],
        "occupation:token": ["doctor", "lawyer"],
    }
    parts: dict[str, dict[str, list[Any]]] = {"inter": ratings, "item": films, "user": people}
    found = read_movielens([text(tmp_path / name, part, "\t") for name, part in parts.items()])
    assert list(found.names) == ["Drama", "decades"]  # too few are about war
    assert found.features[:, 0].tolist() == [[1, 0], [1, 0.5]] and found.rewards.tolist() == [[1], [0]]
    assert found.segments["gender"].tolist() == ["M", "F"]


def test_open_bandit(tmp_path: Path) -> None:
    folder = tmp_path / "random" / "men"
    folder.mkdir(parents=True)
    shown: dict[str, list[Any]] = {"item_id": [1, 0], "position": [3, 1], "click": [0, 1]}
    shown |= {"user_feature_0": ["a", "b"], "user_feature_1": ["c", "d"]}
    shown |= {"user-item_affinity_0": [0, 0], "user-item_affinity_1": [1, 5]}
    items: dict[str, list[Any]] = {"item_id": [0, 1], "item_feature_0": [0.25, -1.5]}
    found = read_open_bandit([text(folder / "men.csv", shown), text(folder / "item_context.csv", items)])
    assert found.features[:, 0].tolist() == [[0, 1, -1.5, pytest.approx(np.log(2))], [0, 0, 0.25, 0]]
    assert found.rewards.tolist() == [[0], [1]] and set(found.segments["log"]) == {"random, men"}


def test_decisions_are_played_ordered_and_crossed() -> None:
    rng = np.random.default_rng(1)
    offered = rng.random((500, 3)) < 0.6
    offered[:, 0] = True
    made = Decisions(
        features=rng.normal(size=(500, 3, 2)),
        rewards=rng.random((500, 3)),
        offered=offered,
        names=("one", "two"),
        segments={"who": np.array(["a", "b", "b", "c", "b"] * 100)},
    )
    actions = made.play_uniformly(rng)
    assert offered[np.arange(500), actions].all()
    three = offered.all(axis=1)
    assert np.bincount(actions[three], minlength=3).min() > 0.2 * three.sum()
    crossed = made.crossed("who")  # a constant and both features, for a and for c
    assert crossed.features.shape == (500, 3, 8)
    assert list(crossed.names) == ["one", "two", *(f"who={who}:{name}" for who in "ac" for name in ("", "one", "two"))]
    assert crossed.features[0, 1].tolist() == [*made.features[0, 1], 1.0, *made.features[0, 1], 0.0, 0.0, 0.0]
    some = crossed.of(np.array([3, 1])).columns(np.array([2, 0]))
    assert some["x0"].tolist() == [made.features[3, 2, 0], made.features[1, 0, 0]]
    assert some["reward"].tolist() == [made.rewards[3, 2], made.rewards[1, 0]] and some["who"].tolist() == ["c", "b"]
