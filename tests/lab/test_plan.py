"""The plan of a run, and the errors of a plan that can't work."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import robandit
from robandit.errors import ConfigError
from robandit.lab.attacks import ATTACKS
from robandit.lab.catalogue import find
from robandit.lab.environments import ENVIRONMENTS
from robandit.lab.plan import Run
from robandit.policies import POLICIES
from robandit.policies.settings import describe


def test_a_configuration_becomes_every_combination() -> None:
    run = Run.read(
        {
            "policies": ["oful", {"name": "greedy", "exploration": [0.0, 0.1]}],
            "attacks": ["none", {"name": "flip", "rounds": [10, 20]}],
            "environments": [{"name": "paper", "dim": [3, 5], "actions": 4}],
            "rounds": 50,
            "trials": 3,
        }
    )
    assert [entry.label for entry in run.policies] == ["oful", "greedy exploration=0.0", "greedy exploration=0.1"]
    assert [entry.label for entry in run.attacks] == ["none", "flip", "flip"]  # told apart by their C
    assert [entry.label for entry in run.environments] == ["paper dim=3", "paper dim=5"]
    assert run.size == 50 * 3 * 3 * 3 * 2
    assert sum(task.size for task in run.tasks(batch=64)) == run.size


def test_the_plain_form_gives_the_same_run_again() -> None:
    run = Run.read({"policies": ["OFUL", robandit.Greedy], "attacks": ["top_n", {"name": "Flip", "label": "liar"}]})
    assert [entry.kind for entry in run.policies] == ["oful", "greedy"]
    assert Run.read(run.plain()) == run


@pytest.mark.parametrize("batch", [1, 7, 64])
def test_tasks_cover_every_trial_once(batch: int) -> None:
    run = Run.read({"policies": ["oful", "greedy"], "attacks": ["none", "flip", "ace"], "rounds": 10, "trials": 9})
    tasks = run.tasks(batch)
    lanes = [
        (task.policy.label, attack.label, trial)
        for task in tasks
        for _, attack, trials in task.scenarios
        for trial in trials
    ]
    assert lanes == [(p, a, t) for p in ("oful", "greedy") for a in ("none", "flip", "ace") for t in range(9)]
    assert max(task.size for task in tasks) <= 10 * batch


def test_environments_of_different_shape_do_not_share_a_batch() -> None:
    run = Run.read(
        {
            "policies": ["oful"],
            "environments": ["paper", "fresh", "changing-sets", "unit-ball"],
            "attacks": ["none", "flip"],
        }
    )
    together = [[(world.label, attack.label) for world, attack, _ in task.scenarios] for task in run.tasks(batch=1000)]
    assert together == [
        [("paper", "none"), ("paper", "flip"), ("fresh", "none"), ("fresh", "flip")],
        [("changing-sets", "none"), ("changing-sets", "flip")],
        [("unit-ball", "none"), ("unit-ball", "flip")],
    ]


@pytest.mark.no_cover
def test_the_papers_environment_follows_the_attack() -> None:
    run = Run.read({"policies": ["oful"], "attacks": [{"name": "flip", "rounds": 30}, "late"]})
    trace = next(task.run() for task in run.tasks(batch=64))
    gaps = trace.gap  # (checkpoints, 20): of the decision sets
    flip, late = gaps[:, :10], gaps[:, 10:]
    assert (late == late[0]).all()  # one fixed set from the start
    fresh = trace.round <= 30
    assert (flip[~fresh] == late[~fresh]).all() and (flip[fresh] != late[fresh]).all()


BAD: list[tuple[str, dict[str, Any]]] = [
    ("unknown key 'polices'; did you mean 'policies'", {"polices": ["oful"]}),
    ("policies must name at least one of: oful", {}),
    ("policies must name at least one of: oful", {"policies": []}),
    ("policies[0]: unknown name 'offul'; did you mean 'oful'", {"policies": ["offul"]}),
    ("policies[0]: unknown name 'zzzz'; there are cobe, cw-oful", {"policies": ["zzzz"]}),
    ("policies[1] must be a name, or a table with a name, got 3", {"policies": ["oful", 3]}),
    ("policies must be a list of names or tables, at least one, got 3", {"policies": 3}),
    ("label must be text, got 3", {"policies": [{"name": "oful", "label": 3}]}),
    (
        "policies[0] (oful): unknown key 'radius_scal'; did you mean 'radius_scale'",
        {"policies": [{"name": "oful", "radius_scal": 0.1}]},
    ),
    ("unknown key 'dim'", {"policies": [{"name": "oful", "dim": 3}]}),
    ("policies: oful: radius_scale must be a number > 0", {"policies": [{"name": "oful", "radius_scale": -1}]}),
    ("policies has 'oful' twice", {"policies": ["oful", "oful"]}),
    ("attacks has 'x' twice", {"policies": ["oful"], "attacks": [{"name": "flip", "label": "x"}] * 2}),
    ("rounds must be an integer >= 1, got 0", {"policies": ["oful"], "rounds": 0}),
    ("trials must be an integer >= 1, got '3'", {"policies": ["oful"], "trials": "3"}),
    ("seed must be an integer >= 0, got -1", {"policies": ["oful"], "seed": -1}),
    (
        "attacks[0] (flip): unknown key 'round'; did you mean 'rounds'",
        {"policies": ["oful"], "attacks": [{"name": "flip", "round": 3}]},
    ),
    (
        "attacks[0] (flip): budget, if not 0, must be a number > 0",
        {"policies": ["oful"], "attacks": [{"name": "flip", "budget": -1}]},
    ),
    (
        "environments[0] (paper): sigma_low <= sigma_high <= noise_range must hold",
        {"policies": ["oful"], "environments": [{"name": "paper", "sigma_high": 2.0}]},
    ),
    (
        "attacks: ace needs finite decision sets; unit-ball has infinite",
        {"policies": ["oful"], "attacks": ["ace"], "environments": ["unit-ball"]},
    ),
    (
        "corruption must be given, since RandomFlips has no budget",
        {"policies": ["robust-weighted-oful"], "attacks": [{"name": "random-flips", "budget": None}]},
    ),
    ("radius_scale must have at least one value, got []", {"policies": [{"name": "oful", "radius_scale": []}]}),
    (
        "infinite must be True or False, got 'no'",
        {"policies": ["oful"], "environments": [{"name": "fresh", "infinite": "no"}]},
    ),
    (
        "environments: paper: an infinite set goes without",
        {"policies": ["oful"], "attacks": ["flip"], "environments": [{"name": "paper", "infinite": True}]},
    ),
    (
        "policies: oful: actions must have norm <= action_bound = 0.01",
        {"policies": [{"name": "oful", "action_bound": 0.01}]},
    ),
    (
        "policies: oful: exploration needs a finite decision set",
        {"policies": [{"name": "oful", "exploration": 0.1}], "environments": ["unit-ball"]},
    ),
    (
        "corruption must be a number, or in a simulation 'labelled' or 'realised', got 'labeled'",
        {"policies": [{"name": "robust-weighted-oful", "corruption": "labeled"}]},
    ),
    ("policies[0]: can't import 'no_such_module'", {"policies": ["no_such_module:Mine"]}),
    ("policies[0]: can't import 'none.py'", {"policies": ["none.py:Mine"]}),
    ("policies[0]: 'robandit' has no 'OFULL'; did you mean 'OFUL'", {"policies": ["robandit:OFULL"]}),
    ("policies[0]: 'robandit:Ball' must be a subclass of Policy", {"policies": ["robandit:Ball"]}),
]


@pytest.mark.parametrize(("message", "config"), BAD)
def test_errors_name_the_key_and_the_nearest(message: str, config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        Run.read(config)
    assert message in str(caught.value)


def test_a_file_is_read_and_options_replace_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('rounds = 20\npolicies = ["oful"]\n[[attacks]]\nname = "flip"\nrounds = 5\n', encoding="utf-8")
    assert Run.read_file(path).rounds == 20
    assert Run.read_file(path, rounds=30).rounds == 30
    path.write_text("rounds = = 3", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"not valid TOML.*line 1"):
        Run.read_file(path)
    with pytest.raises(ConfigError, match="can't read"):
        Run.read_file(tmp_path / "missing.toml")


def test_ones_own_classes_are_found_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        textwrap.dedent(
            """
            from dataclasses import dataclass
            from robandit import Greedy

            @dataclass(kw_only=True, eq=False)
            class Timid(Greedy):
                "Greedy, by another name."
                courage: float = 0.5
            """
        ),
        encoding="utf-8",
    )
    run = Run.read({"policies": [{"name": f"{path}:Timid", "courage": 0.1}], "rounds": 5, "trials": 2})
    assert run.policies[0].label == "Timid"
    assert [task.run().regret.shape[1] for task in run.tasks(64)] == [2]


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *(("policies", name) for name in POLICIES),
        *(("attacks", name) for name in ATTACKS),
        *(("environments", name) for name in ENVIRONMENTS),
    ],
)
def test_every_setting_is_explained(kind: str, name: str) -> None:
    found = find(kind, name)
    assert len((found.__doc__ or "").splitlines()[0]) > 10
    assert [parameter.name for parameter in describe(found) if not parameter.meaning] == []
    if kind != "policies":
        meanings = [parameter.meaning for parameter in describe(found)]
        assert [text for text in meanings if not (text[0].isupper() and text.endswith("."))] == []


def test_meanings_come_from_the_class_where_no_text_stands_below_a_setting() -> None:
    @dataclass(kw_only=True)
    class Sample:
        meanings: ClassVar[Mapping[str, str]] = {"dim": "Shared.", "depth": "Overridden."}

        dim: int
        depth: int = 2
        """Its own text."""
        width: int = 3

    class Outer:
        @dataclass(kw_only=True)
        class Sample:  # of the same name, elsewhere
            dim: int
            """Another's text."""

    told = {parameter.name: (parameter.default, parameter.meaning) for parameter in describe(Sample)}
    assert [parameter.meaning for parameter in describe(Outer.Sample)] == ["Another's text."]
    assert told == {"dim": (MISSING, "Shared."), "depth": (2, "Its own text."), "width": (3, "")}


