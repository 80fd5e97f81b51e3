"""The package as it would be published: built, and used from an empty environment. `make test-wheel` runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[1]


NEEDS = re.compile(r"needs .* as well: pip install '\.\[([\w,]+)\]' in a clone of robandit")


def run(*words: object, cwd: Path, fails: bool | None = False) -> str:
    """What a program printed. It must fail or not, as told; None for one that may."""
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=600)
    assert fails is None or (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def sdist(built: Path) -> Path:
    (found,) = built.glob("*.tar.gz")
    return found


class Installed:
    """An environment that holds the wheel, the packages of one extra, and nothing else."""

    def __init__(self, folder: Path, wheel: Path, extra: str) -> None:
        self.folder = folder
        run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
        what = f"{wheel}[{extra}]" if extra else wheel
        run(self.bin / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", what, cwd=folder)

    @property
    def bin(self) -> Path:
        return self.folder / "venv" / "bin"

    def python(self, *words: object) -> str:
        return run(self.bin / "python", *words, cwd=self.folder)

    def robandit(self, *words: object, fails: bool | None = False) -> str:
        return run(self.bin / "robandit", *words, cwd=self.folder, fails=fails)


Environments = Callable[[str], Installed]


@pytest.fixture(scope="module")
def with_extra(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environments:
    """Makes an environment for an extra, or for some with commas between them. It is made once."""
    return cache(lambda extra: Installed(tmp_path_factory.mktemp(extra.replace(",", "-") or "alone"), wheel, extra))


@pytest.fixture(scope="module")
def alone(with_extra: Environments) -> Installed:
    return with_extra("")


@pytest.fixture(scope="module")
def lab(with_extra: Environments) -> Installed:
    return with_extra("lab")


@pytest.fixture(scope="module")
def serve(with_extra: Environments) -> Installed:
    return with_extra("serve")


def test_an_index_would_take_both(built: Path) -> None:
    assert run(sys.executable, "-m", "twine", "check", "--strict", *built.iterdir(), cwd=built).count("PASSED") == 2


def test_both_hold_the_licence_and_the_pages_that_the_code_cites(wheel: Path, sdist: Path) -> None:
    cited = {
        page for path in (ROOT / "src").rglob("*.py") for page in re.findall(r"docs/[\w/-]+\.md", path.read_text())
    }
    assert cited
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert any(name.endswith("/LICENSE") for name in names)
    assert cited <= {name.removeprefix("robandit/") for name in names}
    assert not [name for name in names if name.startswith("tests") or name.endswith(".pyc")]
    with tarfile.open(sdist) as packed:
        found = {name.split("/", 1)[-1] for name in packed.getnames()}
    assert cited | {"LICENSE", "CITATION.cff", "tests/test_wheel.py"} <= found


def test_the_readme_works_with_numpy_alone(alone: Installed) -> None:
    alone.python("-m", "doctest", ROOT / "README.md")
    listed = json.loads(alone.python("-m", "pip", "list", "--format", "json", "--disable-pip-version-check"))
    assert {package["name"] for package in listed} <= {"robandit", "numpy", "pip", "setuptools"}


COMMANDS = {  # each has loaded all that it needs before it finds that something is not there
    "list policies": "",
    "key me read": "",
    "serve --store nowhere/log.db": "serve",
    "play --environment nowhere": "serve",
    "check none.db": "serve",
    "backup none.db copy.db": "serve",
    "restore none.db copy.db": "serve",
    "evaluate log.ndjson": "serve",
    "audit none.csv --features x* --rewards clicks": "lab",
    "replay none.csv --features x* --reward click": "lab",
    "simulate --policy oful --attack nothing": "lab",
    "plot none.parquet": "lab",
    "data nothing": "lab",
    "paper report --out nowhere": "lab",
    "arena race --policies nothing": "lab",
    "export --bandit shop --out shop.ndjson --url http://localhost:no": "lab,client",
    "import none.csv --bandit shop --url http://localhost:no": "lab,client",
    "import none.csv --bandit shop --store none.db": "lab,serve",
    "cut --bandit shop --keep-days 30 --url http://localhost:no": "client",
    "forget log.ndjson --bandit shop --url http://localhost:no": "client",
    "shrink none.db": "serve",
}


def test_these_are_all_commands(alone: Installed) -> None:
    listed = re.findall(r"^  (\w+) ", alone.robandit("--help"), re.MULTILINE)
    assert set(listed) == {command.split()[0] for command in COMMANDS}


@pytest.mark.parametrize(("command", "extra"), COMMANDS.items())
def test_a_command_works_with_the_extra_that_it_names(with_extra: Environments, command: str, extra: str) -> None:
    """Without it, the command says how to install it, in one line."""
    alone, place = with_extra(""), with_extra(extra)
    for folder in (alone.folder, place.folder):
        (folder / "log.ndjson").write_text("{}\n")
    if extra:
        told = NEEDS.search(found := alone.robandit(*command.split(), fails=True))
        assert told and told[1] == extra and found.count("\n") == 1, found
    said = place.robandit(*command.split(), fails=None)
    assert said and not NEEDS.search(said) and "Traceback" not in said, said


@pytest.mark.parametrize(("name", "extra"), [("Client", "client"), ("simulate", "lab")])
def test_a_name_says_which_extra_it_needs(with_extra: Environments, name: str, extra: str) -> None:
    words = "-c", f"from robandit import {name}; print({name}.__name__)"
    told = NEEDS.search(run(with_extra("").bin / "python", *words, cwd=with_extra("").folder, fails=True))
    assert told and told[1] == extra
    assert with_extra(extra).python(*words) == f"{name}\n"


def test_audit_reads_a_log(lab: Installed) -> None:
    rows = "".join(f"{n % 2},{(n // 2) % 2},{int(n % 3 == 0)}\n" for n in range(400))
    (lab.folder / "log.csv").write_text("x1,x2,reward\n" + rows)
    assert "No corruption is proved" in lab.robandit(
        "audit", "log.csv", "--features", "x*", "--rewards", "clicks", "--out", "page.html"
    )
    assert (lab.folder / "page.html").stat().st_size > 1000


def test_simulate_and_plot(lab: Installed) -> None:
    lab.robandit("simulate", "--policy", "oful", "--rounds", 50, "--trials", 2, "--out", "run.parquet")
    lab.robandit("plot", "run.parquet", "--out", "pictures")
    assert list((lab.folder / "pictures").glob("*.png"))


@contextmanager
def serving(place: Installed, *command: str) -> Iterator[str]:
    """A server from the wheel; its address."""
    words = [str(place.bin / "robandit"), *command, "--port", "0"]
    with subprocess.Popen(
        words, cwd=place.folder, stderr=subprocess.STDOUT, stdout=subprocess.PIPE, text=True
    ) as service:
        assert service.stdout is not None
        try:
            found = (re.search(r"http://[\d.]+:\d+", line) for line in service.stdout)
            yield next(match.group() for match in found if match)
        finally:
            service.terminate()


def ask(address: str, body: object, method: str = "POST") -> Any:
    """What a server answers to JSON."""
    kind = {"Content-Type": "application/json"}
    with urlopen(Request(address, json.dumps(body).encode(), kind, method=method), timeout=30) as reply:
        return json.load(reply)


def test_the_service_decides(serve: Installed) -> None:
    with serving(serve, "serve", "--store", "log.db") as address:
        place = f"{address}/v1/bandits/shop"
        ask(place, {"rewards": "clicks", "features": {"action": {"price": [0, 50]}}}, "PUT")
        chosen = ask(f"{place}/decisions", {"actions": [{"id": "scarf", "features": {"price": 9}}]})
        assert chosen["action_id"] == "scarf"
        with urlopen(address, timeout=30) as page:
            assert b"robandit" in page.read()


REGRET = """
import json, pyarrow.parquet
rows = pyarrow.parquet.read_table("again.parquet", columns=["policy", "round", "regret"]).to_pylist()
print(json.dumps({row["policy"]: row["regret"] for row in rows if row["round"] == 40}))
"""


def test_history_goes_in_and_out(serve: Installed, with_extra: Environments) -> None:
    place = with_extra("lab,client")
    (place.folder / "visits.csv").write_text("price,reward\n9,1\n31,0\n")
    with serving(serve, "serve", "--store", "history.db") as address:
        settings = "features={'action': {'price': (0, 50)}}"
        place.python("-c", f"from robandit import Client; Client('{address}').create('shop', {settings})")
        where = ("--bandit", "shop", "--url", address)
        assert "2 rows were learnt" in place.robandit("import", "visits.csv", *where)
        place.robandit("export", *where, "--out", "shop.ndjson")
    assert len((place.folder / "shop.ndjson").read_text().splitlines()) > 2


def test_the_game_is_played_and_simulate_plays_it_again(serve: Installed, lab: Installed) -> None:
    with serving(serve, "play") as address:
        with urlopen(address, timeout=30) as page:
            assert b"You are the liar" in page.read()
        game = ask(f"{address}/v1/games", {"world": "paper", "seed": 1, "budget": 9})
        place = f"{address}/v1/games/{game['id']}"
        scene = ask(f"{place}/play", {"round": 0, "rounds": 40, "lie": {"kind": "flip"}})
        (kept,) = ask(f"{place}/keep", {})
        with urlopen(f"{address}/found-{kept['number']}.toml", timeout=30) as file:
            (lab.folder / "game.toml").write_bytes(file.read())
    assert scene["round"] == 40 and kept["lies"] == "1-40 flip"
    lab.robandit("simulate", "--config", "game.toml", "--checkpoints", game["rounds"], "--out", "again.parquet")
    assert list(json.loads(lab.python("-c", REGRET)).values()) == [lied for lied, _ in scene["regret"]]
