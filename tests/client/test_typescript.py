"""The TypeScript client: its types are those of the service, and it works. `make test-typescript` runs all of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from served import Server

import robandit
from robandit.service.requests.openapi import openapi

FOLDER = Path(__file__).parents[2] / "clients" / "typescript"
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "typescript.md"
TYPES = FOLDER / "src" / "schema.ts"
AGAIN = "the service's calls have changed: `make typescript` writes the types again"


def npm(*words: str, given: str | None = None, **more: str) -> str:
    """What npm prints, in the folder of the client."""
    command = ["npm", *words]
    done = subprocess.run(
        command, cwd=FOLDER, input=given, capture_output=True, text=True, timeout=600, env=os.environ | more
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed() -> None:
    if shutil.which("npm") is None:
        pytest.skip("the TypeScript client is not tested: npm is not installed")
    npm("install", "--no-audit", "--no-fund", "--ignore-scripts")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    one = Server(tmp_path / "log.db")
    yield one
    one.stop()


def test_it_has_every_call_and_every_field() -> None:
    """A first look, which needs no npm."""
    text, document = TYPES.read_text(encoding="utf-8"), openapi()
    for path in document["paths"]:
        assert f'"{path}": {{' in text, AGAIN
    for name, schema in document["components"]["schemas"].items():
        assert f" {name}: " in text, AGAIN
        for field in schema.get("properties", ()):
            assert f" {field}: " in text or f" {field}?: " in text, AGAIN


def test_it_has_the_version_of_the_library() -> None:
    assert json.loads((FOLDER / "package.json").read_text(encoding="utf-8"))["version"] == robandit.__version__


@pytest.mark.typescript
def test_its_types_are_those_of_the_service(installed: None) -> None:
    found = npm("run", "--silent", "generate", given=json.dumps(openapi()))
    assert found == TYPES.read_text(encoding="utf-8"), AGAIN


@pytest.mark.typescript
def test_it_compiles_strictly_and_works_with_a_service(installed: None, server: Server) -> None:
    """The tests in its folder, with the tools that its own package names."""
    said = npm("test", ROBANDIT_URL=f"http://127.0.0.1:{server.port}")
    assert "# pass 12" in said and "# fail 0" in said, said


@pytest.mark.typescript
def test_the_code_of_the_page(installed: None, server: Server) -> None:
    text = PAGE.read_text(encoding="utf-8").partition("```ts\n")[2].partition("```")[0]
    place = FOLDER / "out" / "page"
    place.mkdir(parents=True, exist_ok=True)
    (place / "page.ts").write_text(text.replace("http://localhost:8000", f"http://127.0.0.1:{server.port}"))
    settings = {"compilerOptions": {"rootDir": ".", "outDir": "."}, "include": ["."], "exclude": []}
    (place / "tsconfig.json").write_text(json.dumps({"extends": "../../test/tsconfig.json"} | settings))
    npm("run", "build")
    npm("exec", "tsc", "--", "--project", "out/page")
    done = subprocess.run(["node", place / "page.js"], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[0] == "accepted" and done.stdout.splitlines()[1].startswith("404 "), done
