"""The pages: short lines, links that lead somewhere, and commands that the command line knows."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import MISSING, fields
from inspect import signature
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

import robandit
from robandit.cli.command import Command
from robandit.cli.tree import ROBANDIT, find
from robandit.errors import ConfigError
from robandit.policies import POLICIES
from robandit.policies.settings import MEANINGS
from website import notebook

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
WIDTH = 100

FENCE = re.compile(r"^ *```")
LINK = re.compile(r"\]\(([^)\s]+)\)")
INLINE = re.compile(r"`([^`]+)`")
FREE = re.compile(r"^\s*(\||!\[)")  # tables and images may be as wide as they need


class Line(NamedTuple):
    """One line of a page, and whether it stands in a block of code."""

    number: int
    text: str
    code: bool


def lines_of(page: Path) -> Iterator[Line]:
    code = False
    for number, text in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        fence = bool(FENCE.match(text))
        code ^= fence
        yield Line(number, text, code or fence or text.startswith("    "))


def prose(page: Path) -> str:
    """The page without its blocks of code, all white space made one blank."""
    return " ".join(" ".join(line.text for line in lines_of(page) if not line.code).split())


def headings(page: Path) -> set[str]:
    """The anchors of a page, as GitHub makes them."""
    titles = [line.text.lstrip("# ") for line in lines_of(page) if not line.code and line.text.startswith("#")]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.fixture(params=PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def page(request: pytest.FixtureRequest) -> Path:
    found = request.param
    assert isinstance(found, Path)
    return found


def test_prose_fits_the_window(page: Path) -> None:
    """A line is measured as it is read: without the addresses of its links."""
    wide = [
        f"{page.name}:{line.number} has {len(line.text)} characters"
        for line in lines_of(page)
        if not line.code and not FREE.match(line.text) and len(LINK.sub("]", line.text)) > WIDTH
    ]
    assert not wide, "\n".join(wide)


@pytest.mark.no_cover
def test_links_lead_somewhere(page: Path) -> None:
    """Every relative link and image is a file in the repository, and every anchor a heading."""
    for target in LINK.findall(prose(page)):
        if "://" not in target:
            path, _, anchor = target.partition("#")
            found = (page.parent / path).resolve() if path else page
            assert found.exists() and found.is_relative_to(ROOT), f"there is no {target}"
            assert not anchor or anchor in headings(found), f"{target} has no such heading"


def test_files_that_are_named_exist(page: Path) -> None:
    """So is every file of the repository that is named as code."""
    for said in INLINE.findall(prose(page)):
        for word in said.split():
            if re.fullmatch(r"(src|tests|docs|benchmarks|examples)/[\w./-]+", word):
                assert (ROOT / word).exists(), f"there is no {word}"


def blocks_of(text: str) -> list[str]:
    """The beginning of a page, cut at empty lines: its title, its first paragraph, and so on."""
    return [part for part in re.split(r"\n\s*\n", re.sub(r"<!--.*?-->", "", text)) if part.strip()]


def check_beginning(text: str) -> None:
    """What a page is for, in two sentences at most, and a picture or an example within the first window."""
    title, purpose, *_ = blocks_of(text)
    assert re.fullmatch(r"# [^#\n]+", title)
    assert re.match(r"[\w`*\[]", purpose) and not purpose.startswith("```"), "after the title there is no paragraph"
    sentences = re.split(r"(?<=[.?!])\s+(?=[A-Z`*\[])", purpose.strip())
    assert len(sentences) <= 2, sentences
    assert re.search(r"^(```|!\[)", "\n".join(text.splitlines()[:25]), re.MULTILINE)


BEGUN = [path for end in ("md", "ipynb") for path in sorted((ROOT / "docs").rglob(f"*.{end}"))]


@pytest.mark.parametrize("path", BEGUN, ids=lambda path: path.name)
def test_a_page_begins_with_what_it_is_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    check_beginning(notebook.page(text, path.stem).text if path.suffix == ".ipynb" else text)


# Commands.


def blocks(page: Path) -> Iterator[str]:
    """The commands in blocks of code, with continued lines put together."""
    code = "\n".join(line.text for line in lines_of(page) if line.code).replace("\\\n", " ")
    for text in code.splitlines():
        command = text.strip().removeprefix("$ ")
        if command.startswith("robandit "):
            yield re.split(r" [|>] | && ", command)[0]


def mentions(page: Path) -> Iterator[str]:
    """The commands in running text, such as `robandit audit LOG`; of `tune|verify` each."""
    for said in INLINE.findall(prose(page)):
        either = re.search(r"\S+\|\S+", said)
        if said.startswith("robandit "):
            yield from (said.replace(either[0], one) for one in either[0].split("|")) if either else [said]


def is_name(word: str) -> bool:
    """Whether a word can be a command's name, and is no placeholder such as NAME or … or [NAME]."""
    return re.fullmatch(r"[a-z][a-z0-9-]*", word) is not None


