"""Every block of code on a page is executed by a test, or says in a comment above it why not.

A block with prompts is a doctest. Above any other stands one of these, as `<!-- … -->`:

- run here: robandit commands, which `make test-site` gives from an empty folder
- run by FILE::TEST: a test that reads the page
- a copy of FILE, which TEST runs
- not run: REASON, one of `REASONS`, and perhaps what does the same
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from robandit.cli import main

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])
NOTEBOOKS = sorted((ROOT / "docs").rglob("*.ipynb"))  # whose cells of code have tests of their own
REASONS = {
    "a file",
    "an output",
    "installs packages",
    "needs a GPU",
    "needs a machine of its own",
    "needs data of yours",
    "needs what others publish",
    "starts a service",
    "takes hours",
    "takes minutes",
}

FENCE = re.compile(r"^( *)(`{3,})(.*)$")
MARK = re.compile(r"<!-- (.*?) -->$")
NAMED = re.compile(r"(?:tests|examples|benchmarks)/[\w./]+")


class Block(NamedTuple):
    """A block of code: where it begins, what it holds, and what the comment above it says."""

    place: str
    text: str
    mark: str

    @property
    def page(self) -> Path:
        return ROOT / self.place.partition(":")[0]


def blocks(text: str, page: str) -> Iterator[Block]:
    """All fenced blocks of a page."""
    above, fence, start, inside = "", "", 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if not fence and found:
            fence, start, inside = found[1] + found[2], number, []
        elif fence and line == fence:
            mark = MARK.search(above)
            yield Block(f"{page}:{start}", "\n".join(inside), mark[1] if mark else "")
            fence = above = ""
        elif fence:
            inside.append(line)
        elif line.strip():
            above = line
    assert not fence, f"{page}:{start} has no end"


def text_of(page: Path) -> str:
    """The Markdown of a page, or of the cells of a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".md":
        return text
    return "\n\n".join("".join(cell["source"]) for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")


ALL = [block for page in PAGES + NOTEBOOKS for block in blocks(text_of(page), str(page.relative_to(ROOT)))]
RUN_HERE = [block for block in ALL if block.mark == "run here"]


def wrong(block: Block) -> str | None:
    """What is missing at a block, if anything."""
    if block.text.lstrip().startswith(">>>"):
        return "a doctest is executed as it stands" if block.mark else None
    if missing := [name for name in NAMED.findall(block.mark) if not (ROOT / name).is_file()]:
        return f"there is no {missing[0]}"
    if block.mark.startswith("run by "):
        return _wrong_test(block)
    if block.mark.startswith("a copy of "):
        return None if block.text in source_of(block) else "the file has other code"
    if block.mark.startswith("not run: "):
        reason = block.mark.removeprefix("not run: ").partition(";")[0]
        return None if reason in REASONS else f"{reason!r} is no reason why a block is not run"
    return None if block.mark == "run here" else "it is neither executed nor marked"


def source_of(block: Block) -> str:
    """The first file that the comment above a block names."""
    return (ROOT / NAMED.findall(block.mark)[0]).read_text(encoding="utf-8")


def _wrong_test(block: Block) -> str | None:
    """Whether the test that a block names is there, in a file that reads the page."""
    name, text = block.mark.rpartition("::")[2], source_of(block)
    return None if f"def {name}(" in text and f'{block.page.name}"' in text else f"no {name} reads {block.page.name}"


@pytest.mark.parametrize("block", ALL, ids=[block.place for block in ALL])
def test_a_block_is_executed_or_says_why_not(block: Block) -> None:
    assert wrong(block) is None


def test_every_doctest_is_collected_and_none_is_skipped(pytestconfig: pytest.Config) -> None:
    folders = [ROOT / name for name in pytestconfig.getini("testpaths")]
    assert "--doctest-glob=*.md" in pytestconfig.getini("addopts")
    assert all(any(page.is_relative_to(folder) for folder in folders) for page in PAGES)
    assert not [block.place for block in ALL if "+SKIP" in block.text]


@pytest.mark.site
@pytest.mark.parametrize("block", RUN_HERE, ids=[block.place for block in RUN_HERE])
def test_the_commands_of_a_page_work(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        assert words[0] == "robandit"
        assert main(words[1:]) == 0


@pytest.mark.parametrize(
    ("mark", "code", "why"),
    [
        ("", "x", "it is neither executed nor marked"),
        ("not run: lazy", "x", "'lazy' is no reason why a block is not run"),
        ("run here", ">>> x", "a doctest is executed as it stands"),
        ("a copy of examples/shop.py", "not in it", "the file has other code"),
        ("not run: an output; tests/nothing.py does the same", "x", "there is no tests/nothing.py"),
        ("run by tests/client/test_client.py::test_nothing", "x", "no test_nothing reads page.md"),
        ("run by tests/client/test_client.py::test_where_it_is_found", "x", "no test_where_it_is_found reads page.md"),
    ],
)
def test_the_test_of_blocks_sees_mistakes(mark: str, code: str, why: str) -> None:
    comment = f"<!-- {mark} -->\n" if mark else ""
    (block,) = blocks(f"Text.\n\n{comment}```\n{code}\n```\n", "docs/page.md")
    assert block.text == code and wrong(block) == why


def test_a_mark_is_for_one_block_only() -> None:
    first, second = blocks("<!-- run here -->\n```\nx\n```\n\n```\ny\n```\n", "docs/page.md")
    assert wrong(first) is None and wrong(second) == "it is neither executed nor marked"
