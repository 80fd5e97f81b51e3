"""The house: imports flow one way, and the core needs NumPy alone."""

import ast
import subprocess
import sys
from pathlib import Path

import robandit

SOURCE = Path(robandit.__file__).parent

# From the ground up; a module imports only what stands before it.
ORDER = [
    "ridge",
    "secular",
    "ellipsoid",
    "streams",
    "radius",
    "actions",
    "policies.inputs",
    "policies.base",
    "policies.confidence",
    "policies.greedy",
    "policies.oful",
    "policies.weighted_oful",
    "policies.robust_weighted_oful",
    "policies.multi_level_weighted_oful",
    "policies.cw_oful",
    "policies.variance_aware_cw_oful",
    "policies.gadaoful",
    "policies.lin_ts",
    "policies.robust_lin_ts",
    "policies.save",
    "policies.master",
    "policies.robust_bandit",
    "policies.exp3p",
    "policies.stochastic_corral",
    "policies.cobe",
    "policies.sceptic",
    "policies",
    "recommend",
    "groups",
    "contradiction",
    "certificate",
    "monitor",
    "environments",
    "attacks.ledger",
    "attacks.base",
    "attacks.adversary",
    "attacks.none",
    "attacks.flip",
    "attacks.random_flips",
    "attacks.periodic",
    "attacks.late",
    "attacks.bursts",
    "attacks.stealth",
    "attacks.suppress_best",
    "attacks.click_fraud",
    "attacks.oracle_target",
    "attacks.garcelon_simplified",
    "attacks.garcelon_adaptive",
    "attacks.ace",
    "attacks.top_n",
    "attacks.context",
    "attacks.first_impressions",
    "attacks",
    "checks.policies",
    "checks.environments",
    "checks.attacks",
    "checks",
    "simulate",
    "catalogue",
    "plan",
    "files",
    "results",
    "engine",
    "summary",
    "pictures",
    "report",
    "audit.logs",
    "audit.cells",
    "audit.feedback",
    "audit",
    "audit.page",
    "experiments",
    "experiments.tune",
    "experiments.figure1",
    "experiments.variance",
    "experiments.theory",
    "experiments.verify",
    "experiments.arena",
    "experiments.arena_times",
    "experiments.arena_pictures",
    "experiments.arena_page",
    "experiments.sweep",
    "experiments.insurance",
    "experiments.alarm",
    "experiments.page",
    "experiments.commands",
    "service",
    "service.history",
    "service.types",
    "service.events",
    "calls",
    "client",
    "service.learner",
    "service.store",
    "service.sqlite",
    "service.postgres",
    "service.export",
    "service.looker",
    "service.hub",
    "service.keys",
    "service.openapi",
    "service.reference",
    "service.pages",
    "service.app",
    "service.protocol",
    "service.logs",
    "service.command",
    "evaluate.estimators",
    "evaluate.logs",
    "evaluate",
    "evaluate.picture",
    "evaluate.command",
    "cli",
    "__main__",
]


def modules() -> dict[str, Path]:
    paths = (path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")
    return {".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imported(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "robandit":
            if node.module == "robandit":
                found |= {name.name for name in node.names}
            else:
                found.add(node.module.removeprefix("robandit."))
    return found


def test_every_module_has_its_place() -> None:
    assert set(modules()) == set(ORDER)


def test_imports_flow_one_way() -> None:
    for name, path in modules().items():
        for other in imported(path):
            assert ORDER.index(other) < ORDER.index(name), f"{name} imports {other}"


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
    code = "import robandit.service.app, robandit.service.command, robandit.service.sqlite, uvicorn"
    assert loaded(code, "scipy matplotlib pyarrow joblib tqdm psycopg httpx") == ""


def test_functions_fit_a_screen() -> None:
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < 50, f"{path.name}: {node.name} is too long"