def give(command: str) -> None:
    """Read a command as the command line would, options and values."""
    found, path, rest = find(shlex.split(command, comments=True)[1:], ROBANDIT)
    if isinstance(found, Command):
        found.read(path, rest)


def look_up(command: str) -> None:
    """Find a command and the names of its options. What it needs beside that may be left out."""
    words = shlex.split(command)[1:]
    found, path, _ = find(list(takewhile(is_name, words)), ROBANDIT)
    if isinstance(found, Command):
        parser = argparse.ArgumentParser()
        found.options(parser)
        for option in (word.partition("=")[0] for word in words if word.startswith("-")):
            assert option in parser._option_string_actions, f"`{path}` has no {option}"


@pytest.mark.no_cover
def test_commands_in_blocks_can_be_given(page: Path) -> None:
    for command in blocks(page):
        give(command)


@pytest.mark.no_cover
def test_commands_that_are_mentioned_exist(page: Path) -> None:
    for command in mentions(page):
        look_up(command)


@pytest.mark.parametrize("command", ["robandit simulat", "robandit simulate --polcy oful", "robandit paper arena"])
@pytest.mark.parametrize("read", [give, look_up])
def test_the_test_of_commands_sees_mistakes(read: Callable[[str], None], command: str) -> None:
    with pytest.raises((ConfigError, AssertionError)):
        read(command)


# What there is, and what the pages say there is.


POLICIES_PAGE = ROOT / "docs" / "how-to" / "policies.md"


def rows_by_name(head: str) -> dict[str, list[str]]:
    """The table of the page on policies whose first column has this head: its cells by each name in the first."""
    lines = (line.text for line in lines_of(POLICIES_PAGE))
    table = takewhile(
        lambda text: text.startswith("|"), dropwhile(lambda text: not text.startswith(f"| {head} |"), lines)
    )
    rows = [[cell.strip() for cell in re.split(r"(?<!\\)\|", text)[1:-1]] for text in table][2:]
    return {name.partition("(")[0]: row for row in rows for name in INLINE.findall(row[0])}


def test_every_policy_is_documented() -> None:
    assert {policy.__name__ for policy in POLICIES.values()} <= set(INLINE.findall(prose(POLICIES_PAGE)))


def test_the_table_of_settings_says_what_there_is() -> None:
    """It has every setting and no other, the letter that the code gives it, and the numbers it is by default."""
    rows = rows_by_name("Setting")
    settings = [item for policy in POLICIES.values() for item in fields(policy)]
    assert rows.keys() == {item.name for item in settings} >= MEANINGS.keys()
    for name, meaning in MEANINGS.items():
        letter = re.match(r"\w(?=[:,]| of | = )", meaning)
        assert letter is None or re.search(rf"\b{letter[0]}\b", rows[name][1]), f"{name} is {letter[0]}"
    for item in settings:
        default = rows[item.name][2]
        assert item.default is not MISSING or not default, f"{item.name} has no default"
        if isinstance(item.default, bool):
            assert ("yes" if item.default else "no") in default
        elif isinstance(item.default, (int, float)):
            assert f"{item.default:g}" in re.findall(r"[\d.]+", default), f"{item.name} is {item.default} by default"


def test_the_fields_of_a_decision_and_the_methods_of_a_policy_are_documented() -> None:
    assert rows_by_name("Field").keys() == {item.name for item in fields(robandit.Decision)}
    assert rows_by_name("Method").keys() == robandit.Policy.__abstractmethods__
    text = POLICIES_PAGE.read_text(encoding="utf-8")
    for name, arguments in re.findall(r"`(\w+)\((self[^)]*)\)`", text):
        assert list(signature(getattr(robandit.Policy, name)).parameters) == arguments.split(", "), name


def test_every_page_can_be_reached_from_the_readme() -> None:
    """By the README's links, or by those of the first page of the docs, which the README names."""
    start = ROOT / "docs" / "index.md"
    linked = {
        (page.parent / target.partition("#")[0]).resolve()
        for page in (ROOT / "README.md", start)
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if "://" not in target
    }
    assert start in linked
    assert set(PAGES) - linked <= {ROOT / "README.md", ROOT / "CHANGELOG.md"}


def test_the_citation_names_this_version() -> None:
    text = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {robandit.__version__}\n" in text
    assert "2110.12615" in text