def test_none_can_be_said_in_toml_and_on_the_command_line() -> None:
    run = Run.read({"policies": ["oful"], "attacks": [{"name": "top-n", "budget": "none"}]})
    assert run.attacks[0].settings == {"budget": None}


def test_numpy_numbers_are_plain_in_the_configuration() -> None:
    run = Run.read({"policies": [{"name": "oful", "radius_scale": [np.float64(0.5), np.float32(0.25)]}]})
    assert json.loads(json.dumps(run.plain()))["policies"][1]["radius_scale"] == 0.25


def test_a_file_with_helpers_beside_it_and_one_with_an_error(tmp_path: Path) -> None:
    (tmp_path / "helper_beside.py").write_text("from robandit import Greedy\n")
    (tmp_path / "mine.py").write_text(
        "from helper_beside import Greedy\nclass Outer:\n    class Mine(Greedy):\n        pass\n"
    )
    assert Run.read({"policies": [f"{tmp_path / 'mine.py'}:Outer.Mine"]}).policies[0].label == "Outer.Mine"
    (tmp_path / "bad.py").write_text("def (:\n")
    with pytest.raises(ConfigError, match="can't import .*SyntaxError"):
        Run.read({"policies": [f"{tmp_path / 'bad.py'}:Mine"]})


def test_the_example_in_the_repository_is_a_run() -> None:
    path = Path(__file__).parents[2] / "examples" / "race.toml"
    run = Run.read_file(path, rounds=5, trials=2)
    assert [entry.label for entry in run.policies][-1] == "Multi-level weighted OFUL"
    assert len(run.attacks) == 3 and Run.read_file(path).rounds == 5000
