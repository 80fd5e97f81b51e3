"""The OpenAPI document is true: schemathesis sends what it allows and what it forbids, and checks the answers."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from served import Server

from robandit.cli import main
from robandit.policies import POLICIES
from robandit.service.learning.learner import Learner
from robandit.service.requests.openapi import openapi
from robandit.wire.types import NEED_CORRUPTION, BanditSettings

pytestmark = pytest.mark.skipif(not find_spec("schemathesis"), reason="schemathesis is not installed")

# A valid decision may have as many features as another bandit's actions have, or too large ones; features may have a
# wrong checksum; a reward may be beyond the range that a bandit declares: no document can say.
CONFIG = """
[checks]
negative_data_rejection.expected-statuses = ["400", "401", "403", "404", "405", "409", "413", "415", "422"]

[[operations]]
include-path = "/v1/bandits/{name}/decisions"
checks.positive_data_acceptance.expected-statuses = ["200", "404", "409", "410", "422"]

[[operations]]
include-path = "/v1/bandits/{name}/decisions/batch"
checks.positive_data_acceptance.expected-statuses = ["200", "404", "410", "413"]

[[operations]]
include-path = "/v1/bandits/{name}/imports"
checks.positive_data_acceptance.expected-statuses = ["200", "404", "410", "422"]

[[operations]]
include-path = "/v1/bandits/{name}/rewards"
checks.positive_data_acceptance.expected-statuses = ["200", "404", "410", "422"]

[[operations]]
include-path = "/v1/bandits/{name}/acknowledgements"
checks.positive_data_acceptance.expected-statuses = ["200", "404", "409"]

[[operations]]
include-path = "/v1/bandits/{name}"
checks.positive_data_acceptance.expected-statuses = ["200", "201", "202", "404", "409", "410", "422"]
"""

MOST = "examples,fuzzing,stateful"
ALL = f"{MOST},coverage"
"""The last of them tries all that is near a limit, and takes longest."""


def cases(folder: Path, *options: str, key: str | None = None, examples: int, phases: str = ALL) -> int:
    """The number of requests in which schemathesis found nothing wrong, with every check that it has."""
    server = Server(folder / "log.db", *options)
    (folder / "schemathesis.toml").write_text(CONFIG, encoding="utf-8")
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(folder / "schemathesis.toml"), "run"]
    command += [f"http://127.0.0.1:{server.port}/openapi.json", "--checks", "all", "--seed", "1"]
    command += ["--max-examples", str(examples), "--phases", phases]
    command += ["--report", "json", "--report-json-path", str(folder / "report.json")]
    command += ["--header", f"Authorization: Bearer {key}"] if key else []
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stdout
        assert server.ask("GET", "/health") == (200, {"status": "ok"})
    finally:
        server.kill()
    report: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    assert report["operations"]["tested"] == 19 and not report["failures"] and not report["errors"]
    print(report["test_cases"])
    return int(report["test_cases"]["generated"])


def keyed(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["key", "me", "admin", "--keys", str(folder / "keys.json")]) == 0
    return capsys.readouterr().out.strip()


def test_the_document_is_true(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = keyed(tmp_path, capsys)
    found = cases(tmp_path, "--keys", str(tmp_path / "keys.json"), key=key, examples=10, phases=MOST)
    assert found > 100


@pytest.mark.slow
@pytest.mark.parametrize("keys", [True, False])
def test_the_document_is_true_at_length(tmp_path: Path, capsys: pytest.CaptureFixture[str], keys: bool) -> None:
    key = keyed(tmp_path, capsys) if keys else None
    options = ["--keys", str(tmp_path / "keys.json")] if keys else []
    assert cases(tmp_path, *options, key=key, examples=500) > 3000


def test_it_asks_for_keys_only_where_they_are_needed() -> None:
    closed, wide = openapi(keys=True), openapi(keys=False)
    assert closed["security"] == [{"key": []}] and "security" not in wide
    free = [path for path, calls in closed["paths"].items() if calls.get("get", {}).get("security") == []]
    assert free == ["/health", "/ready", "/openapi.json"]


@pytest.mark.no_cover
@pytest.mark.parametrize("policy", POLICIES)
def test_who_must_be_told_the_corruption(policy: str) -> None:
    if policy in NEED_CORRUPTION:
        with pytest.raises(ValueError, match=f"policy {policy} must be told `corruption`"):
            BanditSettings(dim=2, policy=policy)
    else:
        assert Learner(BanditSettings(dim=2, policy=policy), 7).policy.rounds == 0
