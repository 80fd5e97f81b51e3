"""`robandit.simulate`, `tune` and `arena` as someone in a notebook uses them."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import stats

import robandit
from robandit import attacks, cli, environments
from robandit.arrays import Floats
from robandit.errors import ConfigError
from robandit.experiments.notebook.entries import tables
from robandit.experiments.tune import SEED
from robandit.figures import html
from robandit.files import ResultExists
from robandit.lab import results
from robandit.lab.columns import DESCRIPTIONS
from robandit.lab.engine import Engine, carry_out
from robandit.lab.plan import Run
from robandit.logs.audit.tables import open_log
from robandit.logs.evaluate import records

DATA = Path(__file__).parents[1] / "lab" / "data"
SMALL: dict[str, Any] = {"rounds": 60, "trials": 4, "checkpoints": 5, "workers": 1}


@dataclass(kw_only=True)
class Weekend(attacks.Attack):
    """Praises the worst action on two rounds out of seven."""

    strength = "weak"
    lift: float = 0.5

    def corrupt(self, offer: Any) -> Floats | None:
        if offer.round % 7 < 5:
            return None
        lies: Floats = self.lift * (offer.means == offer.means.min(axis=1, keepdims=True))
        return lies


@dataclass(kw_only=True, eq=False)
class Unimpressed(robandit.Policy[Any]):
    """LinUCB that ignores rewards too good to be true."""

    limit: float = 1.2
    radius_scale: float = 1.0

    def start(self) -> Any:
        return self.new_ridge()

    def confidence(self, level: Any) -> robandit.Ellipsoid:
        return robandit.Ellipsoid.around(self.stats, np.full(self.batch, self.radius_scale))

    def learn(self, actions: Floats, rewards: Floats, weights: Floats, level: Any) -> None:
        self.stats.update(actions, rewards, weights * (rewards <= self.limit))


@pytest.fixture(scope="module")
def result() -> robandit.Simulation:
    policies = ["oful,radius_scale=0.1", "multi-level-weighted-oful,radius_scale=0.01"]
    return robandit.simulate(policies, "fresh,dim=4", ["none", "flip,rounds=20"], **SMALL)


# What can be given.


def test_everything_that_names_a_policy_plays_the_same() -> None:
    ways: list[Any] = [
        "oful,radius_scale=0.1",
        {"name": "OFUL", "radius_scale": 0.1},
        partial(robandit.OFUL, radius_scale=0.1),
        robandit.OFUL(dim=3, noise_range=0.5, radius_scale=0.1),
        {"oful": "oful,radius_scale=0.1"},
        [robandit.OFUL(dim=9, noise_range=0.5, radius_scale=0.1, trials=3, seed=8)],
    ]
    first, *others = [robandit.simulate(way, "fresh,dim=4", "none", **SMALL) for way in ways]
    for other in others:
        assert other.table["regret"].equals(first.table["regret"])


def test_objects_give_the_settings_that_are_not_defaults() -> None:
    assert tables("attacks", attacks.Flip(rounds=30)) == [{"name": attacks.Flip, "rounds": 30}]
    assert tables("environments", environments.Fresh(dim=4)) == [{"name": environments.Fresh, "dim": 4}]
    assert tables("policies", partial(Unimpressed, limit=2.0)) == [{"name": Unimpressed, "limit": 2.0}]
    assert tables("policies", robandit.Greedy(dim=3, noise_range=0.5))[0]["name"] is robandit.Greedy


def test_a_list_in_an_object_is_no_sweep() -> None:
    rows = {"round": [1, 1, 2, 2, 3, 3], "x": [3, 5, 4, 9, 7, 1], "y": [1, 0, 2, 2, 1, 0], "reward": [1, 0, 1, 0, 0, 1]}
    frame = pd.DataFrame(rows)
    replay = environments.Replay(data=frame, features=["x", "y"])
    found = robandit.simulate("oful", replay, **SMALL)
    assert found.table.num_rows == 4 * len(set(found.table["round"].to_pylist()))
    assert found.config["environments"][0]["features"] == [["x", "y"]]
    assert list(found.config["environments"][0]["data"]) == ["sha256", "type"]


def test_a_list_among_settings_comes_back_from_the_configuration() -> None:
    data = {"round": [1, 1, 2, 2], "x": [3, 5, 4, 9], "y": [1, 0, 2, 2], "reward": [1, 0, 1, 0]}
    replay = {"name": "replay", "data": data, "features": [["x", "y"]]}
    run = Run.read({"policies": ["oful"], "environments": [replay]})
    assert Run.read(run.plain()) == run


@pytest.mark.parametrize(
    ("policies", "message"),
    [
        ("offul", "did you mean 'oful'"),
        (5, "policies must be a list of names, classes, objects or tables, got 5"),
        ([5], "policies has 5, which is no name"),
        (partial(robandit.OFUL, *[5]), "a partial may have keywords only"),
        (Weekend, "must be a subclass of Policy"),
        ([], "policies must name at least one"),
    ],
)
def test_what_cannot_be_read_is_named(policies: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        robandit.simulate(policies, **SMALL)


# The result.


def test_it_is_what_the_command_line_makes(result: robandit.Simulation, tmp_path: Path) -> None:
    policies = ["--policy", "oful,radius_scale=0.1", "--policy", "multi-level-weighted-oful,radius_scale=0.01"]
    where = ["--environment", "fresh,dim=4", "--attack", "none", "--attack", "flip,rounds=20"]
    sizes = ["--rounds", "60", "--trials", "4", "--checkpoints", "5", "--out", str(tmp_path / "run.parquet")]
    assert cli.main(["simulate", *policies, *where, *sizes]) == 0
    result.save(str(tmp_path / "mine.parquet"))
    assert (tmp_path / "mine.parquet").read_bytes() == (tmp_path / "run.parquet").read_bytes()


def test_pandas_and_polars_read_it(result: robandit.Simulation) -> None:
    frame = pl.DataFrame(result)
    assert frame.height == result.table.num_rows and frame["regret"].to_list() == result.table["regret"].to_pylist()
    assert pa.table(result).equals(result.table)
    assert result.table.to_pandas().groupby("policy")["regret"].count().sum() == frame.height
    assert pl.DataFrame(result.summary())["policy"].n_unique() == 2


@pytest.mark.parametrize("column", ["regret", "reward", "lies"])
def test_the_summary_is_the_mean_with_its_t_interval(result: robandit.Simulation, column: str) -> None:
    frame = result.table.to_pandas()
    for row in result.summary(column).table.to_pylist():
        mine = (frame.policy == row["policy"]) & (frame.attack == row["attack"]) & (frame["round"] == 60)
        values = frame[mine][column].to_numpy(float)
        assert len(values) == row["trials"] == 4
        assert row[f"{column}_mean"] == pytest.approx(values.mean())
        if values.std() > 0.0:
            low, high = stats.t.interval(0.95, 3, values.mean(), stats.sem(values))
            assert (row[f"{column}_low"], row[f"{column}_high"]) == pytest.approx((low, high))


def test_columns_that_only_some_policies_tell_are_summed_up_for_them(result: robandit.Simulation) -> None:
    rows = result.summary("empty").table.to_pylist()
    assert {row["policy"] for row in rows} == {"multi-level-weighted-oful"}
    with pytest.raises(ConfigError, match="no column of numbers 'regrets'; did you mean 'regret'"):
        result.summary("regrets")


def test_one_trial_has_no_interval() -> None:
    found = robandit.simulate("greedy", **{**SMALL, "trials": 1}).summary()
    assert found.table["regret_mean"].null_count == 0 and "regret_low" not in found.table.column_names


def test_it_shows_itself(result: robandit.Simulation) -> None:
    assert "60 rounds, 4 trials, seed 1" in repr(result) and "multi-level-weighted-oful" in repr(result)
    html = result._repr_html_()
    assert html.count("<tr>") == 1 + 4 and "<td>flip</td>" in html
    named = robandit.simulate({"<b>": "greedy"}, **SMALL)
    assert "&lt;b&gt;" in named._repr_html_() and "<b>" not in named._repr_html_()


def test_its_pictures_can_be_shown_and_saved(result: robandit.Simulation, tmp_path: Path) -> None:
    for kind in ("regret", "corruption", "levels"):
        figure: Any = result.plot(kind)
        assert figure._repr_png_().startswith(b"\x89PNG")
        figure.savefig(tmp_path / f"{kind}.pdf")
    with pytest.raises(ConfigError, match="no picture 'regrets'; did you mean 'regret'"):
        result.plot("regrets")
    with pytest.raises(ConfigError, match="no policy here has levels"):
        robandit.simulate("greedy", **SMALL).plot("levels")


def test_a_result_is_saved_found_again_and_never_replaced_by_accident(tmp_path: Path) -> None:
    path = str(tmp_path / "run.parquet")
    found = robandit.simulate("greedy", save=path, **SMALL)
    assert robandit.Simulation.load(path).table.equals(found.table)
    assert robandit.simulate("greedy", save=path, **SMALL).table.equals(found.table)
    with pytest.raises(ResultExists, match=r"choose another save=, or replace it with force=True"):
        robandit.simulate("oful", save=path, **SMALL)
    with pytest.raises(ResultExists, match=r"choose another path=, or replace it with force=True"):
        robandit.simulate("oful", **SMALL).save(path)
    other = robandit.simulate("oful", save=path, force=True, **SMALL)
    assert robandit.Simulation.load(path).table.equals(other.table)
    (tmp_path / "note.txt").write_text("no result")
    with pytest.raises(ValueError, match=r"note.txt is not a result of robandit"):
        robandit.Simulation.load(tmp_path / "note.txt")


def test_paths_may_be_text(tmp_path: Path) -> None:
    """Wherever a file is named in Python, not in notebooks alone."""
    (tmp_path / "run.toml").write_text('policies = ["greedy"]\nrounds = 20\ntrials = 2\n')
    (tmp_path / "log.csv").write_text("x,reward\n1,2\n")
    run = Run.read_file(str(tmp_path / "run.toml"))
    done = carry_out(run, str(tmp_path / "run.parquet"), engine=Engine(workers=1))
    assert done.table.equals(results.read(str(tmp_path / "run.parquet")).table)
    assert open_log(str(tmp_path / "log.csv")) is not None
    html.write(str(tmp_path / "page.html"), "<p>")
    assert (tmp_path / "page.html").read_text() == "<p>"
    with pytest.raises(ValueError, match="JSON is malformed"):
        records.read(str(tmp_path / "log.csv"))


# The data dictionary.


def test_every_column_says_what_it_means_in_the_file(result: robandit.Simulation, tmp_path: Path) -> None:
    result.save(tmp_path / "run.parquet")
    schema = pq.read_schema(tmp_path / "run.parquet")
    told = {field.name: field.metadata[b"description"].decode() for field in schema}
    assert told == result.columns and set(told) == set(result.table.column_names)
    assert all(text == DESCRIPTIONS[name] and text.endswith(".") for name, text in told.items())


def test_the_page_explains_every_column() -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "notebooks.md").read_text(encoding="utf-8")
    for name, text in DESCRIPTIONS.items():
        assert f"| `{name}` | {text.replace('|', chr(92) + '|')} |" in page


def test_results_of_old_formats_are_read() -> None:
    for path in sorted(DATA.glob("*.parquet")):
        old = robandit.Simulation.load(path)
        assert old.summary().table.num_rows > 0 and old.columns["regret"] == DESCRIPTIONS["regret"]
        old.plot()
    assert list(DATA.glob("*.parquet"))


# Own classes, workers.


def test_workers_change_no_bit_and_get_classes_of_a_script_by_value(tmp_path: Path) -> None:
    """As in a notebook, the classes are in `__main__`, which a worker can't import."""
    source = Path(__file__).read_text(encoding="utf-8")
    classes = source[source.index("@dataclass(kw_only=True)\nclass Weekend") : source.index("@pytest.fixture")]
    script = tmp_path / "cell.py"
    script.write_text(
        "from dataclasses import dataclass\nfrom typing import Any\nimport numpy as np\nimport robandit\n"
        "from robandit import attacks\nfrom robandit.arrays import Floats\n"
        f"{classes}\n"
        "for workers in (1, 2):\n"
        "    robandit.simulate([Unimpressed, 'oful'], 'fresh,dim=4', [Weekend(lift=0.7), 'none'], rounds=80,\n"
        "                      trials=6, workers=workers, save=f'{workers}.parquet')\n"
    )
    subprocess.run([sys.executable, str(script)], cwd=tmp_path, check=True, timeout=300)
    assert (tmp_path / "1.parquet").read_bytes() == (tmp_path / "2.parquet").read_bytes()
    here = robandit.simulate(
        [Unimpressed, "oful"], "fresh,dim=4", [Weekend(lift=0.7), "none"], rounds=80, trials=6, workers=1
    )
    assert robandit.Simulation.load(tmp_path / "2.parquet").table.equals(here.table)


