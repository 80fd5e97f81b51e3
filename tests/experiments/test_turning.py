"""The picture of a shop whose partner turns."""

from __future__ import annotations

import numpy as np
import pytest

from robandit.experiments.fraud.turning import TOLD, TURNS, Course, PartnerShop, course, drawn


@pytest.fixture(scope="module")
def found() -> Course:
    return course(trials=3, visits=1600, points=40)


@pytest.mark.no_cover
def test_the_quorum_lets_go_of_the_partner_and_plain_play_does_not(found: Course) -> None:
    assert found.rounds[-1] == 1600 and found.weight.shape == (40, 3)
    before = found.rounds < TURNS * 1600
    assert found.weight[before].mean() > 0.9 and found.weight[-1].max() < 0.2
    plain, quorum, told = (found.regret[label] for label in ("plain OFUL", "Quorum", TOLD))
    assert all((np.diff(regret, axis=0) >= 0.0).all() for regret in (plain, quorum, told))
    assert plain[-1].mean() > quorum[-1].mean() and quorum[-1].mean() < 0.2 * found.uniform.mean()


def test_a_trial_does_not_depend_on_the_others() -> None:
    one, three = PartnerShop(1, 100, 7), PartnerShop(3, 100, 7)
    for t in (0, 30, 99):
        for alone, together in zip(one.visit(t), three.visit(t), strict=True):
            assert np.array_equal(alone[0], together[0])
        assert one.luck(t)[0] == three.luck(t)[0]


def test_the_picture_says_what_it_shows(found: Course) -> None:
    figure = drawn(found)
    left, right = figure.axes
    legend = left.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["plain OFUL", "Quorum", TOLD]
    for label, line in zip(found.regret, left.lines, strict=False):
        assert np.array_equal(line.get_ydata(), np.median(found.regret[label], axis=1))
    assert np.array_equal(right.lines[0].get_ydata(), np.median(found.weight, axis=1))
    assert right.get_title(loc="left") == "weight of the partner with the quorum"
    figure.draw_without_rendering()
