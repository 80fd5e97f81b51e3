"""The surveys that were held out, read from small files that are made up."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from robandit.errors import ConfigError
from robandit.experiments.real import catalogue, load, surveys
from robandit.lab.environments import Replay


def written(folder: Path, *lines: str) -> list[Path]:
    path = folder / "made-up.csv"
    path.write_text("\n".join(lines) + "\n")
    return [path]


def test_mode_canada_offers_what_there_was(tmp_path: Path) -> None:
    lines = [
        ",case,alt,choice,dist,cost,ivt,ovt,freq,income,urban,noalt",
        "1,1,train,0,83,28.25,50,66,4,45,0,2",
        "2,1,car,1,83,15.5,61,0,0,45,0,2",
        "3,7,train,0,300,70,200,60,3,25,1,3",
        "4,7,air,1,300,140.5,60,90,9,25,1,3",
        "5,7,bus,0,300,30,300,70,2,25,1,3",
    ]
    found = surveys.mode_canada(written(tmp_path, *lines))
    assert found["round"].tolist() == [1, 1, 7, 7, 7] and found["reward"].tolist() == [0, 1, 0, 1, 0]
    assert found["cost"].tolist() == [28.25, 15.5, 70, 140.5, 30] and found["person"].tolist() == [1, 1, 7, 7, 7]
    assert found["car:income"].tolist() == [0, 45, 0, 0, 0] and found["air:urban"].tolist() == [0, 0, 0, 1, 0]
    replay = Replay(data=dict(found), person="person", action="action")
    assert replay.set_size is None and replay.sets.sizes.tolist() == [2, 3]
    assert {"mode=train", "mode=air", "bus:income", "freq"} < set(replay.names)


def test_train_has_two_actions_a_round(tmp_path: Path) -> None:
    lines = [
        '"id","choiceid","choice","price1","time1","change1","comfort1","price2","time2","change2","comfort2"',
        '1,1,"choice1",2400,150,0,1,4000,140,1,2',
        '1,2,"choice2",2500,130,0,1,3200,120,2,0',
        '5,1,"choice2",2600,110,0,1,3000,100,0,1',
    ]
    found = surveys.train(written(tmp_path, *lines))
    assert found["round"].tolist() == [0, 0, 1, 1, 2, 2] and found["person"].tolist() == [1, 1, 1, 1, 5, 5]
    assert found["reward"].tolist() == [1, 0, 0, 1, 0, 1]
    assert found["price"].tolist() == [2400, 4000, 2500, 3200, 2600, 3000]
    assert found["comfort"].tolist() == [1, 2, 1, 0, 1, 1]


def test_car_has_six_actions_a_round(tmp_path: Path) -> None:
    traits = ("price", "range", "acc", "speed", "pollution", "size", "space", "cost", "station")
    row = {"rownames": 1, "choice": "choice4", "college": 0, "hsg2": 0, "coml5": 0}
    row |= {f"type{place}": "van" if place == 2 else "truck" for place in range(1, 7)}
    row |= {f"fuel{place}": "electric" if place < 3 else "gasoline" for place in range(1, 7)}
    row |= {f"{name}{place}": 10 * start + place for start, name in enumerate(traits) for place in range(1, 7)}
    other = row | {"rownames": 2, "choice": "choice1"}
    found = surveys.car(written(tmp_path, *(",".join(map(str, line)) for line in (row, row.values(), other.values()))))
    assert found["reward"].reshape(2, 6).argmax(axis=1).tolist() == [3, 0] and found["reward"].sum() == 2
    assert found["station"][:6].tolist() == [81, 82, 83, 84, 85, 86] and found["range"][6:].tolist()[5] == 16
    assert found["type"].tolist()[:3] == ["truck", "van", "truck"] and found["fuel"].tolist()[1:3] == [
        "electric",
        "gasoline",
    ]
    assert set(np.unique(found["person"])) == {0, 1}


def test_heating_has_five_systems_a_round(tmp_path: Path) -> None:
    kinds = ("gc", "gr", "ec", "er", "hp")
    head = ["idcase", "depvar", *(f"ic.{one}" for one in kinds), *(f"oc.{one}" for one in kinds)]
    head += ["income", "agehed", "rooms", "region"]
    lines = [
        ",".join(f'"{name}"' for name in head),
        '1,"er",801,802,803,804,805,201,202,203,204,205,7,25,6,"ncostl"',
        '2,"gc",701,702,703,704,705,101,102,103,104,105,5,60,4,"scostl"',
    ]
    found = surveys.heating(written(tmp_path, *lines))
    assert found["reward"].tolist() == [0, 0, 0, 1, 0, 1, 0, 0, 0, 0]
    assert found["installation"][5:].tolist() == [701, 702, 703, 704, 705] and found["yearly"][2] == 203
    assert found["electric:income"].tolist() == [0, 0, 7, 7, 0, 0, 0, 5, 5, 0] and found["electric:rooms"][7] == 4
    assert found["system"].tolist() == list(kinds) * 2


def test_they_are_replayed_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="car is there to be replayed; read it with table"):
        load("car", tmp_path)
    with pytest.raises(ConfigError, match="there are no data called 'cars'; did you mean 'car'"):
        catalogue.table("cars", tmp_path)
