"""Scripts of lies: how they are read, how they grow, and that the attack tells what they say."""

from __future__ import annotations

import numpy as np
import pytest
from test_attacks import play

from robandit import attacks, environments
from robandit.lab.attacks.recorded import LieStretch, Script
from robandit.lab.protocol import Scenario, simulate
from robandit.policies import OFUL


def test_a_script_comes_back_as_it_was_written() -> None:
    text = "1-90 flip; 200-400 promote from 3; 401-401 suppress"
    script = Script.read(text)
    assert str(script) == text and str(Script.read(" " + text.replace(";", "  ;"))) == text
    assert [script.at(t) and script.at(t).kind for t in (0, 1, 90, 91, 200, 400, 401, 402)] == [  # type: ignore[union-attr]
        *(None, "flip", "flip", None, "promote", "promote", "suppress", None)
    ]
    assert str(Script.read("")) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("flip", "FIRST-LAST KIND"),
        ("1-9 flip;", "FIRST-LAST KIND"),
        ("1-9 flip from x", "FIRST-LAST KIND"),
        ("1-9 praise", "one of flip, promote, suppress"),
        ("9-1 flip", "in the order of their rounds"),
        ("0-5 flip", "from 1 on"),
        ("5-9 flip; 9-12 flip", "in the order"),
        (7, "lies must be text"),
    ],
)
def test_a_wrong_script_is_refused_in_words(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        attacks.Recorded(lies=text)


def test_a_script_grows_and_is_cut() -> None:
    script = Script()
    for begin, end, kind, source in (
        (1, 5, "flip", None),
        (6, 9, "flip", None),
        (10, 12, "flip", 2),
        (14, 15, "flip", 2),
    ):
        script.add(LieStretch(begin, end, kind, source))
    assert str(script) == "1-9 flip; 10-12 flip from 2; 14-15 flip from 2"
    script.cut(11)
    assert str(script) == "1-9 flip; 10-11 flip from 2"
    with pytest.raises(ValueError, match="order"):
        script.add(LieStretch(11, 12, "flip"))
    assert str(script) == "1-9 flip; 10-11 flip from 2"


def test_it_tells_each_lie_in_its_rounds() -> None:
    """By hand: the means are 0.6, 0.8 and −0.4."""
    told = play(attacks.Recorded(lies="2-2 flip; 3-3 promote; 4-4 suppress"), [0] * 5)
    assert told.lies == pytest.approx(
        np.array([[0, 0, 0], [-1.2, -1.6, 0.8], [-1.0, -1.2, 1.2], [0, -1.2, 0], [0, 0, 0]]), abs=1e-12
    )


def test_it_lies_in_the_name_of_one_source() -> None:
    world = environments.Clicks(sources=3)
    both = [Scenario(world, attacks.Recorded(lies=f"20-200 flip from {source}"), [0]) for source in (1, 2)]
    trace = simulate(policy=OFUL, scenarios=both, rounds=250, seed=1)
    first, second = trace.lies_by_source[-1]
    assert first[1] > 20 and first.sum() == first[1] and second[2] > 20 and second.sum() == second[2]


def test_lies_about_replayed_clicks_are_clicks() -> None:
    table = {"round": [1, 1, 2, 2, 3, 3], "price": [3, 5, 4, 9, 2, 7], "reward": [1, 0, 1, 0, 0, 1]}
    for kind in ("flip", "promote", "suppress"):
        told = play(attacks.Recorded(lies=f"1-6 {kind}"), [0] * 6, environments.Replay(data=table))
        assert set(told.rewards) <= {0.0, 1.0} and told.lies.any()
    ratings = environments.Replay(data={**table, "reward": [1, 0, 1, 0.5, 0, 1]})
    assert environments.Replay(data=table).clicks and not ratings.clicks


def test_a_source_that_is_not_there_is_refused() -> None:
    for world in (environments.Clicks(sources=3), environments.Paper()):
        scenario = Scenario(world, attacks.Recorded(lies="1-5 flip from 3"), [0])
        with pytest.raises(ValueError, match="below the number of sources"):
            simulate(policy=OFUL, scenarios=[scenario], rounds=5, seed=1)
