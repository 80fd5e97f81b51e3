"""The command line, as a user sees it."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from robandit import cli
from robandit.cli import command
from robandit.lab.attacks import ATTACKS
from robandit.lab.environments import ENVIRONMENTS
from robandit.policies import POLICIES

SMALL = ["--environment", "paper,dim=3,actions=4", "--rounds", "30", "--trials", "3", "--workers", "1"]


def run(*arguments: str) -> int:
    return cli.main(list(arguments))


def test_simulate_then_plot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "race.parquet"
    attack = "flip,rounds=[0,5]"
    policies = ["--policy", "oful,radius_scale=0.4", "--policy", "multi-level-weighted-oful,label=ML,radius_scale=0.01"]
    assert run("simulate", *policies, "--attack", attack, *SMALL, "--out", str(out)) == 0
    said = capsys.readouterr()
    assert re.search(r"paper +flip +10 +\d+\.\d +ML +\d+\.\d ± \d", said.out)
    assert "360 rounds in" in said.out and str(out) in said.out
    assert said.err == ""  # no bar where nobody looks
    assert run("plot", str(out)) == 0
    names = ["race-corruption.png", "race-levels.png", "race-regret.png", "race-tails.png"]
    assert sorted(path.name for path in out.parent.glob("*.png")) == names
    assert run("plot", str(out)) == 2
    assert "would be overwritten" in capsys.readouterr().err
    options = ["--force", "--format", "pdf", "--bands", "quantiles"]
    assert run("plot", str(out), *options, "--out", str(tmp_path / "pdf")) == 0
    assert len(list((tmp_path / "pdf").glob("*.pdf"))) == 4


def test_a_config_file_and_options_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config, out = tmp_path / "run.toml", tmp_path / "run.parquet"
    config.write_text('policies = ["greedy"]\nrounds = 1000\n')
    arguments = ["simulate", "--config", str(config), *SMALL, "--out", str(out)]
    assert run(*arguments) == 0
    assert run(*arguments) == 0  # it is there already
    assert run(*arguments, "--seed", "2") == 2
    assert (
        "holds another run, or one by other code; choose another --out, or replace it with --force"
        in capsys.readouterr().err
    )
    assert run(*arguments, "--seed", "2", "--force") == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--policy", "offul"], "unknown name 'offul'; did you mean 'oful'?"),
        (["--policy", "oful,radius_scal=1"], "unknown key 'radius_scal'; did you mean 'radius_scale'?"),
        (["--policy", "oful,radius_scale"], "'radius_scale' in 'oful,radius_scale' should be KEY=VALUE"),
        (["--policy", "oful,radius_scale=wide"], "radius_scale must be a number > 0"),
        (["--policy", "oful", "--attack", "flip,rounds=-3"], "rounds must be an integer >= 0, got -3"),
        (["--policy", "oful", "--trials", "0"], "trials must be an integer >= 1, got 0"),
        (["--policy", "oful", "--engine", "dusk"], "did you mean 'dask'?"),
        (["--policy", "oful", "--batch", "0"], "batch must be an integer >= 1, got 0"),
        (["--policy", "oful", "--workers", "0"], "workers must be an integer >= 1, got 0"),
        (["--config", "missing.toml"], "can't read missing.toml"),
        ([], "policies must name at least one of: oful"),
    ],
)
def test_bad_options_write_nothing(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "folder" / "run.parquet"
    assert run("simulate", *arguments, "--out", str(out)) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_toml_typo_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "run.toml"
    for text, message in (
        ("policies = ['oful'\nrounds = 3", "not valid TOML"),
        ("policies = ['oful']\nround = 3", "unknown key 'round'; did you mean 'rounds'?"),
    ):
        config.write_text(text)
        assert run("simulate", "--config", str(config), "--out", str(tmp_path / "x" / "run.parquet")) == 2
        assert message in capsys.readouterr().err
        assert [path.name for path in tmp_path.iterdir()] == ["run.toml"]


def test_plotting_what_is_no_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("plot", str(tmp_path / "missing.parquet")) == 1
    (tmp_path / "x.parquet").write_text("text")
    assert run("plot", str(tmp_path / "x.parquet")) == 1
    assert "not a result of robandit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "names"), [("policies", POLICIES), ("attacks", ATTACKS), ("environments", ENVIRONMENTS)]
)
def test_lists_have_one_line_each(kind: str, names: dict[str, type], capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", kind) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(names)
    for name in names:
        assert run("list", kind, name) == 0
        assert capsys.readouterr().out.count("Settings:") == 1
    assert run("list", kind, "zzz") == 2


def test_help_suffices(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["simulate"], ["plot"], ["list"], ["list", "policies"]):
        assert run(*words, "--help") == 0
    text = capsys.readouterr().out
    for word in ("--config", "--engine", "--workers", "FILE.py:CLASS", "exit codes", "radius_scale = 0.4", "--force"):
        assert word in text


def test_stopping_from_the_keyboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from robandit.lab import engine

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(engine, "work", stop)
    assert run("simulate", "--policy", "oful", *SMALL, "--out", str(tmp_path / "run.parquet")) == 130


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "pyarrow" else name)
    assert run("simulate", "--policy", "oful") == 2
    assert "needs pyarrow as well: pip install '.[lab]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "missing", "extras"),
    [
        ("import visits.csv", "httpx", "lab,client"),
        ("import visits.csv", "pyarrow", "lab,client"),
        ("import visits.csv --store log.db", "apsw", "lab,serve"),
        ("export --out shop.ndjson", "pyarrow", "lab,client"),
    ],
)
def test_history_needs_two_extras(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, missing: str, extras: str
) -> None:
    monkeypatch.setattr(command, "find_spec", lambda name: None if name == missing else name)
    assert run(*words.split(), "--bandit", "shop") == 2
    assert f"needs {missing} as well: pip install '.[{extras}]'" in capsys.readouterr().err


def test_an_address_that_is_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("export", "--bandit", "shop", "--out", str(tmp_path / "log"), "--url", "http://localhost:no") == 2
    assert "--url http://localhost:no is no address: Invalid port: 'no'" in capsys.readouterr().err


def test_a_bar_on_a_terminal(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 120))
    words = [sys.executable, "-m", "robandit", "simulate", "--policy", "oful", *SMALL, "--rounds", "3000"]
    out = str(tmp_path / "run.parquet")
    subprocess.run([*words, "--out", out], stderr=theirs, stdout=subprocess.DEVNULL, check=True)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError):  # which is how a closed terminal ends
        while part := os.read(ours, 10_000):
            shown += part
    os.close(ours)
    assert b"100%" in shown and b"rounds/s" in shown
