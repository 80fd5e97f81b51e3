"""The package as it would be published: built, and used from an empty environment. `make test-wheel` runs it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).parents[1]


def run(*words: object, cwd: Path, fails: bool = False) -> str:
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=600)
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
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

    def robandit(self, *words: object, fails: bool = False) -> str:
        return run(self.bin / "robandit", *words, cwd=self.folder, fails=fails)


@pytest.fixture(scope="module")
def alone(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("alone"), wheel, "")


@pytest.fixture(scope="module")
def lab(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("lab"), wheel, "lab")


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


@pytest.mark.parametrize(
    ("command", "extra"),
    [("serve", "serve"), ("play", "serve"), ("simulate --policy oful", "lab"), ("list policies", "")],
)
def test_a_command_says_which_extra_it_needs(alone: Installed, command: str, extra: str) -> None:
    said = alone.robandit(*command.split(), fails=bool(extra))
    assert f"pip install '.[{extra}]'" in said if extra else "quorum" in said


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


@pytest.fixture(scope="module")
def serve(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(tmp_path_factory.mktemp("serve"), wheel, "serve")


def test_the_service_decides(serve: Installed) -> None:
    with serving(serve, "serve", "--store", "log.db") as address:
        for method, path, body in (
            ("PUT", "shop", {"rewards": "clicks", "features": {"action": {"price": [0, 50]}}}),
            ("POST", "shop/decisions", {"actions": [{"id": "scarf", "features": {"price": 9}}]}),
        ):
            said = json.dumps(body).encode()
            request = Request(f"{address}/v1/bandits/{path}", said, {"Content-Type": "application/json"}, method=method)
            with urlopen(request, timeout=30) as reply:
                answer = json.load(reply)
        assert answer["action_id"] == "scarf"
        with urlopen(address, timeout=30) as page:
            assert b"robandit" in page.read()


def test_the_game_is_played(serve: Installed) -> None:
    with serving(serve, "play") as address:
        with urlopen(address, timeout=30) as page:
            assert b"You are the liar" in page.read()
        game: dict[str, Any] = {"id": ""}
        for path, body in (("games", {"world": "clicks", "seed": 1, "budget": 9}), ("play", {"round": 0, "rounds": 5})):
            place = f"{address}/v1/games" + (f"/{game['id']}/{path}" if game["id"] else "")
            request = Request(place, json.dumps(body).encode(), {"Content-Type": "application/json"})
            with urlopen(request, timeout=30) as reply:
                game = json.load(reply)
        assert game["round"] == 5