# Tuning and the arena.


def test_a_tuned_comparison_under_an_own_attack_is_three_lines() -> None:
    tuned = robandit.tune([Unimpressed, "oful", "greedy"], "fresh,dim=4", Weekend(lift=0.9), rounds=80, trials=3)
    result = robandit.simulate(tuned, trials=4)
    figure = result.plot()

    assert [axes.get_title(loc="left") for axes in figure.axes] == ["C\xa0=\xa0∞"]
    scales = {row["label"]: row.get("radius_scale") for row in result.config["policies"]}
    assert scales == {**tuned.scales, "greedy": None} and result.config["seed"] != SEED
    assert result.config["attacks"][0]["lift"] == 0.9 and result.config["rounds"] == 80
    assert "tuned on 3 trials of 80 rounds, seed 101" in repr(tuned) and "<td>oful</td>" in tuned._repr_html_()


def test_the_scale_is_the_best_of_the_grid_on_the_tuning_seed() -> None:
    grid = [1.0, 0.2, 0.05]
    tuned = robandit.tune("oful", "fresh,dim=4", "flip,rounds=20", rounds=80, trials=5, grid=grid)
    how: dict[str, Any] = {"rounds": 80, "trials": 5, "seed": SEED, "workers": 1}
    runs = [robandit.simulate(f"oful,radius_scale={s}", "fresh,dim=4", "flip,rounds=20", **how) for s in grid]
    regret = [run.summary().table["regret_mean"][0].as_py() for run in runs]
    assert tuned.scales == {"oful": grid[int(np.argmin(regret))]}
    assert [point.regret for point in tuned.tuned.curves["oful"]] == pytest.approx(regret)
    assert tuned.at_the_edge == [] if tuned.scales["oful"] == 0.2 else ["oful"]
    assert tuned.plot().axes


