"""What the site is made of: the reference has everything, notebooks become pages, and links lead into the site."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Server

import robandit
from robandit.service.requests.openapi import openapi
from test_docs import check_beginning
from website import api, calls, commands, stage
from website.doctests import with_fences, with_links
from website.notebook import page as notebook_page

MODULES = {"attacks", "checks", "environments"}


# The reference.


def test_the_reference_has_all_that_is_exported() -> None:
    told = {name for topic in api.TOPICS.values() for name in topic.names}
    plain = {name.removeprefix("robandit.") for name in told if name.count(".") == 1}
    assert plain == set(robandit.__all__) - MODULES | set(robandit._MORE)
    for module in MODULES:
        found = vars(getattr(robandit, module))
        assert {f"robandit.{module}.{name}" for name in found["__all__"] if callable(found[name])} <= told


def pages_of(value: Any) -> Iterator[str]:
    """The pages of a part of the navigation."""
    if isinstance(value, str):
        yield value
    else:
        for inner in value.values() if isinstance(value, dict) else value:
            yield from pages_of(inner)


@pytest.mark.no_cover
@pytest.mark.parametrize("topic", api.TOPICS)
def test_the_examples_of_the_reference_run(topic: str, tmp_path: Path) -> None:
    example = api.TOPICS[topic].example
    names: dict[str, Any] = {"robandit": robandit}
    if "localhost:8000" not in example:
        exec(example, names)
        return
    server = Server(tmp_path / "log.db")
    try:
        exec(example.replace("localhost:8000", f"127.0.0.1:{server.port}"), names)
        names["client"].close()
    finally:
        server.kill()


@pytest.mark.parametrize("name", [name for name in stage.reference() if name.endswith(".md")])
def test_a_generated_page_begins_with_what_it_is_for(name: str) -> None:
    check_beginning(stage.reference()[name])


def test_the_page_of_commands_has_every_help() -> None:
    page = commands.page()
    headings = re.findall(r"^## (.*)$", page, re.MULTILINE)
    assert headings == commands.names() and "robandit paper figure1" in headings
    for name in headings:
        assert commands.help_of(name).rstrip() in page


def test_a_command_without_help_is_an_error() -> None:
    with pytest.raises(ValueError, match="prints nothing, and ends with 2"):
        commands.help_of("robandit nothing")


def test_the_page_of_calls_has_every_call_and_every_type() -> None:
    page, document = calls.page(), openapi()
    for path, methods in document["paths"].items():
        for method in methods.keys() - {"parameters"}:
            assert f"\n## `{method.upper()} {path}` {{ #" in page
    for name in document["components"]["schemas"]:
        assert f"\n### {name} {{ #{name} }}\n" in page
    assert "<h2" not in page and "<section" not in page


# Notebooks.


def notebook(*cells: dict[str, Any]) -> str:
    return json.dumps({"cells": [{"outputs": [], **cell} for cell in cells]})


def test_a_notebook_becomes_a_page() -> None:
    png = {"image/png": b64encode(b"PNG").decode(), "text/plain": "<Figure>"}
    table = {"text/html": "<table>\n\n<tr></tr></table>", "text/plain": "rows"}
    shown = [
        {"output_type": "stream", "text": ["learnt\n", "all\n"]},
        {"output_type": "display_data", "data": png},
        {"output_type": "execute_result", "data": table},
    ]
    text, pictures = notebook_page(
        notebook(
            {"cell_type": "markdown", "source": ["# Title\n", "\n", "Text."]},
            {"cell_type": "code", "source": "plot()", "outputs": shown},
            {"cell_type": "code", "source": ""},
        ),
        "shop",
    )
    assert pictures == {"shop-1.png": b"PNG"}
    assert text.split("\n\n") == [
        *("# Title", "Text.", "```python\nplot()\n```", "```{ .text .output }\nlearnt\nall\n```"),
        "![What the cell above draws](shop-1.png)",
        '<div class="output"><table>\n<tr></tr></table></div>\n',
    ]


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ({"output_type": "error", "ename": "ValueError"}, "ends in ValueError"),
        ({"output_type": "display_data", "data": {"text/html": "<script>1</script>"}}, "shows a script"),
    ],
)
def test_a_notebook_that_failed_or_runs_scripts_is_refused(output: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        notebook_page(notebook({"cell_type": "code", "source": "x", "outputs": [output]}), "shop")


# Links.


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository of a few files, with a page at docs/how-to/page.md."""
    for name, text in {
        "README.md": "[the docs](docs/index.md), [hidden](.github/run.yml)\n",
        "tool.py": "print(1)\n",
        ".github/run.yml": "on: push\n",
        "docs/index.md": "# Start\n",
        "docs/try.ipynb": notebook({"cell_type": "markdown", "source": "# Try"}),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(stage, "ROOT", tmp_path)
    monkeypatch.setattr(stage, "DOCS", tmp_path / "docs")
    return tmp_path


def put(repository: Path, text: str) -> tuple[str, list[str]]:
    """A page as it is staged, and the files that follow it."""
    source, out = repository / "docs" / "how-to" / "page.md", repository / "out"
    source.parent.mkdir(exist_ok=True)
    source.write_text(text)
    found = stage._put(source, out)
    return (out / "how-to" / "page.md").read_text(), [str(path.relative_to(repository)) for path in found]


@pytest.mark.parametrize(
    ("link", "becomes", "file"),
    [
        ("../index.md#top", "../index.md#top", "docs/index.md"),
        ("../try.ipynb", "../try.md", "docs/try.ipynb"),
        ("../../README.md#install", "../repository/README.md#install", "README.md"),
        ("../../tool.py", "../repository/tool.py.md", "tool.py"),
        ("../../.github/run.yml", "../repository/github/run.yml.md", ".github/run.yml"),
    ],
)
def test_links_lead_into_the_site(repository: Path, link: str, becomes: str, file: str) -> None:
    assert put(repository, f"[a]({link})\n") == (f"[a]({becomes})\n", [file])


def test_what_is_no_link_stays(repository: Path) -> None:
    text = "[a](#here) [b](https://example.org)\n\n```\n[c](../nothing.md)\n```\n"
    assert put(repository, text) == (text, [])


def test_a_link_that_leads_nowhere_stops_the_build(repository: Path) -> None:
    with pytest.raises(ValueError, match=r"docs/how-to/page\.md links to \.\./nothing\.md, and there is no such file"):
        put(repository, "[a](../nothing.md)\n")


def test_examples_with_prompts_say_so(repository: Path) -> None:
    assert put(repository, "```python\n>>> 1\n1\n```\n\n```python\nx\n```\n")[0].count("pycon") == 1


def test_a_picture_leads_to_itself(repository: Path) -> None:
    (repository / "docs" / "a.png").write_bytes(b"PNG")
    text, files = put(repository, "![two\nlines](../a.png)\n")
    assert text == "[![two\nlines](../a.png)](../a.png)\n" and files == ["docs/a.png"]


def test_numbers_in_tables_stay_with_their_errors(repository: Path) -> None:
    text, _ = put(repository, "| a b | 3.79 ± 0.09 | 1.84 [1.79, 1.88] | −1.8 [−2.7, 1.9] | [a](#b), c |\n1 ± 2\n")
    assert text.replace("\N{NO-BREAK SPACE}", "~") == (
        "| a b | 3.79~±~0.09 | 1.84~[1.79,~1.88] | −1.8~[−2.7,~1.9] | [a](#b), c |\n1 ± 2\n"
    )


def test_code_is_shown_as_a_page(repository: Path) -> None:
    stage._put(repository / "tool.py", repository / "out")
    assert (repository / "out/repository/tool.py.md").read_text() == "# tool.py\n\n```python\nprint(1)\n```\n"


def test_every_page_has_its_place_in_the_navigation() -> None:
    named = list(pages_of(stage.navigation()))
    docs = {stage.place(path) for path in stage.DOCS.rglob("*") if path.suffix in (".md", ".ipynb")}
    generated = {Path("reference", name) for name in stage.reference() if name.endswith(".md")}
    project = {stage.place(stage.ROOT / name) for name in stage.PROJECT}
    assert len(named) == len(set(named))
    assert set(map(Path, named)) == docs | generated | project


# Docstrings.


def test_examples_in_docstrings_become_blocks() -> None:
    text = "What it does.\n>>> f(1)  # doctest: +ELLIPSIS\n1\n\nMore.\n\n>>> g()"
    assert with_fences(text) == "What it does.\n\n```pycon\n>>> f(1)\n1\n```\n\nMore.\n\n```pycon\n>>> g()\n```"


def test_names_and_pages_in_docstrings_lead_to_the_site() -> None:
    text = "As `Bandit` or `bandit`, ``Bandit``.\n```pycon\n`Bandit`\n```"
    assert with_links(text, {"Bandit"}) == text.replace("As `Bandit`", "As [`Bandit`][robandit.Bandit]")
    assert with_links("docs/ideas/quorum.md says", set()) == "[ideas/quorum.md](../ideas/quorum.md) says"
