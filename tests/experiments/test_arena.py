"""The arena: its scores by hand, its words and pictures, and all of it as a command."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from matplotlib.figure import Figure
from tables import result

from robandit import OFUL, cli
from robandit.errors import ConfigError
from robandit.experiments.arena import page as arena_page
from robandit.experiments.arena import pictures as arena_pictures
from robandit.experiments.arena import race as arena
from robandit.experiments.arena import times as arena_times
from robandit.experiments.arena import worlds as arena_worlds
from robandit.experiments.arena.race import GRID, Cells, cells, scores, standings
from robandit.experiments.intervals import ratio_words
from robandit.experiments.tune import SEED, Tuned
from robandit.figures.html import Block, CommandBlock, Facts, Grid, Section, Text
from robandit.lab.attacks import BY_SOURCE, ON_ALL_TRAFFIC
from robandit.lab.catalogue import find
from robandit.lab.plan import Run
from robandit.lab.protocol import Scenario, rehearse, simulate
from robandit.lab.results import read
from robandit.lab.summary import KEYS, Case
from thinned import longer

CLEAN = Case("here", "none", "weak", 0.0)
FLIP, FLIP_MORE = Case("here", "flip", "weak", 25.0), Case("here", "flip", "weak", 100.0)
ACE, ACE_MORE = Case("here", "ace", "strong", 25.0), Case("here", "ace", "strong", 100.0)

Regrets: TypeAlias = Mapping[Case, Mapping[str, Sequence[float]]]
REGRETS: Regrets = {
    CLEAN: {"OFUL": [2, 4], "A": [3, 6], "B †": [3, 3]},
    FLIP: {"OFUL": [12, 12], "A": [6, 6], "B †": [3, 3]},
    FLIP_MORE: {"OFUL": [6, 6], "A": [24, 24], "B †": [9, 9]},
}
TOLD = {"B †"}


def table(regrets: Regrets) -> pa.Table:
    """A result with these regrets at the end, half of them at the checkpoint before."""
    rows = [
        {
            **dict(zip(KEYS, case, strict=True)),
            "policy": policy,
            "trial": trial,
            "round": round_,
            "regret": regret * round_ / 100,
            "c_sup": case.corruption or 0.0,
            "c_play": (case.corruption or 0.0) / 2,
        }
        for case, policies in regrets.items()
        for policy, trials in policies.items()
        for trial, regret in enumerate(trials)
        for round_ in (50, 100)
    ]
    return result(rows)


def made_up() -> Cells:
    return cells(table(REGRETS))


def test_the_end_of_a_table_by_scenario_and_policy() -> None:
    found = cells(table({**REGRETS, ACE: {"OFUL": [1, 2], "A": [3, 4], "B †": [5, 6]}}))
    assert list(found) == [CLEAN, FLIP, FLIP_MORE, ACE]
    assert found[FLIP_MORE]["A"].regret.tolist() == [24, 24] and found[FLIP_MORE]["A"].spent == 100.0
    assert found[ACE]["B †"].regret.tolist() == [5, 6]
    assert found[ACE]["A"].spent == 12.5  # a strong attack pays in C_play


def test_scores_by_hand() -> None:
    rows = {row.policy: row for row in scores(made_up())}
    assert [row.policy for row in scores(made_up())] == ["B †", "OFUL", "A"]
    assert rows["A"].attacked.value == pytest.approx(4.0) and rows["A"].mean.value == pytest.approx(5.0)
    assert rows["A"].worst.value == pytest.approx(8.0) and rows["A"].where == FLIP_MORE
    assert rows["A"].price == pytest.approx((1.5, 1.5, 1.5))
    assert rows["OFUL"].price == pytest.approx((1.0, 1.0, 1.0))
    assert rows["OFUL"].attacked.value == pytest.approx(np.sqrt(8.0)) and rows["OFUL"].where == FLIP


def test_worlds_count_alike_and_have_their_own_oracle() -> None:
    there = {
        case._replace(environment="there"): {policy: [10 * x for x in xs] for policy, xs in policies.items()}
        for case, policies in REGRETS.items()
    }
    found = cells(table({**REGRETS, **there}))
    for here, both in zip(scores(made_up()), scores(found), strict=True):
        for name in ("attacked", "mean", "worst", "price"):
            assert getattr(here, name) == pytest.approx(getattr(both, name))
    assert list(arena.of_world(found, "there")) == list(there)


def test_the_best_are_those_not_told() -> None:
    found = made_up()
    assert [row.best for row in standings(found, "A", TOLD)] == ["OFUL", "A", "OFUL"]
    assert [row.factor for row in standings(found, "A", TOLD)] == pytest.approx([1.5, 1.0, 4.0])
    assert [row.among_best for row in standings(found, "B †", TOLD)] == [True, True, False]
    near = cells(table({CLEAN: {"OFUL": [10, 12, 11], "A": [11, 12, 11]}}))  # behind by less than is certain
    assert [row.among_best for row in standings(near, "A", ())] == [True]
    far = cells(table({CLEAN: {"OFUL": [10, 12, 11], "A": [20, 22.5, 21]}}))
    assert [row.among_best for row in standings(far, "A", ())] == [False]


def test_a_line_for_each_policy() -> None:
    found = made_up()
    assert arena_page.policy_words(found, "A", TOLD) == (
        "among the best in 1 of 2 attacked scenarios (here: flip 25), the best in 1; on clean data, too (here). "
        "Farthest behind: flip, C = 100, here, with 4.0 times the regret of OFUL."
    )
    assert arena_page.policy_words(found, "OFUL", TOLD).startswith(
        "among the best in 1 of 2 attacked scenarios (here: flip 100), the best in 1; on clean data, too (here). "
        "Farthest behind: flip, C = 25, here, with 2.0 times the regret of A."
    )
    alone = {case: {"OFUL": policies["OFUL"]} for case, policies in found.items()}
    assert arena_page.policy_words(alone, "OFUL", ()).endswith("Nowhere behind.")
    many = cells(table({Case("w", f"a{i}", "weak", 25.0): {"OFUL": [1, 2], "A": [3, 9]} for i in range(8)}))
    assert "8 of 8 attacked scenarios (w: 8 of 8), the best in 8; not on clean data" in arena_page.policy_words(
        many, "OFUL", ()
    )
    assert "0 of 8 attacked scenarios; not on" in arena_page.policy_words(
        cells(table({Case("w", f"a{i}", "weak", 25.0): {"OFUL": [1, 2], "A": [3, 4]} for i in range(8)})), "A", ()
    )


def test_the_answer_in_words() -> None:
    found = made_up()
    words = arena_page.verdict(found, scores(found), TOLD)
    assert words.startswith("Least regret under attack: OFUL, 2.83 [")
    assert "told apart from A by these trials" not in words  # no spread at all: 2 and 4 are apart
    assert "Least in the worst case: OFUL, 4.00 [" in words and "(flip, C = 25, here)" in words
    assert "Least on clean data: OFUL, 1.00 [1.00, 1.00] times" in words
    noisy = cells(table({**REGRETS, FLIP_MORE: {"OFUL": [2, 10], "A": [8, 20], "B †": [9, 9]}}))
    assert "told apart from A by these trials" in arena_page.verdict(noisy, scores(noisy), TOLD)


def test_the_leaderboard_ranks_those_not_told() -> None:
    grid = arena_page.leaderboard(scores(made_up()), TOLD, {"A": 1.25}, "c")
    assert [row[1] for row in grid.rows] == ["–", 1, 2]
    assert str(grid.rows[2][2]).startswith("4.00 [") and str(grid.rows[2][3]).startswith("5.00 ± ")
    assert grid.rows[2][4:] == [grid.rows[2][4], "flip\xa0100", "1.50 [1.50, 1.50]", "1.2"]
    costs = arena_page.attack_costs(made_up(), TOLD)
    assert [[*row[:4], row[5]] for row in costs.rows] == [
        ["flip", "25", "weak", "25", "A"],
        ["flip", "100", "weak", "100", "OFUL"],
    ]


def written(figure: Figure) -> list[list[str]]:
    """What is written in the cells of each panel, below the line of its title."""
    return [[text.get_text() for text in axes.texts if ":" not in text.get_text()] for axes in figure.axes[:-1]]


def test_the_heat_map_has_a_cell_for_every_scenario() -> None:
    strong: Regrets = {
        ACE: {"OFUL": [30, 30], "A": [300, 330], "B †": [3, 2.7]},
        ACE_MORE: {"OFUL": [3000, 3900], "A": [3, 3], "B †": [3, 3]},
    }
    figure = arena_pictures.heat_map(cells(table({**REGRETS, **strong})), ["OFUL", "A", "B †"], TOLD)
    *panels, _ = figure.axes
    assert written(figure) == [
        ["1.0", "4.0", "10", "1.5", "2.0", "100", "1.0", "1.0", "0.95", "weak", "strong"],
        ["1.0", "2.0", "1.2k", "1.5", "8.0", "1.0", "1.0", "3.0", "1.0", "weak", "strong"],
    ]
    for panel, level in zip(panels, ("25", "100"), strict=True):
        assert panel.get_title(loc="left").strip() == f"C = {level}"
        assert [tick.get_text() for tick in panel.get_xticklabels()] == ["no attack", "flip", "ACE"]
        assert [tick.get_text() for tick in panel.get_yticklabels()] == ["OFUL", "A", "B † †"]
        values = np.asarray(panel.collections[0].get_array()).reshape(3, 3)
        assert values[0, 0] == pytest.approx(1.0) and values.shape == (3, 3)
    bold = [text.get_text() for text in panels[0].texts if text.get_fontweight() == "bold"]
    assert bold == ["1.0", "10", "2.0"]  # the best not told C: OFUL, OFUL under ace, A under flip


@pytest.mark.no_cover
def test_names_beside_the_points_do_not_overlap() -> None:
    names = [f"policy {i}" for i in range(17)]
    regrets: Regrets = {
        case: {"OFUL": [2, 4], **{name: [3 + 0.001 * i + scale, 5 + scale] for i, name in enumerate(names)}}
        for case, scale in ((CLEAN, 0), (FLIP, 10))
    }
    figure = arena_pictures.price(scores(cells(table(regrets))), {"policy 3"})
    figure.draw_without_rendering()
    shown = [text for text in figure.axes[0].texts if text.get_text()]
    boxes = sorted((text.get_window_extent() for text in shown), key=lambda box: box.y0)
    assert {text.get_text() for text in shown} == {"OFUL", "policy 3 †", *names} - {"policy 3"}
    assert all(below.y1 <= above.y0 + 1.0 for below, above in pairwise(boxes))
    assert max(box.x1 for box in boxes) <= figure.bbox.x1 and min(box.y0 for box in boxes) >= 0.0


def test_one_trial_has_no_interval() -> None:
    found = cells(table({case: {name: xs[:1] for name, xs in rest.items()} for case, rest in REGRETS.items()}))
    rows = scores(found)
    assert ratio_words(rows[0].attacked) == "2.60"  # √(1.5 · 4.5)
    arena_pictures.price(rows, TOLD)
    assert arena_page.policy_words(found, "OFUL", TOLD).startswith("among the best in 1 of 2")


def test_markdown_says_what_the_page_says() -> None:
    blocks: list[Block] = [
        Text("Words."),
        CommandBlock("robandit x"),
        Grid(["a", "b"], [["c", 1]], "Caption."),
        Facts({"n": 2}),
    ]
    text = arena_page.markdown([Section("Title", blocks)])
    assert "## Title\n\nWords.\n\n```\nrobandit x\n```\n\nCaption.\n\n| a | b |\n| --- | --- |\n| c | 1 |" in text
    assert text.endswith("- n: 2\n")


# The settings.

OF_ONE_SOURCE = [label for label, settings in arena_worlds.ENVIRONMENTS.items() if "sources" not in settings]
OF_SOURCES = [label for label in arena_worlds.ENVIRONMENTS if label not in OF_ONE_SOURCE]


def test_every_attack_is_there_at_both_levels() -> None:
    listed = arena_worlds.attacks(2000)
    assert {(one["name"], one.get("budget")) for one in listed} == {("none", None)} | {
        (name, level) for name in ON_ALL_TRAFFIC if name != "none" for level in arena_worlds.LEVELS
    }


@pytest.mark.no_cover
@pytest.mark.parametrize("label", longer(*OF_ONE_SOURCE))
def test_every_attack_can_spend(label: str) -> None:
    settings = arena_worlds.ENVIRONMENTS[label]
    world = find("environments", settings["name"])(**{k: v for k, v in settings.items() if k != "name"})
    panels = arena_worlds.panels(settings, 2000, set(ON_ALL_TRAFFIC) - {"none"})
    weak = [one for one in panels if ON_ALL_TRAFFIC[one["name"]].strength == "weak"]
    made = [ON_ALL_TRAFFIC[one["name"]](**{k: v for k, v in one.items() if k != "name"}) for one in weak]
    assert all(world.facing(attack) == world for attack in made)  # the world does not depend on the attack
    spent = rehearse([Scenario(world, attack, [0]) for attack in made], 2000, seed=7)
    assert spent == pytest.approx([attack.budget for attack in made], rel=0.05)  # click fraud: nearly


@pytest.mark.no_cover
def test_sources_lie_where_a_world_has_some() -> None:
    entrants = arena.entrants_of(policies=["oful"])
    for label, settings in arena_worlds.ENVIRONMENTS.items():
        run = Run.read(arena.config(entrants, label, {"OFUL": 0.1}, rounds=80, trials=2, seed=1))
        names = {str(entry.kind) for entry in run.attacks} - {"none"}
        assert names == set(BY_SOURCE if "sources" in settings else ON_ALL_TRAFFIC) - {"none"}
        liars = {entry.settings.get("liars") for entry in run.attacks if entry.kind in BY_SOURCE}
        assert liars == ({2, 4} if "sources" in settings else set())


@pytest.mark.no_cover
@pytest.mark.parametrize("label", longer(*OF_SOURCES))
def test_the_budget_of_lying_sources_never_runs_out(label: str) -> None:
    settings = arena_worlds.ENVIRONMENTS[label]
    world = find("environments", settings["name"])(**{k: v for k, v in settings.items() if k != "name"})
    for one in arena_worlds.source_attacks(400):
        attack = find("attacks", one["name"])(**{k: v for k, v in one.items() if k not in ("name", "label")})
        trace = simulate(policy=OFUL, scenarios=[Scenario(world, attack, [0, 1])], rounds=400, seed=7)
        spent = trace.c_play[-1] if attack.strength == "strong" else trace.c_sup[-1]
        assert (spent > 0.0).all() and (spent < 0.98 * attack.budget).all(), one


def test_a_world_that_no_chosen_attack_fits_is_left_out() -> None:
    assert "clicks from ten sources" not in arena.entrants_of(attacks=["flip"]).environments
    assert set(arena.entrants_of(attacks=["framing"]).environments) == {
        "clicks from ten sources",
        "noise from ten sources",
    }
    with pytest.raises(ConfigError, match="attacks: none of framing is raced in fresh sets"):
        arena.entrants_of(attacks=["framing"], environments=["fresh sets"])


@pytest.mark.no_cover
def test_the_configurations_are_runs() -> None:
    entrants = arena.entrants_of(policies=["OFUL", "greedy", "robust-weighted-oful"], attacks=["late", "top-n"])
    assert entrants.told == {"Robust weighted OFUL told C"} and "Greedy" not in entrants.tuned
    tuning = Run.read(arena.tuning_config(entrants, "fresh sets", rounds=40, trials=2))
    assert tuning.seed == SEED and len(tuning.policies) == 2 * len(GRID) and len(tuning.attacks) == 9
    scales = {"OFUL": 0.5, "Robust weighted OFUL told C": 0.25}
    run = Run.read(arena.config(entrants, "fresh sets", scales, rounds=40, trials=2, seed=1))
    assert {entry.label: entry.settings.get("radius_scale") for entry in run.policies} == scales | {"Greedy": None}
    assert [(entry.label, entry.settings.get("budget")) for entry in run.attacks] == [
        ("none", None),
        ("late", 25.0),
        ("late", 100.0),
        ("top-n", 25.0),
        ("top-n", 100.0),
    ]
    assert {entry.settings["begin"] for entry in run.attacks if entry.label == "late"} == {21}


def test_policies_that_are_not_here_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ghosts = {"Ghost": {"name": "ghost"}, **arena.CONTENDERS}
    monkeypatch.setattr(arena, "CONTENDERS", ghosts)
    entrants = arena.entrants_of()
    assert entrants.missing[0] == "Ghost" and "Ghost" not in entrants.policies
    assert set(entrants.policies) | set(entrants.missing) == set(ghosts)
    with pytest.raises(ConfigError, match="policies: Ghost is not in this version"):
        arena.entrants_of(policies=["Ghost"])
    with pytest.raises(ConfigError, match="policies: unknown 'gredy'; did you mean"):
        arena.entrants_of(policies=["gredy"])
    with pytest.raises(ConfigError, match="environments: unknown"):
        arena.entrants_of(environments=["nowhere"])
    with pytest.raises(ConfigError, match="at least one beside 'none'"):
        arena.entrants_of(attacks=["none"])


def test_a_policy_of_ones_own_can_enter(tmp_path: Path) -> None:
    own = tmp_path / "mine.py"
    own.write_text("import robandit\n\nclass Mine(robandit.OFUL):\n    pass\n")
    entrants = arena.entrants_of(policies=[f"{own}:Mine"])
    assert list(entrants.policies) == ["OFUL", "Mine"] and set(entrants.tuned) == {"OFUL", "Mine"}


def test_scales_at_the_edge_are_told() -> None:
    tuned = {"here": Tuned("mean", {"A": 1.0, "B": GRID[-1], "C": 0.5}, {}), "there": Tuned("mean", {"A": 0.5}, {})}
    (words,) = arena_page.edge_words(tuned)
    assert words.endswith("beyond: A, B (here).")


# The command.

SMALL = ["--rounds", "60", "--trials", "3", "--tune-trials", "2", "--workers", "1", "--environments", "fresh sets"]
FEW = ["--policies", "greedy,Robust weighted OFUL told C", "--attacks", "late,top-n"]
MADE = {"arena.parquet", "arena-1.parquet", "arena-tune-1.parquet", "arena-scales.json", "arena-times.json"}
MADE |= {"arena-1.png", "arena-price.png", "arena.md", "arena.html", "evidence.json"}


def test_the_arena_as_a_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arena_times, "BATCH", 4)
    one, two = tmp_path / "one", tmp_path / "two"
    assert cli.main(["arena", "race", *SMALL, *FEW, "--out", str(one)]) == 0
    said = capsys.readouterr()
    assert "Least regret under attack" in said.out and "million rounds of tuning" in said.err
    assert {path.name for path in one.iterdir()} == MADE
    held = read(one / "arena.parquet")
    assert held.table.num_rows == 3 * 5 * 3 * len(held.table["round"].unique())
    assert set(held.table["policy"].unique().to_pylist()) == {"OFUL", "Greedy", "Robust weighted OFUL told C"}
    scales = json.loads((one / "arena-scales.json").read_text())["fresh sets"]
    assert scales["scales"].keys() == {"OFUL", "Robust weighted OFUL told C"} and scales["made_from"]["seed"] == SEED
    entries = held.config["policies"]["fresh sets"]
    assert {e["label"]: e["radius_scale"] for e in entries if "radius_scale" in e} == scales["scales"]
    text, page = (one / "arena.md").read_text(), (one / "arena.html").read_text()
    for words in ("Robust weighted OFUL told C †", "top-n", "C_play", "--tune-trials 2", "late 25"):
        assert words in text and words.replace("--tune-trials 2", "<span>--tune-trials</span>") in page
    before = {path.name: path.read_bytes() for path in one.iterdir()}
    assert (
        cli.main(["arena", "race", *SMALL, *FEW, "--out", str(one)]) == 0
    )  # again: nothing changes, not even the times
    assert {path.name: path.read_bytes() for path in one.iterdir()} == before
    assert cli.main(["arena", "race", *SMALL, *FEW, "--batch", "16", "--out", str(two)]) == 0
    for name in ("arena.parquet", "arena-tune-1.parquet", "arena-scales.json"):
        assert (two / name).read_bytes() == before[name]


def test_the_tuning_seed_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["arena", "race", *SMALL, "--seed", str(SEED), "--out", str(tmp_path / "o")]) == 2
    assert f"seed {SEED} is the one that the radius scales are tuned on" in capsys.readouterr().err
    assert not (tmp_path / "o").exists()
