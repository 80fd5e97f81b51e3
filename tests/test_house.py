"""The house: imports flow one way, files fit a head, names mean one thing, and the core needs NumPy alone."""

import ast
import subprocess
import sys
from collections import Counter
from graphlib import TopologicalSorter

import pytest

from house import ROOMS, SERVICE, SOURCE, edges, imported, modules, room, trees

pytestmark = pytest.mark.no_cover  # the code is read here, not run


def test_the_folder_can_be_taken_in_at_a_glance() -> None:
    entries = [path.name for path in SOURCE.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 23, sorted(entries)


def test_every_room_has_its_place() -> None:
    assert {room(name) for name in modules()} == set(ROOMS)


def test_no_import_goes_upwards() -> None:
    for importer, other in edges():
        assert ROOMS.index(other) < ROOMS.index(importer), f"{importer} imports {other}"


def test_no_import_goes_upwards_within_the_service() -> None:
    rooms = {name: name.split(".")[1] for name in modules() if name.startswith("service.")}
    assert set(rooms.values()) == set(SERVICE)
    for importer, mine in rooms.items():
        for other in imported(ast.walk(trees()[importer])):
            if other.startswith("service.") and (theirs := other.split(".")[1]) != mine:
                assert SERVICE.index(theirs) < SERVICE.index(mine), f"{importer} imports {other}"


def test_modules_import_each_other_in_no_circle() -> None:
    known, graph = trees(), {}
    for name, tree in known.items():
        found = {other if other in known else other.rpartition(".")[0] for other in imported(tree.body)}  # to be loaded
        graph[name] = {other for other in found if other and other != name}
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize(
    "code",
    [
        "from robandit.cli import main",
        "import robandit.cli",
        "import robandit.cli.paper as paper",
        "from robandit import cli",
        "async def f():\n    import robandit.cli",
    ],
)
def test_the_test_of_imports_sees_all_of_them(code: str) -> None:
    assert {room(name) for name in imported(ast.walk(ast.parse(code)))} == {"cli"}


def test_files_fit_a_head_and_functions_a_screen() -> None:
    long = []
    for name, path in modules().items():
        assert path.read_text(encoding="utf-8").count("\n") <= 400, f"{name} is too long"
        for node in ast.walk(trees()[name]):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                long += [f"{name}.{node.name}"] if lines > 30 else []
    assert long == ["lab.protocol.simulate"]  # the protocol as one loop


def test_no_class_name_has_two_meanings() -> None:
    names = Counter(node.name for tree in trees().values() for node in tree.body if isinstance(node, ast.ClassDef))
    assert [name for name, count in names.items() if count > 1] == ["Bandit"]  # the library's, and a row of a store


def loaded(code: str, names: str) -> str:
    """Those of these modules that are there after some code has run."""
    code = f"import sys; {code}; print(*(name for name in {names.split()} if name in sys.modules))"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_the_core_imports_numpy_alone() -> None:
    assert loaded("import robandit", "scipy matplotlib tqdm cvxpy httpx msgspec") == ""


def test_the_client_needs_no_server() -> None:
    """And is there only once it is asked for."""
    code = "import robandit; assert 'Client' in dir(robandit); robandit.Client"
    assert loaded(code, "starlette uvicorn apsw scipy matplotlib") == ""


def test_serving_imports_only_what_it_needs() -> None:
    code = "import robandit.service.web.app, robandit.cli.service, robandit.service.stores.sqlite, uvicorn"
    assert loaded(code, "scipy matplotlib pyarrow joblib tqdm psycopg httpx") == ""
