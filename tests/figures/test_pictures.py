"""The pictures show what the table says, and all of it can be read."""

from __future__ import annotations

import io
import subprocess
import sys
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.text import Text
from scipy import optimize, stats

from robandit.arrays import Floats
from robandit.figures.names import POLICY_NAMES, policy_names
from robandit.figures.pictures import (
    COLORS,
    FONT,
    PICTURES,
    WIDTH,
    level_use,
    regret_against_corruption,
    regret_curves,
    spread_apart,
    tails,
)
from robandit.lab.summary import Case, summary, t_quantile
from robandit.policies import POLICIES
from thinned import thinned

pa = pytest.importorskip("pyarrow")

Scenario = tuple[str, str, str, float | None]
CLEAN: Scenario = ("paper", "none", "weak", 0.0)
ROUNDS = [1, 2, 5, 13, 34, 89, 233, 610, 1597, 4181, 10_000]
FIVE = ["OFUL", "Weighted OFUL", "Greedy", "Robust weighted OFUL (C known)", "Multi-level weighted OFUL"]


def flips(*limits: float, environment: str = "paper") -> list[Scenario]:
    return [(environment, "flip", "weak", float(limit)) for limit in limits]


def ace(environment: str = "paper") -> Scenario:
    return environment, "ace", "strong", None


