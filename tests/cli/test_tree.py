"""The tree of commands: what there is, how it is listed, what a misspelt word gets, and what starting costs."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import robandit
from robandit import cli
from robandit.cli.command import Command, CommandGroup
from robandit.cli.tree import ROBANDIT, find

TREE: dict[str, dict[str, list[str]]] = {
    "Look at feedback": {"audit": [], "evaluate": [], "replay": []},
    "Serve decisions": {
        "serve": [],
        "key": [],
        "check": [],
        "backup": [],
        "restore": [],
        "import": [],
        "export": [],
        "cut": [],
        "forget": [],
        "shrink": [],
    },
    "The lab": {"simulate": [], "plot": [], "list": ["policies", "attacks", "environments"], "data": [], "play": []},
    "The experiments": {
        "paper": ["tune", "figure1", "variance", "verify", "report"],
        "arena": ["race", "alarm", "real"],
    },
}


def leaves(group: CommandGroup = ROBANDIT, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Command]]:
    for member in group.members():
        place = (*path, member.name)
        if isinstance(member, CommandGroup):
            yield from leaves(member, place)
        else:
            yield place, member


LEAVES = dict(leaves())


def groups() -> list[list[str]]:
    return [[], *([member.name] for member in ROBANDIT.members() if isinstance(member, CommandGroup))]


def options_of(command: Command) -> list[argparse.Action]:
    parser = argparse.ArgumentParser(add_help=False)
    command.options(parser)
    return parser._actions


def test_the_tree() -> None:
    found = {
        heading: {
            member.name: [inner.name for inner in member.members()] if isinstance(member, CommandGroup) else []
            for member in members
        }
        for heading, members in ROBANDIT.headed.items()
    }
    assert found == TREE
    names = [path[-1] for path in LEAVES] + [name for (name,) in groups()[1:]]
    assert len(set(names)) == len(names)  # or a suggestion could mean two commands


def test_robandit_alone_lists_the_commands_under_headings(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 0
    shown = capsys.readouterr()
    assert cli.main(["--help"]) == 0
    assert capsys.readouterr() == shown and shown.err == ""
    lines = shown.out.splitlines()
    for heading, names in TREE.items():
        place = lines.index(f"{heading}:")
        for name, line in zip(names, lines[place + 1 :], strict=False):
            assert line.split()[0] == name


@pytest.mark.parametrize("path", groups(), ids=" ".join)
def test_the_help_of_a_group(path: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    found, name, _ = find(path, ROBANDIT)
    assert isinstance(found, CommandGroup)
    assert cli.main([*path, "-h"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: {name} COMMAND") and "exit codes: 0 done" in text
    for member in found.members():
        assert f"  {member.name}" in text and member.about in text
        assert member.about[0].isupper() and member.about.endswith(".")
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.no_cover
@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_the_help_of_a_command(
    path: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main([*path, "--help"]) == 0
    shown = capsys.readouterr()
    assert shown.err == "" and shown.out.startswith(f"usage: robandit {' '.join(path)} ")
    assert LEAVES[path].description in shown.out and "exit codes: 0 done" in shown.out
    assert max(map(len, shown.out.splitlines())) <= 80
    for action in options_of(LEAVES[path]):
        for word in action.option_strings or [action.dest]:
            assert word in shown.out
        assert action.help is not None and action.help[0].isupper() and action.help.endswith(".")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("simulte", "there is no command 'simulte'; did you mean 'simulate'?"),
        ("Audit", "there is no command 'Audit'; did you mean 'audit'?"),
        ("paper figure2", "there is no command 'paper figure2'; did you mean 'robandit paper figure1'?"),
        ("list polices", "there is no command 'list polices'; did you mean 'robandit list policies'?"),
        ("paper race", "there is no command 'paper race'; did you mean 'robandit arena race'?"),
        ("paper simulate", "there is no command 'paper simulate'; did you mean 'simulate'?"),
        ("paper zzzz", "there is no command 'paper zzzz'; there are figure1, report, tune, variance, verify"),
        ("arena --rounds 5", "`robandit arena` needs a command before --rounds; there are race, alarm"),
        ("--verson", "`robandit` needs a command before --verson; there are audit"),
        ("simulate --polcy oful", "unrecognized arguments: --polcy; did you mean '--policy'?"),
        ("simulate --polcy=oful", "unrecognized arguments: --polcy; did you mean '--policy'?"),
        ("audit log.csv --niose 0.5", "unrecognized arguments: --niose; did you mean '--noise'?"),
        ("paper figure1 --trails 3", "unrecognized arguments: --trails; did you mean '--trials'?"),
        ("key me --zzz", "unrecognized arguments: --zzz; "),
        ("plot", "the following arguments are required: result; see `robandit plot --help`"),
        ("plot one two", "unrecognized arguments: two; see `robandit plot --help`"),
        ("plot one --format bmp", "argument --format: invalid choice: 'bmp'"),
        ("plot --", "the following arguments are required: result"),
        ("simulate --rounds few", "argument --rounds: invalid int value: 'few'"),
        ("evaluate log --rewards 1", "argument --rewards/--reward-range: should be LOW,HIGH, got '1'"),
        ("evaluate log --rewards=1,b", "argument --rewards/--reward-range: should be LOW,HIGH, got '1,b'"),
    ],
)
def test_wrong_words_get_one_line(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words.split()) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"robandit: {message}") and said.err.count("\n") == 1


@pytest.mark.parametrize("path", [path for path in LEAVES if len(path) == 2], ids=" ".join)
def test_a_command_without_its_group_is_found(path: tuple[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    group, name = path
    assert cli.main([name, "--out", "x"]) == 2
    message = f"robandit: there is no command {name!r}; did you mean 'robandit {group} {name}'?\n"
    assert capsys.readouterr() == ("", message)


def test_options_may_be_shortened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--pol", "oful", "--tri", "0", "--out", str(tmp_path / "run.parquet")]
    assert cli.main(["simulate", *words]) == 2
    assert "trials must be an integer >= 1, got 0" in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"robandit {robandit.__version__}\n"


def loaded(code: str) -> set[str]:
    """The modules that are there after some code has run in a process of its own."""
    code = f"import sys; {code}; print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stderr.splitlines()[-1].split())


@cache
def the_core() -> set[str]:
    """The modules that the package alone loads."""
    return loaded("import robandit")


HEAVY = {"matplotlib", "pyarrow", "msgspec", "joblib", "tqdm", "scipy", "starlette", "uvicorn", "httpx"}


@pytest.mark.parametrize("words", ["", "--help", "paper --help", "key me admin --keys KEYS", "simulte"])
def test_a_command_loads_only_what_it_needs(words: str, tmp_path: Path) -> None:
    given = words.replace("KEYS", str(tmp_path / "keys.json")).split()
    there = loaded(f"from robandit.cli import main; main({given!r})")
    assert not there & HEAVY
    more = {name for name in there - the_core() if name.startswith("robandit.")}
    assert {name.split(".")[1] for name in more} <= {"cli", "errors", "files", "figures", "service"}
    assert {name for name in more if name.startswith("robandit.service")} <= {
        "robandit.service",
        "robandit.service.web",
        "robandit.service.web.keys",
        "robandit.service.refused",
    }


def test_importing_the_command_line_is_light() -> None:
    there = loaded("import robandit.cli")
    assert not there & HEAVY
    assert not {name for name in there if name.startswith(("robandit.experiments", "robandit.logs", "robandit.wire"))}
    assert {name for name in there if name.startswith("robandit.lab")} <= loaded("import robandit")