def test_no_result_uses_the_seed_of_the_tuning() -> None:
    tuned = robandit.tune("oful", rounds=20, trials=2, grid=[1.0])
    with pytest.raises(ConfigError, match="seed 101 is the one that the radius scales are tuned on"):
        robandit.simulate(tuned, seed=SEED)
    with pytest.raises(ConfigError, match="seed 101"):
        robandit.arena("greedy", "flip", "fresh sets", seed=SEED)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"policies": "greedy"}, "none of these has a radius_scale"),
        ({"policies": "oful", "grid": []}, "or the grid is empty"),
        ({"policies": "oful", "objective": "median"}, "unknown objective 'median'"),
        ({"policies": "oful,radius_scale=0.1"}, "none of these has a radius_scale that is left open"),
    ],
)
def test_what_cannot_be_tuned_is_said(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        robandit.tune(**settings, rounds=20, trials=2)


def test_own_policies_and_attacks_race_in_the_arena(tmp_path: Path) -> None:
    how: dict[str, Any] = {"rounds": 60, "trials": 4, "tune_trials": 2, "save": str(tmp_path)}
    race = robandit.arena([Unimpressed, "greedy"], [Weekend, "flip"], "fresh sets", **how)
    assert {score.policy for score in race.scores()} == {"OFUL", "Unimpressed", "Greedy"}
    config = race.results["fresh sets"].config
    own = [attack["budget"] for attack in config["attacks"] if attack["label"] == "Weekend"]
    assert own == [25.0, 100.0] and config["seed"] == 1
    assert all(attack["label"] != "Weekend" for attack in race.tuned["fresh sets"].made_from["attacks"])
    assert "Unimpressed" in repr(race) and "<td>Greedy</td>" in race._repr_html_()
    assert race.plot().axes and race.plot("fresh sets").axes
    assert sorted(path.name for path in tmp_path.glob("*.parquet")) == ["arena-1.parquet", "arena-tune-1.parquet"]
    with pytest.raises(ConfigError, match="no world 'fresh set'; did you mean 'fresh sets'"):
        race.plot("fresh set")


@pytest.mark.no_cover
def test_the_arena_does_as_the_command_does_also_with_an_attack_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    own = source[source.index("@dataclass(kw_only=True)\nclass Weekend") : source.index("@dataclass(kw_only=True, eq")]
    head = "from dataclasses import dataclass\nfrom typing import Any\nfrom robandit import attacks\n"
    (tmp_path / "mine.py").write_text(f"{head}from robandit.arrays import Floats\n{own}")
    hostile = f"{tmp_path / 'mine.py'}:Weekend"
    chosen = ["--policies", "greedy", "--attacks", f"flip,{hostile}", "--environments", "fresh sets"]
    sizes = ["--rounds", "40", "--trials", "3", "--tune-trials", "2", "--workers", "1", "--out", str(tmp_path / "out")]
    assert cli.main(["arena", "race", *chosen, *sizes]) == 0
    assert "up to 5 attacks and levels" in capsys.readouterr().err
    race = robandit.arena("greedy", ["flip", hostile], "fresh sets", rounds=40, trials=3, tune_trials=2)
    assert race.table.equals(robandit.Simulation.load(tmp_path / "out" / "arena.parquet").table)
    assert race.table["attack"].unique().to_pylist() == ["none", "flip", "Weekend"]


def test_a_policy_may_not_take_the_name_of_one_of_the_arenas() -> None:
    with pytest.raises(ConfigError, match="Greedy is one of the arena's"):
        robandit.arena({"Greedy": Unimpressed}, "flip", "fresh sets")


# Without the extras.


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import sys; sys.modules['pyarrow'] = None\nimport robandit\nrobandit.simulate"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: simulate needs pyarrow as well: pip install '.[lab]'" in found.stderr