def make(policies: list[str], scenarios: list[Scenario], trials: int = 6, shuffle: bool = False) -> Any:
    """A table as a run leaves it; policies called Multi… have four levels, of which they never use the last."""
    rng = np.random.default_rng(5)
    rows = []
    for p, policy in enumerate(policies):
        for environment, attack, strength, limit in scenarios:
            for trial in range(trials):
                slope = (p % 4 + 1) * rng.uniform(3, 5) * (1 + (limit or 100.0) / 300)
                for t in ROUNDS:
                    multi = policy.startswith("Multi")
                    row: dict[str, Any] = {"policy": policy, "environment": environment, "attack": attack}
                    row |= {"strength": strength, "C": limit, "trial": trial, "round": t, "regret": slope * t**0.5}
                    spent = (100.0 + p if limit is None else limit) * t / 2e4
                    row |= {"c_sup": spent, "c_play": spent, "updates": t}
                    row |= {"empty": trial * multi, "cascade": 3 * trial * multi, "gap": 0.1, "smallest_gap": 0.1}
                    rows.append(row | {"level_use": [t - t // 4 - t // 50, t // 4, t // 50, 0] if multi else []})
    if shuffle:
        rows = [rows[i] for i in rng.permutation(len(rows))]
    types = {"policy": pa.string(), "environment": pa.string(), "attack": pa.string(), "strength": pa.string()}
    types |= dict.fromkeys(("trial", "round", "updates", "empty", "cascade"), pa.int64())
    types |= {"level_use": pa.list_(pa.int64())}
    return pa.Table.from_pylist(rows, pa.schema({name: types.get(name, pa.float64()) for name in rows[0]}))


def regrets(table: Any, policy: str, scenario: Scenario, t: int = ROUNDS[-1]) -> np.ndarray:
    """One policy's regrets in a scenario after round t, the slow way."""
    keys = ("policy", "environment", "attack", "strength", "C", "round")
    wanted = (policy, *scenario, t)
    return np.array([row["regret"] for row in table.to_pylist() if tuple(row[key] for key in keys) == wanted])


def title(axes: Axes) -> str:
    return axes.get_title(loc="left").replace("\xa0", " ").replace("\n", " ")


def words(figure: Figure) -> str:
    return " ".join(text.get_text().replace("\xa0", " ") for text in figure.findobj(Text))


def lines(axes: Axes) -> dict[str, Any]:
    """The curves of a panel by policy."""
    return {str(line.get_label()): line for line in axes.lines if not str(line.get_label()).startswith("_")}


# The statistics.


@pytest.mark.parametrize("level", [0.01, 0.5, 0.9, 0.95, 0.99, 0.9999])
def test_t_quantile_is_students(level: float) -> None:
    freedoms = [*range(1, 60), 99, 100, 999, 1000, 99_999, 100_000]
    expected = stats.t.ppf((1 + level) / 2, freedoms)
    np.testing.assert_allclose([t_quantile(level, nu) for nu in freedoms], expected, rtol=1e-9)


@pytest.mark.no_cover
@pytest.mark.parametrize("trials", [2, 3, 6])
def test_summary_is_the_mean_and_its_t_interval_whatever_the_order_of_rows(trials: int) -> None:
    table = make(FIVE[:2], [CLEAN, *flips(180, 30), ace()], trials, shuffle=True)
    curves = summary(table)
    assert len(curves) == 4
    for case, policies in curves.items():
        for policy, curve in policies.items():
            assert curve.rounds.tolist() == ROUNDS and curve.trials == trials
            for i, t in enumerate(ROUNDS):
                sample = regrets(table, policy, case, t)
                low, high = stats.t.interval(0.95, trials - 1, sample.mean(), stats.sem(sample))
                np.testing.assert_allclose(curve.mean[i], sample.mean(), rtol=1e-12)
                np.testing.assert_allclose(2 * curve.half[i], high - low, rtol=1e-9)


def test_scenarios_come_as_in_the_table_but_by_ascending_limit() -> None:
    table = make(["b", "a"], [CLEAN, ace(), *flips(180, 30)])
    assert list(summary(table)) == [CLEAN, ace(), *flips(30, 180)]
    assert list(summary(table)[Case(*CLEAN)]) == ["b", "a"]


@pytest.mark.no_cover
@given(st.lists(st.floats(0, 1), min_size=1, max_size=7), st.floats(0.01, 0.14))
def test_labels_are_spread_with_the_least_largest_move(wanted: list[float], gap: float) -> None:
    want = np.sort(wanted)
    got, n = spread_apart(want, gap), len(want)
    assert (np.diff(got) >= gap - 1e-12).all() and got.min() >= 0 and got.max() <= 1 + 1e-12
    eye, ones, step = np.eye(n), np.ones((n, 1)), np.diff(np.eye(n), axis=0)
    rows = np.block([[eye, -ones], [-eye, -ones], [-step, np.zeros((n - 1, 1))]])  # of (places, largest move)
    limits = np.concatenate([want, -want, np.full(n - 1, -gap)])
    best = optimize.linprog([*np.zeros(n), 1], rows, limits, bounds=[(0, 1)] * n + [(0, None)])
    assert np.abs(got - want).max() <= best.fun + 1e-7


# Regret over the rounds.


@pytest.mark.no_cover
def test_a_panel_for_each_scenario_says_which() -> None:
    figure = regret_curves(make(FIVE, [CLEAN, *flips(90, 180), ace()]))
    assert [title(axes) for axes in figure.axes] == [
        "no attack",
        "flip, C = 90",
        "flip, C = 180",
        "ACE, C = ∞",
    ]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == FIVE
    assert "mean of 6 trials with its 95 % interval" in legend.get_title().get_text()
    assert {"round", "regret"} <= {text.get_text() for text in figure.texts} | {figure.get_supxlabel()}


@pytest.mark.no_cover
def test_curves_and_bands_are_the_means_and_t_intervals() -> None:
    scenarios = [CLEAN, *flips(90)]
    table = make(FIVE, scenarios)
    for axes, scenario in zip(regret_curves(table).axes, scenarios, strict=True):
        assert axes.get_xscale() == axes.get_yscale() == "linear"
        drawn = lines(axes)
        assert list(drawn) == FIVE
        for policy, band in zip(FIVE, axes.collections, strict=True):
            samples = [regrets(table, policy, scenario, t) for t in ROUNDS]
            np.testing.assert_allclose(drawn[policy].get_xdata(), ROUNDS)
            np.testing.assert_allclose(drawn[policy].get_ydata(), np.mean(samples, axis=1))
            corners = np.asarray(band.get_paths()[0].vertices)
            for t, sample in zip(ROUNDS, samples, strict=True):
                at = corners[corners[:, 0] == t, 1]
                interval = stats.t.interval(0.95, len(sample) - 1, sample.mean(), stats.sem(sample))
                np.testing.assert_allclose([at.min(), at.max()], interval, rtol=1e-9)


def test_the_mean_at_the_end_stands_beside_the_panel() -> None:
    table = make(FIVE, flips(90))
    (axes,) = regret_curves(table).axes
    shown = {text.get_text() for text in axes.texts}
    assert {f"{regrets(table, policy, flips(90)[0]).mean():.0f}" for policy in FIVE} <= shown


def test_one_trial_has_no_interval() -> None:
    table = make(FIVE, [CLEAN, *flips(90)], trials=1)
    figure = regret_curves(table)
    assert figure.legends[0].get_title().get_text().startswith("one trial")
    assert not any(len(band.get_paths()) for axes in figure.axes for band in axes.collections)
    np.testing.assert_allclose(lines(figure.axes[0])["OFUL"].get_ydata()[-1], regrets(table, "OFUL", CLEAN)[0])
    assert "95 %" not in words(regret_against_corruption(table))


@pytest.mark.no_cover
def test_a_policy_may_be_missing_from_a_scenario() -> None:
    table = pa.concat_tables([make(FIVE[:2], [CLEAN, *flips(90)]), make(FIVE[2:3], flips(90))])
    for figure, panels in ((regret_curves(table), 2), (regret_against_corruption(table), 1)):
        assert len(figure.axes) == panels and len(figure.legends[0].get_texts()) == 3
    assert [len(lines(axes)) for axes in regret_curves(table).axes] == [2, 3]


# Regret against corruption.


def error_bars(axes: Axes) -> list[ErrorbarContainer]:
    return [container for container in axes.containers if isinstance(container, ErrorbarContainer)]


def ends(axes: Axes) -> dict[str, tuple[list[float], Floats, Floats]]:
    """Each policy's C, means, and halves of intervals."""
    found = {}
    for container in error_bars(axes):
        line, _, (bars,) = container.lines
        assert isinstance(bars, LineCollection)
        spans = np.array([segment[:, 1] for segment in bars.get_segments()])
        x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        found[str(container.get_label())] = x.tolist(), y, np.ptp(spans, axis=1) / 2
    return found


def test_panels_say_only_what_tells_them_apart() -> None:
    """So that a picture of one attack can go into a paper as it is."""
    assert [title(axes) for axes in regret_curves(make(FIVE[:2], flips(0, 60))).axes] == ["C = 0", "C = 60"]
    both = [*flips(60), *flips(60, environment="per-action-noise")]
    names = [title(axes) for axes in regret_curves(make(FIVE[:2], both)).axes]
    assert names == ["paper, C = 60", "per-action noise, C = 60"]


def test_the_legend_names_policies_as_a_paper_does() -> None:
    labels = ["multi-level-weighted-oful radius_scale=0.004", "multi-level-weighted-oful radius_scale=0.03", "Mine 2"]
    seen = words(regret_curves(make(labels, flips(60))))
    assert "Multi-level weighted OFUL, scale 0.004" in seen and "Mine 2" in seen and "radius_scale" not in seen


def test_names_stay_apart() -> None:
    """A user's label that reads like one of ours is not given to two policies."""
    assert policy_names(["oful", "OFUL"]) == {"oful": "oful", "OFUL": "OFUL"}
    assert set(POLICY_NAMES) == set(POLICIES)


@pytest.mark.no_cover
def test_each_attack_has_a_panel_and_the_clean_runs_are_its_zero() -> None:
    both: list[Scenario] = [CLEAN, *flips(180, 90), ("paper", "late", "weak", 50.0), ace()]
    table = make(FIVE, both)
    figure = regret_against_corruption(table)
    assert [title(axes) for axes in figure.axes] == ["flip", "late"]
    for axes, scenarios in zip(figure.axes, ([CLEAN, *flips(90, 180)], [CLEAN, both[3]]), strict=True):
        for policy, (limits, means, halves) in ends(axes).items():
            assert limits == [scenario[3] for scenario in scenarios]
            for scenario, mean, half in zip(scenarios, means, halves, strict=True):
                sample = regrets(table, policy, scenario)
                low, high = stats.t.interval(0.95, len(sample) - 1, sample.mean(), stats.sem(sample))
                np.testing.assert_allclose([mean, 2 * half], [sample.mean(), high - low], rtol=1e-9)


def test_an_attack_with_a_zero_of_its_own_keeps_it() -> None:
    table = make(["OFUL"], [CLEAN, *flips(0, 90)])
    limits, means, _ = ends(regret_against_corruption(table).axes[0])["OFUL"]
    assert limits == [0, 90]
    np.testing.assert_allclose(means[0], regrets(table, "OFUL", flips(0)[0]).mean())


def test_the_clean_runs_of_another_environment_are_not_borrowed() -> None:
    figure = regret_against_corruption(make(["OFUL"], [CLEAN, *flips(90, environment="sphere")]))
    assert [title(axes) for axes in figure.axes] == ["paper, no attack", "sphere, flip"]
    assert [ends(axes)["OFUL"][0] for axes in figure.axes] == [[0], [90]]


def test_a_single_limit_is_drawn_as_points_side_by_side() -> None:
    figure = regret_against_corruption(make(FIVE, flips(90)))
    (axes,) = figure.axes
    assert axes.get_xticks().tolist() == [90]
    figure.draw_without_rendering()
    places = [line.get_transform().transform((90, 1))[0] for line in lines_of_bars(axes)]
    assert (np.diff(places) > 5).all()


def lines_of_bars(axes: Axes) -> list[Any]:
    return [container.lines[0] for container in error_bars(axes)]


def test_without_a_limit_there_is_a_note() -> None:
    figure = regret_against_corruption(make(FIVE, [ace()]))
    assert not figure.axes and "No attack here has a limit C" in words(figure)


# The use of levels.


def test_shares_of_levels_are_drawn_with_what_came_up_empty() -> None:
    figure = level_use(make(FIVE, [CLEAN, *flips(90), ace()]))
    assert figure is not None
    panel, bar = figure.axes
    assert title(panel) == "Multi-level weighted OFUL"
    shares: Any = panel.collections[0].get_array()
    t = ROUNDS[-1]
    np.testing.assert_allclose(shares[:, :3], [[(t - t // 4 - t // 50) / t, 0.25, 0.02]] * 3)
    assert shares.mask[:, 3].all()  # never: blank
    labels = [text.get_text().replace("\xa0", " ") for text in panel.get_yticklabels()]
    assert labels == ["no attack", "flip, C = 90", "ACE, C = ∞"]
    numbers = [text.get_text() for text in panel.texts]
    assert numbers == ["empty\nsets", *["2.5"] * 3, "cascade\nsteps", *["7.5"] * 3]
    assert bar.get_xscale() == "log" and panel.yaxis_inverted()


def test_each_policy_with_levels_and_each_environment_has_a_map() -> None:
    table = make(["Multi A", "OFUL", "Multi B"], [CLEAN, *flips(90, environment="sphere")])
    figure = level_use(table)
    assert figure is not None
    expected = ["paper: Multi A", "sphere: Multi A", "paper: Multi B", "sphere: Multi B"]
    assert [title(axes) for axes in figure.axes[:-1]] == expected


def test_without_levels_there_is_no_picture() -> None:
    assert level_use(make(["OFUL"], [CLEAN])) is None


# What all pictures have in common.

MANY = [CLEAN, *flips(30, 90, 180, 450, 900), ("paper", "garcelon-simplified", "strong", 1e6), ace()]
MANY += [("paper", f"bursts length={i}", "weak", 50.0 * i) for i in range(1, 5)]
LONG = ["Multi-level weighted OFUL (radius_scale=0.004, horizon=10000, exploration=0.05, delta=0.01, sigma_floor=0.2)"]
SITUATIONS: dict[str, tuple[list[str], list[Scenario], int]] = {
    "one panel": (FIVE, flips(90), 6),
    "one trial": (FIVE, [CLEAN, *flips(90)], 1),
    "two trials": (FIVE, [CLEAN, *flips(90, 180)], 2),
    "four panels": (FIVE, [CLEAN, *flips(30, 90, 180)], 6),
    "seven panels": (FIVE, [CLEAN, *flips(30, 90, 180, 450, 900), ace()], 6),
    "24 panels, 8 policies": (
        [*FIVE, "Multi-level at scale 1", "uniform", "LinUCB"],
        MANY + [("drifting-catalogue", *scenario[1:]) for scenario in MANY],
        2,
    ),
    "long labels": (
        [*LONG, "OFUL"],
        [CLEAN, ("a-very-long-environment-name-indeed", "a-rather-long-attack-name-as-well", "strong", 123456.0)],
        3,
    ),
}


@pytest.fixture(scope="module", params=thinned(SITUATIONS, fast=set(SITUATIONS) - {"24 panels, 8 policies"}))
def table(request: pytest.FixtureRequest) -> Any:
    policies, scenarios, trials = SITUATIONS[request.param]
    return make(policies, scenarios, trials)


def boxes(figure: Figure) -> list[tuple[str, Any]]:
    """What must not run into one another: texts and the numbers of axes."""
    canvas: Any = FigureCanvasAgg(figure)
    renderer = canvas.get_renderer()
    figure.draw_without_rendering()
    found = [(text.get_text(), text.get_window_extent(renderer)) for text in figure.texts]
    found += [("legend", legend.get_window_extent(renderer)) for legend in figure.legends]
    for axes in figure.axes:
        texts = [axes.title, axes.xaxis.label, axes.yaxis.label, *axes.texts]
        texts += [child for child in axes.get_children() if isinstance(child, Text)]
        for text in {id(text): text for text in texts if text.get_text()}.values():
            found.append((text.get_text(), text.get_window_extent(renderer)))
        both: list[Any] = [axes.xaxis, axes.yaxis]
        for axis in both:
            for tick in axis._update_ticks():  # those within view
                if tick.label1.get_visible() and tick.label1.get_text():
                    found.append((f"tick {tick.label1.get_text()}", tick.label1.get_window_extent(renderer)))
    return found


@pytest.mark.no_cover
@pytest.mark.parametrize("name", PICTURES)
def test_all_can_be_read(name: str, table: Any) -> None:
    figure = PICTURES[name](table)
    assert figure is not None
    found = boxes(figure)
    page = figure.bbox
    for text, box in found:
        assert box.x0 >= -1 and box.y0 >= -1 and box.x1 <= page.x1 + 1 and box.y1 <= page.y1 + 1, f"{text} is cut off"
    low, high = (np.array([getattr(box, corner) for _, box in found]) for corner in ("min", "max"))
    shared = np.minimum(high[:, None], high) - np.maximum(low[:, None], low)  # width and height of what two share
    for one, other in np.argwhere((shared[..., 0] >= 1) & (shared[..., 1] >= 3)):
        assert one == other, f"{found[one][0]!r} and {found[other][0]!r} run into one another"
    assert figure.get_figwidth() == WIDTH and figure.get_figheight() < 11.7  # inches: an A4 page
    assert min(float(text.get_fontsize()) for text in figure.findobj(Text) if text.get_text()) >= FONT == 8


@pytest.mark.parametrize("name", PICTURES)
@pytest.mark.no_cover
def test_the_same_table_gives_the_same_picture_and_settings_stay(name: str) -> None:
    table, before = make(FIVE, [CLEAN, *flips(90)]), dict(mpl.rcParams)
    images = []
    for _ in range(2):
        figure, image = PICTURES[name](table), io.BytesIO()
        assert figure is not None
        figure.savefig(image, format="png", metadata={"Software": None})
        images.append(image.getvalue())
    assert images[0] == images[1] and dict(mpl.rcParams) == before


@pytest.mark.no_cover
def test_policies_look_different_in_colour_and_in_grey_and_alike_everywhere() -> None:
    policies = [f"policy {i}" for i in range(12)]
    table = make(policies, [CLEAN, *flips(90)], trials=2)
    looks = []
    for axes in (*regret_curves(table).axes, *regret_against_corruption(table).axes):
        drawn = lines(axes) or {str(bars.get_label()): bars.lines[0] for bars in error_bars(axes)}
        looks.append([(drawn[p].get_color(), drawn[p]._dash_pattern, drawn[p].get_marker()) for p in policies])
    assert looks[0] == looks[1] == looks[2]
    assert len({(str(dash), marker) for _, dash, marker in looks[0]}) == 12
    assert len({color for color, _, _ in looks[0][:7]}) == 7 == len(COLORS)


def test_neither_pyplot_nor_pyarrow_is_imported() -> None:
    names = ("matplotlib.pyplot", "pyarrow")
    code = f"import sys, robandit.figures.pictures; print([m for m in {names} if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


@pytest.mark.no_cover
def test_bars_and_marks_show_the_quantiles_the_mean_and_the_worst_of_the_last_round() -> None:
    table = make(FIVE[:3], [CLEAN, *flips(30)], trials=150)
    figure = tails(table)
    (clean, _) = summary(table)
    for place, curve in enumerate(summary(table)[clean].values()):
        (panel, *_) = figure.axes
        patches: list[Any] = list(panel.patches)
        bars = [bar for bar in patches if round(bar.get_x() + bar.get_width() / 2) == place]
        ends = sorted((bar.get_y(), bar.get_y() + bar.get_height()) for bar in bars)
        wanted = [(curve.spread.quantile(low)[-1], curve.spread.quantile(1.0 - low)[-1]) for low in (0.01, 0.1, 0.25)]
        assert np.array(ends) == pytest.approx(np.array(wanted))
        drawn: list[Any] = [line for line in panel.lines if round(np.asarray(line.get_xdata()).mean()) == place]
        marks = [float(line.get_ydata()[-1]) for line in drawn]
        assert marks == pytest.approx([curve.spread.quantile(0.5)[-1], curve.mean[-1], curve.spread.worst[-1]])


def test_bands_of_quantiles_are_around_the_median() -> None:
    table = make(FIVE[:2], [CLEAN], trials=150)
    figure = regret_curves(table, "quantiles")
    (curves,) = summary(table).values()
    for policy, line in zip(curves, figure.axes[0].lines, strict=False):
        assert line.get_ydata() == pytest.approx(curves[policy].spread.quantile(0.5))
    bottoms = [float(np.asarray(band.get_paths()[0].vertices)[:, 1].max()) for band in figure.axes[0].collections]
    tops = [float(curve.spread.quantile(high).max()) for curve in curves.values() for high in (0.95, 0.75)]
    assert bottoms == pytest.approx(tops)
    assert "median of 150 trials" in figure.legends[0].get_title().get_text()
