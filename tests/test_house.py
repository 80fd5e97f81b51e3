"""The house: imports flow one way, and the core needs NumPy alone."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import robandit

SOURCE = Path(robandit.__file__).parent

# The rooms from the ground up: a module imports from its own room and from those before it.
FLOOR = ["arrays", "errors", "inputs", "streams", "files"]
ROOMS = [
    *FLOOR,
    "geometry",
    "policies",
    "monitor",
    "lab",
    "figures",
    "experiments",
    "wire",
    "client",
    "service",
    "logs",
]
ROOMS += ["cli", "__main__"]


def modules() -> dict[str, Path]:
    paths = (path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
    return {".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imported(code: str) -> set[str]:
    """The rooms that some code imports from, whichever way it says so."""
    names: list[str] = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the package in full"
            names += [f"{node.module}.{name.name}" for name in node.names]
    return {name.split(".")[1] for name in names if name.startswith("robandit.")}


def test_every_room_has_its_place() -> None:
    assert {name.split(".")[0] for name in modules()} == set(ROOMS)


def test_no_import_goes_upwards() -> None:
    for name, path in modules().items():
        room = ROOMS.index(name.split(".")[0])
        for other in imported(path.read_text(encoding="utf-8")) & set(ROOMS):
            assert ROOMS.index(other) <= room, f"{name} imports {other}"


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
    assert imported(code) == {"cli"}


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
    code = "import robandit.service.app, robandit.cli.service, robandit.service.stores.sqlite, uvicorn"
    assert loaded(code, "scipy matplotlib pyarrow joblib tqdm psycopg httpx") == ""


def test_functions_fit_a_screen() -> None:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 50, f"{path.name}: {node.name} is too long"
